//! Gathering over real sockets: whatever the mark, everything that was sent is answered, and soon.

mod aside;
mod large_frames;
mod leaving;
mod responses;
mod sharing;
mod stalls;
mod standing;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};

use bytes::BufMut as _;
use riverrun_protocol::Frame;
use socket2::SockRef;

use super::*;
use crate::aside::Aside;
use crate::catch_up::CatchUp;
use crate::flow::budget::MemoryBudget;
use crate::flow::produce_backpressure::{Load, ProduceGate};
use crate::flow::responses::ResponseMemory;
use crate::flow::turns::InTurns;
use crate::net::listener::bind;
use crate::net::receive_mark;

/// Longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The server's default for the receive buffer of a socket.
const RECEIVE_BUFFER_BYTES: usize = 102_400;
const FRAME_BYTES: usize = 16 * 1024;
/// Frames that a client in full flow has in flight.
const IN_FLIGHT: usize = 5;
const NO_MARK: usize = 1;
/// Frames after which a client looks whether the server gathers, and the time in which they have to be answered for a flow
/// that it must gather sooner or later: a quarter of what it allows.
const FLOW_FRAMES: usize = 50;
const QUICK_FLOW: Duration = Duration::from_millis(3);

/// The runtime aside for the connections of all tests.
static RUNTIME_ASIDE: OnceLock<tokio::runtime::Runtime> = OnceLock::new();

/// Answers each frame at once with its size.
struct SizeOf;

impl Dispatch for SizeOf {
    fn stage(
        &self,
        _: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        Staged::Done(size_of_frame(&frame))
    }
}

fn size_of_frame(frame: &[u8]) -> Outcome {
    let mut bytes = BytesMut::new();
    bytes.put_u32(8);
    bytes.put_u64(frame.len() as u64);
    Outcome::Respond(ResponseFrame::assemble(Frame { bytes, splices: Vec::new() }, Vec::new()))
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A blocking client, and the server's end of its connection to look at.
struct Client {
    stream: std::net::TcpStream,
    served: OwnedFd,
    standing: Arc<Standing>,
    unanswered: usize,
}

impl Client {
    fn mark(&self) -> usize {
        receive_mark::get(&self.served).expect("a socket")
    }

    fn send(&mut self, frame_bytes: usize) {
        self.send_together(&[frame_bytes]);
    }

    /// Sends frames of these sizes in one piece.
    fn send_together(&mut self, sizes: &[usize]) {
        // Produce requests, as far as a connection looks.
        let with_length = |size: &usize| {
            [&u32::try_from(*size).expect("small").to_be_bytes()[..], &vec![0; *size]].concat()
        };
        let frames: Vec<u8> = sizes.iter().flat_map(with_length).collect();
        self.stream.write_all(&frames).expect("the server reads");
        self.unanswered += sizes.len();
    }

    /// The size of a frame that was answered.
    fn receive(&mut self) -> usize {
        let mut answer = [0; 12];
        self.stream.read_exact(&mut answer).expect("the server answers in time");
        self.unanswered -= 1;
        usize::from_be_bytes(*answer.last_chunk().expect("long enough"))
    }

    fn receive_all(&mut self) {
        while self.unanswered > 0 {
            self.receive();
        }
    }

    /// Sends so many frames in full flow; the last of them are in flight after it.
    fn flow(&mut self, frames: usize) {
        for _ in 0..frames {
            while self.unanswered >= IN_FLIGHT {
                assert_eq!(self.receive(), FRAME_BYTES);
            }
            self.send(FRAME_BYTES);
        }
    }

    /// Flows until the server gathers; otherwise how many flows were quick, if it has not for long.
    fn flow_until_gathered(&mut self) -> Result<(), usize> {
        let mut quick = 0;
        for _ in 0..100 {
            let since = Instant::now();
            self.flow(FLOW_FRAMES);
            quick += usize::from(since.elapsed() <= QUICK_FLOW);
            if self.mark() >= FRAME_BYTES {
                return Ok(());
            }
        }
        Err(quick)
    }

    /// Asks with one frame, and answers how long that took.
    fn ask(&mut self, frame_bytes: usize) -> Duration {
        let since = Instant::now();
        self.send(frame_bytes);
        assert_eq!(self.receive(), frame_bytes);
        since.elapsed()
    }
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        frame_bytes_max: 64 << 20,
        requests_max: 500,
        frame_time_max: Duration::from_mins(1),
        idle_time_max: Duration::from_mins(1),
        requests: MemoryBudget::new(64 << 20),
        responses: ResponseMemory::new(64 << 20),
        catch_up: CatchUp::new(1, 1, u64::MAX),
        produce_gate: Arc::new(ProduceGate::new(Load::default)),
        inflating: Arc::new(InflatingLeave::new()),
        aside: Aside::on(RUNTIME_ASIDE.get_or_init(|| crate::aside::runtime().expect("a runtime")), 0),
    }
}

/// Serves one connection, prepared by the caller, until the client's work is done.
fn serve(
    prepare: impl FnOnce(&mut Connection<'_, SizeOf>),
    client: impl FnOnce(&mut Client) + Send + 'static,
) {
    serve_with(limits(), &SizeOf, prepare, client).expect("the client closes");
}

/// Serves one connection within these limits; answers how it ended.
fn serve_with<D: Dispatch>(
    limits: ConnectionLimits,
    dispatch: &D,
    prepare: impl FnOnce(&mut Connection<'_, D>),
    client: impl FnOnce(&mut Client) + Send + 'static,
) -> Result<(), Closed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    serve_on(&runtime, limits, dispatch, prepare, client)
}

fn serve_on<D: Dispatch>(
    runtime: &tokio::runtime::Runtime,
    limits: ConnectionLimits,
    dispatch: &D,
    prepare: impl FnOnce(&mut Connection<'_, D>),
    client: impl FnOnce(&mut Client) + Send + 'static,
) -> Result<(), Closed> {
    runtime.block_on(async {
        let listening = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .and_then(|bound| bound.listen(1))
            .expect("a port");
        let address = listening.local_addr().expect("bound");
        let (told, served) = mpsc::sync_channel(1);
        let standing = Arc::<Standing>::default();
        let seen = Arc::clone(&standing);
        let client = std::thread::spawn(move || {
            let stream = std::net::TcpStream::connect(address).expect("it listens");
            stream.set_nodelay(true).expect("a socket option");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
            let served = served.recv().expect("accepted");
            client(&mut Client { stream, served, standing: seen, unanswered: 0 });
        });
        let (stream, peer) = listening.accept().await.expect("a connection");
        SockRef::from(&stream).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).expect("a socket option");
        told.send(stream.as_fd().try_clone_to_owned().expect("a descriptor")).expect("the client waits");
        let info = ConnectionInfo::new(0, peer, "TEST".into());
        let traffic = TrafficMetrics::default();
        let mut connection = Connection::new(stream, Arc::new(info), limits, dispatch, &traffic, &standing);
        prepare(&mut connection);
        let turns = crate::flow::turns::Turns::new(1);
        let served = InTurns::new(&turns, Source::of(peer.ip()), connection.serve()).await;
        client.join().expect("the client is content");
        served
    })
}

/// Has so many clients go on once the server gathers their frames. On a busy machine it does not for each: those
/// that do not flow evenly are left alone. Where a machine wakes its threads so late that no flow is quick, nothing is
/// gathered, and the answer is false.
fn for_gathered(clients: usize, go_on: fn(&mut Client)) -> bool {
    let gathered = Arc::new(AtomicUsize::new(0));
    let quick = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + 3 * PATIENCE;
    while gathered.load(Ordering::SeqCst) < clients {
        if Instant::now() >= until {
            assert_eq!(quick.load(Ordering::SeqCst), 0, "of {clients} only {gathered:?} were gathered");
            eprintln!("NOT RUN: no client got {FLOW_FRAMES} answers within {QUICK_FLOW:?}");
            return false;
        }
        let (gathered, quick) = (Arc::clone(&gathered), Arc::clone(&quick));
        let client = move |client: &mut Client| {
            match client.flow_until_gathered() {
                Ok(()) => {
                    go_on(client);
                    gathered.fetch_add(1, Ordering::SeqCst);
                }
                Err(flows) => _ = quick.fetch_add(flows, Ordering::SeqCst),
            }
            client.receive_all();
        };
        serve(|_| {}, client);
    }
    true
}

#[test]
fn rest_of_a_burst_below_the_mark_is_answered_soon() {
    static QUICK: AtomicUsize = AtomicUsize::new(0);
    let is_run = for_gathered(20, |client| {
        client.receive_all();
        let is_marked = client.mark() >= FRAME_BYTES;
        let delay = client.ask(9_000);
        assert!(delay < Duration::from_secs(5), "{delay:?}");
        if is_marked && delay < Duration::from_millis(20) {
            QUICK.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Others may keep the machine busy, but not at every burst's end.
    assert!(!is_run || QUICK.load(Ordering::SeqCst) > 0);
}

#[test]
fn idle_connection_has_no_mark_and_is_served_at_once() {
    for_gathered(3, |client| {
        client.receive_all();
        let until = Instant::now() + PATIENCE;
        while client.mark() > NO_MARK {
            assert!(Instant::now() < until, "the mark stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Bytes that come at once after a mark are taken for bytes that it held back.
        std::thread::sleep(Duration::from_millis(5));
        for _ in 0..20 {
            assert!(client.ask(40) < Duration::from_secs(5));
            assert_eq!(client.mark(), NO_MARK, "nothing flows");
        }
    });
}

#[test]
fn frames_larger_than_the_mark_and_than_the_receive_buffer_pass() {
    for_gathered(3, |client| {
        for frame_bytes in [5_000_000, 1_000_000, 200_000, RECEIVE_BUFFER_BYTES + 1] {
            client.receive_all();
            let delay = client.ask(frame_bytes);
            assert!(delay < Duration::from_secs(5), "{frame_bytes}: {delay:?}");
            // And in the midst of others.
            client.flow(100);
            client.send(frame_bytes);
            client.send(40);
            client.receive_all();
            client.flow(100);
        }
    });
}

#[test]
fn a_socket_that_takes_no_mark_is_served_without() {
    serve(
        |connection| connection.reader.note_mark(Err(io::ErrorKind::InvalidInput.into())),
        |client| {
            for _ in 0..200 {
                client.flow(50);
                assert_eq!(client.mark(), NO_MARK);
            }
            client.receive_all();
            assert!(client.ask(9_000) < Duration::from_secs(5));
        },
    );
}
