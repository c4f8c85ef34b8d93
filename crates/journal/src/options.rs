//! Options of a journal: its size, when it syncs, and how.

use std::time::Duration;

use crate::JournalError;

/// Smallest size of a journal file, in bytes.
pub const FILE_BYTES_MIN: u64 = 64 * 1024;
/// Smallest size of a journal file that the default makes.
const DEFAULT_FILE_BYTES_MIN: u64 = 1024 * 1024;
/// Largest size of a journal file, in bytes: the length field of a frame can express more.
pub const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Files that a journal of the default file size is divided into.
const FILES: u64 = 8;
/// Divisor: a journal that fits its volume takes at most an eighth of it, but [`FITTED_BYTES_MIN`] at least.
const VOLUME_SHARE: u64 = 8;
/// Bytes that suffice for batches of the usual size to go on while earlier entries are being settled.
const FITTED_BYTES_MIN: u64 = 8 * 1024 * 1024;
/// Smallest file of a journal that fits its volume, in bytes: it still takes nearly the batches that a large one
/// takes.
const FITTED_FILE_BYTES_MIN: u64 = 2 * 1024 * 1024;
/// Alignments that can be chosen, in bytes: from a sector to 64 KiB.
const ALIGNMENTS: std::ops::RangeInclusive<usize> = 512..=64 * 1024;

/// How written bytes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// `O_DIRECT` and a write that is durable by itself (`RWF_DSYNC`): one system call for each group.
    DirectDsync,
    /// A write to the page cache and `fdatasync`.
    BufferedFdatasync,
}

/// Options of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Size of all files together, in bytes; at least two files.
    pub bytes: u64,
    /// Makes the journal smaller on a small volume, because log dirs on the same volume need room, too.
    pub fits_volume: bool,
    /// Size of one file, in bytes.
    pub file_bytes: u64,
    /// A sync starts when this many bytes have gathered.
    pub group_bytes: usize,
    /// A sync starts this long after the first entry of its group was taken, even if more keep coming.
    pub group_wait: Duration,
    /// Frames begin and end at multiples of this many bytes, so that no block is written twice.
    pub alignment: usize,
    /// Bytes written without a sync are synced within this time.
    pub sync_interval: Duration,
    /// How to sync.
    pub sync_method: SyncMethod,
    /// Bytes of the directory's volume, up to a twentieth of it, that are kept for other users. While less is free,
    /// the journal makes nothing ahead, hardly grows, and uses small parts of its files again.
    pub reserve_bytes: u64,
}

impl JournalOptions {
    /// The defaults for a journal of `bytes`.
    pub fn with_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            fits_volume: false,
            file_bytes: (bytes / FILES).clamp(DEFAULT_FILE_BYTES_MIN, FILE_BYTES_MAX),
            group_bytes: 512 * 1024,
            group_wait: Duration::from_micros(500),
            alignment: 4096,
            sync_interval: Duration::from_secs(1),
            sync_method: SyncMethod::DirectDsync,
            reserve_bytes: 0,
        }
    }

    /// The same options for a volume of `volume_bytes`.
    pub(crate) fn fitted_to(self, volume_bytes: u64) -> Self {
        let bytes = (volume_bytes / VOLUME_SHARE).max(FITTED_BYTES_MIN);
        if !self.fits_volume || bytes >= self.bytes {
            return self;
        }
        let alignment = self.alignment as u64;
        let file_bytes = (bytes / FILES).max(FITTED_FILE_BYTES_MIN) / alignment * alignment;
        Self { bytes, file_bytes: file_bytes.min(self.file_bytes), ..self }
    }

    /// Number of files that there may be.
    pub(crate) fn files_max(&self) -> usize {
        usize::try_from(self.bytes / self.file_bytes).unwrap_or(usize::MAX).max(2)
    }

    /// Size of that many files, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.files_max() as u64 * self.file_bytes
    }

    /// Refuses impossible values.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        if !(FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&self.file_bytes) {
            return Err(JournalError::invalid(format!(
                "journal files of {} bytes: {FILE_BYTES_MIN} to {FILE_BYTES_MAX} are possible",
                self.file_bytes
            )));
        }
        if !self.alignment.is_power_of_two() || !ALIGNMENTS.contains(&self.alignment) {
            return Err(JournalError::invalid(format!(
                "a journal alignment of {} bytes: powers of two from {} to {} are possible",
                self.alignment,
                ALIGNMENTS.start(),
                ALIGNMENTS.end()
            )));
        }
        if !self.file_bytes.is_multiple_of(self.alignment as u64) {
            return Err(JournalError::invalid(format!(
                "journal files of {} bytes are no multiple of the alignment, {}",
                self.file_bytes, self.alignment
            )));
        }
        Ok(())
    }
}

impl Default for JournalOptions {
    /// 512 MiB.
    fn default() -> Self {
        Self::with_bytes(512 * 1024 * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_journal_takes_an_eighth_of_a_small_volume() {
        let default = JournalOptions { fits_volume: true, ..JournalOptions::default() };
        let fitted = |volume_mib: u64| default.fitted_to(volume_mib << 20);
        assert_eq!(fitted(4096), default);
        assert_eq!(fitted(1 << 40), default);
        for (volume_mib, bytes_mib, file_mib) in [(4088, 511, 63), (365, 45, 5), (48, 8, 2), (1, 8, 2)] {
            let options = fitted(volume_mib);
            assert_eq!(
                (options.bytes >> 20, options.file_bytes >> 20),
                (bytes_mib, file_mib),
                "{volume_mib} MiB"
            );
            options.check().expect("it works");
        }
        let asked_for = JournalOptions::default();
        assert_eq!(asked_for.fitted_to(48 << 20), asked_for);
    }
}
