//! Opening a connection's socket.
//!
//! Guarantees that a connection within the machine is not paced, whatever the system chose for its network.

use std::io;
use std::net::SocketAddr;

#[cfg(target_os = "linux")]
use riverrun_types::tcp::LOCAL_CONGESTION_CONTROL;
#[cfg(target_os = "linux")]
use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream, lookup_host};

/// Connects to the first of the name's addresses that takes the connection.
pub(crate) async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut refused = None;
    for target in lookup_host(address).await? {
        match connect_to(target).await {
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
    // Before it connects: once BBR had a connection, the pacing stays.
    #[cfg(target_os = "linux")]
    choose_local_congestion_control(&socket);
    socket.connect(target).await
}

/// Without it everything works as well, only slower. Other systems do not pace such connections.
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

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_within_the_machine_is_not_paced() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let stream = connect(&listening.local_addr().unwrap().to_string()).await.unwrap();
        assert_eq!(sockopt::tcp_congestion(&stream).unwrap(), LOCAL_CONGESTION_CONTROL);
    }

    #[tokio::test]
    async fn the_reason_of_the_last_address_is_told_where_none_takes_the_connection() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listening.local_addr().unwrap().to_string();
        drop(listening);
        assert_eq!(connect(&address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
