//! One run: a plan on one server, from its topics to its figures.
//!
//! Guarantees:
//! - Records sent within the measurement are waited for after it, so that no latency is cut off at its end; those that
//!   are missing even then are reported.
//! - Rates count the records acked and read within it.
//! - Topics are deleted when it is over, however it ended.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use riverrun_measure::pacing::Rate;
use riverrun_measure::process::ProcessWatch;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::backlog::BacklogWatch;
use super::disk_full::DiskFull;
use super::error::RunError;
use super::figures::{Figures, Recorder, Second};
use super::fleet::{Fleet, FleetUsage};
use super::groups::Groups;
use super::search::{RateSearch, SearchOptions};
use super::target::ServerTarget;
use super::topics::{LogDirFigures, Topics};
use crate::environment::TopicDurability;
use crate::plan::{Plan, TargetRate};
use crate::process::RunUsage;
use crate::worker::{Counts, Order, RemoteWorker, Taken, check_settings, shares_each_topic_apart};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same while a run may end with its number of records, so that its length is known as exactly.
const LOOK_OFTEN: Duration = Duration::from_millis(50);
/// Producers and consumers must be ready within this time, plus a time for each topic. It is long for the sake of
/// groups: a member learns by its next heartbeat, mostly three seconds later, that others have joined, and if
/// partitions move between members it takes a second round.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Additional time for each partition and each client.
const READY_TIMEOUT_EACH: Duration = Duration::from_millis(20);
/// Time between two looks at whether they are ready.
const READY_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time between two looks for late records; many times the time in which a thread sees an order.
const LATE_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait, after the end, for records that were sent.
const LATE_TIMEOUT: Duration = Duration::from_mins(1);
/// A server that lives answers within this time where its partitions lie, and how durable they are.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest reading of a backlog: this many times the measurement, plus ten minutes.
const DRAIN_FACTOR: u32 = 4;

/// Options of runs, beside their plans.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Addresses of workers; empty for a load from this process.
    pub workers: Vec<String>,
    /// Options of the search for a rate.
    pub search: SearchOptions,
    /// The directory whose file system a plan may fill; `None` if it may fill none.
    pub fill_disk: Option<PathBuf>,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A part of it begins.
    Phase(&'a str),
    /// A second is over.
    Second(&'a Second),
}

/// Result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// Its measurements.
    pub figures: Figures,
    /// Durability of the acked records.
    pub durability: Option<TopicDurability>,
    /// Log dirs of its partitions.
    pub log_dirs: Vec<LogDirFigures>,
    /// The error of its end, after all that was measured: clients may still run, topics may have stayed.
    pub left: Option<RunError>,
}

/// Checks for errors that a run would meet before it sends anything: a setting that the client refuses, a server or a
/// process that does not exist, topics that the server refuses, or that hold records of others. Leaves nothing behind.
/// `sent_to` names the topics of the server that keep the records of earlier runs; those of this run are added.
pub async fn check(
    plan: &Plan,
    server: &ServerTarget,
    options: &RunOptions,
    sent_to: &mut BTreeSet<String>,
) -> Result<(), RunError> {
    server.pid.map(ProcessWatch::new).transpose()?;
    DiskFull::new(plan, options.fill_disk.as_deref())?;
    check_settings(&plan.load)?;
    if plan.disk_full.is_some() && !server.is_here().await {
        let reason = "the server is on another machine, whose disk is out of reach";
        return Err(RunError::DiskFull(reason.to_owned()));
    }
    Topics::check(&server.bootstrap, plan, sent_to).await
}

/// Checks the workers, which all runs share.
pub async fn check_workers(options: &RunOptions) -> Result<(), RunError> {
    for address in &options.workers {
        RemoteWorker::connect(address).await?;
    }
    Ok(())
}

/// Runs a plan on a server, unless `stop` comes first: then clients end, topics are deleted, and the run fails. Each
/// call of `stop` waits for the next request to stop; at the second one, topics that are not deleted yet stay.
pub async fn run(
    plan: &Plan,
    server: &ServerTarget,
    options: &RunOptions,
    tell: &mut dyn FnMut(Event<'_>),
    mut stop: impl AsyncFnMut(),
) -> Result<RunOutcome, RunError> {
    let watch = server.pid.map(ProcessWatch::new).transpose()?;
    let disk = DiskFull::new(plan, options.fill_disk.as_deref())?;
    let unknown_settings = check_settings(&plan.load)?;
    tell(Event::Phase("topics"));
    let mut topics = tokio::select! {
        biased;
        () = stop() => return Err(RunError::Stopped),
        topics = Topics::connect(&server.bootstrap, plan) => topics?,
    };
    let mut begun = None;
    let outcome = tokio::select! {
        biased;
        () = stop() => Err(RunError::Stopped),
        outcome = with_topics(plan, server, options, (&mut topics, &mut begun, watch, disk), tell) => outcome,
    };
    let is_stopped = matches!(outcome, Err(RunError::Stopped));
    tell(Event::Phase(if is_stopped { ENDS_STOPPED } else { ENDS }));
    let end = async {
        // Before the deletion of topics: a client that still sends makes the server create them once more.
        let ended = match begun {
            Some(run) => run.end().await,
            None => Ok(()),
        };
        topics.delete().await;
        ended
    };
    let mut end = pin!(end);
    if !is_stopped {
        tokio::select! {
            biased;
            ended = &mut end => return concluded(outcome, ended, unknown_settings),
            () = stop() => tell(Event::Phase(ENDS_STOPPED)),
        }
    }
    let ended = tokio::select! {
        biased;
        ended = &mut end => ended,
        () = stop() => Err(RunError::StoppedAtOnce),
    };
    concluded(outcome, ended, unknown_settings)
}

/// Phases of a run's end, without and with a request to stop.
const ENDS: &str = "its clients end and its topics are deleted";
const ENDS_STOPPED: &str = "its topics are deleted; to leave them, stop it again";

/// The outcome of a run, given its measurements and the result of its end. Measurements are kept however it ended.
fn concluded(
    outcome: Result<RunOutcome, RunError>,
    ended: Result<(), RunError>,
    notes: Vec<String>,
) -> Result<RunOutcome, RunError> {
    match (outcome, ended) {
        (Ok(mut outcome), ended) => {
            outcome.figures.notes.extend(notes);
            outcome.left = ended.err();
            Ok(outcome)
        }
        (Err(_), Err(at_once @ RunError::StoppedAtOnce)) => Err(at_once),
        (Err(error), _) => Err(error),
    }
}

/// All of a run but its end. Leaves in `begun` what has to be ended, also after an error.
async fn with_topics<'a>(
    plan: &'a Plan,
    server: &ServerTarget,
    options: &RunOptions,
    (topics, begun, watch, disk): (&mut Topics, &mut Option<Run<'a>>, Option<ProcessWatch>, Option<DiskFull>),
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<RunOutcome, RunError> {
    let sizes = topics.make(plan).await?;
    let groups = Groups::new(plan, &sizes, shares_each_topic_apart(&plan.load)?);
    let before = topics.durability(plan).await?;
    tell(Event::Phase("clients"));
    let fleet = Fleet::prepare(plan, &server.bootstrap, &options.workers).await?;
    let run = begun.insert(Run::new(plan, groups, fleet, options.search, disk));
    let mut figures = run.all(watch, tell).await?;
    // A server that is gone cannot answer: the time is bounded.
    let asked = async { (topics.log_dirs(plan).await, topics.durability(plan).await.ok().flatten()) };
    let (log_dirs, after) = timeout(ASK_TIMEOUT, asked).await.unwrap_or_default();
    figures.notes.extend(before.as_ref().zip(after.as_ref()).and_then(|(before, after)| lost(before, after)));
    let durability = TopicDurability::lesser(before, after);
    if let Some(reached) = &durability {
        figures.notes.extend(missed(plan, reached));
    }
    Ok(RunOutcome { figures, durability, log_dirs, left: None })
}

/// A note if acked records are less durable than the plan asks.
fn missed(plan: &Plan, reached: &TopicDurability) -> Option<String> {
    let wanted = plan.durability?.level().syncs_locally();
    (reached.acked_when_synced != Some(wanted)).then(|| {
        let word = if wanted { "sync" } else { "async" };
        format!("durability {word} was wanted, but the server reports another for the topic")
    })
}

/// A note if the durability changed within the run.
fn lost(before: &TopicDurability, after: &TopicDurability) -> Option<String> {
    (before != after)
        .then(|| format!("durability changed within the run, from {before} to {after}: the weaker is shown"))
}

/// A run under way.
///
/// Invariants: `totals` counts everything since the clients were made.
struct Run<'a> {
    plan: &'a Plan,
    groups: Groups,
    fleet: Fleet,
    ticks: Interval,
    totals: Counts,
    error: Option<String>,
    search: Option<RateSearch>,
    searched: Instant,
    options: SearchOptions,
    disk: Option<DiskFull>,
    /// Whether records of a warm-up that counts apart were still under way when the measurement began.
    is_warmup_left: bool,
}

impl<'a> Run<'a> {
    fn new(
        plan: &'a Plan,
        groups: Groups,
        fleet: Fleet,
        options: SearchOptions,
        disk: Option<DiskFull>,
    ) -> Self {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let search = (plan.rate == TargetRate::Search).then(|| RateSearch::new(options));
        Self {
            plan,
            groups,
            fleet,
            ticks,
            totals: Counts::default(),
            error: None,
            search,
            searched: Instant::now(),
            options,
            disk,
            is_warmup_left: false,
        }
    }

    /// Frees the disk and ends the clients.
    async fn end(mut self) -> Result<(), RunError> {
        self.disk = None;
        self.fleet.finish().await
    }

    async fn all(
        &mut self,
        watch: Option<ProcessWatch>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Figures, RunError> {
        self.wait_until_ready(watch.as_ref()).await?;
        if !self.plan.warmup.is_zero() {
            tell(Event::Phase("warm-up"));
            self.warm_up(watch.as_ref(), tell).await?;
        }
        tell(Event::Phase("measurement"));
        let members = self.groups.look(&self.fleet.held().await?);
        check_alive(watch.as_ref())?;
        let mut usage = (usage(watch.as_ref())?, FleetUsage::begin(self.fleet.usage().await?));
        let recorder = self.measure(&mut usage, tell).await?;
        // As with rates: processor time spent on late records is not part of the measurement.
        let mut runs = usage.0.finish().into_iter();
        let mut figures = self.wait_for_late(recorder).await?;
        figures.members = members;
        figures.workers = usage.1.finish();
        figures.client = runs.next();
        figures.server = runs.next();
        self.note(&mut figures);
        Ok(figures)
    }

    /// Takes the reports since the last time.
    async fn take(&mut self) -> Result<Taken, RunError> {
        let taken = self.fleet.take().await?;
        self.totals.add(&taken.counts);
        if let Some(error) = &taken.error {
            self.error.get_or_insert_with(|| error.clone());
        }
        Ok(taken)
    }

    async fn tick(&mut self) -> Result<Taken, RunError> {
        self.ticks.tick().await;
        self.take().await
    }

    /// Unread records of the groups that read from the start.
    fn backlog(&self) -> u64 {
        let readers = self.plan.readers(false) as u64;
        (self.totals.acked * readers).saturating_sub(self.totals.received)
    }

    /// Records that were neither acked nor refused yet.
    fn unacked(&self) -> u64 {
        self.totals.sent.saturating_sub(self.totals.acked + self.totals.failed)
    }

    /// Each producer sends a record, which each group reads. Groups are waited for until they are complete: a member
    /// that joins late reads nothing until then, and the measurement would be of fewer members. The wait is no longer
    /// than that for records: a group may have members of other programs.
    async fn wait_until_ready(&mut self, watch: Option<&ProcessWatch>) -> Result<(), RunError> {
        let partitions: u32 = self.plan.topics.iter().map(|topic| topic.partitions).sum();
        let clients = self.plan.producers.len() + self.plan.consumers.len();
        let each = partitions.saturating_add(u32::try_from(clients).unwrap_or(u32::MAX));
        let allowed = READY_TIMEOUT + READY_TIMEOUT_EACH.saturating_mul(each);
        let sent = self.plan.producers.len() as u64;
        let expected = sent * self.plan.readers(false) as u64;
        self.fleet.order(Order::Produce { rate: None, quota: Some(sent) }).await?;
        let begun = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(READY_LOOK_EVERY).await;
            check_alive(watch)?;
            self.take().await?;
            let is_late = begun.elapsed() > allowed;
            if self.totals.acked >= sent && self.totals.received >= expected {
                if is_late || self.groups.are_complete(&self.fleet.held().await?) {
                    break;
                }
            } else if is_late || self.totals.failed > 0 {
                let Counts { acked, received, .. } = self.totals;
                let (after_s, error) = (begun.elapsed().as_secs(), self.error.clone());
                return Err(RunError::NotReady { after_s, sent, acked, received, expected, error });
            }
        }
        self.fleet.order(Order::StopProducing).await
    }

    /// The rate at which producers are to send now.
    fn wanted_rate(&self) -> Option<Rate> {
        match (self.plan.rate, &self.search) {
            (TargetRate::Fixed(rate), _) => Some(rate),
            (_, Some(search)) => Some(Rate::nearest(search.rate())),
            _ => None,
        }
    }

    async fn produce(&mut self, quota: Option<u64>) -> Result<(), RunError> {
        self.searched = Instant::now();
        self.fleet.order(Order::Produce { rate: self.wanted_rate(), quota }).await
    }

    /// Without producers, consumers have waited for the measurement to begin.
    async fn begin_reading(&mut self) -> Result<(), RunError> {
        if self.plan.producers.is_empty() {
            self.fleet.order(Order::ResumeConsumers).await?;
        }
        Ok(())
    }

    async fn warm_up(
        &mut self,
        watch: Option<&ProcessWatch>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), RunError> {
        self.produce(None).await?;
        self.ticks.reset();
        let mut recorder = Recorder::new();
        self.begin_reading().await?;
        while recorder.elapsed() < self.plan.warmup {
            let taken = self.tick().await?;
            check_alive(watch)?;
            self.go_on_searching().await?;
            tell(Event::Second(recorder.add(&taken, self.backlog(), self.wanted_rate().map(Rate::get))));
        }
        if self.plan.messages.is_some() {
            // Another load of a number of records follows, in which no record of this one may count.
            self.end_load(|_| {}).await?;
            self.is_warmup_left = self.is_something_left();
        }
        Ok(())
    }

    async fn go_on_searching(&mut self) -> Result<(), RunError> {
        if self.judge_rate() { self.produce(None).await } else { Ok(()) }
    }

    /// Makes the search judge a period that is over, and returns whether one is.
    fn judge_rate(&mut self) -> bool {
        let elapsed = self.searched.elapsed();
        let read =
            (self.plan.readers(false) > 0).then(|| (self.totals.received, self.plan.readers(false) as u64));
        match &mut self.search {
            // Looks come a little early or late.
            Some(search) if elapsed + LOOK_EVERY / 2 >= self.options.period => {
                search.next(elapsed, self.totals.acked, read);
                true
            }
            _ => false,
        }
    }

    async fn measure(
        &mut self,
        usage: &mut (RunUsage, FleetUsage),
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Recorder, RunError> {
        let mut backlog = BacklogWatch::new(self.plan);
        if let Some(order) = backlog.as_ref().and_then(BacklogWatch::first_order) {
            self.fleet.order(order).await?;
        }
        let is_sending = !self.plan.producers.is_empty();
        if is_sending && (self.plan.warmup.is_zero() || self.plan.messages.is_some()) {
            self.produce(self.plan.messages).await?;
        }
        self.ticks.reset();
        let mut recorder = Recorder::new();
        if self.plan.warmup.is_zero() {
            self.begin_reading().await?;
        }
        self.disk.iter_mut().for_each(DiskFull::begin);
        loop {
            let (taken, done) = self.second(&recorder, backlog.as_mut()).await?;
            usage.0.sample();
            usage.1.sample(&self.fleet.usage().await?);
            tell(Event::Second(recorder.add(&taken, self.backlog(), self.wanted_rate().map(Rate::get))));
            if done || self.is_over(&recorder, backlog.as_ref()) {
                self.judge_rate();
                break;
            }
            self.go_on_searching().await?;
        }
        recorder.figures.backlog = backlog.map(BacklogWatch::finish);
        recorder.figures.search = self.search.as_ref().and_then(RateSearch::found);
        // Dropped here, so that the disk is free during the wait for late records.
        recorder.figures.disk_full = self.disk.take().map(|disk| disk.figures());
        Ok(recorder)
    }

    /// Waits until a second is over, or the run is done, and returns whether it is.
    async fn second(
        &mut self,
        recorder: &Recorder,
        mut backlog: Option<&mut BacklogWatch>,
    ) -> Result<(Taken, bool), RunError> {
        let mut taken = Taken::default();
        let may_be_done = backlog.is_some() || self.disk.is_some() || self.plan.messages.is_some();
        loop {
            let ticked = tokio::select! {
                biased;
                _ = self.ticks.tick() => true,
                () = tokio::time::sleep(LOOK_OFTEN), if may_be_done => false,
            };
            let latest = self.take().await?;
            taken.merge(&latest);
            if let Some(disk) = &mut self.disk {
                disk.look(&latest.counts).map_err(|error| RunError::DiskFull(error.to_string()))?;
            }
            if let Some(backlog) = &mut backlog {
                for order in backlog.look(&latest, &self.totals) {
                    self.fleet.order(order).await?;
                }
            }
            let done = match &backlog {
                Some(backlog) => backlog.is_drained() && backlog.reads_alone(),
                None => self.is_done(&recorder.figures.counts, &taken.counts),
            };
            if ticked || done {
                return Ok((taken, done));
            }
        }
    }

    /// Whether the number of records was sent, or read in a run without producers.
    fn is_done(&self, before: &Counts, lately: &Counts) -> bool {
        let mut counts = *before;
        counts.add(lately);
        let done =
            if self.plan.producers.is_empty() { counts.received } else { counts.acked + counts.failed };
        self.plan.messages.is_some_and(|all| done >= all)
    }

    /// Whether the time of the run is over.
    fn is_over(&self, recorder: &Recorder, backlog: Option<&BacklogWatch>) -> bool {
        let elapsed = recorder.elapsed();
        if let Some(backlog) = backlog {
            let given_up = self.plan.test * DRAIN_FACTOR + Duration::from_mins(10);
            return (backlog.is_drained() && elapsed >= self.plan.test) || elapsed >= given_up;
        }
        // Half a second early is nearer to the wanted time than half a second late.
        elapsed + LOOK_EVERY / 2 >= self.plan.test
    }

    /// Waits for the acks of the records sent, and for their reading.
    async fn wait_for_late(&mut self, mut recorder: Recorder) -> Result<Figures, RunError> {
        self.end_load(|taken| recorder.add_late(taken)).await?;
        // A thread that still waits for room has not reported the records that came due meanwhile.
        self.fleet.order(Order::GiveUp).await?;
        recorder.add_late(&self.take().await?);
        let (unacked, unread, now) = (self.unacked(), self.backlog(), Instant::now());
        let groups = self.plan.readers(false) as u64;
        recorder.add_unacked(unacked, now);
        recorder.add_unread(unread, groups, now);
        // A consumer's wait does not depend on why a record is missing.
        let read_unacked = self.totals.received.saturating_sub(self.totals.acked * groups);
        recorder.add_undelivered(groups, read_unacked);
        let mut figures = recorder.finish();
        if unacked > 0 {
            figures.notes.push(format!(
                "{unacked} records were neither acked nor refused {} s after the end. They count with their shortest possible wait",
                LATE_TIMEOUT.as_secs()
            ));
        }
        if unread > 0 {
            figures.notes.push(format!(
                "{unread} records were acked and not read {} s after the end. They count with their shortest possible wait",
                LATE_TIMEOUT.as_secs()
            ));
        }
        Ok(figures)
    }

    /// Ends the load and waits for its acks and readers, for a bounded time.
    async fn end_load(&mut self, mut add: impl FnMut(&Taken)) -> Result<(), RunError> {
        self.fleet.order(Order::StopProducing).await?;
        let begun = tokio::time::Instant::now();
        loop {
            // Threads see an order a moment later, and may have sent a record meanwhile: the first look comes after
            // that.
            tokio::time::sleep(LATE_LOOK_EVERY).await;
            add(&self.take().await?);
            if !self.is_something_left() || begun.elapsed() >= LATE_TIMEOUT {
                return Ok(());
            }
        }
    }

    fn is_something_left(&self) -> bool {
        let is_sending = !self.plan.producers.is_empty();
        is_sending && (self.unacked() > 0 || self.backlog() > 0)
    }

    fn note(&self, figures: &mut Figures) {
        let overdue = figures.late.overdue + figures.counts.overdue;
        let failed = figures.late.failed + figures.counts.failed;
        let future = figures.late.from_the_future + figures.counts.from_the_future;
        let unread = figures.backlog.is_some_and(|backlog| !backlog.drained);
        let notes = &mut figures.notes;
        if unread {
            notes.push("the backlog was not read as far as required: the run was given up".to_owned());
        }
        notes.extend(figures.backlog.and_then(|backlog| backlog.short_note()));
        notes.extend(figures.members.and_then(|members| members.note()));
        if self.plan.rate == TargetRate::Search {
            notes.push(
                "the rate was searched for: latencies, and the mean, are also those of rates that were too low or too high"
                    .to_owned(),
            );
        }
        if self.plan.rate == TargetRate::Search && figures.search.is_none_or(|found| !found.is_conclusive()) {
            notes.push(
                "the search ended before any rate proved too high for a whole period: a longer one may find a higher rate".to_owned(),
            );
        }
        if self.is_warmup_left {
            notes.push(format!(
                "{} s after the warm-up not all of it was acked and read: the rest counts in the measurement",
                LATE_TIMEOUT.as_secs()
            ));
        }
        if figures.server.is_some_and(|server| server.ended) {
            notes.push(
                "the server's process ended within the measurement: its processor time and memory are those of the last look before"
                    .to_owned(),
            );
        }
        if figures.disk_full.is_some_and(|disk| disk.first_ack_s.is_none()) {
            notes.push("after the disk was free again, no record was acked within the run".to_owned());
        }
        if overdue > 0 {
            notes.push(format!(
                "{overdue} records were due and not sent when the rate changed or the run ended: the rate was not kept up. They count with the time that they waited"
            ));
        }
        if failed > 0 {
            notes.push(format!("{failed} records could not be delivered. They count with the time waited"));
        }
        if future > 0 {
            notes.push(format!(
                "{future} records were read before they were sent: the workers' clocks differ"
            ));
        }
        notes.extend(self.error.iter().map(|error| format!("first error: {error}")));
    }
}

/// Fails if the server's process has ended, so that no wait is for a dead server.
fn check_alive(watch: Option<&ProcessWatch>) -> Result<(), RunError> {
    match watch {
        Some(watch) if watch.usage().is_err() => Err(RunError::ServerEnded { pid: watch.pid() }),
        _ => Ok(()),
    }
}

/// Watches this process first, then the server's.
fn usage(watch: Option<&ProcessWatch>) -> Result<RunUsage, RunError> {
    let watches = std::iter::once(ProcessWatch::own()?).chain(watch.cloned()).collect();
    Ok(RunUsage::begin(watches)?)
}

#[cfg(test)]
mod tests {
    use riverrun_client::{RebalanceListener as _, Revocation};

    use super::*;
    use crate::omb::{Driver, PlanOptions, Workload, to_plan};
    use crate::process::ProcessRun;
    use crate::worker::tests::{load_of_members, partitions, stalled_load};

    fn plan() -> Plan {
        let text = "name: n\ntopics: 1\npartitionsPerTopic: 1\nmessageSize: 8\nsubscriptionsPerTopic: 2
consumerPerSubscription: 1\nproducersPerTopic: 1\nproducerRate: 7\ntestDurationMinutes: 1\n";
        let workload = Workload::parse("w", text).expect("a workload");
        to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan")
    }

    /// A run without clients.
    async fn idle(plan: &Plan) -> Run<'_> {
        let nobody = Plan { producers: Vec::new(), consumers: Vec::new(), ..plan.clone() };
        let fleet = Fleet::prepare(&nobody, "127.0.0.1:1", &[]).await.expect("there is nobody to connect");
        Run::new(plan, Groups::default(), fleet, SearchOptions::default(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn unread_records_are_counted_and_noted() {
        let plan = plan();
        let mut run = idle(&plan).await;
        (run.totals.sent, run.totals.acked, run.totals.received) = (100, 100, 120);
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        assert_eq!((figures.unread, figures.end_to_end.count()), (80, 80), "of two groups");
        let note = figures.notes.join("\n");
        assert!(note.starts_with("80 records were acked and not read 60 s after the end"), "{note}");
    }

    #[tokio::test(start_paused = true)]
    async fn unacked_records_are_counted_and_noted() {
        let plan = plan();
        let mut run = idle(&plan).await;
        (run.totals.sent, run.totals.acked, run.totals.failed, run.totals.received) = (100, 38, 2, 76);
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        assert_eq!((figures.unacked, figures.publish.count(), figures.unread), (60, 60, 0));
        assert_eq!(figures.end_to_end.count(), 120, "each of two groups waited for each");
        let note = figures.notes.join("\n");
        assert!(note.starts_with("60 records were neither acked nor refused 60 s after the end"), "{note}");
    }

    /// One group with two members in as many loads. The first has all partitions, by the members' reports up to then.
    async fn waits_for_a_member(second_comes_after: Duration) -> (Duration, Option<String>) {
        let mut plan = plan();
        plan.consumers.iter_mut().for_each(|one| one.subscription = "g".to_owned());
        let mut run = idle(&plan).await;
        let sizes = [(plan.topics[0].name.clone(), 2)].into();
        run.groups = Groups::new(&plan, &sizes, true);
        let (first, mut of_first) = load_of_members(&[("g", 2)]).await;
        let (second, mut of_second) = load_of_members(&[("g", 0)]).await;
        run.fleet = Fleet::of([first, second]);
        (run.totals.sent, run.totals.acked, run.totals.received) = (1, 1, 1);
        let begun = tokio::time::Instant::now();
        let comes = async {
            tokio::time::sleep(second_comes_after).await;
            let mut moved =
                Revocation { partitions: partitions(1).into_keys().collect(), ..Revocation::default() };
            of_first[0].revoked(&mut moved);
            tokio::time::sleep(READY_LOOK_EVERY * 2).await;
            of_second[0].assigned(&mut partitions(1));
            std::future::pending::<()>().await;
        };
        let waited = async {
            run.wait_until_ready(None).await.expect("records are read");
            begun.elapsed()
        };
        let waited = tokio::select! {
            waited = waited => waited,
            () = comes => unreachable!("it never ends"),
        };
        let members = run.groups.look(&run.fleet.held().await.expect("it is here"));
        let mut figures = Figures { members, ..Figures::default() };
        run.note(&mut figures);
        (waited, figures.notes.into_iter().next())
    }

    #[tokio::test(start_paused = true)]
    async fn run_begins_when_the_last_member_has_partitions() {
        let (waited, note) = waits_for_a_member(Duration::from_secs(7)).await;
        assert!(waited > Duration::from_secs(7) && waited < Duration::from_secs(8), "{waited:?}");
        assert_eq!(note, None);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_member_is_noted_after_a_bounded_wait() {
        let (waited, note) = waits_for_a_member(Duration::from_hours(1)).await;
        assert!(waited >= READY_TIMEOUT && waited < READY_TIMEOUT + Duration::from_secs(1), "{waited:?}");
        let note = note.expect("there is something to know");
        assert!(note.contains("of 2 members, for 2 of which there are partitions, 1 had some"), "{note}");
    }

    /// Neither the records that were never sent nor the one that the thread hung in are missing from the waits of the
    /// producers and of both groups.
    #[tokio::test(start_paused = true)]
    async fn records_due_in_an_endless_stall_count() {
        let plan = plan();
        let mut run = idle(&plan).await;
        run.fleet = Fleet::of([stalled_load().await]);
        run.produce(None).await.expect("it does");
        let begun = Instant::now();
        // In real time, in which the schedule goes on: 7 records a second.
        std::thread::sleep(Duration::from_millis(1500));
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        let due = begun.elapsed().as_secs_f64() * 7.0;
        let (overdue, failed) = (figures.late.overdue, figures.late.failed);
        assert!(failed == 1 && overdue >= 9 && (overdue as f64) < due, "{overdue} of {due}");
        assert_eq!((figures.publish.count(), figures.unacked), (overdue + 1, 0));
        assert_eq!((figures.delay.count(), figures.end_to_end.count()), (overdue + 1, 2 * (overdue + 1)));
        for latencies in [&figures.publish, &figures.delay, &figures.end_to_end] {
            assert!(latencies.max_us() >= 1_400_000, "{}", latencies.max_us());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_added_if_all_was_read() {
        let plan = plan();
        let mut run = idle(&plan).await;
        (run.totals.sent, run.totals.acked, run.totals.received) = (100, 100, 200);
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        assert_eq!((figures.unread, figures.end_to_end.count()), (0, 0));
        assert_eq!((figures.unacked, figures.publish.count()), (0, 0));
        assert_eq!(figures.notes, Vec::<String>::new());
    }

    #[tokio::test]
    async fn measurements_are_kept_however_the_run_ends() {
        let plan = plan();
        let measured = async || {
            let figures = idle(&plan).await.wait_for_late(Recorder::new()).await.expect("nobody fails");
            Ok(RunOutcome { figures, durability: None, log_dirs: Vec::new(), left: None })
        };
        let notes = || vec!["a note".to_owned()];
        let kept = concluded(measured().await, Ok(()), notes()).expect("it was measured");
        assert!(kept.left.is_none() && kept.figures.notes.contains(&notes()[0]));
        let kept = concluded(measured().await, Err(RunError::StoppedAtOnce), notes()).expect("as well");
        assert!(matches!(kept.left, Some(RunError::StoppedAtOnce)), "{:?}", kept.left);
        let failed = concluded(Err(RunError::Stopped), Err(RunError::StoppedAtOnce), Vec::new());
        assert!(matches!(failed, Err(RunError::StoppedAtOnce)), "{failed:?}");
        let failed = concluded(Err(RunError::Stopped), Ok(()), Vec::new());
        assert!(matches!(failed, Err(RunError::Stopped)), "{failed:?}");
    }

    #[tokio::test]
    async fn ended_server_is_noted() {
        let plan = plan();
        let run = idle(&plan).await;
        let told = |ended| {
            let server = Some(ProcessRun { ended, ..ProcessRun::default() });
            let mut figures = Figures { server, ..Figures::default() };
            run.note(&mut figures);
            figures.notes.join("\n")
        };
        assert!(told(true).starts_with("the server's process ended"), "{}", told(true));
        assert_eq!(told(false), "");
    }
}
