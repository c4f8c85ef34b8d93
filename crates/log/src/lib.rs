//! The log of each partition: segments, indexes, recovery, retention and compaction.
//!
//! [`LogStore`] owns the log dirs of a server, [`PartitionLog`] is one partition. Records come in and go out as batches
//! of one format and are re-encoded only if a topic's options ask for it.
//!
//! An append is given its offsets at once and goes one of two ways. At a level that syncs it goes to a journal; stored
//! entries are read from a tail in memory, and settled into the segments in large runs. At other levels it goes to the
//! segments, with one write for all that is staged. [`PartitionLog::watermarks`] tell how far a log has come.
//!
//! Guarantees that records below the watermark `appended` survive the end of the process, that those below `synced` or
//! under a checkpoint survive the loss of power, and that damage is found and named, never silently read over by
//! recovery. Refuses batches and sequences that break the rules. Knows no sockets, no topic names and no high
//! watermarks, and owns no threads but those of its journals.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bytes::BytesMut;
//! use riverrun_env::sim::SimEnv;
//! use riverrun_log::config::LogConfig;
//! use riverrun_log::producer_state::AppendOrigin;
//! use riverrun_log::{AppendOptions, LogStore, StoreOptions};
//! use riverrun_records::{BatchBuilder, BatchOptions};
//! use riverrun_types::{LeaderEpoch, Offset, PartitionId, TimestampMs, TopicId};
//!
//! let env = SimEnv::new(1).env();
//! let store = LogStore::open(&env, &["/logs".into()], StoreOptions::default())?;
//! let id = PartitionId { topic: TopicId([1; 16]), index: 0 };
//! let log = store.partition(id, 0, Arc::new(LogConfig::default()), LeaderEpoch(1))?;
//!
//! let now = TimestampMs(1_700_000_000_000);
//! let mut batch = BatchBuilder::new(BatchOptions::default());
//! batch.append(now, Some(b"key"), Some(b"value"), &[])?;
//! let options = AppendOptions { origin: AppendOrigin::Client, now };
//! let appended = log.append(BytesMut::from(&batch.build()?[..]), options)?;
//! log.write_staged()?;
//! assert_eq!(appended.base_offset, Offset(0));
//!
//! let slice = log.read(Offset(0), 1 << 20, log.log_end_offset()?, true)?;
//! assert_eq!(slice.next_offset, Offset(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bad_sector;
pub mod checkpoint;
pub mod compaction;
pub mod config;
mod dump;
mod early_rolls;
pub mod epochs;
mod error;
mod fields;
mod file_names;
mod index;
mod index_content;
mod level_change_queue;
mod listing;
mod log_dir;
mod log_starts;
mod mode;
mod open_logs;
mod options;
mod pace;
mod partition_files;
mod partition_log;
mod planted;
mod presence;
pub mod producer_state;
mod rank;
mod repair;
pub mod retention;
mod scan;
pub mod scrub;
mod segment;
mod segment_check;
mod shared;
mod space;
pub mod state_file;
mod store;
mod verify;
mod write_cache;

pub use dump::{DumpedBatch, SegmentDump};
pub use error::{AppendError, LogError, ReadError};
pub use log_dir::{DirWork, Leaves};
pub use options::StoreOptions;
pub use partition_log::{
    AppendOptions, Appended, Chunk, CompactOptions, KeptOpen, KnownPartition, LogObserver, PartitionLog,
    Patience, ProducedBatch, ReadSlice, Retained, TimeSearch,
};
pub use repair::{Backup, Cut, CutOptions, Repair, RepairError};
pub use store::{Closed, JournalMark, LogStore, Place, RecoveryReport};
pub use verify::{
    Aside, Finding, JournalReport, LogDirFiles, VerifyReport, VerifyStep, Weight, partition_hit,
    verify_journal, verify_partition, verify_partition_of,
};
pub use write_cache::WriteCache;
