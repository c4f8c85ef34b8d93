//! Owns the records of a quorum's log, and the state that they add up to. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::codec::{Malformed, Reader, Writer};
use crate::types::{Entry, LogId, Vote};

const VOTE: u8 = 1;
const ENTRY: u8 = 2;
const TRUNCATED: u8 = 3;
const PURGED: u8 = 4;
const COMMITTED: u8 = 5;

/// A step of a log's history.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    /// The newest vote of this member.
    Vote(Vote),
    /// An entry, behind those before it.
    Entry(Entry),
    /// Entries from this index on are no longer there.
    TruncatedFrom(u64),
    /// Entries up to this one are in a snapshot.
    Purged(LogId),
    /// Entries up to this one are committed. It may lag behind.
    Committed(LogId),
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Vote(vote) => {
                out.u8(VOTE);
                out.vote(vote);
            }
            Self::Entry(entry) => {
                out.u8(ENTRY);
                out.entry(entry);
            }
            Self::TruncatedFrom(index) => {
                out.u8(TRUNCATED);
                out.u64(*index);
            }
            Self::Purged(id) => {
                out.u8(PURGED);
                out.log_id(id);
            }
            Self::Committed(id) => {
                out.u8(COMMITTED);
                out.log_id(id);
            }
        }
        out.0
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let record = match reader.u8()? {
            VOTE => Self::Vote(reader.vote()?),
            ENTRY => Self::Entry(reader.entry()?),
            TRUNCATED => Self::TruncatedFrom(reader.u64()?),
            PURGED => Self::Purged(reader.log_id()?),
            COMMITTED => Self::Committed(reader.log_id()?),
            _ => return Err(Malformed("a record is of no known kind")),
        };
        reader.end()?;
        Ok(record)
    }
}

/// A log at one moment.
///
/// Invariants: entries have consecutive indexes, all beyond `purged`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LogContent {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
    entries: VecDeque<Entry>,
}

impl LogContent {
    /// The index of the first entry, or the lowest that it could have.
    fn first_index(&self) -> u64 {
        self.entries
            .front()
            .map_or_else(|| self.purged.map_or(0, |id| id.index + 1), |entry| entry.log_id.index)
    }

    /// The index that the next entry gets.
    pub(super) fn next_index(&self) -> u64 {
        self.first_index() + self.entries.len() as u64
    }

    /// The last entry's id, or that of the last one purged.
    pub(super) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    /// The entries of these indexes that are there.
    pub(super) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &Entry> {
        let place = |index: u64| {
            let behind_first = index.saturating_sub(self.first_index());
            usize::try_from(behind_first).unwrap_or(usize::MAX).min(self.entries.len())
        };
        let (from, to) = (place(from), place(to));
        self.entries.range(from..to.max(from))
    }

    /// Makes one more step. An error is a step that cannot follow.
    pub(super) fn apply(&mut self, record: Record) -> Result<(), Malformed> {
        match record {
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Entry(entry) if self.goes_on_with(entry.log_id.index) => self.entries.push_back(entry),
            Record::Entry(_) => return Err(Malformed("an entry has not the index behind the one before")),
            Record::TruncatedFrom(index) => {
                let kept = usize::try_from(index.saturating_sub(self.first_index())).unwrap_or(usize::MAX);
                self.entries.truncate(kept);
            }
            Record::Purged(id) => self.purge(id),
            Record::Committed(id) => self.committed = Some(id),
        }
        Ok(())
    }

    /// An empty log may begin anywhere beyond what was purged: a snapshot that is about to be noted as such lies before it.
    fn goes_on_with(&self, index: u64) -> bool {
        if self.entries.is_empty() { index >= self.first_index() } else { index == self.next_index() }
    }

    fn purge(&mut self, id: LogId) {
        if self.purged.is_some_and(|purged| purged.index >= id.index) {
            return;
        }
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= id.index) {
            self.entries.pop_front();
        }
        self.purged = Some(id);
    }

    /// Records that lead to this content from nothing.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        let vote = self.vote.map(Record::Vote);
        let purged = self.purged.map(Record::Purged);
        let committed = self.committed.map(Record::Committed);
        let entries = self.entries.iter().cloned().map(Record::Entry);
        vote.into_iter().chain(purged).chain(entries).chain(committed)
    }
}
