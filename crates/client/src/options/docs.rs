//! The reference of all options as Markdown, generated from the tables that the client itself reads.

use std::fmt::Write as _;

use super::OptionDef;
use crate::{ClusterOptions, ConsumerOptions, ProducerOptions};

const HEAD: &str = "# Options of the Rust client

This page is made from the option tables of `crates/client/`; a test keeps it current.

Each option is a field of `ClusterOptions`, `ProducerOptions` or `ConsumerOptions`, and has a name for texts:
`ProducerOptions::from_properties([(\"linger.ms\", \"20\")])`. Names and defaults are those of Kafka 4 where Kafka has the
option; what is different is said. A value that is not allowed is refused with the option's name and what is allowed, and
so is a name that is not on this page. Between the options there are these bounds: `enable.idempotence` needs `acks=all`
and `retries` of at least 1, and in a classic group `heartbeat.interval.ms` is below `session.timeout.ms`.

A consumer never asks for a topic to be made: it is as Kafka's with `allow.auto.create.topics=false`, whose default is true,
and there is no option for the other. A producer does, as Kafka's does, where a record's topic is not there. Servers so old
that their newest version of Metadata is below 4 make topics whoever asks, if they make any on demand.
";

/// The whole page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for (heading, definitions) in [
        ("Producer, consumer and admin", ClusterOptions::DEFINITIONS),
        ("Producer", ProducerOptions::DEFINITIONS),
        ("Consumer", ConsumerOptions::DEFINITIONS),
    ] {
        let _ = write!(page, "\n## {heading}\n");
        for definition in definitions {
            write_option(&mut page, definition);
        }
    }
    page
}

fn write_option(page: &mut String, definition: &OptionDef) {
    let OptionDef { name, kind, default, doc } = definition;
    let default = match default {
        None => "not set".to_owned(),
        Some("") => "empty".to_owned(),
        Some(text) => format!("`{text}`"),
    };
    let type_name = kind.type_name();
    let _ = write!(
        page,
        "\n### `{name}`\n\n{}\n\nType {type_name}. Default: {default}. Allowed: {kind}.\n",
        doc.trim()
    );
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Set it to rewrite the page instead of comparing it.
    const REWRITE_VARIABLE: &str = "UPDATE_DOCS";

    #[test]
    fn the_page_in_docs_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/client-options.md");
        let page = super::markdown();
        if std::env::var_os(REWRITE_VARIABLE).is_some() {
            std::fs::write(&path, &page).expect("the page is writable");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page,
            "docs/client-options.md is not current; run the tests with {REWRITE_VARIABLE}=1"
        );
    }
}
