//! Metrics of the disks, read from the live server at each scrape: the state of the log dirs.

use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::journals::put_counter;
use super::partitions::{Series, put};
use crate::broker::Broker;

/// Reads the server that it belongs to; shows nothing once that is gone.
pub(super) struct StorageCollector {
    broker: Weak<Broker>,
}

impl StorageCollector {
    pub(super) fn new(broker: Weak<Broker>) -> Self {
        Self { broker }
    }
}

impl fmt::Debug for StorageCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageCollector").finish_non_exhaustive()
    }
}

impl Collector for StorageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.broker.upgrade() else { return Ok(()) };
        put_dirs(&mut encoder, &broker)?;
        put_damage(&mut encoder, &broker)
    }
}

fn put_damage(encoder: &mut DescriptorEncoder<'_>, broker: &Broker) -> fmt::Result {
    let count = |value: u64| vec![(Vec::new(), i64::try_from(value).unwrap_or(i64::MAX))];
    let offline = count(broker.logs.damaged().len() as u64);
    put(encoder, "partitions_offline", "Partitions whose files were found to be damaged", None, &offline)?;
    let unwritable = count(broker.logs.unwritable().len() as u64);
    let help = "Partitions that take no records because what they have cannot be written to their log dir";
    put(encoder, "partitions_unwritable", help, None, &unwritable)?;
    let unreadable = count(broker.logs.unreadable().len() as u64);
    let help = "Partitions of which the disk does not give back some place";
    put(encoder, "partitions_unreadable", help, None, &unreadable)?;
    let uncleanable = count(broker.compaction_failures.all().len() as u64);
    let help = "Partitions whose last compaction failed";
    put(encoder, "partitions_uncleanable", help, None, &uncleanable)?;
    let (bytes, passes) = ([(Vec::new(), broker.scrub.bytes())], [(Vec::new(), broker.scrub.passes())]);
    let help = "Bytes of segments that the scrub has read since the start";
    put_counter(encoder, "scrub_read", help, Some(&Unit::Bytes), &bytes)?;
    let help = "Passes of the scrub over a log dir that came to their end since the start";
    put_counter(encoder, "scrub_passes", help, None, &passes)
}

fn put_dirs(encoder: &mut DescriptorEncoder<'_>, broker: &Broker) -> fmt::Result {
    let node = broker.catalog.node();
    let series = |is_so: &dyn Fn(usize) -> bool| -> Series {
        let dirs = node.log_dirs().iter().enumerate();
        dirs.map(|(index, dir)| (vec![("dir", dir.path.display().to_string())], i64::from(is_so(index))))
            .collect()
    };
    let failed = series(&|index| broker.logs.dir_failure(index).is_some());
    put(encoder, "log_dir_failed", "Whether a log dir takes no more writes until a restart", None, &failed)?;
    let full = series(&|index| broker.logs.dir_shortage(index).is_some());
    put(
        encoder,
        "log_dir_full",
        "Whether a log dir is full up to its reserve and refuses producers",
        None,
        &full,
    )?;
    let cordoned = series(&|index| node.is_cordoned(index));
    put(
        encoder,
        "log_dir_cordoned",
        "Whether a log dir takes no new partitions by its owner's wish",
        None,
        &cordoned,
    )
}
