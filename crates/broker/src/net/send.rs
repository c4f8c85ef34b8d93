//! Sending: bytes in memory leave by `writev`, ranges of segment files by `sendfile`, without a copy here.
//!
//! `sendfile` blocks on pages that are not cached, and a blocked worker would stop every connection on it. So a
//! range that may be on the disk ([`Thread::of_range`]) is sent as a catch-up read: on a thread of its own, a few at a time
//! for each log dir.
//!
//! Records at the end of a log are sent as pieces of the journal's groups, and each piece keeps the whole group in memory. So
//! pieces that a client does not take soon are copied to memory of their own, for which it is charged. A client that reads in
//! full flow is spared the copy.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Buf as _;
use riverrun_env::File;
use rustix::fd::BorrowedFd;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use tokio::task::yield_now;

use super::transport::Transport;
use crate::catch_up::plan::{Ends, Thread};
use crate::catch_up::{CatchUp, FarRead, Whose};
use crate::flow::responses::Held;
use crate::flow::source::Source;
use crate::response::{Part, ResponseFrame};

/// Pieces handed to one `writev`.
const IO_SLICES_MAX: usize = 128;
/// Bytes asked of one `sendfile`: as many as a socket buffer takes before it would block anyway, and as are read from the disk
/// at once.
const SENDFILE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that are copied at once, so that other connections do not wait for it.
const OWNED_AT_ONCE: usize = 1024 * 1024;
/// A piece that is looked at takes as long as so many bytes that are copied.
const LOOK_BYTES: usize = 64;

/// The range of a file that is sent at once.
#[derive(Clone, Copy)]
struct FileRange {
    position: u64,
    len: usize,
    log_dir: usize,
}

/// Responses that wait for their socket.
///
/// Invariants: `charges` holds the memory of everything in `parts`, and maybe of parts that just left. The connection
/// is known to `catch_up` as long as this lives. The first `old` of `parts` were there when [`Self::age`] was done last, and
/// of these the first `owned` share no memory. `len` is the sum of what `parts` have.
#[derive(Debug)]
pub(crate) struct Outbox {
    parts: VecDeque<Part>,
    len: usize,
    old: usize,
    owned: usize,
    charges: Vec<Held>,
    connection: u64,
    source: Source,
    catch_up: Arc<CatchUp>,
    /// The thread that sent last may be one that waited for the disk, and be one too many.
    was_aside: AtomicBool,
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.catch_up.end(self.connection);
    }
}

impl Outbox {
    /// For the connection of that number, from this source.
    pub(crate) fn new(connection: u64, source: Source, catch_up: Arc<CatchUp>) -> Self {
        catch_up.begin(connection);
        Self {
            parts: VecDeque::new(),
            len: 0,
            old: 0,
            owned: 0,
            charges: Vec::new(),
            connection,
            source,
            catch_up,
            was_aside: AtomicBool::new(false),
        }
    }

    fn whose(&self) -> Whose {
        Whose { source: self.source, connection: self.connection }
    }

    pub(crate) fn push(&mut self, frame: ResponseFrame) {
        self.len += frame.len;
        if self.parts.is_empty() {
            // A response of very many pieces comes alone.
            self.parts = frame.parts;
        } else {
            self.parts.extend(frame.parts);
        }
        self.charges.extend(frame.charge);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes that wait, on disk or in memory.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// To be called now and then: copies bytes that are still here since the last time, so that they share no memory. `false`:
    /// they are many, and the rest of them is left to another call.
    pub(crate) fn age(&mut self) -> bool {
        let mut left = OWNED_AT_ONCE;
        for part in self.parts.iter_mut().take(self.old).skip(self.owned) {
            if left == 0 {
                return false;
            }
            if matches!(part, Part::Shared(_)) {
                left = left.saturating_sub(part.len());
                part.own();
            }
            left = left.saturating_sub(LOOK_BYTES);
            self.owned += 1;
        }
        self.old = self.parts.len();
        true
    }

    /// Sends as much as the socket takes, at least one byte, waiting until it takes something. Returns the
    /// bytes sent. Safe to drop at any await: what was not sent is still here.
    pub(super) async fn send_some(&mut self, transport: &Transport) -> io::Result<usize> {
        let sent = match self.parts.front() {
            None => 0,
            Some(Part::Bytes(_) | Part::Shared(_)) => self.send_bytes(transport).await?,
            Some(Part::File { file, position, len, log_dir, far }) => {
                let len = (*len).min(SENDFILE_BYTES_MAX);
                let range = FileRange { position: *position, len, log_dir: *log_dir };
                let file = file.file();
                match file.raw_fd() {
                    Some(fd) => self.send_file(transport, fd, range, far.as_deref()).await?,
                    None => send_copied(transport, file, *position, len).await?,
                }
            }
        };
        self.advance(sent);
        if self.parts.is_empty() {
            self.charges.clear();
        }
        Ok(sent)
    }

    async fn send_bytes(&self, transport: &Transport) -> io::Result<usize> {
        loop {
            let written = {
                let mut slices = [IoSlice::new(&[]); IO_SLICES_MAX];
                let used = self.gather(&mut slices);
                transport.try_write(&slices[..used])
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => transport.writable().await?,
                other => return other,
            }
        }
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        for (slot, part) in slices.iter_mut().zip(&self.parts) {
            let (Part::Bytes(bytes) | Part::Shared(bytes)) = part else { break };
            *slot = IoSlice::new(bytes);
            used += 1;
        }
        used
    }

    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let Some(front) = self.parts.front_mut() else { return };
            let step = sent.min(front.len());
            match front {
                Part::Bytes(bytes) | Part::Shared(bytes) => bytes.advance(step),
                Part::File { position, len, .. } => {
                    *position += step as u64;
                    *len -= step;
                }
            }
            sent -= step;
            self.len -= step;
            if front.len() == 0 {
                self.old = self.old.saturating_sub(1);
                self.owned = self.owned.saturating_sub(1);
                if let Some(Part::File { far: Some(far), .. }) = self.parts.pop_front() {
                    far.finish();
                }
            }
        }
    }

    async fn send_file(
        &self,
        transport: &Transport,
        fd: BorrowedFd<'_>,
        range: FileRange,
        far: Option<&FarRead>,
    ) -> io::Result<usize> {
        let FileRange { position, len, log_dir } = range;
        if self.was_aside.load(Relaxed) {
            yield_now().await;
            self.was_aside.store(false, Relaxed);
        }
        loop {
            transport.writable().await?;
            let pass_on = || transport.try_send_file(fd, position, len);
            let sent = match self.thread_of(fd, range, far) {
                Thread::Shared => pass_on(),
                Thread::Own => {
                    let read_and_pass_on = || {
                        // All of it at once: by itself the system asks the disk for little at a time.
                        let _ =
                            rustix::fs::fadvise(fd, position, NonZeroU64::new(len as u64), Advice::WillNeed);
                        pass_on()
                    };
                    // The count of sent bytes must not be lost, so this thread is given back only before the next range.
                    self.was_aside.store(true, Relaxed);
                    self.catch_up.read_on_thread(log_dir, self.whose(), read_and_pass_on).await
                }
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// The thread for a range. If the disk has to bring some of it, the connection's next reads expect the same.
    fn thread_of(&self, fd: BorrowedFd<'_>, range: FileRange, far: Option<&FarRead>) -> Thread {
        let ends = ends(fd, range);
        if ends == Ends::Missing {
            self.catch_up.met_disk(self.connection);
            if let Some(far) = far {
                far.met_disk();
            }
        }
        Thread::of_range(ends, self.catch_up.has_spell(self.connection))
    }
}

fn ends(fd: BorrowedFd<'_>, range: FileRange) -> Ends {
    let last = range.position + range.len as u64 - 1;
    if is_cached(fd, range.position) && is_cached(fd, last) { Ends::Cached } else { Ends::Missing }
}

/// Whether the page at `position` is in memory. Any doubt counts as yes: then `sendfile` itself reports.
fn is_cached(fd: BorrowedFd<'_>, position: u64) -> bool {
    let mut probe = [0; 1];
    let mut buffers = [io::IoSliceMut::new(&mut probe)];
    !matches!(rustix::io::preadv2(fd, &mut buffers, position, ReadWriteFlags::NOWAIT), Err(Errno::AGAIN))
}

/// For files without a descriptor (the simulated disk): through memory.
async fn send_copied(
    transport: &Transport,
    file: &Arc<dyn File>,
    position: u64,
    len: usize,
) -> io::Result<usize> {
    let mut piece = vec![0; len.min(64 * 1024)];
    let read = file.read_at(&mut piece, position)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    loop {
        match transport.try_write(&[IoSlice::new(&piece[..read])]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => transport.writable().await?,
            other => return other,
        }
    }
}
