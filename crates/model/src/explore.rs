//! Owns the ways through a model: every state within bounds, breadth first, or one random way through larger bounds.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::choice;
use crate::invariants::{self, Invariant};
use crate::model::{Model, Step, Steps};
use crate::state::State;

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// States visited before it gives up.
    pub states: usize,
    /// Threads. With one, the trace of a broken promise is always the same.
    pub threads: usize,
}

impl Limits {
    /// Up to so many states, on one thread.
    pub fn states(states: usize) -> Self {
        Self { states, threads: 1 }
    }
}

/// How a search ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Every state within the bounds was visited: so many, the farthest so many steps from the first.
    Exhausted {
        /// States visited.
        states: usize,
        /// Steps to the farthest one.
        depth: usize,
    },
    /// The limit was reached first.
    Limited {
        /// States visited.
        states: usize,
        /// Steps to the farthest one.
        depth: usize,
    },
    /// A promise was broken.
    Broken {
        /// The promise.
        invariant: Invariant,
        /// The steps that break it: none are fewer.
        trace: Vec<Step>,
        /// States visited.
        states: usize,
    },
}

/// How a random way ended.
#[derive(Clone, Debug)]
pub enum Walked {
    /// So many steps, and nothing was broken.
    Through {
        /// Steps gone.
        steps: usize,
    },
    /// A promise was broken.
    Broken {
        /// The promise.
        invariant: Invariant,
        /// The steps gone; the last one breaks it.
        trace: Vec<Step>,
    },
}

/// Sixty-four bits of a state stand for it: of 10^8 states two are taken for one with a chance of 1 in 4,000.
type Print = u64;

fn print_of(state: &State) -> Print {
    let mut hasher = Bytes::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Hashes the bytes that a state writes, eight at a time: folded multiplication as in wyhash (Wang Yi, 2019). The standard hasher
/// takes most of a search's time.
#[derive(Default)]
struct Bytes {
    hash: u64,
    word: u64,
    bits: u32,
}

impl Bytes {
    fn fold(hash: u64, word: u64) -> u64 {
        let product = u128::from(hash ^ 0xA076_1D64_78BD_642F) * u128::from(word ^ 0xE703_7ED1_A0B4_28DB);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.word |= u64::from(byte) << self.bits;
        self.bits += 8;
        if self.bits == u64::BITS {
            self.hash = Self::fold(self.hash, self.word).wrapping_add(self.word);
            self.word = 0;
            self.bits = 0;
        }
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u8(value as u8);
    }

    #[inline]
    fn write_isize(&mut self, value: isize) {
        self.write_u8(value as u8);
    }

    fn finish(&self) -> u64 {
        let last = Self::fold(self.hash, self.word);
        Self::fold(last, u64::from(self.bits) ^ self.hash)
    }
}

/// A print is spread evenly already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("prints are written as u64");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Parents = HashMap<Print, Print, BuildHasherDefault<Same>>;

const SHARDS: usize = 256;

/// The prints of the states seen, each with that of the state before it.
struct Seen {
    shards: Vec<Mutex<Parents>>,
    count: AtomicUsize,
}

impl Seen {
    fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), count: AtomicUsize::new(0) }
    }

    fn shard(&self, print: Print) -> std::sync::MutexGuard<'_, Parents> {
        // The table below takes its low bits.
        let shard = &self.shards[(print >> 56) as usize % SHARDS];
        shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// True if the state is new.
    fn add(&self, print: Print, parent: Print) -> bool {
        match self.shard(print).entry(print) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(parent);
                self.count.fetch_add(1, Ordering::Relaxed);
                true
            }
        }
    }

    fn parent_of(&self, print: Print) -> Option<Print> {
        self.shard(print).get(&print).copied().filter(|parent| *parent != print)
    }
}

/// Visits every state that the model can reach, nearest first.
pub fn search(model: &Model, limits: Limits) -> Outcome {
    let first = model.first();
    let seen = Seen::new();
    seen.add(print_of(&first), print_of(&first));
    let mut level = vec![first];
    let mut depth = 0;
    while !level.is_empty() {
        let states = seen.count.load(Ordering::Relaxed);
        if states >= limits.states {
            return Outcome::Limited { states, depth };
        }
        let found = Found { model, seen: &seen, states_max: limits.states, enough: AtomicBool::new(false) };
        let share = level.len().div_ceil(limits.threads.max(1));
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                level.chunks(share).map(|states| scope.spawn(|| found.next_of(states))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        level.clear();
        for (mut next, broken) in results {
            if let Some((invariant, print)) = broken {
                let states = seen.count.load(Ordering::Relaxed);
                return Outcome::Broken { invariant, trace: trace(model, &seen, print), states };
            }
            level.append(&mut next);
        }
        depth += 1;
    }
    Outcome::Exhausted { states: seen.count.load(Ordering::Relaxed), depth }
}

/// One level of a search: what its threads share.
struct Found<'a> {
    model: &'a Model,
    seen: &'a Seen,
    states_max: usize,
    enough: AtomicBool,
}

impl Found<'_> {
    /// The new states after these, and the first that breaks a promise.
    fn next_of(&self, states: &[State]) -> (Vec<State>, Option<(Invariant, Print)>) {
        let mut next = Vec::new();
        let mut steps = Steps::new();
        for state in states {
            if self.enough.load(Ordering::Relaxed)
                || self.seen.count.load(Ordering::Relaxed) >= self.states_max
            {
                break;
            }
            let parent = print_of(state);
            self.model.steps(state, &mut steps);
            for (_, after) in &steps {
                let print = print_of(after);
                if !self.seen.add(print, parent) {
                    continue;
                }
                if let Some(invariant) = invariants::broken(self.model, after) {
                    self.enough.store(true, Ordering::Relaxed);
                    return (next, Some((invariant, print)));
                }
                next.push(*after);
            }
        }
        (next, None)
    }
}

/// The steps to a state: its chain of prints is gone through again from the first state.
fn trace(model: &Model, seen: &Seen, print: Print) -> Vec<Step> {
    let mut prints = vec![print];
    while let Some(parent) = prints.last().and_then(|print| seen.parent_of(*print)) {
        prints.push(parent);
    }
    let mut trace = Vec::new();
    let mut state = model.first();
    let mut steps = Steps::new();
    for print in prints.iter().rev().skip(1) {
        model.steps(&state, &mut steps);
        if let Some((step, after)) = steps.iter().find(|(_, after)| print_of(after) == *print) {
            trace.push(*step);
            state = *after;
        }
    }
    trace
}

/// Goes one random way of up to `steps_max` steps; the same seed goes the same way. Kinds of steps are drawn by weight, so that
/// failures come between records and not before them.
pub fn walk(model: &Model, seed: u64, steps_max: usize) -> Walked {
    let mut random = Random(seed);
    let mut state = model.first();
    let mut trace = Vec::new();
    let mut steps = Steps::new();
    for _ in 0..steps_max {
        model.steps(&state, &mut steps);
        let Some(place) = choice::draw(&steps, &[], &mut |bound| random.below(bound)) else { break };
        let (step, after) = steps[place];
        trace.push(step);
        state = after;
        if let Some(invariant) = invariants::broken(model, &state) {
            return Walked::Broken { invariant, trace };
        }
    }
    Walked::Through { steps: trace.len() }
}

/// Goes the ways that a trace's lines name: where the controller has a choice, a line is a step to several states. The promise
/// that is broken at the end of one of them; an error names the line that cannot be gone.
pub fn replay<'a>(model: &Model, lines: impl Iterator<Item = &'a str>) -> Result<Option<Invariant>, String> {
    let mut states = vec![model.first()];
    let mut steps = Steps::new();
    for line in lines {
        let mut after = Vec::new();
        for state in &states {
            model.steps(state, &mut steps);
            after.extend(steps.iter().filter(|(step, _)| step.to_string() == line).map(|(_, after)| *after));
        }
        if after.is_empty() {
            return Err(line.to_owned());
        }
        states = after;
    }
    Ok(states.iter().find_map(|state| invariants::broken(model, state)))
}

/// Goes from one milestone to the next: each is a part of a step's text, and the nearest step that has it is taken. An error
/// names the milestone that is not reached within `states_max` states.
pub fn guided<'a>(model: &Model, milestones: &[&'a str], states_max: usize) -> Result<Walked, &'a str> {
    let mut state = model.first();
    let mut trace = Vec::new();
    for milestone in milestones {
        let (way, reached) = nearest(model, &state, milestone, states_max).ok_or(*milestone)?;
        trace.extend(way);
        state = reached;
        if let Some(invariant) = invariants::broken(model, &state) {
            return Ok(Walked::Broken { invariant, trace });
        }
    }
    Ok(Walked::Through { steps: trace.len() })
}

/// The shortest way to a step whose text has `milestone`.
pub(crate) fn nearest(
    model: &Model,
    from: &State,
    milestone: &str,
    states_max: usize,
) -> Option<(Vec<Step>, State)> {
    let mut seen = HashSet::from([print_of(from)]);
    let mut queue = VecDeque::from([(*from, Vec::new())]);
    let mut steps = Steps::new();
    while let Some((state, way)) = queue.pop_front() {
        model.steps(&state, &mut steps);
        for (step, after) in &steps {
            let reached = step.to_string().contains(milestone);
            if !reached && (seen.len() >= states_max || !seen.insert(print_of(after))) {
                continue;
            }
            let mut longer: Vec<Step> = way.clone();
            longer.push(*step);
            if reached {
                return Some((longer, *after));
            }
            queue.push_back((*after, longer));
        }
    }
    None
}

/// `SplitMix64` (Steele, Lea, Flood 2014): a way needs no better numbers, and no dependency.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
