//! Partitions in which damage was found before this start.
//!
//! A damage marker beside a segment records it, but a partition is opened at its first use only, and nobody would learn of
//! the damage before. So one task looks for the markers after a start, in the background, and opens each partition that has
//! one: opening checks the segment again, and either takes the marker away or has health and metrics show the damage. The
//! look costs one listing of each partition's directory; nothing waits for it. Partitions of a log dir that has failed are
//! passed over: all of them are in trouble, and the next start looks again.

use std::sync::Arc;

use riverrun_log::LogError;
use riverrun_types::PartitionId;

use crate::broker::Broker;
use crate::log_limit::UPKEEP_TROUBLE;
use crate::stop_signal::StopSignal;
use crate::supervisor::on_blocking_thread;

/// Looks at all partitions once; ends between two of them when `stop` turns true.
pub(crate) async fn run(broker: Arc<Broker>, stop: StopSignal) {
    on_blocking_thread(move || look(&broker, &stop)).await;
}

fn look(broker: &Broker, stop: &StopSignal) {
    // Topics from the metadata: a checkpoint that was lost knows no partitions.
    let image = broker.catalog.cluster();
    let topics = image.topics_sorted().into_iter();
    for (topic, index) in
        topics.flat_map(|topic| (0..topic.partition_count()).map(move |index| (topic, index)))
    {
        if *stop.borrow() {
            return;
        }
        let id = PartitionId { topic: topic.id, index };
        if broker.replicas.log_dir(id).is_some_and(|dir| is_marked(broker, id, dir)) {
            // Opening logs the damage.
            let _opened = broker.partition(topic, index);
        }
    }
}

/// Whether a partition has a damage marker, or may have one, which opening it finds out.
fn is_marked(broker: &Broker, id: PartitionId, dir: usize) -> bool {
    match broker.logs.has_damage_marker(id, dir) {
        Ok(is_marked) => is_marked,
        Err(LogError::DirFailed { .. }) => false,
        Err(error) => {
            UPKEEP_TROUBLE.warn(|suppressed| {
                let what = "whether damage was found in a partition cannot be read";
                tracing::warn!(partition = %id, %error, suppressed, "{what}");
            });
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use riverrun_env::sim::SimEnv;
    use riverrun_types::TimestampMs;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::metadata::NewTopic;
    use crate::start::open_broker;
    use crate::testing::{log_lines, record};

    const PARTITIONS: i32 = 80;

    /// A restarted server with half of the partitions in `/two`; and the directory of a topic there.
    fn started(sim: &SimEnv) -> (Arc<Broker>, PathBuf) {
        let start = || {
            let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("log.dirs", "/one,/two")]);
            open_broker(sim.env(), config.expect("valid")).expect("starts")
        };
        let before = start();
        let configs = [("durability".to_owned(), "4".to_owned())].into();
        let new = NewTopic { name: "t".to_owned(), partition_count: PARTITIONS, configs };
        let topic =
            before.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let mut path = None;
        for index in 0..PARTITIONS {
            let partition = before.partition(&topic, index).expect("there");
            partition.append(record(TimestampMs(0), b"value"), before.append_options()).expect("taken");
            partition.write_staged().expect("written");
            if before.replicas.log_dir(PartitionId { topic: topic.id, index }) == Some(1) {
                path = partition.log.path().parent().map(Path::to_owned);
            }
        }
        before.logs.close().expect("closed");
        before.catalog.store().close().expect("closed");
        drop(before);
        (start(), path.expect("half of them"))
    }

    fn look_once(broker: &Broker) -> usize {
        let (_stop, stopping) = tokio::sync::watch::channel(false);
        log_lines(|| look(broker, &stopping))
    }

    #[test]
    fn marked_partitions_of_a_dead_device_are_few_log_lines() {
        let sim = SimEnv::new(1);
        let (broker, _) = started(&sim);
        sim.fs.kill_device(Some("/two".as_ref())).expect("there");
        let lines = look_once(&broker);
        assert!(lines < 10, "{lines} lines");
        assert!(broker.logs.dir_failure(1).is_some());
        assert_eq!(look_once(&broker), 0, "its failure was told");
        assert_eq!(broker.partitions.all().len(), 0);
        let troubles = broker.health().troubles();
        assert!(!troubles.iter().any(|trouble| trouble.starts_with("partition ")), "{troubles:?}");
    }

    #[test]
    fn forbidden_partition_directories_are_few_log_lines() {
        let sim = SimEnv::new(1);
        let (broker, topic) = started(&sim);
        sim.fs.forbid(Some(&topic)).expect("there");
        let lines = look_once(&broker);
        assert!(lines < 10, "{lines} lines");
        assert!(broker.logs.dir_failure(1).is_none(), "the device is well");
        let troubles = broker.health().troubles();
        assert!(troubles.iter().any(|trouble| trouble.starts_with("partition t-")), "{troubles:?}");
    }
}
