//! The crate graph, checked: which crate of the workspace may depend on which other.
//!
//! Owns the table of allowed arrows and the short list of outside crates that would break a promise such as "log knows
//! no sockets". Development dependencies are ignored: they are no part of the product, and a crate's tests may drive it
//! through a crate above it. A crate without a row is refused, so that a new crate has to declare its place.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::module_graph;

/// Crate directory below `crates/`, and the crates it may depend on. Ordered from the bottom up: an arrow never points
/// to a later row, which `every_arrow_of_the_table_points_down` checks.
const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("measure", &[]),
    // Held against the code, so it knows none of it.
    ("model", &[]),
    ("records", &["types"]),
    ("env", &["types"]),
    ("protocol", &["types", "records"]),
    ("journal", &["types", "env"]),
    ("queue", &["types", "records"]),
    ("log", &["types", "records", "env", "journal"]),
    ("coordinator", &["types", "records", "protocol"]),
    ("cluster", &["types", "env"]),
    ("broker", &["types", "records", "env", "protocol", "journal", "queue", "log", "coordinator"]),
    ("client", &["types", "records", "protocol"]),
    ("bench", &["types", "measure", "records", "protocol", "client"]),
    // No part of the server, so that a change there recompiles none of the tools.
    ("tools", &["types", "measure", "records", "env", "protocol", "queue", "client", "bench"]),
    (
        "cli",
        &[
            "types",
            "measure",
            "records",
            "env",
            "protocol",
            "journal",
            "queue",
            "log",
            "coordinator",
            "broker",
            "client",
            "bench",
            "tools",
        ],
    ),
];

/// Crates that are pure or speak to files only, and so have no use for a runtime or a socket.
const WITHOUT_SOCKETS: &[&str] =
    &["types", "records", "env", "protocol", "journal", "queue", "log", "coordinator"];

/// Outside crates that open sockets or bring an async runtime.
const SOCKET_CRATES: &[&str] = &["tokio", "socket2", "axum", "hyper"];

/// Prefix of every package below `crates/`.
const PACKAGE_PREFIX: &str = "riverrun-";

/// The part of `cargo metadata` that the check reads.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    kind: Option<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    features: Vec<String>,
}

impl Dependency {
    /// The crates that this dependency adds. An optional socket crate counts for the crates that enable it by a
    /// feature, for which outside crates may use the same name.
    fn names(&self) -> Vec<String> {
        let is_socket = SOCKET_CRATES.contains(&&*self.name);
        let asks = |feature: &&String| *feature == "net" && self.name.starts_with(PACKAGE_PREFIX);
        let by_feature = self.features.iter().filter(asks).map(|_| "tokio".to_owned());
        let itself = (!(is_socket && self.optional)).then(|| self.name.clone());
        itself.into_iter().chain(by_feature).collect()
    }
}

/// Reads the workspace with `cargo metadata` and fails with one line per forbidden arrow.
pub(crate) fn run() -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cargo metadata did not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let graph = graph_of(&serde_json::from_slice(&output.stdout)?);
    let violations = violations_of(&graph);
    if !violations.is_empty() {
        bail!("the crate graph breaks the design's table:\n  {}", violations.join("\n  "));
    }
    println!("crate graph: {} crates, every arrow allowed", graph.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    module_graph::check(root)
}

/// Crate directory name -> names of its dependencies (workspace crates without their prefix).
type Graph = BTreeMap<String, Vec<String>>;

fn graph_of(metadata: &Metadata) -> Graph {
    let crates = metadata.packages.iter().filter_map(|package| {
        let name = package.name.strip_prefix(PACKAGE_PREFIX)?;
        let product =
            package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        Some((name.to_owned(), product.flat_map(Dependency::names).collect()))
    });
    crates.collect()
}

fn violations_of(graph: &Graph) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, dependencies) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(row, _)| row == name) else {
            violations.push(format!("crate `{name}` has no row in the table"));
            continue;
        };
        for dependency in dependencies {
            violations.extend(violation_of(name, allowed, dependency));
        }
    }
    violations
}

fn violation_of(name: &str, allowed: &[&str], dependency: &str) -> Option<String> {
    if let Some(inner) = dependency.strip_prefix(PACKAGE_PREFIX) {
        let known = allowed.contains(&inner);
        return (!known).then(|| format!("`{name}` may not depend on `{inner}`"));
    }
    let refused = WITHOUT_SOCKETS.contains(&name) && SOCKET_CRATES.contains(&dependency);
    refused.then(|| format!("`{name}` knows no sockets and no runtime, yet depends on `{dependency}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &[&str])]) -> Graph {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        arrows.iter().map(|(name, to)| ((*name).to_owned(), owned(to))).collect()
    }

    #[test]
    fn every_arrow_of_the_table_points_down() {
        for (row, (name, allowed)) in ALLOWED.iter().enumerate() {
            for to in *allowed {
                let below = ALLOWED[..row].iter().any(|(earlier, _)| earlier == to);
                assert!(below, "{name} -> {to} points up or to itself");
            }
        }
    }

    #[test]
    fn the_table_of_the_page_is_the_one_that_is_checked() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
        let page = std::fs::read_to_string(page).unwrap();
        let listed =
            |cell: &str| cell.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let rows = page.lines().skip_while(|line| *line != "| crate | may use |").skip(2);
        let table: Graph = rows
            .map_while(|line| line.strip_prefix("| ")?.strip_suffix('|')?.split_once(" | "))
            .flat_map(|(names, allowed)| {
                let allowed: Vec<String> = listed(allowed.trim());
                let names: Vec<String> = listed(names);
                names.into_iter().map(move |name| (name, allowed.clone()))
            })
            .collect();
        assert_eq!(table, graph(ALLOWED));
    }

    #[test]
    fn an_allowed_graph_passes() {
        let graph = graph(&[("types", &["thiserror"]), ("broker", &["riverrun-log", "tokio"])]);
        assert_eq!(violations_of(&graph), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upward_is_named() {
        let graph = graph(&[("records", &["riverrun-types", "riverrun-log"])]);
        assert_eq!(violations_of(&graph), ["`records` may not depend on `log`"]);
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        assert_eq!(violations_of(&graph(&[("tier", &[])])), ["crate `tier` has no row in the table"]);
    }

    #[test]
    fn a_socket_below_the_broker_is_refused() {
        let found = violations_of(&graph(&[("log", &["tokio"])]));
        assert_eq!(found, ["`log` knows no sockets and no runtime, yet depends on `tokio`"]);
    }

    #[test]
    fn an_optional_socket_counts_for_the_crate_that_asks_for_it() {
        let json = r#"{"packages":[
            {"name":"riverrun-env","dependencies":[{"name":"tokio","kind":null,"optional":true,"features":["net"]}]},
            {"name":"riverrun-log","dependencies":[{"name":"riverrun-env","kind":null,"features":["net"]}]}]}"#;
        let metadata: Metadata = serde_json::from_str(json).unwrap();
        let found = violations_of(&graph_of(&metadata));
        assert_eq!(found, ["`log` knows no sockets and no runtime, yet depends on `tokio`"]);
    }

    #[test]
    fn development_dependencies_are_not_counted() {
        let json = r#"{"packages":[
            {"name":"riverrun-log","dependencies":[{"name":"riverrun-broker","kind":"dev"},{"name":"bytes","kind":null}]},
            {"name":"xtask","dependencies":[{"name":"riverrun-cli","kind":null}]}]}"#;
        let metadata: Metadata = serde_json::from_str(json).unwrap();
        assert_eq!(graph_of(&metadata), graph(&[("log", &["bytes"])]));
    }
}
