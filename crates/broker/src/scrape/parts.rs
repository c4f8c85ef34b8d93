//! Metrics of the server's own parts, read from the live server at each scrape: its threads and its log.

use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::journals::put_counter;
use super::partitions::{Series, put};
use crate::broker::Broker;

/// Reads the server that it belongs to; shows nothing once that is gone.
pub(super) struct PartsCollector {
    broker: Weak<Broker>,
}

impl PartsCollector {
    pub(super) fn new(broker: Weak<Broker>) -> Self {
        Self { broker }
    }
}

impl fmt::Debug for PartsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartsCollector").finish_non_exhaustive()
    }
}

impl Collector for PartsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.broker.upgrade() else { return Ok(()) };
        let lost = broker.log_account.get().map_or(0, |account| account.lost_lines());
        let help = "Lines of the log that are lost: nobody read them in time, or they could not be written";
        put_counter(&mut encoder, "log_lines_lost", help, None, &[(Vec::new(), lost)])?;
        let seconds = broker.waits.seconds().into_iter();
        let waits: Series = seconds
            .map(|(what, lasted)| {
                (vec![("what", what.to_owned())], i64::try_from(lasted).unwrap_or(i64::MAX))
            })
            .collect();
        let help = "For how long requests have waited for something, while they do";
        put(&mut encoder, "waiting", help, Some(&Unit::Seconds), &waits)?;
        let parts = broker.supervisor.parts();
        let up = |(name, is_alive): (String, bool)| (vec![("thread", name)], i64::from(is_alive));
        let up: Series = parts.into_iter().map(up).collect();
        put(&mut encoder, "thread_up", "Whether a thread or task of the server is alive", None, &up)?;
        let panics = [(Vec::new(), broker.supervisor.connection_panics())];
        let help = "Connections that were closed because their task panicked";
        put_counter(&mut encoder, "connection_panics", help, None, &panics)
    }
}
