//! The line of patterns whose topics are to be found. Sources have turns, so that however many patterns one asks for, others
//! wait for a slice of them at most.
//!
//! Owns the askers of each pattern, and the work on each that has begun. A pattern that several sources ask for comes with the
//! first of them that is served.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::Work;
use crate::flow::source::Source;

/// Patterns in line at most, but for [`FEW`] of each source. A source has no more of them than it leaves free: others come
/// before one more of its patterns.
const LINE_MAX: usize = 1_000;
/// Patterns that a source may have in line however many others have.
const FEW: usize = 4;
/// Patterns of a source that are worked on in turn, so that one that takes long holds up few others of its source. Each may
/// have found all topics' names, which takes memory.
const BEGUN_MAX: usize = 4;

/// The asker of a pattern: a source, or the groups themselves when topics come.
pub(super) type Asker = Option<Source>;

/// The patterns in line.
///
/// Invariants: a pattern stands in the lines of exactly the askers in `asked`; an asker is in `order` once, exactly while its
/// line is not empty; `places` is the length of all lines.
#[derive(Default)]
pub(super) struct Line {
    jobs: HashMap<Arc<str>, Job>,
    lines: HashMap<Asker, VecDeque<Arc<str>>>,
    order: VecDeque<Asker>,
    places: usize,
}

/// A pattern in line.
#[derive(Default)]
struct Job {
    asked: BTreeSet<Asker>,
    work: Option<Box<Work>>,
}

impl Line {
    /// Adds a pattern for an asker; whether it has been added.
    pub(super) fn ask(&mut self, asker: Asker, pattern: &str) -> bool {
        let of_asker = self.lines.get(&asker).map_or(0, VecDeque::len);
        let is_asked = self.jobs.get(pattern).is_some_and(|job| job.asked.contains(&asker));
        if is_asked || of_asker >= LINE_MAX.saturating_sub(self.places).max(FEW) {
            return false;
        }
        let text =
            self.jobs.get_key_value(pattern).map_or_else(|| pattern.into(), |(text, _)| Arc::clone(text));
        self.jobs.entry(Arc::clone(&text)).or_default().asked.insert(asker);
        self.lines.entry(asker).or_default().push_back(text);
        self.places += 1;
        if of_asker == 0 {
            self.order.push_back(asker);
        }
        true
    }

    /// The pattern that is next, and the work on it that has begun. It stays in line, behind the others of its asker that
    /// have begun, until it is [taken out](Self::take_out).
    pub(super) fn next(&mut self) -> Option<(Arc<str>, Option<Box<Work>>)> {
        let asker = self.order.pop_front()?;
        self.order.push_back(asker);
        let line = self.lines.get_mut(&asker)?;
        let text = line.pop_front()?;
        line.insert(line.len().min(BEGUN_MAX - 1), Arc::clone(&text));
        let work = self.jobs.get_mut(&text)?.work.take();
        Some((text, work))
    }

    /// Keeps the work on a pattern for its next slice.
    pub(super) fn put_back(&mut self, pattern: &str, work: Box<Work>) {
        if let Some(job) = self.jobs.get_mut(pattern) {
            job.work = Some(work);
        }
    }

    /// Takes a pattern out.
    pub(super) fn take_out(&mut self, pattern: &str) {
        let Some(job) = self.jobs.remove(pattern) else { return };
        for asker in job.asked {
            let Some(line) = self.lines.get_mut(&asker) else { continue };
            line.retain(|text| **text != *pattern);
            self.places -= 1;
            if line.is_empty() {
                self.lines.remove(&asker);
                self.order.retain(|other| *other != asker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    /// The order in which patterns come that take a slice each.
    fn come(line: &mut Line, count: usize) -> Vec<String> {
        let mut order = Vec::new();
        for _ in 0..count {
            let Some((text, _)) = line.next() else { break };
            line.take_out(&text);
            order.push(text.to_string());
        }
        order
    }

    #[test]
    fn sources_take_turns_however_many_patterns_one_asks_for() {
        let mut line = Line::default();
        for pattern in ["a1", "a2", "a3"] {
            assert!(line.ask(Some(source(1)), pattern));
        }
        assert!(!line.ask(Some(source(1)), "a1"), "it is in line");
        assert!(line.ask(Some(source(2)), "b1") && line.ask(None, "c1"));
        assert_eq!(come(&mut line, 9), ["a1", "b1", "c1", "a2", "a3"]);
        assert!(line.lines.is_empty() && line.order.is_empty() && line.jobs.is_empty() && line.places == 0);
    }

    #[test]
    fn patterns_of_one_source_take_turns() {
        let mut line = Line::default();
        assert!(line.ask(Some(source(1)), "a1") && line.ask(Some(source(1)), "a2"));
        let order: Vec<_> = (0..4).filter_map(|_| Some(line.next()?.0.to_string())).collect();
        assert_eq!(order, ["a1", "a2", "a1", "a2"]);
    }

    #[test]
    fn few_patterns_of_one_source_have_begun() {
        let mut line = Line::default();
        for number in 0..2 * BEGUN_MAX {
            assert!(line.ask(Some(source(1)), &number.to_string()));
        }
        let begun: BTreeSet<_> = (0..9 * BEGUN_MAX).filter_map(|_| Some(line.next()?.0)).collect();
        assert_eq!(begun.len(), BEGUN_MAX);
    }

    #[test]
    fn a_pattern_of_two_sources_comes_with_the_first_and_once() {
        let mut line = Line::default();
        for pattern in ["a1", "a2", "both"] {
            assert!(line.ask(Some(source(1)), pattern));
        }
        assert!(line.ask(Some(source(2)), "both"));
        assert_eq!(come(&mut line, 9), ["a1", "both", "a2"]);
    }

    #[test]
    fn a_source_has_no_more_places_than_it_leaves_free() {
        let mut line = Line::default();
        let ask = |line: &mut Line, last| {
            (0..LINE_MAX).filter(|n| line.ask(Some(source(last)), &format!("{last}-{n}"))).count()
        };
        assert_eq!(ask(&mut line, 1), LINE_MAX / 2);
        assert_eq!(ask(&mut line, 2), LINE_MAX / 4);
        assert_eq!(ask(&mut line, 1), 0);
        (3..20).for_each(|last| assert!(ask(&mut line, last) >= FEW, "a few in any case"));
    }
}
