//! The search for intact batches behind damage. It finds what trying every position finds, and reads each byte once
//! where that reads it for every header that may be one.
//!
//! Any bytes may look like the header of a batch, and claim that it reaches far: whoever fills records with such
//! headers would have all that follows read time and again. So one pass goes over the bytes. At each header that may
//! begin a batch, the CRC of the pass up to there says what it has to be at the claimed end if the batch is intact; when
//! the pass gets there, the two are compared.
//!
//! What was found lies in wait until all that begins before it is decided, because the first batch is asked for. How
//! many wait has a bound: once it is met, no more headers are taken in until those are decided, and then another pass
//! begins with the first position that was left out. So a byte is read once more for each [`CLAIMS_MAX`] headers before
//! it, however far they claim to reach.
//!
//! What was read is remembered from one answer to the next: to walk over a file with damage in many places takes no more
//! than one search.

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
/// The byte that tells nearly all positions from those that may begin a batch.
const MAGIC: u8 = layout::MAGIC_V2 as u8;

/// What is held at once.
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

/// What the CRC of the pass is at the end of a candidate if that is intact. Ordered by the ends.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    end: u64,
    position: u64,
    crc: u32,
}

/// A search that is under way.
///
/// Invariants: every position below `looked_upto` was looked at. `crc` is that of the bytes from where the pass began to
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

    /// Where it ends.
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

    /// Passes over a hole of the file, which has no batch: `next_data` tells where one ends. Whether there was one.
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

    /// Reads on, by `read`, where [`Self::next`] is undecided about the same position and offset. Answers how many bytes it
    /// read.
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
        // A header that the window cuts off is the next one's.
        let is_last = len as u64 == left;
        let upto = if is_last { self.bounds.end } else { start + (len - (layout::HEADER_BYTES - 1)) as u64 };
        if self.looked_upto == start {
            self.look(&window, start, upto, expected);
        }
        self.sum(&window, start, upto);
        self.window = window;
        Ok(len as u64)
    }

    /// Goes on from `from`, with nothing to decide that lies before.
    fn begin_pass(&mut self, from: u64) {
        self.claims.clear();
        (self.looked_upto, self.summed_upto, self.crc) = (from, from, 0);
    }

    /// Takes in the headers that may begin a batch between `start`, where the window begins, and `upto`, until the bound is
    /// met.
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

    /// Takes in the header that `bytes` begin with, up to which the CRC goes.
    fn admit(&mut self, bytes: &[u8], position: u64, header: &BatchHeader) {
        let size = header.size_bytes();
        let before = crc32c::crc32c_append(self.crc, &bytes[..layout::ATTRIBUTES]);
        let covered = u32::try_from(size - layout::ATTRIBUTES).expect("lengths have 31 bits");
        let crc = combine(before, header.crc(), covered);
        self.claims.push(Reverse(Claim { end: position + size as u64, position, crc }));
        self.candidates.insert(position, Candidate { base_offset: header.base_offset(), is_intact: false });
    }

    /// Brings the CRC up to `upto`, and decides what ends on the way. `window` holds the bytes from `start` on.
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

/// Where `position` lies in a window that begins at `start`.
fn index_of(position: u64, start: u64) -> usize {
    usize::try_from(position - start).expect("inside the window")
}
