//! Files and suites that a person named to run, as single jobs.
//!
//! Owns telling the kinds of files apart, and the plan of each job. A job names no server: each job runs on all
//! servers.

use std::path::{Path, PathBuf};

use crate::input::{InputError, read_text};
use crate::omb::{Driver, PlanOptions, Workload, to_plan};
use crate::plan::{Plan, Replicas};
use crate::scale::shrink;
use crate::suite::{Scenario, find};
use crate::trogdor::Spec;

/// A driver and the text it was read from.
#[derive(Clone, Debug)]
pub struct DriverFile {
    /// The file's name; `None` for the default driver.
    name: Option<String>,
    text: String,
    driver: Driver,
}

impl DriverFile {
    /// The driver with the client's defaults.
    pub fn default_driver() -> Self {
        Self { name: None, text: String::new(), driver: Driver::default() }
    }

    /// Reads a driver.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let (name, text) = (path.display().to_string(), read_text(path)?);
        Ok(Self { driver: Driver::parse(&name, &text)?, name: Some(name), text })
    }
}

#[derive(Clone, Debug)]
enum Source {
    Workload { workload: Box<Workload>, driver: Box<Driver>, directory: Option<PathBuf> },
    Spec(Box<Spec>),
}

/// One run, to be repeated on each server.
#[derive(Clone, Debug)]
pub struct Job {
    /// The suite, or the file.
    pub suite: String,
    /// The scenario; empty for a file.
    pub scenario: String,
    /// Values of the varied parameters, by name.
    pub case: Vec<(String, String)>,
    /// Texts of the files it was read from, by name.
    pub files: Vec<(String, String)>,
    /// Whether it runs with the named drivers; suites and specs bring their own settings.
    pub takes_drivers: bool,
    turn: usize,
    source: Source,
}

/// The jobs that `what` names: a workload or suite file (YAML), a Trogdor spec (JSON), or an embedded suite or
/// scenario. A workload runs once with each driver; the others run without one.
pub fn jobs(what: &str, drivers: &[DriverFile]) -> Result<Vec<Job>, InputError> {
    let path = Path::new(what);
    if !path.is_file() {
        let scenarios = find(what);
        if scenarios.is_empty() {
            let reason =
                "there is no such file, suite or scenario; `riverrun bench list` shows those that there are";
            return Err(InputError::refused(what, reason));
        }
        let all = scenarios.iter().enumerate().map(|(turn, scenario)| of_scenario(scenario, turn));
        return all.collect::<Result<Vec<_>, _>>().map(|jobs| jobs.concat());
    }
    let text = read_text(path)?;
    if path.extension().is_some_and(|extension| extension == "json") {
        let spec = Spec::parse(what, &text)?;
        return Ok(vec![of_spec(what, text, spec)]);
    }
    if text.lines().any(|line| line.starts_with("scenario:")) {
        return of_scenario(&Scenario::parse(what, &text)?, 0);
    }
    let workload = Workload::parse(what, &text)?;
    let job = |(turn, driver)| Job { turn, ..of_workload(path, &text, &workload, driver) };
    Ok(drivers.iter().enumerate().map(job).collect())
}

/// `turn` is that of the scenario's first run.
fn of_scenario(scenario: &Scenario, turn: usize) -> Result<Vec<Job>, InputError> {
    let job = |case: crate::suite::Case| Job {
        suite: scenario.suite.clone(),
        scenario: scenario.scenario.clone(),
        case: case.label,
        files: vec![(scenario.path(), scenario.text.clone())],
        takes_drivers: false,
        turn: turn + case.turn,
        source: Source::Workload {
            workload: Box::new(case.workload),
            driver: Box::new(case.driver),
            directory: None,
        },
    };
    Ok(scenario.cases()?.into_iter().map(job).collect())
}

fn of_spec(file: &str, text: String, spec: Spec) -> Job {
    Job {
        suite: file.to_owned(),
        scenario: String::new(),
        case: Vec::new(),
        files: vec![(file.to_owned(), text)],
        takes_drivers: false,
        turn: 0,
        source: Source::Spec(Box::new(spec)),
    }
}

fn of_workload(path: &Path, text: &str, workload: &Workload, driver: &DriverFile) -> Job {
    let file = path.display().to_string();
    let mut files = vec![(file.clone(), text.to_owned())];
    let mut case = Vec::new();
    if let Some(name) = &driver.name {
        files.push((name.clone(), driver.text.clone()));
        case.push(("driver".to_owned(), driver.driver.name.clone()));
    }
    let source = Source::Workload {
        workload: Box::new(workload.clone()),
        driver: Box::new(driver.driver.clone()),
        directory: directory_of(path),
    };
    Job { suite: file, scenario: String::new(), case, files, takes_drivers: true, turn: 0, source }
}

/// Directory of a file, from the root on: a file that is named without its directory has parents, too.
fn directory_of(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()?.parent().map(Path::to_owned)
}

impl Job {
    /// The same job, with `others` jobs before it.
    #[must_use]
    pub fn after(self, others: usize) -> Self {
        Self { turn: self.turn + others, ..self }
    }

    /// Index of the server that is measured first in this round; it is 0 in the first round of the job `first`. No
    /// server always begins the runs of one varied value: otherwise the effect of running first would look like that of
    /// the value.
    pub fn first_server(&self, first: &Self, servers: usize, round: u32) -> usize {
        let servers = servers.max(1);
        let before = servers - first.turn % servers;
        (self.turn + before + (round as usize).saturating_sub(1)) % servers
    }

    /// The plan of this job, shrunk by `scale`. `options` distinguish this run from others; the directory is the job's
    /// own.
    pub fn plan(&self, options: &PlanOptions, scale: f64) -> Result<Plan, InputError> {
        let mut plan = match &self.source {
            Source::Workload { workload, driver, directory } => {
                let options = PlanOptions { directory: directory.clone(), ..options.clone() };
                to_plan(&self.suite, workload, driver, &options)?
            }
            Source::Spec(spec) => {
                let mut plan = spec.to_plan(&self.suite, &options.run)?;
                plan.load.seed = options.seed;
                options.replication.into_iter().for_each(|replication| plan.replicate(replication));
                plan
            }
        };
        shrink(&mut plan, scale);
        Ok(plan)
    }

    /// Replication factor that its files ask for.
    pub fn replicas(&self) -> Result<Replicas, InputError> {
        self.plan(&PlanOptions::default(), 1.0).map(|plan| plan.replicas())
    }

    /// Bootstrap addresses that its files name.
    pub fn bootstrap(&self) -> Option<String> {
        match &self.source {
            Source::Workload { driver, .. } => driver.bootstrap(),
            Source::Spec(spec) => Some(spec.common().bootstrap_servers.clone()),
        }
        .filter(|bootstrap| !bootstrap.is_empty())
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        match &self.source {
            Source::Workload { driver, .. } => &driver.name,
            Source::Spec(_) => "Trogdor",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const WORKLOAD: &str = "name: n\ntopics: 1\npartitionsPerTopic: 5\nmessageSize: 4\nproducersPerTopic: 2
producerRate: 7\ntestDurationMinutes: 1\n";
    const DRIVER: &str = "name: d\ndriverClass: x.KafkaBenchmarkDriver\nreplicationFactor: 3
topicConfig: min.insync.replicas=2\ncommonConfig: bootstrap.servers=h:1\n";
    const SPEC: &str = r#"// A comment.
{"class": "x.ProduceBenchSpec", "durationMs": 10000, "bootstrapServers": "b:2", "maxMessages": 100,
 "activeTopics": {"foo": {"numPartitions": 1, "replicationFactor": 2, "configs": {"min.insync.replicas": 2}}}}"#;

    #[test]
    fn kinds_of_files_are_told_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("room");
            path.display().to_string()
        };
        let driver = DriverFile::read(Path::new(&write("d.yaml", DRIVER))).expect("a driver");
        let drivers = [DriverFile::default_driver(), driver];
        let of_workload = jobs(&write("w.yaml", WORKLOAD), &drivers).expect("a workload");
        assert_eq!(of_workload.len(), 2);
        let replicas = |job: &Job| job.replicas().map(|replicas| (replicas.count, replicas.min_in_sync)).ok();
        assert_eq!((of_workload[0].bootstrap(), replicas(&of_workload[0])), (None, Some((1, None))));
        assert_eq!(replicas(&of_workload[1]), Some((3, Some(2))));
        let fewer = |count| PlanOptions { replication: Some(count), seed: 9, ..PlanOptions::default() };
        let lowered = |count| of_workload[1].plan(&fewer(count), 1.0).expect("a plan").replicas().min_in_sync;
        assert_eq!(
            (lowered(1), lowered(2), lowered(3)),
            (Some(1), Some(2), Some(2)),
            "never more than there are"
        );
        assert_eq!((of_workload[1].bootstrap().as_deref(), of_workload[1].driver_name()), (Some("h:1"), "d"));
        assert_eq!(of_workload[1].files.len(), 2);
        let spec = jobs(&write("s.json", SPEC), &drivers).expect("a spec").remove(0);
        assert_eq!((spec.bootstrap().as_deref(), replicas(&spec)), (Some("b:2"), Some((2, Some(2)))));
        let plan = spec.plan(&fewer(1), 0.5).expect("a plan");
        assert_eq!((plan.replication(), plan.messages, plan.load.seed), (1, Some(50), 9));
        assert_eq!(plan.replicas().min_in_sync, Some(1));
        let scenario =
            "suite: X\nscenario: y\nabout: z\nworkload: {topics: 1, partitionsPerTopic: 1, messageSize: 9,
  producersPerTopic: 1, producerRate: 5, testDurationMinutes: 2}\n";
        let own = jobs(&write("own.yaml", scenario), &drivers).expect("a scenario");
        assert_eq!((own.len(), own[0].suite.as_str(), own[0].scenario.as_str()), (1, "X", "y"));
        let takers = [&of_workload[0], &of_workload[1], &spec, &own[0]].map(|job| job.takes_drivers);
        assert_eq!(takers, [true, true, false, false]);
    }

    #[test]
    fn file_is_found_in_its_directory_however_named() {
        // Tests run in the directory of their crate.
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().expect("it is there");
        assert_eq!(directory_of(Path::new("Cargo.toml")), Some(here.clone()));
        assert_eq!(directory_of(Path::new("src/../Cargo.toml")), Some(here));
    }

    /// How often each server is measured first, by varied value.
    fn firsts(jobs: &[Job], servers: usize) -> BTreeMap<&(String, String), Vec<usize>> {
        let mut firsts = BTreeMap::new();
        for job in jobs {
            for value in &job.case {
                let counts = firsts.entry(value).or_insert_with(|| vec![0; servers]);
                counts[job.first_server(&jobs[0], servers, 1)] += 1;
            }
        }
        firsts
    }

    #[test]
    fn servers_begin_equally_often_for_each_value() {
        for scenario in crate::suite::embedded() {
            let jobs = jobs(&scenario.path(), &[]).expect("a scenario");
            for servers in 1..=4 {
                for (value, counts) in firsts(&jobs, servers) {
                    let (most, least) = (counts.iter().max(), counts.iter().min());
                    let apart = most.zip(least).map_or(0, |(most, least)| most - least);
                    // Two servers share the runs of a value evenly; among more servers counts may differ by up to two.
                    let allowed = if servers == 2 { counts.iter().sum::<usize>() % 2 } else { 2 };
                    assert!(apart <= allowed, "{} {value:?}: {counts:?}", scenario.path());
                }
            }
            let again = |job: &Job| [1, 2, 3].map(|round| job.first_server(&jobs[0], 2, round));
            assert!(jobs.iter().all(|job| matches!(again(job), [0, 1, 0] | [1, 0, 1])));
            // Also without the first jobs: ratios are against the server that was measured first.
            assert!(jobs.iter().all(|job| job.first_server(job, 3, 1) == 0));
        }
    }

    #[test]
    fn files_and_drivers_named_together_take_turns() {
        let first = &jobs("A/mixed", &[]).expect("a scenario")[0];
        let scenario = |others| first.clone().after(others).first_server(first, 2, 1);
        assert_eq!((scenario(0), scenario(1), scenario(2)), (0, 1, 0));
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("w.yaml");
        std::fs::write(&path, WORKLOAD).expect("room");
        let drivers = [DriverFile::default_driver(), DriverFile::default_driver()];
        let of_drivers = jobs(&path.display().to_string(), &drivers).expect("a workload");
        assert_eq!(
            of_drivers.iter().map(|job| job.first_server(&of_drivers[0], 3, 1)).collect::<Vec<_>>(),
            [0, 1]
        );
        let suite = jobs("A", &[]).expect("a suite");
        let mut of_sync = suite.iter().filter(|job| {
            job.case.len() == 1 && job.case.contains(&("durability".to_owned(), "sync".to_owned()))
        });
        let (one, other) = (of_sync.next().expect("one"), of_sync.next().expect("another"));
        assert_eq!(other.first_server(one, 2, 1), 1, "scenarios that vary nothing else");
    }

    #[test]
    fn suites_are_found_by_name() {
        assert!(jobs("D", &[]).expect("a suite").len() > 4);
        let error = jobs("nothing.yaml", &[]).expect_err("no such file");
        assert!(error.to_string().contains("riverrun bench list"), "{error}");
    }
}
