use std::future::pending;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use super::*;

/// The work of a connection in one turn of these tests.
const WORK: Duration = Duration::from_micros(500);

fn source(last: u8) -> Source {
    Source::of(IpAddr::from([192, 0, 2, last]))
}

/// A server with one thread, in which these sources have had much time.
fn busy(sources: &[u8]) -> (Arc<Turns>, Vec<Arc<Share>>) {
    let turns = Turns::new(1);
    let shares: Vec<_> = sources.iter().map(|&last| turns.share(source(last))).collect();
    for share in &shares {
        share.level.add(turns.now(), Duration::from_secs(4));
    }
    (turns, shares)
}

fn in_turns<F: Future>(turns: &Arc<Turns>, last: u8, work: F) -> InTurns<F> {
    InTurns::new(turns, source(last), work)
}

fn work() {
    let until = Instant::now() + WORK;
    while Instant::now() < until {}
}

/// Has a connection that has always more to do work until the test is over; it counts its turns.
fn always_busy(turns: &Arc<Turns>, last: u8, count: &Arc<AtomicUsize>, is_over: &Arc<AtomicBool>) {
    let (count, is_over) = (Arc::clone(count), Arc::clone(is_over));
    drop(tokio::spawn(in_turns(turns, last, async move {
        while !is_over.load(Ordering::SeqCst) {
            work();
            count.fetch_add(1, Ordering::SeqCst);
            yield_now().await;
        }
    })));
}

#[tokio::test]
async fn a_source_with_many_connections_gets_no_more_than_another() {
    let turns = Turns::new(1);
    let (many, one, is_over) = (Arc::default(), Arc::default(), Arc::default());
    for _ in 0..100 {
        always_busy(&turns, 1, &many, &is_over);
    }
    always_busy(&turns, 2, &one, &is_over);
    while many.load(Ordering::SeqCst) < 1500 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(turns.waiting() >= 90);
    is_over.store(true, Ordering::SeqCst);
    let one = one.load(Ordering::SeqCst);
    // Up to a time that counts as little, a connection that has just had its turn asks for the next one when another has been
    // given.
    assert!(one >= 400, "{one} turns");
    assert_eq!(turns.busiest(), Some(source(1)));
}

#[tokio::test]
async fn light_source_waits_for_a_few_turns_of_others_only() {
    let (turns, _shares) = busy(&[1]);
    let (busy, is_over) = (Arc::default(), Arc::default());
    for _ in 0..100 {
        always_busy(&turns, 1, &busy, &is_over);
    }
    let (asked, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (ask, answer) = (Arc::clone(&asked), Arc::clone(&answered));
    drop(tokio::spawn(in_turns(&turns, 2, async move {
        loop {
            ask.notified().await;
            answer.notify_one();
        }
    })));
    let mut most = 0;
    for _ in 0..20 {
        // Others have their time meanwhile, as between two requests.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let before = busy.load(Ordering::SeqCst);
        asked.notify_one();
        answered.notified().await;
        most = most.max(busy.load(Ordering::SeqCst) - before);
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(most <= 10, "{most} turns of others came before");
}

#[test]
fn turn_is_passed_on_by_a_connection_that_leaves_or_panics() {
    let turns = Turns::new(1);
    let has_run = AtomicUsize::new(0);
    let run = || async {
        has_run.fetch_add(1, Ordering::SeqCst);
        pending::<()>().await;
    };
    // Connections that work have all of the turns.
    let given = &turns.given;
    assert!(given.try_take() && given.try_take() && !given.try_take());
    (0..FREE_PER_THREAD).for_each(|_| assert!(turns.free.try_take()));
    let mut panics = Box::pin(in_turns(&turns, 1, async { panic!("planted") }));
    let (mut gone, mut last) = (Box::pin(in_turns(&turns, 1, run())), Box::pin(in_turns(&turns, 1, run())));
    let mut given = Box::pin(in_turns(&turns, 1, run()));
    assert!((&mut panics).now_or_never().is_none() && (&mut gone).now_or_never().is_none());
    assert!((&mut given).now_or_never().is_none() && (&mut last).now_or_never().is_none());
    assert_eq!((turns.waiting(), has_run.load(Ordering::SeqCst)), (4, 0));
    drop(gone);
    turns.give_back();
    turns.give_back();
    assert_eq!(turns.waiting(), 1, "none is given to the one that is gone");
    assert!(catch_unwind(AssertUnwindSafe(|| (&mut panics).now_or_never())).is_err());
    assert_eq!((turns.waiting(), turns.given.taken.load(Ordering::SeqCst)), (0, 2));
    drop((panics, last, given));
    assert_eq!((turns.waiting(), turns.given.taken.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn yielding_connection_may_find_a_turn_for_a_waiting_one() {
    let (turns, _shares) = busy(&[1]);
    let yields = tokio::spawn(in_turns(&turns, 1, yield_now()));
    let mut waits = Box::pin(in_turns(&turns, 1, async {}));
    // Once that has yielded, and before it is woken: a turn has come free, and nobody has looked yet.
    let free = Arc::clone(&turns);
    let waits = tokio::spawn(async move {
        assert!(free.given.try_take() && free.given.try_take());
        assert!((&mut waits).now_or_never().is_none());
        free.given.taken.fetch_sub(2, Ordering::SeqCst);
        waits.await;
    });
    for task in [yields, waits] {
        let ended = tokio::time::timeout(Duration::from_secs(20), task).await;
        ended.expect("it has its turn").expect("it does not panic");
    }
}

#[test]
fn connection_woken_while_it_works_works_again() {
    for is_busy in [false, true] {
        let (turns, _shares) = busy(if is_busy { &[1] } else { &[] });
        let rounds = AtomicUsize::new(0);
        let work = poll_fn(|context| {
            if rounds.fetch_add(1, Ordering::SeqCst) < 2 {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        let mut working = Box::pin(in_turns(&turns, 1, work));
        for polls in 1..6 {
            assert!((&mut working).now_or_never().is_none());
            assert_eq!(rounds.load(Ordering::SeqCst), polls.min(3), "no more than it was woken");
        }
        assert_eq!(turns.given.taken.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn work_gives_way_once_its_turn_is_over_and_not_before() {
    let turns = Turns::new(1);
    let rounds = AtomicUsize::new(0);
    give_way().await;
    let mut working = Box::pin(in_turns(&turns, 1, async {
        loop {
            rounds.fetch_add(1, Ordering::SeqCst);
            if rounds.load(Ordering::SeqCst) == 2 {
                std::thread::sleep(TURN_TIME_MAX);
            }
            give_way().await;
            if rounds.load(Ordering::SeqCst) == 3 {
                return;
            }
        }
    }));
    assert_eq!((&mut working).now_or_never(), None);
    assert_eq!(rounds.load(Ordering::SeqCst), 2);
    working.await;
}

#[test]
fn light_connections_have_turns_at_once_while_places_last() {
    let turns = Turns::new(1);
    let has_run = AtomicUsize::new(0);
    let has_run = &has_run;
    let mut all: Vec<_> = (0..50)
        .map(|last| {
            let run = async move {
                has_run.fetch_add(1, Ordering::SeqCst);
                pending::<()>().await;
            };
            Box::pin(in_turns(&turns, last, run))
        })
        .collect();
    for one in &mut all {
        one.has_begun = true;
        one.waker.wake_by_ref();
    }
    assert_eq!(turns.waiting(), 50 - FREE_PER_THREAD - GIVEN_PER_THREAD);
    for _ in 0..50 {
        assert!(all.iter_mut().all(|one| one.now_or_never().is_none()));
    }
    assert_eq!((has_run.load(Ordering::SeqCst), turns.waiting()), (50, 0), "each once");
    let taken = [&turns.given, &turns.free].map(|places| places.taken.load(Ordering::SeqCst));
    assert_eq!(taken, [0, 0]);
    all[0].waker.wake_by_ref();
    assert_eq!(turns.free.taken.load(Ordering::SeqCst), 1);
    drop(all);
    assert_eq!(turns.free.taken.load(Ordering::SeqCst), 0, "whoever goes gives it back");
}

#[test]
fn sources_that_have_gone_are_forgotten() {
    let turns = Turns::new(1);
    let kept = turns.share(source(0));
    for index in 0..10 * SOURCES_KEPT {
        let ip = IpAddr::from(u32::try_from(index).expect("small").to_be_bytes());
        drop(turns.share(Source::of(ip)));
    }
    assert!(turns.sources.lock().shares.len() <= SOURCES_KEPT + 1);
    assert!(Arc::ptr_eq(&kept, &turns.share(source(0))));
}

#[test]
fn a_turn_after_a_turn_comes_after_a_look_at_the_sockets() {
    const TURNS: usize = 20;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let seen_at = runtime.block_on(async {
        let (mut sends, receives) = tokio::net::UnixStream::pair().expect("sockets");
        let (taken, seen_at) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, seen) = (Arc::clone(&taken), Arc::clone(&seen_at));
        let turns = Turns::new(1);
        let other = tokio::spawn(in_turns(&turns, 2, async move {
            receives.readable().await.expect("a socket");
            seen.store(counted.load(Ordering::SeqCst), Ordering::SeqCst);
        }));
        yield_now().await;
        let working = tokio::spawn(in_turns(&turns, 1, async move {
            sends.write_all(b"!").await.expect("a socket");
            while taken.fetch_add(1, Ordering::SeqCst) < TURNS {
                work();
                std::thread::sleep(TURN_TIME_MAX);
                give_way().await;
            }
        }));
        working.await.expect("it ends");
        other.await.expect("it ends");
        seen_at.load(Ordering::SeqCst)
    });
    assert!(seen_at <= 2, "seen in turn {seen_at}");
}

#[test]
fn connection_woken_alone_passes_a_crowd_woken_first() {
    let turns = Turns::new(1);
    (0..GIVEN_PER_THREAD).for_each(|_| assert!(turns.given.try_take()));
    (0..FREE_PER_THREAD).for_each(|_| assert!(turns.free.try_take()));
    let mut all: Vec<_> = (0..3).map(|last| in_turns(&turns, last, pending::<()>())).collect();
    for one in &mut all {
        one.has_begun = true;
    }
    wake_crowd(|| all[..2].iter().for_each(|one| one.waker.wake_by_ref()));
    all[2].waker.wake_by_ref();
    let order: Vec<_> = std::iter::from_fn(|| turns.next()).map(|seat| seat.source).collect();
    assert_eq!(order, [2, 0, 1].map(source));
}
