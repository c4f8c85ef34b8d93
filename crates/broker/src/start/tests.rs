use std::io;
use std::path::PathBuf;

use std::time::{Duration, Instant};

use riverrun_env::FileSystem as _;
use riverrun_env::sim::SimEnv;
use riverrun_env::{OpenMode, read_whole};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions};
use riverrun_types::{Offset, TimestampMs, TopicId};

use super::*;
use crate::config::TopicOverrides;
use crate::flow::produce_backpressure::Places;
use crate::flow::source::Source;
use crate::metadata::{NewTopic, Topic};
use crate::settle::Settlers;
use crate::testing::record;

fn start(sim: &SimEnv) -> Arc<Broker> {
    let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
    open_broker(sim.env(), config).expect("starts")
}

fn restart(sim: &SimEnv, broker: Arc<Broker>) -> Arc<Broker> {
    sim.fs.crash();
    drop(broker);
    start(sim)
}

fn create(broker: &Broker, name: &str) -> Arc<Topic> {
    let new = NewTopic { name: name.to_owned(), partition_count: 2, configs: TopicOverrides::new() };
    broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made")
}

/// Appends a record to each partition; it is in the journal when this returns, and in no segment.
fn append(broker: &Broker, topic: &Arc<Topic>) {
    for index in 0..2 {
        let last = append_to(broker, topic, index).expect("taken");
        let log = Arc::clone(&broker.partition(topic, index).expect("there").log);
        wait_until("the journal says nothing", || log.watermarks().synced > last);
    }
}

/// Appends a record as it comes from a client, and returns its offset.
fn append_to(broker: &Broker, topic: &Arc<Topic>, index: i32) -> Result<Offset, AppendError> {
    append_value(broker, topic, index, b"value")
}

fn append_value(
    broker: &Broker,
    topic: &Arc<Topic>,
    index: i32,
    value: &[u8],
) -> Result<Offset, AppendError> {
    let batch = record(TimestampMs(0), value);
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    let appended = broker.partition(topic, index).expect("there").log.append(batch, options)?;
    Ok(appended.last_offset)
}

fn wait_until(what_if_not: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what_if_not}");
        std::thread::yield_now();
    }
}

fn unknown(broker: &Broker) -> Vec<String> {
    broker.health().troubles().into_iter().filter(|trouble| trouble.contains("does not know")).collect()
}

#[test]
fn records_of_unknown_topics_are_kept_with_a_way_out() {
    let sim = SimEnv::new(1);
    let mut broker = start(&sim);
    let (kept, lost) = (create(&broker, "kept"), create(&broker, "lost"));
    append(&broker, &kept);
    append(&broker, &lost);
    let forget = |id: TopicId| {
        let forgotten = broker.catalog.store().change(|draft| {
            draft.delete_topic(id).expect("there");
            draft.forget_topics(&[id]);
        });
        forgotten.expect("changed");
    };
    forget(lost.id);
    for round in 0..2 {
        broker = restart(&sim, broker);
        let [trouble] = &unknown(&broker)[..] else { panic!("{:?}", broker.health()) };
        let told =
            ["2 partitions of 1 topics", "/data/journal/held-unknown-*", "restore /data/meta from a copy"];
        assert!(told.iter().all(|part| trouble.contains(part)), "{trouble}");
        broker.logs.checkpoint().expect("made");
        assert!(broker.logs.has_aside(), "round {round}");
    }
    assert!(broker.partition(&kept, 0).is_ok());
}

#[test]
fn journal_records_of_a_deleted_topic_are_no_trouble() {
    let sim = SimEnv::new(1);
    let mut broker = start(&sim);
    let (kept, gone) = (create(&broker, "kept"), create(&broker, "gone"));
    append(&broker, &gone);
    broker.catalog.store().change(|draft| draft.delete_topic(gone.id).is_ok()).expect("deleted");
    broker.catalog.discard_topics(&[gone.id]);
    for _ in 0..2 {
        broker = restart(&sim, broker);
        assert_eq!(unknown(&broker), [""; 0]);
        assert!(broker.catalog.node().doomed().contains_key(&gone.id), "the journal has it still");
        broker.catalog.discard_topics(&[gone.id]);
        broker.logs.checkpoint().expect("made");
    }
    append(&broker, &kept);
    broker.catalog.forget_discarded();
    assert!(broker.catalog.node().doomed().is_empty(), "the journal says that it needs none of it");
    broker = restart(&sim, broker);
    assert_eq!(unknown(&broker), [""; 0]);
    assert!(!broker.logs.has_aside());
}

/// Flips a bit in the header of the journal's only file.
fn damage_journal(sim: &SimEnv) {
    let path = Path::new("/data/journal/00000000.journal");
    let file = sim.fs.open(path, OpenMode::ReadWrite).expect("there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 40).expect("read");
    file.write_all_at(&[byte[0] ^ 1], 40).and_then(|()| file.sync_all()).expect("written");
}

#[test]
fn damaged_journal_stops_a_start_only_after_a_crash() {
    let sim = SimEnv::new(1);
    let broker = start(&sim);
    let topic = create(&broker, "kept");
    append(&broker, &topic);
    broker.logs.close().expect("settled");
    broker.journals.note_settled().expect("written");
    broker.catalog.store().close().expect("written");
    drop(broker);
    damage_journal(&sim);
    let broker = start(&sim);
    let topic = broker.catalog.cluster().topic_by_id(topic.id).cloned().expect("known");
    let end =
        |broker: &Broker| broker.partition(&topic, 0).expect("opens").log.log_end_offset().expect("known");
    assert_eq!(end(&broker), Offset(1));
    append(&broker, &topic);
    let broker = restart(&sim, broker);
    assert_eq!(end(&broker), Offset(2), "what came since is in a journal of its own");
    sim.fs.crash();
    drop(broker);
    damage_journal(&sim);
    let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
    let error = open_broker(sim.env(), config).expect_err("nobody knows what is missing").to_string();
    assert!(error.contains("00000000.journal") && error.contains("restore the file"), "{error}");
}

/// All files below a directory, in the order of their names.
fn files_below(sim: &SimEnv, dir: &Path) -> Vec<PathBuf> {
    let mut entries = sim.fs.read_dir(dir).expect("a directory");
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let below = |entry: riverrun_env::DirEntry| {
        let path = dir.join(entry.name);
        if entry.is_dir { files_below(sim, &path) } else { vec![path] }
    };
    entries.into_iter().flat_map(below).collect()
}

/// A server that has records in its segments and, if it was killed, others in its journal only.
fn ended(is_killed: bool) -> (SimEnv, TopicId) {
    let sim = SimEnv::new(1);
    let broker = start(&sim);
    let topic = create(&broker, "kept");
    append(&broker, &topic);
    broker.logs.checkpoint().expect("covered");
    if is_killed {
        append(&broker, &topic);
        sim.fs.kill();
    } else {
        broker.logs.close().expect("settled");
        broker.journals.note_settled().expect("written");
        broker.catalog.store().close().expect("written");
    }
    drop(broker);
    (sim, topic.id)
}

#[test]
fn start_passes_a_bad_sector_or_names_the_file_and_a_way_out() {
    let mut refused = vec![];
    for is_killed in [false, true] {
        let files = files_below(&ended(is_killed).0, Path::new("/data"));
        assert!(files.len() > 10, "{files:?}");
        for (path, bytes) in files.iter().flat_map(|path| [(path, 512), (path, 1 << 40)]) {
            let (sim, id) = ended(is_killed);
            sim.fs.break_sectors(path, 0..bytes).expect("there");
            let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
            let context = format!("{}, {bytes} bytes, killed: {is_killed}", path.display());
            match open_broker(sim.env(), config).map_err(|error| error.to_string()) {
                Ok(broker) => {
                    let topic = broker.catalog.cluster().topic_by_id(id).cloned().expect("known");
                    let hit =
                        path.strip_prefix("/data/logs").ok().and_then(|path| path.parent()?.file_name());
                    let is_hit = |index: i32| hit.is_some_and(|hit| *hit == *index.to_string());
                    for index in (0..2).filter(|index| !is_hit(*index)) {
                        let partition = broker.partition(&topic, index);
                        let partition = partition.unwrap_or_else(|error| panic!("{context}: {error:?}"));
                        let end = partition
                            .log
                            .log_end_offset()
                            .unwrap_or_else(|error| panic!("{context}: {error}"));
                        assert_eq!(end, Offset(1 + i64::from(is_killed)), "{context}");
                    }
                }
                Err(error) => {
                    assert!(error.contains(&*path.to_string_lossy()), "{context}: {error}");
                    assert!(
                        ["restore", "accept-loss"].iter().any(|way| error.contains(way)),
                        "{context}: {error}"
                    );
                    refused.push((path.clone(), is_killed, bytes == 512));
                }
            }
        }
    }
    // After a stop in order, a start fails only if everything is gone that says that nothing in the journal is needed.
    let journal = PathBuf::from("/data/journal/00000000.journal");
    let refusals = [(false, false), (true, true), (true, false)];
    assert_eq!(refused, refusals.map(|(is_killed, is_one)| (journal.clone(), is_killed, is_one)));
}

#[test]
fn bind_error_says_the_reason_by_its_kind() {
    let told = |kind: io::ErrorKind| {
        let address = "127.0.0.1:80".to_owned();
        StartError::Bind { address, source: kind.into() }.to_string()
    };
    for (kind, hint) in [
        (io::ErrorKind::AddrInUse, "another server"),
        (io::ErrorKind::AddrNotAvailable, "no address of this machine"),
        (io::ErrorKind::PermissionDenied, "privileges"),
    ] {
        assert!(told(kind).contains(hint), "{}", told(kind));
    }
    assert!(!told(io::ErrorKind::Other).contains("another server"), "{}", told(io::ErrorKind::Other));
}

/// Starts with these journals, in this order.
fn start_with(sim: &SimEnv, journals: &str) -> Result<Arc<Broker>, String> {
    let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("journal.dirs", journals)]);
    open_broker(sim.env(), config.expect("valid")).map_err(|error| error.to_string())
}

#[test]
fn start_without_one_of_two_journals_names_ways_that_work() {
    let sim = SimEnv::new(1);
    // Stands for a disk that is dead.
    sim.fs.open(Path::new("/dead"), OpenMode::CreateNew).expect("made");
    let broker = start_with(&sim, "/a,/b").expect("starts");
    let topic = create(&broker, "kept");
    append(&broker, &topic);
    broker.logs.close().expect("settled");
    broker.journals.note_settled().expect("written");
    broker.catalog.store().close().expect("written");
    drop(broker);
    let error = start_with(&sim, "/a,/dead").expect_err("no directory");
    assert!(error.contains("/dead") && error.contains("nothing is lost"), "{error}");
    let broker = start_with(&sim, "/a,/c").expect("as it says");
    append(&broker, &create(&broker, "more"));
    sim.fs.crash();
    drop(broker);
    let error = start_with(&sim, "/dead,/c").expect_err("no directory");
    assert!(error.contains("/dead") && error.contains("make a file accept-loss in /data/meta"), "{error}");
    sim.fs.open(Path::new("/data/meta/accept-loss"), OpenMode::CreateNew).expect("made");
    let broker = start_with(&sim, "/d,/c").expect("as it says");
    assert!(broker.partition(&topic, 0).is_ok());
}

/// Starts with the data, the journal and the log dir on volumes of their own.
fn start_on_three_volumes(sim: &SimEnv) -> Arc<Broker> {
    let dirs = [("data.dir", "/data"), ("journal.dirs", "/journal"), ("log.dirs", "/logs")];
    open_broker(sim.env(), BrokerConfig::from_pairs(dirs).expect("valid")).expect("starts")
}

#[test]
fn journal_waits_for_space_in_the_metadata_at_its_first_use() {
    let sim = SimEnv::new(1);
    let broker = start_on_three_volumes(&sim);
    let topic = create(&broker, "topic");
    sim.fs.fill_device(Some(Path::new("/data")));
    append_to(&broker, &topic, 0).expect("taken, and not acked");
    let journal = broker.logs.journals().next().expect("there is one");
    wait_until("the journal does not notice", || journal.shortage().is_some() || journal.failure().is_some());
    let refused = append_to(&broker, &topic, 0).expect_err("the journal waits");
    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    let told = broker.health().troubles();
    assert!(told.iter().any(|trouble| trouble.contains("/data/meta/journals")), "{told:?}");
    assert!(journal.failure().is_none());
    sim.fs.fill_device(None);
    let log = Arc::clone(&broker.partition(&topic, 0).expect("there").log);
    wait_until("it does not go on", || log.watermarks().synced == Offset(1));
    append(&broker, &topic);
    sim.fs.crash();
    drop((broker, log));
    let broker = start_on_three_volumes(&sim);
    let log = Arc::clone(&broker.partition(&topic, 0).expect("there").log);
    assert_eq!(log.log_end_offset().expect("known"), Offset(2));
}

const PRODUCE: Option<i16> = Some(riverrun_protocol::ApiKey::Produce as i16);

/// Whether a small request of a source that has sent nothing yet passes the gate before the write cache.
fn passes(broker: &Broker, places: impl FnOnce() -> Places) -> bool {
    broker.produce_gate.check(&broker.produce_gate.guest(Source::SOME), PRODUCE, 1, places).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_waiting_for_the_cache_is_refused_on_a_full_disk() {
    let sim = SimEnv::new(1);
    let settings = [("data.dir", "/data"), ("write.cache.bytes", "8388608")];
    let broker = open_broker(sim.env(), BrokerConfig::from_pairs(settings).expect("valid")).expect("starts");
    let topic = create(&broker, "topic");
    append(&broker, &topic);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    sim.fs.during_next_sync(move || told.recv().expect("sent"));
    let value = vec![7; 800_000];
    for _ in 0..12 {
        append_value(&broker, &topic, 0, &value).expect("taken, and not acked");
    }
    assert!(!passes(&broker, Places::default));
    let waiting = tokio::spawn({
        let broker = Arc::clone(&broker);
        async move {
            let guest = broker.produce_gate.guest(Source::SOME);
            while let Err(not_now) = broker.produce_gate.check(&guest, PRODUCE, 1, Places::default) {
                broker.produce_gate.has_changed(not_now).await;
            }
        }
    });
    tokio::task::yield_now().await;
    let settlers = Settlers::start(&broker).expect("a thread");
    sim.fs.set_space(Some(0));
    tell.send(()).expect("it waits");
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("let in").expect("ends");
    let refused = append_to(&broker, &topic, 0).expect_err("no space");
    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    sim.fs.set_space(None);
    wait_until("it goes on", || append_to(&broker, &topic, 0).is_ok());
    settlers.stop();
}

#[test]
fn reserve_is_a_share_of_a_small_volume_only() {
    const MIB: u64 = 1 << 20;
    let sim = SimEnv::new(1);
    sim.fs.set_total_bytes("/small".as_ref(), 200 * MIB);
    let options = [
        ("data.dir", "/data"),
        ("log.dirs", "/small,/large"),
        ("log.dir.reserve.bytes", "104857600"),
        ("default.durability", "4"),
    ];
    let broker = open_broker(sim.env(), BrokerConfig::from_pairs(options).expect("valid")).expect("starts");
    let topic = create(&broker, "t");
    let refused = |left: u64| -> Vec<bool> {
        sim.fs.set_space(Some(left));
        broker.logs.measure_space();
        let (mut small, mut large) = (None, None);
        for index in 0..2 {
            let dir = broker
                .logs
                .dir_path(broker.replicas.log_dir(PartitionId { topic: topic.id, index }).expect("there"));
            let of_dir = if dir.ends_with("small") { &mut small } else { &mut large };
            *of_dir = Some(append_to(&broker, &topic, index).is_err());
        }
        vec![small.expect("it has one"), large.expect("it has one")]
    };
    assert_eq!(refused(101 * MIB), [false, false]);
    assert_eq!(refused(99 * MIB), [false, true]);
    assert_eq!(refused(9 * MIB), [true, true]);
}

/// Copies the files of the metadata.
fn copied_metadata(sim: &SimEnv) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| {
        let bytes = read_whole(&*sim.fs, &path, 1 << 20).expect("readable");
        (path, bytes)
    };
    files_below(sim, Path::new("/data/meta")).into_iter().map(read).collect()
}

/// Puts an older copy of the metadata back, and gives up what it lacks.
fn put_back(sim: &SimEnv, copy: Vec<(PathBuf, Vec<u8>)>) {
    let meta = Path::new("/data/meta");
    sim.fs.remove_dir_all(meta).expect("removed");
    sim.fs.create_dir_all(meta).expect("made");
    let accept = (meta.join("accept-metadata-loss"), Vec::new());
    for (path, bytes) in copy.into_iter().chain([accept]) {
        let file = sim.fs.open(&path, OpenMode::CreateNew).expect("made");
        file.write_all_at(&bytes, 0).and_then(|()| file.sync_all()).expect("written");
    }
    sim.fs.sync_dir(meta).expect("synced");
}

#[test]
fn partition_added_again_is_led_above_its_journal_records() {
    let sim = SimEnv::new(1);
    let broker = start(&sim);
    let topic = create(&broker, "t");
    let older = copied_metadata(&sim);
    let grow = |broker: &Broker| {
        broker.catalog.store().change(|draft| draft.grow_topic("t", 3)).expect("changed").expect("grown");
    };
    grow(&broker);
    let broker = restart(&sim, broker);
    let epoch_of_log = |broker: &Broker| {
        let topic = broker.catalog.cluster().topic_by_id(topic.id).cloned().expect("known");
        let last = append_to(broker, &topic, 2).expect("taken");
        let log = Arc::clone(&broker.partition(&topic, 2).expect("there").log);
        wait_until("the journal says nothing", || log.watermarks().synced > last);
        (broker.leader_epoch(&topic, 2), log.latest_epoch().expect("open").expect("it has a record"))
    };
    assert_eq!(epoch_of_log(&broker), (LeaderEpoch(1), LeaderEpoch(1)));
    sim.fs.crash();
    drop(broker);
    put_back(&sim, older);
    let broker = start(&sim);
    assert_eq!(broker.catalog.cluster().topics_sorted()[0].partition_count(), 2, "it has no directory");
    assert_eq!(unknown(&broker).len(), 1);
    grow(&broker);
    let broker = restart(&sim, broker);
    assert_eq!(unknown(&broker), [""; 0]);
    let (told, stamped) = epoch_of_log(&broker);
    assert!(told == stamped && told > LeaderEpoch(1), "{told:?} is told, {stamped:?} is stamped");
}
