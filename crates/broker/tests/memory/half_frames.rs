//! Clients that send much of a large request and never its end, and come again when they are sent away: how long others
//! wait for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::ApiVersionsRequest;

use crate::alone;
use crate::support::{Client, batch, create_topic, produce, server, server_with};

/// The longest that rude clients may hold up others: several times what it takes on a busy machine, and half of the
/// minute that a frame has, for which they would hold up others if nothing were done about them.
const FEW_SECONDS: Duration = Duration::from_secs(30);
/// The same bound for requests that are not held up at all.
const AT_ONCE: Duration = Duration::from_secs(8);

/// The behaviour of rude clients.
#[derive(Clone, Copy)]
struct Rude {
    count: usize,
    /// The length that they announce, and the bytes that they send.
    length: i32,
    sent: usize,
    /// Whether they send a byte now and then after that.
    drips: bool,
}

/// One client that is rude until told to stop.
fn be_rude(address: &str, rude: Rude, part: &[u8], stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let mut client = Client::connect(address);
        let mut is_open = client.try_write(&rude.length.to_be_bytes()).is_ok();
        for piece in part[..rude.sent].chunks(32 * 1024) {
            is_open = is_open && !stop.load(Ordering::SeqCst) && client.try_write(piece).is_ok();
        }
        while is_open && !stop.load(Ordering::SeqCst) {
            is_open = client.is_quiet_for(Duration::from_millis(100));
            is_open &= !rude.drips || client.try_write(&[0]).is_ok();
        }
    }
}

/// Sets its flag when it is dropped, also when the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Fails if an honest client's requests of these sizes take longer than `bound` each while others are rude.
#[track_caller]
fn assert_served_within(bound: Duration, server: &Server, rude: Rude, sizes: &[usize]) {
    let mut honest = Client::new(server);
    create_topic(&mut honest, "t", 1, &[]);
    honest.set_timeout(2 * bound);
    let (part, stop) = (vec![0; rude.sent], AtomicBool::new(false));
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for _ in 0..rude.count {
            scope.spawn(|| be_rude(server.bootstrap(), rude, &part, &stop));
        }
        std::thread::sleep(Duration::from_secs(1));
        for size in sizes {
            let large = batch(&["x".repeat(*size).as_str()]);
            let since = Instant::now();
            assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
            produce(&mut honest, "t", 0, &large);
            slowest = slowest.max(since.elapsed());
        }
    });
    assert!(slowest < bound, "{slowest:?}");
}

#[test]
fn a_few_huge_half_frames_hold_up_no_ordinary_request() {
    let _alone = alone();
    let rude = Rude { count: 13, length: 104_857_600, sent: 9_000_000, drips: false };
    assert_served_within(AT_ONCE, &server(), rude, &[70_000, 200_000, 900_000]);
    let drips = Rude { drips: true, ..rude };
    assert_served_within(AT_ONCE, &server(), drips, &[80_000, 130_000, 300_000]);
}

#[test]
fn huge_half_frames_hold_up_a_huge_request_for_seconds_only() {
    let _alone = alone();
    let rude = Rude { count: 13, length: 104_857_600, sent: 9_000_000, drips: false };
    let server = || server_with(&[("message.max.bytes", "10485760")]);
    assert_served_within(FEW_SECONDS, &server(), rude, &[4_000_000, 3_000_000]);
    let drips = Rude { drips: true, ..rude };
    assert_served_within(FEW_SECONDS, &server(), drips, &[4_000_000, 3_000_000]);
}

#[test]
fn nearly_whole_frames_hold_up_requests_for_seconds_only() {
    let _alone = alone();
    // Together they send ten times the memory for requests, as two thousand do with its default.
    let server = || server_with(&[("queued.max.request.bytes", "8388608")]);
    let rude = Rude { count: 140, length: 600_000, sent: 599_990, drips: false };
    assert_served_within(FEW_SECONDS, &server(), rude, &[100_000, 900_000]);
    let drips = Rude { sent: 500_000, drips: true, ..rude };
    assert_served_within(FEW_SECONDS, &server(), drips, &[100_000, 900_000]);
}
