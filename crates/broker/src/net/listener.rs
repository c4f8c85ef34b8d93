//! Accepting connections on one listener, within the server's bounds.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use riverrun_types::tcp::LOCAL_CONGESTION_CONTROL;
use rustix::net::sockopt;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};

use super::admission::{ConnectionBounds, ConnectionCounts, Counted, Refused};
use super::connection::Connection;
use super::dispatch::Dispatch;
use super::limits::{Closed, ConnectionLimits};
use crate::context::ConnectionInfo;
use crate::flow::ACCEPT_RETRY;
use crate::flow::source::Source;
use crate::flow::turns::{InTurns, Turns};
use crate::log_limit;
use crate::metrics::SharedMetrics;
use crate::stop_signal::{StopSignal, stopped};
use crate::supervisor::{Supervisor, panic_text};

/// Connections that are accepted before others of this thread come to their turn: each takes some twenty microseconds.
const TURN_CONNECTIONS: u32 = 16;

/// Bounds and socket options of accepted connections.
#[derive(Clone, Debug)]
pub(crate) struct ListenerLimits {
    pub(crate) connections: Arc<ConnectionBounds>,
    /// Bytes of the kernel's buffers; none leaves the kernel's own choice.
    pub(crate) send_buffer_bytes: Option<usize>,
    pub(crate) receive_buffer_bytes: Option<usize>,
    pub(crate) connection: ConnectionLimits,
    /// In which connections are served; shared by all listeners.
    pub(crate) turns: Arc<Turns>,
}

/// An address that is taken, and that nobody can connect to yet.
#[derive(Debug)]
pub(crate) struct Bound(socket2::Socket);

/// Binds an address. The port may be used again at once after a stop.
pub(crate) fn bind(address: SocketAddr) -> io::Result<Bound> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if address.ip().is_loopback() {
        // Connections inherit it. Later would do less: once BBR had a connection, the pacing stays.
        choose_local_congestion_control(&socket);
    }
    socket.bind(&address.into())?;
    Ok(Bound(socket))
}

impl Bound {
    /// Lets clients connect.
    pub(crate) fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.0.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        TcpListener::from_std(self.0.into())
    }
}

/// Whether an accept failed for want of something that the next one lacks as well.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM]
        .into_iter()
        .any(|shortage| errno == Some(shortage))
}

/// Without it everything works as well, only slower.
fn choose_local_congestion_control(socket: impl AsFd) {
    if let Err(error) = sockopt::set_tcp_congestion(socket, LOCAL_CONGESTION_CONTROL) {
        tracing::debug!(%error, "the system's congestion control is kept for a local connection");
    }
}

fn is_local(stream: &TcpStream, peer: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || stream.local_addr().is_ok_and(|here| here.ip().to_canonical() == peer)
}

/// A bound listener and all that its connections need.
pub(crate) struct Listener<D> {
    pub(crate) name: Arc<str>,
    pub(crate) socket: TcpListener,
    pub(crate) limits: ListenerLimits,
    pub(crate) counts: Arc<ConnectionCounts>,
    pub(crate) metrics: SharedMetrics,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) dispatch: Arc<D>,
}

impl<D: Dispatch + 'static> Listener<D> {
    /// Accepts until `stop` turns true, then ends the connections between two of their steps.
    pub(crate) async fn run(self, mut stop: StopSignal) {
        let mut connections = JoinSet::new();
        let mut accepted_count = 0_u32;
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        self.admit(stream, peer, &mut connections);
                        accepted_count = accepted_count.wrapping_add(1);
                        if accepted_count.is_multiple_of(TURN_CONNECTIONS) {
                            yield_now().await;
                        }
                    }
                    Err(error) => {
                        log_limit::REFUSED_CONNECTIONS.warn(|suppressed| {
                            tracing::warn!(listener = %self.name, suppressed, %error, "cannot accept a connection");
                        });
                        if is_shortage(&error) {
                            tokio::time::sleep(ACCEPT_RETRY).await;
                        }
                    }
                },
                // The panic of a task was caught.
                Some(_) = connections.join_next() => {}
            }
        }
        connections.shutdown().await;
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        let counted = match self.counts.admit(peer.ip(), &self.limits.connections) {
            Ok((counted, leaving)) => {
                self.tell_leaving(peer, leaving);
                counted
            }
            Err(refused) => return self.refuse(peer, refused),
        };
        if let Err(error) = self.set_options(&stream) {
            tracing::debug!(%peer, %error, "socket options were not set");
        }
        if is_local(&stream, peer) {
            choose_local_congestion_control(&stream);
        }
        let info = Arc::new(ConnectionInfo::new(counted.id, peer, Arc::clone(&self.name)));
        let (metrics, dispatch) = (Arc::clone(&self.metrics), Arc::clone(&self.dispatch));
        let limits = self.limits.connection.clone();
        let (supervisor, turns) = (Arc::clone(&self.supervisor), Arc::clone(&self.limits.turns));
        connections.spawn(async move {
            metrics.traffic.opened();
            let closing = ClosedOnDrop(&metrics);
            let who = Arc::clone(&info);
            let Counted { standing, .. } = &counted;
            let connection =
                Connection::new(stream, info, limits, dispatch.as_ref(), &metrics.traffic, standing);
            let serving = InTurns::new(&turns, Source::of(who.peer.ip()), connection.serve());
            let served = async {
                tokio::select! {
                    served = serving => served,
                    () = standing.told_to_go() => Ok(()),
                }
            };
            tracing::debug!(id = who.id, peer = %who.peer, listener = %who.listener, "connection opened");
            match AssertUnwindSafe(served).catch_unwind().await {
                Ok(Ok(())) => {
                    tracing::debug!(id = who.id, peer = %who.peer, "connection closed");
                }
                Ok(Err(closed)) => log_closed(&who, &closed),
                Err(panic) => {
                    supervisor.connection_panicked();
                    log_panic(&who, panic_text(&*panic));
                }
            }
            drop(closing);
            drop(counted);
        });
    }

    fn refuse(&self, peer: SocketAddr, refused: Refused) {
        self.metrics.traffic.refused();
        log_limit::REFUSED_CONNECTIONS.warn_of(peer.ip(), |suppressed| {
            let why = match refused {
                Refused::Bound => "too many are open",
                Refused::Descriptors => "there are no descriptors for more (ulimit -n)",
            };
            tracing::warn!(listener = %self.name, %peer, suppressed, "connection refused: {why}");
        });
    }

    fn tell_leaving(&self, peer: SocketAddr, leaving: usize) {
        if leaving == 0 {
            return;
        }
        self.metrics.traffic.displaced(leaving);
        log_limit::DISPLACED_CONNECTIONS.warn(|suppressed| {
            tracing::warn!(
                listener = %self.name, %peer, leaving, suppressed,
                "connections are closed to make room: there are no descriptors for more (ulimit -n)"
            );
        });
    }

    fn set_options(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        socket.set_keepalive(true)?;
        if let Some(bytes) = self.limits.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.limits.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }
}

/// Counts the end of a connection also when its task is cancelled.
struct ClosedOnDrop<'a>(&'a SharedMetrics);

impl Drop for ClosedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.traffic.closed();
    }
}

fn log_panic(who: &ConnectionInfo, reason: &str) {
    let ConnectionInfo { id, peer, listener, .. } = who;
    log_limit::CONNECTION_PANICS.warn_of(peer.ip(), |suppressed| {
        tracing::error!(id, %peer, %listener, suppressed, reason, "connection closed: its task panicked");
    });
}

fn log_closed(who: &ConnectionInfo, closed: &Closed) {
    let ConnectionInfo { id, peer, listener, principal, .. } = who;
    match closed {
        Closed::Io(error) => tracing::debug!(id, %peer, %error, "connection lost"),
        Closed::Idle(_) => tracing::debug!(id, %peer, %closed, "connection closed"),
        other => log_limit::BAD_CLIENTS.warn_of(peer.ip(), |suppressed| {
            let principal = principal.as_str();
            tracing::warn!(id, %peer, %listener, principal, suppressed, reason = %other, "connection closed");
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_connection_within_the_machine_is_not_paced() {
        let listening = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap().listen(1).unwrap();
        let _client = TcpStream::connect(listening.local_addr().unwrap()).await.unwrap();
        let (accepted, peer) = listening.accept().await.unwrap();
        assert_eq!(sockopt::tcp_congestion(&accepted).unwrap(), LOCAL_CONGESTION_CONTROL);
        assert!(is_local(&accepted, peer));
    }

    #[tokio::test]
    async fn only_a_peer_on_this_machine_is_local() {
        let listening = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap().listen(1).unwrap();
        let client = TcpStream::connect(listening.local_addr().unwrap()).await.unwrap();
        let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), 9);
        let elsewhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
        assert!(is_local(&client, mapped));
        assert!(!is_local(&client, elsewhere));
    }
}
