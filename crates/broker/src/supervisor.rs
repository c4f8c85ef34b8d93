//! The supervisor notices that a part of the server has died.
//!
//! Owns the list of the server's long-lived threads and tasks, each under a name. Guarantees that one that ends other than
//! by a stop, as by a panic, is reported in the log, by `/health` and by a metric. The server then stops by itself, because it
//! is not designed to go on without that part. A panic in the task of a connection is that connection's own, and is only
//! counted.
//!
//! The memory that a dead part has left is not trusted: the server leaves its files as a kill would, and the next start
//! recovers.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::stop_signal::StopSignal;

/// The parts of one server.
///
/// Invariants: a part that is dead stays so; the first death is the one that the server stops for.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    /// Why each part died, if it did.
    parts: Mutex<BTreeMap<String, Option<String>>>,
    connection_panics: AtomicU64,
    /// Once parts may end. Not set: not yet.
    stop: OnceLock<StopSignal>,
    died: Notify,
}

impl Supervisor {
    /// Parts may end once this turns true.
    pub(crate) fn ends_with(&self, stop: StopSignal) {
        self.stop.get_or_init(|| stop);
    }

    fn is_stopping(&self) -> bool {
        self.stop.get().is_some_and(|stop| *stop.borrow())
    }

    /// Starts a thread that works until the server stops.
    pub(crate) fn thread(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (supervisor, part) = (Arc::clone(self), name.to_owned());
        let thread = std::thread::Builder::new().name(name.to_owned());
        let started = thread.spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            supervisor.ended(&part, outcome, true);
        })?;
        self.lives(name);
        Ok(started)
    }

    /// A task that works until the server stops.
    pub(crate) fn task(
        self: &Arc<Self>,
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.watched(name, work, true)
    }

    /// A task that ends by itself once its work is done.
    pub(crate) fn errand(
        self: &Arc<Self>,
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.watched(name, work, false)
    }

    fn watched(
        self: &Arc<Self>,
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
        is_endless: bool,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (supervisor, part) = (Arc::clone(self), name.to_owned());
        self.lives(name);
        async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            supervisor.ended(&part, outcome, is_endless);
        }
    }

    /// Notes a part that other code has started, and that calls [`Self::dead`] when it dies.
    pub(crate) fn lives(&self, name: &str) {
        self.parts.lock().entry(name.to_owned()).or_default();
    }

    fn ended(&self, name: &str, outcome: Result<(), Box<dyn Any + Send>>, is_endless: bool) {
        match outcome {
            Err(panic) => self.dead(name, &format!("it panicked: {}", panic_text(&*panic))),
            Ok(()) if is_endless && !self.is_stopping() => self.dead(name, "it ended"),
            Ok(()) => {}
        }
    }

    /// A part has died. Only the first word on each is heard.
    pub(crate) fn dead(&self, name: &str, reason: &str) {
        let mut parts = self.parts.lock();
        let part = parts.entry(name.to_owned()).or_default();
        if part.is_some() {
            return;
        }
        *part = Some(reason.to_owned());
        drop(parts);
        tracing::error!(thread = name, reason, "a thread of the server has died");
        self.died.notify_one();
    }

    /// A line for each part that has died.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let parts = self.parts.lock();
        let dead = parts.iter().filter_map(|(name, dead)| Some((name, dead.as_ref()?)));
        dead.map(|(name, reason)| format!("the thread {name} has died: {reason}")).collect()
    }

    /// Ready with the reason once a part has died. One waits for it.
    pub(crate) async fn death(&self) -> String {
        loop {
            if let Some(first) = self.troubles().into_iter().next() {
                return first;
            }
            self.died.notified().await;
        }
    }

    /// Each part, and whether it is alive.
    pub(crate) fn parts(&self) -> Vec<(String, bool)> {
        self.parts.lock().iter().map(|(name, dead)| (name.clone(), dead.is_none())).collect()
    }

    /// The task of a connection has panicked.
    pub(crate) fn connection_panicked(&self) {
        self.connection_panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_panics(&self) -> u64 {
        self.connection_panics.load(Ordering::Relaxed)
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// Does `work`, which blocks for the disk, on a thread of its own, for a task of a supervisor: a panic of the work is one of
/// the task. None while the server ends.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    fn supervisor() -> (Arc<Supervisor>, watch::Sender<bool>) {
        let (stop, stopping) = watch::channel(false);
        let supervisor = Arc::new(Supervisor::default());
        supervisor.ends_with(stopping);
        (supervisor, stop)
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_a_trouble_with_its_name() {
        let (supervisor, _stop) = supervisor();
        let thread = supervisor.thread("settle", || panic!("planted {}", 7)).expect("started");
        let told = supervisor.death().await;
        assert_eq!(told, "the thread settle has died: it panicked: planted 7");
        assert_eq!(supervisor.troubles(), [told]);
        assert_eq!(supervisor.parts(), [("settle".to_owned(), false)]);
        thread.join().expect("the panic was caught");
    }

    #[tokio::test]
    async fn a_part_may_end_at_a_stop_and_not_before() {
        for (is_stopping, is_dead) in [(true, false), (false, true)] {
            let (supervisor, stop) = supervisor();
            stop.send_replace(is_stopping);
            supervisor.thread("thread", || {}).expect("started").join().expect("no panic");
            supervisor.task("task", async {}).await;
            assert_eq!(supervisor.troubles().len(), if is_dead { 2 } else { 0 });
        }
    }

    #[tokio::test]
    async fn an_errand_may_end_and_not_panic() {
        let (supervisor, _stop) = supervisor();
        supervisor.errand("done", async {}).await;
        assert_eq!(supervisor.troubles(), [""; 0]);
        let panics = async { _ = on_blocking_thread(|| panic!("planted")).await };
        supervisor.errand("dead", panics).await;
        assert_eq!(supervisor.troubles(), ["the thread dead has died: it panicked: planted"]);
    }
}
