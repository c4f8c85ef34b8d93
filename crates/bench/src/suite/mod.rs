//! Named suites: a small file in the binary for each scenario by which such systems are commonly measured.
//!
//! Owns the form of such a file: a workload and a driver with the keys of `OpenMessaging` Benchmark, and the keys to
//! vary. `cases` are sets of keys, one after the other; `vary` is keys with lists of values, all of which are combined.
//! A key belongs to the workload or to the driver, where `producerConfig.linger.ms` is one setting.

mod files;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::input::{InputError, from_yaml};
use crate::omb::{Driver, Workload};

/// Most runs of one scenario.
const RUNS_MAX: usize = 1000;
/// Keys of a driver that hold settings, one on each line.
const SETTINGS: [&str; 4] = ["topicConfig", "commonConfig", "producerConfig", "consumerConfig"];

/// A scenario as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The suite's name.
    pub suite: String,
    /// Its own name.
    pub scenario: String,
    /// Its subject; may be left out.
    #[serde(default)]
    pub about: String,
    /// Keys of the workload.
    workload: Map<String, Value>,
    /// Keys of the driver: settings of clients and topics.
    #[serde(default)]
    driver: Map<String, Value>,
    /// Sets of keys that are run one after the other.
    #[serde(default)]
    cases: Vec<Map<String, Value>>,
    /// Keys and lists of values that are all combined.
    #[serde(default)]
    vary: Vec<Map<String, Value>>,
    /// Text of the file.
    #[serde(skip)]
    pub text: String,
}

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Case {
    /// Key and value of each varied parameter.
    pub label: Vec<(String, String)>,
    /// The sum of the indices of its values in their lists, where one of `cases` counts as one value. Among the runs
    /// with a common value, even and odd sums are equally many as far as possible.
    pub turn: usize,
    /// The workload to run.
    pub workload: Workload,
    /// The driver to run it with.
    pub driver: Driver,
}

impl Scenario {
    /// Reads a scenario; `file` is for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        let mut scenario: Self = from_yaml(file, text)?;
        text.clone_into(&mut scenario.text);
        Ok(scenario)
    }

    /// `suite/scenario`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.suite, self.scenario)
    }

    /// All runs.
    pub fn cases(&self) -> Result<Vec<Case>, InputError> {
        let file = self.path();
        let case = |(turn, case): (usize, &Map<String, Value>)| Combined {
            keys: case.clone().into_iter().collect(),
            turn,
        };
        let mut combined: Vec<_> = self.cases.iter().enumerate().map(case).collect();
        if combined.is_empty() {
            combined.push(Combined::default());
        }
        for (key, values) in self.vary.iter().flatten() {
            let values = values.as_array().filter(|values| !values.is_empty());
            let values =
                values.ok_or_else(|| InputError::refused(&file, format!("vary: {key} has no list")))?;
            combined = combine(&combined, key, values);
            if combined.len() > RUNS_MAX {
                return Err(InputError::refused(&file, format!("more than {RUNS_MAX} runs")));
            }
        }
        combined.iter().map(|combined| self.case(combined)).collect()
    }

    fn case(&self, Combined { keys, turn }: &Combined) -> Result<Case, InputError> {
        let file = self.path();
        let (mut workload, mut driver) = (self.workload.clone(), self.driver.clone());
        for (key, value) in keys {
            set(&mut workload, &mut driver, key, value);
        }
        let syntax =
            |error: serde_json::Error| InputError::Syntax { file: file.clone(), message: error.to_string() };
        let mut workload: Workload = serde_json::from_value(Value::Object(workload)).map_err(syntax)?;
        let label: Vec<_> = keys.iter().map(|(key, value)| (short(key), text(value))).collect();
        workload.name = title(&file, &label);
        let driver: Driver = serde_json::from_value(Value::Object(driver)).map_err(syntax)?;
        Ok(Case { label, turn: *turn, workload: workload.checked(&file)?, driver: driver.checked(&file)? })
    }
}

/// The varied keys of one run.
#[derive(Clone, Debug, Default)]
struct Combined {
    /// In the order of the label.
    keys: Vec<(String, Value)>,
    turn: usize,
}

fn combine(cases: &[Combined], key: &str, values: &[Value]) -> Vec<Combined> {
    let with = |case: &Combined, (at, value): (usize, &Value)| Combined {
        keys: [case.keys.clone(), vec![(key.to_owned(), value.clone())]].concat(),
        turn: case.turn + at,
    };
    let all = |case| values.iter().enumerate().map(|value| with(case, value)).collect::<Vec<_>>();
    cases.iter().flat_map(all).collect()
}

fn set(workload: &mut Map<String, Value>, driver: &mut Map<String, Value>, key: &str, value: &Value) {
    match key.split_once('.') {
        Some((settings, name)) if SETTINGS.contains(&settings) => {
            let mut lines = driver.get(settings).and_then(Value::as_str).unwrap_or_default().to_owned();
            if !lines.is_empty() && !lines.ends_with('\n') {
                lines.push('\n');
            }
            // The later of two lines with one key wins.
            lines.extend([name, "=", &text(value), "\n"]);
            driver.insert(settings.to_owned(), lines.into());
        }
        _ if key == "replicationFactor" || SETTINGS.contains(&key) => {
            driver.insert(key.to_owned(), value.clone());
        }
        _ => {
            workload.insert(key.to_owned(), value.clone());
        }
    }
}

/// A key without the name of the driver's key it belongs to.
fn short(key: &str) -> String {
    match key.split_once('.') {
        Some((settings, name)) if SETTINGS.contains(&settings) => name.to_owned(),
        _ => key.to_owned(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn title(path: &str, label: &[(String, String)]) -> String {
    let parts: Vec<_> = label.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if parts.is_empty() { path.to_owned() } else { format!("{path} {}", parts.join(" ")) }
}

/// All scenarios of the binary, in their order. They parse: a test reads them all.
pub fn embedded() -> Vec<Scenario> {
    let read = |(file, text): &(&str, &str)| Scenario::parse(file, text);
    files::ALL.iter().map(read).collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"))
}

/// The scenarios of a name: a suite as `A`, or one scenario as `A/catch-up`.
pub fn find(name: &str) -> Vec<Scenario> {
    let is_meant = |scenario: &Scenario| {
        scenario.suite.eq_ignore_ascii_case(name) || scenario.path().eq_ignore_ascii_case(name)
    };
    embedded().into_iter().filter(is_meant).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::omb::{PlanOptions, to_plan};

    #[test]
    fn embedded_scenarios_are_valid_without_unknown_keys() {
        let mut paths = BTreeSet::new();
        for scenario in embedded() {
            assert!(paths.insert(scenario.path()), "{} is there twice", scenario.path());
            let cases = scenario.cases().unwrap_or_else(|error| panic!("{error}"));
            let titles: BTreeSet<_> = cases.iter().map(|case| case.workload.name.clone()).collect();
            assert_eq!(titles.len(), cases.len(), "{}: two runs alike", scenario.path());
            for case in cases {
                let plan = to_plan("s", &case.workload, &case.driver, &PlanOptions::default());
                let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", case.workload.name));
                assert_eq!(plan.notes, Vec::<String>::new(), "{}", case.workload.name);
                let unknown = crate::worker::check_settings(&plan.load).expect("right values");
                assert_eq!(unknown, Vec::<String>::new(), "{}", case.workload.name);
            }
        }
        let suites: BTreeSet<_> = embedded().into_iter().map(|scenario| scenario.suite).collect();
        assert_eq!(suites.into_iter().collect::<String>(), "ABCD");
    }

    #[test]
    fn cases_and_variations_are_all_combined() {
        let text = "suite: X\nscenario: y\nabout: z
workload: {topics: 1, partitionsPerTopic: 1, messageSize: 9, producersPerTopic: 1, producerRate: 5, testDurationMinutes: 2}
driver: {producerConfig: \"acks=all\\nlinger.ms=3\"}
cases: [{topics: 1}, {topics: 2, messageSize: 7}]
vary: [{producerConfig.linger.ms: [0, 9]}, {durability: [sync]}]\n";
        let scenario = Scenario::parse("x", text).expect("it is right");
        let cases = scenario.cases().expect("it can be run");
        let names: Vec<_> = cases.iter().map(|case| case.workload.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "X/y topics=1 linger.ms=0 durability=sync",
                "X/y topics=1 linger.ms=9 durability=sync",
                "X/y messageSize=7 topics=2 linger.ms=0 durability=sync",
                "X/y messageSize=7 topics=2 linger.ms=9 durability=sync",
            ]
        );
        let settings = cases[1].driver.producer_settings("");
        assert_eq!((settings.get("acks"), settings.get("linger.ms")), (Some("all"), Some("9")));
    }

    #[test]
    fn scenario_with_an_unknown_key_is_refused() {
        let error = Scenario::parse("x", "suite: X\nscenario: y\nabout: z\nworkload: {}\ncolour: blue\n");
        assert!(error.expect_err("unknown").to_string().contains("colour"));
        let empty = "suite: X\nscenario: y\nabout: z\nworkload: {}\nvary: [{topics: 3}]\n";
        let error = Scenario::parse("x", empty).expect("it reads").cases().expect_err("no list");
        assert!(error.to_string().contains("topics has no list"), "{error}");
    }

    #[test]
    fn about_may_be_left_out() {
        let scenario = Scenario::parse("x", "suite: X\nscenario: y\nworkload: {}\n").expect("it is right");
        assert_eq!(scenario.about, "");
    }

    #[test]
    fn scenarios_are_found_by_suite_and_by_name() {
        assert!(find("b").len() > 1 && find("b").iter().all(|one| one.suite == "B"));
        assert_eq!(find("a/catch-up").len(), 1);
        assert!(find("nothing").is_empty());
    }
}
