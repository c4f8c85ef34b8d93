//! The topics that the patterns of subscriptions name: found aside, once for all groups, and again only for new topics.
//!
//! Owns the compiled patterns and their topics. A shard gets the topics of a known pattern at once; an unknown one goes into
//! a [line](mod@line). One task works the line off on a thread that may block, a slice of each source's patterns in turn, so
//! that neither a shard nor a network thread compiles or matches anything, and a source with many patterns, or a pattern that
//! takes long, holds up no other for longer than a slice. A pattern that takes [`MATCHING_MAX`] in all is refused.
//!
//! When topics come, a known pattern is held against those alone.

mod line;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_coordinator::{PatternTopics, TopicPattern, Workspace};
use riverrun_env::Clock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::line::{Asker, Line};
use crate::aside::waiting;
use crate::flow::source::Source;
use crate::metadata::{ClusterImage, Store};
use crate::stop_signal::{StopSignal, stopped};
use crate::supervisor::on_blocking_thread;

/// How long one pattern is worked on before the next one has its turn.
const SLICE: Duration = Duration::from_millis(5);
/// Names that are matched between two looks at the clock: with the largest program, some milliseconds.
const NAMES_PER_LOOK: usize = 8;
/// Matching of one pattern against all topics takes so long at most.
const MATCHING_MAX: Duration = Duration::from_secs(2);
/// Patterns that are remembered at most, and the bytes of them and their topics' names: those that were asked for longest ago
/// are forgotten, and found again when they are asked for.
const ENTRIES_MAX: usize = 2_000;
/// See [`ENTRIES_MAX`].
const ENTRIES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Memory of an entry or of a topic's name beside its text.
const PLACE_BYTES: usize = 128;
/// How long a member that joins waits for the topics of its pattern. It is a member then all the same, and gets them with a
/// later heartbeat.
const PATIENCE: Duration = Duration::from_secs(1);

/// The patterns of all groups.
#[derive(Default)]
pub(crate) struct Patterns {
    state: Mutex<State>,
    /// The line is not empty.
    wanted: Notify,
    /// One is known.
    known: Notify,
    /// Held by the task that works the line off.
    universe: Mutex<Universe>,
}

/// Invariants: `entries_bytes` is the sum of the entries' bytes.
#[derive(Default)]
struct State {
    entries: HashMap<Arc<str>, Entry>,
    entries_bytes: usize,
    line: Line,
    /// Counts the questions, for the age of entries.
    asked: u64,
}

/// The topics of a pattern, or why it has none.
struct Entry {
    found: Result<Matches, String>,
    bytes: usize,
    asked: u64,
}

/// The topics of a pattern as of one generation of the topics.
#[derive(Clone)]
struct Matches {
    pattern: Arc<TopicPattern>,
    generation: u64,
    names: Arc<BTreeSet<String>>,
}

/// A pattern that is being matched.
struct Work {
    pattern: Arc<TopicPattern>,
    workspace: Workspace,
    generation: u64,
    /// Names that are still to be matched.
    left: Vec<Arc<str>>,
    names: BTreeSet<String>,
    spent: Duration,
}

/// All topics' names, and since when each is there.
#[derive(Default)]
struct Universe {
    generation: u64,
    since: HashMap<Arc<str>, u64>,
    /// The same by generation; names that are gone may stand in it.
    by_generation: BTreeMap<u64, Vec<Arc<str>>>,
    listed: usize,
}

impl Universe {
    /// Brings it to the topics of this image.
    fn update(&mut self, image: &ClusterImage) {
        let generation = image.topics_generation();
        if self.generation == generation && !self.since.is_empty() {
            return;
        }
        self.generation = generation;
        self.since.retain(|name, _| image.topic(name).is_some());
        if self.listed > 64 + 2 * self.since.len() {
            self.by_generation.clear();
            self.listed = self.since.len();
            for (name, since) in &self.since {
                self.by_generation.entry(*since).or_default().push(Arc::clone(name));
            }
        }
        for topic in image.topics_sorted() {
            if !self.since.contains_key(&*topic.name) {
                let name: Arc<str> = (&*topic.name).into();
                self.since.insert(Arc::clone(&name), generation);
                self.by_generation.entry(generation).or_default().push(name);
                self.listed += 1;
            }
        }
    }

    /// The names that have come after this generation; all if there is none.
    fn after(&self, generation: Option<u64>) -> Vec<Arc<str>> {
        let from = generation.map_or(0, |generation| generation.saturating_add(1));
        let listed = self.by_generation.range(from..);
        let there = |since: u64, name: &Arc<str>| self.since.get(name) == Some(&since);
        let names = listed.flat_map(|(since, names)| names.iter().filter(|name| there(*since, name)));
        names.map(Arc::clone).collect()
    }
}

impl Patterns {
    /// The topics that a pattern names in this image. The patterns task finds out for `whose` those that are not known.
    pub(super) fn topics(&self, whose: Asker, pattern: &str, image: &ClusterImage) -> PatternTopics {
        let mut state = self.state.lock();
        state.asked += 1;
        let asked = state.asked;
        if let Some(entry) = state.entries.get_mut(pattern) {
            entry.asked = asked;
        }
        let known = state.known(pattern, image);
        if matches!(known, PatternTopics::Pending) && state.line.ask(whose, pattern) {
            self.wanted.notify_one();
        }
        known
    }

    /// The same, and unknown patterns are not put in line.
    pub(super) fn known(&self, pattern: &str, image: &ClusterImage) -> PatternTopics {
        self.state.lock().known(pattern, image)
    }

    /// Waits until the topics of a pattern are known, but not for long.
    pub(super) async fn find(&self, metadata: &Store, source: Source, pattern: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let known = self.known.notified();
            tokio::pin!(known);
            known.as_mut().enable();
            let topics = self.topics(Some(source), pattern, &metadata.cluster());
            if topics != PatternTopics::Pending || waiting(timeout_at(until, known)).await.is_err() {
                return;
            }
        }
    }

    /// Works on the first pattern in line for a slice; whether there was one.
    fn work(&self, image: &ClusterImage, clock: &dyn Clock) -> bool {
        let Some((text, work)) = self.state.lock().line.next() else { return false };
        let mut universe = self.universe.lock();
        universe.update(image);
        let begun = clock.monotonic();
        let work = match work.map_or_else(|| self.begin(&text, &universe), Ok) {
            Ok(work) => work,
            Err(why) => {
                self.keep(&text, Err(why));
                return true;
            }
        };
        match go_on(work, begun, clock) {
            Progress::Done(found) => self.keep(&text, found),
            Progress::Left(work) => self.state.lock().line.put_back(&text, work),
        }
        true
    }

    /// Compiles a pattern, or goes on from its earlier topics.
    fn begin(&self, text: &Arc<str>, universe: &Universe) -> Result<Box<Work>, String> {
        let known = self.state.lock().entries.get(text).and_then(|entry| entry.found.clone().ok());
        let pattern = match &known {
            Some(known) => Arc::clone(&known.pattern),
            None => Arc::new(TopicPattern::compile(text).map_err(|error| error.to_string())?),
        };
        let is_there = |name: &&String| universe.since.contains_key(name.as_str());
        let names = known.iter().flat_map(|known| known.names.iter()).filter(is_there).cloned().collect();
        let left = universe.after(known.map(|known| known.generation));
        let workspace = pattern.workspace();
        let generation = universe.generation;
        Ok(Box::new(Work { pattern, workspace, generation, left, names, spent: Duration::ZERO }))
    }

    /// Remembers the outcome of a pattern, and wakes the requests that wait for it.
    fn keep(&self, text: &Arc<str>, found: Result<Matches, String>) {
        let names_bytes =
            |names: &BTreeSet<String>| names.iter().map(|name| PLACE_BYTES + name.len()).sum::<usize>();
        let found_bytes = match &found {
            Ok(found) => found.pattern.size_bytes() + names_bytes(&found.names),
            Err(why) => why.len(),
        };
        let bytes = PLACE_BYTES + 2 * text.len() + found_bytes;
        let mut state = self.state.lock();
        state.line.take_out(text);
        let asked = state.asked;
        let before = state.entries.insert(Arc::clone(text), Entry { found, bytes, asked });
        state.entries_bytes += bytes;
        state.entries_bytes -= before.map_or(0, |before| before.bytes);
        state.forget_oldest();
        drop(state);
        self.known.notify_waiters();
    }
}

impl State {
    fn known(&self, pattern: &str, image: &ClusterImage) -> PatternTopics {
        match self.entries.get(pattern).map(|entry| &entry.found) {
            Some(Err(why)) => PatternTopics::Invalid(why.clone()),
            Some(Ok(found)) if found.generation == image.topics_generation() => {
                PatternTopics::Known(Arc::clone(&found.names))
            }
            _ => PatternTopics::Pending,
        }
    }

    /// Makes room for others: an eighth goes at once, so that each costs a constant.
    fn forget_oldest(&mut self) {
        if self.entries.len() <= ENTRIES_MAX && self.entries_bytes <= ENTRIES_BYTES_MAX {
            return;
        }
        let mut ages: Vec<_> =
            self.entries.iter().map(|(text, entry)| (entry.asked, Arc::clone(text))).collect();
        ages.sort_unstable();
        // A member waits for the last one.
        ages.pop();
        for (number, (_, text)) in ages.iter().enumerate() {
            if number > ages.len() / 8 && self.entries_bytes <= ENTRIES_BYTES_MAX {
                break;
            }
            self.entries_bytes -= self.entries.remove(text).map_or(0, |entry| entry.bytes);
        }
    }
}

/// How far a slice has come.
enum Progress {
    Done(Result<Matches, String>),
    Left(Box<Work>),
}

/// Matches names until the slice that has begun then is over.
fn go_on(mut work: Box<Work>, begun: Duration, clock: &dyn Clock) -> Progress {
    loop {
        for _ in 0..NAMES_PER_LOOK {
            let Some(name) = work.left.pop() else {
                let Work { pattern, generation, names, .. } = *work;
                return Progress::Done(Ok(Matches { pattern, generation, names: Arc::new(names) }));
            };
            if work.pattern.matches(&name, &mut work.workspace) {
                work.names.insert(name.to_string());
            }
        }
        let took = clock.monotonic().saturating_sub(begun);
        if work.spent + took >= MATCHING_MAX {
            let seconds = MATCHING_MAX.as_secs();
            return Progress::Done(Err(format!(
                "it takes longer than {seconds} seconds to match all topics"
            )));
        }
        if took >= SLICE {
            work.spent += took;
            return Progress::Left(work);
        }
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patterns").finish_non_exhaustive()
    }
}

/// Works off the line of patterns until `stop` turns true.
pub(super) async fn run(
    patterns: Arc<Patterns>,
    metadata: Arc<Store>,
    clock: Arc<dyn Clock>,
    mut stop: StopSignal,
) {
    let work = async {
        loop {
            patterns.wanted.notified().await;
            let mut goes_on = true;
            while goes_on {
                let (patterns, clock) = (Arc::clone(&patterns), Arc::clone(&clock));
                let image = metadata.cluster();
                goes_on = on_blocking_thread(move || patterns.work(&image, &*clock)).await.unwrap_or(false);
            }
        }
    };
    tokio::select! {
        () = stopped(&mut stop) => {}
        () = work => {}
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::{SimClock, SimEnv};

    use super::*;
    use crate::broker::Broker;
    use crate::config::BrokerConfig;
    use crate::metadata::NewTopic;
    use crate::start::open_broker;

    fn broker(sim: &SimEnv) -> Arc<Broker> {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        open_broker(sim.env(), config).expect("starts")
    }

    fn create(broker: &Broker, name: &str) {
        let new = NewTopic { name: name.to_owned(), partition_count: 1, configs: BTreeMap::new() };
        broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    }

    fn known(names: &[&str]) -> PatternTopics {
        PatternTopics::Known(Arc::new(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[test]
    fn a_pattern_is_found_aside_and_again_for_new_topics_alone() {
        let sim = SimEnv::new(1);
        let (broker, patterns, clock) = (broker(&sim), Patterns::default(), SimClock::new());
        for name in ["clicks", "orders"] {
            create(&broker, name);
        }
        let image = broker.catalog.cluster();
        for _ in 0..2 {
            assert_eq!(patterns.topics(None, "clicks.*", &image), PatternTopics::Pending);
        }
        assert!(patterns.work(&image, &clock) && !patterns.work(&image, &clock), "it is in line once");
        assert_eq!(patterns.topics(None, "clicks.*", &image), known(&["clicks"]));
        create(&broker, "clicks-eu");
        let image = broker.catalog.cluster();
        assert_eq!(patterns.topics(None, "clicks.*", &image), PatternTopics::Pending);
        let mut universe = patterns.universe.lock();
        let before = universe.generation;
        universe.update(&image);
        assert_eq!(universe.after(Some(before)), ["clicks-eu".into()]);
        assert_eq!(universe.after(None).len(), 3);
        drop(universe);
        assert!(patterns.work(&image, &clock));
        assert_eq!(patterns.topics(None, "clicks.*", &image), known(&["clicks", "clicks-eu"]));
    }

    #[test]
    fn a_pattern_that_is_none_is_known_as_such() {
        let sim = SimEnv::new(1);
        let (broker, patterns, clock) = (broker(&sim), Patterns::default(), SimClock::new());
        let image = broker.catalog.cluster();
        assert_eq!(patterns.topics(None, "[", &image), PatternTopics::Pending);
        assert!(patterns.work(&image, &clock));
        assert!(matches!(patterns.topics(None, "[", &image), PatternTopics::Invalid(_)));
    }

    /// A clock that goes on with each look.
    struct Slow(SimClock);

    impl Clock for Slow {
        fn wall(&self) -> riverrun_types::TimestampMs {
            self.0.wall()
        }

        fn monotonic(&self) -> Duration {
            self.0.advance(Duration::from_millis(10));
            self.0.monotonic()
        }
    }

    #[test]
    fn patterns_take_turns_and_one_that_takes_too_long_is_refused() {
        let sim = SimEnv::new(1);
        let (broker, patterns, clock) = (broker(&sim), Patterns::default(), Slow(SimClock::new()));
        for number in 0..4 * NAMES_PER_LOOK {
            create(&broker, &format!("t{number}"));
        }
        let image = broker.catalog.cluster();
        for pattern in ["t0", "t1"] {
            assert_eq!(patterns.topics(None, pattern, &image), PatternTopics::Pending);
        }
        let mut slices = 0;
        while patterns.work(&image, &clock) {
            slices += 1;
        }
        assert!(slices > 2, "each took some");
        assert_eq!(patterns.topics(None, "t0", &image), known(&["t0"]));

        let begun = clock.monotonic();
        let pattern = Arc::new(TopicPattern::compile("x").expect("valid"));
        let (workspace, left) = (pattern.workspace(), vec!["y".into(); 2 * NAMES_PER_LOOK]);
        let spent = MATCHING_MAX.saturating_sub(Duration::from_millis(1));
        let work = Work { pattern, workspace, generation: 1, left, names: BTreeSet::new(), spent };
        assert!(matches!(go_on(Box::new(work), begun, &clock), Progress::Done(Err(_))));
    }
}
