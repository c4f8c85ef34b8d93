//! Owns the smallest setup and bounds in which each rule is missed: those of the traces in `testdata/`.

use crate::log::Set;
use crate::model::{Bounds, Setup};
use crate::rules::{Level, Quorum, Rule};

/// The smallest setup and bounds in which a rule is missed, and those of its trace in `testdata/`. The quorum is a majority for
/// the rules that are about one.
pub fn case(rule: Rule) -> (Setup, Bounds) {
    let base = Setup::default();
    let bounds = Bounds { values: 1, epochs: 1, messages: 1, ..Bounds::NONE };
    // Without power cuts a level without syncs has fewer steps to the same end.
    let unsynced = Setup { level: Level::SyncAsync, ..base };
    let majority = Setup { quorum: Quorum::Majority, ..unsynced };
    match rule {
        Rule::MaximalSet | Rule::LeaderFromCandidates => {
            (base, Bounds { epochs: 2, changes: 1, fences: 1, ..bounds })
        }
        Rule::VersionChecked => (base, Bounds { epochs: 2, messages: 2, changes: 1, fences: 1, ..bounds }),
        Rule::JoinAtHighWatermark => (base, Bounds { changes: 2, ..bounds }),
        Rule::JoinAtEpochStart => (base, Bounds { epochs: 2, changes: 2, fences: 1, ..bounds }),
        Rule::FencedStaysOut => (base, Bounds { values: 0, changes: 2, fences: 1, ..bounds }),
        Rule::RefusalMovesVersion => (base, Bounds { values: 0, changes: 2, fences: 1, copies: 1, ..bounds }),
        Rule::MinimumForHighWatermark => (base, Bounds { changes: 1, fences: 1, ..bounds }),
        Rule::EligibleForgotten => (base, Bounds { changes: 1, fences: 2, ..bounds }),
        Rule::NewLifeNewEpoch => (base, Bounds { values: 2, epochs: 2, crashes: 1, ..bounds }),
        Rule::CutByEpoch => (base, Bounds { epochs: 2, fences: 1, ..bounds }),
        Rule::CutToCommonEpoch | Rule::CutForgetsEpochs => {
            (unsynced, Bounds { values: 2, epochs: 4, fences: 3, ..bounds })
        }
        Rule::OwnEpochStays => (
            Setup { replicas: Set::of(&[0, 1]), ..base },
            Bounds { messages: 2, slots: 2, crashes: 1, ..bounds },
        ),
        Rule::CutIsReplayed => (base, Bounds { values: 2, epochs: 2, fences: 1, power_cuts: 1, ..bounds }),
        Rule::EpochOfImage => (base, Bounds { values: 2, epochs: 2, fences: 1, ..bounds }),
        Rule::Incarnation => (unsynced, Bounds { changes: 2, power_cuts: 1, epochs: 2, ..bounds }),
        Rule::MarksOfThisLife => {
            (unsynced, Bounds { messages: 3, slots: 2, changes: 1, power_cuts: 1, copies: 1, ..bounds })
        }
        Rule::SyncedMark => (base, Bounds { epochs: 2, power_cuts: 1, ..bounds }),
        Rule::UncleanExcluded => (unsynced, Bounds { epochs: 2, fences: 2, power_cuts: 1, ..bounds }),
        Rule::Lease | Rule::UnfenceCaughtUp => {
            (Setup { level: Level::AsyncSync, ..base }, Bounds { epochs: 2, fences: 1, ..bounds })
        }
        Rule::Resigns => (
            Setup { level: Level::AsyncSync, target: Set::of(&[1, 2]), ..base },
            Bounds { epochs: 2, ..bounds },
        ),
        Rule::TargetInSync => (
            Setup { replicas: Set::of(&[0, 1]), target: Set::of(&[0, 2]), ..base },
            Bounds { changes: 1, ..bounds },
        ),
        Rule::HighWatermarkWithinLog => (base, Bounds { values: 2, changes: 1, ..bounds }),
        Rule::EpochStartNoted | Rule::RankByEpoch => {
            (majority, Bounds { values: 2, epochs: 4, fences: 3, ..bounds })
        }
        Rule::AckFromEpochStart => (majority, Bounds { values: 3, epochs: 4, fences: 3, ..bounds }),
        Rule::ReportFences => (majority, Bounds { epochs: 2, fences: 1, ..bounds }),
        Rule::LeaderAloneShrinks => (majority, Bounds { epochs: 3, fences: 2, ..bounds }),
        Rule::ShrinkAfterEpochBegan => {
            (majority, Bounds { values: 2, epochs: 4, fences: 3, changes: 1, ..bounds })
        }
    }
}
