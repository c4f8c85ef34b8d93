//! The four durability levels, and the two pure rules that follow from them.
//!
//! When a record is *acked* and when it is *visible* are separate questions. Each is answered by a function of the
//! watermarks of all replicas that are in sync: at the levels that do not wait for the other replicas, the leader
//! acks records that no consumer sees yet. Where the leader is alone the two are the same, except for `acks=0`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::Offset;

/// The promise of a topic's acks, named *replication* then *local*, as the field names them.
///
/// On one node levels 1 and 3 are the same, and so are 2 and 4: there is no other replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DurabilityLevel {
    /// Level 1: every replica in sync has synced it to disk. Survives loss of power on every node.
    SyncSync,
    /// Level 2: every replica in sync has it in memory. Survives the loss of nodes while one of these is left.
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

    /// Whether an ack with `acks=all` waits for the other replicas that are in sync.
    pub fn waits_for_replicas(self) -> bool {
        matches!(self, Self::SyncSync | Self::SyncAsync)
    }

    /// The failures that an acked record survives, for people.
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

/// Number of nodes that must have a produced batch before its ack, as the produce request asks (`acks`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// 0: no response at all.
    None,
    /// 1: this node.
    Leader,
    /// -1: as many as the topic's level asks for.
    All,
}

/// The progress of one replica of a partition, as exclusive end offsets.
///
/// Invariants: `synced <= appended`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// End of the appended records: the log end offset.
    pub appended: Offset,
    /// End of the records that a sync has covered.
    pub synced: Offset,
}

impl Watermarks {
    /// End of the records that the leader may ack by itself at this level; `self` has its watermarks.
    fn of_leader(self, level: DurabilityLevel) -> Offset {
        if level.syncs_locally() { self.synced } else { self.appended }
    }

    /// End of the records that a follower has at this level. At a level that promises no sync of it, these need not
    /// be synced.
    fn of_follower(self, level: DurabilityLevel) -> Offset {
        match level {
            DurabilityLevel::SyncSync => self.synced,
            DurabilityLevel::SyncAsync | DurabilityLevel::AsyncSync | DurabilityLevel::AsyncAsync => {
                self.appended
            }
        }
    }

    /// The replicated watermark: end of the records that the leader and each of the `others` in sync with it have.
    /// `self` has the leader's watermarks. The level decides between appended and synced.
    pub fn replicated(self, level: DurabilityLevel, others: &[Self]) -> Offset {
        others.iter().map(|other| other.of_follower(level)).fold(self.of_leader(level), Offset::min)
    }
}

/// The end offset up to which produce requests with these `acks` may be answered. `leader` has the watermarks of this
/// node, and `others` those of the other replicas in sync; the caller checks whether these are enough.
///
/// | level | `acks=0` | `acks=1` | `acks=all` |
/// |---|---|---|---|
/// | 1 | appended | synced | synced by all |
/// | 2 | appended | appended | appended by all |
/// | 3 | appended | synced | synced |
/// | 4 | appended | appended | appended |
pub fn ack_offset(level: DurabilityLevel, acks: Acks, leader: Watermarks, others: &[Watermarks]) -> Offset {
    match acks {
        Acks::None => leader.appended,
        Acks::All if level.waits_for_replicas() => leader.replicated(level, others),
        Acks::Leader | Acks::All => leader.of_leader(level),
    }
}

/// The high watermark: the end offset up to which consumers see records. It is the replicated watermark at every
/// level, so that a record that a consumer has seen stays when another replica leads; no record is visible that may
/// not be acked.
pub fn visible_offset(level: DurabilityLevel, leader: Watermarks, others: &[Watermarks]) -> Offset {
    leader.replicated(level, others)
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
    const ACKS: [Acks; 3] = [Acks::None, Acks::Leader, Acks::All];
    /// Other replicas at most.
    const OTHERS_MAX: usize = 3;
    /// Offsets that a watermark may have.
    const OFFSETS: i64 = 3;

    fn watermarks(appended: i64, synced: i64) -> Watermarks {
        Watermarks { appended: Offset(appended), synced: Offset(synced) }
    }

    /// All watermarks that one replica may have.
    fn all_watermarks() -> impl Iterator<Item = Watermarks> {
        (0..OFFSETS).flat_map(|appended| (0..=appended).map(move |synced| watermarks(appended, synced)))
    }

    /// All watermarks of a leader and the others.
    fn all_replicas() -> Vec<Vec<Watermarks>> {
        let mut all: Vec<Vec<Watermarks>> = all_watermarks().map(|leader| vec![leader]).collect();
        let mut from = 0;
        for _ in 0..OTHERS_MAX {
            let shorter = from..all.len();
            from = all.len();
            for index in shorter {
                let longer = all_watermarks().map(|other| [&all[index][..], &[other]].concat());
                let longer: Vec<_> = longer.collect();
                all.extend(longer);
            }
        }
        all
    }

    /// Calls `check` with every input: level, watermarks of the leader and of the others.
    fn check_all(check: impl Fn(DurabilityLevel, Watermarks, &[Watermarks])) {
        for replicas in all_replicas() {
            for level in LEVELS {
                check(level, replicas[0], &replicas[1..]);
            }
        }
    }

    /// The same watermarks with one of them raised by one offset, in each possible way.
    fn moved(leader: Watermarks, others: &[Watermarks]) -> Vec<Vec<Watermarks>> {
        let replicas = [&[leader][..], others].concat();
        let on = |index: usize, appended: i64, synced: i64| {
            let mut replicas = replicas.clone();
            let Watermarks { appended: end, synced: synced_end } = &mut replicas[index];
            (*end, *synced_end) = (end.plus(appended), synced_end.plus(synced));
            (synced_end <= end).then_some(replicas)
        };
        (0..replicas.len()).flat_map(|index| [on(index, 1, 0), on(index, 0, 1)]).flatten().collect()
    }

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
        let watermarks = watermarks(10, 4);
        for level in LEVELS {
            let reached = if level.syncs_locally() { Offset(4) } else { Offset(10) };
            assert_eq!(visible_offset(level, watermarks, &[]), reached, "level {level}");
            assert_eq!(ack_offset(level, Acks::Leader, watermarks, &[]), reached, "level {level}");
            assert_eq!(ack_offset(level, Acks::All, watermarks, &[]), reached, "level {level}");
            assert_eq!(ack_offset(level, Acks::None, watermarks, &[]), Offset(10), "level {level}");
        }
    }

    #[test]
    fn each_level_has_the_marks_that_it_promises() {
        let (leader, others) = (watermarks(20, 10), [watermarks(15, 12), watermarks(18, 7)]);
        let expected = [
            // Level, visible, acked with `acks=1`, acked with `acks=all`.
            (DurabilityLevel::SyncSync, 7, 10, 7),
            (DurabilityLevel::SyncAsync, 15, 20, 15),
            (DurabilityLevel::AsyncSync, 10, 10, 10),
            (DurabilityLevel::AsyncAsync, 15, 20, 20),
        ];
        for (level, visible, by_leader, by_all) in expected {
            assert_eq!(visible_offset(level, leader, &others), Offset(visible), "level {level}");
            let acked = [Acks::Leader, Acks::All].map(|acks| ack_offset(level, acks, leader, &others));
            assert_eq!(acked, [Offset(by_leader), Offset(by_all)], "level {level}");
        }
    }

    #[test]
    fn no_mark_that_moves_on_takes_anything_back() {
        check_all(|level, leader, others| {
            for replicas in moved(leader, others) {
                let (new, new_others) = (replicas[0], &replicas[1..]);
                let visible = [(leader, others), (new, new_others)]
                    .map(|(it, others)| visible_offset(level, it, others));
                assert!(visible[0] <= visible[1], "level {level}, {leader:?} {others:?}");
                for acks in ACKS {
                    let acked = [(leader, others), (new, new_others)]
                        .map(|(it, others)| ack_offset(level, acks, it, others));
                    assert!(acked[0] <= acked[1], "level {level}, {acks:?}, {leader:?} {others:?}");
                }
            }
        });
    }

    #[test]
    fn nothing_is_acked_or_visible_beyond_what_the_level_promises() {
        check_all(|level, leader, others| {
            let context = format!("level {level}, {leader:?} {others:?}");
            let (visible, acked) =
                (visible_offset(level, leader, others), ack_offset(level, Acks::All, leader, others));
            assert!(!level.syncs_locally() || acked <= leader.synced, "{context}");
            assert!(acked <= leader.appended, "{context}");
            let all_have = |end: Offset, watermark: fn(&Watermarks) -> Offset| {
                others.iter().all(|it| end <= watermark(it))
            };
            assert!(all_have(visible, |it| it.appended), "{context}: another leader would lack it");
            match level {
                DurabilityLevel::SyncSync => assert!(all_have(acked, |it| it.synced), "{context}"),
                DurabilityLevel::SyncAsync => assert!(all_have(acked, |it| it.appended), "{context}"),
                DurabilityLevel::AsyncSync | DurabilityLevel::AsyncAsync => {
                    assert_eq!(acked, ack_offset(level, Acks::Leader, leader, &[]), "{context}");
                }
            }
        });
    }

    #[test]
    fn nothing_is_visible_that_may_not_be_acked() {
        check_all(|level, leader, others| {
            let visible = visible_offset(level, leader, others);
            let [none, by_leader, by_all] = ACKS.map(|acks| ack_offset(level, acks, leader, others));
            assert!(
                visible <= by_all && by_all <= by_leader && by_leader <= none,
                "level {level}, {leader:?} {others:?}"
            );
            assert!(!level.waits_for_replicas() || visible == by_all, "level {level}, {leader:?} {others:?}");
        });
    }

    #[test]
    fn a_leader_alone_acks_and_shows_by_its_own_marks() {
        for (level, leader) in
            LEVELS.into_iter().flat_map(|level| all_watermarks().map(move |it| (level, it)))
        {
            let own = if level.syncs_locally() { leader.synced } else { leader.appended };
            assert_eq!(visible_offset(level, leader, &[]), own);
            let acked = ACKS.map(|acks| ack_offset(level, acks, leader, &[]));
            assert_eq!(acked, [leader.appended, own, own], "level {level}, {leader:?}");
        }
    }
}
