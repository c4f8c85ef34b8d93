//! The journal: one per device, shared by all streams, so that one sync makes the waiting entries of all of them
//! durable.
//!
//! [`Journal`] takes [`Submission`]s without ever waiting for the disk, and tells each entry's [`EntryOwner`] once it
//! is stored. [`Journal::open`] also gives a [`Replay`] of the entries that earlier lives have left. Guarantees that
//!
//! - an entry whose owner was told that it is synced is found by every later replay, in order, until it is settled;
//! - no replay finds an entry that was not submitted;
//! - no owner is told that an entry is stored once a write or a sync has failed.
//!
//! Refuses damaged files by name, with two exceptions: a damaged payload costs only its own entry, and settled files
//! may be damaged. Knows no topics.
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use riverrun_env::sim::SimEnv;
//! use riverrun_journal::{
//!     EntryHeader, EntryKind, EntryOwner, Journal, JournalError, JournalOptions, StoredEntry, StreamId,
//!     Submission, Wants,
//! };
//! use riverrun_types::{LeaderEpoch, Offset};
//!
//! struct Owner(mpsc::SyncSender<bool>);
//!
//! impl EntryOwner for Owner {
//!     fn stored(&self, entry: StoredEntry<'_>) {
//!         self.0.send(entry.is_synced).expect("the receiver waits");
//!     }
//!     fn failed(&self, _header: &EntryHeader, error: &JournalError) {
//!         panic!("{error}");
//!     }
//! }
//!
//! let env = SimEnv::new(1).env();
//! let options = JournalOptions::with_bytes(8 << 20);
//! let (journal, mut replay) = Journal::open(&env, "/journal".as_ref(), options)?;
//! assert!(replay.next()?.is_none());
//!
//! let (owner, told) = mpsc::sync_channel(1);
//! let header = EntryHeader {
//!     stream: StreamId([7; 20]),
//!     kind: EntryKind::Records,
//!     index: 0,
//!     cuts: 1,
//!     base_offset: Offset(0),
//!     leader_epoch: LeaderEpoch(1),
//! };
//! let payload = "records".into();
//! journal.submit(Submission { header, payload, wants: Wants::Sync, owner: Arc::new(Owner(owner)) })?;
//! assert!(told.recv()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffers;
mod damaged_header;
mod entry;
mod error;
mod file_maker;
mod files;
mod frames;
mod journal;
mod metrics;
mod options;
mod policy;
mod prefill;
mod prefiller;
mod presence;
mod reader;
mod recovery;
mod replay;
mod shared;
mod side_files;
mod volume;
mod writer;

pub use entry::{
    EntryHeader, EntryKind, EntryOwner, JournalId, RecoveredEntry, StoredEntry, StreamId, Submission, Wants,
};
pub use error::{DamagedEntry, JournalError};
pub use journal::{FirstUse, Journal};
pub use metrics::{BUCKETS, JournalMetrics, TimeHistogram};
pub use options::{FILE_BYTES_MAX, FILE_BYTES_MIN, JournalOptions, SyncMethod};
pub use recovery::{JournalFinding, id_in, verify, verify_with_held};
pub use replay::Replay;
pub use riverrun_types::Position;
pub use side_files::HeldEntry;
