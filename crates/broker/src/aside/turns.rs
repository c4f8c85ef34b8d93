//! Turns to do much, or to change the metadata: a bounded number at once, and of them only a part for one source, so that
//! many requests from one source neither take all memory nor keep those from others waiting.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::net::source::Source;

/// The turns of a server.
///
/// Invariants: `running` is the sum of those of all sources, at most `running_max`, and each at most `of_source_max`; a source
/// is in `line` exactly while somebody waits in it, and in `sources` exactly while it has a turn or waits for one. Nobody
/// waits who could have a turn.
#[derive(Debug)]
pub(crate) struct Turns {
    running_max: usize,
    of_source_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    sources: HashMap<Source, OfSource>,
    /// Sources in which somebody waits; the one that had a turn longest ago is the first.
    line: VecDeque<Source>,
}

#[derive(Debug, Default)]
struct OfSource {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The leave to do much, given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    source: Source,
}

impl State {
    fn join(&mut self, source: Source, sender: oneshot::Sender<Turn>) {
        let of_source = self.sources.entry(source).or_default();
        of_source.waiting.push_back(sender);
        if of_source.waiting.len() == 1 {
            self.line.push_back(source);
        }
    }
}

impl Turns {
    pub(crate) fn new(running_max: usize, of_source_max: usize) -> Arc<Self> {
        Arc::new(Self { running_max, of_source_max, state: Mutex::default() })
    }

    /// Turns that are taken, and requests that wait for one.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running, state.sources.values().map(|of_source| of_source.waiting.len()).sum())
    }

    /// Waits for a turn. Safe to drop at any time.
    pub(crate) async fn take(self: &Arc<Self>, source: Source) -> Turn {
        let (sender, receiver) = oneshot::channel();
        self.state.lock().join(source, sender);
        self.grant();
        match receiver.await {
            Ok(turn) => turn,
            // A sender stays in the line until it has granted a turn.
            Err(_) => pending().await,
        }
    }

    /// Gives what is free to those who wait.
    fn grant(self: &Arc<Self>) {
        loop {
            let Some((source, sender)) = self.next() else { return };
            // Not under the lock: to whom it cannot be given, it is given back.
            drop(sender.send(Turn { turns: Arc::clone(self), source }));
        }
    }

    /// Takes a free turn for the request that is next in line, if there are both.
    fn next(&self) -> Option<(Source, oneshot::Sender<Turn>)> {
        let mut state = self.state.lock();
        let State { running, sources, line } = &mut *state;
        if *running >= self.running_max {
            return None;
        }
        let has_share =
            |source: &Source| sources.get(source).is_some_and(|of| of.running < self.of_source_max);
        let place = line.iter().position(has_share)?;
        let source = line.remove(place)?;
        let of_source = sources.get_mut(&source)?;
        let sender = of_source.waiting.pop_front()?;
        of_source.running += 1;
        *running += 1;
        if !of_source.waiting.is_empty() {
            line.push_back(source);
        }
        Some((source, sender))
    }

    fn give_back(&self, source: Source) {
        let mut state = self.state.lock();
        state.running -= 1;
        if let Some(of_source) = state.sources.get_mut(&source) {
            of_source.running -= 1;
            if of_source.running == 0 && of_source.waiting.is_empty() {
                state.sources.remove(&source);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.give_back(self.source);
        self.turns.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn a_source_has_its_share_and_others_the_rest() {
        let turns = Turns::new(3, 2);
        let take = |last| Box::pin(turns.take(source(last)));
        let first = [take(1), take(1)].map(|turn| turn.now_or_never().expect("its share"));
        let mut third = take(1);
        assert!((&mut third).now_or_never().is_none(), "more than its share");
        let other = take(2).now_or_never().expect("another's is free");
        let mut another = take(3);
        assert!((&mut another).now_or_never().is_none(), "all are taken");
        drop(first);
        assert!((&mut third).now_or_never().is_some() && (&mut another).now_or_never().is_some());
        drop((third, another, other));
        assert!(turns.state.lock().sources.is_empty() && turns.state.lock().line.is_empty());
    }

    #[test]
    fn sources_come_to_their_turn_one_after_the_other() {
        let turns = Turns::new(1, 1);
        let take = |last| Box::pin(turns.take(source(last)));
        let mut running = take(1).now_or_never();
        assert!(running.is_some());
        let mut waiting: Vec<_> = [1, 1, 1, 2, 3, 2].map(|last| (last, take(last))).into();
        for (_, turn) in &mut waiting {
            assert!(turn.now_or_never().is_none());
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running.take());
            let ready = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(place, (last, turn))| Some((place, *last, turn.now_or_never()?)));
            let (place, last, turn) = ready.expect("somebody's turn");
            running = Some(turn);
            order.push(last);
            drop(waiting.remove(place));
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1]);
    }

    #[test]
    fn whoever_leaves_the_line_takes_no_turn_along() {
        let turns = Turns::new(1, 1);
        let take = |last| Box::pin(turns.take(source(last)));
        let first = take(1).now_or_never();
        let (mut left, mut next) = (take(1), take(2));
        assert!((&mut left).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        drop(left);
        drop(first);
        let second = (&mut next).now_or_never();
        assert!(second.is_some());
        // One that was granted and not taken is given back as well.
        let mut granted = take(3);
        assert!((&mut granted).now_or_never().is_none());
        drop(second);
        drop(granted);
        assert!(take(1).now_or_never().is_some());
        assert!(turns.state.lock().sources.is_empty());
    }
}
