//! Clients that send nothing more: their requests are answered if they still read, and little is worked on if not.

use std::future::pending;
use std::net::Shutdown;

use super::*;
use crate::flow::pace::TURN_TIME_MAX;

/// Sizes of the frames below that take a turn to answer, of those that are answered later, and of those that never are.
const COSTLY: usize = 40;
const LATER: usize = 41;
const NEVER: usize = 42;
/// The size of one that is answered after it was looked several times whether the client has left.
const SLOW: usize = 43;

#[derive(Default)]
struct BySize {
    costly: AtomicUsize,
}

impl Dispatch for BySize {
    fn stage(
        &self,
        context: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        if frame.len() == COSTLY {
            self.costly.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(2 * TURN_TIME_MAX);
            return Staged::Done(size_of_frame(&frame));
        }
        let response = Box::pin(async move {
            match frame.len() {
                NEVER => pending().await,
                SLOW => sleep(4 * LOOK_PERIOD).await,
                _ => sleep(Duration::from_millis(50)).await,
            }
            size_of_frame(&frame)
        });
        Staged::handled(response, context)
    }
}

#[test]
fn little_is_worked_on_for_a_client_that_is_gone() {
    let dispatch = BySize::default();
    // As much as is read at once.
    let client = |client: &mut Client| client.send_together(&[COSTLY; 1_000]);
    // It may be found out when it is read from, or when it is written to.
    let _ = serve_with(limits(), &dispatch, |_| {}, client);
    let costly = dispatch.costly.load(Ordering::SeqCst);
    assert!(costly < 500, "{costly} were begun");
}

#[test]
fn a_client_that_sends_nothing_more_is_answered() {
    let client = |client: &mut Client| {
        client.send_together(&[COSTLY, LATER, COSTLY, LATER]);
        client.stream.shutdown(Shutdown::Write).expect("connected");
        let answers = [client.receive(), client.receive(), client.receive(), client.receive()];
        assert_eq!(answers, [COSTLY, LATER, COSTLY, LATER]);
    };
    serve_with(limits(), &BySize::default(), |_| {}, client).expect("the client closes");
}

#[test]
fn half_closed_client_gets_answers_to_unread_requests_too() {
    // More than one read takes, and less than the socket does.
    let sizes = [SLOW, 40_000, 40_000, 15_000];
    let client = move |client: &mut Client| {
        client.send_together(&sizes);
        client.stream.shutdown(Shutdown::Write).expect("connected");
        assert_eq!(sizes.map(|_| client.receive()), sizes);
    };
    let limits = ConnectionLimits { requests_max: 1, ..limits() };
    serve_with(limits, &BySize::default(), |_| {}, client).expect("the client closes");
}

#[test]
fn client_that_has_left_does_not_wait_for_ever() {
    let client = |client: &mut Client| client.send_together(&[NEVER, LATER]);
    serve_with(limits(), &BySize::default(), |_| {}, client).expect("the client closes");
}
