//! The search for intact batches behind damage. It finds the same batches as a trial of every position, and reads each
//! byte once, while the trial reads it for every header that may be one.
//!
//! Any bytes may look like the header of a batch, and claim that it reaches far: a client that fills records with such
//! headers would have all later bytes read time and again. So one pass goes over the bytes. At each header that may
//! begin a batch, the CRC of the pass up to there gives the CRC at the claimed end of an intact batch; when the pass
//! gets there, the two are compared.
//!
//! Found batches wait until all headers before them are decided, because the first batch is asked for. The number of
//! waiting headers has a bound: once it is met, no more headers are admitted until those are decided, and then another
//! pass begins with the first position that was left out. So a byte is read once more for each [`CLAIMS_MAX`] headers
//! before it, however far they claim to reach.
//!
//! The results of a pass are remembered from one answer to the next: a walk over a file with damage in many places
//! costs no more than one search.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::{io, mem};

use riverrun_records::{BatchHeader, layout};
use riverrun_types::Offset;

use super::combine::combine;
use super::{Bounds, WINDOW_BYTES};

/// Headers that may wait at once. With this many a search holds some 20 MiB.
const CLAIMS_MAX: usize = 256 * 1024;
/// The byte that distinguishes positions that may begin a batch from nearly all others.
const MAGIC: u8 = layout::MAGIC_V2 as u8;

/// Bounds of a search's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes that are read at once; a header at least.
    pub(super) window_bytes: usize,
    /// Headers that may wait.
    pub(super) claims_max: usize,
}

/// The first intact batch from a position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It begins here.
    Batch { position: u64, base_offset: Offset },
    /// There is none.
    Nothing,
    /// More has to be read to know.
    Undecided,
}

/// A batch that is intact, or may be.
#[derive(Debug)]
struct Candidate {
    base_offset: Offset,
    is_intact: bool,
}

/// The CRC of the pass at the end of a candidate if that is intact. Ordered by the ends.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    end: u64,
    position: u64,
    crc: u32,
}

/// A search that is under way.
///
/// Invariants: every position below `looked_upto` was looked at. `crc` is that of the bytes from the pass's begin to
/// `summed_upto`, which is `looked_upto`, or lies behind it once the bound was met. Each candidate that is not known to
/// be intact has a claim that ends behind `summed_upto`; a claim whose candidate is gone means nothing.
#[derive(Debug)]
pub(crate) struct Search {
    bounds: Bounds,
    limits: Limits,
    /// By position.
    candidates: BTreeMap<u64, Candidate>,
    claims: BinaryHeap<Reverse<Claim>>,
    looked_upto: u64,
    summed_upto: u64,
    crc: u32,
    window: Vec<u8>,
}

impl Search {
    /// A search from `from` on.
    pub(super) fn new(bounds: Bounds, from: u64) -> Self {
        Self::with_limits(bounds, from, Limits { window_bytes: WINDOW_BYTES, claims_max: CLAIMS_MAX })
    }

    pub(super) fn with_limits(bounds: Bounds, from: u64, limits: Limits) -> Self {
        Self {
            bounds,
            limits,
            candidates: BTreeMap::new(),
            claims: BinaryHeap::new(),
            looked_upto: from,
            summed_upto: from,
            crc: 0,
            window: Vec::new(),
        }
    }

    /// End of the search.
    pub(super) fn end(&self) -> u64 {
        self.bounds.end
    }

    /// The first intact batch at or behind `position` that has no offset below `expected`, as far as that is known. Neither
    /// may be lower than it was at an earlier call.
    pub(super) fn next(&mut self, position: u64, expected: Offset) -> Next {
        while let Some(first) = self.candidates.first_entry() {
            let (at, Candidate { base_offset, is_intact }) = (*first.key(), first.get());
            if at >= position && *base_offset >= expected {
                let batch = Next::Batch { position: at, base_offset: *base_offset };
                return if *is_intact { batch } else { Next::Undecided };
            }
            first.remove();
        }
        if self.looked_upto.max(position) >= self.bounds.end { Next::Nothing } else { Next::Undecided }
    }

    /// Passes over a hole of the file, which has no batch: `next_data` tells where one ends. Returns whether there was
    /// one.
    pub(super) fn skip_hole(
        &mut self,
        next_data: impl FnOnce(u64) -> io::Result<Option<u64>>,
        position: u64,
    ) -> io::Result<bool> {
        if !self.candidates.is_empty() {
            return Ok(false);
        }
        let (from, end) = (self.looked_upto.max(position), self.bounds.end);
        let data = next_data(from)?.map_or(end, |data| data.min(end));
        // A header may begin in the zeros and end behind them.
        let upto = if data == end { end } else { data.saturating_sub(layout::HEADER_BYTES as u64 - 1) };
        if upto > from {
            self.begin_pass(upto);
        }
        Ok(upto > from)
    }

    /// Reads on, by `read`, if [`Self::next`] is undecided about the same position and offset. Returns how many bytes
    /// it read.
    pub(super) fn read_on(
        &mut self,
        read: impl FnOnce(&mut [u8], u64) -> io::Result<()>,
        position: u64,
        expected: Offset,
    ) -> io::Result<u64> {
        if self.candidates.is_empty() {
            self.begin_pass(self.looked_upto.max(position));
        }
        let start = self.summed_upto;
        let left = self.bounds.end - start;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.limits.window_bytes);
        let mut window = mem::take(&mut self.window);
        window.resize(len, 0);
        read(&mut window, start)?;
        // The next window has a header that this one cuts off.
        let is_last = len as u64 == left;
        let upto = if is_last { self.bounds.end } else { start + (len - (layout::HEADER_BYTES - 1)) as u64 };
        if self.looked_upto == start {
            self.look(&window, start, upto, expected);
        }
        self.sum(&window, start, upto);
        self.window = window;
        Ok(len as u64)
    }

    /// Goes on from `from`, with nothing to decide before it.
    fn begin_pass(&mut self, from: u64) {
        self.claims.clear();
        (self.looked_upto, self.summed_upto, self.crc) = (from, from, 0);
    }

    /// Admits the headers that may begin a batch between `start`, the begin of the window, and `upto`, until the bound
    /// is met.
    fn look(&mut self, window: &[u8], start: u64, upto: u64, expected: Offset) {
        for index in 0..index_of(upto, start) {
            if window.get(index + layout::MAGIC) != Some(&MAGIC) {
                continue;
            }
            let (bytes, position) = (&window[index..], start + index as u64);
            let Ok(header) = self.bounds.header(bytes, position, expected) else { continue };
            self.sum(window, start, position);
            if self.claims.len().max(self.candidates.len()) >= self.limits.claims_max {
                self.looked_upto = position;
                return;
            }
            self.admit(bytes, position, &header);
        }
        self.looked_upto = upto;
    }

    /// Admits the header that `bytes` begin with. The CRC goes up to them.
    fn admit(&mut self, bytes: &[u8], position: u64, header: &BatchHeader) {
        let size = header.size_bytes();
        let before = crc32c::crc32c_append(self.crc, &bytes[..layout::ATTRIBUTES]);
        let covered = u32::try_from(size - layout::ATTRIBUTES).expect("lengths have 31 bits");
        let crc = combine(before, header.crc(), covered);
        self.claims.push(Reverse(Claim { end: position + size as u64, position, crc }));
        self.candidates.insert(position, Candidate { base_offset: header.base_offset(), is_intact: false });
    }

    /// Brings the CRC up to `upto`, and decides the claims that end on the way. `window` holds the bytes from `start`
    /// on.
    fn sum(&mut self, window: &[u8], start: u64, upto: u64) {
        while let Some(claim) = self.take_ended(upto) {
            self.append(window, start, claim.end);
            self.decide(&claim);
        }
        self.append(window, start, upto);
    }

    /// The first claim to end, if it ends by `upto`.
    fn take_ended(&mut self, upto: u64) -> Option<Claim> {
        let first = self.claims.peek_mut().filter(|first| first.0.end <= upto)?;
        let Reverse(claim) = PeekMut::pop(first);
        Some(claim)
    }

    fn append(&mut self, window: &[u8], start: u64, upto: u64) {
        let bytes = &window[index_of(self.summed_upto, start)..index_of(upto, start)];
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.summed_upto = upto;
    }

    /// Decides about a candidate whose end the CRC has come to.
    fn decide(&mut self, claim: &Claim) {
        if self.crc != claim.crc {
            self.candidates.remove(&claim.position);
        } else if let Some(candidate) = self.candidates.get_mut(&claim.position) {
            candidate.is_intact = true;
        }
    }
}

/// Index of `position` in a window that begins at `start`.
fn index_of(position: u64, start: u64) -> usize {
    usize::try_from(position - start).expect("inside the window")
}
