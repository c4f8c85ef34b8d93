use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::*;
use crate::{Clock as _, FileSystem as _, LinkReceiver, NodeEnv, OpenMode};

const SECOND: Duration = Duration::from_secs(1);

/// Numbers that parts of a world leave.
type Seen = Arc<Mutex<Vec<u64>>>;

fn spawn(env: &NodeEnv, task: impl Future<Output = ()> + Send + 'static) {
    env.tasks.spawn("test", Box::pin(task));
}

/// A worker that is done after a number of steps, and records each.
struct Counts {
    left: u64,
    step: Step,
    seen: Seen,
}

impl Work for Counts {
    fn step(&mut self) -> Step {
        self.seen.lock().push(self.left);
        self.left -= 1;
        if self.left == 0 { Step::Done } else { self.step }
    }
}

/// Sends numbers from 0 on to a node, over a new link whenever one is lost.
async fn send_numbers(env: NodeEnv, to: &'static str) {
    let mut number = 0_u64;
    loop {
        let Ok(mut link) = env.network.connect(to).await else {
            env.tasks.sleep(Duration::from_millis(10)).await;
            continue;
        };
        while link.sender.send(Bytes::copy_from_slice(&number.to_be_bytes())).await.is_ok() {
            number += 1;
            env.tasks.sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn receive_all(mut receiver: Box<dyn LinkReceiver>, seen: Seen) {
    while let Ok(Some(message)) = receiver.receive().await {
        seen.lock().push(u64::from_be_bytes(*message.first_chunk().expect("eight bytes")));
    }
}

fn receive_numbers(env: &NodeEnv, seen: &Seen) {
    let (here, seen) = (env.clone(), Arc::clone(seen));
    let mut listener = env.network.listen("b").expect("the address is free");
    spawn(env, async move {
        while let Ok(link) = listener.accept().await {
            spawn(&here, receive_all(link.receiver, Arc::clone(&seen)));
        }
    });
}

/// Two nodes, the first of which sends numbers to the second, and the numbers that have arrived.
fn numbers(world: &World) -> (SimNode, SimNode, Seen) {
    let (a, b, seen) = (world.node("a"), world.node("b"), Seen::default());
    receive_numbers(&b.env(), &seen);
    spawn(&a.env(), send_numbers(a.env(), "b"));
    (a, b, seen)
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let run = |seed| {
        let world = World::new(seed);
        let (_, b, seen) = numbers(&world);
        world.run_for(SECOND);
        world.cut("a", "b", true);
        world.run_for(SECOND);
        world.cut("a", "b", false);
        b.kill();
        receive_numbers(&b.env(), &seen);
        world.run_for(SECOND);
        let seen = seen.lock().clone();
        (world.trace(), world.steps(), seen)
    };
    let (first, second) = (run(1), run(1));
    assert_eq!(first, second);
    assert_ne!(first.0, run(2).0);
    assert!(first.2.len() > 500, "{}", first.2.len());
}

#[test]
fn nothing_takes_time_but_sleep_and_messages() {
    let world = World::new(1);
    let node = world.node("a");
    let seen = Seen::default();
    let (env, told) = (node.env(), Arc::clone(&seen));
    spawn(&node.env(), async move {
        for hours in 0..1000 {
            env.tasks.sleep(Duration::from_hours(1)).await;
            assert_eq!(env.env.clock.monotonic(), Duration::from_hours(hours + 1));
        }
        told.lock().push(1);
    });
    world.run_for(Duration::from_hours(999));
    assert!(seen.lock().is_empty());
    world.run_for(Duration::from_hours(1));
    assert_eq!((seen.lock().len(), world.now()), (1, Duration::from_hours(1000)));
}

#[test]
fn a_clock_that_drifts_wakes_its_own_node_by_its_own_time() {
    for ppm in [-200_000, -7, 0, 3, 200_000] {
        let world = World::new(1);
        let node = world.node("a");
        node.set_drift(ppm);
        let woken = Arc::new(AtomicUsize::new(0));
        let (env, count) = (node.env(), Arc::clone(&woken));
        spawn(&node.env(), async move {
            loop {
                let before = env.env.clock.monotonic();
                env.tasks.sleep(Duration::from_nanos(1_000_003)).await;
                let slept = env.env.clock.monotonic().saturating_sub(before);
                assert!((1_000_003..=1_000_005).contains(&slept.as_nanos()), "{slept:?} at {ppm}");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        world.run_for(SECOND);
        let expected = usize::try_from((1_000_000 + i64::from(ppm)) / 1_000).expect("positive");
        assert!(woken.load(Ordering::Relaxed).abs_diff(expected) <= 2, "{woken:?} at {ppm}");
        let shown = node.sim().clock.monotonic().as_nanos();
        assert!(
            shown.abs_diff(1_000_000_000 + u128::from(ppm.unsigned_abs()) * 1000 * u128::from(ppm > 0))
                <= 200_000_000
        );
    }
}

#[test]
fn a_worker_is_stepped_and_woken_as_a_thread_is() {
    let world = World::new(1);
    let node = world.node("a");
    let seen = Seen::default();
    let work = Counts { left: 4, step: Step::Sleep(None), seen: Arc::clone(&seen) };
    let worker = node.env().env.workers.start("counts", Box::new(work)).expect("started");
    world.run_for(SECOND);
    assert_eq!(*seen.lock(), [4], "it sleeps");
    worker.wake().wake();
    worker.wake().wake();
    world.run_for(SECOND);
    assert_eq!(*seen.lock(), [4, 3], "two wake-ups of one that sleeps are one");
    let work = Counts { left: 3, step: Step::Sleep(Some(SECOND)), seen: Arc::clone(&seen) };
    let worker = node.env().env.workers.start("counts", Box::new(work)).expect("started");
    seen.lock().clear();
    let before = world.now();
    assert!(worker.join());
    assert_eq!((seen.lock().clone(), world.now().saturating_sub(before)), (vec![3, 2, 1], 2 * SECOND));
}

#[test]
#[should_panic(expected = "no part wakes")]
fn waiting_for_a_worker_without_wake_up_panics() {
    let world = World::new(1);
    let work = Counts { left: 2, step: Step::Sleep(None), seen: Seen::default() };
    let worker = world.node("a").env().env.workers.start("counts", Box::new(work)).expect("started");
    worker.join();
}

#[test]
fn messages_of_a_link_arrive_in_order_whatever_is_cut_meanwhile() {
    for seed in 0..50 {
        let world = World::new(seed);
        world.set_delay(Duration::ZERO..=Duration::from_millis(20));
        let (_a, _b, seen) = numbers(&world);
        world.run_for(Duration::from_millis(100));
        for round in 0..40 {
            world.run_for(Duration::from_millis(7 + round % 5));
            world.cut("a", "b", round % 2 == 0);
            world.cut("b", "a", round % 3 == 0);
        }
        world.cut("b", "a", false);
        world.run_for(SECOND);
        let seen = seen.lock();
        assert!(seen.len() > 300, "seed {seed}: {}", seen.len());
        assert!(seen.iter().copied().eq(0..seen.len() as u64), "seed {seed}: one link, and nothing lost");
    }
}

#[test]
fn a_way_that_is_cut_holds_up_its_sender_and_not_the_other_way() {
    let world = World::new(1);
    let (_a, _b, seen) = numbers(&world);
    world.run_for(SECOND);
    let before = seen.lock().len();
    world.cut("a", "b", true);
    world.run_for(SECOND);
    let held_up = seen.lock().len();
    assert!(held_up - before <= 1, "messages on their way wait");
    world.cut("a", "b", false);
    world.run_for(SECOND / 100);
    assert!((50..=80).contains(&(seen.lock().len() - held_up)), "as much as a link holds");
    world.cut("b", "a", true);
    let before = seen.lock().len();
    world.run_for(SECOND);
    assert!(seen.lock().len() - before > 900, "no answer is needed");
}

#[test]
fn killed_node_closes_its_links_and_unpowered_one_does_not() {
    for has_power in [true, false] {
        let world = World::new(3);
        let (a, b) = (world.node("a"), world.node("b"));
        let ended = Arc::new(Mutex::new(None::<io::Result<Option<Bytes>>>));
        let told = Arc::clone(&ended);
        let mut listener = b.env().network.listen("b").expect("free");
        spawn(&b.env(), async move {
            let _link = listener.accept().await.expect("a link");
            std::future::pending::<()>().await;
        });
        let env = a.env();
        spawn(&a.env(), async move {
            let mut link = env.network.connect("b").await.expect("it listens");
            let received = link.receiver.receive().await;
            *told.lock() = Some(received);
        });
        let file = b.sim().fs.open(Path::new("/file"), OpenMode::CreateNew).expect("made");
        file.write_all_at(b"not synced", 0).expect("written");
        world.run_for(SECOND);
        if has_power {
            b.kill();
        } else {
            b.cut_power();
        }
        world.run_for(SECOND);
        assert_eq!(matches!(*ended.lock(), Some(Ok(None))), has_power);
        assert_eq!(ended.lock().is_some(), has_power);
        assert_eq!(b.sim().fs.exists(Path::new("/file")).expect("readable"), has_power);
        assert!(b.env().network.listen("b").is_ok(), "the address is free");
    }
}

#[test]
fn broken_links_fail_on_both_sides_and_paused_node_idles() {
    let world = World::new(1);
    let (a, _b, seen) = numbers(&world);
    world.run_for(SECOND);
    world.break_links("b", "a");
    let before = seen.lock().len() as u64;
    world.run_for(SECOND);
    let all = seen.lock().clone();
    let missing = (0..*all.last().expect("some")).filter(|number| !all.contains(number)).count();
    assert!(all.len() as u64 > before + 800, "another link is made");
    assert!((0..=2).contains(&missing), "{missing} were on their way");
    a.pause(true);
    world.run_for(Duration::from_millis(1));
    let before = seen.lock().len();
    world.run_for(SECOND);
    assert_eq!(seen.lock().len(), before);
    a.pause(false);
    world.run_for(SECOND);
    assert!(seen.lock().len() > before + 900);
}

#[test]
fn partitioned_node_gets_no_link_and_closed_port_refuses() {
    let world = World::new(1);
    let (a, b) = (world.node("a"), world.node("b"));
    let _listener = b.env().network.listen("b").expect("free");
    assert_eq!(b.env().network.listen("b").err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    let results = Arc::new(Mutex::new(Vec::new()));
    for (to, is_cut) in [("b", true), ("nowhere", false), ("b", false)] {
        world.cut("b", "a", is_cut);
        let (env, results) = (a.env(), Arc::clone(&results));
        spawn(&a.env(), async move {
            let made = env.network.connect(to).await;
            results.lock().push((to, made.err().map(|error| error.kind())));
        });
        world.run_for(SECOND);
    }
    assert_eq!(*results.lock(), [("nowhere", Some(io::ErrorKind::ConnectionRefused)), ("b", None)]);
}

#[test]
fn a_worker_that_sleeps_by_the_clock_lets_the_others_go_on() {
    struct Sleeps(NodeEnv, Seen);

    impl Work for Sleeps {
        fn step(&mut self) -> Step {
            let before = self.1.lock().len();
            self.0.env.clock.sleep(SECOND);
            assert!(self.1.lock().len() > before + 900);
            Step::Done
        }
    }

    let world = World::new(1);
    let (a, _b, seen) = numbers(&world);
    let worker = a.env().env.workers.start("sleeps", Box::new(Sleeps(a.env(), seen))).expect("started");
    assert!(worker.join());
    assert!((SECOND..2 * SECOND).contains(&world.now()));
}
