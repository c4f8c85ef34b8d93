//! Tasks and links of the operating system, on tokio: a message is its length in four bytes, big-endian, and its bytes.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::{BoxFuture, Link, LinkListener, LinkReceiver, LinkSender, Network, TaskHandle, Tasks};

/// Bytes of memory that are allocated for a message before its first byte has come.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Size in bytes of the length before a message.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Bits of an IPv6 address that name a network: its owner has all the addresses in it.
const NETWORK_BITS: u32 = 64;

/// Runs tasks on a tokio runtime.
#[derive(Clone, Debug)]
pub struct RealTasks(pub Handle);

impl Tasks for RealTasks {
    fn spawn(&self, _name: &str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let handle = self.0.spawn(task).abort_handle();
        TaskHandle::new(move || handle.abort())
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// Links over TCP. To be used within a tokio runtime.
#[derive(Clone, Copy, Debug)]
pub struct RealNetwork {
    /// Size of the largest message in bytes; a longer one breaks its link.
    pub message_bytes_max: usize,
}

impl Network for RealNetwork {
    fn listen(&self, address: &str) -> io::Result<Box<dyn LinkListener>> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        Ok(Box::new(RealListener { socket, network: *self }))
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Link>> {
        let (network, address) = (*self, address.to_owned());
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            let peer = stream.peer_addr()?;
            network.link(stream, peer)
        })
    }
}

impl RealNetwork {
    fn link(self, stream: TcpStream, peer: SocketAddr) -> io::Result<Link> {
        stream.set_nodelay(true)?;
        let (receiver, sender) = stream.into_split();
        let bytes_max = self.message_bytes_max;
        Ok(Link {
            source: source(peer.ip()),
            sender: Box::new(RealSender { stream: sender, bytes_max }),
            receiver: Box::new(RealReceiver { stream: receiver, buffer: BytesMut::new(), bytes_max }),
        })
    }
}

fn source(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            let network = Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << NETWORK_BITS));
            format!("{network}/{NETWORK_BITS}")
        }
        ip => ip.to_string(),
    }
}

struct RealListener {
    socket: TcpListener,
    network: RealNetwork,
}

impl LinkListener for RealListener {
    fn address(&self) -> String {
        self.socket.local_addr().map(|address| address.to_string()).unwrap_or_default()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Link>> {
        Box::pin(async {
            let (stream, peer) = self.socket.accept().await?;
            self.network.link(stream, peer)
        })
    }
}

struct RealSender {
    stream: OwnedWriteHalf,
    bytes_max: usize,
}

impl LinkSender for RealSender {
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= self.bytes_max);
            let length = length.ok_or_else(|| too_long(message.len()))?;
            let length = length.to_be_bytes();
            let mut frame = bytes::Buf::chain(&length[..], message);
            self.stream.write_all_buf(&mut frame).await
        })
    }
}

/// Invariants: `buffer` has the received part of the next message, so that nothing is lost if a wait for it is
/// dropped.
struct RealReceiver {
    stream: OwnedReadHalf,
    buffer: BytesMut,
    bytes_max: usize,
}

impl RealReceiver {
    /// The length of the next message, once it has come.
    fn length(&self, bytes_max: usize) -> io::Result<Option<usize>> {
        let Some(length) = self.buffer.first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > bytes_max { Err(too_long(length)) } else { Ok(Some(length)) }
    }

    async fn next(&mut self, bytes_max: usize) -> io::Result<Option<Bytes>> {
        let bytes_max = bytes_max.min(self.bytes_max);
        loop {
            let length = self.length(bytes_max)?;
            if let Some(length) = length
                && self.buffer.len() - LENGTH_BYTES >= length
            {
                let mut message = self.buffer.split_to(LENGTH_BYTES + length);
                return Ok(Some(message.split_off(LENGTH_BYTES).freeze()));
            }
            // At most twice the received bytes, whatever the length says, and no more than the longest message.
            let whole = bytes_max.saturating_add(LENGTH_BYTES);
            self.buffer.reserve(READ_AHEAD_BYTES.min(whole - self.buffer.len()));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let is_whole = self.buffer.is_empty();
                return if is_whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

impl LinkReceiver for RealReceiver {
    fn receive_at_most(&mut self, bytes_max: usize) -> BoxFuture<'_, io::Result<Option<Bytes>>> {
        Box::pin(self.next(bytes_max))
    }
}

fn too_long(bytes: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of {bytes} bytes is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_a_network_of_ipv6() {
        let sources = [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
            ("::1", "::1"),
        ];
        for (address, expected) in sources {
            assert_eq!(source(address.parse().unwrap()), expected);
        }
    }
}
