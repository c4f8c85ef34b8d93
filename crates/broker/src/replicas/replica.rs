//! A replica: serves one partition, with all that a request may do with it.
//!
//! Owns the differences between the kinds of partitions: no handler asks which kind it has. A kind that cannot do something
//! answers with the error code for clients.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::BytesMut;
use riverrun_log::producer_state::ProducerView;
use riverrun_log::{AppendOptions, TimeSearch};
use riverrun_protocol::ErrorCode;
use riverrun_records::Compression;
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::staged::{NotStaged, Staged};
use crate::error;
use crate::mounts::{MountedQueue, Refused};
use crate::partitions::{Partition, Waiter};

/// A partition as this node serves it.
#[derive(Clone, Debug)]
pub(crate) enum Replica {
    /// A log of this node.
    Local(Arc<Partition>),
    /// A queue of this machine.
    Queue(Arc<MountedQueue>),
}

/// A record's timestamp (none for the ends of a partition), its offset, and its epoch, if it was found.
pub(crate) type Found = Option<(TimestampMs, Offset, LeaderEpoch)>;

/// The end of the visible records, and the first offset, each if it is known.
pub(crate) type KnownRange = (Option<Offset>, Option<Offset>);

/// The range of a partition as far as its files need not be looked at.
pub(crate) fn known_range(partition: &Partition) -> KnownRange {
    (Some(partition.high_watermark()), partition.log.open_log_start())
}

/// The record that a search by time wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ByTime {
    /// The first with the largest timestamp.
    Newest,
    /// The first that is not older than this.
    From(TimestampMs),
}

impl ByTime {
    fn search(self) -> TimeSearch {
        match self {
            Self::Newest => TimeSearch::largest(),
            Self::From(timestamp) => TimeSearch::first_from(timestamp),
        }
    }
}

fn refused(refused: Refused) -> ErrorCode {
    refused.code
}

impl Replica {
    /// Prefetches the memory that the next appends need; called for each batch, with the replicas of those that follow it.
    pub(crate) fn prefetch_next<'r>(coming: impl Fn(usize) -> Option<&'r Self>) {
        Partition::prefetch_next(|index| match coming(index)? {
            Self::Local(partition) => Some(partition),
            Self::Queue(_) => None,
        });
    }

    /// The leader epoch of records that are appended now.
    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        match self {
            Self::Local(partition) => partition.log.leader_epoch(),
            Self::Queue(queue) => queue.epoch(),
        }
    }

    /// Whether a batch of this codec is stored in another one.
    pub(crate) fn recodes(&self, codec: Compression) -> bool {
        match self {
            Self::Local(partition) => {
                partition.log.config().compression.is_some_and(|wanted| wanted != codec)
            }
            Self::Queue(_) => false,
        }
    }

    /// Whether a batch that is appended may outlive its request, and keep its memory so long.
    pub(crate) fn keeps_batches(&self) -> bool {
        matches!(self, Self::Queue(_))
    }

    /// Takes a client's batches, which does not yet write or ack them: see [`Staged`]. Where they have to wait for their turn
    /// and it comes after `until`, they are not appended any more.
    pub(crate) fn append(
        self,
        batches: BytesMut,
        options: AppendOptions,
        until: Instant,
    ) -> Result<Staged, NotStaged> {
        match self {
            Self::Local(partition) => match partition.append(batches, options) {
                Ok(appended) => Ok(Staged::Log(partition, appended)),
                Err(error) => Err(error.into()),
            },
            Self::Queue(queue) => Ok(Staged::Queued(queue.produce(batches, options.now, until)?)),
        }
    }

    /// Whether its records can be read without opening anything.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Local(partition) => partition.log.open_log_start().is_some(),
            Self::Queue(_) => true,
        }
    }

    /// Whether reading its records takes one of the turns of a log dir, because the disk may make it wait.
    pub(crate) fn takes_turns(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Has `waiter` woken when there is more to read.
    pub(crate) fn enroll(&self, waiter: &Arc<Waiter>) {
        match self {
            Self::Local(partition) => partition.enroll(waiter),
            Self::Queue(queue) => queue.enroll(waiter),
        }
    }

    /// Its range as far as it is known without opening or waiting for anything.
    pub(crate) fn known_range(&self) -> KnownRange {
        match self {
            Self::Local(partition) => known_range(partition),
            Self::Queue(queue) => (queue.high_watermark().ok(), Some(queue.log_start())),
        }
    }

    /// The largest epoch up to `epoch`, and the offset after its records (KIP-279).
    pub(crate) fn epoch_end_offset(&self, epoch: LeaderEpoch) -> Result<(LeaderEpoch, Offset), ErrorCode> {
        match self {
            Self::Local(partition) => {
                partition.log.epoch_end_offset(epoch).map_err(|trouble| error::log_error(&trouble))
            }
            Self::Queue(queue) => queue.epoch_end_offset(epoch).map_err(refused),
        }
    }

    /// The end of the visible records, with the epoch of the leader.
    pub(crate) fn latest(&self, leading: LeaderEpoch) -> Result<Found, ErrorCode> {
        let end = match self {
            Self::Local(partition) => partition.high_watermark(),
            Self::Queue(queue) => queue.high_watermark().map_err(refused)?,
        };
        Ok(Some((TimestampMs::NONE, end, leading)))
    }

    /// The first offset, with the epoch of its record, or of the leader if there is no record.
    pub(crate) fn earliest(&self, leading: LeaderEpoch) -> Result<Found, ErrorCode> {
        let (start, epoch) = match self {
            Self::Local(partition) => {
                let start = partition.log.log_start_offset().map_err(|trouble| error::log_error(&trouble))?;
                (
                    start,
                    partition
                        .log
                        .epoch_of(start)
                        .map_err(|trouble| error::log_error(&trouble))?
                        .unwrap_or(leading),
                )
            }
            Self::Queue(queue) => {
                let start = queue.log_start();
                (start, queue.epoch_of(start).map_err(refused)?)
            }
        };
        Ok(Some((TimestampMs::NONE, start, epoch)))
    }

    /// Looks for a visible record until `is_over`: `under_way` is the search that the next call goes on with. May wait for the
    /// disk.
    pub(crate) fn search(
        &self,
        wanted: ByTime,
        under_way: &mut Option<TimeSearch>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Poll<Found>, ErrorCode> {
        match self {
            Self::Local(partition) => {
                let search = under_way.get_or_insert_with(|| wanted.search());
                let found = partition
                    .log
                    .search_by_time(search, is_over)
                    .map_err(|trouble| error::log_error(&trouble))?;
                Ok(found.map(|found| found.filter(|(_, offset, _)| *offset < partition.high_watermark())))
            }
            Self::Queue(queue) => {
                let found = match wanted {
                    ByTime::Newest => queue.max_timestamp(),
                    ByTime::From(timestamp) => queue.offset_for_timestamp(timestamp),
                };
                found.map(Poll::Ready).map_err(refused)
            }
        }
    }

    /// The idempotent producers that the partition remembers.
    pub(crate) fn producers(&self) -> Result<Vec<ProducerView>, ErrorCode> {
        match self {
            Self::Local(partition) => {
                partition.log.active_producers().map_err(|trouble| error::log_error(&trouble))
            }
            Self::Queue(queue) => Ok(queue.producers()),
        }
    }
}
