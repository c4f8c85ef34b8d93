//! One pass of a fetch: reads partition by partition, within the byte limits.
//!
//! Owns the pass over all wanted partitions, and its answers; [`partition`] reads one partition. [`crate::catch_up::plan`]
//! decides which reads that may have to wait for the disk a pass makes.

mod partition;

use std::sync::Arc;

use riverrun_protocol::ErrorCode;
use riverrun_types::PartitionId;
use tokio::task::yield_now;

pub(crate) use self::partition::Answer;
use self::partition::{Finished, PartitionRead, Room, topic_key};
use crate::aside::{give_way, waiting};
use crate::broker::Broker;
use crate::catch_up::Whose;
use crate::catch_up::plan::{DirFacts, DirTurn, PassPlan, Thread, TurnOf};
use crate::context::RequestContext;
use crate::fetch_sessions::{NO_SESSION, Plan, Wanted};
use crate::metadata::ClusterImage;
use crate::partitions::Waiter;
use crate::response::Part;

/// Limits of one fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes in all. The first batch found is returned whole even if it is larger, so that a consumer with small
    /// limits moves on.
    pub(crate) bytes_max: usize,
}

/// The result of one pass over all wanted partitions.
#[derive(Debug)]
pub(crate) struct Pass {
    /// One for each wanted partition, in their order.
    pub(crate) answers: Vec<Answer>,
    pub(crate) bytes: usize,
    /// Whether the answer must not wait: for an error; for a partition with more records than the limits let through, so that
    /// waiting brings nothing; or for a partition that the pass has postponed.
    pub(crate) urgent: bool,
    /// Whether the pass ended for want of descriptors: another one would end alike.
    pub(crate) is_short: bool,
}

/// Makes one pass. If `waiter` is given, it is enrolled at each partition *before* that is read, so that
/// no advance is missed.
///
/// Partitions that may lie on the disk are read log dir by log dir, each dir in its turn.
pub(crate) async fn read_all(
    broker: &Arc<Broker>,
    context: &RequestContext,
    plan: &Plan,
    limits: Limits,
    waiter: Option<&Arc<Waiter>>,
) -> Pass {
    let mut reading = Reading::new(broker, context, plan, limits, waiter);
    match reading.pass.thread {
        Thread::Shared => {
            for place in reading.pass.order() {
                reading.read([place], TurnOf::This);
                give_way().await;
            }
        }
        Thread::Own => reading.read_in_turns().await,
    }
    reading.finish()
}

/// A pass that is under way.
struct Reading<'a> {
    broker: &'a Arc<Broker>,
    context: &'a RequestContext,
    plan: &'a Plan,
    limits: Limits,
    waiter: Option<&'a Arc<Waiter>>,
    image: Arc<ClusterImage>,
    pass: PassPlan,
    /// One for each wanted partition; empty until that was read.
    answers: Vec<Answer>,
    bytes: usize,
    /// Bytes that further records in memory may have: an answer holds them until its client has taken it.
    memory_bytes_left: usize,
    urgent: bool,
}

impl<'a> Reading<'a> {
    fn new(
        broker: &'a Arc<Broker>,
        context: &'a RequestContext,
        plan: &'a Plan,
        limits: Limits,
        waiter: Option<&'a Arc<Waiter>>,
    ) -> Self {
        let start = broker.catch_up.begin_fetch(context.connection.id);
        Self {
            broker,
            context,
            plan,
            limits,
            waiter,
            image: broker.catalog.cluster(),
            pass: PassPlan::new(start, plan.len(), plan.session_id != NO_SESSION),
            answers: plan.wanted().map(|_| Answer::error(ErrorCode::NONE)).collect(),
            bytes: 0,
            memory_bytes_left: broker.budgets.responses.fetch_bytes_max(context.connection.peer.ip()),
            urgent: false,
        }
    }

    /// Reads log dir by log dir, each in its turn.
    async fn read_in_turns(&mut self) {
        let catch_up = &self.broker.catch_up;
        let whose = Whose::of(&self.context.connection);
        let by_log_dir = self.by_log_dir();
        let has_others = by_log_dir.len() > 1;
        for (log_dir, places) in by_log_dir {
            let stands_still = |log_dir| self.broker.logs.dir_stands_still(log_dir);
            let holds_up_others = has_others && log_dir.is_some_and(stands_still);
            match DirTurn::of(DirFacts { log_dir, has_found: self.bytes > 0, holds_up_others }) {
                DirTurn::NotNeeded => self.read(places, TurnOf::This),
                DirTurn::LeftOut => self.read(places, TurnOf::Nobodys),
                DirTurn::Awaited(log_dir) => {
                    let read = || self.read(places.iter().copied(), TurnOf::This);
                    if waiting(catch_up.read_aside(log_dir, whose, read)).await.is_none() {
                        self.read(places, TurnOf::Others);
                    }
                }
                DirTurn::IfFree(log_dir) => {
                    let read = || self.read(places.iter().copied(), TurnOf::This);
                    if catch_up.try_read_aside(log_dir, whose, read).is_some() {
                        yield_now().await;
                    } else {
                        self.read(places, TurnOf::Others);
                    }
                }
            }
        }
    }

    /// The places of the wanted partitions by log dir, in the order of the pass. Partitions that are unknown or mounted lie in
    /// none.
    fn by_log_dir(&self) -> Vec<(Option<usize>, Vec<usize>)> {
        let mut all: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        for place in self.pass.order() {
            let log_dir = self.log_dir(self.plan.at(place));
            match all.iter_mut().find(|(of, _)| *of == log_dir) {
                Some((_, places)) => places.push(place),
                None => all.push((log_dir, vec![place])),
            }
        }
        all
    }

    fn log_dir(&self, wanted: &Wanted) -> Option<usize> {
        let topic = topic_key(wanted).find(&self.image).ok()?.id;
        self.broker.replicas.log_dir(PartitionId { topic, index: wanted.partition.index })
    }

    /// Reads the partitions at these places, as far as the plan of the pass allows. Blocks for the disk if they are cold.
    fn read(&mut self, places: impl IntoIterator<Item = usize>, turn: TurnOf) {
        for place in places {
            self.read_one(place, turn);
        }
    }

    fn read_one(&mut self, place: usize, turn: TurnOf) {
        let clock = &self.broker.env.clock;
        let begun = clock.monotonic();
        let partition = PartitionRead {
            broker: self.broker,
            context: self.context,
            image: &self.image,
            wanted: self.plan.at(place),
            waiter: self.waiter,
            room: Room {
                bytes: self.limits.bytes_max.saturating_sub(self.bytes),
                memory_bytes: self.memory_bytes_left,
                is_empty: self.bytes == 0,
            },
            pass: &self.pass,
            turn,
        };
        let Finished { answer, end, was_open } = partition.read();
        self.pass.note(place, end, was_open, || clock.monotonic().saturating_sub(begun));
        if end.meets_disk() {
            self.broker.catch_up.met_disk(self.context.connection.id);
        }
        self.bytes += answer.bytes;
        self.memory_bytes_left = self.memory_bytes_left.saturating_sub(memory_bytes(&answer.parts));
        self.urgent |= answer.error != ErrorCode::NONE || answer.diverging.is_some();
        self.urgent |= answer.bytes > 0 && answer.more;
        self.answers[place] = answer;
    }

    fn finish(self) -> Pass {
        if let Some(place) = self.pass.next_begin() {
            self.broker.catch_up.begin_next_at(self.context.connection.id, place);
        }
        Pass {
            urgent: self.urgent || self.pass.has_postponed(),
            is_short: self.pass.is_short(),
            answers: self.answers,
            bytes: self.bytes,
        }
    }
}

fn memory_bytes(parts: &[Part]) -> usize {
    parts.iter().filter(|part| !matches!(part, Part::File { .. })).map(Part::len).sum()
}

#[cfg(test)]
mod tests;
