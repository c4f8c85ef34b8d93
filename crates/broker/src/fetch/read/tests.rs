use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_log::AppendOptions;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::TimestampMs;

use super::*;
use crate::config::{BrokerConfig, TopicOverrides};
use crate::context::{ConnectionInfo, Principal};
use crate::fetch::session::PartitionRef;
use crate::metadata::{NewTopic, Topic};
use crate::start::open_broker;

const PATIENCE: Duration = Duration::from_mins(1);

fn start(sim: &SimEnv) -> Arc<Broker> {
    let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
    open_broker(sim.env(), config).expect("starts")
}

fn context() -> RequestContext {
    let connection = ConnectionInfo {
        id: 1,
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        listener: Arc::from("PLAINTEXT"),
        principal: Principal::anonymous(),
    };
    RequestContext { connection: Arc::new(connection), client_id: Arc::from("test") }
}

fn append(broker: &Arc<Broker>, topic: &Arc<Topic>, index: usize, value_bytes: usize) {
    let index = i32::try_from(index).expect("few");
    let log = Arc::clone(&broker.partition(topic, index).expect("there").log);
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(&vec![1; value_bytes]), &[]).expect("fits");
    let batch = BytesMut::from(&batch.build().expect("built")[..]);
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    let appended = log.append(batch, options).expect("taken");
    let begun = Instant::now();
    while log.watermarks().synced <= appended.last_offset {
        assert!(begun.elapsed() < PATIENCE, "the journal says nothing");
        std::thread::yield_now();
    }
}

/// A server that has not read any of so many records of so many bytes, for each partition.
fn cold(sim: &SimEnv, partitions: &[(usize, usize)]) -> (Arc<Broker>, Arc<Topic>) {
    let broker = start(sim);
    let partition_count = i32::try_from(partitions.len()).expect("few");
    let new = NewTopic { name: "t".to_owned(), partition_count, configs: TopicOverrides::new() };
    let topic = broker.metadata.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    for (index, &(records, value_bytes)) in partitions.iter().enumerate() {
        for _ in 0..records {
            append(&broker, &topic, index, value_bytes);
        }
    }
    broker.logs.settle().expect("settled");
    broker.logs.checkpoint().expect("made");
    sim.fs.crash();
    drop(broker);
    (start(sim), topic)
}

/// Fetches without a session from these offsets on; which partitions had records.
fn fetch(broker: &Arc<Broker>, offsets: &[Offset]) -> Vec<bool> {
    read(broker, offsets).answers.iter().map(|answer| answer.bytes > 0).collect()
}

fn read(broker: &Arc<Broker>, offsets: &[Offset]) -> Pass {
    let wanted = |(index, offset): (usize, &Offset)| Wanted {
        partition: PartitionRef {
            topic: TopicRef::Name(Arc::from("t")),
            index: i32::try_from(index).expect("few"),
        },
        fetch_offset: *offset,
        max_bytes: 1 << 20,
        current_leader_epoch: LeaderEpoch::UNKNOWN,
        last_fetched_epoch: LeaderEpoch::UNKNOWN,
        told: None,
    };
    let wanted: Vec<Wanted> = offsets.iter().enumerate().map(wanted).collect();
    let plan = Plan { session_id: NO_SESSION, incremental: false, wanted };
    let pass = read_all(broker, &context(), &plan, Limits { bytes_max: 50 << 20 }, None);
    assert!(pass.answers.iter().all(|answer| answer.error == ErrorCode::NONE));
    assert_eq!(pass.answers.len(), offsets.len());
    pass
}

#[test]
fn what_is_not_settled_yet_is_a_piece_of_what_others_have_too() {
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(1, 100_000)]);
    append(&broker, &topic, 0, 100_000);
    let pass = read(&broker, &[Offset(0)]);
    let [Part::File { .. }, Part::Shared(piece)] = &pass.answers[0].parts[..] else { panic!("{pass:?}") };
    assert!(piece.len() > 100_000);
}

#[test]
fn a_partition_that_catches_up_lets_those_behind_it_come_to_their_turn_without_a_session() {
    const FETCHES: i64 = 12;
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(12, 900_000), (12, 900_000), (1, 10)]);
    let mut offsets = [Offset(0); 3];
    let mut turns = [0; 3];
    for number in 1..=FETCHES {
        let found = fetch(&broker, &offsets);
        if number == 1 {
            let last = PartitionId { topic: topic.id, index: 2 };
            assert!(found == [true, true, false] && broker.partitions.get(last).is_none(), "it was left");
        }
        for place in 0..3 {
            // Two batches of the large ones are more than is asked for.
            offsets[place] = offsets[place].plus(i64::from(found[place]));
            turns[place] += i64::from(found[place]);
        }
        assert!(turns[2] + 1 >= number, "{turns:?} of {number}: it waits for one fetch at most");
        append(&broker, &topic, 2, 10);
    }
    assert!(turns[0].min(turns[1]) >= FETCHES / 2, "{turns:?}");
}

#[test]
fn many_small_partitions_that_are_cold_take_few_fetches() {
    const PARTITIONS: usize = 60;
    let sim = SimEnv::new(1);
    let (broker, _) = cold(&sim, &[(1, 5000); PARTITIONS]);
    // The clock stands still, and together they are not worth ending a pass for.
    assert_eq!(fetch(&broker, &[Offset(0); PARTITIONS]), [true; PARTITIONS]);
}

#[test]
fn a_pass_ends_by_bytes_and_by_time_and_not_by_the_first_wait() {
    let mut spent = Spent::default();
    for _ in 0..9 {
        spent.add(5000, Duration::from_millis(1));
        assert!(!spent.is_enough());
    }
    spent.add(0, Duration::from_millis(1));
    assert!(spent.is_enough(), "opening logs takes its time, too");
    let mut spent = Spent::default();
    spent.add(PROVED_BYTES_MAX, Duration::ZERO);
    assert!(spent.is_enough());
}
