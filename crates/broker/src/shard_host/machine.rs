//! The interface of a host to its state machine, and to the topic that the machine's shards lie in.
//!
//! Owns the contract: a machine changes in steps, and a [`Step`] is applied already when the host gets it. The host appends
//! its records, and sends its replies once they are durable. Replaying the records of a shard into a new machine gives the
//! same machine. A machine reads no clock and no disk: what it needs of both comes in.
//!
//! *Lending*: a part of a machine, which has a key, is worked on apart while a step on it takes long. A machine whose steps
//! are all short lends [`Infallible`], and leaves the methods for it as they are.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use riverrun_coordinator::{Moment, Now, ReplyToken};
use riverrun_env::Clock;
use riverrun_protocol::ErrorCode;
use riverrun_records::Compression;

use crate::log_limit::LogLimit;
use crate::partitions::Partition;

/// One shard's state.
pub(crate) trait StateMachine: fmt::Debug + Send + Sized + 'static {
    /// The state that the machines of a host share, and their view of the server.
    type World: ShardTopic;
    /// The body of a reply.
    type Response: fmt::Debug + Send + 'static;
    /// Why a record has led to nothing.
    type ReplayError: fmt::Display;
    /// A part that was taken out.
    type Lent: LentPart<Self>;

    /// A machine that knows of no record.
    fn new(world: &Self::World) -> Self;

    /// Takes a record of its log. A failure leaves the machine as it was.
    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Self::ReplayError>;

    /// Whether the bounds of the machines had no room for a record, which is not at fault itself.
    fn is_want_of_room(error: &Self::ReplayError) -> bool;

    /// All records are replayed. Answers those that this leads to. May take long.
    fn on_loaded(&mut self, world: &Self::World, now: Now) -> Vec<ShardRecord>;

    /// When [`Self::expire`] has something to do; none as long as there is nothing to wait for.
    fn next_deadline(&self) -> Option<Moment>;

    /// Acts on what is due by now in shard `index`, a slice of it if that is much.
    fn expire(&mut self, world: &Self::World, index: usize, now: Now) -> Step<Self::Response>;

    /// The clocks show this now. Answers whether times that were written down are to be written anew by [`Self::expire`].
    fn note_clocks(&mut self, _now: Now) -> bool {
        false
    }

    /// A step was made, which may still be lost: the place for what the server's log is told.
    fn on_step(&mut self, _world: &Self::World) {}

    /// The records of the last step are in the log, or wait for it to be opened.
    fn on_appended(&mut self) {}

    /// Whether the part is out.
    fn is_lent(&self, _key: &str) -> bool {
        false
    }

    /// Takes a part out, or keeps the place of one that is to be made; none if it is out already.
    fn lend(&mut self, _key: &str) -> Option<Self::Lent> {
        None
    }

    /// The cost of a step that looks at all of a part.
    fn cost_of_all(&self, _key: &str) -> usize {
        0
    }

    /// The next part on whose deadlines is to be acted, if that costs more than a step may. It is due no more then: the
    /// caller calls [`Self::expire_part`] once the part is lent.
    fn due_at_length(&mut self, _now: Now) -> Option<Arc<str>> {
        None
    }

    /// Acts on what is due in a part that was lent because of it.
    fn expire_part(&mut self, _world: &Self::World, _key: &Arc<str>, _now: Now) -> Step<Self::Response> {
        Step::default()
    }
}

/// A part of a machine that was taken out, in a machine of its own.
pub(crate) trait LentPart<M: StateMachine>: Sized {
    /// The machine that has this part only.
    fn machine(&mut self) -> &mut M;

    /// Goes back to where it was taken out, unless something has come for it meanwhile: [`Self::catch_up`] comes first then.
    fn give_back(self, to: &mut M) -> Result<(), Self>;

    /// Takes what has come for it while it was out.
    fn catch_up(&mut self) -> Step<M::Response>;
}

impl<M: StateMachine> LentPart<M> for Infallible {
    fn machine(&mut self) -> &mut M {
        match *self {}
    }

    fn give_back(self, _to: &mut M) -> Result<(), Self> {
        match self {}
    }

    fn catch_up(&mut self) -> Step<M::Response> {
        match *self {}
    }
}

/// The topic that the shards of a host lie in, a partition each.
pub(crate) trait ShardTopic: fmt::Debug + Send + Sync + 'static {
    /// How many partitions it has, which never changes; none while it does not exist.
    fn partition_count(&self) -> Option<usize>;

    /// The live partition of shard `index`. Blocks for the disk.
    fn open(&self, index: usize) -> Result<Arc<Partition>, ErrorCode>;
}

/// One record of a shard; no value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// The answer to one request, which may be an older one.
#[derive(Debug)]
pub(crate) struct Reply<R> {
    /// The request that it answers.
    pub(crate) token: ReplyToken,
    pub(crate) body: R,
}

/// The result of one input of a machine.
#[derive(Debug)]
#[must_use = "a step's records must be appended and its replies sent"]
pub(crate) struct Step<R> {
    /// To be appended in this order, in one batch where they fit.
    pub(crate) records: Vec<ShardRecord>,
    /// To be sent once the records are durable.
    pub(crate) replies: Vec<Reply<R>>,
}

impl<R> Step<R> {
    /// A step that answers nobody.
    pub(crate) fn of_records(records: Vec<ShardRecord>) -> Self {
        Self { records, replies: Vec::new() }
    }
}

impl<R> Default for Step<R> {
    fn default() -> Self {
        Self::of_records(Vec::new())
    }
}

/// How a host works, and the names that its texts use for the things that it hosts.
pub(crate) struct HostOptions {
    /// The name of the things that the machines keep, in the plural.
    pub(crate) what: &'static str,
    /// The name of their records.
    pub(crate) records: &'static str,
    /// The topic's name.
    pub(crate) topic: &'static str,
    /// The bounds on what a machine takes of its log.
    pub(crate) bounds: &'static str,
    /// Lines about shards that fail: a log dir takes many of them with it.
    pub(crate) trouble: &'static LogLimit,
    /// How batches are compressed.
    pub(crate) compression: Compression,
    /// A request is answered after this time, if by then records of its shard have waited so long for the disk. They may
    /// still become durable.
    pub(crate) stuck_after: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl HostOptions {
    /// All clocks, read now.
    pub(super) fn now(&self) -> Now {
        super::clock::now(&*self.clock)
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostOptions").field("what", &self.what).finish_non_exhaustive()
    }
}
