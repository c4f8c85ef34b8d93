//! Whether the reader lived through the crashes as the load did. Pure.
//!
//! It tries again after every error, so that one that gets nothing any more, or commits nothing, would go unnoticed, and
//! with it whatever only a reader can find out. A life is what lies between two crashes.

use std::fmt;

use anyhow::ensure;

use super::event::Event;

/// Of the lives in which something was acked, one in so many in which the reader was there as well, at least. It comes
/// later than the producers, and not at all where the next crash comes first.
const ONE_IN: usize = 2;

/// What has come in a life so far.
#[derive(Debug, Default)]
struct Life {
    acked: bool,
    seen: bool,
    committed: bool,
}

/// The lives that a crash has ended.
#[derive(Debug, Default)]
pub(super) struct Lives {
    now: Life,
    /// In which something was acked.
    acked: usize,
    /// Of these, in which the reader got something.
    seen: usize,
    /// Of these, in which a commit was acked, and the group's position was looked at after the crash.
    committed: usize,
    /// In which a commit was acked, and nobody has looked yet.
    unlooked: usize,
}

impl Lives {
    /// Goes on by what was written down next.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Acked { .. } => self.now.acked = true,
            Event::Seen { .. } => self.now.seen = true,
            Event::Committed(_) => self.now.committed = true,
            Event::Found { .. } => self.committed += std::mem::take(&mut self.unlooked),
            Event::Crash(_) => self.end(),
            _ => {}
        }
    }

    fn end(&mut self) {
        let life = std::mem::take(&mut self.now);
        if life.acked {
            self.acked += 1;
            self.seen += usize::from(life.seen);
            self.unlooked += usize::from(life.committed);
        }
    }

    /// An error if the reader, or its commits, were missing in too many of them.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let is_enough = |count: usize| count * ONE_IN >= self.acked;
        ensure!(is_enough(self.seen) && is_enough(self.committed), "too little was tested: {self}");
        Ok(())
    }
}

impl fmt::Display for Lives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acked, seen, committed, .. } = self;
        write!(
            f,
            "of {acked} lives in which records were acked, {seen} had a reader that got some, and {committed} commits that \
             were looked for after the crash"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACKED: &str = "acked 1 0 1 0";
    const SEEN: &str = "seen t 0 0 1 0";
    const COMMITTED: &str = "committed g t 0 1";
    const FOUND: &str = "found g t 0 1";

    /// Each life ends with a crash, and begins with a look at the positions.
    fn after(lives: &[&[&str]]) -> Lives {
        let mut found = Lives::default();
        for life in lives {
            for line in [FOUND].iter().chain(*life).chain(&["crash 1"]) {
                found.note(&line.parse().unwrap());
            }
        }
        found.note(&FOUND.parse().unwrap());
        found
    }

    fn fault(of: &[&[&str]]) -> String {
        after(of).check().map_or_else(|fault| fault.to_string(), |()| String::new())
    }

    #[test]
    fn a_reader_that_is_dead_or_commits_nothing_most_of_the_time_is_found() {
        let whole: &[&str] = &[ACKED, SEEN, COMMITTED];
        assert_eq!(fault(&[whole; 3]), "");
        assert_eq!(fault(&[whole, &[ACKED]]), "");
        assert!(
            fault(&[whole, &[ACKED], &[ACKED]]).contains("of 3 lives in which records were acked, 1 had")
        );
        assert!(
            fault(&[whole, &[ACKED, SEEN], &[ACKED, SEEN]]).contains("3 had a reader that got some, and 1")
        );
    }

    #[test]
    fn a_life_without_acks_counts_for_nothing_whoever_reads_in_it() {
        let whole: &[&str] = &[ACKED, SEEN, COMMITTED];
        assert_eq!(fault(&[&[], &[], whole]), "");
        assert!(fault(&[&[ACKED], &[SEEN, COMMITTED]]).contains("of 1 lives"));
        assert_eq!(fault(&[]), "");
    }

    #[test]
    fn a_commit_that_nobody_looked_for_after_the_crash_counts_for_nothing() {
        let mut lives = Lives::default();
        for line in [ACKED, SEEN, COMMITTED, "crash 1"] {
            lives.note(&line.parse().unwrap());
        }
        assert!(lives.check().unwrap_err().to_string().contains("and 0 commits that were looked for"));
        // It may take another crash until there is a server that can be asked.
        for line in ["crash 2", FOUND] {
            lives.note(&line.parse().unwrap());
        }
        assert!(lives.check().is_ok());
    }
}
