//! Owns the runtime that `openraft` runs on: tasks, timers and randomness of a node's environment, so that a quorum runs on the
//! operating system and in a simulated world alike.
//!
//! `openraft` asks for all of these without saying for which node. So each task carries its node's environment, which is this thread's
//! while the task is polled.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use openraft_rt::{AsyncRuntime, Instant, OptionalSend};
use openraft_rt_tokio::{TokioMpsc, TokioMutex, TokioOneshot, TokioWatch};
use riverrun_env::sim::World;
use riverrun_env::{BoxFuture, Env, NodeEnv};
use tokio::sync::oneshot;

thread_local! {
    static NODE: RefCell<Option<NodeEnv>> = const { RefCell::new(None) };
}

/// This thread acts for a node until it is dropped.
struct Acting(Option<NodeEnv>);

impl Acting {
    fn for_node(node: &NodeEnv) -> Self {
        Self(NODE.with(|current| current.borrow_mut().replace(node.clone())))
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let before = self.0.take();
        NODE.with(|current| *current.borrow_mut() = before);
    }
}

fn node() -> NodeEnv {
    NODE.with(|node| node.borrow().clone()).expect("a quorum's tasks are started by a node")
}

/// A future that acts for a node.
pub(crate) struct InNode<F> {
    node: NodeEnv,
    future: Pin<Box<F>>,
}

impl<F: Future> InNode<F> {
    pub(crate) fn new(node: &NodeEnv, future: F) -> Self {
        Self { node: node.clone(), future: Box::pin(future) }
    }
}

impl<F: Future> Future for InNode<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _acting = Acting::for_node(&self.node);
        self.future.as_mut().poll(context)
    }
}

/// A moment by a node's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Instant for Moment {
    fn now() -> Self {
        // Outside of a task, as in a drop, no decision depends on it.
        let clock = NODE.with(|node| node.borrow().as_ref().map(|node| node.env.clock.clone()));
        Self(clock.unwrap_or_else(|| Env::real().clock).monotonic())
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl SubAssign<Duration> for Moment {
    fn sub_assign(&mut self, time: Duration) {
        *self = *self - time;
    }
}

impl Sub<Self> for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Randomness of the node that this thread acts for.
pub(crate) struct NodeRandom(NodeEnv);

impl rand_core::TryRng for NodeRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.env.random.next_u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.env.random.next_u64())
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), Infallible> {
        self.0.env.random.fill(buffer);
        Ok(())
    }
}

/// A task that ended without a result: its node has stopped, or it has panicked.
#[derive(Debug, thiserror::Error)]
#[error("the task has ended without a result")]
pub(crate) struct Ended;

/// Waits for the result of a task, which goes on if this is dropped.
pub(crate) struct Joining<T>(oneshot::Receiver<T>);

impl<T> Future for Joining<T> {
    type Output = Result<T, Ended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| Ended)
    }
}

/// It has taken too long.
#[derive(Debug, thiserror::Error)]
#[error("it has taken too long")]
pub(crate) struct TooLong;

/// A future that has a limited time.
pub(crate) struct Limited<F> {
    future: Pin<Box<F>>,
    limit: BoxFuture<'static, ()>,
}

impl<F: Future> Future for Limited<F> {
    type Output = Result<F::Output, TooLong>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(result) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(result));
        }
        self.limit.as_mut().poll(context).map(|()| Err(TooLong))
    }
}

/// The runtime. Its value is used by `openraft`'s own tests alone, which run in a world with one node.
pub(crate) struct Runtime {
    world: World,
    node: NodeEnv,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = Ended;
    type JoinHandle<T: OptionalSend + 'static> = Joining<T>;
    type Sleep = BoxFuture<'static, ()>;
    type Instant = Moment;
    type TimeoutError = TooLong;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Limited<T>;
    type ThreadLocalRng = NodeRandom;
    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> Joining<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let node = node();
        let (sender, receiver) = oneshot::channel();
        let task = InNode::new(&node, async move {
            // The result is of no use to anybody else.
            let _ = sender.send(future.await);
        });
        node.tasks.spawn("quorum", Box::pin(task));
        Joining(receiver)
    }

    fn sleep(time: Duration) -> Self::Sleep {
        node().tasks.sleep(time)
    }

    fn sleep_until(deadline: Moment) -> Self::Sleep {
        Self::sleep(deadline - Moment::now())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(time: Duration, future: F) -> Limited<F> {
        Limited { future: Box::pin(future), limit: Self::sleep(time) }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Moment, future: F) -> Limited<F> {
        Self::timeout(deadline - Moment::now(), future)
    }

    fn is_panic(_error: &Ended) -> bool {
        true
    }

    fn thread_rng() -> NodeRandom {
        NodeRandom(node())
    }

    fn new(_threads: usize) -> Self {
        let world = World::new(0);
        let node = world.node("a").env();
        Self { world, node }
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        let mut future = InNode::new(&self.node, future);
        loop {
            if let Poll::Ready(result) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
                return result;
            }
            self.world.run_for(Duration::from_millis(1));
        }
    }

    fn spawn_blocking<F, T>(work: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // A thread of the operating system would be outside of a simulated world. Nothing of a quorum's blocks: its log has a worker.
        std::future::ready(Ok(work()))
    }
}
