//! Large frames that arrive in part, over real sockets: a client that holds memory and does not fill it is sent away once
//! others wait, whatever else it does meanwhile.

use super::*;
use crate::flow::large_frames::Sender;
use crate::flow::source::Source;
use crate::net::reader::QUIET_TIME_MAX;

const MIB: usize = 1 << 20;
const OTHER: Sender = Sender { source: Source::SOME, is_proven: false };
const HUGE: usize = 50 * MIB;
/// Size of the large answers below: more than a socket takes.
const ANSWER_BYTES: usize = 16 * MIB;
/// How long the large answers below wait: until the part of a frame behind the request was given memory.
const ANSWER_AFTER: Duration = Duration::from_millis(300);

/// Answers each frame after a while, with much.
struct MuchLater;

impl Dispatch for MuchLater {
    fn stage(
        &self,
        context: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        _: BytesMut,
        _charge: Charge,
    ) -> Staged {
        let response = Box::pin(async {
            tokio::time::sleep(ANSWER_AFTER).await;
            let mut bytes = BytesMut::zeroed(ANSWER_BYTES);
            let length = u32::try_from(ANSWER_BYTES - 4).expect("small").to_be_bytes();
            bytes[..4].copy_from_slice(&length);
            Outcome::Respond(ResponseFrame::assemble(Frame { bytes, splices: Vec::new() }, Vec::new()))
        });
        Staged::handled(response, context)
    }
}

/// Limits with 4 MiB for ordinary frames that arrive and 2 MiB for huge ones.
fn tight() -> ConnectionLimits {
    ConnectionLimits { requests: MemoryBudget::new(8 * MIB), ..limits() }
}

/// A frame of another connection that has this much.
fn arrived(budget: &Arc<MemoryBudget>, length: usize, bytes: usize) -> Charge {
    let mut charge = budget.arriving(length, OTHER);
    assert!(charge.try_grow(bytes));
    charge
}

/// A frame of another connection that gets in line for this much.
fn in_line(budget: &Arc<MemoryBudget>, length: usize, bytes: usize) -> Charge {
    let mut charge = budget.arriving(length, OTHER);
    assert!(!charge.grow(bytes, length));
    charge
}

fn is_granted(charge: &mut Charge) -> bool {
    futures_util::FutureExt::now_or_never(charge.granted()).is_some()
}

/// Sends part of a frame.
fn send_part(client: &mut Client, length: usize, sent: usize) {
    client.stream.write_all(&u32::try_from(length).expect("small").to_be_bytes()).expect("the server reads");
    client.stream.write_all(&vec![0; sent]).expect("the server reads");
}

/// Sends a byte now and then until another one has what it is in line for.
fn drip_until_granted(client: &mut Client, mut other: Charge) {
    wait_until("the other one is given memory", || {
        // The server's end stays open for the test to look at, so this goes on.
        client.stream.write_all(&[0]).expect("open");
        is_granted(&mut other)
    });
}

#[test]
fn a_huge_frame_that_drips_while_it_overdraws_is_sent_away() {
    let limits = tight();
    let budget = Arc::clone(&limits.requests);
    let others = arrived(&budget, HUGE, 2 * MIB);
    let served = serve_with(
        limits,
        &SizeOf,
        |_| {},
        move |client| {
            send_part(client, HUGE, 3 * MIB / 2);
            wait_until("it overdraws", || budget.held_bytes() > budget.used_bytes());
            drip_until_granted(client, in_line(&budget, HUGE, MIB));
            drop(others);
        },
    );
    assert!(matches!(served, Err(Closed::HoldsUpOthers)), "{served:?}");
}

#[test]
fn dripping_huge_frame_holds_its_lane_for_a_few_seconds_only() {
    let limits = tight();
    let budget = Arc::clone(&limits.requests);
    let served = serve_with(
        limits,
        &SizeOf,
        |_| {},
        move |client| {
            send_part(client, HUGE, 3 * MIB / 2);
            wait_until("it was given memory", || budget.used_bytes() >= 2 * MIB);
            let mut overdrawn = in_line(&budget, HUGE, MIB);
            assert!(is_granted(&mut overdrawn));
            drip_until_granted(client, in_line(&budget, HUGE, MIB));
        },
    );
    assert!(matches!(served, Err(Closed::HoldsUpOthers)), "{served:?}");
}

#[test]
fn client_that_takes_no_answers_loses_a_large_frames_memory() {
    let limits = tight();
    let budget = Arc::clone(&limits.requests);
    let served = serve_with(
        limits,
        &MuchLater,
        |_| {},
        move |client| {
            client.send(40);
            send_part(client, 2 * MIB, 100_000);
            wait_until("it was given memory", || budget.used_bytes() >= 2 * MIB);
            std::thread::sleep(2 * ANSWER_AFTER);
            let _others = arrived(&budget, MIB, MIB);
            let mut overdrawn = in_line(&budget, 2 * MIB, 2 * MIB);
            assert!(is_granted(&mut overdrawn));
            let mut waiting = in_line(&budget, 2 * MIB, 3 * MIB / 2);
            wait_until("its memory is given to others", || is_granted(&mut waiting));
        },
    );
    assert!(matches!(served, Err(Closed::HoldsUpOthers)), "{served:?}");
}

#[test]
fn client_that_takes_no_answers_loses_a_late_grant() {
    let limits = tight();
    let budget = Arc::clone(&limits.requests);
    let mut others: Vec<_> = (0..2).map(|_| arrived(&budget, 2 * MIB, 2 * MIB)).collect();
    let mut overdrawn = in_line(&budget, 2 * MIB, 2 * MIB);
    assert!(is_granted(&mut overdrawn));
    let served = serve_with(
        limits,
        &MuchLater,
        |_| {},
        move |client| {
            client.send(40);
            send_part(client, 2 * MIB, 64 * 1024);
            wait_until("it is in line", || budget.in_line() == 1);
            std::thread::sleep(2 * ANSWER_AFTER);
            let mut waiting = in_line(&budget, 2 * MIB, 2 * MIB);
            others.pop();
            assert!(!is_granted(&mut waiting), "the older one is served first");
            wait_until("what it was given is given to others", || is_granted(&mut waiting));
            drop((others, overdrawn));
        },
    );
    assert!(matches!(served, Err(Closed::HoldsUpOthers)), "{served:?}");
}

#[test]
fn client_that_takes_no_answers_is_not_in_line_for_ever() {
    let limits = ConnectionLimits { frame_time_max: Duration::from_secs(1), ..tight() };
    let budget = Arc::clone(&limits.requests);
    let others: Vec<_> = (0..2).map(|_| arrived(&budget, 2 * MIB, 2 * MIB)).collect();
    let mut overdrawn = in_line(&budget, 2 * MIB, 2 * MIB);
    assert!(is_granted(&mut overdrawn));
    let served = serve_with(
        limits,
        &MuchLater,
        |_| {},
        move |client| {
            client.send(40);
            send_part(client, 2 * MIB, 64 * 1024);
            wait_until("it is in line", || budget.in_line() == 1);
            wait_until("it is sent away", || budget.in_line() == 0);
            drop((others, overdrawn));
        },
    );
    assert!(matches!(served, Err(Closed::NoMemory(_))), "{served:?}");
}

#[test]
fn frame_is_not_late_for_time_in_which_the_server_stood_still() {
    let limits = tight();
    let budget = Arc::clone(&limits.requests);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (go_on, gone_on) = mpsc::sync_channel(1);
    let stand_still = move |_: &mut Connection<'_, SizeOf>| {
        tokio::spawn(async move {
            stopped.await.expect("the client says so");
            // On the only thread of the server, for longer than any frame has.
            std::thread::sleep(Duration::from_secs(3));
            go_on.send(()).expect("the client waits");
        });
    };
    let client = move |client: &mut Client| {
        send_part(client, 2 * MIB, 3 * MIB / 2);
        wait_until("it was given memory", || budget.used_bytes() >= 2 * MIB);
        let _others = arrived(&budget, MIB, MIB);
        let mut overdrawn = in_line(&budget, 2 * MIB, 2 * MIB);
        assert!(is_granted(&mut overdrawn));
        let _waiting = in_line(&budget, 2 * MIB, 2 * MIB);
        stop.send(()).expect("the server waits");
        gone_on.recv().expect("it goes on");
        std::thread::sleep(QUIET_TIME_MAX / 5);
        client.stream.write_all(&vec![0; MIB / 2]).expect("the server reads");
        client.unanswered += 1;
        assert_eq!(client.receive(), 2 * MIB);
    };
    serve_with(limits, &SizeOf, stand_still, client).expect("the client closes");
}

#[test]
fn slow_huge_frame_becomes_whole_while_nobody_waits() {
    serve(
        |_| {},
        |client| {
            let length = 9 * MIB;
            send_part(client, length, 0);
            for _ in 0..36 {
                client.stream.write_all(&vec![0; MIB / 4]).expect("the server reads");
                std::thread::sleep(Duration::from_millis(5));
            }
            client.unanswered += 1;
            assert_eq!(client.receive(), length);
        },
    );
}

#[test]
fn large_frame_without_bytes_goes_soon_and_a_dripping_one_later() {
    for (drips, time_max) in [(false, Duration::from_millis(1500)), (true, PATIENCE)] {
        let limits = tight();
        let budget = Arc::clone(&limits.requests);
        let (took, time) = mpsc::sync_channel(1);
        let client = move |client: &mut Client| {
            send_part(client, 2 * MIB, 3 * MIB / 2);
            wait_until("it was given memory", || budget.used_bytes() >= 2 * MIB);
            let _others = arrived(&budget, MIB, MIB);
            let mut overdrawn = in_line(&budget, 2 * MIB, 2 * MIB);
            assert!(is_granted(&mut overdrawn));
            let mut waiting = in_line(&budget, 2 * MIB, 2 * MIB);
            let since = Instant::now();
            wait_until("the other one is given memory", || {
                if drips {
                    client.stream.write_all(&[0]).expect("open");
                }
                is_granted(&mut waiting)
            });
            took.send(since.elapsed()).expect("the test waits");
        };
        let served = serve_with(limits, &SizeOf, |_| {}, client);
        assert!(matches!(served, Err(Closed::HoldsUpOthers)), "{served:?}");
        let took = time.recv().expect("told");
        assert!(took >= QUIET_TIME_MAX / 2 && took < time_max, "{took:?}");
    }
}

/// Answers each frame with its size, and refuses those that do not begin with zeros.
struct ZerosOnly;

impl Dispatch for ZerosOnly {
    fn refuses(&self, beginning: &[u8], _missing: usize) -> Option<String> {
        (beginning.first() != Some(&0)).then(|| "no zeros".to_owned())
    }

    fn stage(
        &self,
        _: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        Staged::Done(size_of_frame(&frame))
    }
}

#[test]
fn a_large_frame_that_begins_wrong_is_not_received() {
    let limits = tight();
    let budget = Arc::clone(&limits.requests);
    let served = serve_with(
        limits,
        &ZerosOnly,
        |_| {},
        |client| {
            client.send(100);
            client.receive_all();
            client.stream.write_all(&u32::try_from(HUGE).expect("small").to_be_bytes()).expect("open");
            client.stream.write_all(&vec![7; MIB / 16]).expect("the server reads");
        },
    );
    assert_eq!(budget.held_bytes(), 0);
    assert!(matches!(&served, Err(Closed::BadRequest(why)) if why == "no zeros"), "{served:?}");
}

#[test]
fn first_large_frame_queues_among_newcomers_and_next_does_not() {
    let limits = limits();
    let budget = Arc::clone(&limits.requests);
    let client = move |client: &mut Client| {
        // Others have taken as much as anybody waits for.
        let mut ask = || {
            budget.newcomer_begins(Instant::now(), HUGE);
            client.ask(MIB)
        };
        let delay = ask();
        assert!(delay >= Duration::from_millis(100), "{delay:?}");
        wait_until("it does not wait any more", || ask() < Duration::from_millis(100));
    };
    serve_with(limits, &SizeOf, |_| {}, client).expect("the client closes");
}
