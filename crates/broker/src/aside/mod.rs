//! Aside: a runtime for requests that would keep a thread of the network from its other connections.
//!
//! Owns a second, small runtime. Its threads step back behind those of the network, and work on all requests that are aside
//! in slices: a long loop of a handler calls [`give_way`], which lets the next request go on once a slice is over. How many
//! requests with much to do are worked on at once is bounded, in all and for each source ([`turns`]); a request that waits has
//! no turn meanwhile ([`waiting`]). Their decoded forms are charged to a budget of their own, of which a source has a share, so
//! that requests with little to do never wait for it. Guarantees that a request whose client has left ends at its next
//! give-way.

mod own_turn;
mod slice;
mod turns;

use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle, block_in_place};

pub(crate) use self::own_turn::waiting;
use self::slice::Sliced;
pub(crate) use self::slice::give_way;
pub(crate) use self::turns::{Turn, Turns};
use crate::flow::budget::{Charge, MemoryBudget};
use crate::flow::source::Source;

/// How far the threads step back behind the others of the process, in steps of `nice`: they get a third of what a thread of
/// the network gets where both want a core, so that one that holds a lock is not kept from giving it back for long.
const STEP_BACK: i32 = 5;
/// Requests with much to do that are worked on at once, for each core.
const TURNS_PER_CORE: usize = 2;

/// The door to the runtime, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    handle: Handle,
    places: Places,
}

/// The turns and the memory that requests aside share.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The turns of requests that hold none of the memory yet.
    turns: Arc<Turns>,
    /// The turns of requests that hold some. A request in one of these never waits for memory, so each comes to its end.
    charged_turns: Arc<Turns>,
    memory: Arc<MemoryBudget>,
}

/// The runtime on which requests are worked on aside. Its owner shuts it down.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(cores())
        .thread_name("riverrun-aside")
        .on_thread_start(step_back)
        .enable_all()
        .build()
}

/// Work in slices that goes on even if no task waits for it.
pub(crate) fn sliced<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    Sliced::new(work)
}

/// Does long `work` so that the other tasks of this thread go on elsewhere.
pub(crate) fn without_the_thread<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Without it everything works as well, only less smoothly for others.
fn step_back() {
    // No process means this thread, and nothing else of the process.
    if let Err(error) = rustix::process::setpriority_process(None, STEP_BACK) {
        tracing::debug!(%error, "a thread for work aside does not step back");
    }
}

/// The server stops, and nothing is worked on any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopping;

impl Aside {
    /// Requests aside may take so much memory; a request that takes more by itself is worked on alone.
    pub(crate) fn on(runtime: &Runtime, memory_bytes: usize) -> Self {
        let running_max = TURNS_PER_CORE * cores();
        Self {
            handle: runtime.handle().clone(),
            places: Places {
                turns: Turns::new(running_max, running_max.div_ceil(2)),
                charged_turns: Turns::new(running_max, running_max.div_ceil(2)),
                memory: MemoryBudget::new(memory_bytes),
            },
        }
    }

    /// Has `work` done aside, in slices. It ends at its next give-way if this future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopping> {
        Running(self.handle.spawn(Sliced::new(work))).await
    }

    /// Has a slice of work done that cannot give way within it, on a thread of its own that steps back. It is done to its end
    /// also if this future is dropped.
    pub(crate) async fn run_slice<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stopping> {
        ended(self.handle.spawn_blocking(work).await)
    }

    /// Waits for the leave to do much for this source; it holds until it is dropped. A request that has it asks for no second
    /// one, and a request that holds memory of this asks for [`Self::in_charged_turn`].
    pub(crate) async fn turn(&self, source: IpAddr) -> Turn {
        self.places.turns.take(Source::of(source)).await
    }

    /// Does `work` once it is the turn of this source. Its turn is another's while it is [`waiting`].
    pub(crate) async fn in_turn<T>(&self, source: IpAddr, work: impl Future<Output = T>) -> T {
        let turn = self.turn(source).await;
        own_turn::holding(turn, Source::of(source), Arc::clone(&self.places.charged_turns), work).await
    }

    /// The same for a request that holds memory of this, and waits for no more of it.
    pub(crate) async fn in_charged_turn<T>(&self, source: IpAddr, work: impl Future<Output = T>) -> T {
        self.places.in_charged_turn(source, work).await
    }

    /// Waits for so much memory, and while this source has its share of it. A request that has some asks for no more.
    pub(crate) async fn charge(&self, source: IpAddr, bytes: usize) -> Charge {
        let share = self.places.memory.share(Source::of(source));
        self.places.memory.charge_whole(&share, bytes).await
    }

    /// The turns and the memory of requests aside, for metrics.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Whether a request waits for memory.
    pub(crate) fn is_memory_wanted(&self) -> bool {
        self.places.memory.is_wanted()
    }
}

impl Places {
    /// Does `work` once it is the turn of this source among requests that wait for no memory of this. Its turn is another's
    /// while it is [`waiting`].
    pub(crate) async fn in_charged_turn<T>(&self, source: IpAddr, work: impl Future<Output = T>) -> T {
        let (source, turns) = (Source::of(source), &self.charged_turns);
        let turn = turns.take(source).await;
        own_turn::holding(turn, source, Arc::clone(turns), work).await
    }

    /// Turns that are taken, and requests that wait for one.
    pub(crate) fn turn_counts(&self) -> (usize, usize) {
        let (first, charged) = (self.turns.counts(), self.charged_turns.counts());
        (first.0 + charged.0, first.1 + charged.1)
    }

    /// Bytes of memory that requests hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.memory.held_bytes()
    }
}

/// Work that is under way; it is given up when this is dropped.
struct Running<T>(JoinHandle<T>);

impl<T> Future for Running<T> {
    type Output = Result<T, Stopping>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(ended)
    }
}

/// The outcome of a task. A panic of the task goes on in the awaiting task.
fn ended<T>(ended: Result<T, JoinError>) -> Result<T, Stopping> {
    match ended {
        Ok(outcome) => Ok(outcome),
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(_) => Err(Stopping),
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Tells when it is dropped.
    struct Tell(Option<oneshot::Sender<()>>);

    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.take().map(|tell| tell.send(()));
        }
    }

    #[test]
    fn work_whose_client_has_left_ends_at_its_next_give_way() {
        let runtime = runtime().expect("a runtime");
        let aside = Aside::on(&runtime, 0);
        let (tell, told) = oneshot::channel();
        let (begin, has_begun) = oneshot::channel();
        let network = Builder::new_current_thread().enable_all().build().expect("a runtime");
        network.block_on(async move {
            let work = aside.run(async move {
                let _tell = Tell(Some(tell));
                begin.send(()).expect("it is waited for");
                loop {
                    give_way().await;
                }
            });
            tokio::select! {
                ended = work => unreachable!("{ended:?}"),
                told = has_begun => told.expect("it begins"),
            }
            let ended = timeout(PATIENCE, told).await;
            assert!(ended.is_ok_and(|told| told.is_ok()), "it goes on");
        });
    }

    #[test]
    fn work_aside_goes_on_while_other_work_has_all_threads() {
        let runtime = runtime().expect("a runtime");
        let aside = Aside::on(&runtime, 0);
        let network = Builder::new_current_thread().enable_all().build().expect("a runtime");
        network.block_on(async move {
            let endless = || {
                aside.run(async {
                    while !std::hint::black_box(false) {
                        give_way().await;
                    }
                })
            };
            let mut busy: Vec<_> = (0..2 * cores()).map(|_| Box::pin(endless())).collect();
            for work in &mut busy {
                assert!(timeout(Duration::ZERO, work).await.is_err());
            }
            let other = timeout(PATIENCE, aside.run(async { 1 })).await;
            assert_eq!(other, Ok(Ok(1)));
        });
    }

    #[test]
    fn unyielding_slice_runs_on_a_low_priority_thread() {
        let runtime = runtime().expect("a runtime");
        let aside = Aside::on(&runtime, 0);
        let here = rustix::process::getpriority_process(None).expect("known");
        let network = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let there = network.block_on(aside.run_slice(|| rustix::process::getpriority_process(None)));
        let there = there.expect("it does not stop").expect("known");
        assert!(there > here || here >= STEP_BACK, "{there} and {here}");
    }

    #[test]
    fn threads_aside_step_back() {
        let runtime = runtime().expect("a runtime");
        let here = rustix::process::getpriority_process(None).expect("known");
        let there = runtime.block_on(runtime.spawn(async { rustix::process::getpriority_process(None) }));
        let there = there.expect("ends").expect("known");
        assert!(there > here || here >= STEP_BACK, "{there} and {here}");
    }

    #[test]
    fn an_address_is_the_same_source_however_a_socket_spells_it() {
        let runtime = runtime().expect("a runtime");
        let aside = Aside::on(&runtime, 0);
        runtime.block_on(async {
            let v4 = Ipv4Addr::new(192, 0, 2, 1);
            let mut turns = Vec::new();
            while let Ok(turn) = timeout(Duration::from_millis(20), aside.turn(v4.into())).await {
                turns.push(turn);
            }
            let mapped = aside.turn(v4.to_ipv6_mapped().into());
            assert!(timeout(Duration::from_millis(20), mapped).await.is_err());
            drop(turns);
        });
    }
}
