//! Whose turn it is with a group that is worked on outside of its shard.
//!
//! Owns a line for each such group, in the order of arrival; whoever leaves it lets the next one on. A group that nobody is
//! at has no line.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Gate = Arc<tokio::sync::Mutex<()>>;

/// The lines of one shard's groups.
///
/// Invariants: a group has a gate exactly while somebody is at it or waits for it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    gates: Arc<Mutex<HashMap<Arc<str>, Gate>>>,
}

/// A place in a line; taken out when it is dropped.
struct Place {
    gates: Arc<Mutex<HashMap<Arc<str>, Gate>>>,
    group_id: Arc<str>,
    gate: Option<Gate>,
}

/// The turn with a group: nobody else lends it meanwhile.
pub(super) struct Pass {
    /// Before the place, which is looked at by how many hold the gate.
    guard: Option<OwnedMutexGuard<()>>,
    _place: Place,
}

impl Lines {
    /// Waits for the turn with a group. Safe to drop at any time.
    pub(super) async fn pass(&self, group_id: &str) -> Pass {
        let place = self.place(group_id);
        let gate = place.gate.as_ref().map(Arc::clone).unwrap_or_default();
        let guard = Some(gate.lock_owned().await);
        Pass { guard, _place: place }
    }

    fn place(&self, group_id: &str) -> Place {
        let mut gates = self.gates.lock();
        let group_id: Arc<str> = match gates.get_key_value(group_id) {
            Some((group_id, _)) => Arc::clone(group_id),
            None => group_id.into(),
        };
        let gate = Arc::clone(gates.entry(Arc::clone(&group_id)).or_default());
        Place { gates: Arc::clone(&self.gates), group_id, gate: Some(gate) }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        drop(self.guard.take());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut gates = self.gates.lock();
        self.gate = None;
        if gates.get(&self.group_id).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.group_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn who_waits_for_a_group_has_its_turn_in_the_order_of_arrival() {
        let lines = Lines::default();
        let first = lines.pass("g").now_or_never().expect("free");
        assert!(lines.pass("h").now_or_never().is_some(), "another group's");
        let (mut second, mut third) = (Box::pin(lines.pass("g")), Box::pin(lines.pass("g")));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "it came later");
        let second = (&mut second).now_or_never().expect("its turn");
        drop(second);
        assert!((&mut third).now_or_never().is_some());
    }

    #[test]
    fn whoever_leaves_lets_the_next_one_on_and_no_line_is_left() {
        let lines = Lines::default();
        let first = lines.pass("g").now_or_never().expect("free");
        let (mut second, mut third) = (Box::pin(lines.pass("g")), Box::pin(lines.pass("g")));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        drop(second);
        let third_pass = (&mut third).now_or_never().expect("its turn");
        drop((third_pass, third));
        assert!(lines.gates.lock().is_empty());
    }
}
