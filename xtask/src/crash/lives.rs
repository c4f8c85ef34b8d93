//! Whether the reader lived through the crashes as the load did. Pure.
//!
//! The reader tries again after every error. One that gets or commits nothing any more would therefore go unnoticed,
//! and with it every fault that only a reader can find. A life is the time between two crashes.

use std::fmt;

use anyhow::ensure;

use super::event::Event;

/// One in this many of the lives with acks must have an active reader. It starts later than the producers, and not at
/// all if the next crash comes first.
const ONE_IN: usize = 2;

/// Events of the present life.
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
    /// Lives with an ack.
    acked: usize,
    /// Those of them in which the reader got a record.
    seen: usize,
    /// Those of them in which a commit was acked and the group's position was looked at after the crash.
    committed: usize,
    /// Lives with an acked commit, before the look at the position.
    unlooked: usize,
}

impl Lives {
    /// Takes in the next recorded event.
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

    /// Fails if the reader, or its commits, were missing in too many lives.
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
    fn mostly_dead_or_uncommitting_reader_is_found() {
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
    fn life_without_acks_does_not_count() {
        let whole: &[&str] = &[ACKED, SEEN, COMMITTED];
        assert_eq!(fault(&[&[], &[], whole]), "");
        assert!(fault(&[&[ACKED], &[SEEN, COMMITTED]]).contains("of 1 lives"));
        assert_eq!(fault(&[]), "");
    }

    #[test]
    fn commit_without_a_look_after_the_crash_does_not_count() {
        let mut lives = Lives::default();
        for line in [ACKED, SEEN, COMMITTED, "crash 1"] {
            lives.note(&line.parse().unwrap());
        }
        assert!(lives.check().unwrap_err().to_string().contains("and 0 commits that were looked for"));
        // It may take another crash until a server answers.
        for line in ["crash 2", FOUND] {
            lives.note(&line.parse().unwrap());
        }
        assert!(lives.check().is_ok());
    }
}
