//! Requests byte by byte, over blocking sockets that may come from any address of the loopback network. Serves the
//! attacks, the probe that times a server, and requests to its admin port.
//!
//! Checks nothing, so that any bytes can be sent to a server; ordinary requests come from the encoders of
//! `riverrun-protocol`. Every wait has the limit that the socket was opened with.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::{ProduceRequest, ProduceResponse, Records, Request, decode_response, encode_request};
use riverrun_records::{BatchBuilder, BatchOptions, Compression};
use riverrun_types::TimestampMs;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// The name that requests carry.
const CLIENT: &str = "xtask";

/// A version of Produce by topic name, with the error's text in the answer.
pub(crate) const PRODUCE_VERSION: i16 = 8;

/// No honest answer of this suite is larger.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Destination, source and limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dial {
    pub(crate) port: u16,
    /// The address that the connection comes from.
    pub(crate) source: Ipv4Addr,
    /// Longest wait for the server.
    pub(crate) patience: Duration,
    /// Time after which every operation of the connection fails.
    pub(crate) until: Option<Instant>,
    /// Bytes of the receive buffer, if it is to be small.
    pub(crate) receive_buffer: Option<usize>,
}

impl Dial {
    /// To a port of this machine, from its usual address, limited only by each wait.
    pub(crate) fn to(port: u16, patience: Duration) -> Self {
        Self { port, source: Ipv4Addr::LOCALHOST, patience, until: None, receive_buffer: None }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: TcpStream,
    dial: Dial,
}

impl Conn {
    pub(crate) fn open(dial: Dial) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(bytes) = dial.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        let patience = Some(dial.patience.max(Duration::from_millis(1)));
        sockopt::set_socket_timeout(&socket, Timeout::Send, patience)?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, patience)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(dial.source, 0))?;
        connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, dial.port))?;
        Ok(Self { stream: TcpStream::from(socket), dial })
    }

    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.must_go_on()?;
            match self.stream.write(bytes)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    fn read_exact(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            self.must_go_on()?;
            match self.stream.read(buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => buffer = &mut buffer[read..],
            }
        }
        Ok(())
    }

    /// Fails when the connection's time is over, and lets the next wait end with it.
    fn must_go_on(&self) -> io::Result<()> {
        let Some(until) = self.dial.until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let patience = Some(self.dial.patience.min(left));
        self.stream.set_read_timeout(patience)?;
        self.stream.set_write_timeout(patience)
    }

    /// Reads an answer without keeping it; returns its length.
    pub(crate) fn skip_answer(&mut self) -> io::Result<usize> {
        let bytes = self.length()?;
        let mut buffer = vec![0; bytes.clamp(1, 1 << 16)];
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(buffer.len());
            self.read_exact(&mut buffer[..piece])?;
            left -= piece;
        }
        Ok(bytes)
    }

    /// The next answer, which belongs to an honest request and is therefore small.
    pub(crate) fn answer(&mut self) -> io::Result<Vec<u8>> {
        self.answer_up_to(ANSWER_BYTES_MAX)
    }

    /// The next answer; fails if it is longer than `bytes_max`.
    pub(crate) fn answer_up_to(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let bytes = self.length()?;
        if bytes > bytes_max {
            return Err(io::Error::other(format!("an answer of {bytes} bytes")));
        }
        let mut answer = vec![0; bytes];
        self.read_exact(&mut answer)?;
        Ok(answer)
    }

    fn length(&mut self) -> io::Result<usize> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)
    }

    /// Sends a request and decodes its answer, which borrows from `buffer`.
    pub(crate) fn call<'r, 'q, R: Request<'q>>(
        &mut self,
        request: &R,
        version: i16,
        buffer: &'r mut Vec<u8>,
    ) -> anyhow::Result<R::Response<'r>> {
        self.send(&frame(request, version)?)?;
        *buffer = self.answer()?;
        let (_, answer) = decode_response::<R>(buffer, version)?;
        Ok(answer)
    }
}

/// A whole request, its length included.
pub(crate) fn frame<'a, R: Request<'a>>(request: &R, version: i16) -> anyhow::Result<Vec<u8>> {
    frame_as(CLIENT, request, version)
}

fn frame_as<'a, R: Request<'a>>(client: &str, request: &R, version: i16) -> anyhow::Result<Vec<u8>> {
    let frame = encode_request(request, version, 1, Some(client)).context("a request cannot be encoded")?;
    ensure!(frame.splices.is_empty(), "records are in the request itself");
    Ok(frame.bytes.to_vec())
}

/// Milliseconds of the wall clock, for records.
pub(crate) fn now_ms() -> anyhow::Result<TimestampMs> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(TimestampMs(i64::try_from(since.as_millis())?))
}

/// A batch of records without keys.
pub(crate) fn batch(compression: Compression, values: &[&[u8]]) -> anyhow::Result<Vec<u8>> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    let now = now_ms()?;
    for value in values {
        builder.append(now, None, Some(value), &[])?;
    }
    Ok(builder.build()?)
}

/// A produce request of one topic, with `(partition, batch)` pairs.
pub(crate) fn produce_frame(topic: &str, batches: &[(i32, &[u8])]) -> anyhow::Result<Vec<u8>> {
    produce_frame_as(CLIENT, topic, batches)
}

/// As [`produce_frame`], from a client of another name.
pub(crate) fn produce_frame_as(
    client: &str,
    topic: &str,
    batches: &[(i32, &[u8])],
) -> anyhow::Result<Vec<u8>> {
    let partitions = batches.iter().map(|(index, records)| PartitionProduceData {
        index: *index,
        records: Some(Records::Bytes(records)),
    });
    let data = TopicProduceData {
        name: topic.into(),
        partition_data: partitions.collect(),
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![data], ..ProduceRequest::default() };
    frame_as(client, &request, PRODUCE_VERSION)
}

/// Outcome of a produce request of one partition: the batch's offset, or the error code.
pub(crate) fn produced(answer: &[u8]) -> anyhow::Result<Result<i64, i16>> {
    let (_, answer): (_, ProduceResponse<'_>) =
        decode_response::<ProduceRequest<'_>>(answer, PRODUCE_VERSION)?;
    let Some(partition) = answer.responses.first().and_then(|topic| topic.partition_responses.first()) else {
        bail!("the server says nothing of the partition");
    };
    Ok(if partition.error_code == 0 { Ok(partition.base_offset) } else { Err(partition.error_code) })
}

/// Answer of the admin port: the status code and the body.
pub(crate) fn http_get(port: u16, path: &str, patience: Duration) -> io::Result<(u16, String)> {
    let dial = Dial { until: Some(Instant::now() + patience), ..Dial::to(port, patience) };
    let mut conn = Conn::open(dial)?;
    conn.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        conn.must_go_on()?;
        match conn.stream.read(&mut buffer)? {
            0 => break,
            read => answer.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no HTTP"))?;
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| io::Error::other("no HTTP"))?, body.to_owned()))
}
