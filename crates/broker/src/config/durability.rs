//! Options of durability: the journal, the memory in front of the segments, and the rule that turns a topic's
//! `durability`, `flush.messages` and `flush.ms` into the one level that holds.

use std::path::PathBuf;
use std::time::Duration;

use riverrun_journal::{FILE_BYTES_MAX, JournalOptions, SyncMethod};
use riverrun_types::DurabilityLevel;
use riverrun_types::DurabilityLevel::{AsyncAsync, AsyncSync, SyncAsync, SyncSync};

use super::definition::Kind::{Bool, Choice, Int, List, Long};
use super::definition::{Accept, options};

options! {
    /// The journal, and what waits in memory for the segments.
    struct DurabilityOptions;

    /// Directories of the journals, one for each device, separated by commas. A partition writes to one of them. The list
    /// must not change while records are in the journals only; after a clean stop it may. Not set: `journal` in
    /// `data.dir`.
    journal_dirs: Vec<PathBuf> = "journal.dirs", List("paths separated by commas"), None;
    /// Bytes of one journal's files at most. They are used again once their records are in the segments: more
    /// means fewer and larger writes to segments, and more to read at a start after a crash. A file is an eighth of it,
    /// but at least 2 MiB, and no batch can be larger than a file. Not set: 512 MiB, or an eighth of the volume that the
    /// journal lies on if that is less, but 8 MiB at least.
    journal_bytes: Option<u64> = "journal.bytes", Long(8_388_608, i64::MAX), None;
    /// Bytes that have gathered when a group of records is written and synced, even if more are on their way.
    journal_group_bytes: usize = "journal.group.bytes", Int(4096, 67_108_864), Some("524288");
    /// Microseconds after which a group of records is written and synced, even if more are on their way.
    journal_group_wait_us: u64 = "journal.group.wait.us", Int(0, 1_000_000), Some("500");
    /// Bytes to whose multiple a group of records is padded, so that no synced block is ever written again. It should
    /// be the device's physical block size or a multiple of it.
    journal_alignment: usize = "journal.alignment", Int(512, 65_536), Some("4096"),
        Accept::Only(&["512", "1024", "2048", "4096", "8192", "16384", "32768", "65536"], "it must be a power of two");
    /// How a group of records reaches the disk: `direct` writes past the page cache and each write is synced by
    /// itself (`O_DIRECT` with `RWF_DSYNC`); `buffered` writes to the page cache and syncs after it (`fdatasync`).
    journal_sync_method: String = "journal.sync.method", Choice(&["direct", "buffered"]), Some("direct");
    /// Whether records of the levels 2 and 4 go through the journal too, without waiting for its sync, instead of
    /// straight to the segments. Each is written twice then; in return all are synced every
    /// `journal.sync.interval.ms`.
    journal_async_write: bool = "journal.async.write", Bool, Some("false");
    /// Milliseconds between two syncs of records that `journal.async.write` has written unsynced.
    journal_sync_interval_ms: u64 = "journal.sync.interval.ms", Int(1, i32::MAX), Some("1000");
    /// Bytes of records at most that are in memory because they are not in the segments yet. From half of it on a produce
    /// request waits if its connection, client address, partition or log dir holds much of that; a client that holds little
    /// waits only when it is full. Requests that have begun come on top. Records that wait for room on a disk hold up no others:
    /// as many bytes again may be held for each log dir and each journal without room, and for all partitions that alone cannot
    /// be written to.
    write_cache_bytes: u64 = "write.cache.bytes", Long(8_388_608, i64::MAX), Some("134217728");
}

/// Bytes of a journal on a volume that is large enough.
const JOURNAL_BYTES: u64 = 512 * 1024 * 1024;
/// Files that a journal is divided into, unless it is small.
const JOURNAL_FILES: u64 = 8;
/// The fewest bytes of a file. Whatever the alignment, it takes the appends of one group, and a batch as large as
/// `max.message.bytes` allows by default.
const JOURNAL_FILE_BYTES_MIN: u64 = 2 * 1024 * 1024;

impl DurabilityOptions {
    /// The options of each journal.
    pub(crate) fn journal_options(&self) -> JournalOptions {
        let bytes = self.journal_bytes.unwrap_or(JOURNAL_BYTES);
        let of_default_size = JournalOptions::with_bytes(bytes);
        let alignment = self.journal_alignment as u64;
        let file_bytes = bytes / JOURNAL_FILES;
        JournalOptions {
            fits_volume: self.journal_bytes.is_none(),
            // A frame never crosses the end of a file.
            file_bytes: file_bytes.clamp(JOURNAL_FILE_BYTES_MIN, FILE_BYTES_MAX) / alignment * alignment,
            group_bytes: self.journal_group_bytes,
            group_wait: Duration::from_micros(self.journal_group_wait_us),
            alignment: self.journal_alignment,
            sync_interval: Duration::from_millis(self.journal_sync_interval_ms),
            sync_method: match &*self.journal_sync_method {
                "buffered" => SyncMethod::BufferedFdatasync,
                _ => SyncMethod::DirectDsync,
            },
            ..of_default_size
        }
    }
}

/// Kafka's default of `flush.messages` and `flush.ms`: no sync is asked for.
pub(crate) const NEVER: u64 = i64::MAX.unsigned_abs();

/// The level with the same replication whose acks wait for a local sync.
pub(crate) fn synced(level: DurabilityLevel) -> DurabilityLevel {
    match level {
        SyncSync | SyncAsync => SyncSync,
        AsyncSync | AsyncAsync => AsyncSync,
    }
}

/// The level of a topic. In Kafka `flush.messages` and `flush.ms` ask for syncs after so many records or so long; here
/// either of them asks for the sync counterpart of the level, where each acked record is synced, which is all that any
/// count or time could ask for.
pub(crate) fn level(durability: DurabilityLevel, flush_messages: u64, flush_ms: u64) -> DurabilityLevel {
    let asks_for_syncs = flush_messages != NEVER || flush_ms != NEVER;
    if asks_for_syncs { synced(durability) } else { durability }
}

/// Refuses a topic's own level that does not sync where its `flush.messages` or `flush.ms` ask for syncs.
pub(crate) fn check_level(
    own: Option<DurabilityLevel>,
    flush_messages: u64,
    flush_ms: u64,
) -> Result<(), String> {
    let Some(own) = own.filter(|own| level(*own, flush_messages, flush_ms) != *own) else { return Ok(()) };
    let (name, value) = match flush_messages {
        NEVER => ("flush.ms", flush_ms),
        messages => ("flush.messages", messages),
    };
    Err(format!(
        "{name}={value} asks for synced records, and durability={own} acks records that are not synced: set durability to \
         {}, or leave one of the two out",
        synced(own)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level of the topic's own `durability`, or none; the server's default; whether a sync is asked for; what holds.
    type Row = (Option<DurabilityLevel>, DurabilityLevel, bool, Option<DurabilityLevel>);

    /// Every combination; `None` at the end is refused.
    #[rustfmt::skip]
    const TABLE: [Row; 40] = [
        (None,             SyncSync,   false, Some(SyncSync)),
        (None,             SyncAsync,  false, Some(SyncAsync)),
        (None,             AsyncSync,  false, Some(AsyncSync)),
        (None,             AsyncAsync, false, Some(AsyncAsync)),
        (None,             SyncSync,   true,  Some(SyncSync)),
        (None,             SyncAsync,  true,  Some(SyncSync)),
        (None,             AsyncSync,  true,  Some(AsyncSync)),
        (None,             AsyncAsync, true,  Some(AsyncSync)),
        (Some(SyncSync),   SyncSync,   false, Some(SyncSync)),
        (Some(SyncSync),   SyncAsync,  false, Some(SyncSync)),
        (Some(SyncSync),   AsyncSync,  false, Some(SyncSync)),
        (Some(SyncSync),   AsyncAsync, false, Some(SyncSync)),
        (Some(SyncSync),   SyncSync,   true,  Some(SyncSync)),
        (Some(SyncSync),   SyncAsync,  true,  Some(SyncSync)),
        (Some(SyncSync),   AsyncSync,  true,  Some(SyncSync)),
        (Some(SyncSync),   AsyncAsync, true,  Some(SyncSync)),
        (Some(SyncAsync),  SyncSync,   false, Some(SyncAsync)),
        (Some(SyncAsync),  SyncAsync,  false, Some(SyncAsync)),
        (Some(SyncAsync),  AsyncSync,  false, Some(SyncAsync)),
        (Some(SyncAsync),  AsyncAsync, false, Some(SyncAsync)),
        (Some(SyncAsync),  SyncSync,   true,  None),
        (Some(SyncAsync),  SyncAsync,  true,  None),
        (Some(SyncAsync),  AsyncSync,  true,  None),
        (Some(SyncAsync),  AsyncAsync, true,  None),
        (Some(AsyncSync),  SyncSync,   false, Some(AsyncSync)),
        (Some(AsyncSync),  SyncAsync,  false, Some(AsyncSync)),
        (Some(AsyncSync),  AsyncSync,  false, Some(AsyncSync)),
        (Some(AsyncSync),  AsyncAsync, false, Some(AsyncSync)),
        (Some(AsyncSync),  SyncSync,   true,  Some(AsyncSync)),
        (Some(AsyncSync),  SyncAsync,  true,  Some(AsyncSync)),
        (Some(AsyncSync),  AsyncSync,  true,  Some(AsyncSync)),
        (Some(AsyncSync),  AsyncAsync, true,  Some(AsyncSync)),
        (Some(AsyncAsync), SyncSync,   false, Some(AsyncAsync)),
        (Some(AsyncAsync), SyncAsync,  false, Some(AsyncAsync)),
        (Some(AsyncAsync), AsyncSync,  false, Some(AsyncAsync)),
        (Some(AsyncAsync), AsyncAsync, false, Some(AsyncAsync)),
        (Some(AsyncAsync), SyncSync,   true,  None),
        (Some(AsyncAsync), SyncAsync,  true,  None),
        (Some(AsyncAsync), AsyncSync,  true,  None),
        (Some(AsyncAsync), AsyncAsync, true,  None),
    ];

    #[test]
    fn every_combination_has_one_level_or_is_refused() {
        for (own, default, asks, expected) in TABLE {
            let wishes =
                if asks { vec![(1, NEVER), (7, NEVER), (NEVER, 0), (1, 0)] } else { vec![(NEVER, NEVER)] };
            for (messages, ms) in wishes {
                let held = check_level(own, messages, ms);
                let held = held.map(|()| level(own.unwrap_or(default), messages, ms)).ok();
                assert_eq!(held, expected, "own {own:?}, default {default}, {messages} messages, {ms} ms");
            }
        }
    }

    #[test]
    fn a_contradiction_names_both_and_the_level_that_fits() {
        let error = check_level(Some(AsyncAsync), 1, NEVER).expect_err("refused");
        for part in ["flush.messages=1", "durability=4", "durability to 3"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        let error = check_level(Some(SyncAsync), NEVER, 0).expect_err("refused");
        assert!(error.contains("flush.ms=0") && error.contains("durability to 1"), "{error}");
    }
}
