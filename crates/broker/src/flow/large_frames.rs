//! A lane of the memory for requests: where frames that are larger than one read are charged while they arrive.
//!
//! Ordinary frames are charged whole, huge ones by doubling, each kind in a lane of its own: so no ordinary frame holds memory
//! while it waits for more, and only huge frames wait for huge ones. A frame that finds its lane full waits in line, in this
//! order:
//! - Connections whose last large frame became whole: parts of frames from ever new connections do not hold them up.
//! - The source that holds least in the lane.
//! - The oldest frame.
//!
//! Huge frames that are half here could wait for each other for ever. So the head of a line may overdraw, one frame of a lane
//! at a time, and the overdrawn bytes stand in nobody's way. While frames wait, a frame has to fill its memory within
//! [`Lane::patience`], which shrinks as the line grows: so a new frame's wait depends little on how many wait already, and a
//! client that sends parts of frames gains nothing by sending more of them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::sync::oneshot;

use super::source::Source;

/// The longest frame that is ordinary: twice what Kafka's producers send at most unless told otherwise.
pub(crate) const ORDINARY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long a frame may take to fill its memory while little waits for it, and however much waits.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_MIN: Duration = Duration::from_millis(250);

/// The sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) source: Source,
    /// A large frame of its connection has become whole.
    pub(crate) is_proven: bool,
}

/// The memory that a frame in line was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The bytes that it asked for, out of the lane.
    Taken,
    /// Leave to overdraw.
    Overdraft,
}

/// A frame in line.
#[derive(Debug)]
struct Waiting {
    sender: Sender,
    bytes: usize,
    rest: usize,
    grant: oneshot::Sender<Grant>,
}

/// Invariants: `held_bytes <= bytes_max`; `held_by` has its part for each source whose frames hold some; `line_bytes` is the
/// sum that the frames in `line` lack; `is_overdrawn` while one frame has leave to overdraw. Nothing is taken past the line.
#[derive(Debug)]
pub(crate) struct Lane {
    bytes_max: usize,
    held_bytes: usize,
    held_by: HashMap<Source, usize>,
    is_overdrawn: bool,
    line: BTreeMap<u64, Waiting>,
    line_bytes: usize,
    next_ticket: u64,
}

impl Lane {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (held_by, line) = (HashMap::new(), BTreeMap::new());
        Self { bytes_max, held_bytes: 0, held_by, is_overdrawn: false, line, line_bytes: 0, next_ticket: 0 }
    }

    /// Place in all lines to come of a frame that begins now.
    pub(crate) fn next_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// How long a frame may take to fill its memory; none while no frame waits.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let all = u32::try_from((self.bytes_max + self.line_bytes) / self.bytes_max.max(1));
        (!self.line.is_empty()).then(|| (PATIENCE / all.unwrap_or(u32::MAX).max(1)).max(PATIENCE_MIN))
    }

    /// Takes from the lane, and by `take` from the budget that it is a part of.
    pub(crate) fn try_take(
        &mut self,
        source: Source,
        bytes: usize,
        take: impl FnOnce(usize) -> bool,
    ) -> bool {
        self.line.is_empty() && self.take(source, bytes, take)
    }

    fn take(&mut self, source: Source, bytes: usize, take: impl FnOnce(usize) -> bool) -> bool {
        let is_taken = self.held_bytes.saturating_add(bytes) <= self.bytes_max && take(bytes);
        if is_taken {
            self.held_bytes += bytes;
            *self.held_by.entry(source).or_default() += bytes;
        }
        is_taken
    }

    /// Gets in line for `bytes`, of the `rest` that the frame lacks.
    pub(crate) fn join(
        &mut self,
        sender: Sender,
        ticket: u64,
        bytes: usize,
        rest: usize,
    ) -> oneshot::Receiver<Grant> {
        let (grant, granted) = oneshot::channel();
        self.line_bytes = self.line_bytes.saturating_add(rest);
        self.line.insert(ticket, Waiting { sender, bytes, rest, grant });
        granted
    }

    /// Takes a frame out of the line; false if it was served.
    pub(crate) fn leave(&mut self, ticket: u64) -> bool {
        let left = self.line.remove(&ticket);
        self.line_bytes -= left.as_ref().map_or(0, |waiting| waiting.rest);
        left.is_some()
    }

    /// Gives the head of the line its bytes, and goes on with the next one; answers how many were served. Frames of sources that
    /// are spent hold up no others, and wait until their source is not spent any more.
    pub(crate) fn serve(&mut self, take: impl Fn(usize) -> bool, spent: &[Source]) -> usize {
        let mut served = 0;
        while let Some((ticket, source, bytes)) = self.first(spent) {
            let grant = if self.take(source, bytes, &take) {
                Grant::Taken
            } else if !std::mem::replace(&mut self.is_overdrawn, true) {
                Grant::Overdraft
            } else {
                break;
            };
            if let Some(head) = self.line.remove(&ticket) {
                self.line_bytes -= head.rest;
                served += 1;
                // A frame that stops waiting leaves the line first.
                let _ = head.grant.send(grant);
            }
        }
        served
    }

    /// The frame that is served next: its ticket, its source, and the bytes that it waits for.
    fn first(&self, spent: &[Source]) -> Option<(u64, Source, usize)> {
        let rank = |(ticket, waiting): &(&u64, &Waiting)| {
            let Sender { source, is_proven } = waiting.sender;
            (!is_proven, self.held_by.get(&source).copied().unwrap_or(0), **ticket)
        };
        let waiting = self.line.iter().filter(|(_, waiting)| !spent.contains(&waiting.sender.source));
        let (&ticket, first) = waiting.min_by_key(rank)?;
        Some((ticket, first.sender.source, first.bytes))
    }

    pub(crate) fn give_back(&mut self, source: Source, bytes: usize) {
        self.held_bytes -= bytes;
        if let Some(held) = self.held_by.get_mut(&source) {
            *held -= bytes;
            if *held == 0 {
                self.held_by.remove(&source);
            }
        }
    }

    pub(crate) fn end_overdraft(&mut self, was_overdrawn: bool) {
        self.is_overdrawn &= !was_overdrawn;
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}
