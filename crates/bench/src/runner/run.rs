//! One run: a plan on one server, from its topics to its figures.
//!
//! Guarantees that what was sent within the measurement is waited for after it, so that no latency is cut off where the
//! clock stopped, and that what has not come by then is told; that rates count what was acked and read within it; and that
//! topics are gone when it is over, however it ended.

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
/// The same while a run may be over with its records: what it took is known as exactly.
const LOOK_OFTEN: Duration = Duration::from_millis(50);
/// Producers and consumers must be at work after this, and as much longer as many topics take. For groups it is long, too: a
/// member hears within a heartbeat, of three seconds mostly, that others have come, and where partitions move from one to the
/// other it takes a second round.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// The same for each partition and each client.
const READY_TIMEOUT_EACH: Duration = Duration::from_millis(20);
/// Time between two looks at whether they are.
const READY_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time between two looks at what is late; many times that in which a thread sees an order.
const LATE_LOOK_EVERY: Duration = Duration::from_millis(200);
/// What was sent is waited for so long after the end.
const LATE_TIMEOUT: Duration = Duration::from_mins(1);
/// A server that is there says at once where its partitions lie, and how durable they are.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// A backlog that is not read by then is given up: this many times the measurement, and ten minutes.
const DRAIN_FACTOR: u32 = 4;

/// How runs are made, beside their plans.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Addresses of workers; none for a load from this process.
    pub workers: Vec<String>,
    /// How a rate is searched for.
    pub search: SearchOptions,
    /// The directory whose file system a plan may fill; none if none.
    pub fill_disk: Option<PathBuf>,
}

/// What a run tells while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A part of it begins.
    Phase(&'a str),
    /// A second is over.
    Second(&'a Second),
}

/// What a run found out.
#[derive(Debug)]
pub struct RunOutcome {
    /// What it measured.
    pub figures: Figures,
    /// How durable acked records were.
    pub durability: Option<TopicDurability>,
    /// Where its partitions lay.
    pub log_dirs: Vec<LogDirFigures>,
    /// Why it did not end in order after it had measured all that: clients may go on, topics may have stayed behind.
    pub left: Option<RunError>,
}

/// Finds out what a run would fail with before it sends anything: a setting that the client does not take, a server or a
/// process that is not there, topics that the server refuses, or that hold what is none of the run's. Leaves nothing behind.
/// `sent_to` has the topics of the server that stay with what the runs before this one send to them; those of this run are
/// added.
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

/// The same of the workers, which all runs have in common.
pub async fn check_workers(options: &RunOptions) -> Result<(), RunError> {
    for address in &options.workers {
        RemoteWorker::connect(address).await?;
    }
    Ok(())
}

/// Runs a plan on a server, unless `stop` comes first: then clients end and topics go, and it fails. Each call of `stop`
/// waits for the next wish for an end; at the second one topics that are not deleted by then stay behind.
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
        // Before its topics: a client that still sends has the server make them once more.
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

/// What is told when a run ends, and when somebody has wished for that.
const ENDS: &str = "its clients end and its topics are deleted";
const ENDS_STOPPED: &str = "its topics are deleted; to leave them, stop it again";

/// What comes of a run that measured this and ended so. What was measured is kept however it ended.
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

/// All of a run but its end. What is to be ended stands in `begun` then, whatever comes of it.
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
    // Of a server that is gone there is nothing to ask.
    let asked = async { (topics.log_dirs(plan).await, topics.durability(plan).await.ok().flatten()) };
    let (log_dirs, after) = timeout(ASK_TIMEOUT, asked).await.unwrap_or_default();
    figures.notes.extend(before.as_ref().zip(after.as_ref()).and_then(|(before, after)| lost(before, after)));
    let durability = TopicDurability::lesser(before, after);
    if let Some(reached) = &durability {
        figures.notes.extend(missed(plan, reached));
    }
    Ok(RunOutcome { figures, durability, log_dirs, left: None })
}

/// Says so where acked records are less durable than they were to be.
fn missed(plan: &Plan, reached: &TopicDurability) -> Option<String> {
    let wanted = plan.durability?.level().syncs_locally();
    (reached.acked_when_synced != Some(wanted)).then(|| {
        let word = if wanted { "sync" } else { "async" };
        format!("durability {word} was wanted, and is not what the server says of the topic")
    })
}

/// Says so where acked records were not as durable all the time.
fn lost(before: &TopicDurability, after: &TopicDurability) -> Option<String> {
    (before != after).then(|| {
        format!("durability was another at the end ({after}) than at the beginning ({before}): the lesser is shown")
    })
}

/// A run at work.
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
    /// Whether some of the warm-up was still under way when the measurement began that was to be apart from it.
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
        // As the rates: processor time that goes into what comes late is not of the measurement.
        let mut runs = usage.0.finish().into_iter();
        let mut figures = self.wait_for_late(recorder).await?;
        figures.members = members;
        figures.workers = usage.1.finish();
        figures.client = runs.next();
        figures.server = runs.next();
        self.note(&mut figures);
        Ok(figures)
    }

    /// Takes what has happened since the last time.
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

    /// Records that are left to read by groups that read from the start.
    fn backlog(&self) -> u64 {
        let readers = self.plan.readers(false) as u64;
        (self.totals.acked * readers).saturating_sub(self.totals.received)
    }

    /// Records that were handed to the client and neither acked nor refused.
    fn unacked(&self) -> u64 {
        self.totals.sent.saturating_sub(self.totals.acked + self.totals.failed)
    }

    /// Each producer sends a record, which each group reads. Groups are waited for until they are complete: a member that comes
    /// late reads nothing until then, and what is measured would be of fewer of them. They are not waited for longer than
    /// records: a group may have members that are none of the run's.
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

    /// Where nobody sends, consumers have waited for the clock.
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
            // Another load follows, of so many records: nothing of this one may count in it.
            self.settle(|_| {}).await?;
            self.is_warmup_left = self.is_something_left();
        }
        Ok(())
    }

    async fn go_on_searching(&mut self) -> Result<(), RunError> {
        if self.judge_rate() { self.produce(None).await } else { Ok(()) }
    }

    /// Has the search judge the period that is over, and says whether one is.
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
        // Dropped here: whatever is left to be waited for, the disk is free.
        recorder.figures.disk_full = self.disk.take().map(|disk| disk.figures());
        Ok(recorder)
    }

    /// What happens until a second is over, or the run is done, and whether it is.
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

    /// Whether as many records as there should be were sent, or read where nobody sends.
    fn is_done(&self, before: &Counts, lately: &Counts) -> bool {
        let mut counts = *before;
        counts.add(lately);
        let done =
            if self.plan.producers.is_empty() { counts.received } else { counts.acked + counts.failed };
        self.plan.messages.is_some_and(|all| done >= all)
    }

    /// Whether its time is over.
    fn is_over(&self, recorder: &Recorder, backlog: Option<&BacklogWatch>) -> bool {
        let elapsed = recorder.elapsed();
        if let Some(backlog) = backlog {
            let given_up = self.plan.test * DRAIN_FACTOR + Duration::from_mins(10);
            return (backlog.is_drained() && elapsed >= self.plan.test) || elapsed >= given_up;
        }
        // Half a second early is nearer to the time that was asked for than half a second late.
        elapsed + LOOK_EVERY / 2 >= self.plan.test
    }

    /// Waits for the acks of what was sent, and for its readers.
    async fn wait_for_late(&mut self, mut recorder: Recorder) -> Result<Figures, RunError> {
        self.settle(|taken| recorder.add_late(taken)).await?;
        // A thread that still waits for room has told of nothing that came due meanwhile.
        self.fleet.order(Order::GiveUp).await?;
        recorder.add_late(&self.take().await?);
        let (unacked, unread, now) = (self.unacked(), self.backlog(), Instant::now());
        let groups = self.plan.readers(false) as u64;
        recorder.add_unacked(unacked, now);
        recorder.add_unread(unread, groups, now);
        // Whoever waits for a record does not care why it does not come.
        let read_unacked = self.totals.received.saturating_sub(self.totals.acked * groups);
        recorder.add_undelivered(groups, read_unacked);
        let mut figures = recorder.finish();
        if unacked > 0 {
            figures.notes.push(format!(
                "{unacked} records were neither acked nor refused {} s after the end. They count with the least that they can have waited",
                LATE_TIMEOUT.as_secs()
            ));
        }
        if unread > 0 {
            figures.notes.push(format!(
                "{unread} records were acked and not read {} s after the end. They count with the least that they can have waited",
                LATE_TIMEOUT.as_secs()
            ));
        }
        Ok(figures)
    }

    /// Ends the load and waits for its acks and readers, though not for ever.
    async fn settle(&mut self, mut add: impl FnMut(&Taken)) -> Result<(), RunError> {
        self.fleet.order(Order::StopProducing).await?;
        let begun = tokio::time::Instant::now();
        loop {
            // Threads see an order a moment later, and may have sent a record meanwhile: the first look comes after it.
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
            notes.push("the backlog was not read as far as it should be: the run was given up".to_owned());
        }
        notes.extend(figures.backlog.and_then(|backlog| backlog.short_note()));
        notes.extend(figures.members.and_then(|members| members.note()));
        if self.plan.rate == TargetRate::Search {
            notes.push(
                "the rate was searched for: latencies, and the mean, are also those of rates that were too low or too high"
                    .to_owned(),
            );
        }
        if self.plan.rate == TargetRate::Search && figures.search.is_none_or(|found| !found.is_settled()) {
            notes.push(
                "the search ended before a rate was tried for a whole period and not kept up: a longer one may find a higher rate".to_owned(),
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
                "{overdue} records were due and not sent when the rate changed or the run ended: it was not kept up. They count with what they waited"
            ));
        }
        if failed > 0 {
            notes.push(format!("{failed} records could not be delivered. They count with what they waited"));
        }
        if future > 0 {
            notes.push(format!(
                "{future} records were read before they were sent: the workers' clocks differ"
            ));
        }
        notes.extend(self.error.iter().map(|error| format!("first error: {error}")));
    }
}

/// Fails if the server's process has ended: nobody waits for what it will not do.
fn check_alive(watch: Option<&ProcessWatch>) -> Result<(), RunError> {
    match watch {
        Some(watch) if watch.usage().is_err() => Err(RunError::ServerEnded { pid: watch.pid() }),
        _ => Ok(()),
    }
}

/// This process first, then the server's.
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

    /// A run whose clients do nothing at all.
    async fn idle(plan: &Plan) -> Run<'_> {
        let nobody = Plan { producers: Vec::new(), consumers: Vec::new(), ..plan.clone() };
        let fleet = Fleet::prepare(&nobody, "127.0.0.1:1", &[]).await.expect("there is nobody to connect");
        Run::new(plan, Groups::default(), fleet, SearchOptions::default(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn what_consumers_that_stopped_have_not_read_is_counted_and_told() {
        let plan = plan();
        let mut run = idle(&plan).await;
        (run.totals.sent, run.totals.acked, run.totals.received) = (100, 100, 120);
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        assert_eq!((figures.unread, figures.end_to_end.count()), (80, 80), "of two groups");
        let note = figures.notes.join("\n");
        assert!(note.starts_with("80 records were acked and not read 60 s after the end"), "{note}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_that_stopped_has_not_acked_is_counted_and_told() {
        let plan = plan();
        let mut run = idle(&plan).await;
        (run.totals.sent, run.totals.acked, run.totals.failed, run.totals.received) = (100, 38, 2, 76);
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        assert_eq!((figures.unacked, figures.publish.count(), figures.unread), (60, 60, 0));
        assert_eq!(figures.end_to_end.count(), 120, "each of two groups waited for each");
        let note = figures.notes.join("\n");
        assert!(note.starts_with("60 records were neither acked nor refused 60 s after the end"), "{note}");
    }

    /// One group of two members in as many loads, of which the first has what there is, as far as the records of the way there
    /// tell.
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
    async fn a_run_begins_when_the_last_member_has_partitions() {
        let (waited, note) = waits_for_a_member(Duration::from_secs(7)).await;
        assert!(waited > Duration::from_secs(7) && waited < Duration::from_secs(8), "{waited:?}");
        assert_eq!(note, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_does_not_come_is_told_and_not_waited_for_any_more() {
        let (waited, note) = waits_for_a_member(Duration::from_hours(1)).await;
        assert!(waited >= READY_TIMEOUT && waited < READY_TIMEOUT + Duration::from_secs(1), "{waited:?}");
        let note = note.expect("there is something to know");
        assert!(note.contains("of 2 members, for 2 of which there are partitions, 1 had some"), "{note}");
    }

    /// Neither the records that were never sent nor the one that the thread hung in go unnoticed, as what producers waited
    /// for and as what both groups did.
    #[tokio::test(start_paused = true)]
    async fn what_came_due_while_a_server_stalled_counts_though_it_never_came_back() {
        let plan = plan();
        let mut run = idle(&plan).await;
        run.fleet = Fleet::of([stalled_load().await]);
        run.produce(None).await.expect("it does");
        let begun = Instant::now();
        // Of the real time, in which the schedule goes on: 7 records a second.
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
    async fn where_all_was_read_nothing_is_added_and_told() {
        let plan = plan();
        let mut run = idle(&plan).await;
        (run.totals.sent, run.totals.acked, run.totals.received) = (100, 100, 200);
        let figures = run.wait_for_late(Recorder::new()).await.expect("nobody fails");
        assert_eq!((figures.unread, figures.end_to_end.count()), (0, 0));
        assert_eq!((figures.unacked, figures.publish.count()), (0, 0));
        assert_eq!(figures.notes, Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_was_measured_is_kept_however_the_run_ends() {
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
    async fn a_server_that_ended_is_told() {
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
