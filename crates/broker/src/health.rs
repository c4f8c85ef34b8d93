//! The state of the server as values: the findings of `/health`, whichever part finds them.
//!
//! Owns the codes. Each is a name that stays, so that a program may act on it; the text beside it is for people and may
//! change. docs/operations.md lists them.

use std::path::Path;

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// The object is as its owner wants it; people should know.
    Ok,
    /// The server does its work; somebody should look.
    Warning,
    /// The server cannot do its work, or a part of it.
    Critical,
}

/// The object of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub(crate) enum Object {
    /// The server as a whole.
    Process,
    LogDir(String),
    Journal(String),
    /// A partition, as `topic-0`.
    Partition(String),
    Topic(String),
    /// The groups of a partition of `__consumer_offsets`, by that partition.
    Group(String),
}

impl Object {
    pub(crate) fn log_dir(path: &Path) -> Self {
        Self::LogDir(path.display().to_string())
    }

    pub(crate) fn journal(path: &Path) -> Self {
        Self::Journal(path.display().to_string())
    }
}

/// Makes the codes, with their names.
macro_rules! codes {
    ($($code:ident = $name:literal),* $(,)?) => {
        /// The code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub(crate) enum Code {
            $(#[serde(rename = $name)] $code),*
        }

        /// All names, in the order of the document.
        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),*];
    };
}

codes! {
    ThreadDied = "thread-died",
    MetadataFailed = "metadata-failed",
    MetadataCopyOld = "metadata-copy-old",
    LogDirFailed = "log-dir-failed",
    LogDirShort = "log-dir-short",
    LogDirStuck = "log-dir-stuck",
    LogDirUnanswered = "log-dir-unanswered",
    LogDirCordoned = "log-dir-cordoned",
    JournalFailed = "journal-failed",
    JournalShort = "journal-short",
    JournalFull = "journal-full",
    JournalListCopyOld = "journal-list-copy-old",
    PartitionOffline = "partition-offline",
    PartitionUnwritable = "partition-unwritable",
    PartitionUnreadable = "partition-unreadable",
    PartitionUncleanable = "partition-uncleanable",
    PartitionsUnknown = "partitions-unknown",
    TopicsSetAside = "topics-set-aside",
    QueueGone = "queue-gone",
    QueueDamaged = "queue-damaged",
    GroupsFailed = "groups-failed",
    GroupsCut = "groups-cut",
    GroupMemoryShort = "group-memory-short",
    ResponseMemoryShort = "response-memory-short",
    LogLinesLost = "log-lines-lost",
    WaitWriteCache = "wait-write-cache",
    WaitLogDir = "wait-log-dir",
    WaitMetadata = "wait-metadata",
    WaitJournal = "wait-journal",
    WaitRequestMemory = "wait-request-memory",
    WaitAnyRequestMemory = "wait-any-request-memory",
    WaitResponseMemory = "wait-response-memory",
    WaitNetworkThreads = "wait-network-threads",
    WaitTurns = "wait-turns",
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) code: Code,
    pub(crate) severity: Severity,
    pub(crate) object: Object,
    pub(crate) text: String,
}

impl Finding {
    /// A finding that keeps the server from its work.
    pub(crate) fn critical(code: Code, object: Object, text: String) -> Self {
        Self { code, severity: Severity::Critical, object, text }
    }

    /// A finding at which somebody should look.
    pub(crate) fn warning(code: Code, object: Object, text: String) -> Self {
        Self { code, severity: Severity::Warning, object, text }
    }

    /// A finding that people should know.
    pub(crate) fn known(code: Code, object: Object, text: String) -> Self {
        Self { code, severity: Severity::Ok, object, text }
    }
}

/// The state of a server, for monitoring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Health {
    /// The worst severity of all findings.
    status: Severity,
    findings: Vec<Finding>,
}

impl Health {
    /// Orders the findings: critical ones come first, and the rest keeps its order.
    pub(crate) fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.severity != Severity::Critical);
        let status = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
        Self { status, findings }
    }

    /// Whether no finding keeps the server from its work.
    pub(crate) fn is_well(&self) -> bool {
        self.status < Severity::Critical
    }

    /// The texts, critical ones first.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().map(|finding| finding.text.as_str())
    }

    /// The texts of critical findings.
    #[cfg(test)]
    pub(crate) fn troubles(&self) -> Vec<String> {
        let critical = self.findings.iter().filter(|finding| finding.severity == Severity::Critical);
        critical.map(|finding| finding.text.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_document_and_no_other() {
        let page = include_str!("../../../docs/operations.md");
        let (_, section) = page.split_once("## Health").expect("there is a section");
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        let told: Vec<&str> = rows.map(|(code, _)| code).collect();
        assert_eq!(told, NAMES);
    }

    #[test]
    fn critical_findings_come_first_and_decide_the_status() {
        let warning = Finding::warning(Code::WaitTurns, Object::Process, "they wait".to_owned());
        assert!(Health::of(vec![warning.clone()]).is_well());
        let critical =
            Finding::critical(Code::LogDirFailed, Object::log_dir(Path::new("/a")), "it failed".to_owned());
        let health = Health::of(vec![warning, critical]);
        assert!(!health.is_well());
        assert_eq!(health.texts().collect::<Vec<_>>(), ["it failed", "they wait"]);
        let json = serde_json::to_value(&health).expect("encodes");
        let expected = serde_json::json!({
            "status": "critical",
            "findings": [
                {
                    "code": "log-dir-failed", "severity": "critical",
                    "object": { "kind": "log-dir", "name": "/a" }, "text": "it failed"
                },
                {
                    "code": "wait-turns", "severity": "warning",
                    "object": { "kind": "process" }, "text": "they wait"
                },
            ]
        });
        assert_eq!(json, expected);
    }
}
