//! Reads from a connection: cuts out frames, and gives a large one memory as it comes.
//!
//! - Memory for a large frame is charged before it is taken, in steps that follow its arrival. While it is in line for
//!   memory nothing is read.
//! - A large frame that does not fill the memory which it was given, while others wait for some, ends its connection.
//! - A connection in full flow is woken for several frames at once ([`Gather`]), and reads more at once where much comes.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use tokio::time::{Instant, sleep_until};

use super::frame::{FrameBuffer, FrameLengthError};
use super::limits::{Closed, ConnectionLimits};
use super::read_coalescing::{GATHER_TIME_MAX, Gather};
use super::transport::{Read, Transport};
use crate::flow::budget::{Charge, MemoryBudget, Share};
use crate::flow::large_frames::Sender;
use crate::flow::source::Source;

/// Bytes for which a frame has a millisecond more than the patience of its lane, to fill the memory that it was given
/// while others wait for some.
const ARRIVAL_BYTES_PER_MS: usize = 64 * 1024;
/// How long nothing may come of a large frame that was given memory, while others wait for some: longer than packets
/// travel around the world.
pub(super) const QUIET_TIME_MAX: Duration = Duration::from_millis(250);
/// How often it is looked at whether it does.
const JUDGE_PERIOD: Duration = Duration::from_millis(50);
/// Bytes that one read takes at most while a client sends much at once.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// The receiving side of a connection.
///
/// Invariants: `frame_since` is set exactly while part of a frame has arrived, and time in line for memory is taken out of it;
/// `read_ahead` is charged with what a read takes beyond an ordinary one.
pub(super) struct Reader {
    frames: FrameBuffer,
    gather: Gather,
    read_at: Instant,
    frame_since: Option<Instant>,
    /// The longest time from a frame's first byte to its last.
    frame_time_max: Duration,
    large: LargeFrame,
    /// Memory of reads beyond the ordinary ones.
    read_ahead: Vec<Charge>,
    requests: Arc<MemoryBudget>,
    source: Source,
    /// Why the frame that arrives is not received, once all that came before it is answered.
    refused: Option<String>,
}

/// The frame that arrives, if it is large.
struct LargeFrame {
    charge: Option<Charge>,
    /// When it was given memory last, or got in line for it.
    grown_at: Instant,
    /// Time since then in which its connection looked after it.
    filling: Duration,
    /// Time since something came of it, counted in the same way.
    quiet: Duration,
    judged_at: Instant,
    /// It has memory, and its turn to be read comes then.
    begins_at: Option<Instant>,
    /// One of this connection has become whole before.
    is_proven: bool,
}

impl LargeFrame {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            charge: None,
            grown_at: now,
            filling: Duration::ZERO,
            quiet: Duration::ZERO,
            judged_at: now,
            begins_at: None,
            is_proven: false,
        }
    }

    /// Bytes that are charged for it.
    fn charged_bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    fn is_in_line(&self) -> bool {
        self.charge.as_ref().is_some_and(Charge::is_in_line)
    }
}

impl Reader {
    pub(super) fn new(limits: &ConnectionLimits, source: Source) -> Self {
        Self {
            frames: FrameBuffer::new(limits.frame_bytes_max),
            gather: Gather::new(),
            read_at: Instant::now(),
            frame_since: None,
            frame_time_max: limits.frame_time_max,
            large: LargeFrame::new(),
            read_ahead: Vec::new(),
            requests: Arc::clone(&limits.requests),
            source,
            refused: None,
        }
    }

    /// Length of the next frame if all of it has arrived.
    pub(super) fn whole_frame_bytes(&mut self) -> Result<Option<usize>, FrameLengthError> {
        let whole = self.frames.whole_frame_bytes()?;
        if whole.is_none() {
            self.note_progress();
        }
        Ok(whole)
    }

    /// The API key of the next frame, which is whole.
    pub(super) fn api_key(&self) -> Option<i16> {
        self.frames.api_key()
    }

    /// The next frame, which is whole.
    pub(super) fn whole_frame(&self) -> &[u8] {
        self.frames.whole_frame().unwrap_or_default()
    }

    /// The memory of the next frame, which is whole, if it is a large one. From now on it counts for this share.
    pub(super) fn take_charge(&mut self, share: &Arc<Share>) -> Option<Charge> {
        let mut charge = self.large.charge.take()?;
        charge.become_whole(share);
        self.large.is_proven = true;
        Some(charge)
    }

    /// Takes the next frame, if it is whole.
    pub(super) fn take_frame(&mut self) -> Option<BytesMut> {
        let frame = self.frames.take_frame()?;
        self.frame_since = None;
        Some(frame)
    }

    /// When something was read last.
    pub(super) fn read_at(&self) -> Instant {
        self.read_at
    }

    /// Reads what has arrived. Answers also whether it is a part of a large frame.
    pub(super) async fn read(&mut self, transport: &mut Transport) -> Result<(Read, bool), Closed> {
        let charged = self.large.charged_bytes();
        let mut space = self.frames.space(charged);
        let room = space.remaining_mut();
        let read = transport.read(&mut space).await?;
        if let Read::Bytes(bytes) = read {
            self.read_at = Instant::now();
            self.large.quiet = Duration::ZERO;
            if bytes == room {
                self.read_more(room);
            }
            let mark = self.gather.read(self.read_at, bytes);
            self.set_mark(transport, mark);
        }
        Ok((read, charged > 0))
    }

    /// More came at once than a read takes: the next ones take more, as far as there is memory to spare.
    fn read_more(&mut self, read: usize) {
        let more = self.frames.read_bytes();
        let has_filled = read == more && self.large.charge.is_none();
        if has_filled
            && more < READ_BYTES_MAX
            && let Some(charge) = self.requests.try_charge_spare(more, self.sender())
        {
            self.read_ahead.push(charge);
            self.frames.set_read_bytes(2 * more);
        }
    }

    /// Gives back memory that nothing lies in.
    pub(super) fn release(&mut self) {
        if self.frames.release() {
            self.read_ahead.clear();
        }
    }

    /// The client's end of stream was read: what has arrived of a frame is never whole, and needs no memory.
    pub(super) fn end(&mut self) {
        (self.large.charge, self.large.begins_at) = (None, None);
    }

    fn note_progress(&mut self) {
        if !self.frames.mid_frame() {
            self.frame_since = None;
        } else if self.frame_since.is_none() {
            self.frame_since = Some(Instant::now());
        }
    }

    /// Nobody takes what the client sends: it is not late.
    pub(super) fn note_stalled(&mut self) {
        self.frame_since = self.frame_since.map(|_| Instant::now());
    }

    /// Fails if the frame that arrives takes too long.
    pub(super) fn check_frame_time(&self, now: Instant) -> Result<(), Closed> {
        if self.frame_since.is_some_and(|since| now.duration_since(since) > self.frame_time_max) {
            return Err(Closed::FrameTimeout(self.frame_time_max));
        }
        Ok(())
    }
}

/// Gathering.
impl Reader {
    /// When too little has come for the socket's mark.
    pub(super) fn gathers_until(&self) -> Option<Instant> {
        self.gather.is_marked().then(|| self.read_at + GATHER_TIME_MAX)
    }

    pub(super) fn note_too_little(&mut self, transport: &Transport) {
        let mark = self.gather.timed_out(Instant::now());
        self.set_mark(transport, mark);
    }

    fn set_mark(&mut self, transport: &Transport, mark: Option<usize>) {
        if let Some(bytes) = mark {
            self.note_mark(transport.set_receive_mark(bytes));
        }
    }

    pub(super) fn note_mark(&mut self, set: io::Result<()>) {
        if let Err(error) = set {
            tracing::debug!(%error, "the connection goes on without gathering");
            self.gather = Gather::none();
        }
    }
}

/// Large frames.
impl Reader {
    /// Charges the large frame that arrives, if there is one, for the next part of it. False while it is in line or waits for
    /// its turn, and if its beginning says that it is refused.
    pub(super) fn admit(&mut self, refuses: impl FnOnce(&[u8], usize) -> Option<String>) -> bool {
        if self.large.begins_at.is_some() {
            return false;
        }
        let Some((length, wanted)) = self.frames.large_wanted_bytes(self.large.charged_bytes()) else {
            return true;
        };
        if self.large.charge.is_none() && self.refused.is_none() {
            let (beginning, missing) = self.frames.beginning();
            self.refused = refuses(beginning, missing);
        }
        if self.refused.is_some() {
            return false;
        }
        let sender = self.sender();
        let charge = self.large.charge.get_or_insert_with(|| self.requests.arriving(length, sender));
        if charge.is_in_line() {
            return false;
        }
        let held = charge.bytes();
        if wanted <= held {
            return true;
        }
        let is_given = charge.grow(wanted - held, length - held);
        self.large.grown_at = Instant::now();
        if is_given {
            self.note_given(wanted - held);
        }
        is_given && self.large.begins_at.is_none()
    }

    /// Why the frame that arrives is not received.
    pub(super) fn take_refusal(&mut self) -> Option<String> {
        self.refused.take()
    }

    /// The sender to whom memory beyond an ordinary read is charged.
    fn sender(&self) -> Sender {
        Sender { source: self.source, is_proven: self.large.is_proven }
    }

    /// Whether the large frame waits for memory.
    pub(super) fn is_in_line(&self) -> bool {
        self.large.is_in_line()
    }

    /// Waits until the large frame has the memory that it is in line for.
    pub(super) async fn granted(&mut self) {
        match &mut self.large.charge {
            Some(charge) => charge.granted().await,
            None => pending().await,
        }
    }

    pub(super) fn note_granted(&mut self) {
        let now = Instant::now();
        // The client is not late: nobody took what it sent.
        let waited = now.duration_since(self.large.grown_at);
        self.frame_since = self.frame_since.map(|since| since + waited);
        self.note_given(self.large.charged_bytes());
    }

    /// The large frame was given memory. It is read on at once, or when it is the turn of a connection that is not proven.
    fn note_given(&mut self, bytes: usize) {
        let now = Instant::now();
        let large = &mut self.large;
        let begins_at = if large.is_proven { now } else { self.requests.newcomer_begins(now, bytes) };
        self.frame_since = self.frame_since.map(|since| since + begins_at.duration_since(now));
        (large.grown_at, large.judged_at) = (begins_at, begins_at);
        (large.filling, large.quiet) = (Duration::ZERO, Duration::ZERO);
        large.begins_at = (begins_at > now).then_some(begins_at);
    }

    /// When the large frame is read on, which has memory and waits for its turn.
    pub(super) fn begins_at(&self) -> Option<Instant> {
        self.large.begins_at
    }

    pub(super) fn begin(&mut self) {
        self.large.begins_at = None;
    }

    /// When it is to be looked at whether the large frame fills its memory.
    pub(super) fn judge_at(&self) -> Option<Instant> {
        self.is_judged().then(|| self.large.judged_at + JUDGE_PERIOD)
    }

    /// Whether the large frame has memory that it is to fill.
    fn is_judged(&self) -> bool {
        self.large.charge.is_some() && !self.is_in_line() && !self.frames.has_whole_frame()
    }

    /// Closes a large frame that does not fill the memory which it was given while others wait for memory. A time in which
    /// nobody looked counts as little: the machine stood still then, or had no CPU for the client either.
    pub(super) fn judge(&mut self) -> Result<(), Closed> {
        if !self.is_judged() {
            return Ok(());
        }
        let now = Instant::now();
        let large = &mut self.large;
        let time = now.duration_since(large.judged_at).min(2 * JUDGE_PERIOD);
        large.filling += time;
        large.quiet += time;
        large.judged_at = now;
        let Some(charge) = &large.charge else { return Ok(()) };
        let Some(patience) = charge.patience() else { return Ok(()) };
        let time_max = patience + Duration::from_millis((charge.bytes() / ARRIVAL_BYTES_PER_MS) as u64);
        if large.filling > time_max || large.quiet > QUIET_TIME_MAX {
            return Err(Closed::HoldsUpOthers);
        }
        Ok(())
    }

    /// Fails if the large frame is in line for too long: it holds memory meanwhile, which others wait for.
    pub(super) fn check_line(&self, now: Instant) -> Result<(), Closed> {
        if now.duration_since(self.large.grown_at) > self.frame_time_max {
            return Err(Closed::NoMemory(self.frame_time_max));
        }
        Ok(())
    }
}

/// Waits until then, or for ever.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
