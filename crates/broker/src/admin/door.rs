//! The door of the admin port bounds its connections: few are inside at once, and none stays that does not ask.
//!
//! Guarantees:
//!
//! - The port never takes more descriptors than [`VISITS_MAX`], and no source has all of them while another one wants some.
//!   Where all places are taken, a newcomer takes the place of the oldest connection that has not asked yet, of the source
//!   that has most; that may be its own source. A connection that waits for its answer goes only for a newcomer whose source
//!   has fewer places also afterwards.
//! - A connection ends when it has not been answered for [`ANSWER_TIME_MAX`], whether it does not ask or does not read, and
//!   in any case after [`VISIT_TIME_MAX`].
//!
//! The HTTP library puts a `Date` into every answer, and panics if the system's clock shows a time that no `Date` can name.
//! Then the door itself answers, and says what is wrong.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use riverrun_env::is_shortage;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep, sleep};

use crate::descriptors::VISITS_MAX;
use crate::flow::ACCEPT_RETRY;
use crate::flow::source::Source;
use crate::log_limit::ADMIN_VISITS;

/// Time without an answer after which a connection ends: Prometheus waits as long for a scrape.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// After so long a connection ends, even one that asks: a client that comes again makes another one.
const VISIT_TIME_MAX: Duration = Duration::from_mins(1);
/// The empty line that ends the head of a request.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Seconds since 1970 that a `Date` can name: up to the year 9999.
const DATES_S: Range<u64> = 0..253_402_300_800;
/// The answer while the clock shows another time.
const UNDATED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 92\r\nconnection: close\r\n\r\n\
    the system's clock is before 1970 or after 9999: the admin port answers again once it is set";

/// Accepts connections within the bounds.
pub(super) struct Door {
    socket: TcpListener,
    visits: Arc<Visits>,
    /// The system's clock, as the HTTP library reads it.
    now: fn() -> SystemTime,
}

impl Door {
    pub(super) fn new(socket: TcpListener) -> Self {
        Self { socket, visits: Arc::default(), now: SystemTime::now }
    }
}

/// Whether a `Date` can name this time.
fn has_date(now: SystemTime) -> bool {
    now.duration_since(UNIX_EPOCH).is_ok_and(|since| DATES_S.contains(&since.as_secs()))
}

/// The connections that are open.
#[derive(Default)]
struct Visits {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    next: u64,
    visits: BTreeMap<u64, Place>,
}

struct Place {
    source: Source,
    is_asking: Arc<AtomicBool>,
    /// Dropped to end the connection.
    _stays: oneshot::Sender<()>,
    /// The same for the task that makes its answer.
    _waits: watch::Sender<()>,
}

impl Visits {
    /// Lets a newcomer in, if there is a place or one can be made.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Stay> {
        let source = Source::of(address);
        let mut inside = self.inside.lock();
        if inside.visits.len() >= VISITS_MAX {
            let leaves = inside.displaced_by(source)?;
            let place = inside.visits.remove(&leaves);
            ADMIN_VISITS.warn_of(address, |suppressed| {
                let leaving = place.map(|place| place.source);
                tracing::warn!(
                    ?leaving,
                    suppressed,
                    "the admin port is full: a new connection takes the place of one of the source that has most"
                );
            });
        }
        let (stays, gone) = oneshot::channel();
        let (waits, left) = watch::channel(());
        let is_asking = Arc::new(AtomicBool::new(false));
        let number = inside.next;
        inside.next += 1;
        let place = Place { source, is_asking: Arc::clone(&is_asking), _stays: stays, _waits: waits };
        inside.visits.insert(number, place);
        Some(Stay { visits: Arc::clone(self), number, gone, left, is_asking })
    }
}

impl Inside {
    /// The connection whose place a newcomer of this source takes; none if there is no place for it.
    fn displaced_by(&self, newcomer: Source) -> Option<u64> {
        let places_of = |source| self.visits.values().filter(|place| place.source == source).count();
        let own = places_of(newcomer);
        let rank = |(&number, place): (&u64, &Place)| {
            let (has, is_asking) = (places_of(place.source), place.is_asking.load(Ordering::Relaxed));
            let may_leave =
                if place.source == newcomer { !is_asking } else { has > own + usize::from(is_asking) };
            may_leave.then_some((has, !is_asking, Reverse(number)))
        };
        let (_, _, Reverse(number)) = self.visits.iter().filter_map(rank).max()?;
        Some(number)
    }
}

/// A connection's place, given back when dropped.
struct Stay {
    visits: Arc<Visits>,
    number: u64,
    /// Ready when the connection has lost its place.
    gone: oneshot::Receiver<()>,
    /// The same for the task that makes its answer.
    left: watch::Receiver<()>,
    /// The connection waits for an answer to its request.
    is_asking: Arc<AtomicBool>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.visits.inside.lock().visits.remove(&self.number);
    }
}

/// A connection.
pub(super) struct Visit {
    stream: TcpStream,
    stay: Stay,
    /// The last bytes that came, as many as end a head.
    tail: Vec<u8>,
    answer_until: Pin<Box<Sleep>>,
    until: Pin<Box<Sleep>>,
}

impl Visit {
    fn new(stream: TcpStream, stay: Stay) -> Self {
        let (answer_until, until) = (Box::pin(sleep(ANSWER_TIME_MAX)), Box::pin(sleep(VISIT_TIME_MAX)));
        Self { stream, stay, tail: Vec::new(), answer_until, until }
    }

    /// Fails if the connection has to end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if Pin::new(&mut self.stay.gone).poll(context).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let is_late = self.answer_until.as_mut().poll(context).is_ready()
            || self.until.as_mut().poll(context).is_ready();
        if is_late { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn note_read(&mut self, mut bytes: &[u8]) {
        // Empty lines in front of a request ask nothing.
        while let Some(rest) = bytes.strip_prefix(b"\r").or_else(|| bytes.strip_prefix(b"\n"))
            && self.tail.is_empty()
        {
            bytes = rest;
        }
        let from = bytes.len().saturating_sub(HEAD_END.len());
        self.tail.extend_from_slice(&bytes[from..]);
        self.tail.drain(..self.tail.len().saturating_sub(HEAD_END.len()));
        if self.tail == HEAD_END {
            self.stay.is_asking.store(true, Ordering::Relaxed);
        }
    }

    /// Reads a request, and answers that the clock has to be set.
    async fn answer_undated(mut self) -> io::Result<()> {
        let mut buffer = [0; 1024];
        while !self.stay.is_asking.load(Ordering::Relaxed) {
            if self.read(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        self.write_all(UNDATED).await?;
        self.shutdown().await
    }

    fn note_written(&mut self) {
        self.stay.is_asking.store(false, Ordering::Relaxed);
        self.tail.clear();
        self.answer_until.as_mut().reset(Instant::now() + ANSWER_TIME_MAX);
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.note_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.note_written();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    let Some(stay) = self.visits.enter(peer.ip()) else { continue };
                    let visit = Visit::new(stream, stay);
                    if has_date((self.now)()) {
                        return (visit, peer);
                    }
                    tokio::spawn(visit.answer_undated());
                }
                Err(error) => {
                    tracing::debug!(%error, "the admin port cannot accept a connection");
                    // A client's own failure holds up no other client.
                    if is_shortage(&error) {
                        sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// The way by which a request came in.
#[derive(Clone, Debug)]
pub(super) struct Here {
    /// The server's address at which it came in.
    pub(super) address: Option<IpAddr>,
    left: watch::Receiver<()>,
}

impl Here {
    /// Ready once the connection has lost its place: while its answer is made, no task reads the connection itself.
    pub(super) async fn left(mut self) {
        while self.left.changed().await.is_ok() {}
    }
}

impl Connected<IncomingStream<'_, Door>> for Here {
    fn connect_info(incoming: IncomingStream<'_, Door>) -> Self {
        let visit = incoming.io();
        let address = visit.stream.local_addr().ok().map(|here| here.ip().to_canonical());
        Self { address, left: visit.stay.left.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::Router;
    use axum::routing::get;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn has_left(stay: &mut Stay) -> bool {
        stay.gone.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// Takes so many places for a source.
    fn enter(visits: &Arc<Visits>, source: u8, count: usize) -> Vec<Stay> {
        (0..count).map(|_| visits.enter(address(source)).expect("free")).collect()
    }

    fn all_ask(stays: &[Stay]) {
        for stay in stays {
            stay.is_asking.store(true, Ordering::Relaxed);
        }
    }

    /// The indexes of those that have lost their places.
    fn left(stays: &mut [Stay]) -> Vec<usize> {
        (0..stays.len()).filter(|index| has_left(&mut stays[*index])).collect()
    }

    #[test]
    fn newcomer_displaces_the_oldest_silent_of_the_largest_source() {
        let visits = Arc::<Visits>::default();
        let mut single = enter(&visits, 1, 1);
        let mut many = enter(&visits, 2, VISITS_MAX - 1);
        all_ask(&many[..1]);
        let newcomer = visits.enter(address(3)).expect("a place is made");
        assert_eq!((left(&mut many), left(&mut single)), (vec![1], vec![]));
        drop((many, single, newcomer));
        assert!(visits.inside.lock().visits.is_empty());
    }

    #[test]
    fn asking_connection_gives_way_to_a_smaller_source_only() {
        let visits = Arc::<Visits>::default();
        // A connection that has not asked yet.
        let mut single = enter(&visits, 1, 1);
        let mut many = enter(&visits, 2, VISITS_MAX - 1);
        all_ask(&many);
        assert!(visits.enter(address(2)).is_none(), "its own are about to be answered");
        let newcomer = visits.enter(address(3)).expect("a place is made");
        assert_eq!((left(&mut many), left(&mut single)), (vec![0], vec![]));
        many[5].is_asking.store(false, Ordering::Relaxed);
        let own = visits.enter(address(2)).expect("for one of its own");
        assert_eq!((left(&mut many), left(&mut single)), (vec![0, 5], vec![]));
        drop((newcomer, own));
    }

    #[test]
    fn asking_connection_gives_no_way_to_an_equal_source() {
        let visits = Arc::<Visits>::default();
        let sources = u8::try_from(VISITS_MAX).expect("few");
        let mut all: Vec<_> = (0..sources).flat_map(|source| enter(&visits, source, 1)).collect();
        all_ask(&all);
        assert!(visits.enter(address(sources)).is_none(), "all are about to be answered");
        all[7].is_asking.store(false, Ordering::Relaxed);
        assert!(visits.enter(address(6)).is_none(), "it has one");
        let newcomer = visits.enter(address(sources)).expect("a place is made");
        assert_eq!(left(&mut all), [7]);
        drop(newcomer);
    }

    async fn visit() -> (TcpStream, Visit) {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let client = TcpStream::connect(socket.local_addr().expect("bound")).await.expect("it listens");
        let (visit, _) = Door::new(socket).accept().await;
        (client, visit)
    }

    #[tokio::test]
    async fn request_at_a_time_without_a_date_is_answered_so() {
        type Now = fn() -> SystemTime;
        let clocks: [(Now, &str); 4] = [
            (|| UNIX_EPOCH - Duration::from_millis(1), "503"),
            (|| UNIX_EPOCH, "200"),
            (|| UNIX_EPOCH + Duration::from_secs(DATES_S.end - 1), "200"),
            (|| UNIX_EPOCH + Duration::from_secs(DATES_S.end), "503"),
        ];
        for (now, status) in clocks {
            let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            let address = socket.local_addr().expect("bound");
            let routes = Router::new().route("/health", get(|| async { "ok\n" }));
            let service = routes.into_make_service_with_connect_info::<Here>();
            let serving = axum::serve(Door { now, ..Door::new(socket) }, service);
            let serving = tokio::spawn(serving.into_future());
            let mut client = TcpStream::connect(address).await.expect("it listens");
            let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            client.write_all(request).await.expect("open");
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.expect("answered");
            assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
            serving.abort();
        }
    }

    #[tokio::test]
    async fn connection_is_asking_until_it_is_answered() {
        let (mut client, mut visit) = visit().await;
        for (sent, is_asking) in [(&b"GET / HTTP/1.1\r\nA: \r"[..], false), (b"\n\r", false), (b"\n", true)] {
            client.write_all(sent).await.expect("open");
            visit.read_exact(&mut vec![0; sent.len()]).await.expect("sent");
            assert_eq!(visit.stay.is_asking.load(Ordering::Relaxed), is_asking);
        }
        visit.write_all(b"answer").await.expect("open");
        assert!(!visit.stay.is_asking.load(Ordering::Relaxed));
        client.write_all(b"\r\n\r\n").await.expect("open");
        visit.read_exact(&mut [0; 4]).await.expect("sent");
        assert!(!visit.stay.is_asking.load(Ordering::Relaxed), "empty lines ask nothing");
    }

    #[tokio::test]
    async fn connection_that_is_silent_or_asks_for_ever_is_ended() {
        let (_client, mut visit) = visit().await;
        tokio::time::pause();
        let begun = Instant::now();
        for _ in 0..11 {
            tokio::time::advance(ANSWER_TIME_MAX / 2).await;
            visit.write_all(b"answer").await.expect("in time");
        }
        let refused = visit.read(&mut [0; 9]).await.expect_err("too late");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < VISIT_TIME_MAX + ANSWER_TIME_MAX / 4);
        assert!(visit.write(b"answer").await.is_err());
    }
}
