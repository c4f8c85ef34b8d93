//! Owns what must hold in a simulated quorum whatever fails, and what was seen of its members so far.

use std::collections::BTreeMap;

use crate::types::VoterId;

/// A promise of the quorum that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Two members lead in one term.
    TwoLeaders,
    /// A member leads that lacks a command which was accepted in an earlier term. If it goes on, that command is lost.
    LeaderIncomplete,
    /// A command that was accepted is gone, or is at another index.
    AcceptedLost,
    /// Two members that have applied as much have another digest: they differ in a command, an index, or an answer.
    Digests,
    /// The term of a member's vote, or what it has applied since its start, has gone back.
    WentBack,
    /// A member starts with less than its leader had heard from it.
    AckedLost,
    /// All is well again, and no command is accepted, or the members cannot be changed.
    NoProgress,
    /// A member does not start.
    NoStart,
    /// A member stops, and its disk is well. If that comes from its files, it does not start again.
    Stopped,
    /// A member panics.
    Panicked,
}

/// A member at one moment.
pub(super) struct View {
    pub(super) voter: VoterId,
    /// The number of the start of its process.
    pub(super) start: u64,
    /// The term of its vote, as its log has it.
    pub(super) voted: u64,
    /// The term in which it takes itself for the leader.
    pub(super) leads: Option<u64>,
    pub(super) applied: Option<u64>,
    pub(super) digest: u64,
    /// As a leader, the last index that each other member has told it.
    pub(super) heard: BTreeMap<VoterId, u64>,
}

/// A member's files as it has read them at a start.
pub(super) struct Found {
    pub(super) voter: VoterId,
    pub(super) voted: u64,
    pub(super) last: Option<u64>,
}

/// A command that was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) index: u64,
    /// It was accepted in this term or an earlier one.
    pub(super) term: u64,
}

/// The end of what one leader has heard of one member: by any time, and the part of it that was committed then.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    any: u64,
    committed: u64,
}

/// The record of all looks so far.
#[derive(Default)]
pub(super) struct Seen {
    leaders: BTreeMap<u64, VoterId>,
    digests: BTreeMap<u64, u64>,
    voted: BTreeMap<VoterId, u64>,
    applied: BTreeMap<(VoterId, u64), Option<u64>>,
    heard: BTreeMap<(VoterId, u64), Heard>,
    /// Checks that are left out, to see what passes without them.
    pub(super) left_out: Vec<Broken>,
}

impl Seen {
    /// The result of a check.
    pub(super) fn hold(&self, holds: bool, broken: Broken) -> Result<(), Broken> {
        if holds || self.left_out.contains(&broken) { Ok(()) } else { Err(broken) }
    }

    /// Checks a member; returns whether it was not known as the leader of its term before.
    pub(super) fn look(&mut self, view: &View) -> Result<bool, Broken> {
        let voted = self.voted.entry(view.voter).or_default();
        let mut is_back = view.voted < *voted;
        *voted = view.voted.max(*voted);
        let applied = self.applied.entry((view.voter, view.start)).or_default();
        is_back |= view.applied < *applied;
        *applied = view.applied.max(*applied);
        self.hold(!is_back, Broken::WentBack)?;
        let Some(term) = view.leads else { return Ok(false) };
        for (voter, index) in &view.heard {
            let heard = self.heard.entry((*voter, term)).or_default();
            heard.any = heard.any.max(*index);
            heard.committed = heard.committed.max((*index).min(view.applied.unwrap_or(0)));
        }
        let is_new = !self.leaders.contains_key(&term);
        let leader = *self.leaders.entry(term).or_insert(view.voter);
        self.hold(leader == view.voter, Broken::TwoLeaders)?;
        Ok(is_new)
    }

    /// Checks what a member has found at its start.
    pub(super) fn start(&mut self, found: &Found) -> Result<(), Broken> {
        let last = found.last.unwrap_or(0);
        // A later leader may have taken back what was not committed.
        let is_there = |term: u64, heard: &Heard| match term.cmp(&found.voted) {
            std::cmp::Ordering::Less => heard.committed <= last,
            std::cmp::Ordering::Equal => heard.any <= last,
            // That the vote is gone is another promise's.
            std::cmp::Ordering::Greater => true,
        };
        let own = self.heard.range((found.voter, 0)..=(found.voter, u64::MAX));
        let all = own.into_iter().all(|((_, term), heard)| is_there(*term, heard));
        self.hold(all, Broken::AckedLost)?;
        let voted = self.voted.get(&found.voter).copied().unwrap_or(0);
        self.hold(found.voted >= voted, Broken::WentBack)
    }

    /// Checks the digest of what a member has applied.
    pub(super) fn applied(&mut self, applied: Option<u64>, digest: u64) -> Result<(), Broken> {
        let known = *self.digests.entry(applied.map_or(0, |index| index + 1)).or_insert(digest);
        self.hold(known == digest, Broken::Digests)
    }

    /// Checks that a new leader has all that was accepted in earlier terms: `has` says whether it has a command at an index.
    pub(super) fn is_complete(
        &self,
        term: u64,
        accepted: &BTreeMap<u64, Taken>,
        has: impl Fn(u64, u64) -> bool,
    ) -> Result<(), Broken> {
        let earlier = accepted.iter().filter(|(_, taken)| taken.term < term);
        let all = earlier.into_iter().all(|(command, taken)| has(*command, taken.index));
        self.hold(all, Broken::LeaderIncomplete)
    }
}
