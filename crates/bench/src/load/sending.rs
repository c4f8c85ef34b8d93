//! The loop of one sending thread.
//!
//! Guarantees that a record's latency counts from its time in the schedule, whatever kept the thread from sending it
//! then: a full buffer, a server that stalls, or the records before it. Records that were due when the orders changed
//! and were never sent count with the time that they had waited when the thread noticed the change, after however long
//! and however many orders.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use riverrun_measure::pacing::{Schedule, sharpen_sleep, sleep_until};
use riverrun_types::TimestampMs;
use tokio::runtime::Handle;

use super::clock::{STAMP_BYTES, StampClock, write_stamp};
use super::meter::{Meter, Sent};
use super::orders::{Orders, Produce};
use super::target::{Outgoing, Target};
use crate::plan::{KeySource, Stamp, ValueSource};

/// A thread looks for new orders at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The share of one thread in the senders: `own` of them from `first` on, of `total`. The records of all senders form
/// one sequence with one schedule; a thread sends for its own senders in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) first: usize,
    pub(crate) own: usize,
    pub(crate) total: usize,
}

impl Place {
    /// The number, in the sequence of all senders, of the thread's record number `turn`.
    pub(super) fn among_all(self, turn: u64) -> u64 {
        let (first, own, total) = (self.first as u64, self.own as u64, self.total as u64);
        if own == 1 {
            return turn * total + first;
        }
        turn / own * total + first + turn % own
    }
}

/// Sources of a record's parts.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) keys: KeySource,
    pub(crate) values: ValueSource,
    /// The place for the time at which a record is due.
    pub(crate) stamp: Stamp,
    pub(crate) clock: StampClock,
}

/// One sending thread.
///
/// Invariants: `turn` counts the records that it has made since it began, over all orders.
#[derive(Debug)]
pub(crate) struct Sending<T, M> {
    target: T,
    meter: M,
    place: Place,
    source: Source,
    orders: Arc<Orders>,
    turn: u64,
    /// Bytes of the value being sent, where a time overwrites its beginning.
    scratch: Vec<u8>,
}

impl<T: Target, M: Meter<T::Error>> Sending<T, M> {
    pub(crate) fn new(target: T, meter: M, place: Place, source: Source, orders: Arc<Orders>) -> Self {
        Self { target, meter, place, source, orders, turn: 0, scratch: Vec::new() }
    }

    /// Runs on a thread of its own, beside `runtime`.
    pub(crate) fn start(self, runtime: &Handle) -> io::Result<JoinHandle<()>>
    where
        T: Send + 'static,
    {
        let runtime = runtime.clone();
        thread::Builder::new().name(format!("send-{}", self.place.first)).spawn(move || {
            let _entered = runtime.enter();
            self.run();
        })
    }

    /// Follows orders until no more can come.
    pub(super) fn run(mut self) {
        sharpen_sleep();
        let mut seen = 0;
        while let Some((generation, produce)) = self.orders.wait(seen) {
            seen = generation;
            if let Some(produce) = produce {
                self.follow(&produce, generation);
            }
        }
    }

    /// Sends until the orders change, or the quota is reached.
    fn follow(&mut self, produce: &Produce, generation: u64) {
        let schedule = Schedule::new(produce.start, produce.rate);
        let end = produce.quota.unwrap_or(u64::MAX);
        let mut sent = 0;
        loop {
            let number = self.place.among_all(sent);
            let due = schedule.due(number);
            let may_send =
                number < end && self.wait_for(due, generation) && self.target.wait_for_room(self.turn);
            if !may_send {
                break;
            }
            self.send(due);
            sent += 1;
        }
        let now = Instant::now();
        let until = self.orders.held_until(generation).unwrap_or(now);
        self.meter.overdue(overdue(self.place, schedule, &Left { sent, end, until }, now));
    }

    /// Sleeps until `due`; false if the orders changed meanwhile.
    fn wait_for(&self, due: Option<Instant>, generation: u64) -> bool {
        loop {
            if !self.orders.is_current(generation) {
                return false;
            }
            let Some(due) = due else { return true };
            let now = Instant::now();
            if due <= now {
                return true;
            }
            sleep_until(due.min(now + LOOK_EVERY));
        }
    }

    /// Sends a record, for which there is room.
    fn send(&mut self, due: Option<Instant>) {
        let turn = self.turn;
        self.turn += 1;
        let number = self.place.among_all(turn);
        let Source { keys, values, stamp, clock } = &mut self.source;
        let (key, mut value) = (keys.next(number), values.next(number));
        let begun = Instant::now();
        let mut time = clock.at(begun);
        if *stamp == Stamp::Value {
            let due = due.map_or(time, |due| clock.at(due));
            write_value(&mut self.scratch, value, due);
            // A value too short for the stamp: the record's timestamp carries the time, in milliseconds.
            time = if self.scratch.len() < STAMP_BYTES { due } else { time };
            value = value.map(|_| &*self.scratch);
        }
        let sent = Sent { number, due, begun, bytes: value.map_or(0, <[u8]>::len) };
        self.meter.sent(&sent);
        let timestamp = timestamp_ms(time);
        let record = Outgoing { key: key.as_deref(), value, timestamp };
        if let Err(error) = self.target.send(turn, &record, sent) {
            self.meter.refused(&sent, error);
        }
    }
}

/// Writes the time at which the record is due over a copy of its value.
fn write_value(scratch: &mut Vec<u8>, value: Option<&[u8]>, due: Duration) {
    scratch.clear();
    scratch.extend_from_slice(value.unwrap_or_default());
    write_stamp(scratch, due);
}

fn timestamp_ms(since_epoch: Duration) -> TimestampMs {
    TimestampMs(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Most overdue records that are reported one by one. Beyond it neighbours are reported together, with the time of the
/// middle one.
const TOLD_MAX: u64 = 100_000;

/// No thread counts more: years of records at any rate that a processor can send.
const COUNT_MAX: u64 = 1 << 48;

/// The part of an order that a thread did not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// Number of records that it has sent.
    pub(super) sent: u64,
    /// Records below this number, among those of all senders, were to be sent.
    pub(super) end: u64,
    /// When the order ended: records due later do not belong to it.
    pub(super) until: Instant,
}

/// How long a thread's unsent records have been due by now, each with the number of records it stands for. Empty if the
/// first is late by no more than the time that it takes to see an order: then the thread kept up.
pub(super) fn overdue(
    place: Place,
    schedule: Schedule,
    left: &Left,
    now: Instant,
) -> impl Iterator<Item = (Duration, u64)> {
    let &Left { sent, end, until } = left;
    let late = move |turn| {
        let number = place.among_all(turn);
        let due = schedule.due(number).filter(|due| *due <= until)?;
        (number < end).then(|| now.saturating_duration_since(due))
    };
    let kept_up = late(sent).is_none_or(|late| late <= LOOK_EVERY);
    let count = if kept_up { 0 } else { count_while(|nth| late(sent + nth).is_some()) };
    let step = count.div_ceil(TOLD_MAX).max(1);
    (0..count.div_ceil(step)).map_while(move |group| {
        let (from, until) = (group * step, count.min((group + 1) * step));
        Some((late(sent + from.midpoint(until - 1))?, until - from))
    })
}

/// How many numbers from 0 on satisfy `is_so`, which holds for a prefix.
fn count_while(is_so: impl Fn(u64) -> bool) -> u64 {
    let (mut so, mut not) = (0, 1);
    while not < COUNT_MAX && is_so(not - 1) {
        (so, not) = (not, not * 2);
    }
    while so < not - 1 {
        let middle = so.midpoint(not);
        *(if is_so(middle - 1) { &mut so } else { &mut not }) = middle;
    }
    so
}
