//! Owns the places for links that others make to this member: how many there are, and whose link ends for a new one.
//!
//! A new link always gets a place, and takes it from another one if need be. So nobody who holds places keeps a member out,
//! which has proved itself milliseconds after its link was made.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::types::VoterId;

/// Upper bound of the links that have not proved themselves.
const UNPROVED_MAX: usize = 64;
/// Upper bound of those of one source.
const UNPROVED_PER_SOURCE_MAX: usize = 16;
/// Upper bound of the links of one voter. It has about four, and a lost one is noticed late.
const PROVED_PER_VOTER_MAX: usize = 8;
/// Upper bound of the links of all voters.
const PROVED_MAX: usize = 256;

/// The places. Once this is dropped, all links have to end.
#[derive(Default)]
pub(crate) struct Links(Arc<Mutex<Table>>);

/// Invariants: entries are in the order in which their links were made; none has a number twice.
#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    source: String,
    /// The voter that has proved itself.
    voter: Option<VoterId>,
    /// Tells the link to end when it is dropped.
    _ending: oneshot::Sender<()>,
}

/// The place of a link, until it is dropped.
pub(crate) struct Place {
    number: u64,
    table: Weak<Mutex<Table>>,
}

/// Ends when a link has to.
pub(crate) type Ending = oneshot::Receiver<()>;

impl Links {
    /// Gives a place to a new link from there. Returns the source of the link that has lost its own for it, too.
    pub(crate) fn enter(&self, source: &str) -> (Place, Ending, Option<String>) {
        let (sender, ending) = oneshot::channel();
        let mut table = self.0.lock();
        let lost = table.crowded_unproved(source).map(|at| table.entries.remove(at).source);
        let number = table.next;
        table.next += 1;
        table.entries.push(Entry { number, source: source.to_owned(), voter: None, _ending: sender });
        (Place { number, table: Arc::downgrade(&self.0) }, ending, lost)
    }
}

impl Table {
    /// The link that has to end before one from there can begin.
    fn crowded_unproved(&self, source: &str) -> Option<usize> {
        let unproved = || self.entries.iter().filter(|entry| entry.voter.is_none());
        let count = |source: &str| unproved().filter(|entry| entry.source == source).count();
        let crowded = if count(source) >= UNPROVED_PER_SOURCE_MAX {
            source
        } else if unproved().count() >= UNPROVED_MAX {
            // The oldest one's, of sources with as many links.
            unproved().rev().max_by_key(|entry| count(&entry.source))?.source.as_str()
        } else {
            return None;
        };
        self.entries.iter().position(|entry| entry.voter.is_none() && entry.source == crowded)
    }

    /// The link that has to end now that this voter has one more.
    fn crowded_proved(&self, voter: VoterId) -> Option<usize> {
        let is_of = |entry: &Entry| entry.voter == Some(voter);
        let is_proved = |entry: &Entry| entry.voter.is_some();
        let count =
            |is_meant: &dyn Fn(&Entry) -> bool| self.entries.iter().filter(|entry| is_meant(entry)).count();
        if count(&is_of) > PROVED_PER_VOTER_MAX {
            self.entries.iter().position(is_of)
        } else if count(&is_proved) > PROVED_MAX {
            self.entries.iter().position(is_proved)
        } else {
            None
        }
    }
}

impl Place {
    /// The link has proved itself to be of this voter, whose oldest one may end for it.
    pub(crate) fn prove(&self, voter: VoterId) {
        let Some(table) = self.table.upgrade() else { return };
        let mut table = table.lock();
        if let Some(entry) = table.entries.iter_mut().find(|entry| entry.number == self.number) {
            entry.voter = Some(voter);
            if let Some(at) = table.crowded_proved(voter) {
                table.entries.remove(at);
            }
        }
    }

    /// A number that no other link of this member has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.lock().entries.retain(|entry| entry.number != self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Link {
        place: Place,
        ending: Ending,
    }

    impl Link {
        fn new(links: &Links, source: &str) -> (Self, Option<String>) {
            let (place, ending, lost) = links.enter(source);
            (Self { place, ending }, lost)
        }

        fn has_to_end(&mut self) -> bool {
            self.ending.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        }
    }

    fn voter(node: u32) -> VoterId {
        VoterId { node, life: 1 }
    }

    #[test]
    fn a_source_has_few_places_before_it_proves_itself() {
        let links = Links::default();
        let (mut other, _) = Link::new(&links, "b");
        let mut all: Vec<_> = (0..=UNPROVED_PER_SOURCE_MAX).map(|_| Link::new(&links, "a")).collect();
        assert_eq!(all.pop().and_then(|(_, lost)| lost), Some("a".to_owned()));
        assert!(all.iter().all(|(_, lost)| lost.is_none()));
        assert!(all[0].0.has_to_end(), "the oldest one");
        assert!(all[1..].iter_mut().all(|(link, _)| !link.has_to_end()));
        assert!(!other.has_to_end());
    }

    #[test]
    fn a_full_house_has_room_for_one_more_source() {
        let links = Links::default();
        let (mut first, _) = Link::new(&links, "member");
        let sources: Vec<_> = (0..UNPROVED_MAX - 1).map(|at| format!("source {}", at % 7)).collect();
        let mut all: Vec<_> = sources.iter().map(|source| Link::new(&links, source).0).collect();
        // Each of the seven has nine of them.
        let (_new, lost) = Link::new(&links, "another member");
        assert_eq!(lost.as_deref(), Some("source 0"), "the oldest of those with most");
        assert!(all[0].has_to_end());
        assert!(!first.has_to_end());
        drop(all);
        assert_eq!(links.0.lock().entries.len(), 2, "a link that has ended has no place");
    }

    #[test]
    fn a_voter_has_few_links_and_the_newest_ones() {
        let links = Links::default();
        let (mut other, _) = Link::new(&links, "b");
        other.place.prove(voter(2));
        let mut all: Vec<_> = (0..=PROVED_PER_VOTER_MAX).map(|_| Link::new(&links, "a").0).collect();
        for link in &all {
            link.place.prove(voter(1));
        }
        assert!(all[0].has_to_end());
        assert!(all[1..].iter_mut().all(|link| !link.has_to_end()));
        assert!(!other.has_to_end());
        assert!(Link::new(&links, "a").1.is_none(), "proved links take no place of others");
    }

    #[test]
    fn all_voters_have_a_bounded_number_of_links() {
        let links = Links::default();
        let mut all: Vec<_> = (0..=PROVED_MAX).map(|_| Link::new(&links, "a").0).collect();
        // The source has lost its oldest ones meanwhile: they prove nothing any more.
        let lost = all.iter_mut().filter_map(|link| link.has_to_end().then_some(())).count();
        assert_eq!(lost, PROVED_MAX + 1 - UNPROVED_PER_SOURCE_MAX);
        all.clear();
        for node in 0..=u32::try_from(PROVED_MAX).unwrap() {
            let (link, _) = Link::new(&links, "a");
            link.place.prove(voter(node));
            all.push(link);
        }
        assert!(all[0].has_to_end());
        assert!(all[1..].iter_mut().all(|link| !link.has_to_end()));
    }

    #[test]
    fn all_links_end_with_the_places() {
        let links = Links::default();
        let (mut link, _) = Link::new(&links, "a");
        link.place.prove(voter(1));
        assert!(!link.has_to_end());
        drop(links);
        assert!(link.has_to_end());
    }
}
