//! Turns to do much, or to change the metadata: a bounded number at once, and of them only a part for one source, so that
//! many requests from one source neither take all memory nor keep those from others waiting.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::flow::source::Source;

/// The turns of a server.
///
/// Invariants: `running` is the sum of those of all sources, at most `running_max`, and each at most `of_source_max`; a source
/// is in `line` exactly while a request waits in it, and in `sources` exactly while it has a turn or waits for one. No request
/// waits that could have a turn, and none is in a line that waits no more.
#[derive(Debug)]
pub(crate) struct Turns {
    running_max: usize,
    of_source_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    last_ticket: u64,
    sources: HashMap<Source, OfSource>,
    /// Sources in which a request waits; the one that had a turn longest ago is the first.
    line: VecDeque<Source>,
}

#[derive(Debug, Default)]
struct OfSource {
    running: usize,
    /// By ticket, which rises: the request that came first is the first.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The leave to do much, given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    source: Source,
}

/// A place in the line of a source, which is left when this is dropped.
struct Place {
    turns: Arc<Turns>,
    source: Source,
    ticket: u64,
    granted: oneshot::Receiver<()>,
}

impl State {
    fn join(&mut self, source: Source, sender: oneshot::Sender<()>) -> u64 {
        self.last_ticket += 1;
        let of_source = self.sources.entry(source).or_default();
        of_source.waiting.insert(self.last_ticket, sender);
        if of_source.waiting.len() == 1 {
            self.line.push_back(source);
        }
        self.last_ticket
    }

    fn leave(&mut self, source: Source, ticket: u64) {
        let Some(of_source) = self.sources.get_mut(&source) else { return };
        if of_source.waiting.remove(&ticket).is_some() && of_source.waiting.is_empty() {
            self.line.retain(|other| *other != source);
            self.forget_idle(source);
        }
    }

    fn give_back(&mut self, source: Source) {
        self.running -= 1;
        if let Some(of_source) = self.sources.get_mut(&source) {
            of_source.running -= 1;
            self.forget_idle(source);
        }
    }

    fn forget_idle(&mut self, source: Source) {
        let is_idle = |of_source: &OfSource| of_source.running == 0 && of_source.waiting.is_empty();
        if self.sources.get(&source).is_some_and(is_idle) {
            self.sources.remove(&source);
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
        let (sender, granted) = oneshot::channel();
        let ticket = self.state.lock().join(source, sender);
        let place = Place { turns: Arc::clone(self), source, ticket, granted };
        self.grant();
        place.turn().await
    }

    /// Gives free turns to waiting requests.
    fn grant(&self) {
        while let Some((source, sender)) = self.next() {
            // A request that leaves at this moment takes no turn. No `Turn` is made before the request has it: one that is
            // dropped here would grant again, a stack frame deeper for each request that has left.
            if sender.send(()).is_err() {
                self.state.lock().give_back(source);
            }
        }
    }

    /// Takes a free turn for the request that is next in line, if there are both.
    fn next(&self) -> Option<(Source, oneshot::Sender<()>)> {
        let mut state = self.state.lock();
        let State { running, sources, line, .. } = &mut *state;
        if *running >= self.running_max {
            return None;
        }
        let has_share =
            |source: &Source| sources.get(source).is_some_and(|of| of.running < self.of_source_max);
        let place = line.iter().position(has_share)?;
        let source = line.remove(place)?;
        let of_source = sources.get_mut(&source)?;
        let (_, sender) = of_source.waiting.pop_first()?;
        of_source.running += 1;
        *running += 1;
        if !of_source.waiting.is_empty() {
            line.push_back(source);
        }
        Some((source, sender))
    }

    /// Gives a turn back, and to the next in line.
    fn hand_on(&self, source: Source) {
        self.state.lock().give_back(source);
        self.grant();
    }
}

impl Place {
    async fn turn(mut self) -> Turn {
        match (&mut self.granted).await {
            Ok(()) => Turn { turns: Arc::clone(&self.turns), source: self.source },
            // A sender stays in the line until it has granted a turn.
            Err(_) => pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.granted.close();
        if self.granted.try_recv().is_ok() {
            self.turns.hand_on(self.source);
        } else {
            self.turns.state.lock().leave(self.source, self.ticket);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.hand_on(self.source);
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
    fn request_that_leaves_the_line_takes_no_turn_along() {
        let turns = Turns::new(1, 1);
        let take = |last| Box::pin(turns.take(source(last)));
        let first = take(1).now_or_never();
        let (mut left, mut next) = (take(1), take(2));
        assert!((&mut left).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        drop(left);
        drop(first);
        let second = (&mut next).now_or_never();
        assert!(second.is_some());
        // A turn that was granted and not taken is given back as well.
        let mut granted = take(3);
        assert!((&mut granted).now_or_never().is_none());
        drop(second);
        drop(granted);
        assert!(take(1).now_or_never().is_some());
        assert!(turns.state.lock().sources.is_empty());
    }

    #[test]
    fn a_crowd_that_leaves_the_line_holds_up_nobody() {
        let turns = Turns::new(1, 1);
        let take = |last| Box::pin(turns.take(source(last)));
        let held = take(1).now_or_never();
        let mut crowd: Vec<_> = (0..200_000).map(|_| take(1)).collect();
        assert!(crowd.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let stays = crowd.split_off(199_999);
        drop(crowd);
        assert_eq!(turns.counts(), (1, 1), "whoever has left waits no more");
        drop(held);
        assert!(stays.into_iter().all(|waiting| waiting.now_or_never().is_some()));
        assert!(take(2).now_or_never().is_some());
        assert!(turns.state.lock().sources.is_empty() && turns.state.lock().line.is_empty());
    }
}
