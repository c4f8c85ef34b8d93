//! Requests that wait for memory or leaves of others, over real sockets: earlier ones go on, and they start when they may.

use std::future::ready;
use std::thread::ThreadId;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;
use crate::flow::inflate_offload::{Length, Worker};
use crate::flow::source::Source;

/// Another connection that inflates.
const QUICK: Worker = Worker { source: Source::SOME, length: Length::Short, micros: 0, connection: None };

/// Sizes of the frames below that are answered at once, of those that are answered later, of those that inflate, and of
/// those that are answered after a while with more than a socket takes.
const AT_ONCE: usize = 40;
const LATER: usize = 41;
const INFLATES: usize = 42;
const MUCH: usize = 43;
const MUCH_BYTES: usize = 16 << 20;
const MUCH_AFTER: Duration = Duration::from_millis(300);

/// Answers each frame with its size, according to that; one of them with much that says nothing.
struct BySize {
    later: Duration,
}

impl Dispatch for BySize {
    fn stage(
        &self,
        context: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        charge: Charge,
    ) -> Staged {
        let later = match frame.len() {
            INFLATES => {
                let work = RecordsWork { coded_bytes: 1 << 20, plain_bytes: 0 };
                return Staged::Records(Box::new(Appends { work, frame, read_by: None }));
            }
            LATER => self.later,
            MUCH => MUCH_AFTER,
            _ => Duration::ZERO,
        };
        let response = Box::pin(async move {
            if !later.is_zero() {
                tokio::time::sleep(later).await;
            }
            drop(charge);
            if frame.len() == MUCH { much() } else { size_of_frame(&frame) }
        });
        Staged::handled(response, context)
    }
}

/// Records that are answered with the size of their frame, or with nothing if they were appended on another thread than this.
struct Appends {
    work: RecordsWork,
    frame: BytesMut,
    read_by: Option<ThreadId>,
}

impl Records for Appends {
    fn work(&self) -> RecordsWork {
        self.work
    }

    fn append(&mut self, _: Slice) -> bool {
        if self.read_by.is_some_and(|thread| thread != std::thread::current().id()) {
            self.frame.clear();
        }
        true
    }

    fn finish(self: Box<Self>) -> Response {
        Box::pin(ready(size_of_frame(&self.frame)))
    }
}

/// Answers each frame with nothing if its records were appended on another thread than its connection's.
struct Elsewhere(RecordsWork);

impl Dispatch for Elsewhere {
    fn stage(
        &self,
        _: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        Staged::Records(Box::new(Appends { work: self.0, frame, read_by: Some(std::thread::current().id()) }))
    }
}

/// Records whose batches take a slice each, and that note the order in which they are appended and finished.
struct InSlices {
    number: usize,
    frame: BytesMut,
    left: usize,
    done: Arc<Mutex<Vec<Step>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Appended(usize),
    Finished(usize),
}

impl Records for InSlices {
    fn work(&self) -> RecordsWork {
        // The second has much to do.
        RecordsWork { coded_bytes: if self.number == 1 { 1 << 20 } else { 0 }, plain_bytes: 0 }
    }

    fn append(&mut self, slice: Slice) -> bool {
        while self.left > 0 {
            self.left -= 1;
            self.done.lock().push(Step::Appended(self.number));
            std::thread::sleep(Duration::from_millis(3));
            if slice.is_over() {
                return false;
            }
        }
        true
    }

    fn finish(self: Box<Self>) -> Response {
        Box::pin(async move {
            self.done.lock().push(Step::Finished(self.number));
            size_of_frame(&self.frame)
        })
    }
}

/// Appends two batches of each frame.
#[derive(Default)]
struct InOrder {
    begun: AtomicUsize,
    done: Arc<Mutex<Vec<Step>>>,
}

impl Dispatch for InOrder {
    fn stage(
        &self,
        _: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        Staged::Records(Box::new(InSlices { number, frame, left: 2, done: Arc::clone(&self.done) }))
    }
}

#[test]
fn joint_requests_append_in_order_before_any_is_finished() {
    use Step::{Appended, Finished};

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let dispatch = InOrder::default();
    let client = |client: &mut Client| {
        client.send_together(&[AT_ONCE; 3]);
        client.receive_all();
    };
    serve_on(&runtime.expect("a runtime"), limits(), &dispatch, |_| {}, client).expect("the client closes");
    let mut expected: Vec<_> = [0, 0, 1, 1, 2, 2].map(Appended).into();
    expected.extend([0, 1, 2].map(Finished));
    assert_eq!(*dispatch.done.lock(), expected);
}

#[test]
fn many_plain_records_are_checked_off_the_network_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    for (plain_bytes, expected) in [(1 << 20, AT_ONCE), ((1 << 20) + 1, 0)] {
        let dispatch = Elsewhere(RecordsWork { coded_bytes: 0, plain_bytes });
        let client = move |client: &mut Client| {
            client.send(AT_ONCE);
            assert_eq!(client.receive(), expected);
        };
        serve_on(&runtime, limits(), &dispatch, |_| {}, client).expect("the client closes");
    }
}

fn much() -> Outcome {
    let bytes = BytesMut::zeroed(MUCH_BYTES);
    Outcome::Respond(ResponseFrame::assemble(Frame { bytes, splices: Vec::new() }, Vec::new()))
}

#[test]
fn requests_end_and_free_memory_while_no_answers_are_taken() {
    let limits = limits();
    let budget = Arc::clone(&limits.requests);
    let dispatch = BySize { later: 2 * MUCH_AFTER };
    let client = move |client: &mut Client| {
        client.send_together(&[MUCH, LATER, AT_ONCE]);
        wait_until("they wait", || budget.used_bytes() > 0);
        wait_until("they give their memory back", || budget.used_bytes() == 0);
        client.stream.read_exact(&mut vec![0; MUCH_BYTES]).expect("the server answers in time");
        assert_eq!([client.receive(), client.receive()], [LATER, AT_ONCE]);
    };
    serve_with(limits, &dispatch, |_| {}, client).expect("the client closes");
}

#[test]
fn requests_before_one_that_waits_to_inflate_are_answered() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let limits = limits();
    let leaves = Arc::clone(&limits.inflating);
    let dispatch = BySize { later: Duration::from_millis(100) };
    let client = move |client: &mut Client| {
        for _ in 0..3 {
            let held: Vec<_> = std::iter::from_fn(|| leaves.try_get(QUICK)).collect();
            client.send_together(&[AT_ONCE, LATER, AT_ONCE, INFLATES]);
            assert_eq!(client.receive(), AT_ONCE);
            wait_until("the last one waits", || leaves.counts().1 == 1);
            drop(held);
            assert_eq!([client.receive(), client.receive(), client.receive()], [LATER, AT_ONCE, INFLATES]);
        }
    };
    serve_on(&runtime.expect("a runtime"), limits, &dispatch, |_| {}, client).expect("the client closes");
}

#[test]
fn request_behind_a_waiting_one_starts_once_there_is_memory() {
    let limits = limits();
    let budget = Arc::clone(&limits.requests);
    // Longer than the test: the request behind it cannot wait as one with nothing unanswered before it does.
    let dispatch = BySize { later: 3 * PATIENCE };
    let client = move |client: &mut Client| {
        client.send(LATER);
        wait_until("the first one is there", || budget.used_bytes() > 0);
        let mut shortest = Duration::MAX;
        for _ in 0..3 {
            let mut spent = budget.try_charge(0).expect("nothing is little");
            spent.resize(1 << 30);
            client.send(AT_ONCE);
            wait_until("the next one waits", || budget.is_wanted());
            let since = Instant::now();
            drop(spent);
            wait_until("it starts", || !budget.is_wanted());
            shortest = shortest.min(since.elapsed());
        }
        assert!(shortest < Duration::from_millis(300), "{shortest:?}");
    };
    serve_with(limits, &dispatch, |_| {}, client).expect("the client closes");
}

/// Answers each frame once it may, and counts as a fetch that waits until then.
struct Parks {
    begun: Arc<AtomicUsize>,
    leaves: Arc<Semaphore>,
}

impl Dispatch for Parks {
    fn stage(
        &self,
        context: &mut Context<'_>,
        info: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let (info, leaves) = (Arc::clone(info), Arc::clone(&self.leaves));
        let response = Box::pin(async move {
            let _parked = info.park_fetch(&ALL);
            leaves.acquire().await.expect("open").forget();
            size_of_frame(&frame)
        });
        Staged::handled(response, context)
    }
}

#[test]
fn requests_behind_many_parked_fetches_start_as_these_end() {
    const BEHIND: usize = 30;
    let (begun, leaves) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let dispatch = Parks { begun: Arc::clone(&begun), leaves: Arc::clone(&leaves) };
    let client = move |client: &mut Client| {
        client.send_together(&[AT_ONCE; PARKED_FETCHES_MAX + BEHIND]);
        for answered in 0..BEHIND {
            let expected = PARKED_FETCHES_MAX + answered;
            wait_until("they are begun", || begun.load(Ordering::SeqCst) >= expected);
            assert_eq!(begun.load(Ordering::SeqCst), expected, "more are begun");
            leaves.add_permits(1);
            assert_eq!(client.receive(), AT_ONCE);
        }
        leaves.add_permits(PARKED_FETCHES_MAX);
        client.receive_all();
    };
    serve_with(limits(), &dispatch, |_| {}, client).expect("the client closes");
}
