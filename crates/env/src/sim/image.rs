//! One simulated file: what processes see, and what the disk would hold after a power cut.

use std::collections::BTreeMap;

use super::random::SplitMix;

/// A disk writes this many bytes in one piece: after a power cut a sector is old or new, never a mixture.
const SECTOR_BYTES: usize = 512;

/// The bytes of one file.
///
/// Invariants:
/// - A sector of `live` that is not in `dirty` equals that sector of `durable`, unless a sync of it failed.
/// - `dirty` holds, for each sector written since the last sync, what it held after each of those writes: any of
///   these may be what the disk has.
/// - `lens` holds the sizes that the file had since the last sync; the disk may have any of them.
#[derive(Debug, Default)]
pub(super) struct FileImage {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    lens: Vec<usize>,
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

    pub(super) fn write(&mut self, position: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = position + bytes.len();
        if end > self.live.len() {
            self.live.resize(end, 0);
            self.lens.push(end);
        }
        self.live[position..end].copy_from_slice(bytes);
        for sector in position / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
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
            // Zeros were promised: what was cut off before must not show through again.
            for sector in grown_from / SECTOR_BYTES..=(len - 1) / SECTOR_BYTES {
                let content = self.live[sector * SECTOR_BYTES..self.sector_end(sector)].to_vec();
                self.dirty.entry(sector).or_default().push(content);
            }
        }
    }

    fn sector_end(&self, sector: usize) -> usize {
        self.live.len().min((sector + 1) * SECTOR_BYTES)
    }

    /// A sync that succeeds: the disk has what processes see in each sector that was dirty.
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

    /// A sync that fails the way Linux does it: the pages are marked clean although the disk has the old bytes, so
    /// that the next sync succeeds and writes nothing.
    pub(super) fn fail_sync(&mut self) {
        self.dirty.clear();
        self.lens.clear();
    }

    /// A power cut: each sector written since the last sync is there in any of its states, or not at all, and the
    /// size is any that the file had since.
    pub(super) fn crash(&mut self, random: &mut SplitMix) {
        let choice = random.below(self.lens.len() + 1);
        let len = self.lens.get(choice).copied().unwrap_or(self.durable.len());
        self.durable.resize(len, 0);
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            let choice = random.below(versions.len() + 1);
            let Some(content) = versions.get(choice) else { continue };
            let start = sector * SECTOR_BYTES;
            let end = (start + content.len()).min(len);
            if start < end {
                self.durable[start..end].copy_from_slice(&content[..end - start]);
            }
        }
        self.lens.clear();
        self.live.clone_from(&self.durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_every_power_cut() {
        for seed in 0..50 {
            let mut image = FileImage::default();
            image.write(0, &[1; 1000]);
            image.sync();
            image.write(1000, &[2; 2000]);
            image.crash(&mut SplitMix::new(seed));
            assert_eq!(image.read(0, 1000), [1; 1000]);
        }
    }

    #[test]
    fn unsynced_sectors_survive_in_any_combination() {
        let mut states = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let mut image = FileImage::default();
            image.write(0, &[1; 1024]);
            image.crash(&mut SplitMix::new(seed));
            states.insert(image.read(0, 1024).to_vec());
        }
        let halves = |first: u8, second: u8| [[first; 512], [second; 512]].concat();
        let expected = [vec![], halves(0, 0), halves(0, 1), halves(1, 0), halves(1, 1)];
        assert_eq!(states, expected.into_iter().collect());
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
        image.crash(&mut SplitMix::new(1));
        assert_eq!(image.read(0, 3), b"old");
    }
}
