//! The reference of all options as Markdown, made from the tables that the server itself reads.

use std::fmt::Write as _;

use super::alter::is_dynamic;
use super::broker::SECTIONS;
use super::definition::{Accept, OptionDef};
use super::load::environment_name;
use super::own_group;
use super::topic::{self, TopicOptions};

const HEAD: &str = "# Configuration

This page is made from the option tables of `crates/broker/src/config/`; a test keeps it current.

An option is set in one TOML file, in the environment, or by a flag; a later one of these wins. In the file a name may
be quoted (`\"log.retention.ms\" = 1`), bare (`log.retention.ms = 1`) or nested (`[log.retention]`, `ms = 1`). The
environment variable is `RIVERRUN_` and the name in capitals with `_` for `.`
(`RIVERRUN_LOG_RETENTION_MS`). The flag is `--set log.retention.ms=1`. An unknown name or a value outside its range
stops the start with an error that says so. Variables that Kubernetes makes for a Service of such a name
(`RIVERRUN_SERVICE_HOST`, `RIVERRUN_PORT_9092_TCP`) are passed over by their names, whatever their values are; `RIVERRUN_PORT`
only if its value is such as Kubernetes writes (`tcp://10.0.0.11:9092`).

The server's options cannot be changed while it runs, besides those that say so. Topic configs and group configs can.

`riverrun serve` raises the limit of open descriptors to the hard limit that the system sets for the process (`ulimit
-Hn`, systemd's `LimitNOFILE`), and warns at the start if that is below 65536. Half of
them are for files of logs: a server of more active partitions closes and opens files in turn, and works. A quarter of
these may be held by answers to fetches that clients have not taken yet, and one address may hold as many as it leaves
free; beyond, a fetch copies up to a MiB of records instead, and answers with the rest later. Of
the other half, 80 and 16 for each log dir and journal dir are kept for all else, and the rest is for connections: see
`max.connections`. When
they run out, connections are closed, nothing is lost and no restart is needed. A server that would have room for fewer than
16 connections does not start: with one log dir and one journal dir it needs 256 descriptors.
";

/// The whole page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for section in SECTIONS.iter() {
        write_section(&mut page, section.heading, &section.options, &|def| {
            let dynamic = if is_dynamic(def.name) { " Can be changed while the server runs." } else { "" };
            format!("Environment: `{}`.{dynamic}", environment_name(def.name))
        });
    }
    write_section(&mut page, "Topic configs", TopicOptions::DEFINITIONS, &|def| {
        let names: Vec<_> =
            topic::synonyms(def.name).iter().map(|synonym| format!("`{}`", synonym.name)).collect();
        if names.is_empty() { String::new() } else { format!("Server's default: {}.", names.join(", ")) }
    });
    write_section(&mut page, "Group configs", own_group::DEFINITIONS, &|def| {
        format!("Server's default: `{}`.", own_group::synonym(def.name))
    });
    page
}

fn write_section(
    page: &mut String,
    heading: &str,
    options: &[OptionDef],
    note: &dyn Fn(&OptionDef) -> String,
) {
    write!(page, "\n## {heading}\n").expect("a String takes every text");
    for def in options {
        write!(page, "\n### `{}`\n\n{}\n\n{}\n", def.name, def.text(), facts(def, &note(def)))
            .expect("a String takes every text");
    }
}

fn facts(def: &OptionDef, note: &str) -> String {
    let default = match def.default {
        None => "not set".to_owned(),
        Some("") => "empty".to_owned(),
        Some(text) => format!("`{text}`"),
    };
    let allowed = match def.accept {
        Accept::Only(_, why) => format!("{}; {why}", def.kind),
        Accept::All => def.kind.to_string(),
    };
    let facts = format!("Type {}. Default: {default}. Allowed: {allowed}. {note}", def.kind.type_name());
    facts.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Set to rewrite the page instead of comparing it.
    const REWRITE_VARIABLE: &str = "UPDATE_DOCS";

    #[test]
    fn the_page_in_docs_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let page = super::markdown();
        if std::env::var_os(REWRITE_VARIABLE).is_some() {
            std::fs::create_dir_all(path.parent().expect("docs")).expect("docs is writable");
            std::fs::write(&path, &page).expect("the page is writable");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page,
            "docs/configuration.md is not current; run the tests with {REWRITE_VARIABLE}=1"
        );
    }
}
