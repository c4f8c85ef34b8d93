//! The recorder's events, put together: records sent, acked, seen, and commits.
//!
//! It is made from the recorder's file alone, so that a mistake of the load cannot sway the verdict.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, bail};
use riverrun_client::TopicPartition;

use super::binding::{Binding, Moment};
use super::event::{Commit, Event, Span, Start};
use super::lives::Lives;
use super::payload::{Identity, Placed, Places};

/// One producer's records to one partition.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) partition: TopicPartition,
    /// Whether the server has to recognise repeats.
    pub(super) exactly_once: bool,
    /// Records with a sequence below this were, or may have been, sent.
    pub(super) sent: u64,
    /// Moment before the last of them were sent, which are the only ones that may still be acked.
    sent_at: Moment,
}

/// An acked record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) identity: Identity,
    pub(super) offset: Option<i64>,
    /// Number of crashes before its ack.
    pub(super) crashes_before: u64,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
    pub(super) identity: Identity,
    pub(super) crashes_before: u64,
    /// Whether it was found by a look for records that a crash may have taken, and not by a reader.
    pub(super) looked_for: bool,
}

/// A group's position in a partition, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The last commit that was acked, or that was found on the server later.
    pub(super) committed: Option<i64>,
    /// Commits begun since: each may have taken effect.
    pub(super) attempted_since: Vec<i64>,
}

impl Position {
    /// Whether a correct server may report this position now: no acked commit was undone, and only attempted commits
    /// may have replaced it.
    pub(super) fn may_be(&self, found: Option<i64>) -> bool {
        found == self.committed || found.is_some_and(|found| self.attempted_since.contains(&found))
    }

    /// A position that was found may not go back either. Commits begun after it may still take effect.
    fn found(&mut self, found: Option<i64>) {
        if found != self.committed {
            let at = self.attempted_since.iter().position(|attempted| Some(*attempted) == found);
            self.attempted_since.drain(..at.map_or(0, |at| at + 1));
            self.committed = found;
        }
    }
}

/// An impossible position, found after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Regression {
    group: String,
    partition: TopicPartition,
    found: Option<i64>,
    expected: Position,
    crash: u64,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, partition, found, expected, crash } = self;
        write!(
            f,
            "{group} in {partition} was at {found:?} after crash {crash}, was committed as {expected:?}"
        )
    }
}

/// Bounds of a partition's beginning, from the deletions in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beginning {
    /// Records before this offset were deleted, and that was acked: none of them may come back.
    pub(super) least: i64,
    /// No deletion reached beyond this offset.
    pub(super) most: i64,
}

/// All recorded events.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) acks: Vec<Ack>,
    pub(super) sightings: Vec<Sighting>,
    /// The acks and sightings that a loss of power may not take.
    pub(super) binding: Binding,
    pub(super) positions: BTreeMap<(String, TopicPartition), Position>,
    /// Beginnings of the partitions in which records are deleted. All others begin at 0.
    beginnings: BTreeMap<TopicPartition, Beginning>,
    /// Positions that went back between two crashes, whatever was committed later.
    pub(super) regressions: Vec<Regression>,
    /// Positions that were found after a crash, with a commit acked before it.
    pub(super) positions_found: usize,
    /// Lives of the server in which the reader was active.
    pub(super) lives: Lives,
    /// Records whose outcome the producer did not learn.
    pub(super) failed: u64,
    pub(super) crashes: u64,
}

impl Ledger {
    /// Adds an event; fails if it contradicts earlier ones.
    pub(super) fn add(&mut self, event: Event) -> anyhow::Result<()> {
        self.lives.note(&event);
        match event {
            Event::Stream { stream, partition, exactly_once } => {
                let new = Stream { partition, exactly_once, sent: 0, sent_at: self.binding.now() };
                let known = self.streams.insert(stream, new);
                if known.is_some() {
                    bail!("stream {stream} was begun twice");
                }
            }
            Event::Sent(span) => {
                let stream = self.streams.get_mut(&span.stream).context("sent by an unknown stream")?;
                stream.sent = stream.sent.max(span.first + span.count);
                stream.sent_at = self.binding.now();
            }
            Event::Acked { span, offset } => self.acked(span, offset)?,
            Event::Failed(span) => self.failed += span.count,
            Event::Seen { partition, offset, stream, sequence } => {
                self.see(partition, offset, Identity { stream, sequence }, false);
            }
            Event::Left { partition, offset, stream, sequence } => {
                self.see(partition, offset, Identity { stream, sequence }, true);
            }
            Event::Committing(commit) => {
                let offset = commit.offset;
                self.position(commit).attempted_since.push(offset);
            }
            Event::Committed(commit) => {
                let offset = commit.offset;
                let position = self.position(commit);
                position.committed = Some(offset);
                position.attempted_since.clear();
            }
            Event::Found { group, partition, offset } => self.found(group, partition, offset),
            Event::Deletable(start) => {
                let beginning = self.beginnings.entry(start.partition).or_default();
                beginning.most = beginning.most.max(start.offset);
            }
            Event::Deleted(start) => {
                let beginning = self.beginnings.entry(start.partition).or_default();
                beginning.least = beginning.least.max(start.offset);
                beginning.most = beginning.most.max(start.offset);
            }
            Event::Begins(start) => self.begins(start)?,
            Event::Changing => self.binding.change(),
            Event::Syncs(crashes) => self.binding.reach(crashes),
            Event::Crash(number) => {
                self.crashes = number;
                self.binding.crash();
            }
        }
        Ok(())
    }

    fn acked(&mut self, span: Span, offset: Option<i64>) -> anyhow::Result<()> {
        let stream = self.streams.get(&span.stream);
        let Some(stream) = stream.filter(|stream| span.first + span.count <= stream.sent) else {
            bail!("record {} of stream {} was acked before it was sent", span.first, span.stream);
        };
        for index in 0..span.count {
            let identity = Identity { stream: span.stream, sequence: span.first + index };
            let offset = offset.map(|first| first + index as i64);
            self.binding.ack(stream.sent_at, identity);
            self.acks.push(Ack { identity, offset, crashes_before: self.crashes });
        }
        Ok(())
    }

    fn see(&mut self, partition: TopicPartition, offset: i64, identity: Identity, looked_for: bool) {
        self.binding.see(self.sightings.len());
        let crashes_before = self.crashes;
        self.sightings.push(Sighting { partition, offset, identity, crashes_before, looked_for });
    }

    /// Places where a crash may have taken a record that was acked or seen after `since` crashes, or later. They are in
    /// order, each once.
    pub(super) fn doubtful(&self, since: u64) -> Places {
        let mut doubtful = Places::new();
        let mut doubt = |partition: &TopicPartition, offset, identity| {
            doubtful.entry(partition.clone()).or_default().push(Placed { offset, identity });
        };
        let acks = self.acks.iter().rev().take_while(|ack| ack.crashes_before >= since);
        for ack in acks.filter(|ack| self.binding.excuses_ack(ack.identity)) {
            if let (Some(offset), Some(stream)) = (ack.offset, self.streams.get(&ack.identity.stream)) {
                doubt(&stream.partition, offset, ack.identity);
            }
        }
        let sightings = self.sightings.iter().enumerate().rev();
        let sightings = sightings.take_while(|(_, sighting)| sighting.crashes_before >= since);
        for (_, sighting) in sightings.filter(|(number, _)| self.binding.excuses_sighting(*number)) {
            doubt(&sighting.partition, sighting.offset, sighting.identity);
        }
        for places in doubtful.values_mut() {
            places.sort_unstable();
            places.dedup();
        }
        doubtful
    }

    /// Number of records that a crash may have taken, were found after it, and have had to stay since: a sync level
    /// held, or was reached before the next crash.
    pub(super) fn bound_again(&self) -> usize {
        let found = self.sightings.iter().enumerate().filter(|(_, sighting)| sighting.looked_for);
        found.filter(|(number, _)| !self.binding.excuses_sighting(*number)).count()
    }

    /// Records that existed when nothing was deleted any more have to stay. Fails if more are missing than may have
    /// been deleted.
    fn begins(&mut self, Start { partition, offset }: Start) -> anyhow::Result<()> {
        let beginning = self.beginnings.entry(partition.clone()).or_default();
        let Beginning { least, most } = *beginning;
        if !(least..=most).contains(&offset) {
            bail!(
                "{partition} begins at {offset}, but records before {least} were deleted, and none from {most} on may be"
            );
        }
        beginning.most = offset;
        Ok(())
    }

    /// Bounds of a partition's beginning.
    pub(super) fn beginning(&self, partition: &TopicPartition) -> Beginning {
        self.beginnings.get(partition).copied().unwrap_or_default()
    }

    fn found(&mut self, group: String, partition: TopicPartition, found: Option<i64>) {
        let position = self.positions.entry((group.clone(), partition.clone())).or_default();
        self.positions_found += usize::from(position.committed.is_some() && self.crashes > 0);
        if !position.may_be(found) {
            let (expected, crash) = (position.clone(), self.crashes);
            self.regressions.push(Regression { group, partition, found, expected, crash });
        }
        position.found(found);
    }

    fn position(&mut self, commit: Commit) -> &mut Position {
        self.positions.entry((commit.group, commit.partition)).or_default()
    }

    /// Every partition that has a stream.
    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        let mut partitions: Vec<_> = self.streams.values().map(|stream| stream.partition.clone()).collect();
        partitions.sort();
        partitions.dedup();
        partitions
    }

    /// Every group with a commit.
    pub(super) fn groups(&self) -> Vec<String> {
        let mut groups: Vec<_> = self.positions.keys().map(|(group, _)| group.clone()).collect();
        groups.dedup();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lines: &[&str]) -> anyhow::Result<Ledger> {
        let mut ledger = Ledger::default();
        lines.iter().try_for_each(|line| ledger.add(line.parse()?))?;
        Ok(ledger)
    }

    #[test]
    fn acks_lie_one_after_another_from_the_first_offset() {
        let ledger =
            ledger(&["stream 1 t 0 once", "sent 1 0 3", "crash 1", "acked 1 0 2 7", "acked 1 2 1 -1"]);
        let ack =
            |sequence, offset| Ack { identity: Identity { stream: 1, sequence }, offset, crashes_before: 1 };
        assert_eq!(ledger.unwrap().acks, [ack(0, Some(7)), ack(1, Some(8)), ack(2, None)]);
    }

    #[test]
    fn acked_commit_replaces_those_before_it() {
        let ledger = ledger(&["committing g t 0 4", "committing g t 0 5", "committed g t 0 5"]).unwrap();
        let position = &ledger.positions[&("g".to_owned(), TopicPartition::new("t", 0))];
        assert_eq!((position.committed, position.attempted_since.as_slice()), (Some(5), [].as_slice()));
    }

    #[test]
    fn only_commits_begun_later_can_follow_a_found_position() {
        let ledger = |found: &str| {
            ledger(&[
                "committing g t 0 4",
                "committed g t 0 4",
                "committing g t 0 5",
                "committing g t 0 6",
                &format!("found g t 0 {found}"),
            ])
            .unwrap()
        };
        let after = |found| {
            let ledger = ledger(found);
            assert_eq!(ledger.regressions, [], "{found}");
            let position = &ledger.positions[&("g".to_owned(), TopicPartition::new("t", 0))];
            (position.committed, position.attempted_since.clone())
        };
        assert_eq!(after("4"), (Some(4), vec![5, 6]));
        assert_eq!(after("5"), (Some(5), vec![6]));
        assert_eq!(after("6"), (Some(6), vec![]));
        for found in ["-1", "3", "7"] {
            assert_eq!(ledger(found).regressions.len(), 1, "{found}");
        }
    }

    #[test]
    fn partition_begins_within_the_bounds_of_deletions() {
        let partition = TopicPartition::new("t", 0);
        let beginning = |lines: &[&str]| ledger(lines).map(|ledger| ledger.beginning(&partition));
        let bounds = |least, most| Beginning { least, most };
        assert_eq!(beginning(&[]).unwrap(), bounds(0, 0));
        let lines = ["deleted t 0 4", "deletable t 0 9", "begins t 0 6", "deleted t 1 8"];
        assert_eq!(beginning(&lines[..1]).unwrap(), bounds(4, 4));
        assert_eq!(beginning(&lines[..2]).unwrap(), bounds(4, 9));
        assert_eq!(beginning(&lines).unwrap(), bounds(4, 6));
        for wrong in ["begins t 0 3", "begins t 0 10"] {
            assert!(beginning(&[lines[0], lines[1], wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn endangered_records_are_doubtful_until_the_next_look() {
        let before = ["changing", "stream 1 t 0 once", "sent 1 0 9", "acked 1 0 2 0", "seen t 0 1 1 1"];
        let doubtful = |lines: &[&str], since| {
            let places = ledger(&[&before[..], lines].concat()).unwrap().doubtful(since);
            places.into_values().flatten().map(|placed| placed.offset).collect::<Vec<_>>()
        };
        assert!(doubtful(&[], 0).is_empty(), "no crash has come");
        assert_eq!(doubtful(&["crash 1"], 0), [0, 1], "each once");
        assert!(doubtful(&["syncs 0", "crash 1"], 0).is_empty(), "a sync level binds it");
        // After the first crash there was a look, which found one of them.
        let looked = ["crash 1", "left t 0 1 1 1", "acked 1 2 1 2", "crash 2"];
        assert_eq!(doubtful(&looked, 1), [1, 2]);
        assert!(doubtful(&looked, 2).is_empty());
        // The server crashed again before a look.
        assert_eq!(doubtful(&["crash 1", "crash 2"], 0), [0, 1]);
        assert_eq!(doubtful(&["acked 1 2 1 -1", "crash 1"], 0), [0, 1], "at an unknown offset");
    }

    #[test]
    fn found_record_is_bound_again_until_the_next_danger() {
        let lines =
            ["changing", "stream 1 t 0 once", "sent 1 0 9", "acked 1 0 1 0", "crash 1", "left t 0 0 1 0"];
        let bound = |then: &[&str]| ledger(&[&lines[..], then].concat()).unwrap().bound_again();
        assert_eq!(bound(&["syncs 1", "crash 2"]), 1);
        assert_eq!(bound(&["crash 2"]), 0);
    }

    #[test]
    fn seldom_active_reader_is_found() {
        let whole = ["acked 1 0 1 0", "seen t 0 0 1 0", "committing g t 0 1", "committed g t 0 1", "crash 1"];
        let begun = [&["stream 1 t 0 once", "sent 1 0 9"], &whole[..], &["found g t 0 1"]].concat();
        let check = |lines: &[&str]| ledger(&[&begun, lines].concat()).unwrap().lives.check();
        let dead = ["acked 1 1 1 1", "crash 2", "acked 1 2 1 2", "crash 3"];
        assert!(check(&dead[..2]).is_ok(), "in one life of two it was there");
        let looks =
            ["acked 1 1 1 1", "left t 0 1 1 1", "crash 2", "acked 1 2 1 2", "left t 0 2 1 2", "crash 3"];
        for dead in [&dead[..], &looks] {
            let fault = check(dead).unwrap_err().to_string();
            assert!(fault.contains("of 3 lives in which records were acked, 1 had a reader"), "{fault}");
        }
    }

    #[test]
    fn impossible_events_are_refused() {
        assert!(ledger(&["stream 1 t 0 once", "acked 1 0 1 0"]).is_err());
        assert!(ledger(&["sent 1 0 1"]).is_err());
        assert!(ledger(&["stream 1 t 0 once", "stream 1 t 1 once"]).is_err());
    }
}
