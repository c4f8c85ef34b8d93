//! Server-side assignors of KIP-848 groups: they decide which member reads which partition.
//!
//! Owns the two strategies that Kafka ships, `uniform` and `range`, as pure functions. The input is the members with
//! their subscriptions and current assignments, and the topics with their partition counts; the output is one
//! assignment per member.
//!
//! Guarantees: every partition of a subscribed topic is given to exactly one member, which subscribes to it; the same
//! group gives the same assignment, in whatever order its members are named. Ignores racks (as Kafka's own assignors
//! do since 4.0), and leaves out topics that do not exist.
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//! use riverrun_coordinator::assignors::{Assignment, Assignor, Indexes, Member};
//! use riverrun_types::TopicId;
//!
//! let topic = TopicId([1; 16]);
//! let (subscribed, nothing) = (BTreeSet::from([topic]), Assignment::new());
//! let member = |id| Member { id, instance_id: None, subscribed: &subscribed, current: &nothing };
//! let shares = Assignor::Range.assign(&[member("a"), member("b")], &BTreeMap::from([(topic, 3)]));
//! assert_eq!(shares[0][&topic], Indexes::from([0, 1]));
//! assert_eq!(shares[1][&topic], Indexes::from([2]));
//! ```

mod range;
mod uniform;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use riverrun_types::TopicId;

pub use crate::runs::{Indexes, RunMap};

/// Partition indexes by topic. Holds no topic without partitions.
pub type Assignment = BTreeMap<TopicId, Indexes>;

/// Number of partitions of each topic.
pub type PartitionCounts = BTreeMap<TopicId, i32>;

/// An assignor's input about one member.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The member's id.
    pub id: &'a str,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<&'a str>,
    /// The topics that it reads. Members that share one set by reference are cheaper to assign.
    pub subscribed: &'a BTreeSet<TopicId>,
    /// Its part of the last assignment.
    pub current: &'a Assignment,
}

impl Member<'_> {
    /// The order in which members are served: static ones first and by instance id, so that a restart under a new
    /// member id changes nothing; then the others by member id.
    fn precedence(&self, other: &Self) -> Ordering {
        match (self.instance_id, other.instance_id) {
            (Some(mine), Some(theirs)) => mine.cmp(theirs).then_with(|| self.id.cmp(other.id)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.id.cmp(other.id),
        }
    }
}

/// An assignment strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Even shares over all topics together, moving as little as that allows.
    Uniform,
    /// A contiguous range of each topic, the same range in topics with the same subscribers and number of partitions.
    Range,
}

impl Assignor {
    /// The assignor of this name, as members and configuration write it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Self::Uniform),
            "range" => Some(Self::Range),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// Divides the partitions of `topics` among `members`; the result is in the members' order.
    pub fn assign(self, members: &[Member<'_>], topics: &PartitionCounts) -> Vec<Assignment> {
        match self {
            Self::Uniform => uniform::assign(members, topics),
            Self::Range => range::assign(members, topics),
        }
    }
}

/// Indexes into `members`, in order of precedence.
fn ranked(members: &[Member<'_>]) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..members.len()).collect();
    ranked.sort_by(|&left, &right| members[left].precedence(&members[right]));
    ranked
}
