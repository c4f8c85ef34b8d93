//! How much memory rude clients can make the server take. The server runs in this process, so what is measured is
//! the growth of the whole process; therefore these tests are a program of their own and run one after the other.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "this program needs a part of it")]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::{ApiVersionsRequest, ErrorCode, FetchRequest, JoinGroupRequest, MetadataRequest};
use riverrun_records::{BatchOptions, Compression, compress, layout};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use support::{
    Client, assert_serves, batch, batch_with, create_topic, fetch_request, find_coordinator, produce,
    request_bytes, server, server_with, try_produce,
};

const MIB: usize = 1 << 20;

/// Held by the one test that runs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
    // Above what the kernel takes nothing changes.
    let _ = setrlimit(Resource::Nofile, most);
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).expect("fits"))
}

/// Fails unless small requests of others are served without delay, and large ones soon.
fn assert_others_are_served(honest: &mut Client, large: &[u8]) {
    for _ in 0..10 {
        let since = Instant::now();
        assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
        assert!(since.elapsed() < Duration::from_secs(1), "small: {:?}", since.elapsed());
    }
    let since = Instant::now();
    produce(honest, "t", 0, large);
    assert!(since.elapsed() < Duration::from_secs(5), "large: {:?}", since.elapsed());
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
fn lengths_whose_bytes_never_come_take_nothing_from_anybody() {
    let _alone = alone();
    // Enough to hold the memory for requests many times over if a length held any.
    assert_announcements_take_nothing(&[("queued.max.request.bytes", "1048576")], 100);
}

#[test]
fn thousands_of_lengths_whose_bytes_never_come_take_nothing_from_anybody() {
    let _alone = alone();
    // Both ends of each connection are files of this process.
    let count = ((raise_open_files() - 500) / 2).min(2_100);
    assert_announcements_take_nothing(&[], count);
}

#[test]
fn half_frames_hold_up_nothing_that_is_whole_and_nobody_for_long() {
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
    std::thread::scope(|scope| {
        let since = Instant::now();
        let producer = scope.spawn(|| produce(&mut patient, "t", 0, &large));
        while !producer.is_finished() {
            let asked = Instant::now();
            assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
            assert!(asked.elapsed() < Duration::from_secs(1), "small: {:?}", asked.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(since.elapsed() < Duration::from_secs(15), "large: {:?}", since.elapsed());
    });
    rude[0].expect_closed("a frame that held up others");
    assert_serves(&server);
}

#[test]
fn large_frames_that_are_sent_in_part_do_not_lock_each_other_out() {
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
    // Nothing was lost: whoever begins to read gets every answer.
    for _ in 0..REQUESTS {
        assert!(rude.read_frame().expect("answered").len() > 100);
    }
    writer.join().expect("all was sent");
    assert_grown_less_than(8 * MIB, before);
}

#[test]
fn responses_that_are_ready_behind_a_waiting_request_are_held_back() {
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

/// A batch of one record whose compressed bytes are `payload`.
fn compressed(codec: Compression, payload: &[u8]) -> Vec<u8> {
    let mut bytes = batch_with(BatchOptions { compression: codec, ..Default::default() }, &["x"]);
    bytes.truncate(layout::RECORDS);
    bytes.extend(payload);
    let length = i32::try_from(bytes.len() - layout::LENGTH_END).expect("small");
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[layout::ATTRIBUTES..]);
    bytes[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Seven bits a byte, the lowest first.
fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Few bytes that inflate to very many: one record that is all zeros.
fn bomb(codec: Compression) -> Vec<u8> {
    let inflated = 110 * MIB;
    if codec == Compression::Snappy {
        // A block of snappy says its size in front; this one says a gigabyte.
        return compressed(codec, &[0x80, 0x80, 0x80, 0x80, 0x04, 0xfe, 0, 0]);
    }
    let mut records = Vec::with_capacity(inflated + 16);
    // A sound record but for its size: attributes, both deltas, no key, the value, no headers.
    put_varint(&mut records, 2 * (inflated + 9));
    records.extend([0, 0, 0, 1]);
    put_varint(&mut records, 2 * inflated);
    records.resize(records.len() + inflated + 1, 0);
    let mut payload = Vec::new();
    compress(codec, codec.default_level(), &records, &mut payload).expect("compresses");
    compressed(codec, &payload)
}

#[test]
fn bombs_of_every_codec_are_refused_without_being_inflated() {
    let _alone = alone();
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let bytes = bomb(codec);
        assert!(bytes.len() < MIB, "{codec:?}: {}", bytes.len());
        let before = resident_bytes();
        let answer = try_produce(&mut client, "t", 0, &bytes);
        let code = ErrorCode(answer.error_code);
        assert_eq!(code, ErrorCode::MESSAGE_TOO_LARGE, "{codec:?}: {:?}", answer.error_message);
        assert_grown_less_than(64 * MIB, before);
    }
    assert_serves(&server);
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
    let mut clients: Vec<Client> = (0..100).map(|_| Client::new(&server)).collect();
    for client in &mut clients {
        client.send(&request, 12);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_serves(&server);
    // Two gigabytes are on their way, from the page cache.
    assert_grown_less_than(8 * MIB + clients.len() * 64 * 1024, before);
    assert!(clients[7].read_frame().expect("answered").len() > 20_000_000);
}

#[test]
fn sessions_and_members_that_come_and_go_are_bounded() {
    let _alone = alone();
    let server = server();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    find_coordinator(&mut client, "g");
    let mut fetch = fetch_request("t", 0, 0);
    fetch.session_epoch = 0;
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    let join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 6_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    for _ in 0..1_000 {
        client.call(&fetch, 12);
    }
    let before = resident_bytes();
    for _ in 0..3_000 {
        client.send(&fetch, 12);
        // From version 4 on a newcomer gets an id, with which it never comes back.
        client.send(&join, 4);
        client.read_frame().expect("answered");
        client.read_frame().expect("answered");
    }
    assert_grown_less_than(8 * MIB, before);
    assert_serves(&server);
}
