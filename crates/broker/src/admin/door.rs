//! The door of the admin port: few are inside at once, and nobody stays who does not ask.
//!
//! Guarantees that the port never takes more descriptors than [`VISITS_MAX`], whoever connects: where all places are taken,
//! whoever has not asked yet goes for a newcomer, of the source that has most the oldest. A connection ends when it has
//! not been answered for [`ANSWER_TIME_MAX`], be it that it does not ask or does not read, and in any case after
//! [`VISIT_TIME_MAX`].

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

use crate::log_limit::ADMIN_VISITS;
use crate::net::listener::ACCEPT_RETRY;
use crate::net::source::Source;

/// Connections at once: a few scrapers and probes, each of which has one at a time.
pub(crate) const VISITS_MAX: usize = 16;
/// Time without an answer after which a connection ends: Prometheus waits as long for a scrape.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// After so long a connection ends whatever it does: a client that comes again makes another one.
const VISIT_TIME_MAX: Duration = Duration::from_mins(1);
/// The empty line that ends the head of a request.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Accepts connections within the bounds.
pub(super) struct Door {
    socket: TcpListener,
    visits: Arc<Visits>,
}

impl Door {
    pub(super) fn new(socket: TcpListener) -> Self {
        Self { socket, visits: Arc::default() }
    }
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
    /// Dropped to have it go.
    _stays: oneshot::Sender<()>,
}

impl Visits {
    /// Lets a newcomer in, if there is a place or one can be made.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Stay> {
        let mut inside = self.inside.lock();
        if inside.visits.len() >= VISITS_MAX {
            let leaves = inside.who_leaves()?;
            let place = inside.visits.remove(&leaves);
            ADMIN_VISITS.warn_of(address, |suppressed| {
                let leaving = place.map(|place| place.source);
                tracing::warn!(
                    ?leaving,
                    suppressed,
                    "the admin port is full: a connection that asks nothing goes for another"
                );
            });
        }
        let (stays, gone) = oneshot::channel();
        let is_asking = Arc::new(AtomicBool::new(false));
        let number = inside.next;
        inside.next += 1;
        let place = Place { source: Source::of(address), is_asking: Arc::clone(&is_asking), _stays: stays };
        inside.visits.insert(number, place);
        Some(Stay { visits: Arc::clone(self), number, gone, is_asking })
    }
}

impl Inside {
    fn who_leaves(&self) -> Option<u64> {
        let of = |source| self.visits.values().filter(|place| place.source == source).count();
        let idle = self.visits.iter().filter(|(_, place)| !place.is_asking.load(Ordering::Relaxed));
        idle.max_by_key(|(number, place)| (of(place.source), std::cmp::Reverse(**number)))
            .map(|(&number, _)| number)
    }
}

/// A connection's place, given back when dropped.
struct Stay {
    visits: Arc<Visits>,
    number: u64,
    /// Ready when it has lost its place.
    gone: oneshot::Receiver<()>,
    /// It waits for an answer to what it has asked.
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

    /// Whether it may go on.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if Pin::new(&mut self.stay.gone).poll(context).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let is_late = self.answer_until.as_mut().poll(context).is_ready()
            || self.until.as_mut().poll(context).is_ready();
        if is_late { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn note_read(&mut self, bytes: &[u8]) {
        let from = bytes.len().saturating_sub(HEAD_END.len());
        self.tail.extend_from_slice(&bytes[from..]);
        self.tail.drain(..self.tail.len().saturating_sub(HEAD_END.len()));
        if self.tail == HEAD_END {
            self.stay.is_asking.store(true, Ordering::Relaxed);
        }
    }

    fn note_written(&mut self) {
        self.stay.is_asking.store(false, Ordering::Relaxed);
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
                    if let Some(stay) = self.visits.enter(peer.ip()) {
                        return (Visit::new(stream, stay), peer);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the admin port cannot accept a connection");
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// The address at which a request came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here(pub(super) Option<IpAddr>);

impl Connected<IncomingStream<'_, Door>> for Here {
    fn connect_info(incoming: IncomingStream<'_, Door>) -> Self {
        Self(incoming.io().stream.local_addr().ok().map(|here| here.ip().to_canonical()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn has_left(stay: &mut Stay) -> bool {
        stay.gone.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_that_does_not_ask_of_whom_has_most() {
        let visits = Arc::<Visits>::default();
        let mut single = visits.enter(address(1)).expect("free");
        let mut many: Vec<_> = (1..VISITS_MAX).map(|_| visits.enter(address(2)).expect("free")).collect();
        many[0].is_asking.store(true, Ordering::Relaxed);
        let newcomer = visits.enter(address(3)).expect("a place is made");
        let left: Vec<_> = many.iter_mut().map(has_left).collect();
        assert_eq!(left.iter().position(|left| *left), Some(1));
        assert_eq!((left.iter().filter(|left| **left).count(), has_left(&mut single)), (1, false));
        for stay in many.iter().chain([&single, &newcomer]) {
            stay.is_asking.store(true, Ordering::Relaxed);
        }
        assert!(visits.enter(address(4)).is_none(), "all are about to be answered");
        drop((many, single, newcomer));
        assert!(visits.inside.lock().visits.is_empty());
    }

    async fn visit() -> (TcpStream, Visit) {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let client = TcpStream::connect(socket.local_addr().expect("bound")).await.expect("it listens");
        let (visit, _) = Door::new(socket).accept().await;
        (client, visit)
    }

    #[tokio::test]
    async fn who_has_asked_keeps_its_place_until_it_is_answered() {
        let (mut client, mut visit) = visit().await;
        for (sent, is_asking) in [(&b"GET / HTTP/1.1\r\nA: \r"[..], false), (b"\n\r", false), (b"\n", true)] {
            client.write_all(sent).await.expect("open");
            visit.read_exact(&mut vec![0; sent.len()]).await.expect("sent");
            assert_eq!(visit.stay.is_asking.load(Ordering::Relaxed), is_asking);
        }
        visit.write_all(b"answer").await.expect("open");
        assert!(!visit.stay.is_asking.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn who_does_not_ask_in_time_is_sent_away_and_so_is_who_asks_for_ever() {
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
