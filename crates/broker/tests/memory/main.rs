//! How much memory rude clients can make the server take. The server runs in this process, so the tests measure the
//! growth of the whole process; therefore they are a program of their own and run one after the other.

mod groups;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "this program needs a part of it")]
mod support;

mod bombs;
mod half_frames;
mod parked;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::{ApiVersionsRequest, FetchRequest, JoinGroupRequest, MetadataRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use support::{
    Client, assert_serves, batch, create_topic, fetch_request, find_coordinator, produce, request_bytes,
    server, server_with,
};

const MIB: usize = 1 << 20;

/// Held by the one test that runs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number of `/proc/self/status`, which are KiB, in bytes.
fn status_bytes(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a known field");
    let kib: usize = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// Starts a new count of this process' peak of memory; gives its memory now.
fn reset_peak() -> usize {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
    status_bytes("VmRSS")
}

/// Fails if this process has held more than `bound` above `before` since the last reset.
#[track_caller]
fn assert_peak_less_than(bound: usize, before: usize, what: &str) {
    let peak = status_bytes("VmHWM").saturating_sub(before);
    assert!(peak < bound, "{what}: {} KiB more, {} KiB allowed", peak / 1024, bound / 1024);
}

/// Memory of this process that is not backed by files.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = |field: usize| -> usize {
        statm.split(' ').nth(field).and_then(|text| text.parse().ok()).expect("a number")
    };
    (pages(1) - pages(2)) * rustix::param::page_size()
}

/// Fails if this process has grown by more than `bound` since `before`.
#[track_caller]
fn assert_grown_less_than(bound: usize, before: usize) {
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < bound, "{} KiB more, {} KiB allowed", grown / 1024, bound / 1024);
}

/// Lets this process open as many files as it may.
fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, ..limit };
    // A kernel that refuses the new limit keeps the old one.
    let _ = setrlimit(Resource::Nofile, most);
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).expect("fits"))
}

/// Fails unless small requests of others are served without delay, and large ones soon.
fn assert_others_are_served(honest: &mut Client, large: &[u8]) {
    for _ in 0..10 {
        let since = Instant::now();
        assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
        assert!(since.elapsed() < Duration::from_secs(5), "small: {:?}", since.elapsed());
    }
    let since = Instant::now();
    produce(honest, "t", 0, large);
    assert!(since.elapsed() < Duration::from_secs(15), "large: {:?}", since.elapsed());
}

/// So many clients announce much, send a little, and then a byte now and then.
fn assert_announcements_take_nothing(options: &[(&str, &str)], count: usize) {
    let server = server_with(options);
    let mut honest = Client::new(&server);
    create_topic(&mut honest, "t", 1, &[]);
    let large = batch(&["x".repeat(900_000).as_str()]);
    produce(&mut honest, "t", 0, &large);
    let before = resident_bytes();
    let mut rude: Vec<Client> = (0..count).map(|_| Client::new(&server)).collect();
    for (client, length) in rude.iter_mut().zip([1_000_000_i32, 104_857_600].into_iter().cycle()) {
        client.write(&length.to_be_bytes());
        client.write(&[0; 100]);
    }
    for _ in 0..3 {
        assert_others_are_served(&mut honest, &large);
        std::thread::sleep(Duration::from_millis(200));
        for client in &mut rude {
            client.write(&[0]);
        }
    }
    assert_grown_less_than(8 * MIB + count * 24 * 1024, before);
    assert_serves(&server);
}

#[test]
fn lengths_without_bytes_hold_none_of_a_small_budget() {
    let _alone = alone();
    // Enough to hold the memory for requests many times over if a length held any.
    assert_announcements_take_nothing(&[("queued.max.request.bytes", "1048576")], 100);
}

#[test]
fn thousands_of_lengths_without_bytes_take_no_memory() {
    let _alone = alone();
    // Both ends of each connection are files of this process.
    let count = ((raise_open_files() - 500) / 2).min(2_100);
    assert_announcements_take_nothing(&[], count);
}

#[test]
fn half_frames_hold_up_large_requests_for_seconds_only() {
    let _alone = alone();
    // A frame has a minute by default.
    let server = server_with(&[("queued.max.request.bytes", "1048576")]);
    let mut honest = Client::new(&server);
    create_topic(&mut honest, "t", 1, &[]);
    let mut rude: Vec<Client> = (0..12).map(|_| Client::new(&server)).collect();
    let part = vec![0; 60_000];
    for client in &mut rude {
        client.write(&1_000_000_i32.to_be_bytes());
        client.write(&part);
    }
    std::thread::sleep(Duration::from_millis(300));
    let large = batch(&["x".repeat(900_000).as_str()]);
    let mut patient = Client::new(&server);
    patient.set_timeout(Duration::from_mins(1));
    std::thread::scope(|scope| {
        let since = Instant::now();
        let producer = scope.spawn(|| produce(&mut patient, "t", 0, &large));
        while !producer.is_finished() {
            let asked = Instant::now();
            assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
            assert!(asked.elapsed() < Duration::from_secs(5), "small: {:?}", asked.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(since.elapsed() < Duration::from_secs(30), "large: {:?}", since.elapsed());
    });
    rude[0].expect_closed("a frame that held up others");
    assert_serves(&server);
}

#[test]
fn large_frames_sent_in_part_do_not_lock_each_other_out() {
    let _alone = alone();
    let server =
        server_with(&[("queued.max.request.bytes", "1048576"), ("socket.frame.timeout.ms", "15000")]);
    let mut admin = Client::new(&server);
    create_topic(&mut admin, "t", 1, &[]);
    let bytes = batch(&["x".repeat(900_000).as_str()]);
    let frame = request_bytes(&support::produce_request("t", 0, &bytes, -1), 9);
    let half = frame.len() / 2;
    let mut clients: Vec<Client> = (0..6).map(|_| Client::new(&server)).collect();
    // Together the halves are more than the budget; what the server does not read waits in the sockets.
    std::thread::scope(|scope| {
        for client in &mut clients {
            let frame = &frame;
            scope.spawn(move || {
                client.write(&frame[..half]);
                std::thread::sleep(Duration::from_millis(200));
                client.write(&frame[half..]);
                let (_, response) = client.receive::<riverrun_protocol::ProduceRequest<'_>>(9);
                assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
            });
        }
    });
    assert_serves(&server);
}

#[test]
fn requests_whose_answers_nobody_reads_are_held_back() {
    const REQUESTS: usize = 100_000;
    let _alone = alone();
    let server = server();
    assert_serves(&server);
    let mut rude = Client::new(&server);
    let mut writing = rude.again();
    let many = request_bytes(&ApiVersionsRequest::default(), 0).repeat(REQUESTS);
    let before = resident_bytes();
    let writer = std::thread::spawn(move || writing.write(&many));
    std::thread::sleep(Duration::from_millis(500));
    assert_grown_less_than(8 * MIB, before);
    assert_serves(&server);
    // Nothing was lost: once the client reads, it gets every answer.
    for _ in 0..REQUESTS {
        assert!(rude.read_frame().expect("answered").len() > 100);
    }
    writer.join().expect("all was sent");
    assert_grown_less_than(8 * MIB, before);
}

#[test]
fn ready_responses_behind_a_waiting_request_are_kept_back() {
    let _alone = alone();
    let server = server();
    let mut rude = Client::new(&server);
    create_topic(&mut rude, "t", 1, &[]);
    create_topic(&mut rude, "wide", 2_000, &[]);
    let everything = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(rude.call(&everything, 12).topics.len(), 2);
    let before = resident_bytes();
    let mut wait = fetch_request("t", 0, 0);
    wait.max_wait_ms = 2_000;
    rude.send(&wait, 12);
    for _ in 0..400 {
        rude.send(&everything, 12);
    }
    std::thread::sleep(Duration::from_millis(700));
    // Four hundred answers would be forty megabytes.
    assert_grown_less_than(8 * MIB, before);
    assert_serves(&server);
    rude.receive::<FetchRequest<'_>>(12);
    for _ in 0..400 {
        assert!(rude.read_frame().expect("answered").len() > 50_000);
    }
}

#[test]
fn clients_that_take_no_answers_do_not_stop_the_others() {
    let _alone = alone();
    let server = server_with(&[("queued.max.response.bytes", "1048576")]);
    let mut admin = Client::new(&server);
    create_topic(&mut admin, "wide", 2_000, &[]);
    let everything = request_bytes(&MetadataRequest { topics: None, ..Default::default() }, 12);
    let many = everything.repeat(50);
    let mut rude: Vec<Client> = (0..8).map(|_| Client::new(&server)).collect();
    for client in &mut rude {
        client.write(&many);
    }
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    for _ in 0..20 {
        assert_serves(&server);
    }
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn fetches_of_everything_by_many_clients_take_no_memory() {
    let _alone = alone();
    let server = server();
    let mut producer = Client::new(&server);
    // At a level that syncs, what is new is in memory for a while, and charged to each response.
    create_topic(&mut producer, "t", 1, &[("durability", "4")]);
    let bytes = batch(&["x".repeat(1_000_000).as_str()]);
    for _ in 0..20 {
        produce(&mut producer, "t", 0, &bytes);
    }
    let before = resident_bytes();
    let partition = FetchPartition { partition_max_bytes: i32::MAX, ..Default::default() };
    let topic = FetchTopic { topic: "t".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest { max_bytes: i32::MAX, topics: vec![topic], ..Default::default() };
    // Both ends of each connection are files of this process.
    let count = ((raise_open_files() - 500) / 2).min(1_000);
    let mut clients: Vec<Client> = (0..count).map(|_| Client::new(&server)).collect();
    for client in &mut clients {
        client.send(&request, 12);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_serves(&server);
    // Twenty gigabytes are on their way, from the page cache.
    assert_grown_less_than(8 * MIB + count * 32 * 1024, before);
    assert!(clients[7].read_frame().expect("answered").len() > 20_000_000);
}

#[test]
fn short_sessions_are_bounded_and_spare_sessions_in_use() {
    const ROUNDS: usize = 20;
    const SESSIONS: usize = 2_000;
    let _alone = alone();
    let server = server();
    let mut honest = Client::new(&server);
    create_topic(&mut honest, "t", 1, &[]);
    let mut begin = fetch_request("t", 0, 0);
    begin.session_epoch = 0;
    let session_id = honest.call(&begin, 12).session_id;
    assert_ne!(session_id, 0);
    let mut rude = Client::new(&server);
    let many = request_bytes(&begin, 12).repeat(SESSIONS);
    let mut before = 0;
    for round in 1..=ROUNDS {
        let mut writing = rude.again();
        std::thread::scope(|scope| {
            scope.spawn(|| writing.write(&many));
            for _ in 0..SESSIONS {
                rude.read_frame().expect("answered");
            }
        });
        if round == 1 {
            // All slots are taken now.
            before = resident_bytes();
        }
        let session_epoch = i32::try_from(round).expect("few");
        let go_on = FetchRequest { session_id, session_epoch, ..Default::default() };
        let answer = honest.call(&go_on, 12);
        assert_eq!((answer.error_code, answer.session_id), (0, session_id), "round {round}");
    }
    assert_grown_less_than(8 * MIB, before);
    assert_eq!(honest.call(&begin, 12).session_id, 0, "no slot is free");
    // The end of a session makes room.
    let end = FetchRequest { session_id, session_epoch: -1, ..Default::default() };
    assert_eq!(honest.call(&end, 12).error_code, 0);
    assert_ne!(honest.call(&begin, 12).session_id, 0);
    assert_serves(&server);
}

#[test]
fn members_that_come_and_go_are_bounded() {
    let _alone = alone();
    let server = server();
    let mut client = Client::new(&server);
    find_coordinator(&mut client, "g");
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    let join = JoinGroupRequest {
        group_id: "g".into(),
        // Longer than the test: the end of a session is written down, and that takes memory of its own.
        session_timeout_ms: 300_000,
        rebalance_timeout_ms: 6_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    let before = resident_bytes();
    let many = request_bytes(&join, 4).repeat(1_000);
    for _ in 0..10 {
        // From version 4 on a newcomer gets an id, with which it never comes back.
        client.write(&many);
        for _ in 0..1_000 {
            client.read_frame().expect("answered");
        }
    }
    assert_grown_less_than(8 * MIB, before);
    assert_serves(&server);
}
