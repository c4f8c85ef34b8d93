//! One simulated file: the bytes that processes see, and those that the disk would hold after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher};
use std::ops::Range;

use super::crash_states::Choose;

/// A disk writes this many bytes at once: after a power cut a sector is old or new, never a mixture.
const SECTOR_BYTES: usize = 512;

/// A device that loses power while it writes may destroy this many bytes around.
const BLOCK_BYTES: usize = 4096;
/// The content of such a block then, one time in [`TORN_CHOICES`].
const GARBAGE: u8 = 0xdb;
const TORN_CHOICES: usize = 4;

/// The bytes of one file.
///
/// Invariants:
/// - A sector of `live` that is not in `dirty` equals that sector of `durable`, unless a sync of it failed.
/// - `dirty` holds, for each sector written since the last sync, what it held after each of those writes: any of
///   these may be what the disk has.
/// - `lens` holds the sizes that the file had since the last sync, those in the middle of a write as well; the disk
///   may have any of them.
#[derive(Clone, Debug, Default)]
pub(super) struct FileImage {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    lens: Vec<usize>,
    /// When it last changed, by the wall clock, in milliseconds since 1970. A power cut leaves it as it is: no check
    /// depends on an earlier time.
    pub(super) modified_ms: i64,
}

impl FileImage {
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The live bytes from `position` on, at most `len` of them.
    pub(super) fn read(&self, position: usize, len: usize) -> &[u8] {
        let start = position.min(self.live.len());
        let end = position.saturating_add(len).min(self.live.len());
        &self.live[start..end]
    }

    /// The disk's version of those bytes, past the page cache: sectors that wait for a sync are written out first, as
    /// Linux does, which makes none of them durable.
    pub(super) fn read_direct(&self, position: usize, len: usize) -> Vec<u8> {
        let mut bytes = self.read(position, len).to_vec();
        let mut at = position;
        while at < position + bytes.len() {
            let sector = at / SECTOR_BYTES;
            let end = self.sector_end(sector).min(position + bytes.len());
            if !self.dirty.contains_key(&sector) {
                let known = self.durable.len().clamp(at, end);
                bytes[at - position..known - position]
                    .copy_from_slice(self.durable.get(at..known).unwrap_or_default());
                bytes[known - position..end - position].fill(0);
            }
            at = end;
        }
        bytes
    }

    /// Drops the cached content of whole sectors in `range` that no write waits for: the next read asks the disk.
    pub(super) fn drop_clean(&mut self, range: Range<usize>) {
        let sectors =
            range.start.div_ceil(SECTOR_BYTES)..range.end.min(self.live.len()).div_ceil(SECTOR_BYTES);
        for sector in sectors.filter(|sector| !self.dirty.contains_key(sector)) {
            let (start, end) = (sector * SECTOR_BYTES, self.sector_end(sector));
            self.live[start..end].fill(0);
            let durable_end = end.min(self.durable.len());
            if start < durable_end {
                self.live[start..durable_end].copy_from_slice(&self.durable[start..durable_end]);
            }
        }
    }

    pub(super) fn write(&mut self, position: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = position + bytes.len();
        let grown_from = self.live.len();
        if end > grown_from {
            self.live.resize(end, 0);
            // The size may have been written out while the write was under way.
            let sectors = grown_from / SECTOR_BYTES + 1..end.div_ceil(SECTOR_BYTES);
            self.lens.extend(sectors.map(|sector| sector * SECTOR_BYTES));
            self.lens.push(end);
        }
        self.live[position..end].copy_from_slice(bytes);
        // Bytes between the end and a write beyond it read as zeros, also where the file was cut before.
        for sector in position.min(grown_from) / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            let content = self.live[sector * SECTOR_BYTES..self.sector_end(sector)].to_vec();
            self.dirty.entry(sector).or_default().push(content);
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        if len == self.live.len() {
            return;
        }
        let grown_from = self.live.len();
        self.live.resize(len, 0);
        self.lens.push(len);
        if len > grown_from {
            // Zeros were promised: bytes that were cut off before must not show again.
            for sector in grown_from / SECTOR_BYTES..=(len - 1) / SECTOR_BYTES {
                let content = self.live[sector * SECTOR_BYTES..self.sector_end(sector)].to_vec();
                self.dirty.entry(sector).or_default().push(content);
            }
        }
    }

    fn sector_end(&self, sector: usize) -> usize {
        self.live.len().min((sector + 1) * SECTOR_BYTES)
    }

    /// A sync that succeeds: the disk has the bytes that processes see in each sector that was dirty.
    pub(super) fn sync(&mut self) {
        self.durable.resize(self.live.len(), 0);
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            let (start, end) = (sector * SECTOR_BYTES, self.sector_end(sector));
            if start < end {
                self.durable[start..end].copy_from_slice(&self.live[start..end]);
            }
        }
        self.lens.clear();
    }

    /// A sync of `range` alone that succeeds: its bytes are on the disk, and the file is at least long enough to show
    /// them.
    pub(super) fn sync_range(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.lens.retain(|len| *len >= range.end);
        self.durable.resize(self.durable.len().max(range.end), 0);
        for sector in range.start / SECTOR_BYTES..=(range.end - 1) / SECTOR_BYTES {
            self.dirty.remove(&sector);
            let (start, end) = (sector * SECTOR_BYTES, self.sector_end(sector).min(self.durable.len()));
            self.durable[start..end].copy_from_slice(&self.live[start..end]);
        }
    }

    /// A sync of `range` alone that fails; see [`Self::fail_sync`].
    pub(super) fn fail_sync_range(&mut self, range: Range<usize>) {
        self.dirty.retain(|sector, _| {
            (sector + 1) * SECTOR_BYTES <= range.start || sector * SECTOR_BYTES >= range.end
        });
    }

    /// A sync that fails as on Linux: the pages are marked clean although the disk has the old bytes, so that the
    /// next sync succeeds and writes nothing.
    pub(super) fn fail_sync(&mut self) {
        self.dirty.clear();
        self.lens.clear();
    }

    /// Whether a power cut has no choice: the disk has the bytes that processes see.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.lens.is_empty() && self.live == self.durable
    }

    pub(super) fn hash_content(&self, hasher: &mut impl Hasher) {
        self.live.hash(hasher);
    }

    /// A power cut: each sector written since the last sync takes any of its states, or its durable one, and the size
    /// is any that the file had since. With `tears_blocks` a whole block with such a sector may be garbage.
    pub(super) fn crash(&mut self, choose: &mut dyn Choose, tears_blocks: bool) {
        let torn: BTreeSet<usize> = if tears_blocks {
            self.dirty.keys().map(|sector| sector * SECTOR_BYTES / BLOCK_BYTES).collect()
        } else {
            BTreeSet::new()
        };
        let lens = options(self.durable.len(), std::mem::take(&mut self.lens));
        let len = lens[choose.choose(lens.len())];
        self.durable.resize(len, 0);
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            let start = sector * SECTOR_BYTES;
            if start >= len {
                break;
            }
            let old = &mut self.durable[start..len.min(start + SECTOR_BYTES)];
            let overlaid = versions.iter().map(|version| overlay(old, version)).collect();
            let contents = options(old.to_vec(), overlaid);
            old.copy_from_slice(&contents[choose.choose(contents.len())]);
        }
        for block in torn {
            let (start, end) = (block * BLOCK_BYTES, ((block + 1) * BLOCK_BYTES).min(len));
            // Neither the first choice nor the last: those are the durable state and the one that processes saw.
            if start < end && choose.choose(TORN_CHOICES) == 1 {
                self.durable[start..end].fill(GARBAGE);
            }
        }
        self.live.clone_from(&self.durable);
    }
}

/// `old` with the bytes of `new` over it, as far as both go.
fn overlay(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = old.to_vec();
    let len = old.len().min(new.len());
    bytes[..len].copy_from_slice(&new[..len]);
    bytes
}

/// The choices: each value once, but for the durable one, which is first, and the newest, which is last even if it
/// equals another.
fn options<T: PartialEq>(durable: T, mut versions: Vec<T>) -> Vec<T> {
    let newest = versions.pop();
    let mut options = vec![durable];
    for version in versions {
        if !options.contains(&version) {
            options.push(version);
        }
    }
    let is_last = newest.as_ref().is_none_or(|newest| options.last() == Some(newest));
    options.extend(newest.filter(|_| !is_last));
    options
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix;
    use super::*;

    #[test]
    fn synced_bytes_survive_every_power_cut() {
        for seed in 0..50 {
            let mut image = FileImage::default();
            image.write(0, &[1; 1000]);
            image.sync();
            image.write(1000, &[2; 2000]);
            image.crash(&mut SplitMix::new(seed), false);
            assert_eq!(image.read(0, 1000), [1; 1000]);
        }
    }

    #[test]
    fn unsynced_sectors_survive_in_any_combination() {
        let mut states = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let mut image = FileImage::default();
            image.write(0, &[1; 1024]);
            image.crash(&mut SplitMix::new(seed), false);
            states.insert(image.read(0, 1024).to_vec());
        }
        let halves = |first: u8, second: u8| [[first; 512], [second; 512]].concat();
        let half = |byte: u8| vec![byte; 512];
        let whole = [halves(0, 0), halves(0, 1), halves(1, 0), halves(1, 1)];
        let expected = [vec![], half(0), half(1)].into_iter().chain(whole);
        assert_eq!(states, expected.collect());
    }

    #[test]
    fn torn_block_loses_only_its_own_synced_bytes() {
        let mut destroyed = 0;
        for seed in 0..60 {
            let mut image = FileImage::default();
            image.write(0, &[1; 2 * BLOCK_BYTES]);
            image.sync();
            image.write(BLOCK_BYTES + 1024, &[2; 512]);
            image.crash(&mut SplitMix::new(seed), true);
            assert_eq!(image.read(0, BLOCK_BYTES), [1; BLOCK_BYTES], "seed {seed}");
            destroyed += usize::from(image.read(BLOCK_BYTES, 512) != [1; 512]);
        }
        assert!((1..60).contains(&destroyed), "{destroyed} of 60");
    }

    #[test]
    fn a_sync_of_a_range_makes_that_range_durable_and_no_other() {
        let mut lost_the_rest = 0;
        for seed in 0..60 {
            let mut image = FileImage::default();
            image.write(0, &[1; 512]);
            image.write(2048, &[2; 512]);
            image.write(1024, &[3; 512]);
            image.sync_range(1024..1536);
            image.crash(&mut SplitMix::new(seed), false);
            assert_eq!(image.read(1024, 512), [3; 512], "seed {seed}");
            lost_the_rest += usize::from(image.read(0, 512) == [0; 512] && image.read(2048, 512) != [2; 512]);
        }
        assert!((1..60).contains(&lost_the_rest), "{lost_the_rest} of 60");
    }

    #[test]
    fn a_read_past_the_cache_shows_what_a_failed_sync_has_lost() {
        let mut image = FileImage::default();
        image.write(0, &[1; 1024]);
        image.sync();
        image.write(0, &[2; 1024]);
        image.fail_sync_range(0..512);
        assert_eq!(image.read(0, 1024), [2; 1024]);
        assert_eq!(image.read_direct(0, 1024), [[1; 512], [2; 512]].concat());
        image.drop_clean(0..1024);
        assert_eq!(image.read(0, 1024), [[1; 512], [2; 512]].concat(), "the second half waits for its sync");
    }

    #[test]
    fn a_repeated_sync_after_a_failed_one_writes_nothing() {
        let mut image = FileImage::default();
        image.write(0, b"old");
        image.sync();
        image.write(0, b"new");
        image.fail_sync();
        image.sync();
        assert_eq!(image.read(0, 3), b"new");
        image.crash(&mut SplitMix::new(1), false);
        assert_eq!(image.read(0, 3), b"old");
    }
}
