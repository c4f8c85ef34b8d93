//! A model of one thread, with a clock of its own.

use super::*;

const LONG: Duration = Duration::from_millis(1);
const SHORT: Duration = Duration::from_micros(60);
/// A record is produced, acked and fetched.
const TURNS_OF_PAIR: usize = 3;
const PERIOD: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Client {
    source: usize,
    source_level: Arc<Level>,
    level: Level,
    turn: Duration,
    is_in_crowd: bool,
}

impl Waits for Client {
    type Source = usize;

    fn source(&self) -> usize {
        self.source
    }

    fn source_level(&self) -> &Level {
        &self.source_level
    }

    fn level(&self) -> &Level {
        &self.level
    }

    fn is_in_crowd(&self) -> bool {
        self.is_in_crowd
    }
}

/// Invariants: each of `busy` is in line.
struct Model {
    now: Duration,
    line: Line<Client>,
    source_levels: Vec<Arc<Level>>,
    /// Time that each source had.
    had: Vec<Duration>,
}

impl Model {
    fn new(sources: usize) -> Self {
        Self {
            now: Duration::ZERO,
            line: Line::default(),
            source_levels: (0..sources).map(|_| Arc::default()).collect(),
            had: vec![Duration::ZERO; sources],
        }
    }

    fn client(&self, source: usize, turn: Duration, connections: usize) -> Arc<Client> {
        let source_level = Arc::clone(&self.source_levels[source]);
        let level = source_level.part(connections);
        Arc::new(Client { source, source_level, level, turn, is_in_crowd: false })
    }

    fn crowd(&self, source: usize) -> Arc<Client> {
        let source_level = Arc::clone(&self.source_levels[source]);
        Arc::new(Client { source, source_level, level: Level::default(), turn: SHORT, is_in_crowd: true })
    }

    fn join(&mut self, who: &Arc<Client>) {
        self.line.join(self.now, Arc::clone(who));
    }

    fn busy(&mut self, source: usize, turn: Duration, connections: usize) {
        for count in 1..=connections {
            let who = self.client(source, turn, count);
            self.join(&who);
        }
    }

    /// The next client has its turn; `asks_on` decides whether and how it asks again.
    fn turn(&mut self, asks_on: impl FnOnce(&mut Self, Arc<Client>)) {
        let who = self.line.next(self.now).expect("somebody is busy");
        self.now += who.turn;
        self.had[who.source] += who.turn;
        who.source_level.add(self.now, who.turn);
        who.level.add(self.now, who.turn);
        asks_on(self, who);
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.turn(|model, who| model.join(&who));
        }
    }

    /// The longest that one of these pairs takes.
    fn slowest_pair(&mut self, who: &Arc<Client>, pairs: u32) -> Duration {
        let began = self.now;
        let pair = |number| {
            let due = began + PERIOD * number;
            self.run(due.saturating_sub(self.now));
            for _ in 0..TURNS_OF_PAIR {
                self.join(who);
                let mut had_turn = false;
                while !had_turn {
                    self.turn(|model, next| {
                        had_turn = Arc::ptr_eq(&next, who);
                        if !had_turn {
                            model.join(&next);
                        }
                    });
                }
            }
            self.now.abs_diff(due)
        };
        (1..=pairs).map(pair).max().expect("some")
    }
}

#[test]
fn a_light_source_waits_for_few_turns_of_500_heavy_ones() {
    let mut model = Model::new(501);
    (1..=500).for_each(|source| model.busy(source, LONG, 1));
    // Each is known by its first turns.
    model.run(Duration::from_secs(2));
    let light = model.client(0, SHORT, 1);
    let slowest = model.slowest_pair(&light, 500);
    assert!(slowest < Duration::from_millis(10), "{slowest:?}");
}

#[test]
fn light_connection_waits_for_few_turns_of_400_heavy_ones() {
    let mut model = Model::new(1);
    model.busy(0, LONG, 400);
    model.run(Duration::from_secs(2));
    let light = model.client(0, SHORT, 401);
    let slowest = model.slowest_pair(&light, 500);
    assert!(slowest < Duration::from_millis(10), "{slowest:?}");
}

#[test]
fn a_source_that_comes_with_new_connections_comes_no_earlier() {
    let mut model = Model::new(2);
    model.busy(1, LONG, 1);
    model.busy(0, LONG, 8);
    for _ in 0..2000 {
        model.turn(|model, who| {
            // Each turn of this source is a new connection's.
            let next = if who.source == 0 { model.client(0, LONG, 8) } else { who };
            model.join(&next);
        });
    }
    let (renewed, kept) = (model.had[0], model.had[1]);
    assert!(renewed.abs_diff(kept) < kept / 10, "{renewed:?} and {kept:?}");
    // Nor do they come before one of its own that was there and asks for little.
    let light = model.client(0, SHORT, usize::MAX);
    for _ in 0..50 {
        light.level.add(model.now, SHORT);
        model.line.join(model.now, model.client(0, LONG, 8));
    }
    model.join(&light);
    let before = (0..1000).find(|_| {
        let mut is_light = false;
        model.turn(|_, who| is_light = Arc::ptr_eq(&who, &light));
        is_light
    });
    assert!(before.is_some_and(|before| before <= 8), "{before:?}");
}

#[test]
fn source_with_many_connections_gets_no_more_than_with_one() {
    let mut model = Model::new(2);
    model.busy(0, LONG, 1);
    model.busy(1, LONG, 400);
    model.run(Duration::from_secs(2));
    let [one, many] = [model.had[0], model.had[1]];
    assert!(one.abs_diff(many) < many / 10, "{one:?} and {many:?}");
}

#[test]
fn heavy_source_is_not_starved_by_many_light_ones() {
    let mut model = Model::new(1001);
    model.busy(0, LONG, 4);
    model.run(Duration::from_secs(10));
    (1..=1000).for_each(|source| model.busy(source, SHORT, 1));
    let all_once = SHORT * 1000 + LONG * 4;
    for time in 0..100 {
        let before = model.had[0];
        model.run(all_once * u32::try_from(TURNS_OF_OLDEST).expect("small"));
        assert!(model.had[0] > before, "in the time {time}");
    }
}

#[test]
fn woken_crowd_comes_after_requests_and_before_long_turns() {
    let mut model = Model::new(503);
    let long = model.client(502, LONG, 1);
    for _ in 0..50 {
        long.source_level.add(model.now, LONG);
        long.level.add(model.now, LONG);
    }
    model.join(&long);
    let crowd: Vec<_> = (0..501).map(|source| model.crowd(source)).collect();
    let asks = [0, 501].map(|source| model.client(source, SHORT, 1));
    for who in crowd.iter().chain(&asks) {
        model.join(who);
    }
    let order: Vec<_> = std::iter::from_fn(|| model.line.next(model.now)).collect();
    assert_eq!(order.len(), 504);
    let place =
        |who: &Arc<Client>| order.iter().position(|one| Arc::ptr_eq(one, who)).expect("it has its turn");
    assert!(asks.iter().all(|who| place(who) < 2), "{:?}", asks.each_ref().map(place));
    // But for the turn that goes to the client that came first.
    assert_eq!(place(&long), 3);
}

#[test]
fn those_that_are_alike_come_one_after_the_other() {
    let mut model = Model::new(3);
    (0..3).for_each(|source| model.busy(source, SHORT, 1));
    let order: Vec<_> = (0..3).map(|_| model.line.next(model.now).expect("it waits").source).collect();
    assert_eq!(order, [0, 1, 2]);
    assert!(model.line.next(model.now).is_none());
}
