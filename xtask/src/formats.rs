//! `cargo xtask formats`: copies the drawings of our file formats out of the modules that own them.
//!
//! A format is drawn once, at the head of its module; docs/format/ is generated from it and never edited. A test checks
//! that the checked-in pages are current.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A page, its title, and the modules whose heads it shows.
type Page = (&'static str, &'static str, &'static [&'static str]);

const PAGES: &[Page] = &[
    ("batch", "Record batch (`.log`)", &["crates/records/src/layout.rs"]),
    ("index", "Segment index (`.index`)", &["crates/log/src/index.rs"]),
    (
        "log-dir",
        "Log dir: checkpoint, check of its device",
        &["crates/log/src/checkpoint.rs", "crates/log/src/log_dir/device.rs"],
    ),
    (
        "state",
        "State beside a segment (`.state`)",
        &["crates/log/src/state_file.rs", "crates/log/src/producer_state/encoding.rs"],
    ),
    (
        "log-starts",
        "Log dir: log starts and cuts since the last checkpoint",
        &["crates/log/src/log_starts.rs"],
    ),
    (
        "journal",
        "Journal (`.journal`), and its side files",
        &["crates/journal/src/frames.rs", "crates/journal/src/side_files.rs"],
    ),
    (
        "queue",
        "Embedded queue: control file, what recovery set aside, places of tailers, producers",
        &[
            "crates/queue/src/layout.rs",
            "crates/queue/src/cut_dir.rs",
            "crates/queue/src/named.rs",
            "crates/broker/src/mounts/claim.rs",
        ],
    ),
    (
        "metadata",
        "Metadata: snapshot, log, identity and mark of log dirs",
        &["crates/broker/src/metadata/frames.rs", "crates/broker/src/metadata/node/marks.rs"],
    ),
];

const RULE: &str = "Every file begins with a magic and a format version; a `.log` begins with its first batch, and its \
                    version stands in the `.index` beside it. A version newer than the program's is refused by name, \
                    but for identity and mark of a log dir: these are written anew where that loses nothing. So is an \
                    older one: files of a journal before version 2 are from before a log could be cut, log starts of a \
                    log dir before version 3 from before such a cut told whether it was carried out, and checkpoints \
                    before version 4 from before segments had their state beside \
                    them.";

/// Writes all pages.
pub(crate) fn run() -> Result<()> {
    let root = root();
    for (path, text) in pages(&root)? {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().context("a page lies in a directory")?)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut index = format!(
        "# File formats\n\nMade by `cargo xtask formats` from the modules named on each page.\n\n{RULE}\n\n"
    );
    let mut pages = Vec::new();
    for (name, title, modules) in PAGES {
        let mut text = format!("# {title}\n");
        for module in *modules {
            let source = std::fs::read_to_string(root.join(module)).with_context(|| (*module).to_owned())?;
            write!(text, "\nFrom `{module}`:\n\n{}", head(&source))?;
        }
        writeln!(index, "- [{title}]({name}.md)")?;
        pages.push((PathBuf::from(format!("docs/format/{name}.md")), text));
    }
    pages.push((PathBuf::from("docs/format/README.md"), index));
    Ok(pages)
}

/// The `//!` lines at the head of a module, without their marks.
fn head(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.fold(String::new(), |text, line| text + line.strip_prefix(' ').unwrap_or(line) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_pages_are_current() {
        let root = root();
        for (path, text) in pages(&root).unwrap() {
            let found = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
            assert_eq!(found, text, "{} is old: run `cargo xtask formats`", path.display());
        }
    }

    #[test]
    fn the_head_of_a_module_ends_with_its_first_line_of_code() {
        assert_eq!(head("//! One.\n//!\n//!   two\nuse std;\n//! no"), "One.\n\n  two\n");
    }
}
