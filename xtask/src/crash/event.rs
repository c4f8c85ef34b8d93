//! The recorder's events, one in each line of text.
//!
//! ```text
//! stream     STREAM TOPIC PARTITION once|again   destination of a stream, and whether the server must keep repeats out
//! sent       STREAM FIRST COUNT                  about to be handed to the producer
//! acked      STREAM FIRST COUNT OFFSET           acked at OFFSET and up; -1 if the server returned no offset
//! failed     STREAM FIRST COUNT                  the producer gave up: it is unknown whether they were stored
//! seen       TOPIC PARTITION OFFSET STREAM SEQUENCE   a reader got it
//! left       TOPIC PARTITION OFFSET STREAM SEQUENCE   a crash may have taken it, but it was found afterwards
//! committing GROUP TOPIC PARTITION OFFSET        about to be committed
//! committed  GROUP TOPIC PARTITION OFFSET        the commit was acked
//! found      GROUP TOPIC PARTITION OFFSET        the server's answer before the group could commit again; -1 for none
//! deletable  TOPIC PARTITION OFFSET              records before OFFSET may be deleted, but need not
//! deleted    TOPIC PARTITION OFFSET              the deletion of the records before OFFSET was acked
//! begins     TOPIC PARTITION OFFSET              the server's log start offset, once nothing is deleted any more
//! changing                                       the topic's level is about to be changed
//! syncs      NUMBER                              after NUMBER crashes all of the topic was found at a sync level
//! crash      NUMBER                              every event above was recorded before this crash
//! ```
//!
//! Names of topics and groups are ours and contain no blanks.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

use anyhow::{Context, bail};
use riverrun_client::TopicPartition;

/// Stands for a missing offset.
const NOTHING: i64 = -1;

/// Consecutive records of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) stream: u32,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// An offset that a group has committed, or tries to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) group: String,
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
}

/// The beginning of a partition, certain or possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Stream { stream: u32, partition: TopicPartition, exactly_once: bool },
    Sent(Span),
    Acked { span: Span, offset: Option<i64> },
    Failed(Span),
    Seen { partition: TopicPartition, offset: i64, stream: u32, sequence: u64 },
    Left { partition: TopicPartition, offset: i64, stream: u32, sequence: u64 },
    Committing(Commit),
    Committed(Commit),
    Found { group: String, partition: TopicPartition, offset: Option<i64> },
    Deletable(Start),
    Deleted(Start),
    Begins(Start),
    Changing,
    Syncs(u64),
    Crash(u64),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { stream, partition: TopicPartition { topic, partition }, exactly_once } => {
                let repeats = if *exactly_once { "once" } else { "again" };
                write!(f, "stream {stream} {topic} {partition} {repeats}")
            }
            Self::Sent(Span { stream, first, count }) => write!(f, "sent {stream} {first} {count}"),
            Self::Acked { span: Span { stream, first, count }, offset } => {
                write!(f, "acked {stream} {first} {count} {}", offset.unwrap_or(NOTHING))
            }
            Self::Failed(Span { stream, first, count }) => write!(f, "failed {stream} {first} {count}"),
            Self::Seen { partition: TopicPartition { topic, partition }, offset, stream, sequence } => {
                write!(f, "seen {topic} {partition} {offset} {stream} {sequence}")
            }
            Self::Left { partition: TopicPartition { topic, partition }, offset, stream, sequence } => {
                write!(f, "left {topic} {partition} {offset} {stream} {sequence}")
            }
            Self::Committing(commit) => write!(f, "committing {commit}"),
            Self::Committed(commit) => write!(f, "committed {commit}"),
            Self::Found { group, partition: TopicPartition { topic, partition }, offset } => {
                write!(f, "found {group} {topic} {partition} {}", offset.unwrap_or(NOTHING))
            }
            Self::Deletable(start) => write!(f, "deletable {start}"),
            Self::Deleted(start) => write!(f, "deleted {start}"),
            Self::Begins(start) => write!(f, "begins {start}"),
            Self::Changing => f.write_str("changing"),
            Self::Syncs(crashes) => write!(f, "syncs {crashes}"),
            Self::Crash(number) => write!(f, "crash {number}"),
        }
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicPartition { topic, partition } = &self.partition;
        write!(f, "{} {topic} {partition} {}", self.group, self.offset)
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopicPartition { topic, partition } = &self.partition;
        write!(f, "{topic} {partition} {}", self.offset)
    }
}

impl FromStr for Event {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut words = Words(line.split_whitespace());
        let event = words.event().with_context(|| format!("`{line}` is no event"))?;
        if words.0.next().is_some() {
            bail!("`{line}` says more than an event");
        }
        Ok(event)
    }
}

struct Words<'a>(SplitWhitespace<'a>);

impl Words<'_> {
    fn event(&mut self) -> anyhow::Result<Event> {
        Ok(match self.word()? {
            "stream" => Event::Stream {
                stream: self.number()?,
                partition: self.partition()?,
                exactly_once: self.word()? == "once",
            },
            "sent" => Event::Sent(self.span()?),
            "acked" => Event::Acked { span: self.span()?, offset: self.offset()? },
            "failed" => Event::Failed(self.span()?),
            "seen" => Event::Seen {
                partition: self.partition()?,
                offset: self.number()?,
                stream: self.number()?,
                sequence: self.number()?,
            },
            "left" => Event::Left {
                partition: self.partition()?,
                offset: self.number()?,
                stream: self.number()?,
                sequence: self.number()?,
            },
            "committing" => Event::Committing(self.commit()?),
            "committed" => Event::Committed(self.commit()?),
            "found" => Event::Found {
                group: self.word()?.to_owned(),
                partition: self.partition()?,
                offset: self.offset()?,
            },
            "deletable" => Event::Deletable(self.start()?),
            "deleted" => Event::Deleted(self.start()?),
            "begins" => Event::Begins(self.start()?),
            "changing" => Event::Changing,
            "syncs" => Event::Syncs(self.number()?),
            "crash" => Event::Crash(self.number()?),
            word => bail!("`{word}` happens nowhere"),
        })
    }

    fn word(&mut self) -> anyhow::Result<&str> {
        self.0.next().context("the line ends early")
    }

    fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(&mut self) -> anyhow::Result<T> {
        Ok(self.word()?.parse()?)
    }

    fn offset(&mut self) -> anyhow::Result<Option<i64>> {
        Ok(Some(self.number()?).filter(|offset| *offset > NOTHING))
    }

    fn span(&mut self) -> anyhow::Result<Span> {
        Ok(Span { stream: self.number()?, first: self.number()?, count: self.number()? })
    }

    fn partition(&mut self) -> anyhow::Result<TopicPartition> {
        let topic = self.word()?.to_owned();
        Ok(TopicPartition::new(topic, self.number()?))
    }

    fn start(&mut self) -> anyhow::Result<Start> {
        Ok(Start { partition: self.partition()?, offset: self.number()? })
    }

    fn commit(&mut self) -> anyhow::Result<Commit> {
        let group = self.word()?.to_owned();
        Ok(Commit { group, partition: self.partition()?, offset: self.number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let partition = || TopicPartition::new("t", 3);
        let span = Span { stream: 1, first: 2, count: 3 };
        let commit = || Commit { group: "g".to_owned(), partition: partition(), offset: 9 };
        for event in [
            Event::Stream { stream: 1, partition: partition(), exactly_once: true },
            Event::Stream { stream: 2, partition: partition(), exactly_once: false },
            Event::Sent(span),
            Event::Acked { span, offset: Some(0) },
            Event::Acked { span, offset: None },
            Event::Failed(span),
            Event::Seen { partition: partition(), offset: 5, stream: 1, sequence: 6 },
            Event::Left { partition: partition(), offset: 6, stream: 1, sequence: 7 },
            Event::Committing(commit()),
            Event::Committed(commit()),
            Event::Found { group: "g".to_owned(), partition: partition(), offset: Some(9) },
            Event::Found { group: "g".to_owned(), partition: partition(), offset: None },
            Event::Deletable(Start { partition: partition(), offset: 7 }),
            Event::Deleted(Start { partition: partition(), offset: 8 }),
            Event::Begins(Start { partition: partition(), offset: 9 }),
            Event::Changing,
            Event::Syncs(3),
            Event::Crash(4),
        ] {
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn a_line_that_is_short_long_or_unknown_is_refused() {
        for line in ["", "sent 1 2", "sent 1 2 3 4", "sent 1 2 x", "forgot 1 2 3"] {
            assert!(line.parse::<Event>().is_err(), "{line}");
        }
    }
}
