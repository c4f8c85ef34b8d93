//! Appending: offsets, rules, rolls, duplicates, stamps on a batch.

use riverrun_env::sim::SimEnv;
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::{AppendOrigin, SequenceError};
use riverrun_log::{AppendError, AppendOptions};
use riverrun_records::{
    BatchError, BatchOptions, Compression, ProducerStamp, TimestampType, UnverifiedBatch,
};
use riverrun_types::{DurabilityLevel, ErrorKind, LeaderEpoch, Offset, TimestampMs};

use crate::machine::{Machine, batch_at, numbers, put, stamp};

#[test]
fn records_come_back_with_the_offsets_that_were_assigned() {
    let machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 20);
    assert_eq!(machine.records().unwrap(), numbers(0, 20));
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(20));
}

#[test]
fn an_empty_partition_has_no_files() {
    let machine = Machine::new(1, LogConfig::default());
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(0));
    assert_eq!(machine.log().latest_epoch().unwrap(), None);
    assert_eq!(machine.records().unwrap(), []);
    assert!(!machine.sim.env().fs.exists(&machine.partition_dir()).unwrap());
}

#[test]
fn segments_roll_by_size_and_bear_their_base_offsets() {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 40);
    let logs = machine.log_paths();
    assert!(logs.len() > 2, "{logs:?}");
    assert!(logs[0].ends_with("00000000000000000000.log"));
    for path in &logs {
        let len = machine.content(path).len();
        assert!(len <= 1000, "{} has {len} bytes", path.display());
    }
    assert_eq!(machine.records().unwrap(), numbers(0, 40));
}

#[test]
fn segments_roll_by_the_time_of_records_and_at_a_full_index() {
    let by_time = LogConfig { segment_ms: 1000, ..LogConfig::default() };
    let machine = Machine::new(1, by_time);
    machine.append("a");
    machine.sim.clock.advance(std::time::Duration::from_secs(1));
    machine.append("b");
    machine.sim.clock.advance(std::time::Duration::from_millis(1));
    machine.append("c");
    assert_eq!(machine.log_paths().len(), 2, "{:?}", machine.files());

    let by_index = LogConfig { segment_index_bytes: 24 * 3, index_interval_bytes: 1, ..LogConfig::default() };
    let machine = Machine::new(1, by_index);
    machine.append_numbers(0, 10);
    assert!(machine.log_paths().len() >= 2, "{:?}", machine.files());
    assert_eq!(machine.records().unwrap(), numbers(0, 10));
}

#[test]
fn small_segments_end_as_often_as_allowed_and_grow_otherwise() {
    let by_index = LogConfig { segment_index_bytes: 4, index_interval_bytes: 0, ..LogConfig::default() };
    let by_time = LogConfig { segment_ms: 1, ..LogConfig::default() };
    for config in [by_index, by_time] {
        for durability in [DurabilityLevel::AsyncAsync, DurabilityLevel::SyncSync] {
            let config = LogConfig { durability, ..config.clone() };
            let machine = Machine::with_options(SimEnv::new(1), config, Machine::with_journal());
            let append = |number: i64| {
                // Timestamps with a distance, however fast they come.
                let batch = batch_at(&[(number * 10, &format!("record {number}"))], BatchOptions::default());
                put(&machine.log(), &batch, machine.append_options()).unwrap();
            };
            let segments = || {
                machine.store().settle().unwrap();
                machine.log_paths().len()
            };
            (0..500).for_each(append);
            assert_eq!(segments(), 1 + 64, "{durability} {:?}", machine.config);
            machine.sim.clock.advance(std::time::Duration::from_secs(3));
            (500..600).for_each(append);
            assert_eq!(segments(), 1 + 64 + 3);
            assert_eq!(machine.records().unwrap(), numbers(0, 600));
        }
    }
}

#[test]
fn a_segment_that_is_not_small_ends_when_its_index_is_full() {
    let config = LogConfig { segment_index_bytes: 4, index_interval_bytes: 0, ..LogConfig::default() };
    let machine = Machine::new(1, config);
    let large = "x".repeat(300_000);
    (0..200).for_each(|_| _ = machine.append("small"));
    let before = machine.log_paths().len();
    // Each value stands in its record twice: two of these make a segment that is not small.
    (0..8).for_each(|_| _ = machine.append(&large));
    assert_eq!(machine.log_paths().len(), before + 3);
}

#[test]
fn client_sends_exactly_one_batch_and_the_coordinator_several() {
    let machine = Machine::new(1, LogConfig::default());
    let one = batch_at(&[(machine.now().0, "a"), (machine.now().0, "b")], BatchOptions::default());
    let two = [one.clone(), one].concat();
    let refused = put(&machine.log(), &two, machine.append_options()).unwrap_err();
    assert!(matches!(refused, AppendError::Batch(BatchError::Invalid(_))), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::FixRequest);
    assert!(put(&machine.log(), &[], machine.append_options()).is_err());

    let options = AppendOptions { origin: AppendOrigin::Coordinator, now: machine.now() };
    let appended = put(&machine.log(), &two, options).unwrap();
    assert_eq!((appended.base_offset, appended.last_offset), (Offset(0), Offset(3)));
    let values: Vec<_> = machine.records().unwrap().into_iter().collect();
    assert_eq!(values.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn sizes_are_bounded_and_nothing_is_written_of_what_is_refused() {
    let config = LogConfig { max_message_bytes: 200, segment_bytes: 150, ..LogConfig::default() };
    let machine = Machine::new(1, config);
    let too_large = machine.try_append(&"x".repeat(300), ProducerStamp::NONE).unwrap_err();
    assert!(matches!(too_large, AppendError::TooLarge { bytes_max: 200, .. }), "{too_large}");
    // It is not even looked through: that its checksum is wrong does not matter.
    let value = "x".repeat(300);
    let mut damaged = batch_at(&[(machine.now().0, &value)], BatchOptions::default());
    *damaged.last_mut().unwrap() ^= 1;
    let too_large = put(&machine.log(), &damaged, machine.append_options()).unwrap_err();
    assert!(matches!(too_large, AppendError::TooLarge { bytes_max: 200, .. }), "{too_large}");
    let larger_than_segment = machine.try_append(&"x".repeat(50), ProducerStamp::NONE).unwrap_err();
    assert!(matches!(larger_than_segment, AppendError::LargerThanSegment { .. }), "{larger_than_segment}");
    let mut damaged = batch_at(&[(machine.now().0, "a")], BatchOptions::default());
    *damaged.last_mut().unwrap() ^= 1;
    let corrupt = put(&machine.log(), &damaged, machine.append_options()).unwrap_err();
    assert!(matches!(corrupt, AppendError::Batch(BatchError::Corrupt(_))), "{corrupt}");
    assert_eq!(machine.log().log_end_offset().unwrap(), Offset(0));
}

#[test]
fn a_compacted_topic_takes_no_record_without_a_key() {
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let machine = Machine::new(1, LogConfig { cleanup, ..LogConfig::default() });
    let mut builder = riverrun_records::BatchBuilder::new(BatchOptions::default());
    builder.append(machine.now(), None, Some(b"value"), &[]).unwrap();
    let refused = put(&machine.log(), &builder.build().unwrap(), machine.append_options()).unwrap_err();
    assert!(matches!(refused, AppendError::Records(_)), "{refused}");
    assert_eq!(refused.to_string(), "record 0 is refused: invalid batch: record without a key");
}

#[test]
fn duplicate_gets_its_first_place_also_after_a_restart() {
    let mut machine = Machine::new(1, LogConfig::default());
    for sequence in 0..7 {
        machine.try_append(&format!("record {sequence}"), stamp(9, sequence)).unwrap();
    }
    for round in 0..3 {
        let again = machine.try_append("record 4", stamp(9, 4)).unwrap();
        assert!(again.duplicate, "round {round}");
        assert_eq!((again.base_offset, again.last_offset, again.bytes), (Offset(4), Offset(4), 0));
        let forgotten = machine.try_append("record 1", stamp(9, 1)).unwrap_err();
        let AppendError::Sequence(SequenceError::OutOfOrder { expected: 7, .. }) = forgotten else {
            panic!("{forgotten}");
        };
        if round == 0 { machine.restart() } else { machine.kill() }
    }
    assert_eq!(machine.records().unwrap(), numbers(0, 7));
}

#[test]
fn log_append_time_is_stamped_and_the_batch_stays_intact() {
    let config = LogConfig { timestamp_type: TimestampType::LogAppendTime, ..LogConfig::default() };
    let machine = Machine::new(1, config);
    let batch = batch_at(&[(5, "old"), (6, "times")], BatchOptions::default());
    let appended = put(&machine.log(), &batch, machine.append_options()).unwrap();
    assert_eq!(appended.log_append_time, Some(machine.now()));
    let slice = machine.log().read(Offset(0), 1000, Offset(2), true).unwrap();
    let bytes = slice.chunks[0].to_bytes().unwrap();
    let stored = UnverifiedBatch::only(&bytes).unwrap().verify().unwrap();
    assert_eq!(stored.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(stored.max_timestamp(), machine.now());
    let found = machine.log().offset_for_timestamp(machine.now()).unwrap();
    assert_eq!(found, Some((machine.now(), Offset(0), LeaderEpoch(1))));
}

#[test]
fn a_timestamp_outside_the_allowed_range_is_refused() {
    let config =
        LogConfig { timestamp_before_max_ms: 1000, timestamp_after_max_ms: 1000, ..LogConfig::default() };
    let machine = Machine::new(1, config);
    for (shift, fits) in [(-1001, false), (-1000, true), (1000, true), (1001, false)] {
        let batch = batch_at(&[(machine.now().0 + shift, "a")], BatchOptions::default());
        let result = put(&machine.log(), &batch, machine.append_options());
        assert_eq!(result.is_ok(), fits, "{shift}: {result:?}");
    }
}

#[test]
fn topics_codec_recompresses_batches_of_other_codecs_only() {
    let config = LogConfig { compression: Some(Compression::Zstd), ..LogConfig::default() };
    let machine = Machine::new(1, config);
    for compression in Compression::ALL {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        let batch = batch_at(&[(machine.now().0, "a"), (machine.now().0, "b")], options);
        put(&machine.log(), &batch, machine.append_options()).unwrap();
    }
    let slice = machine.log().read(Offset(0), 1 << 20, Offset(10), true).unwrap();
    let bytes: Vec<u8> = slice.chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect();
    let codecs: Vec<_> = riverrun_records::Batches::new(&bytes)
        .map(|batch| batch.unwrap().verify().unwrap().compression())
        .collect();
    assert_eq!(codecs, vec![Compression::Zstd; Compression::ALL.len()]);
    assert_eq!(machine.records().unwrap().len(), 2 * Compression::ALL.len());
}

#[test]
fn full_disk_refuses_appends_until_space_returns() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 5);
    machine.sim.fs.set_space(Some(40));
    for _ in 0..3 {
        let error = machine.try_append("too much", ProducerStamp::NONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    }
    assert_eq!(machine.records().unwrap(), numbers(0, 5));
    machine.sim.fs.set_space(None);
    machine.append_numbers(5, 30);
    machine.kill();
    assert_eq!(machine.records().unwrap(), numbers(0, 30));
}

#[test]
fn epochs_are_noted_at_the_first_append_after_a_start() {
    let mut machine = Machine::new(1, LogConfig::default());
    machine.append_numbers(0, 3);
    machine.restart();
    machine.restart();
    assert_eq!(machine.log().latest_epoch().unwrap(), Some(LeaderEpoch(1)));
    machine.append_numbers(3, 5);
    machine.kill();
    let log = machine.log();
    assert_eq!(log.latest_epoch().unwrap(), Some(LeaderEpoch(3)));
    assert_eq!(log.epoch_end_offset(LeaderEpoch(1)).unwrap(), (LeaderEpoch(1), Offset(3)));
    assert_eq!(log.epoch_end_offset(LeaderEpoch(2)).unwrap(), (LeaderEpoch(1), Offset(3)));
    assert_eq!(log.epoch_end_offset(LeaderEpoch(3)).unwrap(), (LeaderEpoch(3), Offset(5)));
    assert_eq!(log.epoch_of(Offset(2)).unwrap(), Some(LeaderEpoch(1)));
    // An epoch that falls is not believed: the log keeps to the newer one.
    machine.epoch = 1;
    machine.append_numbers(5, 6);
    assert_eq!(machine.log().latest_epoch().unwrap(), Some(LeaderEpoch(3)));
}

#[test]
fn silent_producers_are_forgotten_after_their_time() {
    let config = LogConfig { producer_id_expiration_ms: 1000, ..LogConfig::default() };
    let machine = Machine::new(1, config);
    machine.try_append("a", stamp(9, 0)).unwrap();
    let later = TimestampMs(machine.now().0 + 1000);
    assert_eq!(machine.log().expire_producers(TimestampMs(later.0 - 1)), 0);
    assert_eq!(machine.log().active_producers().unwrap().len(), 1);
    assert_eq!(machine.log().expire_producers(later), 1);
    assert_eq!(machine.log().active_producers().unwrap(), []);
}
