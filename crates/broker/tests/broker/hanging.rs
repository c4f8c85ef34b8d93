//! A log dir whose disk does not answer: producers of the others go on, and `/health` names the one that hangs.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_broker::{Server, StopError};
use riverrun_env::sim::SimEnv;
use riverrun_env::{Env, FileSystem};
use riverrun_protocol::create_topics_request::CreatableTopic;
use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeLogDirsRequest, ErrorCode, ListOffsetsRequest,
    ProduceRequest,
};

use crate::admin_port::get;
use crate::support::{
    Client, FETCH_BY_NAME, PATIENCE, assert_serves, batch, configured, create_topic, fetch_request, produce,
    produce_request, records,
};

/// A server on these log dirs, with these options beside.
fn start_on(sim: &SimEnv, log_dirs: &str, more: &[(&str, &str)]) -> Server {
    let env = Env { fs: sim.env().fs, ..Env::real() };
    let options = [
        ("data.dir", "/data"),
        ("log.dirs", log_dirs),
        ("admin.listen", "127.0.0.1:0"),
        ("journal.bytes", "8388608"),
        ("write.cache.bytes", "8388608"),
    ];
    configured(&[&options, more].concat()).env(env).start().expect("the server starts")
}

/// A server with a partition in each of two log dirs, of which the second does not answer any more.
struct Scene {
    sim: SimEnv,
    server: Server,
    admin: SocketAddr,
    client: Client,
    /// The partitions.
    well: i32,
    hung: i32,
}

impl Scene {
    fn new(options: &[(&str, &str)], configs: &[(&str, &str)]) -> Self {
        let sim = SimEnv::new(1);
        let server = start_on(&sim, "/one,/two", options);
        let admin = server.admin_address().expect("an admin port");
        let mut client = Client::new(&server);
        create_topic(&mut client, "t", 2, configs);
        for index in 0..2 {
            produce(&mut client, "t", index, &batch(&["a"]));
        }
        let [well, hung] = ["/one", "/two"].map(|dir| partition_in(&mut client, dir));
        sim.fs.hang_device(Some(Path::new("/two")));
        Self { sim, server, admin, client, well, hung }
    }
}

/// Waits until `/health` says this.
fn expect_health(admin: SocketAddr, what: &str) {
    let begun = Instant::now();
    loop {
        let (_, body) = get(admin, "/health");
        if body.contains(what) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{body}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Produces until batches are refused because the disk does not answer. Until then they are taken, or time out.
fn expect_refused(client: &mut Client, index: i32, batch: &[u8]) {
    let begun = Instant::now();
    loop {
        let request = ProduceRequest { timeout_ms: 200, ..produce_request("t", index, batch, -1) };
        let response = client.call(&request, 12);
        match ErrorCode(response.responses[0].partition_responses[0].error_code) {
            ErrorCode::KAFKA_STORAGE_ERROR => return,
            code => assert!(matches!(code, ErrorCode::NONE | ErrorCode::REQUEST_TIMED_OUT), "{code}"),
        }
        assert!(begun.elapsed() < PATIENCE, "nobody is refused");
    }
}

/// Stops a server one of whose disks does not answer.
fn stop_hung(server: Server, dir: &str) {
    let begun = Instant::now();
    let stopped = server.stop();
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    let Err(StopError::Unclean(why)) = stopped else { panic!("{stopped:?}") };
    assert!(why.contains(dir) || why.contains("does not answer"), "{why}");
}

/// The partition of the only topic that lies in a log dir.
fn partition_in(client: &mut Client, dir: &str) -> i32 {
    let dirs = client.call(&DescribeLogDirsRequest { topics: None }, 5).results;
    let found = dirs.iter().find(|found| &*found.log_dir == dir).expect("there");
    found.topics[0].partitions[0].partition_index
}

#[test]
fn a_log_dir_that_hangs_holds_up_no_producer_of_another() {
    let Scene { sim, server, admin, mut client, well, hung } = Scene::new(&[], &[("durability", "1")]);
    let large = batch(&[&"x".repeat(500_000)]);
    let mut others: Vec<_> = (0..6).map(|_| Client::new(&server)).collect();
    for other in &mut others {
        other.send(&produce_request("t", hung, &large, -1), 12);
    }
    let begun = Instant::now();
    for _ in 0..60 {
        // The journal is small: it waits once, until the dir has hung for long enough.
        produce(&mut client, "t", well, &large);
    }
    assert!(begun.elapsed() < PATIENCE);
    expect_health(admin, "/two does not answer");
    stop_hung(server, "/two");
    sim.fs.hang_device(None);
}

#[test]
fn a_hanging_log_dir_holds_up_no_other_without_a_journal() {
    for level in ["2", "4"] {
        let Scene { sim, server, admin, mut client, well, hung } = Scene::new(&[], &[("durability", level)]);
        let small = batch(&["small"]);
        // More clients than there are network threads.
        let mut others: Vec<_> = (0..40).map(|_| Client::new(&server)).collect();
        for other in &mut others {
            other.send(&produce_request("t", hung, &small, -1), 12);
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            produce(&mut client, "t", well, &small);
        }
        expect_health(admin, "/two does not answer: a write to partition t-");
        expect_refused(&mut Client::new(&server), hung, &small);
        produce(&mut client, "t", well, &small);
        sim.fs.hang_device(None);
        for other in &mut others {
            let (_, response) = other.receive::<ProduceRequest<'_>>(12);
            assert_eq!(
                response.responses[0].partition_responses[0].error_code, 0,
                "it is written in the end"
            );
        }
        produce(&mut client, "t", hung, &small);
        server.stop().expect("in order");
    }
}

#[test]
fn a_log_dir_that_hangs_holds_up_no_fetch_of_another() {
    let Scene { sim, server, admin, well, hung, .. } = Scene::new(&[], &[("durability", "4")]);
    Client::new(&server).send(&produce_request("t", hung, &batch(&["b"]), -1), 12);
    expect_health(admin, "/two does not answer: a write to partition t-");
    let mut request = fetch_request("t", hung, 0);
    request.topics[0].partitions.extend(fetch_request("t", well, 0).topics.remove(0).partitions);
    request.max_wait_ms = 60_000;
    // More than may wait for a log dir at once. A client that asks again is answered alike.
    for _ in 0..8 {
        let mut client = Client::new(&server);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let [of_hung, of_well] =
                <[_; 2]>::try_from(client.call(&request, FETCH_BY_NAME).responses.remove(0).partitions)
                    .expect("two partitions");
            assert_eq!((of_hung.error_code, of_well.error_code), (0, 0));
            assert!(records(&of_hung).is_empty());
            if !records(&of_well).is_empty() {
                break;
            }
        }
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    }
    sim.fs.hang_device(None);
    server.stop().expect("in order");
}

#[test]
fn a_log_dir_that_hangs_holds_up_no_search_of_another() {
    let Scene { sim, server, admin, mut client, well, hung, .. } = Scene::new(&[], &[("durability", "4")]);
    Client::new(&server).send(&produce_request("t", hung, &batch(&["b"]), -1), 12);
    expect_health(admin, "/two does not answer: a write to partition t-");
    let asked =
        |index| ListOffsetsPartition { partition_index: index, timestamp: 0, current_leader_epoch: -1 };
    let topic = ListOffsetsTopic { name: "t".into(), partitions: vec![asked(hung), asked(well)] };
    let request = ListOffsetsRequest { topics: vec![topic], ..Default::default() };
    let found = client.call(&request, 7).topics.remove(0).partitions;
    assert_eq!(ErrorCode(found[0].error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!((found[1].error_code, found[1].offset), (0, 0));
    sim.fs.hang_device(None);
    server.stop().expect("in order");
}

#[test]
fn producers_are_refused_while_the_only_log_dir_hangs() {
    for level in ["1", "4"] {
        let sim = SimEnv::new(1);
        let server = start_on(&sim, "/one", &[]);
        let admin = server.admin_address().expect("an admin port");
        let mut client = Client::new(&server);
        create_topic(&mut client, "t", 1, &[("durability", level)]);
        produce(&mut client, "t", 0, &batch(&["a"]));
        sim.fs.hang_device(Some(Path::new("/one")));
        let large = batch(&[&"x".repeat(500_000)]);
        // The first batches are taken or wait, until the disk is known not to answer.
        let mut first = Client::new(&server);
        first.send(&produce_request("t", 0, &large, -1), 12);
        expect_health(admin, "/one does not answer");
        expect_refused(&mut client, 0, &large);
        assert_serves(&server);
        stop_hung(server, "/one");
        sim.fs.hang_device(None);
    }
}

/// Base offsets of the segments of all partitions below a directory.
fn segments(sim: &SimEnv, path: &Path) -> Vec<u64> {
    let mut bases = Vec::new();
    for entry in sim.fs.read_dir(path).unwrap_or_default() {
        let name = Path::new(&entry.name);
        if entry.is_dir {
            bases.extend(segments(sim, &path.join(name)));
        } else if name.extension().is_some_and(|extension| extension == "log") {
            bases.extend(name.file_stem().and_then(|base| base.to_str()?.parse::<u64>().ok()));
        }
    }
    bases
}

#[test]
fn a_log_dir_that_hangs_holds_up_retention_of_no_other() {
    let options = [("log.retention.check.interval.ms", "50")];
    let configs = [("retention.bytes", "1"), ("durability", "1"), ("segment.bytes", "1048576")];
    let Scene { sim, server, mut client, well, hung, .. } = Scene::new(&options, &configs);
    let large = batch(&[&"x".repeat(400_000)]);
    for _ in 0..5 {
        produce(&mut client, "t", hung, &large);
    }
    // More than one check of retention meets the segments that are due in the hanging dir.
    for _ in 0..9 {
        produce(&mut client, "t", well, &large);
        std::thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    loop {
        let bases = segments(&sim, Path::new("/one"));
        // The last record begins a segment of its own.
        if bases.len() <= 2 && bases.iter().any(|base| *base >= 8) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{bases:?} stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    sim.fs.hang_device(None);
    server.stop().expect("a clean stop");
}

/// Waits until the metrics say this.
fn expect_metric(admin: SocketAddr, name: &str, value: usize) {
    let begun = Instant::now();
    let line = format!("riverrun_{name} {value}");
    while !get(admin, "/metrics").1.lines().any(|other| other.trim().replace("{}", "") == line) {
        assert!(begun.elapsed() < PATIENCE, "not {line}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_topics_files_go_though_its_deleter_leaves_during_a_hang() {
    let sim = SimEnv::new(1);
    let server = start_on(&sim, "/one", &[]);
    let admin = server.admin_address().expect("an admin port");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    assert_eq!(segments(&sim, Path::new("/one")), [0]);
    sim.fs.hang_device(Some(Path::new("/data")));
    let request = DeleteTopicsRequest { topic_names: vec!["t".into()], ..Default::default() };
    client.send(&request, 5);
    // The deletion is under way once another client waits for its end.
    let mut other = Client::new(&server);
    other.set_timeout(Duration::from_millis(300));
    let rehearsal = CreateTopicsRequest { validate_only: true, ..Default::default() };
    while {
        other.send(&rehearsal, 7);
        other.read_frame().is_ok()
    } {}
    drop(client);
    expect_metric(admin, "connections_open", 1);
    sim.fs.hang_device(None);
    let begun = Instant::now();
    while !segments(&sim, Path::new("/one")).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "they stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop().expect("in order");
}

#[test]
fn health_and_metrics_answer_while_the_metadatas_disk_hangs() {
    let sim = SimEnv::new(1);
    let server = start_on(&sim, "/one", &[]);
    let admin = server.admin_address().expect("an admin port");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    sim.fs.hang_device(Some(Path::new("/data")));
    let topic =
        CreatableTopic { name: "u".into(), num_partitions: 1, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 60_000, ..Default::default() };
    let mut waiting = Client::new(&server);
    waiting.send(&request, 7);
    let begun = Instant::now();
    let told = "changes of the metadata wait for the disk of /data/meta";
    loop {
        let asked = Instant::now();
        let (health, metrics) = (get(admin, "/health").1, get(admin, "/metrics").1);
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        let is_counted = metrics.contains("riverrun_waiting_seconds{what=\"metadata\"}");
        if is_counted && health.contains(told) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{health}");
        std::thread::sleep(Duration::from_millis(50));
    }
    sim.fs.hang_device(None);
    let (_, response) = waiting.receive::<CreateTopicsRequest<'_>>(7);
    assert_eq!(response.topics[0].error_code, 0);
    while get(admin, "/health").1 != "ok\n" {
        assert!(begun.elapsed() < PATIENCE, "it is not over");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop().expect("in order");
}

/// So many bytes are in no segment yet.
fn cache_bytes(admin: SocketAddr) -> u64 {
    let (status, metrics) = get(admin, "/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix("riverrun_write_cache_bytes{} "));
    value.unwrap_or_else(|| panic!("{status}: {metrics}")).trim().parse().expect("a number")
}

#[test]
fn a_flooded_hanging_log_dir_leaves_room_for_other_producers() {
    let options = [("journal.bytes", "134217728")];
    let Scene { sim, server, admin, mut client, well, hung } = Scene::new(&options, &[("durability", "1")]);
    let large = batch(&[&"x".repeat(200_000)]);
    let mut others: Vec<_> = (0..8).map(|_| Client::new(&server)).collect();
    // More than the write cache takes: the last ones wait.
    for _ in 0..8 {
        for other in &mut others {
            other.send(&produce_request("t", hung, &large, 0), 12);
        }
    }
    let begun = Instant::now();
    while cache_bytes(admin) < 5 << 20 {
        assert!(begun.elapsed() < PATIENCE, "{} bytes", cache_bytes(admin));
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..50 {
        produce(&mut client, "t", well, &batch(&["small"]));
        assert!(cache_bytes(admin) <= 8 << 20, "the bound holds");
    }
    sim.fs.hang_device(None);
    for other in &mut others {
        other.call(&DescribeLogDirsRequest { topics: None }, 5);
    }
    server.stop().expect("in order");
}
