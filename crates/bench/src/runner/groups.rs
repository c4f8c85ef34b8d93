//! Completeness of a run's groups: no member without a partition while there is one for it, and no partition without a
//! reader.
//!
//! Pure: takes the numbers of members and partitions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::topics::Sizes;
use crate::plan::{Plan, Source};
use crate::worker::{Held, HeldByGroup};

/// Completeness of a run's groups when its measurement began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberFigures {
    /// Members of all groups.
    pub members: u64,
    /// Number of them for which there are partitions.
    pub expected: u64,
    /// Number of them that had partitions.
    pub assigned: u64,
    /// Partitions, over all groups, that no member had.
    pub unassigned_partitions: u64,
    /// Groups.
    pub groups: u64,
    /// Number of groups that were not complete.
    pub incomplete_groups: u64,
}

impl MemberFigures {
    /// A note on groups that were not complete.
    pub(super) fn note(&self) -> Option<String> {
        let Self { members, expected, assigned, unassigned_partitions, groups, incomplete_groups } = self;
        (*incomplete_groups > 0).then(|| {
            format!(
                "{incomplete_groups} of {groups} groups were not complete when the measurement began: of {members} members, for {expected} of which there are partitions, {assigned} had some, and {unassigned_partitions} partitions had no reader. Until the others had theirs, fewer consumers read than the workload says"
            )
        })
    }
}

/// One group when it is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Complete {
    members: u64,
    /// Fewest members with partitions, and fewest partitions: a topic may get more.
    held: Held,
}

/// The groups of a run when they are complete.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<String, Complete>);

impl Groups {
    /// The groups of a plan whose topics have these sizes. All members of a group read the same topics. If groups share
    /// out each topic apart, the members that have the most of one topic have the most of every other, too.
    pub(super) fn new(plan: &Plan, sizes: &Sizes, shares_each_topic_apart: bool) -> Self {
        let mut groups = BTreeMap::<String, Complete>::new();
        for consumer in &plan.consumers {
            let Source::Group(topics) = &consumer.source else { continue };
            let group = groups.entry(consumer.subscription.clone()).or_default();
            group.members += 1;
            if group.members == 1 {
                let of_topics = || topics.iter().filter_map(|topic| sizes.get(topic)).copied();
                group.held.partitions = of_topics().sum();
                group.held.members =
                    if shares_each_topic_apart { of_topics().max() } else { Some(group.held.partitions) }
                        .unwrap_or_default();
            }
        }
        for group in groups.values_mut() {
            group.held.members = group.held.members.min(group.members);
        }
        Self(groups)
    }

    /// Their completeness, given the members' partitions; `None` without groups.
    pub(super) fn look(&self, held: &HeldByGroup) -> Option<MemberFigures> {
        if self.0.is_empty() {
            return None;
        }
        let mut figures = MemberFigures::default();
        for (name, complete) in &self.0 {
            let held = held.get(name).copied().unwrap_or_default();
            let unassigned = complete.held.partitions.saturating_sub(held.partitions);
            figures.members += complete.members;
            figures.expected += complete.held.members;
            figures.assigned += held.members.min(complete.members);
            figures.unassigned_partitions += unassigned;
            figures.groups += 1;
            figures.incomplete_groups += u64::from(unassigned > 0 || held.members < complete.held.members);
        }
        Some(figures)
    }

    /// Whether all are complete, given the members' partitions.
    pub(super) fn are_complete(&self, held: &HeldByGroup) -> bool {
        self.look(held).is_none_or(|figures| figures.incomplete_groups == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omb::{Driver, PlanOptions, Workload, to_plan};

    fn plan(partitions: u32, members: u32) -> Plan {
        let text = format!(
            "name: n\ntopics: 1\npartitionsPerTopic: {partitions}\nmessageSize: 8\nsubscriptionsPerTopic: 2
consumerPerSubscription: {members}\nproducersPerTopic: 1\nproducerRate: 7\ntestDurationMinutes: 1\n"
        );
        let workload = Workload::parse("w", &text).expect("a workload");
        to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan")
    }

    fn sizes(plan: &Plan) -> Sizes {
        plan.topics.iter().map(|topic| (topic.name.clone(), topic.partitions.into())).collect()
    }

    /// Both groups, each with its numbers of members with partitions, and of partitions.
    fn both(plan: &Plan, [first, second]: [(u64, u64); 2]) -> HeldByGroup {
        let held = |(members, partitions)| Held { members, partitions };
        let name = |consumer: usize| plan.consumers[consumer].subscription.clone();
        [(name(0), held(first)), (name(plan.consumers.len() - 1), held(second))].into()
    }

    #[test]
    fn groups_are_complete_with_all_members_and_partitions() {
        let plan = plan(5, 3);
        let groups = Groups::new(&plan, &sizes(&plan), true);
        let look = |held| groups.look(&both(&plan, held)).expect("there are groups");
        let incomplete =
            [[(3, 5), (2, 5)], [(3, 4), (3, 5)], [(3, 5), (0, 0)]].map(|held| look(held).incomplete_groups);
        assert_eq!(incomplete, [1; 3]);
        assert!(!groups.are_complete(&HeldByGroup::new()), "no member has partitions");
        let figures = look([(3, 5), (2, 4)]);
        let expected = MemberFigures {
            members: 6,
            expected: 6,
            assigned: 5,
            unassigned_partitions: 1,
            groups: 2,
            incomplete_groups: 1,
        };
        assert_eq!(figures, expected);
        let note = figures.note().expect("there is something to know");
        assert!(
            note.starts_with("1 of 2 groups were not complete when the measurement began: of 6"),
            "{note}"
        );
        assert_eq!(look([(3, 5), (3, 6)]).note(), None, "of a topic that has got another partition");
        assert!(groups.are_complete(&both(&plan, [(3, 5), (3, 5)])));
    }

    #[test]
    fn members_without_a_possible_partition_are_not_expected() {
        let plan = plan(2, 3);
        let groups = Groups::new(&plan, &sizes(&plan), false);
        let figures = groups.look(&both(&plan, [(2, 2), (2, 2)])).expect("there are groups");
        assert_eq!((figures.members, figures.expected, figures.incomplete_groups), (6, 4, 0));
    }

    #[test]
    fn largest_topic_decides_if_topics_are_shared_apart() {
        let mut plan = plan(1, 3);
        let topics = ["t", "u", "unknown"].map(str::to_owned).to_vec();
        plan.consumers.truncate(3);
        plan.consumers.iter_mut().for_each(|one| one.source = Source::Group(topics.clone()));
        let sizes = [("t", 2), ("u", 1), ("other", 9)].map(|(name, size)| (name.to_owned(), size)).into();
        let expected = |apart| {
            let groups = Groups::new(&plan, &sizes, apart);
            let figures = groups.look(&HeldByGroup::new()).expect("there is a group");
            (figures.expected, figures.unassigned_partitions)
        };
        assert_eq!((expected(true), expected(false)), ((2, 3), (3, 3)));
    }

    #[test]
    fn reader_without_a_group_is_not_expected() {
        let mut plan = plan(2, 1);
        plan.consumers.iter_mut().for_each(|one| one.source = Source::Partitions(Vec::new()));
        let groups = Groups::new(&plan, &sizes(&plan), true);
        assert_eq!(groups.look(&HeldByGroup::new()), None);
        assert!(groups.are_complete(&HeldByGroup::new()));
    }
}
