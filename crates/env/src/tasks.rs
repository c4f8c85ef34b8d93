//! Tasks that wait for messages and for time, and never for a disk.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A future that its caller owns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs tasks, and lets them wait.
pub trait Tasks: Send + Sync {
    /// Starts a task of that name. It goes on if the handle is dropped.
    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> TaskHandle;

    /// Ends after `time` by the clock's monotonic time.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// A task that was started.
#[derive(Clone)]
pub struct TaskHandle(Arc<dyn Fn() + Send + Sync>);

impl TaskHandle {
    pub(crate) fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(abort))
    }

    /// Ends the task at the place where it waits.
    pub fn abort(&self) {
        (self.0)();
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").finish_non_exhaustive()
    }
}
