//! `bench run`: jobs on servers, interleaved, a result file for each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use riverrun_bench::environment::disk::DiskMeasurement;
use riverrun_bench::environment::{Environment, ServerRecord, is_here, loopback};
use riverrun_bench::jobs::{DriverFile, Job, jobs};
use riverrun_bench::omb::PlanOptions;
use riverrun_bench::plan::{Durability, Plan, TopicPlan};
use riverrun_bench::process::{ProcessRun, software_of};
use riverrun_bench::result::{OURS, RunLabel, document};
use riverrun_bench::runner::{
    Event, HeldTopics, PageCache, RunError, RunOptions, RunOutcome, SearchOptions, ServerTarget, check,
    check_workers, run as run_plan,
};
use riverrun_measure::text::number;
use serde_json::Value;

use super::report::line_of;
use super::turns::{Turn, Work, is_read_later, turns};
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::signals::StopSignals;
use crate::text::output::{OutputArgs, print_json, print_text};
use crate::text::time::{format_time, now};

/// The default directory of results.
const OUTPUT_DIR: &str = "bench-results";
/// The server where nobody says.
const SERVER: &str = "127.0.0.1:9092";
/// How long the loopback interface is measured.
const LOOPBACK_TIME: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
pub(super) struct RunArgs {
    /// Workload files of OpenMessaging Benchmark (YAML), Trogdor specs (JSON), suites such as B, or scenarios such as
    /// A/catch-up
    #[arg(required = true)]
    what: Vec<String>,
    /// Driver files (YAML), for workload files; each workload is run with each of them. Suites and specs bring their
    /// settings with them
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    drivers: Vec<PathBuf>,
    /// A server, as NAME=HOST:PORT, or NAME=HOST:PORT@PID to watch its process on this machine; several are run in
    /// turn on the same work [default: that of the file, or 127.0.0.1:9092]
    #[arg(long, value_name = "SERVER")]
    server: Vec<ServerTarget>,
    /// Workers to spread the load over, as HOST:PORT; see bench worker [default: this process alone]
    #[arg(short, long, value_name = "ADDRESS", value_delimiter = ',')]
    workers: Vec<String>,
    /// Replicas of each partition, in place of the files' number
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// Shrink times, backlogs and numbers of records to this share; the result says so
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Leave out runs that ask for a durability other than these: sync, async, or a level from 1 to 4
    #[arg(long, value_name = "LEVEL", value_delimiter = ',')]
    durability: Vec<Durability>,
    /// Times that each run is made
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Directory for the results
    #[arg(short, long, value_name = "DIR", default_value = OUTPUT_DIR)]
    output: PathBuf,
    /// Directory of the servers' data: its file system and its disk are measured before the first run
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Let runs that need it fill the file system of --data-dir, and free it again; without this they are left out
    #[arg(long, requires = "data_dir")]
    fill_disk: bool,
    /// Do not drop the page cache before each run
    #[arg(long)]
    keep_page_cache: bool,
    /// Zone of this client, for {zone.id} in a driver's client.id
    #[arg(long, value_name = "NAME", default_value = "")]
    zone: String,
    /// Seed of payloads and keys
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    form: OutputArgs,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1.0 => Ok(scale),
        _ => Err("it must be above 0 and at most 1".to_owned()),
    }
}

pub(super) async fn run(args: RunArgs) -> Result<(), Failure> {
    // Once for all runs: a signal that comes while nobody waits for it is received by the next wait.
    let mut stop = StopSignals::new()?;
    let mut work = Vec::new();
    // Everything that a file could be refused for is found before the first server is asked.
    for job in args.jobs()? {
        let plan = job.plan(&args.plan_options("check"), args.scale)?;
        if !args.is_wanted(&plan) {
            continue;
        }
        let servers = args.servers(&job)?;
        match args.left_out(&plan, servers.len()) {
            Some(reason) => logging::note(&format!("{} is left out: {reason}", plan.name)),
            None => work.push(Work::new(job, servers, &plan)),
        }
    }
    if work.is_empty() {
        return Err(Failure::usage("there is nothing to run"));
    }
    let turns = turns(&work, args.rounds);
    args.check(&turns, &mut stop).await?;
    let output = &args.output;
    std::fs::create_dir_all(output).map_err(|error| Failure::io(output.display(), &error))?;
    let environment = environment(args.data_dir.as_deref())?;
    let mut session = Session { environment, args: &args, stop, stops: 0, held: HeldTopics::default() };
    let mut documents = Vec::new();
    let mut failures = Vec::new();
    let mut interrupted = Ok(());
    for (at, turn) in turns.iter().enumerate() {
        match session.run(turn, &turns[at + 1..]).await {
            Ok(document) => documents.push(document),
            Err(failure) if failure.exit == Exit::Interrupted => {
                interrupted = Err(failure);
                break;
            }
            Err(failure) => {
                failure.tell(args.form.json);
                failures.push(failure.exit);
            }
        }
        interrupted = session.go_on();
        if interrupted.is_err() {
            break;
        }
    }
    let ended = session.end().await;
    if args.form.json {
        print_json(&documents)?;
    }
    ended?;
    interrupted?;
    match failures.first() {
        None => Ok(()),
        Some(exit) => {
            let all = failures.len() + documents.len();
            Err(Failure::new(*exit, format!("{} of {all} runs could not be made", failures.len())))
        }
    }
}

impl RunArgs {
    fn jobs(&self) -> Result<Vec<Job>, Failure> {
        let mut drivers = Vec::new();
        for path in &self.drivers {
            drivers.push(DriverFile::read(path)?);
        }
        if drivers.is_empty() {
            drivers.push(DriverFile::default_driver());
        }
        let mut all = Vec::new();
        let mut without_drivers = Vec::new();
        for (others, what) in self.what.iter().enumerate() {
            let jobs = jobs(what, &drivers)?;
            if !jobs.iter().any(|job| job.takes_drivers) {
                without_drivers.push(what.as_str());
            }
            all.extend(jobs.into_iter().map(|job| job.after(others)));
        }
        if !self.drivers.is_empty() {
            self.check_drivers(&without_drivers)?;
        }
        Ok(all)
    }

    /// Refuses drivers that nothing is run with, and tells what is run without them.
    fn check_drivers(&self, without: &[&str]) -> Result<(), Failure> {
        if without.len() == self.what.len() {
            let reason = "--drivers: there is no workload file to run with them";
            return Err(Failure::usage(reason).advise(
                "suites and specs bring their settings with them; --server says where they run, and `bench list NAME` shows a file to change",
            ));
        }
        for what in without {
            logging::note(&format!("{what} is run without --drivers: it brings its settings with it"));
        }
        Ok(())
    }

    /// Whether a run has one of the durabilities that were named, if any were.
    fn is_wanted(&self, plan: &Plan) -> bool {
        let is_meant = |asked: Durability| self.durability.iter().any(|one| one.level() == asked.level());
        self.durability.is_empty() || plan.durability.is_none_or(is_meant)
    }

    /// Why a run is not made.
    fn left_out(&self, plan: &Plan, servers: usize) -> Option<&'static str> {
        plan.disk_full?;
        if !self.fill_disk {
            return Some("it fills the disk, and there is no --fill-disk");
        }
        (servers > 1)
            .then_some("it fills the disk, which the other servers may share: run it on one at a time")
    }

    /// Fails with any error that a run would have before it sends anything.
    async fn check(&self, turns: &[Turn<'_>], stop: &mut StopSignals) -> Result<(), Failure> {
        let options = self.run_options();
        let checked = tokio::select! {
            checked = check_workers(&options) => checked,
            () = stop.next() => Err(RunError::Stopped),
        };
        checked.map_err(|error| failure(&error))?;
        let mut sent_to = HashMap::<&str, BTreeSet<String>>::new();
        let mut held = HashMap::<&str, BTreeMap<String, TopicPlan>>::new();
        // The second round finds what the first leaves, and so do the others.
        for (at, turn) in turns.iter().enumerate().take_while(|(_, turn)| turn.round <= 2) {
            let (server, held) = (turn.server, held.entry(&turn.server.bootstrap).or_default());
            let mut plan = turn.job.plan(&self.plan_options(&run_name()), self.scale)?;
            // A topic that an earlier run makes and leaves counts as one that this run makes.
            plan.topics.extend(held.values().filter(|topic| turn.finds(&topic.name)).cloned());
            let sent_to = sent_to.entry(&server.bootstrap).or_default();
            let checked = tokio::select! {
                checked = check(&plan, server, &options, sent_to) => checked,
                () = stop.next() => Err(RunError::Stopped),
            };
            let about = || format!("{} on {}", plan.name, server.name);
            checked.map_err(|error| failure(&error).about(about()))?;
            held.extend(plan.topics.into_iter().map(|topic| (topic.name.clone(), topic)));
            held.retain(|topic, _| is_read_later(&turns[at + 1..], server, topic));
        }
        Ok(())
    }

    /// Whether all of the load comes from this machine.
    async fn is_load_here(&self) -> bool {
        for worker in &self.workers {
            if !is_here(worker).await {
                return false;
            }
        }
        true
    }

    fn run_options(&self) -> RunOptions {
        RunOptions {
            workers: self.workers.clone(),
            search: SearchOptions::from_variables(|name| std::env::var(name).ok()),
            fill_disk: self.data_dir.clone().filter(|_| self.fill_disk),
        }
    }

    /// Those of the command line; else the one that the job's own file names: drivers may each name another.
    fn servers(&self, job: &Job) -> Result<Vec<ServerTarget>, Failure> {
        if self.server.is_empty() {
            let named = job.bootstrap().unwrap_or_else(|| SERVER.to_owned());
            let wrong = |error| Failure::usage(format!("bootstrap.servers: {error}"));
            return Ok(vec![named.parse::<ServerTarget>().map_err(wrong)?]);
        }
        let mut names: Vec<_> = self.server.iter().map(|server| server.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < self.server.len() {
            return Err(Failure::usage("two servers have the same name"));
        }
        Ok(self.server.clone())
    }

    fn plan_options(&self, run: &str) -> PlanOptions {
        PlanOptions {
            run: run.to_owned(),
            zone: self.zone.clone(),
            directory: None,
            replication: self.replication_factor,
            seed: self.seed,
        }
    }
}

/// Names of topics and groups differ from those of every other run.
fn run_name() -> String {
    format!("{}-{}", std::process::id(), now().0)
}

/// The machine's own speed, measured once for all runs.
fn environment(data_dir: Option<&Path>) -> Result<Environment, Failure> {
    let mut environment = Environment::look(data_dir);
    logging::note(&format!(
        "measuring the loopback interface{}",
        if data_dir.is_some() { " and the disk" } else { "" }
    ));
    environment.loopback =
        Some(loopback::measure(LOOPBACK_TIME).map_err(|error| Failure::io("loopback interface", &error))?);
    if let Some(directory) = data_dir {
        let figures = DiskMeasurement::default().run(directory);
        environment.disk = Some(figures.map_err(|error| Failure::io(directory.display(), &error))?);
    }
    Ok(environment)
}

/// All runs of one command.
struct Session<'a> {
    environment: Environment,
    args: &'a RunArgs,
    stop: StopSignals,
    /// Number of signals to end.
    stops: u32,
    /// Topics that later runs read.
    held: HeldTopics,
}

impl Session<'_> {
    /// Fails if no other run is wanted.
    fn go_on(&self) -> Result<(), Failure> {
        if self.stops > 0 { Err(failure(&RunError::Stopped)) } else { Ok(()) }
    }

    /// Makes a run, before those that are left.
    async fn run(&mut self, turn: &Turn<'_>, left: &[Turn<'_>]) -> Result<Value, Failure> {
        self.hear_stop().await;
        self.go_on()?;
        let result = self.measure(turn, left).await;
        // A topic that a failed run was to fill is not there for those that would read it.
        let is_filled = |topic: &str| result.is_ok() || !turn.makes(topic);
        let stays = |topic: &str| is_filled(topic) && is_read_later(left, turn.server, topic);
        tokio::select! {
            () = self.held.release(&turn.server.bootstrap, stays) => {}
            () = self.stop.next() => self.stops += 1,
        }
        result
    }

    async fn measure(&mut self, turn: &Turn<'_>, left: &[Turn<'_>]) -> Result<Value, Failure> {
        let Turn { job, server, round, .. } = *turn;
        let started = format_time(now());
        let plan = job.plan(&self.args.plan_options(&run_name()), self.args.scale)?;
        logging::note(&format!("\n{} on {}", plan.name, server.name));
        let software = server.pid.and_then(software_of);
        let is_server_here = server.is_here().await;
        let page_cache = self.drop_page_cache(is_server_here);
        let outcome = self.run_plan(&plan, server, left).await?;
        let record = ServerRecord {
            software: software.clone(),
            is_elsewhere: !is_server_here,
            ..record_of(server, &plan, &outcome)
        };
        let environment = self.environment.of_run(record, self.args.is_load_here().await);
        let label = RunLabel {
            suite: job.suite.clone(),
            scenario: job.scenario.clone(),
            case: job.case.clone(),
            round,
            started: started.clone(),
            server: server.name.clone(),
            software,
            driver: job.driver_name().to_owned(),
            files: job.files.clone(),
            scale: self.args.scale,
            replication_override: self.args.replication_factor,
            replicas_wanted: job.replicas()?,
            workers: self.args.workers.len().max(1),
        };
        let document = document(&plan, &outcome, &label, &environment, &page_cache);
        self.write(&document, &plan.name, &server.name, &started)?;
        match wrong_with(outcome.left.as_ref(), outcome.figures.server) {
            None => Ok(document),
            Some(wrong) => {
                Err(wrong.about(format!("{} on {}, whose result is kept", plan.name, server.name)))
            }
        }
    }

    /// Hears of a wish for an end that came while nobody waited for one.
    async fn hear_stop(&mut self) {
        tokio::select! {
            biased;
            () = self.stop.next() => self.stops += 1,
            () = std::future::ready(()) => {}
        }
    }

    async fn run_plan(
        &mut self,
        plan: &Plan,
        server: &ServerTarget,
        left: &[Turn<'_>],
    ) -> Result<RunOutcome, Failure> {
        let about = |error| failure(&error).about(format!("{} on {}", plan.name, server.name));
        self.hold(plan, server, left).await.map_err(about)?;
        let options = self.args.run_options();
        let (stop, stops) = (&mut self.stop, &mut self.stops);
        let stopped = async || {
            stop.next().await;
            *stops += 1;
        };
        run_plan(plan, server, &options, &mut tell, stopped).await.map_err(about)
    }

    /// Makes the topics of a plan that runs after it read: those that it finds there it leaves.
    async fn hold(&mut self, plan: &Plan, server: &ServerTarget, left: &[Turn<'_>]) -> Result<(), RunError> {
        let stays = |topic: &str| is_read_later(left, server, topic);
        let held = tokio::select! {
            biased;
            () = self.stop.next() => {
                self.stops += 1;
                return Err(RunError::Stopped);
            }
            held = self.held.make(&server.bootstrap, plan, stays) => held?,
        };
        if held > 0 {
            let held = number::counted(held, "topic");
            logging::note(&format!("  {held} kept after it: a later run reads the records"));
        }
        Ok(())
    }

    /// Deletes what is held still, after a wish for an end and unless there was another.
    async fn end(mut self) -> Result<(), Failure> {
        if self.stops > 1 || self.held.is_empty() {
            return Ok(());
        }
        logging::note("topics that later runs were to read are deleted; to leave them, stop it again");
        tokio::select! {
            () = self.held.release_all() => Ok(()),
            () = self.stop.next() => Err(failure(&RunError::StoppedAtOnce)),
        }
    }

    fn drop_page_cache(&self, is_server_here: bool) -> PageCache {
        if self.args.keep_page_cache {
            return PageCache::kept();
        }
        let page_cache = if is_server_here { PageCache::drop_now() } else { PageCache::elsewhere() };
        if let Some(reason) = &page_cache.reason {
            logging::note(&format!("  the page cache stays as it is: {reason}"));
        }
        page_cache
    }

    fn write(&self, document: &Value, plan: &str, server: &str, started: &str) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document).expect("a document of text keys");
        let path = write_new(&self.args.output, &file_name(plan, server, started), &text)?;
        if !self.args.form.json {
            let notes = document[OURS]["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut lines = vec![line_of(document)];
            lines.extend(notes.map(|note| format!("  note: {note}")));
            lines.push(format!("  {}\n", path.display()));
            print_text(&lines.join("\n"))?;
        }
        Ok(())
    }
}

/// The server of a run, as the run knows it.
fn record_of(server: &ServerTarget, plan: &Plan, outcome: &RunOutcome) -> ServerRecord {
    let durability = plan.asked_topic().zip(outcome.durability.as_ref());
    ServerRecord {
        name: server.name.clone(),
        bootstrap: server.bootstrap.clone(),
        is_watched: server.pid.is_some(),
        durability: durability.map(|(topic, level)| (topic.to_owned(), level.clone())).into_iter().collect(),
        ..ServerRecord::default()
    }
}

/// Writes a file that is not there yet: a name that is taken, as by another run of the same second, gets a number.
fn write_new(dir: &Path, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let mut path = dir.join(name);
    let mut number = 1;
    loop {
        let made = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        match made {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(Failure::io(path.display(), &error)),
        }
        path = dir.join(format!("{stem}-{number}.json"));
    }
}

/// `<workload>-<server>-yyyy-MM-dd-HH-mm-ss.json`, with nothing in it that a file system may not like.
fn file_name(workload: &str, server: &str, started: &str) -> String {
    let time = started.split('.').next().unwrap_or(started);
    let plain = |text: &str, longest| -> String {
        let kept = |one: char| if one.is_ascii_alphanumeric() || "-_.=".contains(one) { one } else { '-' };
        text.chars().map(kept).take(longest).collect()
    };
    // Together shorter than the 255 bytes that a name may have.
    format!("{}-{}-{}.json", plain(workload, 150), plain(server, 60), plain(time, 30).replace('T', "-"))
}

/// Why a run that has a result was none in order: what it has `left`, or that its server did not live to the end.
fn wrong_with(left: Option<&RunError>, server: Option<ProcessRun>) -> Option<Failure> {
    let has_ended = server.is_some_and(|server| server.ended);
    let ended = || has_ended.then(|| Failure::new(Exit::Unreachable, "the server's process has ended"));
    left.map(failure).or_else(ended)
}

fn failure(error: &RunError) -> Failure {
    match error {
        RunError::Client(error) | RunError::Topic { error, .. } => Failure::from(error.clone()),
        RunError::Missing { .. } => Failure::new(Exit::NotFound, error.to_string())
            .advise("a spec that makes it may be named before the one that reads it"),
        RunError::Stopped | RunError::StoppedAtOnce => Failure::new(Exit::Interrupted, error.to_string()),
        RunError::Replication { .. }
        | RunError::Partitions { .. }
        | RunError::NotEmpty { .. }
        | RunError::SentToBefore { .. }
        | RunError::Assigned { .. }
        | RunError::DiskFull(_) => Failure::usage(error.to_string()),
        RunError::NotReady { .. } | RunError::Worker { .. } | RunError::ServerEnded { .. } => {
            Failure::new(Exit::Unreachable, error.to_string())
        }
        RunError::Load(_) | RunError::Process(_) => Failure::new(Exit::Failed, error.to_string()),
    }
}

/// Progress, for people: on stderr, the seconds of a long run one line for every ten.
fn tell(event: Event<'_>) {
    match event {
        Event::Phase(phase) => logging::note(&format!("  {phase}")),
        Event::Second(second) if second.at_s % 10.0 < second.seconds => logging::note(&format!(
            "  {:5.0} s  {:>10.0} rec/s sent  {:>10.0} rec/s read  backlog {:>9}  publish p99 {:>8.1} ms",
            second.at_s,
            second.publish_rate,
            second.consume_rate + second.catch_up_rate,
            second.backlog,
            second.publish.map_or(0.0, |publish| publish.p99_us as f64 / 1000.0),
        )),
        Event::Second(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn a_run_whose_server_has_ended_fails() {
        let wrong = |ended| wrong_with(None, Some(ProcessRun { ended, ..ProcessRun::default() }));
        assert_eq!(wrong(true).map(|failure| failure.exit), Some(Exit::Unreachable));
        assert_eq!((wrong(false), wrong_with(None, None)), (None, None));
        let stopped = wrong_with(Some(&RunError::Stopped), None);
        assert_eq!(stopped.map(|failure| failure.exit), Some(Exit::Interrupted));
    }

    #[test]
    fn the_runs_of_each_driver_go_to_the_server_that_it_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("room");
            path.display().to_string()
        };
        let workload = "name: n\ntopics: 1\npartitionsPerTopic: 1\nmessageSize: 4\nproducersPerTopic: 1
producerRate: 7\ntestDurationMinutes: 1\n";
        let driver = |name: &str, server: &str| {
            let class = "x.KafkaBenchmarkDriver";
            let text = format!(
                "name: {name}\ndriverClass: {class}\ncommonConfig: |\n  bootstrap.servers={server}\n"
            );
            write(name, &text)
        };
        let drivers = format!("{},{}", driver("one.yaml", "a:1"), driver("two.yaml", "b:2"));
        let workload = write("w.yaml", workload);
        let servers = |more: &[&str]| {
            let line = [&["run", &workload, "-d", &drivers], more].concat();
            let args = Line::try_parse_from(line).expect("flags").run;
            let of_job = |job| args.servers(&job).expect("servers")[0].bootstrap.clone();
            args.jobs().expect("jobs").into_iter().map(of_job).collect::<Vec<_>>()
        };
        assert_eq!(servers(&[]), ["a:1", "b:2"]);
        assert_eq!(servers(&["--server", "x=c:3"]), ["c:3", "c:3"], "the command line goes before files");
    }

    #[test]
    fn a_file_s_name_says_what_was_run_where_and_when() {
        let name = file_name("A/max throughput partitions=1", "h:1", "2026-11-22T05:06:07.123Z");
        assert_eq!(name, "A-max-throughput-partitions=1-h-1-2026-11-22-05-06-07.json");
        let longest = file_name(&"w".repeat(999), &"s".repeat(999), &"t".repeat(999));
        assert!(longest.len() <= 250, "with a number behind it, too: {}", longest.len());
        // The difference between two runs of a suite stands at the end of their titles.
        for case in riverrun_bench::suite::embedded().iter().flat_map(|one| one.cases().expect("right")) {
            let name = file_name(&case.workload.name, "s", "t");
            assert_eq!(name.len(), case.workload.name.len() + "-s-t.json".len(), "{name}");
        }
    }

    #[test]
    fn runs_of_the_same_second_have_files_of_their_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |text| {
            let path = write_new(dir.path(), "r.json", text).expect("written");
            (path.file_name().expect("named").to_owned(), std::fs::read_to_string(path).expect("there"))
        };
        let written = ["one", "two", "three"].map(write);
        let expected = [("r.json", "one"), ("r-2.json", "two"), ("r-3.json", "three")];
        assert_eq!(written, expected.map(|(name, text)| (name.into(), text.to_owned())));
    }

    #[test]
    fn a_run_that_fills_the_disk_is_left_out_unless_that_is_allowed() {
        let left_out = |flags: &[&str], servers| {
            let args = Line::parse_from([&["run", "C/disk-full"], flags].concat()).run;
            let job = args.jobs().expect("it is there").remove(0);
            args.left_out(&job.plan(&args.plan_options("x"), 1.0).expect("a plan"), servers).is_some()
        };
        let allowed = ["--fill-disk", "--data-dir", "/somewhere"];
        assert!(left_out(&[], 1) && left_out(&allowed, 2) && !left_out(&allowed, 1));
        assert!(Line::try_parse_from(["run", "C/disk-full", "--fill-disk"]).is_err(), "which disk?");
    }

    #[test]
    fn durability_flag_leaves_out_runs_of_other_levels() {
        let levels = |flags: &[&str]| {
            let args = Line::parse_from([&["run", "B/small-batches"], flags].concat()).run;
            let plans = args
                .jobs()
                .expect("a suite")
                .into_iter()
                .map(|job| job.plan(&args.plan_options("x"), 1.0).expect("a plan"));
            let wanted: Vec<_> = plans.filter(|plan| args.is_wanted(plan)).collect();
            let of = |level| wanted.iter().filter(|plan| plan.durability == Some(level)).count();
            (of(Durability::Sync), of(Durability::Async))
        };
        assert_eq!(levels(&[]), (6, 6));
        assert_eq!((levels(&["--durability", "sync"]), levels(&["--durability", "4"])), ((6, 0), (0, 6)));
        assert_eq!(levels(&["--durability", "sync,async"]), (6, 6));
        assert!(Line::try_parse_from(["run", "B", "--durability", "maybe"]).is_err());
    }

    #[test]
    fn a_scale_shrinks() {
        assert_eq!(parse_scale("0.1"), Ok(0.1));
        for bad in ["0", "-1", "1.5", "NaN", "x"] {
            assert!(parse_scale(bad).is_err(), "{bad}");
        }
    }
}
