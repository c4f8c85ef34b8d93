//! The waits of the server, as the watchdog has seen them. Pure: facts and time in, events out.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// A wait that is over sooner is load, and not worth a note.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(1);
/// A wait that lasts longer is a trouble: a server that is only busy gets on within that time.
const TROUBLE_AFTER: Duration = Duration::from_secs(10);

/// The cause of a wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// The write cache is full.
    WriteCache,
    /// The disk of a log dir, by the dir's index.
    LogDir(usize),
    /// The disk of the metadata.
    Metadata,
    /// A journal, by its index, stores none of its entries.
    Journal(usize),
    /// The memory for requests is taken.
    RequestMemory,
    /// The same, and no request is answered.
    AnyRequestMemory,
    /// The memory for responses is taken.
    ResponseMemory,
    /// The threads of the network do not get to new tasks.
    NetworkThreads,
    /// Connections have more to do than the threads of the network can, and their sources take turns.
    Turns,
}

impl Wait {
    /// Its name in metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::WriteCache => "write_cache",
            Self::LogDir(_) => "log_dir",
            Self::Metadata => "metadata",
            Self::Journal(_) => "journal",
            Self::RequestMemory => "request_memory",
            Self::AnyRequestMemory => "any_request_memory",
            Self::ResponseMemory => "response_memory",
            Self::NetworkThreads => "network_threads",
            Self::Turns => "turns",
        }
    }

    /// Whether a long wait is a trouble: it holds up requests that ask for no more than their share. A few large requests may
    /// hold the memory that others of their kind wait for as long as they like, if small ones are answered.
    fn is_trouble(&self) -> bool {
        !matches!(self, Self::Turns | Self::RequestMemory)
    }
}

/// A wait that goes on.
#[derive(Debug)]
struct Lasting {
    since: Duration,
    cause: String,
    is_told: bool,
}

/// An event for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Began(String),
    Ended(String, Duration),
}

/// The waits that go on. Pure: facts and time in, events out.
///
/// Invariants: each of them was seen at every look since it began.
#[derive(Debug, Default)]
struct Waits {
    lasting: BTreeMap<Wait, Lasting>,
    seen_at: Duration,
}

impl Waits {
    /// Takes in the present waits, each with its cause, and returns the events.
    fn look(&mut self, now: Duration, present: Vec<(Wait, String)>) -> Vec<Event> {
        self.seen_at = now;
        let mut before = std::mem::take(&mut self.lasting);
        let mut events = Vec::new();
        for (wait, cause) in present {
            let known = before.remove(&wait);
            let (since, was_told) = known.map_or((now, false), |known| (known.since, known.is_told));
            let is_told = was_told || now.saturating_sub(since) >= TOLD_AFTER;
            if is_told && !was_told {
                events.push(Event::Began(cause.clone()));
            }
            self.lasting.insert(wait, Lasting { since, cause, is_told });
        }
        let over = before.into_values().filter(|lasting| lasting.is_told);
        events.extend(over.map(|lasting| Event::Ended(lasting.cause, now.saturating_sub(lasting.since))));
        events
    }

    /// The waits that were logged, and how long they have lasted.
    fn told(&self) -> impl Iterator<Item = (&Wait, &str, Duration)> {
        let told = self.lasting.iter().filter(|(_, lasting)| lasting.is_told);
        told.map(|(wait, it)| (wait, it.cause.as_str(), self.seen_at.saturating_sub(it.since)))
    }
}

/// A wait that was logged.
#[derive(Debug)]
pub(crate) struct ToldWait {
    pub(crate) wait: Wait,
    /// Whether it has lasted so long that something is wrong. Some kinds never are a trouble.
    pub(crate) is_trouble: bool,
    pub(crate) text: String,
}

/// The waits that the watchdog has seen, for `/health` and metrics.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Waits>);

impl Seen {
    /// Takes in the present waits, each with its cause, and returns the events.
    pub(crate) fn look(&self, now: Duration, present: Vec<(Wait, String)>) -> Vec<Event> {
        self.0.lock().look(now, present)
    }

    /// The waits that have lasted long enough to be shown.
    pub(crate) fn told(&self) -> Vec<ToldWait> {
        let waits = self.0.lock();
        let told = waits.told().map(|(wait, cause, lasted)| ToldWait {
            wait: wait.clone(),
            is_trouble: wait.is_trouble() && lasted >= TROUBLE_AFTER,
            text: format!("for {} seconds {cause}", lasted.as_secs()),
        });
        told.collect()
    }

    #[cfg(test)]
    fn texts(&self, of_troubles: bool) -> Vec<String> {
        let told = self.told().into_iter().filter(|told| told.is_trouble == of_troubles);
        told.map(|told| told.text).collect()
    }

    /// The texts of troubles.
    #[cfg(test)]
    pub(crate) fn troubles(&self) -> Vec<String> {
        self.texts(true)
    }

    /// The texts of the other waits.
    #[cfg(test)]
    pub(crate) fn notes(&self) -> Vec<String> {
        self.texts(false)
    }

    /// Seconds that each kind of wait has lasted, by its name: of several journals the longest.
    pub(crate) fn seconds(&self) -> BTreeMap<&'static str, u64> {
        let waits = self.0.lock();
        let mut seconds = BTreeMap::new();
        for (wait, _, lasted) in waits.told() {
            let longest: &mut u64 = seconds.entry(wait.name()).or_default();
            *longest = (*longest).max(lasted.as_secs());
        }
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(cause: &str) -> Vec<(Wait, String)> {
        vec![(Wait::WriteCache, cause.to_owned())]
    }

    #[test]
    fn a_wait_is_told_once_when_it_lasts_and_once_when_it_is_over() {
        let mut waits = Waits::default();
        let at = |ms: u64| Duration::from_millis(10_000 + ms);
        assert!(waits.look(at(0), cache("first")).is_empty());
        assert!(waits.look(at(900), cache("first")).is_empty());
        assert!(waits.look(at(950), Vec::new()).is_empty(), "it was not worth a word");
        assert!(waits.look(at(1000), cache("first")).is_empty(), "it begins anew");
        assert_eq!(waits.look(at(2000), cache("second")), [Event::Began("second".to_owned())]);
        assert!(waits.look(at(3000), cache("third")).is_empty());
        let ended = Event::Ended("third".to_owned(), Duration::from_secs(3));
        assert_eq!(waits.look(at(4000), Vec::new()), [ended]);
        assert!(waits.look(at(9000), Vec::new()).is_empty());
    }

    #[test]
    fn a_wait_is_a_note_first_and_a_trouble_when_it_lasts_for_long() {
        let seen = Seen::default();
        let look = |seconds, present| _ = seen.look(Duration::from_secs(seconds), present);
        let mut both = cache("producers wait");
        both.push((Wait::Journal(0), "one".to_owned()));
        look(100, both.clone());
        assert_eq!((seen.notes(), seen.troubles()), (Vec::new(), Vec::new()));
        both.push((Wait::Journal(1), "other".to_owned()));
        look(105, both.clone());
        assert_eq!(seen.notes(), ["for 5 seconds producers wait", "for 5 seconds one"]);
        look(110, both);
        assert_eq!(seen.troubles(), ["for 10 seconds producers wait", "for 10 seconds one"]);
        assert_eq!(seen.notes(), ["for 5 seconds other"]);
        assert_eq!(seen.seconds(), BTreeMap::from([("write_cache", 10), ("journal", 10)]));
    }

    #[test]
    fn waits_for_a_turn_are_never_a_trouble() {
        let seen = Seen::default();
        for seconds in [100, 200] {
            seen.look(Duration::from_secs(seconds), vec![(Wait::Turns, "they wait".to_owned())]);
        }
        assert_eq!(seen.troubles(), [""; 0]);
        assert_eq!(seen.notes(), ["for 100 seconds they wait"]);
    }
}
