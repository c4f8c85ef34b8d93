//! Owns waits that end after a time at the latest.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use riverrun_env::NodeEnv;

/// The value of a future, if it is there in time. The future is dropped if not.
pub(super) async fn or_after<T>(
    node: &NodeEnv,
    time: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut future, mut late) = (pin!(future), node.tasks.sleep(time));
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => late.as_mut().poll(context).map(|()| None),
    })
    .await
}
