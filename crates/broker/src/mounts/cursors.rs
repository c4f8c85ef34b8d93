//! Places in a queue where readers will go on, so that a reader that reads in order is not searched for.
//!
//! A queue has no index: finding an offset passes over the headers of a segment. Guarantees that the places are bounded in
//! number and in time, because a place keeps its segment's file from going.

use std::time::{Duration, Instant};

use riverrun_queue::BatchReader;
use riverrun_types::Offset;

/// Places that are kept at most.
const PLACES_MAX: usize = 32;
/// A place that no reader came to for so long is forgotten.
const IDLE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Place {
    offset: Offset,
    reader: BatchReader,
    used: Instant,
}

/// The places that readers came to last.
///
/// Invariants: at most [`PLACES_MAX`], with distinct offsets; each reader's next batch is the one in which its offset lies.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    places: Vec<Place>,
}

impl Cursors {
    /// A reader at `offset`.
    pub(super) fn find(&mut self, offset: Offset, now: Instant) -> Option<BatchReader> {
        let place = self.places.iter_mut().find(|place| place.offset == offset)?;
        place.used = now;
        Some(place.reader.clone())
    }

    /// Keeps a reader at `offset`, in the place of the one that was not used for longest if there are too many.
    pub(super) fn keep(&mut self, offset: Offset, reader: BatchReader, now: Instant) {
        let place = Place { offset, reader, used: now };
        if let Some(same) = self.places.iter_mut().find(|place| place.offset == offset) {
            *same = place;
        } else if self.places.len() < PLACES_MAX {
            self.places.push(place);
        } else if let Some(oldest) = self.places.iter_mut().min_by_key(|place| place.used) {
            *oldest = place;
        }
    }

    /// Forgets the places below `start`, and unused ones.
    pub(super) fn release(&mut self, start: Offset, now: Instant) {
        self.places
            .retain(|place| place.offset >= start && now.saturating_duration_since(place.used) < IDLE_MAX);
    }
}
