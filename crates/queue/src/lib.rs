//! The embedded queue: the server's log, inside a process, at memory speed.
//!
//! A queue is a directory of segment files that hold Kafka record batches exactly as the server's do,
//! memory-mapped, and one small control file. Threads and processes of one machine append ([`Appender`]) and
//! read ([`Tailer`]); there is no server. Owns the mapping, the control file, the writer lock and recovery.
//!
//! Guarantees that a reader sees a record whole or not at all, in one order for all; that a writer which dies during
//! an append, at whatever instant, leaves nothing behind and blocks no other; that a file which was truncated or
//! damaged is an error that names it. Refuses batches larger than a segment, and segments of another size than they
//! were made with.
//!
//! ```
//! use riverrun_queue::{AppendOptions, CreateOptions, Queue, StartAt};
//!
//! let dir = tempfile::tempdir()?;
//! let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 1 << 20 })?;
//! let mut appender = queue.appender(AppendOptions::default())?;
//! let mut tailer = queue.tailer(StartAt::Start)?;
//!
//! appender.append(b"a record")?;
//!
//! let mut in_place = appender.reserve(5)?;
//! in_place.copy_from_slice(b"quote");
//! let offset = in_place.publish()?;
//! assert_eq!(offset.0, 1);
//!
//! assert_eq!(tailer.next()?.and_then(|record| record.value), Some(b"a record".as_slice()));
//! assert_eq!(tailer.next()?.and_then(|record| record.value), Some(b"quote".as_slice()));
//! assert!(tailer.next()?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to choose
//!
//! - [`Durability`] says which failures a record survives when `append` returns: the end of any process, or with
//!   [`Durability::Sync`] a power cut. Full segments are synced in the background in any case, and everything when
//!   the last appender of a process is dropped; [`Tailer::set_synced_only`] shows only synced records.
//! - A [`WaitStrategy`] says how a tailer waits: [`BusySpin`] for a thread with a core of its own, [`SpinThenYield`],
//!   or [`Park`], which leaves the core to others, and costs an append half a microsecond where it has to wake the
//!   tailer.
//! - [`Queue::named_tailer`] keeps its place in the queue's directory. It keeps no segment while it is closed.
//! - [`QueueView`] only reads: a live queue of other processes, a copy, or a read-only file system.
//! - [`PartitionTailer`] reads a partition of a server on this machine, from the server's own files.
//! - [`Retention`] removes old segments, in the background of a process that appends.
//!
//! # What it does to your process
//!
//! - The first queue that is opened, also for reading, sets a handler of SIGBUS for the whole process: a mapped page
//!   that cannot be read any more is an error then, and does not end the process. Any other SIGBUS goes to the
//!   previous handler. A handler that your program sets later replaces this one, unless it passes on the signals that
//!   are not its own.
//! - A [`Queue`] with appenders has two threads, `queue-syncer` and `queue-keeper`, however many appenders there are.
//!   Its clones share these threads; a queue that is opened again has its own. Reading starts no thread.
//! - Locks show which processes live, and a child that is forked without exec inherits its parent's: while it lives,
//!   an append in which its parent died blocks all other appenders. Fork before you open a queue, or exec. Every
//!   descriptor is closed on exec.
//! - All processes together have at most 1,024 appenders on a queue at once. The two threads of each [`Queue`] count
//!   as appenders, and so does a [`Queue::sync`] while it runs.
//! - It needs Linux, `/proc` (which tells one boot from another), and a file system with shared mappings and
//!   byte-range locks. Processes of one machine may reach a queue by several mounts, as from containers, but machines
//!   may not share one over a network.
//! - When no process has a queue open and the next one comes by another mount than the last, that one recovers the
//!   queue as after a boot: it reads what lies above the last sync, and moves the rest of an append whose process was
//!   killed into a directory `cut-<epoch>`, which is yours to remove.
//!
//! Two worked examples run: `examples/ping_pong.rs` (two processes, quotes and orders) and `examples/two_hops.rs` (a
//! service between two queues, which resumes at its place). The files are drawn in `docs/format/queue.md`.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions are 64 bits wide, as addresses are: asserted here"
)]

mod appender;
mod batch;
mod batches;
mod bell;
mod control;
mod crc;
mod cut_dir;
mod error;
mod keeper;
mod layout;
mod lock;
mod mapping;
#[cfg(test)]
mod model;
mod named;
mod opening;
mod options;
mod partition;
mod passed;
mod protocol;
mod queue;
mod recovery;
mod reservation;
mod retention;
mod segment;
mod spare;
mod sync;
mod syncer;
mod sys;
mod tailer;
mod template;
mod trap;
mod wait;

const _: () = assert!(usize::BITS == 64, "whole segments are mapped");

pub use appender::{Appender, NewRecord};
pub use batches::BatchReader;
pub use bell::Bell;
pub use control::CONTROL_NAME;
pub use error::{Damage, QueueError};
pub use options::{
    AppendOptions, CreateOptions, Durability, Retention, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
};
pub use partition::PartitionTailer;
pub use queue::{Queue, QueueView, Status};
pub use recovery::Recovery;
pub use reservation::Reservation;
pub use riverrun_records::{Batch, Header, Headers, Record};
pub use riverrun_types::{Offset, TimestampMs};
pub use tailer::{StartAt, Tailer};
pub use wait::{BusySpin, Park, SpinThenYield, WaitStrategy, Watch};
