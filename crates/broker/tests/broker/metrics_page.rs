//! `docs/metrics.md` is made of the help texts of `/metrics`: every metric stands in it, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::admin_port::{commit, get_with};
use crate::support::{Client, batch, create_topic, produce, server_with};

/// Set to rewrite the page instead of comparing it.
const REWRITE_VARIABLE: &str = "UPDATE_DOCS";

const HEAD: &str = "\
# Metrics

The table is made from what `/metrics` says of itself; a test keeps it current.

`riverrun serve --admin 127.0.0.1:9644` (`admin.listen`) answers `GET /metrics` in Prometheus's text format, or in OpenMetrics
for who asks for that. The port has no access control: keep it on an address that only those reach who may read the names of
topics and groups. A scrape opens no partition. One that takes longer than eight seconds, as of very many partitions, is
answered with an error.

Names are those of the samples, as queries take them. A histogram has `_bucket`, `_sum` and `_count` behind its name. Counters
begin at 0 with each start.

| label | is |
|---|---|
| `api` | a request of Kafka's protocol, such as `Produce` |
| `dir` | a log dir, or a journal's directory, as a path |
| `for` | what a journal waits for: `settling` or `system` |
| `group`, `topic`, `partition` | names, and the partition's index from 0 |
| `le` | the upper bound of a bucket of a histogram, in seconds |
| `reason` | what ended the gathering of a group of records: `queue_empty`, `group_bytes` or `group_wait` |
| `thread` | a thread or task of the server |
| `what` | what requests wait for: `write_cache`, `log_dir`, `metadata`, `journal`, `request_memory`, `any_request_memory`, `response_memory`, `network_threads` or `turns` |

## What to watch

`/health` of the same port answers 503 with a line for each thing that is wrong: watch that first. Beside it:

- `riverrun_log_dir_failed`, `riverrun_journal_failed`, `riverrun_partitions_offline`, `riverrun_partitions_unreadable` and
  `riverrun_partitions_unwritable` above 0: a disk, or what lies on it ([damage.md](damage.md)). `riverrun_partitions_uncleanable`
  above 0: a log that grows because it cannot be compacted.
- `riverrun_log_dir_full` or `riverrun_journal_waiting{for=\"system\"}` at 1: producers are refused for want of space.
- `riverrun_thread_up` at 0: a fault of the server.
- `riverrun_waiting_seconds`: clients wait, and for what.
- `riverrun_group_lag` that grows: a group reads more slowly than it is written to.
- `riverrun_durability_level` above `riverrun_durability_level_wanted` for longer than a minute: a change to a level that syncs
  is not done yet.

## All metrics

| name | type | unit | labels | meaning |
|---|---|---|---|---|
";

/// Metrics that have no samples while all is well, and their labels.
const WITHOUT_SAMPLES: [(&str, &str); 2] =
    [("riverrun_group_lag_unknown", "`group`"), ("riverrun_waiting_seconds", "`what`")];

/// A metric's entry in an exposition.
#[derive(Debug, Default)]
struct Family<'t> {
    kind: &'t str,
    unit: &'t str,
    help: &'t str,
    labels: Option<String>,
}

/// The metrics of an `OpenMetrics` exposition by name.
fn families(text: &str) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut last = "";
    for line in text.lines() {
        let told = line.strip_prefix("# ").and_then(|told| told.split_once(' '));
        let Some((what, (name, rest))) = told.and_then(|(what, rest)| Some((what, rest.split_once(' ')?)))
        else {
            if let Some(family) = families.get_mut(last).filter(|_| !line.starts_with('#')) {
                family.labels.get_or_insert_with(|| labels(line));
            }
            continue;
        };
        let family = families.entry(name).or_default();
        last = name;
        match what {
            "HELP" => family.help = rest,
            "TYPE" => family.kind = rest,
            "UNIT" => family.unit = rest,
            other => panic!("{other} of {name}"),
        }
    }
    families
}

/// The names of a sample's labels. No value here has a comma or an equals sign in it.
fn labels(sample: &str) -> String {
    let Some((_, rest)) = sample.split_once('{') else { return String::new() };
    let (labels, _) = rest.rsplit_once('}').expect("a closed bracket");
    let names = labels.split(',').map(|label| label.split('=').next().expect("a name"));
    names
        .filter(|name| !["", "le"].contains(name))
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn page(text: &str) -> String {
    let mut page = HEAD.to_owned();
    for (name, Family { kind, unit, help, labels }) in families(text) {
        let known = WITHOUT_SAMPLES.iter().find(|(known, _)| *known == name);
        let labels = labels.as_deref().or(known.map(|(_, labels)| *labels));
        let labels = labels.unwrap_or_else(|| panic!("{name} has no samples, and nobody knows its labels"));
        let suffix = if kind == "counter" { "_total" } else { "" };
        writeln!(page, "| `{name}{suffix}` | {kind} | {unit} | {labels} | {help} |")
            .expect("a String takes every text");
    }
    page
}

#[test]
fn the_page_of_metrics_is_current() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a", "b"]));
    commit(&mut client);
    let accept = "Accept: application/openmetrics-text\r\n";
    let (_, text) = get_with(server.admin_address().expect("an admin port"), "/metrics", accept);
    let page = page(&text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os(REWRITE_VARIABLE).is_some() {
        std::fs::write(&path, &page).expect("the page is writable");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/metrics.md is not current; run the tests with {REWRITE_VARIABLE}=1");
}
