//! A log dir whose disk does not answer: producers of the others go on, and `/health` names the one that hangs.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_broker::{Server, StopError};
use riverrun_env::sim::SimEnv;
use riverrun_env::{Env, FileSystem};
use riverrun_protocol::DescribeLogDirsRequest;

use crate::admin_port::get;
use crate::support::{Client, PATIENCE, batch, configured, create_topic, produce, produce_request};

fn on(sim: &SimEnv) -> Server {
    with(sim, "8388608", &[])
}

fn with(sim: &SimEnv, journal_bytes: &str, more: &[(&str, &str)]) -> Server {
    let env = Env { fs: sim.env().fs, ..Env::real() };
    let options = [
        ("data.dir", "/data"),
        ("log.dirs", "/one,/two"),
        ("admin.listen", "127.0.0.1:0"),
        ("journal.bytes", journal_bytes),
        ("write.cache.bytes", "8388608"),
    ];
    configured(&[&options, more].concat()).env(env).start().expect("the server starts")
}

/// The partition of the only topic that lies in a log dir.
fn partition_in(client: &mut Client, dir: &str) -> i32 {
    let dirs = client.call(&DescribeLogDirsRequest { topics: None }, 5).results;
    let found = dirs.iter().find(|found| &*found.log_dir == dir).expect("there");
    found.topics[0].partitions[0].partition_index
}

#[test]
fn a_log_dir_that_hangs_holds_up_no_producer_of_another() {
    let sim = SimEnv::new(1);
    let server = on(&sim);
    let admin = server.admin_address().expect("an admin port");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("durability", "1")]);
    for index in 0..2 {
        produce(&mut client, "t", index, &batch(&["a"]));
    }
    let [well, hung] = ["/one", "/two"].map(|dir| partition_in(&mut client, dir));
    sim.fs.hang_device(Some(Path::new("/two")));
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
    let begun = Instant::now();
    loop {
        let (_, body) = get(admin, "/health");
        if body.contains("/two does not answer") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{body}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    let stopped = server.stop();
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    let Err(StopError::Unclean(why)) = stopped else { panic!("{stopped:?}") };
    assert!(why.contains("/two"), "{why}");
    sim.fs.hang_device(None);
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
    let sim = SimEnv::new(1);
    let server = with(&sim, "8388608", &[("log.retention.check.interval.ms", "50")]);
    let mut client = Client::new(&server);
    let configs = [("retention.bytes", "1"), ("durability", "1"), ("segment.bytes", "1048576")];
    create_topic(&mut client, "t", 2, &configs);
    let large = batch(&[&"x".repeat(400_000)]);
    for index in 0..2 {
        produce(&mut client, "t", index, &large);
    }
    let [well, hung] = ["/one", "/two"].map(|dir| partition_in(&mut client, dir));
    sim.fs.hang_device(Some(Path::new("/two")));
    for _ in 0..4 {
        produce(&mut client, "t", hung, &large);
    }
    // More than one look meets what is due in the dir that hangs.
    for _ in 0..8 {
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

/// So many bytes are in no segment yet.
fn cache_bytes(admin: SocketAddr) -> u64 {
    let (status, metrics) = get(admin, "/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix("riverrun_write_cache_bytes{} "));
    value.unwrap_or_else(|| panic!("{status}: {metrics}")).trim().parse().expect("a number")
}

#[test]
fn a_log_dir_that_hangs_and_is_flooded_takes_no_room_from_a_producer_of_another() {
    let sim = SimEnv::new(1);
    let server = with(&sim, "134217728", &[]);
    let admin = server.admin_address().expect("an admin port");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("durability", "1")]);
    for index in 0..2 {
        produce(&mut client, "t", index, &batch(&["a"]));
    }
    let [well, hung] = ["/one", "/two"].map(|dir| partition_in(&mut client, dir));
    sim.fs.hang_device(Some(Path::new("/two")));
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
