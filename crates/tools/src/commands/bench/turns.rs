//! The order in which the runs of one command are made, and the topics that go from one of them to the next.

use std::collections::BTreeSet;

use riverrun_bench::jobs::Job;
use riverrun_bench::plan::Plan;
use riverrun_bench::runner::ServerTarget;

/// A job, and where it is to be run.
pub(super) struct Work {
    job: Job,
    servers: Vec<ServerTarget>,
    /// Topics that are made for it.
    made: BTreeSet<String>,
    /// Topics that it reads.
    read: BTreeSet<String>,
}

impl Work {
    pub(super) fn new(job: Job, servers: Vec<ServerTarget>, plan: &Plan) -> Self {
        let made = plan.topics.iter().map(|topic| topic.name.clone()).collect();
        let read = plan.read_topics().into_keys().map(str::to_owned).collect();
        Self { job, servers, made, read }
    }
}

/// One run.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) job: &'a Job,
    pub(super) server: &'a ServerTarget,
    pub(super) round: u32,
    work: &'a Work,
}

impl Turn<'_> {
    pub(super) fn makes(&self, topic: &str) -> bool {
        self.work.made.contains(topic)
    }

    /// Whether it reads a topic that it finds there.
    pub(super) fn finds(&self, topic: &str) -> bool {
        self.work.read.contains(topic) && !self.makes(topic)
    }
}

/// All runs, in their order. Servers take turns to begin, so that none always has a rested machine.
pub(super) fn turns(work: &[Work], rounds: u32) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for round in 1..=rounds {
        for one in work {
            let first = one.job.first_server(&work[0].job, one.servers.len(), round);
            let servers = one.servers[first..].iter().chain(&one.servers[..first]);
            turns.extend(servers.map(|server| Turn { job: &one.job, server, round, work: one }));
        }
    }
    turns
}

/// Whether a topic of a server stays for one of the runs that are left: until another makes it anew.
pub(super) fn is_read_later(left: &[Turn<'_>], server: &ServerTarget, topic: &str) -> bool {
    let on_it = left.iter().filter(|turn| turn.server.bootstrap == server.bootstrap);
    on_it.clone().find(|turn| turn.makes(topic) || turn.finds(topic)).is_some_and(|turn| turn.finds(topic))
}

#[cfg(test)]
mod tests {
    use riverrun_bench::jobs::{DriverFile, jobs};
    use riverrun_bench::omb::PlanOptions;

    use super::*;

    /// The work of specs that are named one after the other, on two servers.
    fn specs<const N: usize>(all: [(&str, &str); N]) -> Vec<Work> {
        all.iter().enumerate().map(|(others, (class, topics))| spec(class, topics, others)).collect()
    }

    fn spec(class: &str, topics: &str, others: usize) -> Work {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s.json");
        let text = format!(
            r#"{{"class": "x.{class}Spec", "durationMs": 9, "maxMessages": 9, "activeTopics": {topics}}}"#
        );
        std::fs::write(&path, text).expect("room");
        let job = jobs(&path.display().to_string(), &[DriverFile::default_driver()])
            .expect("a spec")
            .remove(0)
            .after(others);
        let plan = job.plan(&PlanOptions::default(), 1.0).expect("a plan");
        let servers = ["a=h:1", "b=h:2"].map(|server| server.parse().expect("a server"));
        Work::new(job, servers.into(), &plan)
    }

    #[test]
    fn a_topic_stays_until_nobody_reads_it_or_another_makes_it_anew() {
        let produce = ("ProduceBench", r#"{"foo[1-2]": {}, "other": {}}"#);
        let (some, all) = (r#"["foo1"]"#, r#"["foo1:3", "foo2"]"#);
        let work = specs([produce, ("ConsumeBench", some), ("ConsumeBench", all), produce]);
        let turns = turns(&work, 2);
        let order: Vec<_> = turns.iter().map(|turn| (turn.server.name.as_str(), turn.round)).collect();
        assert_eq!(order[..4], [("a", 1), ("b", 1), ("b", 1), ("a", 1)], "servers take turns");
        let of_server: Vec<_> = (0..turns.len()).filter(|at| turns[*at].server.name == "b").collect();
        let stays = |at: &usize| {
            let is_read = |topic: &&str| is_read_later(&turns[at + 1..], turns[*at].server, topic);
            ["foo1", "foo2", "other"].into_iter().filter(is_read).collect::<Vec<_>>()
        };
        let both = vec!["foo1", "foo2"];
        let round = [both.clone(), both, Vec::new(), Vec::new()];
        assert_eq!(of_server.iter().map(stays).collect::<Vec<_>>(), [round.clone(), round].concat());
    }

    #[test]
    fn topic_stays_only_if_a_later_run_reads_anothers_records() {
        let work = specs([("RoundTripWorkload", r#"{"foo": {}}"#), ("ConsumeBench", r#"["foo"]"#)]);
        let turns = turns(&work, 2);
        let stays = |at: usize| is_read_later(&turns[at + 1..], turns[at].server, "foo");
        assert_eq!(
            (0..turns.len()).map(stays).collect::<Vec<_>>(),
            [true, true, false, false, true, true, false, false]
        );
    }
}
