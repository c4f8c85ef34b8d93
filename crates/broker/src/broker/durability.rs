//! How durable a topic is now, as metrics and `DescribeConfigs` show it: the level that is wanted, the one that is
//! reached, and how far synced lags behind appended.

use riverrun_types::{DurabilityLevel, PartitionId};

use super::Broker;
use crate::metadata::Topic;
use crate::partitions::Durability;

impl Broker {
    /// The level that a topic's options ask for.
    pub(crate) fn level_wanted(&self, topic: &Topic) -> DurabilityLevel {
        self.config.topic_options(&topic.name, &topic.configs).level()
    }

    /// How durable a topic is now; none of a queue that takes no records, as each appender has its own durability.
    pub(crate) fn durability(&self, topic: &Topic) -> Option<Durability> {
        if let Some(queue) = self.replicas.queue(topic) {
            return queue.durability();
        }
        let wanted = self.level_wanted(topic);
        let mut all = Durability { wanted, reached: wanted, unsynced_records: 0 };
        for (id, dir) in self.catalog.node().placed(topic.id) {
            let one = self.partition_durability(id, dir, wanted);
            if all.reached == wanted {
                all.reached = one.reached;
            }
            all.unsynced_records += one.unsynced_records;
        }
        Some(all)
    }

    /// How durable a partition in log dir `dir` is now. The log store knows, also where nobody uses the partition: its log
    /// stays open as long as no checkpoint covers it.
    pub(crate) fn partition_durability(
        &self,
        id: PartitionId,
        dir: usize,
        wanted: DurabilityLevel,
    ) -> Durability {
        let reached = self.logs.level_reached(id, dir, wanted);
        Durability { wanted, reached, unsynced_records: self.logs.unsynced_records(id, dir) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use riverrun_env::sim::SimEnv;
    use riverrun_log::Appended;
    use riverrun_types::{Acks, Offset, TimestampMs, TopicId};

    use super::*;
    use crate::config::{BrokerConfig, TopicOverrides};
    use crate::partitions::{AckWaiter, Partition};
    use crate::start::open_broker;
    use crate::testing::{record, topic_with_a_record};

    fn start(sim: &SimEnv) -> Arc<Broker> {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        open_broker(sim.env(), config).expect("starts")
    }

    fn at_level(level: &str) -> TopicOverrides {
        [("durability".to_owned(), level.to_owned())].into()
    }

    fn set_level(broker: &Broker, id: TopicId, level: &str) {
        let set = broker.catalog.store().change(|draft| draft.set_topic_configs(id, at_level(level)));
        set.expect("written").expect("changed");
        broker.replicas.apply_topic_configs(&[id]);
    }

    /// A topic of level 4 with one record, which no checkpoint covers; nobody uses its partitions any more.
    fn released(broker: &Broker) -> TopicId {
        let topic = topic_with_a_record(broker, 2, TimestampMs(0));
        broker.partitions.release_unused();
        assert!(broker.partitions.all().is_empty());
        topic.id
    }

    /// The level that is wanted, the one that is reached, and the count of unsynced records.
    fn now(broker: &Broker, id: TopicId) -> (u8, u8, i64) {
        let image = broker.catalog.cluster();
        let now = broker.durability(image.topic_by_id(id).expect("there")).expect("of logs");
        (now.wanted.number(), now.reached.number(), now.unsynced_records)
    }

    fn assert_survives_a_power_cut(sim: &SimEnv, id: TopicId) {
        for state in sim.crash_states(20) {
            let broker = start(&state);
            let image = broker.catalog.cluster();
            let partition = broker.partition(image.topic_by_id(id).expect("there"), 0).expect("opened");
            assert_eq!(partition.log.log_end_offset().expect("readable"), Offset(1));
        }
    }

    #[test]
    fn released_partition_keeps_its_level_and_takes_changes_unused() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let id = released(&broker);
        assert_eq!(now(&broker, id), (4, 4, 1));
        broker.logs.wait_for_settling(0, Duration::ZERO);
        set_level(&broker, id, "1");
        assert_eq!(now(&broker, id), (1, 4, 1), "nothing is synced yet");
        assert!(broker.logs.wait_for_settling(0, Duration::ZERO), "whoever settles is woken");
        broker.logs.settle().expect("settled");
        assert_eq!(now(&broker, id), (1, 1, 0));
        assert!(broker.partitions.all().is_empty(), "nobody came");
        assert_survives_a_power_cut(&sim, id);
    }

    #[test]
    fn options_of_an_older_image_are_told_to_no_log() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let topic = topic_with_a_record(&broker, 1, TimestampMs(0));
        broker.partitions.release_unused();
        broker.logs.checkpoint().expect("made");
        let _too_early = broker.logs.close_idle(0, Duration::ZERO);
        broker.logs.close_idle(0, Duration::ZERO);
        set_level(&broker, topic.id, "1");
        let (seen, of_read) = (Arc::new(Mutex::new(None)), Arc::clone(&broker));
        let (note, id) = (Arc::clone(&seen), topic.id);
        sim.fs.during_next_read(move || {
            let log = of_read.logs.handle(PartitionId { topic: id, index: 0 }, 0).expect("there");
            *note.lock() = Some(log.config().durability);
        });
        // As by a request that began before the level was changed.
        broker.partition(&topic, 0).expect("opened");
        assert_eq!(*seen.lock(), Some(DurabilityLevel::SyncSync));
    }

    #[test]
    fn a_closed_log_has_any_level_at_once() {
        let broker = start(&SimEnv::new(1));
        let id = released(&broker);
        broker.logs.checkpoint().expect("made");
        // Used since the last look, and idle since.
        let _too_early = broker.logs.close_idle(0, Duration::ZERO);
        broker.logs.close_idle(0, Duration::ZERO);
        assert_eq!(broker.logs.open_log_count(), 0);
        for level in ["1", "4"] {
            set_level(&broker, id, level);
            let level = level.parse().expect("a number");
            assert_eq!(now(&broker, id), (level, level, 0));
        }
    }

    /// A record that is appended, and written if the journal does not do that.
    fn appended(partition: &Partition, broker: &Broker) -> Appended {
        let staged = partition.append(record(TimestampMs(0), b"value"), broker.append_options());
        partition.write_staged().expect("written");
        staged.expect("taken")
    }

    #[test]
    fn nothing_is_acked_unsynced_at_a_level_that_nobody_settles_for() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let topic = topic_with_a_record(&broker, 1, TimestampMs(0));
        let partition = broker.partition(&topic, 0).expect("there");
        let before = appended(&partition, &broker);
        assert_eq!(partition.outcome(before, Acks::All), Some(Ok(())));
        let waiter = Arc::new(AckWaiter::default());
        let mut last = before;
        for (ticket, level) in (0..).zip(["1", "2", "1", "4", "3"]) {
            set_level(&broker, topic.id, level);
            last = appended(&partition, &broker);
            let syncs = level.parse::<DurabilityLevel>().expect("a level").syncs_locally();
            for acks in [Acks::Leader, Acks::All] {
                assert_eq!(partition.outcome(last, acks), (!syncs).then_some(Ok(())), "level {level}");
            }
            partition.expect_ack(last, Acks::All, ticket, &waiter);
            // Levels 2 and 4 let those go that level 1 has held.
            assert_eq!(partition.waiting_acks(), usize::from(syncs), "level {level}");
        }
        assert_eq!(partition.outcome(before, Acks::All), None, "a duplicate of it is promised as much");
        // A checkpoint has synced it, also where nobody changes the level.
        broker.logs.checkpoint().expect("made");
        assert_eq!((partition.waiting_acks(), partition.outcome(last, Acks::All)), (0, Some(Ok(()))));
        assert!((0..5).all(|ticket| !waiter.has_failed(ticket)));
        let staged = appended(&partition, &broker);
        assert_eq!((now(&broker, topic.id).1, partition.outcome(staged, Acks::All)), (4, None));
        broker.logs.settle().expect("settled");
        assert_eq!((now(&broker, topic.id).1, partition.outcome(staged, Acks::All)), (3, Some(Ok(()))));
    }

    #[test]
    fn a_level_that_does_not_sync_is_promised_once_it_is_reached() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let topic = topic_with_a_record(&broker, 1, TimestampMs(0));
        let partition = broker.partition(&topic, 0).expect("there");
        set_level(&broker, topic.id, "1");
        broker.logs.settle().expect("settled");
        for level in ["2", "1", "4"] {
            set_level(&broker, topic.id, level);
            assert_eq!(partition.log.level_promised(), DurabilityLevel::SyncSync, "{level}");
        }
        broker.logs.settle().expect("settled");
        assert_eq!(partition.log.level_promised(), DurabilityLevel::AsyncAsync);
    }

    #[test]
    fn records_unsynced_at_a_kill_reach_no_sync_level_until_synced() {
        for is_changed_before in [true, false] {
            let sim = SimEnv::new(1);
            let broker = start(&sim);
            let id = released(&broker);
            if is_changed_before {
                set_level(&broker, id, "1");
            }
            sim.fs.kill();
            drop(broker);
            let broker = start(&sim);
            set_level(&broker, id, "1");
            assert_eq!(now(&broker, id), (1, 2, 0));
            broker.logs.sync_found(0);
            assert_eq!(now(&broker, id), (1, 1, 0));
            assert_survives_a_power_cut(&sim, id);
        }
    }
}
