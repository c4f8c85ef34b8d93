//! The four durability levels, and the two pure rules that follow from them.
//!
//! When a record is *acked* and when it is *visible* are separate questions: in a cluster they differ, so they
//! are two functions from the first day.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::Offset;

/// What a topic's acks promise, named *replication* then *local*, as the field names them.
///
/// On one node levels 1 and 3 are the same, and so are 2 and 4: there is nobody to replicate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DurabilityLevel {
    /// Level 1: a majority has it, each synced to disk. Survives loss of power on every node.
    SyncSync,
    /// Level 2: a majority has it in memory. Survives the loss of a minority of nodes.
    SyncAsync,
    /// Level 3: one node has synced it to disk. Survives loss of power on that node.
    AsyncSync,
    /// Level 4: one node has it in its page cache. Survives a crash of the process.
    AsyncAsync,
}

impl DurabilityLevel {
    /// The level's number, 1 to 4, as configuration and clients give it.
    pub fn number(self) -> u8 {
        match self {
            Self::SyncSync => 1,
            Self::SyncAsync => 2,
            Self::AsyncSync => 3,
            Self::AsyncAsync => 4,
        }
    }

    /// Whether an ack waits for a sync of the local disk.
    pub fn syncs_locally(self) -> bool {
        matches!(self, Self::SyncSync | Self::AsyncSync)
    }

    /// What an acked record survives, for people.
    pub fn survives(self) -> &'static str {
        match self {
            Self::SyncSync => "loss of power on every node",
            Self::SyncAsync => {
                "loss of a minority of nodes; on a single one a crash of the process, not of the machine"
            }
            Self::AsyncSync => "loss of power on this node",
            Self::AsyncAsync => "a crash of the process, not of the machine",
        }
    }
}

impl fmt::Display for DurabilityLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// The text is not 1, 2, 3 or 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a durability level is 1, 2, 3 or 4")]
pub struct ParseDurabilityError;

impl FromStr for DurabilityLevel {
    type Err = ParseDurabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "1" => Ok(Self::SyncSync),
            "2" => Ok(Self::SyncAsync),
            "3" => Ok(Self::AsyncSync),
            "4" => Ok(Self::AsyncAsync),
            _ => Err(ParseDurabilityError),
        }
    }
}

/// How many nodes must have a produced batch before its ack, as the produce request asks (`acks`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// 0: no response at all.
    None,
    /// 1: this node.
    Leader,
    /// -1: what the topic's level asks for.
    All,
}

/// How far a partition has come on this node, each an exclusive end offset.
///
/// Invariants: `synced <= appended`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// End of what was appended: the log end offset.
    pub appended: Offset,
    /// End of what a sync has covered.
    pub synced: Offset,
}

/// The end offset up to which produce requests with these `acks` may be answered.
pub fn ack_offset(level: DurabilityLevel, acks: Acks, marks: Watermarks) -> Offset {
    match acks {
        Acks::Leader | Acks::All if level.syncs_locally() => marks.synced,
        Acks::None | Acks::Leader | Acks::All => marks.appended,
    }
}

/// The high watermark: the end offset up to which readers see records.
pub fn visible_offset(level: DurabilityLevel, marks: Watermarks) -> Offset {
    if level.syncs_locally() { marks.synced } else { marks.appended }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [DurabilityLevel; 4] = [
        DurabilityLevel::SyncSync,
        DurabilityLevel::SyncAsync,
        DurabilityLevel::AsyncSync,
        DurabilityLevel::AsyncAsync,
    ];

    #[test]
    fn a_level_is_its_number() {
        for level in LEVELS {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        for bad in ["0", "5", "", "all", "-1"] {
            assert_eq!(bad.parse::<DurabilityLevel>(), Err(ParseDurabilityError), "{bad:?}");
        }
    }

    #[test]
    fn nothing_unsynced_is_acked_or_visible_at_a_sync_level() {
        let marks = Watermarks { appended: Offset(10), synced: Offset(4) };
        for level in LEVELS {
            let reached = if level.syncs_locally() { Offset(4) } else { Offset(10) };
            assert_eq!(visible_offset(level, marks), reached, "level {level}");
            assert_eq!(ack_offset(level, Acks::Leader, marks), reached, "level {level}");
            assert_eq!(ack_offset(level, Acks::All, marks), reached, "level {level}");
            assert_eq!(ack_offset(level, Acks::None, marks), Offset(10), "level {level}");
        }
    }
}
