//! Owns the rules of replication: what each one says, and a set of those that a model obeys. Taking one away is how its need is
//! shown; see `tests/rules.rs`. docs/replication.md is the table for people.

use std::fmt;

/// The durability level of a partition's topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Every required member has synced it.
    SyncSync = 1,
    /// Every required member has appended it.
    SyncAsync = 2,
    /// The leader has synced it.
    AsyncSync = 3,
    /// The leader has appended it.
    AsyncAsync = 4,
}

impl Level {
    /// The leader counts itself by what it has synced.
    pub(crate) fn leader_syncs(self) -> bool {
        matches!(self, Self::SyncSync | Self::AsyncSync)
    }

    /// A process that dies takes what it has not synced with it: it was in memory and in the journal only.
    pub(crate) fn has_journal(self) -> bool {
        self.leader_syncs()
    }

    /// A follower counts by what it has synced, so that a power cut takes nothing that was counted.
    pub(crate) fn followers_sync(self) -> bool {
        self == Self::SyncSync
    }

    /// The leader acks by itself, before anybody else has the record.
    pub(crate) fn acks_alone(self) -> bool {
        matches!(self, Self::AsyncSync | Self::AsyncAsync)
    }
}

/// How many members of the in-sync set must have a record (`q`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quorum {
    /// All of them, as in Kafka.
    All,
    /// A majority of them; a new leader is chosen from the reports of the others.
    Majority,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A rule of replication. See docs/replication.md.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The rule's name in reports and in docs/replication.md.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

rules! {
    /// While a change of the in-sync set is open, a leader counts the members of the old set and of the new one (KIP-497,
    /// KIP-966).
    MaximalSet = "maximal-set",
    /// A follower joins the in-sync set when it has reached the high watermark that the leader knows.
    JoinAtHighWatermark = "join-at-high-watermark",
    /// A follower joins the in-sync set when it has reached the start of the leader's epoch (KIP-966): a new leader does not
    /// know the high watermark yet.
    JoinAtEpochStart = "join-at-epoch-start",
    /// A change of the in-sync set names the incarnation that was heard from, and the controller compares it with the
    /// registered one (KIP-903).
    Incarnation = "incarnation",
    /// A fenced broker is not taken into the in-sync set.
    FencedStaysOut = "fenced-stays-out",
    /// A change of the in-sync set names the partition's version that it was made from, and the controller takes no other.
    VersionChecked = "version-checked",
    /// A refused change moves the partition's version, so that a copy of it that arrives later is stale.
    RefusalMovesVersion = "refusal-moves-version",
    /// The high watermark moves only while the in-sync set has `min.insync.replicas` members (KIP-966).
    MinimumForHighWatermark = "minimum-for-high-watermark",
    /// The eligible leader replicas are forgotten when the in-sync set is large enough again (KIP-966).
    EligibleForgotten = "eligible-forgotten",
    /// A leader is chosen from the in-sync set, then from the eligible leader replicas, and else there is none.
    LeaderFromCandidates = "leader-from-candidates",
    /// A new life of a process leads in a new epoch.
    NewLifeNewEpoch = "new-life-new-epoch",
    /// A follower cuts its log to where its epochs and the leader's agree, not to its high watermark (KIP-101).
    CutByEpoch = "cut-by-epoch",
    /// The cut looks for an epoch that both know, however many lie between (KIP-279).
    CutToCommonEpoch = "cut-to-common-epoch",
    /// A frame cuts nothing of its own epoch. What a follower has of it came from the same leader, and a frame that comes late,
    /// to a new life, knows of less.
    OwnEpochStays = "own-epoch-stays",
    /// A cut takes the epochs that begin behind it out of the cache (KAFKA-10706).
    CutForgetsEpochs = "cut-forgets-epochs",
    /// A cut is in the journal before what follows it: in a replay the order decides, not the offset.
    CutIsReplayed = "cut-is-replayed",
    /// A follower takes frames of the epoch in its image alone.
    EpochOfImage = "epoch-of-image",
    /// A leader keeps no mark of a follower's earlier life.
    MarksOfThisLife = "marks-of-this-life",
    /// At level 1 a follower counts by what it has synced.
    SyncedMark = "synced-mark",
    /// Below level 1 a broker that may lack what it had appended is neither in sync nor eligible until it has caught up
    /// (KIP-966): after a power cut, and with a journal after any end that was not clean, because records wait for it in
    /// memory.
    UncleanExcluded = "unclean-excluded",
    /// A leader acks by itself only while its lease lasts, and is fenced only after that.
    Lease = "lease",
    /// A fenced broker is unfenced once its image has reached what fenced it: until then it may take itself for a leader.
    UnfenceCaughtUp = "unfence-caught-up",
    /// At levels 3 and 4 a leader that is not fenced resigns before another is named, and it resigns once all who may follow it have its
    /// whole log: what it has acked by itself is on no other node before.
    Resigns = "resigns",
    /// A reassignment ends when the whole target is in sync.
    TargetInSync = "target-in-sync",
    /// The high watermark of a follower stays within its log.
    HighWatermarkWithinLog = "high-watermark-within-log",
    /// With a majority: a leader notes durably where its epoch begins, also without records.
    EpochStartNoted = "epoch-start-noted",
    /// With a majority: a member that has reported takes nothing of older epochs (`BookKeeper` 2614: recovery reads fence, too).
    ReportFences = "report-fences",
    /// With a majority: reports are ranked by the last epoch noted, then by the log's end.
    RankByEpoch = "rank-by-epoch",
    /// With a majority: nothing is acked below the start of the leader's epoch before that start is held by the quorum.
    AckFromEpochStart = "ack-from-epoch-start",
    /// With a majority: the set is changed by its leader alone, never by the controller.
    LeaderAloneShrinks = "leader-alone-shrinks",
    /// With a majority: the leader shrinks the set only once its epoch has begun at a quorum of the new one.
    ShrinkAfterEpochBegan = "shrink-after-epoch-began",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The rules that a model obeys: all, or all but one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    removed: Option<Rule>,
}

impl Rules {
    /// All but this one.
    pub fn without(rule: Rule) -> Self {
        Self { removed: Some(rule) }
    }

    pub(crate) fn has(self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }
}
