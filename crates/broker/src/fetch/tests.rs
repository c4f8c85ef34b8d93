use std::net::SocketAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use riverrun_env::sim::SimEnv;
use riverrun_log::AppendOptions;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_types::{LeaderEpoch, Offset, PartitionId, TimestampMs};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::aside::{self, Aside};
use crate::catch_up::plan::COPIED_BYTES_MAX;
use crate::config::{BrokerConfig, TopicOverrides};
use crate::context::ConnectionInfo;
use crate::fetch_sessions::{PartitionRef, TopicRef};
use crate::metadata::{NewTopic, Topic};
use crate::metrics::Format;
use crate::start::open_broker;
use crate::testing::record;

const PATIENCE: Duration = Duration::from_mins(1);
const LOG_DIRS: &str = "/one,/two";
const LIMITS: Limits = Limits { bytes_max: 50 << 20 };

fn start(sim: &SimEnv) -> Arc<Broker> {
    // One read of each log dir at once.
    let options = [("data.dir", "/data"), ("log.dirs", LOG_DIRS), ("catchup.reads.max", "1")];
    let config = BrokerConfig::from_pairs(options).expect("valid");
    let broker = open_broker(sim.env(), config).expect("starts");
    // Connection 1 is known not to be cold.
    broker.catch_up.begin(1);
    broker.catch_up.begin_fetch(1);
    broker
}

fn context() -> RequestContext {
    context_of(1)
}

fn context_of(connection: u64) -> RequestContext {
    let connection =
        ConnectionInfo::new(connection, SocketAddr::from(([127, 0, 0, 1], 1)), Arc::from("PLAINTEXT"));
    RequestContext { connection: Arc::new(connection), client_id: Arc::from("test") }
}

fn append(broker: &Arc<Broker>, topic: &Arc<Topic>, index: usize, value_bytes: usize) {
    let index = i32::try_from(index).expect("few");
    let log = Arc::clone(&broker.partition(topic, index).expect("there").log);
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    let appended = log.append(record(TimestampMs(0), &vec![1; value_bytes]), options).expect("taken");
    let begun = Instant::now();
    while log.watermarks().synced <= appended.last_offset {
        assert!(begun.elapsed() < PATIENCE, "the journal says nothing");
        std::thread::yield_now();
    }
}

/// A restarted server that has read none of its records: for each partition, their number and their bytes.
fn cold(sim: &SimEnv, partitions: &[(usize, usize)]) -> (Arc<Broker>, Arc<Topic>) {
    let broker = start(sim);
    let partition_count = i32::try_from(partitions.len()).expect("few");
    let new = NewTopic { name: "t".to_owned(), partition_count, configs: TopicOverrides::new() };
    let topic =
        broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
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

/// Fetches without a session from these offsets on; whether each partition had records.
fn fetch(broker: &Arc<Broker>, offsets: &[Offset]) -> Vec<bool> {
    read(broker, offsets).answers.iter().map(|answer| answer.bytes > 0).collect()
}

fn wanted((index, offset): (usize, &Offset)) -> Wanted {
    Wanted {
        partition: PartitionRef {
            topic: TopicRef::Name(Arc::from("t")),
            index: i32::try_from(index).expect("few"),
        },
        fetch_offset: *offset,
        max_bytes: 1 << 20,
        current_leader_epoch: LeaderEpoch::UNKNOWN,
        last_fetched_epoch: LeaderEpoch::UNKNOWN,
        told: None,
    }
}

fn plan(wanted: impl Iterator<Item = Wanted>) -> Plan {
    Plan::alone(wanted.collect())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime")
}

fn read(broker: &Arc<Broker>, offsets: &[Offset]) -> Pass {
    let plan = plan(offsets.iter().enumerate().map(wanted));
    let context = context();
    let pass = runtime().block_on(read_all(broker, &context, &plan, LIMITS, None));
    assert!(pass.answers.iter().all(|answer| answer.error == ErrorCode::NONE));
    assert_eq!(pass.answers.len(), offsets.len());
    pass
}

#[test]
fn unsettled_records_are_shared_memory_in_an_answer() {
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(1, 100_000)]);
    append(&broker, &topic, 0, 100_000);
    let pass = read(&broker, &[Offset(0)]);
    let [Part::File { .. }, Part::Shared(piece)] = &pass.answers[0].parts[..] else { panic!("{pass:?}") };
    assert!(piece.len() > 100_000);
}

/// Whether the records of each answer lie in a file.
fn are_in_files(pass: &Pass) -> Vec<bool> {
    let is_file = |part: &Part| matches!(part, Part::File { .. });
    pass.answers.iter().map(|answer| answer.parts.iter().any(is_file)).collect()
}

#[test]
fn a_fetch_copies_what_lies_in_files_that_it_may_not_hold() {
    let sim = SimEnv::new(1);
    let (broker, _topic) = cold(&sim, &[(1, 100_000), (1, 100_000), (1, 100_000)]);
    broker.budgets.files.restrict_to(2);
    let pass = read(&broker, &[Offset(0); 3]);
    assert_eq!(are_in_files(&pass), [true, false, false], "half of them are for others");
    let bytes: Vec<_> = pass.answers.iter().map(|answer| answer.bytes).collect();
    assert!(bytes[0] > 100_000 && bytes[1..] == [bytes[0]; 2], "{bytes:?}");
    assert_eq!(memory_bytes(&pass.answers[2].parts), bytes[2]);
    assert_eq!(broker.budgets.files.count(), 1);
    drop(pass);
    assert_eq!(broker.budgets.files.count(), 0, "an answer that is gone holds nothing");
}

#[test]
fn a_fetch_copies_no_more_than_a_thread_has_time_for() {
    let sim = SimEnv::new(1);
    let (broker, _topic) = cold(&sim, &[(3, 600_000), (3, 600_000)]);
    // Both are warm.
    read(&broker, &[Offset(0), Offset(0)]);
    broker.budgets.files.restrict_to(0);
    let pass = read(&broker, &[Offset(0), Offset(0)]);
    let copied: usize = pass.answers.iter().map(|answer| memory_bytes(&answer.parts)).sum();
    assert!((600_000..=2 * COPIED_BYTES_MAX).contains(&copied), "{copied}");
    assert!(pass.urgent && are_in_files(&pass) == [false, false]);
}

#[test]
fn a_fetch_that_finds_no_descriptor_tries_no_other_partition() {
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(1, 100_000), (1, 100_000), (1, 100_000)]);
    for index in 0..3 {
        broker.partition(&topic, index).expect("opened");
    }
    sim.fs.exhaust_descriptors(true);
    let plan = plan([Offset(0); 3].iter().enumerate().map(wanted));
    let pass = runtime().block_on(read_all(&broker, &context(), &plan, LIMITS, None));
    let errors: Vec<_> = pass.answers.iter().map(|answer| answer.error).collect();
    assert_eq!(errors, [ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::NONE, ErrorCode::NONE]);
    assert!(pass.is_short);
    sim.fs.exhaust_descriptors(false);
    assert_eq!(fetch(&broker, &[Offset(0); 3]), [true; 3]);
}

#[test]
fn catching_up_holds_up_no_other_partition_without_a_session() {
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
            // Two batches of the large partitions are more than the fetch asks for.
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
    // The clock stands still, so that no read ends the pass by its time, and the bytes together do not either.
    assert_eq!(fetch(&broker, &[Offset(0); PARTITIONS]), [true; PARTITIONS]);
}

/// Fetches the first record of these partitions on a new connection; whether each had it.
async fn first_fetch(broker: Arc<Broker>, connection: u64, indexes: Vec<usize>) -> Vec<bool> {
    broker.catch_up.begin(connection);
    let plan = plan(indexes.into_iter().map(|index| wanted((index, &Offset(0)))));
    let pass = read_all(&broker, &context_of(connection), &plan, LIMITS, None).await;
    pass.answers.iter().map(|answer| answer.bytes > 0).collect()
}

#[test]
fn a_log_dir_that_hangs_keeps_no_new_consumer_from_the_others() {
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(1, 10); 2]);
    let log_dirs = [0, 1].map(|index| broker.replicas.log_dir(PartitionId { topic: topic.id, index }));
    assert!(log_dirs == [Some(0), Some(1)] || log_dirs == [Some(1), Some(0)], "{log_dirs:?}");
    let (release, hangs) = std::sync::mpsc::sync_channel::<()>(1);
    let (tell, told) = tokio::sync::oneshot::channel();
    sim.fs.during_next_read(move || {
        tell.send(()).expect("the test listens");
        let _ = hangs.recv_timeout(PATIENCE);
    });
    runtime().block_on(async move {
        let first = tokio::spawn(first_fetch(Arc::clone(&broker), 1, vec![0]));
        told.await.expect("it reads");
        let patience = PATIENCE / 4;
        let other = tokio::time::timeout(patience, first_fetch(Arc::clone(&broker), 2, vec![1])).await;
        assert_eq!(other, Ok(vec![true]));
        // A fetch that has found records does not wait for the other partition, but comes back for it.
        let both = tokio::time::timeout(patience, first_fetch(Arc::clone(&broker), 3, vec![1, 0])).await;
        assert_eq!(both, Ok(vec![true, false]));
        assert_eq!(broker.catch_up.begin_fetch(3).begin_at, 1);
        release.send(()).expect("it hangs");
        assert_eq!(first.await.expect("ends"), [true]);
    });
}

/// Fetches one partition on a new connection: its error and the number of records, by their bytes.
fn fetch_one(broker: &Arc<Broker>, index: usize, offset: i64) -> (ErrorCode, usize) {
    let plan = plan([wanted((index, &Offset(offset)))].into_iter());
    let pass = runtime().block_on(read_all(broker, &context(), &plan, LIMITS, None));
    (pass.answers[0].error, pass.bytes / VALUE_BYTES)
}

const VALUE_BYTES: usize = 100_000;

#[test]
fn records_around_a_bad_sector_are_served_and_health_shows_it() {
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(4, VALUE_BYTES), (1, VALUE_BYTES)]);
    let log = Arc::clone(&broker.partition(&topic, 0).expect("there").log);
    log.ensure_open().expect("it is well");
    let path = log.path().join(format!("{:020}.log", 0));
    // Within the second record.
    sim.fs.break_sectors(&path, 150_000..150_512).expect("there");
    let got = [0, 1, 2, 3].map(|offset| fetch_one(&broker, 0, offset));
    let failed = (ErrorCode::KAFKA_STORAGE_ERROR, 0);
    assert_eq!(got, [(ErrorCode::NONE, 1), failed, (ErrorCode::NONE, 2), (ErrorCode::NONE, 1)]);
    assert_eq!(fetch_one(&broker, 1, 0), (ErrorCode::NONE, 1), "another partition");
    append(&broker, &topic, 0, 10);
    assert!(!broker.is_offline(&topic, 0));
    let troubles = broker.health().troubles();
    let place = format!("partition t-0 is served in part: {} cannot be read at byte 150000", path.display());
    assert!(matches!(&troubles[..], [told] if told.starts_with(&place)), "{troubles:?}");
    let count = |broker: &Arc<Broker>| {
        let metrics = broker.metrics.exposition(Format::OpenMetrics).expect("rendered");
        let line = metrics.lines().find(|line| line.starts_with("riverrun_partitions_unreadable{}"));
        line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    assert_eq!(count(&broker).as_deref(), Some("1"));
    sim.fs.break_sectors(&path, 0..0).expect("there");
    assert_eq!(fetch_one(&broker, 0, 1), (ErrorCode::NONE, 3));
    assert_eq!(broker.health().troubles(), [""; 0]);
    assert_eq!(count(&broker).as_deref(), Some("0"));
}

/// Holds the only turn of a log dir until the result is dropped.
async fn hold_turn(broker: &Arc<Broker>, log_dir: usize) -> SyncSender<()> {
    let (release, released) = sync_channel::<()>(1);
    let (tell, told) = oneshot::channel();
    let broker = Arc::clone(broker);
    tokio::spawn(async move {
        let whose = Whose::of(&context_of(1).connection);
        let hold = move || {
            tell.send(()).expect("it is waited for");
            let _ends = released.recv_timeout(PATIENCE);
        };
        broker.catch_up.wait_aside(log_dir, whose, hold).await;
    });
    told.await.expect("it begins");
    release
}

#[test]
fn fetches_that_wait_for_a_log_dir_keep_no_turn_aside() {
    let sim = SimEnv::new(1);
    let (broker, _topic) = cold(&sim, &[(1, 100)]);
    let runtime = aside::runtime().expect("a runtime");
    let aside = Aside::on(&runtime, 0);
    let source = context().connection.peer.ip();
    runtime.block_on(async {
        let held = [hold_turn(&broker, 0).await, hold_turn(&broker, 1).await];
        let fetches = (10..30).map(|connection| {
            broker.catch_up.begin(connection);
            let (broker, aside) = (Arc::clone(&broker), aside.clone());
            tokio::spawn(async move {
                let (context, plan) = (context_of(connection), plan([wanted((0, &Offset(0)))].into_iter()));
                let read = read_all(&broker, &context, &plan, LIMITS, None);
                aside.in_charged_turn(source, read).await.bytes
            })
        });
        let fetches: Vec<_> = fetches.collect();
        let other = timeout(PATIENCE, aside.in_charged_turn(source, async {})).await;
        assert!(other.is_ok(), "they keep their turns");
        assert!(fetches.iter().all(|fetch| !fetch.is_finished()));
        drop(held);
        for fetch in fetches {
            assert!(fetch.await.expect("ends") > 0);
        }
    });
}

#[test]
fn a_fetch_is_answered_though_the_turn_of_a_log_dir_never_comes() {
    let sim = SimEnv::new(1);
    let (broker, topic) = cold(&sim, &[(1, 100), (1, 100)]);
    let dir_of = |index| broker.replicas.log_dir(PartitionId { topic: topic.id, index }).expect("placed");
    runtime().block_on(async {
        let _held = hold_turn(&broker, dir_of(0)).await;
        let fetched = timeout(PATIENCE, first_fetch(Arc::clone(&broker), 10, vec![0, 1])).await;
        assert_eq!(fetched.expect("in time"), [false, true]);
    });
}
