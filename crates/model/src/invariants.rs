//! Owns the promises that every state is held against.

use std::fmt;

use crate::log::{LOG_MAX, Log, nodes};
use crate::model::Model;
use crate::rules::Quorum;
use crate::state::{Partition, State};

macro_rules! invariants {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A promise of replication. docs/replication.md lists them for people.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Invariant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Invariant {
            /// Every invariant.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

invariants! {
    /// An offset is given out once in an epoch, with one record.
    WrittenOnce,
    /// A record below a high watermark is never replaced by another one.
    SeenOnce,
    /// The leader has every record that was seen.
    LeaderHasSeen,
    /// Each replica that may become the leader has every record that was seen.
    CandidatesHaveSeen,
    /// The controller's in-sync set is within the set that the leader counts.
    CandidatesCounted,
    /// No member of the in-sync set is fenced: the high watermark would wait for it.
    InSyncUnfenced,
    /// A follower that has shaken hands has no record that its leader lacks.
    FollowerIsPrefix,
    /// A high watermark is within its log, and below it all replicas have the same records.
    SameBelowHighWatermark,
    /// A leader that acks by itself is the leader.
    AckedByLeader,
    /// While nothing fails, the leader has every record that a leader has acked by itself.
    AckedAloneKept,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The first promise that a state breaks.
pub(crate) fn broken(model: &Model, state: &State) -> Option<Invariant> {
    state.broken.or_else(|| {
        state.parts[..usize::from(model.setup.partitions)]
            .iter()
            .find_map(|part| broken_in(model, state, part))
    })
}

fn broken_in(model: &Model, state: &State, part: &Partition) -> Option<Invariant> {
    let all = model.setup.quorum == Quorum::All;
    let checks: [(bool, Invariant); 8] = [
        (written_once(part), Invariant::WrittenOnce),
        (same_below_high_watermark(state, part), Invariant::SameBelowHighWatermark),
        (leader_has(part, &part.seen), Invariant::LeaderHasSeen),
        (!state.spent.has_no_failure() || leader_has(part, &part.acked_alone), Invariant::AckedAloneKept),
        (!all || candidates_counted(part), Invariant::CandidatesCounted),
        (!all || candidates_have_seen(model, state, part), Invariant::CandidatesHaveSeen),
        (!all || in_sync_unfenced(state, part), Invariant::InSyncUnfenced),
        (follower_is_prefix(part), Invariant::FollowerIsPrefix),
    ];
    checks.into_iter().find(|(holds, _)| !holds).map(|(_, invariant)| invariant)
}

fn written_once(part: &Partition) -> bool {
    let logs = || part.replicas.iter().flat_map(|replica| [replica.log, replica.disk]);
    (0..LOG_MAX).all(|offset| {
        let entries = || logs().filter_map(move |log: Log| log.entries().get(offset).copied());
        entries().all(|entry| entries().all(|other| other.epoch != entry.epoch || other == entry))
    })
}

fn leader_has(part: &Partition, records: &Log) -> bool {
    let newest = part.meta.view.epoch;
    part.replicas
        .iter()
        .filter(|replica| replica.leads.is_some_and(|lead| lead.epoch == newest))
        .all(|replica| replica.log.starts_with(records))
}

fn candidates_have_seen(model: &Model, state: &State, part: &Partition) -> bool {
    let candidates = part.meta.view.isr.union(part.meta.elr);
    // A suspect broker is no candidate before it registers, and is looked at then.
    candidates.iter().filter(|node| !state.broker(*node).suspect || model.setup.level.followers_sync()).all(
        |node| {
            let replica = &part.replicas[usize::from(node)];
            let held = if model.setup.level.followers_sync() { &replica.disk } else { &replica.log };
            held.starts_with(&part.seen)
        },
    )
}

fn candidates_counted(part: &Partition) -> bool {
    let view = part.meta.view;
    part.replicas.iter().all(|replica| {
        let Some(lead) = replica.leads.filter(|lead| lead.epoch == view.epoch) else { return true };
        let open = lead.open.map_or(replica.known.isr, |change| change.isr);
        view.isr.within(replica.known.isr.union(open))
    })
}

fn in_sync_unfenced(state: &State, part: &Partition) -> bool {
    part.meta.view.isr.iter().all(|node| state.may_lead(node))
}

fn follower_is_prefix(part: &Partition) -> bool {
    let leads = |epoch| {
        part.replicas.iter().find(move |replica| replica.leads.is_some_and(|lead| lead.epoch == epoch))
    };
    part.replicas
        .iter()
        .filter(|replica| replica.leads.is_none() && replica.joined != 0)
        .all(|replica| leads(replica.joined).is_none_or(|leader| leader.log.starts_with(&replica.log)))
}

fn same_below_high_watermark(state: &State, part: &Partition) -> bool {
    nodes().filter(|node| state.serves(*node)).all(|node| {
        let replica = &part.replicas[usize::from(node)];
        let below = replica.log.cut(replica.hw);
        let within = replica.hw <= replica.log.len();
        within
            && (replica.joined < part.unclean
                || below.starts_with(&part.seen)
                || part.seen.starts_with(&below))
    })
}
