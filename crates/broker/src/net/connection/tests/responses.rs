//! Memory for responses, over real sockets: requests for little are always served, and clients that read nothing go.

use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_protocol::Splice;
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::flow::responses::Held;
use crate::response::Part;

/// Sizes of the frames below that are answered with little, and of those that are expected to be answered with much.
const LITTLE: usize = 40;
const MUCH: usize = 41;
const MUCH_BYTES: usize = 16 << 20;

struct Sized;

impl Dispatch for Sized {
    fn expected_bytes(&self, _: Option<i16>, frame_bytes: usize) -> Option<usize> {
        (frame_bytes == MUCH).then_some(MUCH_BYTES)
    }

    fn stage(
        &self,
        _: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        if frame.len() == MUCH {
            let bytes = BytesMut::zeroed(MUCH_BYTES);
            let frame = ResponseFrame::assemble(Frame { bytes, splices: Vec::new() }, Vec::new());
            return Staged::Done(Outcome::Respond(frame));
        }
        Staged::Done(size_of_frame(&frame))
    }
}

/// Response memory that another connection holds.
fn held(memory: &Arc<ResponseMemory>, bytes: usize) -> Held {
    let account = memory.account(9, Ipv4Addr::LOCALHOST.into());
    account.charge(bytes).expect("it exists")
}

#[test]
fn small_requests_pass_and_large_ones_wait_for_response_memory() {
    let limits = limits();
    let memory = Arc::clone(&limits.responses);
    let client = move |client: &mut Client| {
        let spent = held(&memory, 65 << 20);
        client.ask(LITTLE);
        client.send(MUCH);
        wait_until("it waits", || memory.waiting() == 1);
        drop(spent);
        client.stream.read_exact(&mut vec![0; MUCH_BYTES]).expect("the server answers in time");
        client.unanswered = 0;
        client.ask(LITTLE);
    };
    serve_with(limits, &Sized, |_| {}, client).expect("the client closes");
}

#[test]
fn a_client_that_takes_nothing_is_sent_away_once_others_wait() {
    let limits = limits();
    let memory = Arc::clone(&limits.responses);
    let client = move |client: &mut Client| {
        client.send(MUCH);
        wait_until("it is answered", || memory.used_bytes() >= MUCH_BYTES);
        let reader = memory.account(9, Ipv4Addr::new(192, 0, 2, 1).into());
        let spent = reader.charge(40 << 20).expect("it exists");
        let other = memory.account(8, Ipv4Addr::new(192, 0, 2, 2).into());
        let mut in_line = other.reserve(MUCH_BYTES).expect_err("spent");
        wait_until("it goes", || {
            reader.sent(1 << 20);
            memory.look();
            futures_util::FutureExt::now_or_never(in_line.granted()).is_some()
        });
        drop(spent);
    };
    let served = serve_with(limits, &Sized, |_| {}, client);
    assert!(matches!(served, Err(Closed::InTheWay)), "{served:?}");
}

#[test]
fn a_request_whose_client_goes_while_it_waits_is_not_worked_off() {
    let limits = limits();
    let memory = Arc::clone(&limits.responses);
    let spent = held(&memory, 65 << 20);
    let waits = Arc::clone(&memory);
    let client = move |client: &mut Client| {
        client.send_together(&[MUCH, LITTLE]);
        wait_until("it waits", || waits.waiting() == 1);
    };
    serve_with(limits, &Sized, |_| {}, client).expect("the client closes");
    assert_eq!(memory.waiting(), 0);
    drop(spent);
    assert_eq!(memory.used_bytes(), 0);
}

/// Answers each frame with the response that was prepared for it.
struct Prepared(Mutex<Option<ResponseFrame>>);

impl Dispatch for Prepared {
    fn stage(&self, _: &mut Context<'_>, _: &Arc<ConnectionInfo>, _: BytesMut, _charge: Charge) -> Staged {
        Staged::Done(Outcome::Respond(self.0.lock().take().expect("one request")))
    }
}

/// A response of so many pieces, four bytes each.
fn in_pieces(pieces: usize) -> ResponseFrame {
    let splices = (1..=pieces / 2).map(|index| Splice { position: 4 * index, len: 4 }).collect();
    let external = (0..pieces / 2).map(|_| vec![Part::Bytes(Bytes::from_static(b"read"))]).collect();
    ResponseFrame::assemble(Frame { bytes: BytesMut::zeroed(2 * pieces), splices }, external)
}

/// The processor's time that this thread has had.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("not negative")
}

#[test]
fn response_of_very_many_pieces_yields_its_thread_to_others() {
    const PIECES: usize = 600_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let dispatch = Prepared(Mutex::new(Some(in_pieces(PIECES))));
    let longest = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&longest);
    runtime.spawn(async move {
        let mut last = processor_time();
        loop {
            let now = processor_time();
            seen.fetch_max(
                now.saturating_sub(last).as_micros().try_into().expect("short"),
                Ordering::Relaxed,
            );
            last = now;
            tokio::task::yield_now().await;
        }
    });
    let client = |client: &mut Client| {
        client.send(LITTLE);
        client.stream.read_exact(&mut vec![0; 4 * PIECES]).expect("the server answers in time");
    };
    serve_on(&runtime, limits(), &dispatch, |_| {}, client).expect("the client closes");
    let longest = Duration::from_micros(longest.load(Ordering::Relaxed));
    assert!(longest < Duration::from_millis(20), "{longest:?}");
}
