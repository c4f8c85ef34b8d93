//! The bytes of a connection, in both directions.
//!
//! Everything that reads or writes a client's socket goes through here, so that another transport is added in one place. What
//! the connection relies on:
//!
//! - [`Transport::readable`] returns as soon as [`Transport::read`] has bytes to give. A transport that keeps bytes of its own,
//!   as one that decrypts does, must look at these first: the socket is not readable for them.
//! - A receive mark is taken only where what arrives at the socket is what is read.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::task::Poll;

use bytes::BufMut;
use rustix::fd::BorrowedFd;
use tokio::io::{AsyncReadExt as _, Interest, Ready};
use tokio::net::TcpStream;

use super::receive_mark;

/// The outcome of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// So many bytes, at least one.
    Bytes(usize),
    /// The client sends nothing more.
    End,
    /// Nothing has come.
    Nothing,
}

/// Plain text over TCP.
#[derive(Debug)]
pub(super) struct Transport(TcpStream);

impl Transport {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// Waits until there is something to read, or the end.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Waits until something may be written.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }

    /// Reads what has arrived, without waiting.
    pub(super) async fn read(&mut self, space: &mut impl BufMut) -> io::Result<Read> {
        // Unlike `try_read_buf` it knows that a read which does not fill its buffer leaves nothing behind, and does not
        // ask the system again before waiting.
        let mut reading = pin!(self.0.read_buf(space));
        match poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await {
            Poll::Ready(Ok(0)) => Ok(Read::End),
            Poll::Ready(Ok(bytes)) => Ok(Read::Bytes(bytes)),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Read::Nothing),
        }
    }

    /// Writes some of these bytes, at least one; `WouldBlock` where nothing can be written now.
    pub(super) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.try_write_vectored(slices) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        }
    }

    /// Writes some of a file's bytes without copying them here; `WouldBlock` where nothing can be written now. Blocks while
    /// they are read from the disk.
    pub(super) fn try_send_file(&self, fd: BorrowedFd<'_>, position: u64, len: usize) -> io::Result<usize> {
        self.0.try_io(Interest::WRITABLE, || sendfile(&self.0, fd, position, len))
    }

    /// Whether the client takes no answer any more. What it has sent is not read for this.
    pub(super) async fn has_left(&self) -> bool {
        self.readiness(Interest::READABLE).await.is_none_or(Ready::is_read_closed)
    }

    /// Fails if the client's end of the connection is gone.
    pub(super) async fn check_peer(&self) -> io::Result<()> {
        let is_gone = self.readiness(Interest::WRITABLE).await.is_none_or(Ready::is_write_closed);
        if is_gone { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// The readiness of the socket now; none once it has failed.
    async fn readiness(&self, interest: Interest) -> Option<Ready> {
        let mut ready = pin!(self.0.ready(interest));
        match poll_fn(|context| Poll::Ready(ready.as_mut().poll(context))).await {
            Poll::Ready(ready) => ready.ok(),
            Poll::Pending => Some(Ready::EMPTY),
        }
    }

    /// Sets how many bytes must have arrived before it is readable.
    pub(super) fn set_receive_mark(&self, bytes: usize) -> io::Result<()> {
        receive_mark::set(&self.0, bytes)
    }
}

fn sendfile(stream: &TcpStream, fd: BorrowedFd<'_>, position: u64, len: usize) -> io::Result<usize> {
    let mut offset = position;
    match rustix::fs::sendfile(stream, fd, Some(&mut offset), len) {
        // The range was written before it was handed out, so an early end is damage.
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(sent) => Ok(sent),
        Err(error) => Err(error.into()),
    }
}
