//! TCP over the loopback interface at its best: one connection, one thread at each end.
//!
//! Throughputs are compared with it. The system's congestion control may pace the segments, as BBR does, so that one
//! connection carries less than the interface could. Two rates are therefore measured: with the system's default, and
//! without pacing, which is how our client and server connect within a machine.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use riverrun_types::tcp::LOCAL_CONGESTION_CONTROL;
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde::Serialize;

/// Bytes of one write and one read.
const CHUNK_BYTES: usize = 256 * 1024;

/// Rates of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoopbackFigures {
    /// Bytes per second that arrived, with the system's default congestion control.
    pub bytes_per_s: f64,
    /// The same without pacing; `None` where the system refuses such a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpaced_bytes_per_s: Option<f64>,
}

/// Sends for about `time` over one connection, and as long over another. Keeps two threads busy meanwhile.
pub fn measure(time: Duration) -> io::Result<LoopbackFigures> {
    Ok(LoopbackFigures {
        bytes_per_s: measure_over(connect, time)?,
        unpaced_bytes_per_s: measure_over(connect_unpaced, time).ok(),
    })
}

fn measure_over(connect: fn(&TcpListener) -> io::Result<TcpStream>, time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let stream = connect(&listener)?;
    let (mut incoming, _) = listener.accept()?;
    let sending = thread::Builder::new().name("loopback".to_owned()).spawn(move || send(stream, time))?;
    let begun = Instant::now();
    let (mut chunk, mut received) = (vec![0; CHUNK_BYTES], 0_u64);
    loop {
        match incoming.read(&mut chunk)? {
            0 => break,
            count => received += count as u64,
        }
    }
    let elapsed = begun.elapsed();
    sending.join().map_err(|_| io::Error::other("the sending thread failed"))??;
    Ok(received as f64 / elapsed.as_secs_f64())
}

fn connect(listener: &TcpListener) -> io::Result<TcpStream> {
    TcpStream::connect(listener.local_addr()?)
}

fn connect_unpaced(listener: &TcpListener) -> io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_tcp_congestion(&socket, LOCAL_CONGESTION_CONTROL)?;
    rustix::net::connect(&socket, &listener.local_addr()?)?;
    Ok(socket.into())
}

fn send(mut stream: TcpStream, time: Duration) -> io::Result<()> {
    let chunk = vec![b'l'; CHUNK_BYTES];
    let begun = Instant::now();
    while begun.elapsed() < time {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(Shutdown::Write)
}

impl fmt::Display for LoopbackFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MB/s over one connection", self.bytes_per_s / 1e6)?;
        self.unpaced_bytes_per_s.map_or(Ok(()), |rate| write!(f, ", {:.0} MB/s without pacing", rate / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpaced_connection_is_not_paced() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(
            sockopt::tcp_congestion(connect_unpaced(&listener).unwrap()).unwrap(),
            LOCAL_CONGESTION_CONTROL
        );
    }

    #[test]
    fn bytes_go_through_in_about_the_time() {
        let begun = Instant::now();
        let figures = measure(Duration::from_millis(50)).unwrap();
        assert!(
            figures.bytes_per_s > 1e6 && figures.unpaced_bytes_per_s.is_some_and(|rate| rate > 1e6),
            "{figures:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
