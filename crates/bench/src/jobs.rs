//! What a person asked to run: files and suites by name, as single jobs.
//!
//! Owns telling the kinds of files apart, and the plan of each job. A job says nothing of servers: each is run on all.

use std::path::{Path, PathBuf};

use crate::input::{InputError, read_text};
use crate::omb::{Driver, PlanOptions, Workload, to_plan};
use crate::plan::{Plan, Replicas};
use crate::scale::shrink;
use crate::suite::{Scenario, find};
use crate::trogdor::Spec;

/// A driver and where it was read.
#[derive(Clone, Debug)]
pub struct DriverFile {
    /// The file's name; none for the default.
    name: Option<String>,
    text: String,
    driver: Driver,
}

impl DriverFile {
    /// Every setting as the client has it.
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

/// One run, to be made on each server.
#[derive(Clone, Debug)]
pub struct Job {
    /// The suite, or the file.
    pub suite: String,
    /// The scenario; empty for a file.
    pub scenario: String,
    /// What it varies.
    pub case: Vec<(String, String)>,
    /// Texts of the files it came from, by name.
    pub files: Vec<(String, String)>,
    source: Source,
}

/// The jobs that `what` names: a workload or suite file (YAML), a Trogdor spec (JSON), or an embedded suite or scenario.
/// A workload is run with each of the drivers.
pub fn jobs(what: &str, drivers: &[DriverFile]) -> Result<Vec<Job>, InputError> {
    let path = Path::new(what);
    if !path.is_file() {
        let scenarios = find(what);
        if scenarios.is_empty() {
            let reason =
                "there is no such file, suite or scenario; `riverrun bench list` shows those that there are";
            return Err(InputError::refused(what, reason));
        }
        return scenarios.iter().map(of_scenario).collect::<Result<Vec<_>, _>>().map(|jobs| jobs.concat());
    }
    let text = read_text(path)?;
    if path.extension().is_some_and(|extension| extension == "json") {
        let spec = Spec::parse(what, &text)?;
        return Ok(vec![of_spec(what, text, spec)]);
    }
    if text.lines().any(|line| line.starts_with("scenario:")) {
        return of_scenario(&Scenario::parse(what, &text)?);
    }
    let workload = Workload::parse(what, &text)?;
    Ok(drivers.iter().map(|driver| of_workload(path, &text, &workload, driver)).collect())
}

fn of_scenario(scenario: &Scenario) -> Result<Vec<Job>, InputError> {
    let job = |case: crate::suite::Case| Job {
        suite: scenario.suite.clone(),
        scenario: scenario.scenario.clone(),
        case: case.label,
        files: vec![(scenario.path(), scenario.text.clone())],
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
        directory: path.parent().map(Path::to_owned),
    };
    Job { suite: file, scenario: String::new(), case, files, source }
}

impl Job {
    /// What it does, shrunk by `scale`. `options` tell this run from others; the directory is the job's own.
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

    /// Replicas that its files want.
    pub fn replicas(&self) -> Result<Replicas, InputError> {
        self.plan(&PlanOptions::default(), 1.0).map(|plan| plan.replicas())
    }

    /// Where its files say that the servers are.
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
    use super::*;

    const WORKLOAD: &str = "name: n\ntopics: 1\npartitionsPerTopic: 5\nmessageSize: 4\nproducersPerTopic: 2
producerRate: 7\ntestDurationMinutes: 1\n";
    const DRIVER: &str = "name: d\ndriverClass: x.KafkaBenchmarkDriver\nreplicationFactor: 3
topicConfig: min.insync.replicas=2\ncommonConfig: bootstrap.servers=h:1\n";
    const SPEC: &str = r#"// A comment.
{"class": "x.ProduceBenchSpec", "durationMs": 10000, "bootstrapServers": "b:2", "maxMessages": 100,
 "activeTopics": {"foo": {"numPartitions": 1, "replicationFactor": 2, "configs": {"min.insync.replicas": 2}}}}"#;

    #[test]
    fn files_are_told_apart_and_a_workload_is_run_with_each_driver() {
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
    }

    #[test]
    fn suites_are_found_by_name_and_nothing_else_is() {
        assert!(jobs("D", &[]).expect("a suite").len() > 4);
        let error = jobs("nothing.yaml", &[]).expect_err("no such file");
        assert!(error.to_string().contains("riverrun bench list"), "{error}");
    }
}
