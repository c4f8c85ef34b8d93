//! Finding records by time: `ListOffsets` with a timestamp, and with "the largest timestamp".
//!
//! A search may have to look through very much: everything before a batch that is late enough, if the log start has
//! passed the record that the indexes speak of. So it is done in slices ([`TimeSearch`]), each of which ends when its
//! caller says so, at the end of a batch. Between two slices a search holds neither a file nor a piece of the tail. It
//! goes on by offset, over the segments as they are then: retention, compaction and settling go on meanwhile.

use std::io;
use std::ops::ControlFlow;
use std::task::Poll;

use riverrun_records::{BatchError, BatchHeader, Batches, UnverifiedBatch};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::PartitionLog;
use super::look::{Look, Place};
use super::open::{OpenLog, View};
use super::tail::Piece;
use crate::error::LogError;

/// A record found by time: its timestamp, its offset, and the epoch in which it was appended.
type Found = (TimestampMs, Offset, LeaderEpoch);

/// Slices in a row that may meet a file that retention or compaction has removed meanwhile, before that is an error.
const ATTEMPTS: usize = 3;

/// A search by time that is under way.
#[derive(Debug)]
pub struct TimeSearch {
    stage: Stage,
    /// Slices in a row that have found a file gone.
    attempts: usize,
}

#[derive(Debug)]
enum Stage {
    /// The largest timestamp that indexes have. It is known for the segments below `upto`.
    ReadingIndexes { upto: Offset, noted: TimestampMs },
    /// The first record of a time. If there is none, the largest timestamp is that of another record.
    Finding { wanted: Wanted, place: Place, is_noted: bool },
    /// The largest timestamp of the records that exist.
    Comparing(Comparing),
}

/// Segments that may have the largest timestamp come first, so that most of the others need no look; then the records
/// that have come since.
#[derive(Debug)]
struct Comparing {
    wanted: Wanted,
    /// The least timestamp in the index of a segment that was looked through, and the segment's base offset.
    looked: Option<(TimestampMs, Offset)>,
    /// The segment that is looked through, and the place in it.
    within: Option<(Offset, Place)>,
    /// The generation of segments that `looked` and `within` belong to.
    generation: Option<u64>,
    /// The place among the records that have come since: from the first end of the segments on.
    rest: Option<Place>,
    is_rest: bool,
}

/// The record that a search looks for in batches.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Batches whose records are all earlier need no look.
    pub(super) at_least: TimestampMs,
    /// The first record, or the largest timestamp, which `at_least` follows.
    is_largest: bool,
    found: Option<Found>,
}

impl Wanted {
    fn first(timestamp: TimestampMs) -> Self {
        Self { at_least: timestamp, is_largest: false, found: None }
    }

    fn largest() -> Self {
        Self { at_least: TimestampMs(TimestampMs::NONE.0.saturating_add(1)), is_largest: true, found: None }
    }

    /// Looks at a batch that may have it. Breaks if the search is over.
    pub(super) fn look_at(&mut self, bytes: &[u8], log_start: Offset) -> Result<ControlFlow<()>, BatchError> {
        let batch = UnverifiedBatch::only(bytes)?.verify()?;
        let mut largest: Option<Found> = None;
        batch.visit_stamps(|record| {
            let is_wanted = record.timestamp >= self.at_least && record.offset >= log_start;
            if is_wanted && largest.is_none_or(|(timestamp, ..)| record.timestamp > timestamp) {
                largest = Some((record.timestamp, record.offset, batch.leader_epoch()));
            }
            if largest.is_some() && !self.is_largest {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        let Some(found) = largest else { return Ok(ControlFlow::Continue(())) };
        self.found = Some(found);
        if !self.is_largest {
            return Ok(ControlFlow::Break(()));
        }
        self.at_least = TimestampMs(found.0.0.saturating_add(1));
        Ok(ControlFlow::Continue(()))
    }
}

impl TimeSearch {
    /// For the first record, in the order of offsets, whose timestamp is `timestamp` or later.
    pub fn first_from(timestamp: TimestampMs) -> Self {
        Self::begin(Stage::Finding {
            wanted: Wanted::first(timestamp),
            place: Place::default(),
            is_noted: false,
        })
    }

    /// For the first record with the largest timestamp of those that exist.
    pub fn largest() -> Self {
        Self::begin(Stage::ReadingIndexes { upto: Offset::ZERO, noted: TimestampMs::NONE })
    }

    fn begin(stage: Stage) -> Self {
        Self { stage, attempts: 0 }
    }
}

impl PartitionLog {
    /// The first record, in the order of offsets, whose timestamp is `timestamp` or later; none if there is none.
    pub fn offset_for_timestamp(&self, timestamp: TimestampMs) -> Result<Option<Found>, LogError> {
        self.search_to_the_end(TimeSearch::first_from(timestamp))
    }

    /// The first record with the largest timestamp of those that exist; none if no record has a timestamp.
    pub fn max_timestamp(&self) -> Result<Option<Found>, LogError> {
        self.search_to_the_end(TimeSearch::largest())
    }

    fn search_to_the_end(&self, mut search: TimeSearch) -> Result<Option<Found>, LogError> {
        loop {
            if let Poll::Ready(found) = self.search_by_time(&mut search, &mut || false)? {
                return Ok(found);
            }
        }
    }

    /// Goes on with a search until it has its result, or until `is_over`, which is called after each batch that was
    /// looked at. Each call looks at one batch at least.
    pub fn search_by_time(
        &self,
        search: &mut TimeSearch,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Poll<Option<Found>>, LogError> {
        let log = self.open()?;
        match log.search_on(&mut search.stage, is_over) {
            // The file existed when it was looked up.
            Err(LogError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && search.attempts + 1 < ATTEMPTS =>
            {
                search.attempts += 1;
                Ok(Poll::Pending)
            }
            outcome => {
                search.attempts = 0;
                outcome
                    .map_err(|error| self.unless_cut(&log, error))
                    .inspect_err(|error| self.take_offline_if_damaged(error))
            }
        }
    }
}

impl OpenLog {
    /// The timestamp of the indexes is tried first. No record has it if the log start has passed its record, or
    /// compaction has emptied its batch; then the segments are looked through.
    fn search_on(
        &self,
        stage: &mut Stage,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Poll<Option<Found>>, LogError> {
        loop {
            let next = match stage {
                Stage::ReadingIndexes { upto, noted } => match self.read_indexes_on(upto, noted, is_over)? {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(TimestampMs::NONE) => return Ok(Poll::Ready(None)),
                    Poll::Ready(noted) => Stage::Finding {
                        wanted: Wanted::first(noted),
                        place: Place::default(),
                        is_noted: true,
                    },
                },
                Stage::Finding { wanted, place, is_noted } => match self.look_on(wanted, place, is_over)? {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(()) if wanted.found.is_some() || !*is_noted => {
                        return Ok(Poll::Ready(wanted.found));
                    }
                    Poll::Ready(()) => Stage::Comparing(Comparing::new()),
                },
                Stage::Comparing(comparing) => match self.compare_on(comparing, is_over)? {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(()) => match comparing.wanted.found {
                        None => return Ok(Poll::Ready(None)),
                        // Another record may have it, and lie before.
                        Some((largest, ..)) => Stage::Finding {
                            wanted: Wanted::first(largest),
                            place: Place::default(),
                            is_noted: false,
                        },
                    },
                },
            };
            *stage = next;
        }
    }

    /// The largest timestamp in the index of any segment, and in the tail.
    fn read_indexes_on(
        &self,
        upto: &mut Offset,
        noted: &mut TimestampMs,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Poll<TimestampMs>, LogError> {
        let (view, in_tail) = {
            let shown = self.shown.lock();
            (shown.view.clone(), shown.tail.max_timestamp())
        };
        let last = view.segments.len();
        for index in view.segment_of(*upto).unwrap_or(0)..last {
            *noted = (*noted).max(view.max_timestamp(index)?);
            *upto = view.extent(index).next_offset;
            if index + 1 < last && is_over() {
                return Ok(Poll::Pending);
            }
        }
        Ok(Poll::Ready((*noted).max(in_tail)))
    }

    /// Looks through all records from a place on, in order: through the segments first, and then through the tail of
    /// the same moment.
    fn look_on(
        &self,
        wanted: &mut Wanted,
        place: &mut Place,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Poll<()>, LogError> {
        let (view, tail) = self.snapshot_since(wanted.at_least);
        let is_in_tail = place.offset >= view.settled_end;
        let last = if is_in_tail { 0 } else { view.segments.len() };
        for index in view.segment_of(place.offset).unwrap_or(0)..last {
            if view.max_timestamp(index)? < wanted.at_least {
                place.go_to(view.extent(index).next_offset);
            } else {
                match self.look_through(&view, index, wanted, place, is_over)? {
                    Look::Over => {}
                    Look::BrokenOff => return Ok(Poll::Ready(())),
                    Look::GivesWay => return Ok(Poll::Pending),
                }
            }
            if index + 1 < last && is_over() {
                return Ok(Poll::Pending);
            }
        }
        for piece in &tail {
            match look_in_piece(piece, wanted, place, view.log_start, is_over) {
                Look::Over => {}
                Look::BrokenOff => return Ok(Poll::Ready(())),
                Look::GivesWay => return Ok(Poll::Pending),
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Looks for the largest timestamp.
    fn compare_on(
        &self,
        comparing: &mut Comparing,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Poll<()>, LogError> {
        while !comparing.is_rest {
            let view = self.view();
            comparing.look_at_generation(&view);
            let Some((noted, index)) = comparing.next_segment(&view)? else {
                comparing.is_rest = true;
                break;
            };
            let base_offset = view.segments[index].base_offset;
            let within = comparing.within.take().filter(|(base, _)| *base == base_offset);
            let (_, mut place) = within.unwrap_or_default();
            let look = self.look_through(&view, index, &mut comparing.wanted, &mut place, is_over)?;
            if matches!(look, Look::GivesWay) {
                comparing.within = Some((base_offset, place));
                return Ok(Poll::Pending);
            }
            comparing.looked = Some((noted, base_offset));
            if is_over() {
                return Ok(Poll::Pending);
            }
        }
        self.look_on(&mut comparing.wanted, comparing.rest.get_or_insert_default(), is_over)
    }

    /// The segments, and the pieces of the tail that may have a record of `timestamp` or later.
    fn snapshot_since(&self, timestamp: TimestampMs) -> (View, Vec<Piece>) {
        let shown = self.shown.lock();
        (shown.view.clone(), shown.tail.since(timestamp).cloned().collect())
    }
}

impl Comparing {
    fn new() -> Self {
        Self {
            wanted: Wanted::largest(),
            looked: None,
            within: None,
            generation: None,
            rest: None,
            is_rest: false,
        }
    }

    /// Base offsets no longer tell which segments were looked through if some were replaced since.
    fn look_at_generation(&mut self, view: &View) {
        self.rest.get_or_insert_with(|| Place::at(view.settled_end));
        if self.generation.replace(view.generation).is_some_and(|before| before != view.generation) {
            self.looked = None;
            self.within = None;
        }
    }

    /// The segment with the largest timestamp in its index of those that were not looked through, if it may have a
    /// larger one than was found.
    fn next_segment(&self, view: &View) -> Result<Option<(TimestampMs, usize)>, LogError> {
        let mut next = None;
        for (index, segment) in view.segments.iter().enumerate() {
            let key = (view.max_timestamp(index)?, segment.base_offset);
            let is_left = self.looked.is_none_or(|looked| key < looked);
            if is_left && key.0 >= self.wanted.at_least && next.is_none_or(|(before, _)| key > before) {
                next = Some((key, index));
            }
        }
        Ok(next.map(|((noted, _), index)| (noted, index)))
    }
}

/// The journal's bytes were checked when they came.
fn look_in_piece(
    piece: &Piece,
    wanted: &mut Wanted,
    place: &mut Place,
    log_start: Offset,
    is_over: &mut dyn FnMut() -> bool,
) -> Look {
    for batch in Batches::new(&piece.bytes).map_while(Result::ok) {
        let Ok(header) = BatchHeader::parse(batch.bytes()) else { break };
        if header.last_offset() < place.offset || header.max_timestamp() < wanted.at_least {
            continue;
        }
        let flow = wanted.look_at(batch.bytes(), log_start);
        if flow.is_ok_and(|flow| flow.is_break()) {
            return Look::BrokenOff;
        }
        place.go_to(header.next_offset());
        if is_over() {
            return Look::GivesWay;
        }
    }
    Look::Over
}
