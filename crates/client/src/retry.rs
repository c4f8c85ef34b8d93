//! Trying again: only what may succeed later, with pauses, until the retry timeout.

use tokio::time::Instant;

use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use riverrun_types::ErrorKind;

/// The time that one call has for all its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    deadline: Instant,
    pause: std::time::Duration,
}

impl Retry {
    pub(crate) fn new(options: &ClusterOptions) -> Self {
        Self::within(options, options.retry_timeout)
    }

    /// For a caller who has less time. With none, there is one attempt.
    pub(crate) fn within(options: &ClusterOptions, patience: std::time::Duration) -> Self {
        Self { deadline: Instant::now() + patience, pause: options.retry_backoff }
    }

    /// Pauses before another attempt, or hands the error back because another would be no use.
    pub(crate) async fn pause_after(&self, error: ClientError) -> Result<(), ClientError> {
        if error.kind() != ErrorKind::Retry {
            return Err(error);
        }
        self.pause_or_give_up(error).await
    }

    /// The same for an error that is no use to retry in general, but is here.
    pub(crate) async fn pause_or_give_up(&self, error: ClientError) -> Result<(), ClientError> {
        if Instant::now() + self.pause >= self.deadline {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        Ok(())
    }
}
