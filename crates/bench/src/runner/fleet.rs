//! All workers of a run, addressed as one.

use futures_util::future::try_join_all;
use riverrun_measure::process::ProcessUsage;
use serde::Serialize;

use super::error::RunError;
use crate::plan::{ConsumerPlan, Plan};
use crate::process::ProcessRun;
use crate::worker::{HeldByGroup, Load, LoadShare, Order, RemoteWorker, Taken, WorkerUsage};

#[derive(Debug)]
enum Member {
    Here(Box<Load>),
    Elsewhere(Box<RemoteWorker>),
}

impl Member {
    async fn order(&mut self, order: Order) -> Result<(), RunError> {
        match self {
            Self::Here(load) => {
                load.order(order).await;
                Ok(())
            }
            Self::Elsewhere(worker) => worker.order(order).await,
        }
    }

    async fn take(&mut self) -> Result<Taken, RunError> {
        match self {
            Self::Here(load) => Ok(load.take()),
            Self::Elsewhere(worker) => worker.take().await,
        }
    }

    async fn held(&mut self) -> Result<HeldByGroup, RunError> {
        match self {
            Self::Here(load) => Ok(load.held()),
            Self::Elsewhere(worker) => worker.held().await,
        }
    }

    async fn finish(self) -> Result<(), RunError> {
        match self {
            Self::Here(load) => {
                load.finish().await;
                Ok(())
            }
            Self::Elsewhere(worker) => worker.finish().await,
        }
    }
}

/// The workers of a run.
#[derive(Debug)]
pub(super) struct Fleet {
    members: Vec<Member>,
}

impl Fleet {
    /// Sets up producers and consumers: in this process, or spread over the workers at these addresses.
    pub(super) async fn prepare(
        plan: &Plan,
        bootstrap: &str,
        addresses: &[String],
    ) -> Result<Self, RunError> {
        let shares = split(plan, bootstrap, addresses.len().max(1));
        let mut fleet = Self { members: Vec::new() };
        if addresses.is_empty() {
            for share in shares {
                let load = Load::prepare(share).await?;
                fleet.members.push(Member::Here(Box::new(load)));
            }
            return Ok(fleet);
        }
        let prepare =
            addresses.iter().zip(shares).map(|(address, share)| RemoteWorker::prepare(address, share));
        for worker in try_join_all(prepare).await? {
            fleet.members.push(Member::Elsewhere(Box::new(worker)));
        }
        Ok(fleet)
    }

    /// Loads in this process, unchanged.
    #[cfg(test)]
    pub(super) fn of(loads: impl IntoIterator<Item = Load>) -> Self {
        Self { members: loads.into_iter().map(|load| Member::Here(Box::new(load))).collect() }
    }

    pub(super) async fn order(&mut self, order: Order) -> Result<(), RunError> {
        try_join_all(self.members.iter_mut().map(|member| member.order(order))).await.map(drop)
    }

    /// The report of all workers since the last one.
    pub(super) async fn take(&mut self) -> Result<Taken, RunError> {
        let mut all = Taken::default();
        for taken in try_join_all(self.members.iter_mut().map(Member::take)).await? {
            all.merge(&taken);
        }
        Ok(all)
    }

    /// Partitions and members of each group, over all workers.
    pub(super) async fn held(&mut self) -> Result<HeldByGroup, RunError> {
        let mut all = HeldByGroup::new();
        for held in try_join_all(self.members.iter_mut().map(Member::held)).await? {
            for (group, held) in held {
                all.entry(group).or_default().add(held);
            }
        }
        Ok(all)
    }

    /// Use of the workers' processes so far, for workers in other processes.
    pub(super) async fn usage(&mut self) -> Result<Vec<(String, WorkerUsage)>, RunError> {
        let elsewhere = self.members.iter_mut().filter_map(|member| match member {
            Member::Here(_) => None,
            Member::Elsewhere(worker) => Some(worker),
        });
        let ask = elsewhere.map(async |worker| {
            let usage = worker.usage().await?;
            Ok::<_, RunError>((worker.address().to_owned(), usage))
        });
        try_join_all(ask).await
    }

    pub(super) async fn finish(self) -> Result<(), RunError> {
        try_join_all(self.members.into_iter().map(Member::finish)).await.map(drop)
    }
}

/// Use of a worker's process in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerRun {
    /// Its address.
    pub address: String,
    /// Its use of processor and memory.
    #[serde(flatten)]
    pub used: ProcessRun,
}

/// Use of the workers' processes in a run.
///
/// Invariants: one `before` for each run, in the same order.
#[derive(Debug)]
pub(super) struct FleetUsage {
    before: Vec<ProcessUsage>,
    runs: Vec<WorkerRun>,
}

impl FleetUsage {
    /// Begins with their use so far.
    pub(super) fn begin(now: Vec<(String, WorkerUsage)>) -> Self {
        let before = now.iter().map(|(_, usage)| usage.used).collect();
        let begin = |(address, usage): (String, WorkerUsage)| {
            let mut used = ProcessRun { pid: usage.pid, ..ProcessRun::default() };
            used.look(&usage.used, &usage.used);
            WorkerRun { address, used }
        };
        Self { before, runs: now.into_iter().map(begin).collect() }
    }

    /// Takes their use so far, for the same workers in the same order.
    pub(super) fn sample(&mut self, now: &[(String, WorkerUsage)]) {
        for ((run, before), (_, now)) in self.runs.iter_mut().zip(&self.before).zip(now) {
            run.used.look(before, &now.used);
        }
    }

    /// Their use in the run.
    pub(super) fn finish(self) -> Vec<WorkerRun> {
        self.runs
    }
}

/// The shares of `count` workers: producers in blocks, so that their numbers stay together, and consumers in turn, so
/// that the members of a group are spread. Shares differ by one at most.
fn split(plan: &Plan, bootstrap: &str, count: usize) -> Vec<LoadShare> {
    let (each, more) = (plan.producers.len() / count, plan.producers.len() % count);
    let mut before = 0;
    let part = |index: usize| {
        let end = before + each + usize::from(index < more);
        let producers = plan.producers[before..end].to_vec();
        let producers_before = before;
        before += producers.len();
        let own = |(at, _): &(usize, &ConsumerPlan)| at % count == index;
        LoadShare {
            bootstrap: bootstrap.to_owned(),
            load: plan.load.clone(),
            producers,
            producers_before,
            producers_total: plan.producers.len(),
            consumers: plan.consumers.iter().enumerate().filter(own).map(|(_, one)| one.clone()).collect(),
        }
    };
    (0..count).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omb::{Driver, PlanOptions, Workload, to_plan};

    #[test]
    fn use_before_the_run_does_not_count() {
        let used = |cpu_s, resident_bytes| {
            let used = ProcessUsage { cpu_s, resident_bytes, peak_bytes: 9, private_bytes: 2 };
            vec![("h:1".to_owned(), WorkerUsage { pid: 7, used })]
        };
        let mut usage = FleetUsage::begin(used(5.0, 3));
        usage.sample(&used(6.0, 8));
        usage.sample(&used(7.5, 4));
        let expected = ProcessRun { pid: 7, cpu_s: 2.5, resident_bytes_max: 8, peak_bytes: 9, ended: false };
        assert_eq!(usage.finish(), [WorkerRun { address: "h:1".to_owned(), used: expected }]);
    }

    #[test]
    fn workers_share_all_producers_and_consumers_once() {
        let text = "name: n\ntopics: 1\npartitionsPerTopic: 5\nmessageSize: 4\nsubscriptionsPerTopic: 1
consumerPerSubscription: 4\nproducersPerTopic: 5\nproducerRate: 7\ntestDurationMinutes: 1\n";
        let workload = Workload::parse("w", text).expect("a workload");
        let plan = to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan");
        let shares = split(&plan, "a:1", 3);
        let producers: Vec<_> =
            shares.iter().map(|one| (one.producers_before, one.producers.len())).collect();
        assert_eq!(producers, [(0, 2), (2, 2), (4, 1)]);
        assert_eq!(shares.iter().map(|one| one.consumers.len()).collect::<Vec<_>>(), [2, 1, 1]);
        assert!(shares.iter().all(|one| one.producers_total == 5));
        let counts =
            |workers| split(&plan, "a:1", workers).iter().map(|one| one.producers.len()).collect::<Vec<_>>();
        assert_eq!(counts(4), [2, 1, 1, 1]);
        assert_eq!(counts(9), [1, 1, 1, 1, 1, 0, 0, 0, 0]);
    }
}
