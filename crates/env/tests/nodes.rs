//! The services of both halves to the nodes of a cluster: workers, tasks, time and links.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_env::sim::World;
use riverrun_env::{Env, Link, NodeEnv, RealNetwork, RealTasks, Step, Work};

const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a behaviour on both halves; it is done once it has set its flag.
fn on_both(address: &str, behaviour: impl Fn(NodeEnv, String, Arc<AtomicBool>)) {
    let done = Arc::new(AtomicBool::new(false));
    let world = World::new(7);
    behaviour(world.node("a").env(), "a:1".to_owned(), Arc::clone(&done));
    assert!(world.run_until(PATIENCE, || done.load(Ordering::SeqCst)), "the simulated half does not get on");

    let done = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let _inside = runtime.enter();
    let tasks = Arc::new(RealTasks(runtime.handle().clone()));
    let network = Arc::new(RealNetwork { message_bytes_max: MESSAGE_BYTES_MAX });
    let env = NodeEnv { env: Env::real(), tasks, network };
    let until = env.env.clock.monotonic() + PATIENCE;
    let clock = Arc::clone(&env.env.clock);
    behaviour(env, address.to_owned(), Arc::clone(&done));
    while !done.load(Ordering::SeqCst) {
        assert!(clock.monotonic() < until, "the real half does not get on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A link from this node to itself, and its other end.
async fn link(env: &NodeEnv, address: &str) -> (Link, Link) {
    let mut listener = env.network.listen(address).expect("the address is free");
    let (address, network) = (listener.address(), Arc::clone(&env.network));
    let made = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&made);
    env.tasks.spawn(
        "connect",
        Box::pin(async move {
            let link = network.connect(&address).await.expect("it listens");
            *slot.lock() = Some(link);
        }),
    );
    let accepted = listener.accept().await.expect("a link");
    loop {
        if let Some(link) = made.lock().take() {
            return (link, accepted);
        }
        env.tasks.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn messages_arrive_whole_and_in_order_and_then_the_end() {
    on_both("127.0.0.1:0", |env, address, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            let (mut one, mut other) = link(&env, &address).await;
            let sizes = [0, 1, 100, MESSAGE_BYTES_MAX, 65_536, 0];
            env.tasks.spawn(
                "send",
                Box::pin(async move {
                    for size in sizes {
                        one.sender.send(Bytes::from(vec![7; size])).await.expect("the link holds");
                    }
                    drop(one);
                }),
            );
            for size in sizes {
                assert_eq!(
                    other.receiver.receive().await.expect("the link holds").expect("a message"),
                    vec![7; size]
                );
            }
            assert_eq!(other.receiver.receive().await.expect("the link holds"), None);
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}

#[test]
fn message_beyond_its_bound_is_refused_and_others_arrive() {
    on_both("127.0.0.1:0", |env, address, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            let (mut one, mut other) = link(&env, &address).await;
            for size in [0, 10, 11] {
                one.sender.send(Bytes::from(vec![7; size])).await.expect("the link holds");
            }
            for size in [0, 10] {
                let received = other.receiver.receive_at_most(10).await.expect("it is short enough");
                assert_eq!(received.expect("a message"), vec![7; size]);
            }
            assert!(other.receiver.receive_at_most(10).await.is_err());
            assert!(!one.source.is_empty());
            assert_eq!(one.source, other.source, "both ends are on one machine");
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}

#[test]
fn slow_reader_holds_up_its_sender_in_one_direction() {
    on_both("127.0.0.1:0", |env, address, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            let (mut one, mut other) = link(&env, &address).await;
            let sent = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&sent);
            let sending = env.tasks.spawn(
                "send",
                Box::pin(async move {
                    while one.sender.send(Bytes::from(vec![1; 500_000])).await.is_ok() {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }),
            );
            other.sender.send(Bytes::from_static(b"ping")).await.expect("the link holds");
            assert_eq!(
                one.receiver.receive().await.expect("the link holds").expect("a message"),
                &b"ping"[..]
            );
            env.tasks.sleep(Duration::from_millis(300)).await;
            let before = sent.load(Ordering::SeqCst);
            assert!((1..=200).contains(&before), "{before} messages of half a megabyte are unread");
            for _ in 0..300 {
                assert_eq!(
                    other.receiver.receive().await.expect("the link holds").expect("a message").len(),
                    500_000
                );
            }
            assert!(sent.load(Ordering::SeqCst) >= 299);
            sending.abort();
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}

#[test]
fn sending_to_a_closed_side_fails_sooner_or_later() {
    on_both("127.0.0.1:0", |env, address, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            let (mut one, other) = link(&env, &address).await;
            drop(other);
            while one.sender.send(Bytes::from_static(b"hello")).await.is_ok() {
                env.tasks.sleep(Duration::from_millis(1)).await;
            }
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}

#[test]
fn a_task_that_is_aborted_goes_no_further() {
    on_both("127.0.0.1:0", |env, _, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            let steps = Arc::new(AtomicU64::new(0));
            let (count, here) = (Arc::clone(&steps), Arc::clone(&env.tasks));
            let counting = env.tasks.spawn(
                "count",
                Box::pin(async move {
                    loop {
                        count.fetch_add(1, Ordering::SeqCst);
                        here.sleep(Duration::from_millis(1)).await;
                    }
                }),
            );
            while steps.load(Ordering::SeqCst) < 5 {
                env.tasks.sleep(Duration::from_millis(1)).await;
            }
            counting.abort();
            env.tasks.sleep(Duration::from_millis(20)).await;
            let before = steps.load(Ordering::SeqCst);
            env.tasks.sleep(Duration::from_millis(50)).await;
            assert_eq!(steps.load(Ordering::SeqCst), before);
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}

/// A worker that sleeps until it is woken, three times.
struct Woken {
    times: u64,
    seen: Arc<AtomicU64>,
}

impl Work for Woken {
    fn step(&mut self) -> Step {
        self.times += 1;
        self.seen.store(self.times, Ordering::SeqCst);
        if self.times < 3 { Step::Sleep(None) } else { Step::Done }
    }
}

#[test]
fn a_worker_sleeps_until_it_is_woken_and_its_end_is_waited_for() {
    on_both("127.0.0.1:0", |env, _, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            let seen = Arc::new(AtomicU64::new(0));
            let work = Woken { times: 0, seen: Arc::clone(&seen) };
            let worker = env.env.workers.start("woken", Box::new(work)).expect("started");
            for times in 1..=3 {
                while seen.load(Ordering::SeqCst) < times {
                    env.tasks.sleep(Duration::from_millis(1)).await;
                }
                env.tasks.sleep(Duration::from_millis(5)).await;
                assert_eq!(seen.load(Ordering::SeqCst), times, "it goes on by itself");
                worker.wake().wake();
            }
            assert!(worker.join());
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}

/// A worker that is woken while it works, and by itself.
struct Wakes(Option<riverrun_env::Wake>, Arc<AtomicU64>);

impl Work for Wakes {
    fn step(&mut self) -> Step {
        if let Some(wake) = self.0.take() {
            wake.wake();
            return Step::Sleep(None);
        }
        self.1.fetch_add(1, Ordering::SeqCst);
        Step::Done
    }
}

/// Waits, without sleeping, for the work that it gets later.
struct Late(Arc<Mutex<Option<Wakes>>>);
impl Work for Late {
    fn step(&mut self) -> Step {
        self.0.lock().as_mut().map_or(Step::Again, Work::step)
    }
}

#[test]
fn a_wake_up_during_a_step_counts() {
    on_both("127.0.0.1:0", |env, _, done| {
        let tasks = Arc::clone(&env.tasks);
        let test = async move {
            // The worker is woken while it works, by itself: it gets its own wake before it begins.
            let slot = Arc::new(Mutex::new(None));
            let ended = Arc::new(AtomicU64::new(0));
            let worker = env.env.workers.start("late", Box::new(Late(Arc::clone(&slot)))).expect("started");
            *slot.lock() = Some(Wakes(Some(worker.wake()), Arc::clone(&ended)));
            while ended.load(Ordering::SeqCst) == 0 {
                env.tasks.sleep(Duration::from_millis(1)).await;
            }
            done.store(true, Ordering::SeqCst);
        };
        tasks.spawn("test", Box::pin(test));
    });
}
