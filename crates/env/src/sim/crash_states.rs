//! Every state that a power cut may leave, one after the other.
//!
//! Owns how the free choices of a power cut are made: at random ([`SplitMix`]), or one path after the other through
//! the tree of choices ([`CrashStates`]). The disk decides what the choices are: see [`Disk::crash`].

use std::collections::BTreeSet;

use super::disk::Disk;
use super::file_system::SimFileSystem;
use super::random::SplitMix;

/// Makes the choices that a power cut leaves open.
pub(super) trait Choose {
    /// A number below `count`, which is at least 1. The first choice is the durable state, the last one the state
    /// that processes saw.
    fn choose(&mut self, count: usize) -> usize;
}

impl Choose for SplitMix {
    fn choose(&mut self, count: usize) -> usize {
        self.below(count)
    }
}

/// Always the same end of the choices.
enum Extreme {
    Durable,
    Live,
}

impl Choose for Extreme {
    fn choose(&mut self, count: usize) -> usize {
        match self {
            Self::Durable => 0,
            Self::Live => count - 1,
        }
    }
}

/// Walks a tree of choices whose shape shows only on the way: depth first, each leaf once.
#[derive(Default)]
struct Walk {
    /// The choices of the present path, each with its count.
    path: Vec<(usize, usize)>,
    depth: usize,
}

impl Choose for Walk {
    fn choose(&mut self, count: usize) -> usize {
        if self.depth == self.path.len() {
            self.path.push((0, count));
        }
        self.depth += 1;
        self.path[self.depth - 1].0
    }
}

impl Walk {
    /// Goes on to the next path, if there is one.
    fn advance(&mut self) -> bool {
        self.depth = 0;
        while let Some((answer, count)) = self.path.pop() {
            if answer + 1 < count {
                self.path.push((answer + 1, count));
                return true;
            }
        }
        false
    }
}

/// Leaves of the tree of choices that are examined per wanted state: several choices may lead to the same state.
const LEAVES_PER_STATE: usize = 8;

/// The disks that a power cut at one moment may leave: independent of each other, each as the next process finds it.
///
/// Up to the bound these are all legal states, each once. If there are more, these are the two extremes, nothing
/// pending and everything pending, and a sample, the same one for the same disk.
#[derive(Debug)]
pub struct CrashStates {
    states: std::vec::IntoIter<Disk>,
    is_exhaustive: bool,
}

impl CrashStates {
    /// Takes the disk as it is at the moment of the power cut.
    pub(super) fn new(disk: &Disk, bound: usize) -> Self {
        let (states, is_exhaustive) = match all(disk, bound) {
            Some(states) => (states, true),
            None => (sample(disk, bound), false),
        };
        Self { states: states.into_iter(), is_exhaustive }
    }

    /// Whether these are all legal states.
    pub fn is_exhaustive(&self) -> bool {
        self.is_exhaustive
    }
}

impl Iterator for CrashStates {
    type Item = SimFileSystem;

    fn next(&mut self) -> Option<SimFileSystem> {
        self.states.next().map(SimFileSystem::with_disk)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.states.size_hint()
    }
}

impl ExactSizeIterator for CrashStates {}

/// All states, or `None` if there are more than `bound`.
fn all(disk: &Disk, bound: usize) -> Option<Vec<Disk>> {
    let (mut states, mut seen) = (Vec::new(), BTreeSet::new());
    let mut walk = Walk::default();
    for _ in 0..bound.saturating_mul(LEAVES_PER_STATE) {
        let state = disk.crashed(&mut walk);
        if seen.insert(state.fingerprint(disk)) {
            states.push(state);
        }
        if states.len() > bound {
            return None;
        }
        if !walk.advance() {
            return Some(states);
        }
    }
    None
}

/// The extremes, and a sample up to the bound.
fn sample(disk: &Disk, bound: usize) -> Vec<Disk> {
    let mut states = vec![disk.crashed(&mut Extreme::Durable), disk.crashed(&mut Extreme::Live)];
    let mut seen: BTreeSet<u64> = states.iter().map(|state| state.fingerprint(disk)).collect();
    let mut random = SplitMix::new(disk.operations);
    for _ in 0..bound.saturating_mul(LEAVES_PER_STATE) {
        if states.len() >= bound {
            break;
        }
        let state = disk.crashed(&mut random);
        if seen.insert(state.fingerprint(disk)) {
            states.push(state);
        }
    }
    states.truncate(bound);
    states
}
