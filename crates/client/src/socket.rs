//! Opening a connection's socket.
//!
//! Guarantees that a connection within the machine is not paced, whatever the system's congestion control for its
//! network, and that no address of a host name uses up the time of the others.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

#[cfg(target_os = "linux")]
use riverrun_types::tcp::LOCAL_CONGESTION_CONTROL;
#[cfg(target_os = "linux")]
use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

/// Connects to the first of the name's addresses that accepts the connection, within `limit`.
pub(crate) async fn connect(address: &str, limit: Duration) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let targets: Vec<_> = timeout(limit, lookup_host(address)).await??.collect();
    connect_to_any(&targets, limit.saturating_sub(begun.elapsed())).await
}

/// Gives each address its share of the remaining time: an address that does not answer says nothing about the others.
async fn connect_to_any(targets: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let mut refused = None;
    for (target, left) in targets.iter().zip((1..=targets.len()).rev()) {
        let share = limit.saturating_sub(begun.elapsed()) / u32::try_from(left).unwrap_or(u32::MAX);
        match timeout(share, connect_to(*target)).await.unwrap_or_else(|late| Err(late.into())) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

async fn connect_to(target: SocketAddr) -> io::Result<TcpStream> {
    if !target.ip().to_canonical().is_loopback() {
        return TcpStream::connect(target).await;
    }
    let socket = if target.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Before it connects: once a connection has used BBR, the pacing stays.
    #[cfg(target_os = "linux")]
    choose_local_congestion_control(&socket);
    socket.connect(target).await
}

/// An error only makes the connection slower. Other systems do not pace such connections.
#[cfg(target_os = "linux")]
fn choose_local_congestion_control(socket: impl std::os::fd::AsFd) {
    if let Err(error) = sockopt::set_tcp_congestion(socket, LOCAL_CONGESTION_CONTROL) {
        tracing::debug!(%error, "the system's congestion control is kept for a local connection");
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(6);

    /// A listener that silently accepts no more connections, like a machine that is gone. The accepted ones keep it
    /// so.
    async fn unanswering() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let listening = socket.listen(1).unwrap();
        let (address, mut taken) = (listening.local_addr().unwrap(), Vec::new());
        while let Ok(stream) = timeout(Duration::from_millis(200), connect_to(address)).await {
            taken.push(stream.unwrap());
        }
        (listening, taken)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_others() {
        let (gone, _taken) = unanswering().await;
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let targets = [&gone, &listening].map(|one| one.local_addr().unwrap());
        let begun = Instant::now();
        let stream = connect_to_any(&targets, LIMIT).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), targets[1]);
        assert!(begun.elapsed() < LIMIT * 5 / 6, "half of the time is the other's: {:?}", begun.elapsed());
        let error = connect_to_any(&targets[..1], LIMIT / 10).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_within_the_machine_is_not_paced() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let stream = connect(&listening.local_addr().unwrap().to_string(), LIMIT).await.unwrap();
        assert_eq!(sockopt::tcp_congestion(&stream).unwrap(), LOCAL_CONGESTION_CONTROL);
    }

    #[tokio::test]
    async fn last_address_gives_the_error_when_all_fail() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listening.local_addr().unwrap().to_string();
        drop(listening);
        assert_eq!(connect(&address, LIMIT).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
