//! Requests that have begun and are not answered: they go on together, and their outcomes come in the order of the requests.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::stream::{FuturesOrdered, StreamExt as _};

use super::dispatch::Response;
use crate::flow::responses::{Account, Held, InLine};
use crate::response::{Outcome, ResponseFrame};

/// Unanswered requests of one connection, oldest first.
pub(super) struct Pipeline {
    waiting: FuturesOrdered<Unanswered>,
    /// The turn of the request that comes next.
    next_turn: u64,
    turns: Arc<Turns>,
    /// The connection's account in the memory for responses.
    account: Arc<Account>,
}

/// Shared by a connection and its requests that wait for their turn.
#[derive(Default)]
struct Turns {
    /// Requests whose turn has come.
    taken: AtomicU64,
    /// Memory of the responses that are ready and whose turn has not come.
    ready_bytes: AtomicUsize,
}

/// A request whose turn to be answered has not come.
struct Unanswered {
    state: Progress,
    turn: u64,
    account: Arc<Account>,
    /// Until its response is charged.
    reserved: Option<Held>,
    turns: Arc<Turns>,
}

enum Progress {
    Running(Response),
    /// Ready before its turn; taken when that comes.
    Ready(Option<Outcome>),
}

impl Pipeline {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { waiting: FuturesOrdered::new(), next_turn: 0, turns: Arc::default(), account }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Memory of the responses that are ready and whose turn has not come.
    pub(super) fn ready_bytes(&self) -> usize {
        self.turns.ready_bytes.load(Ordering::Relaxed)
    }

    /// Takes in the next request, which goes on whenever an outcome is asked for. `reserved` is memory for its response.
    pub(super) fn push(&mut self, response: Response, reserved: Option<Held>) {
        let unanswered = self.unanswered(Progress::Running(response), reserved);
        self.waiting.push_back(unanswered);
    }

    /// Takes in the next request, whose outcome is known before its turn has come.
    pub(super) fn push_done(&mut self, outcome: Outcome, reserved: Option<Held>) {
        let mut unanswered = self.unanswered(Progress::Ready(None), reserved);
        unanswered.state = Progress::Ready(Some(unanswered.weigh(outcome)));
        self.waiting.push_back(unanswered);
    }

    fn unanswered(&mut self, state: Progress, reserved: Option<Held>) -> Unanswered {
        let turn = self.next_turn;
        self.next_turn += 1;
        Unanswered {
            state,
            turn,
            account: Arc::clone(&self.account),
            reserved,
            turns: Arc::clone(&self.turns),
        }
    }

    /// Waits for the outcome of the oldest request; all others go on meanwhile. None if there is none. Safe to drop.
    pub(super) async fn next(&mut self) -> Option<Outcome> {
        let outcome = self.waiting.next().await?;
        self.turns.taken.fetch_add(1, Ordering::Relaxed);
        Some(outcome)
    }

    /// The outcome of the oldest request, if it is there. All requests are polled that can go on.
    pub(super) async fn next_ready(&mut self) -> Option<Outcome> {
        let polled = poll_fn(|context| Poll::Ready(self.waiting.poll_next_unpin(context))).await;
        let Poll::Ready(Some(outcome)) = polled else { return None };
        self.turns.taken.fetch_add(1, Ordering::Relaxed);
        Some(outcome)
    }

    /// Charges a response whose turn has come, unless that was done when it was ready; false if there is no memory for it.
    pub(super) fn charge(&self, frame: &mut ResponseFrame) -> bool {
        let bytes = frame.memory_bytes;
        if frame.charge.is_some() {
            self.turns.ready_bytes.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            frame.charge = self.account.charge(bytes);
        }
        frame.charge.is_some()
    }
}

impl Unanswered {
    /// Charges a response that is ready before its turn, so that a parked request at the head does not let others pile
    /// up behind it. It may wait for long, and shares no memory then.
    fn weigh(&mut self, mut outcome: Outcome) -> Outcome {
        if let Outcome::Respond(frame) = &mut outcome {
            let bytes = frame.memory_bytes;
            let Some(held) = self.account.charge(bytes) else { return not_kept(bytes) };
            if self.turn != self.turns.taken.load(Ordering::Relaxed) {
                frame.own();
            }
            frame.charge = Some(held);
            self.turns.ready_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.reserved = None;
        outcome
    }
}

impl Future for Unanswered {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.state {
            Progress::Running(response) => match response.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(self.weigh(outcome)),
                Poll::Pending => Poll::Pending,
            },
            Progress::Ready(outcome) => outcome.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

/// The outcome of a large response while clients that do not read theirs hold far too much.
pub(super) fn not_kept(bytes: usize) -> Outcome {
    Outcome::Close(format!(
        "its response of {bytes} bytes is not kept, because all memory for responses is spent"
    ))
}

/// Memory for the response to the next request, where that is expected to be large.
#[derive(Default)]
pub(super) struct Reservation {
    in_line: Option<InLine>,
    reserved: Option<Held>,
}

impl Reservation {
    /// Takes memory for a response of so many bytes, if that is much; false while it waits for it.
    pub(super) fn reserve(&mut self, account: &Arc<Account>, expected_bytes: Option<usize>) -> bool {
        if self.in_line.is_some() {
            return false;
        }
        let Some(bytes) = expected_bytes.filter(|_| self.reserved.is_none()) else { return true };
        match account.reserve(bytes) {
            Ok(reserved) => self.reserved = Some(reserved),
            Err(in_line) => self.in_line = Some(in_line),
        }
        self.in_line.is_none()
    }

    pub(super) fn is_in_line(&self) -> bool {
        self.in_line.is_some()
    }

    /// Waits until there is the memory that it is in line for.
    pub(super) async fn granted(&mut self) {
        if let Some(in_line) = &mut self.in_line {
            in_line.granted().await;
        }
    }

    pub(super) fn note_granted(&mut self) {
        self.reserved = self.in_line.take().map(InLine::take);
    }

    pub(super) fn take(&mut self) -> Option<Held> {
        self.reserved.take()
    }
}
