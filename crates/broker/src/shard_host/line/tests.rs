use std::pin::Pin;

use futures_util::FutureExt as _;

use super::*;

fn asker(source: u8, connection: u64) -> Asker {
    Asker { source: Some(Source::of([192, 0, 2, source].into())), connection }
}

type Waiting<'l> = Pin<Box<dyn Future<Output = Result<Pass, Full>> + 'l>>;

/// Asks for the group, and waits.
fn ask(lines: &Lines, asker: Asker) -> Waiting<'_> {
    let mut waiting: Waiting<'_> = Box::pin(lines.pass("g", asker));
    assert!((&mut waiting).now_or_never().is_none(), "somebody is at it");
    waiting
}

/// The order in which those who wait come to their turn, each of which ends it at once.
fn order(lines: &Lines, askers: &[Asker]) -> Vec<Asker> {
    let mut at_it = lines.pass("g", asker(0, 0)).now_or_never();
    let mut waiting: Vec<_> = askers.iter().map(|&asker| (asker, ask(lines, asker))).collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(at_it.take());
        let mut ready = waiting.iter_mut().enumerate();
        let found = ready.find_map(|(place, (_, turn))| Some((place, turn.now_or_never()?)));
        let (place, turn) = found.expect("somebody's turn");
        at_it = Some(turn);
        order.push(waiting.remove(place).0);
    }
    drop(at_it);
    assert!(lines.lines.lock().is_empty());
    order
}

#[test]
fn whoever_asks_for_a_group_that_is_free_waits_for_nobody() {
    let lines = Lines::default();
    let _first = lines.pass("g", asker(1, 1)).now_or_never().expect("free");
    assert!(lines.pass("h", asker(1, 1)).now_or_never().is_some(), "another group");
}

#[test]
fn a_source_that_asks_often_holds_up_another_for_one_step() {
    let [often, other] = [asker(1, 1), asker(2, 2)];
    let order = order(&Lines::default(), &[often, often, often, often, other, Asker::SERVER]);
    assert_eq!(order, [often, other, Asker::SERVER, often, often, often]);
}

#[test]
fn connections_of_one_source_take_turns() {
    let [often, other] = [asker(1, 1), asker(1, 2)];
    assert_eq!(order(&Lines::default(), &[often, often, often, other]), [often, other, often, often]);
}

#[test]
fn requests_of_one_connection_come_in_their_order() {
    let lines = Lines::default();
    let first = lines.pass("g", asker(1, 1)).now_or_never().expect("free");
    let (mut second, mut third) = (ask(&lines, asker(1, 1)), ask(&lines, asker(1, 1)));
    drop(first);
    assert!((&mut third).now_or_never().is_none(), "it came later");
    let second = (&mut second).now_or_never().expect("its turn");
    drop(second);
    assert!((&mut third).now_or_never().is_some());
}

#[test]
fn whoever_leaves_lets_the_next_one_on_and_no_line_is_left() {
    let lines = Lines::default();
    let first = lines.pass("g", asker(1, 1)).now_or_never().expect("free");
    let mut waiting: Vec<_> = (1..6).map(|connection| ask(&lines, asker(1, connection))).collect();
    // One that waits, and one whose turn it is and that does not know yet.
    drop(waiting.remove(2));
    drop(first);
    drop(waiting.remove(0));
    while let Some(mut next) = (!waiting.is_empty()).then(|| waiting.remove(0)) {
        assert!((&mut next).now_or_never().is_some_and(|turn| turn.is_ok()));
    }
    assert!(lines.lines.lock().is_empty());
}

#[test]
fn a_source_has_a_share_of_a_line_and_others_keep_theirs() {
    let lines = Lines::default();
    let _at_it = lines.pass("g", asker(0, 0)).now_or_never();
    let mut waiting = Vec::new();
    let mut fill = |source: u8| {
        let before = waiting.len();
        loop {
            let mut next: Waiting<'_> = Box::pin(lines.pass("g", asker(source, waiting.len() as u64)));
            match (&mut next).now_or_never() {
                Some(refused) => break assert_eq!(refused.err(), Some(Full)),
                None => waiting.push(next),
            }
        }
        waiting.len() - before
    };
    assert_eq!(fill(1), LINE_MAX / 2);
    assert_eq!(fill(2), LINE_MAX / 4);
    assert_eq!(fill(1), 0);
    (3..20).for_each(|source| assert!(fill(source) >= FEW, "a few in any case"));
    assert!(lines.pass("g", Asker::SERVER).now_or_never().is_none(), "the server waits in any case");
    // A waiter that has left makes room.
    waiting.truncate(LINE_MAX / 4);
    let line = |what: fn(&Line) -> usize| what(&lines.lines.lock()["g"]);
    assert_eq!(line(|line| line.waiting), LINE_MAX / 4);
    assert_eq!(line(|line| line.sources.order.len()), 1);
    drop(waiting);
    assert_eq!(line(|line| line.waiting + line.sources.order.len() + line.sources.queues.len()), 0);
}
