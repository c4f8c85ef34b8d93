//! Responses with pieces of memory that others share: a client that is slow to take them keeps none of it.

use bytes::Bytes;
use riverrun_protocol::Splice;
use tokio::sync::Notify;

use super::*;
use crate::response::Part;

/// Sizes of the frames below that are answered with a piece of the shared bytes, and of those that are answered on a signal.
const SHARES: usize = 40;
const LATER: usize = 41;
/// Before the piece, so that the socket does not take it.
const BEFORE_BYTES: usize = 16 << 20;
const PIECE: &[u8] = b"piece";

/// Shared bytes, which live as long as any part of them.
struct Whole(Arc<[u8]>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Clone)]
struct Sharing {
    whole: Arc<[u8]>,
    later: Arc<Notify>,
}

impl Sharing {
    fn new() -> Self {
        Self { whole: Arc::from(&b"a piece of what others have, too"[..]), later: Arc::default() }
    }

    /// Whether a response has a part of the shared bytes.
    fn is_kept(&self) -> bool {
        Arc::strong_count(&self.whole) > 2
    }

    fn answer(&self) -> Outcome {
        let piece = Bytes::from_owner(Whole(Arc::clone(&self.whole))).slice(2..7);
        let splices = vec![Splice { position: BEFORE_BYTES, len: piece.len() }];
        let encoded = Frame { bytes: BytesMut::zeroed(BEFORE_BYTES), splices };
        Outcome::Respond(ResponseFrame::assemble(encoded, vec![vec![Part::Shared(piece)]]))
    }
}

impl Dispatch for Sharing {
    fn stage(
        &self,
        context: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        if frame.len() == SHARES {
            return Staged::Done(self.answer());
        }
        let later = Arc::clone(&self.later);
        let response = Box::pin(async move {
            later.notified().await;
            size_of_frame(&frame)
        });
        Staged::handled(response, context)
    }
}

fn read_answer(client: &mut Client) {
    let mut answer = vec![0; BEFORE_BYTES + PIECE.len()];
    client.stream.read_exact(&mut answer).expect("the server answers in time");
    assert_eq!(&answer[BEFORE_BYTES..], PIECE);
}

#[test]
fn untaken_responses_share_no_memory_and_keep_their_bytes() {
    let dispatch = Sharing::new();
    let sharing = dispatch.clone();
    let client = move |client: &mut Client| {
        client.send(SHARES);
        wait_until("it is answered", || sharing.is_kept());
        let since = Instant::now();
        wait_until("it is kept", || !sharing.is_kept());
        assert!(since.elapsed() > SHARING_TIME / 2, "who reads in full flow is spared the copy");
        read_answer(client);
    };
    serve_with(limits(), &dispatch, |_| {}, client).expect("the client closes");
}

#[test]
fn ready_response_behind_a_waiting_request_shares_no_memory() {
    let dispatch = Sharing::new();
    let sharing = dispatch.clone();
    let limits = limits();
    let budget = Arc::clone(&limits.responses);
    let client = move |client: &mut Client| {
        client.send_together(&[LATER, SHARES]);
        wait_until("it is ready", || budget.used_bytes() > 0);
        assert!(!sharing.is_kept());
        sharing.later.notify_one();
        assert_eq!(client.receive(), LATER);
        read_answer(client);
    };
    serve_with(limits, &dispatch, |_| {}, client).expect("the client closes");
}
