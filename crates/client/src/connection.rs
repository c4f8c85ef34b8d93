//! One connection to one server: requests out in order, answers back in the same order.
//!
//! Guarantees that at most `in_flight_max` requests are unanswered, and that every wait is bounded. A caller that
//! stops waiting does not disturb the others: its answer is read and dropped. An answer that is longer than the bound
//! or belongs to no request ends the connection, and so does a request without an answer in time, whether or not its
//! caller still waits. Requests that are not written yet end with the connection.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use riverrun_protocol::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, EncodeError, ErrorCode, Frame, Request, decode_response,
    encode_request,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::ClientError;
use crate::socket;
use crate::traffic::Traffic;

/// Most requests that wait to be written, or as many as may be unanswered if that is more: so many can be sent
/// without waiting.
const SEND_QUEUE: usize = 16;
/// Most parts of a frame in one system call.
const VECTOR_PARTS: usize = 64;
/// Most bytes of an answer that are read before its length is known.
const AHEAD_BYTES: usize = 16 * 1024;
/// Bytes of the length field before each answer.
const LENGTH_BYTES: usize = 4;
/// Largest answer in bytes: a longer length means that the peer is not a Kafka server.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The connection waits for an answer longer than the caller does, by this fraction of the caller's time, in case the
/// caller has gone. A waiting caller is the first to report a timeout.
const PATIENCE_PART: u32 = 10;

/// A request of any type. Only writing it depends on the type: the rest of its way is compiled once.
pub(crate) trait AnyRequest: Sync {
    fn key(&self) -> ApiKey;

    /// Its frame in this version.
    fn frame(&self, version: i16, correlation: i32, client_id: &str) -> Result<Frame, EncodeError>;
}

impl<'a, R: Request<'a> + Sync> AnyRequest for R {
    fn key(&self) -> ApiKey {
        R::KEY
    }

    fn frame(&self, version: i16, correlation: i32, client_id: &str) -> Result<Frame, EncodeError> {
        encode_request(self, version, correlation, Some(client_id))
    }
}

/// An answer, still encoded, so that its strings and records can be borrowed from it.
#[derive(Clone, Debug)]
pub(crate) struct ResponseFrame {
    bytes: Bytes,
    api: ApiKey,
    version: i16,
}

impl ResponseFrame {
    /// The frame's bytes: slices of records can share them.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The answer to a request of type `R`.
    pub(crate) fn decode<'r, R: Request<'r>>(&'r self) -> Result<R::Response<'r>, ClientError> {
        debug_assert_eq!(R::KEY, self.api);
        decode_response::<R>(&self.bytes, self.version)
            .map(|(_, response)| response)
            .map_err(|source| ClientError::Malformed { api: self.api, source })
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) client_id: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) in_flight_max: usize,
    /// Counters of the traffic on the connection.
    pub(crate) traffic: Arc<Traffic>,
}

/// A duration in milliseconds, as requests carry it.
pub(crate) fn wire_ms(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Limits of one request, beyond the connection's own options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    /// Newest version that may be used.
    pub(crate) version_max: i16,
    /// How long the request allows the server to delay the answer.
    pub(crate) server_wait: Duration,
    /// How long the answer is useful, where that is shorter than `request.timeout.ms`.
    pub(crate) useful: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { version_max: i16::MAX, server_wait: Duration::ZERO, useful: Duration::MAX }
    }
}

struct Outgoing {
    frame: Frame,
    /// Bytes to insert at the frame's splices.
    records: Vec<Bytes>,
    /// `None` for a request without an answer.
    asked: Option<Asked>,
    /// Completed when the whole request is written.
    written: Option<oneshot::Sender<()>>,
}

/// The answer that a request expects.
struct Asked {
    correlation: i32,
    reply: oneshot::Sender<Bytes>,
    /// How long the caller waits for it.
    patience: Duration,
}

/// A request whose answer is outstanding. Its permit bounds the unanswered requests.
struct Expected {
    asked: Asked,
    _permit: OwnedSemaphorePermit,
}

/// A request that was sent, in order, and whose answer can be awaited later.
#[derive(Debug)]
pub(crate) struct PendingAnswer {
    connection: Arc<Connection>,
    api: ApiKey,
    version: i16,
    answer: oneshot::Receiver<Bytes>,
    patience: Duration,
    deadline: Instant,
}

impl PendingAnswer {
    /// Waits for the answer.
    pub(crate) async fn wait(self) -> Result<ResponseFrame, ClientError> {
        let Self { connection, api, version, answer, patience, deadline } = self;
        match timeout_at(deadline, answer).await {
            Ok(Ok(bytes)) => Ok(ResponseFrame { bytes, api, version }),
            Ok(Err(_)) => Err(connection.lost("it was closed before the answer")),
            Err(_) => Err(connection.give_up(api, patience)),
        }
    }
}

/// A request without an answer that was sent, in order. The caller can await later that the operating system has it.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    connection: Arc<Connection>,
    api: ApiKey,
    written: oneshot::Receiver<()>,
    deadline: Instant,
}

impl PendingWrite {
    /// Waits until the operating system has all of it, so that the end of the process does not lose it. A server that
    /// does not read gets the same time as one that does not answer.
    pub(crate) async fn wait(self) -> Result<(), ClientError> {
        let Self { connection, api, written, deadline } = self;
        match timeout_at(deadline, written).await {
            Ok(written) => written.map_err(|_| connection.lost("it could not be written to")),
            Err(_) => Err(connection.give_up(api, connection.options.request_timeout)),
        }
    }
}

/// A live connection. Dropping it closes the socket once all sent requests are written.
///
/// Invariants: `versions` is set before any caller of [`Connection::open`] sees the connection; once `broken` is set
/// it stays so.
#[derive(Debug)]
pub(crate) struct Connection {
    address: String,
    options: ConnectionOptions,
    versions: OnceLock<HashMap<i16, (i16, i16)>>,
    next_correlation: AtomicI32,
    sender: mpsc::Sender<Outgoing>,
    /// A permit is taken for each request that is written and not answered.
    in_flight: Arc<Semaphore>,
    broken: Arc<AtomicBool>,
    /// Since when the server is known not to answer.
    silent: Arc<OnceLock<Instant>>,
    writing: AbortHandle,
    reading: AbortHandle,
}

impl Drop for Connection {
    /// Each caller that waits for an answer holds the connection, so no answer is needed any more. Requests that are
    /// not written yet are written, unless the connection is broken, where writing could block for ever.
    fn drop(&mut self) {
        self.reading.abort();
        if self.is_broken() {
            self.writing.abort();
        }
    }
}

impl Connection {
    /// Connects and asks for the API versions of the server.
    pub(crate) async fn open(address: &str, options: &ConnectionOptions) -> Result<Arc<Self>, ClientError> {
        let connect_error = |source: io::Error| ClientError::Connect {
            address: address.to_owned(),
            source: Arc::new(source),
        };
        let stream = socket::connect(address, options.connect_timeout).await.map_err(connect_error)?;
        stream.set_nodelay(true).map_err(connect_error)?;
        options.traffic.connected();
        let connection = Arc::new(Self::over(stream, address, options));
        let versions = connection.ask_versions().await?;
        connection.versions.get_or_init(|| versions);
        Ok(connection)
    }

    fn over(stream: TcpStream, address: &str, options: &ConnectionOptions) -> Self {
        let (reader, writer) = stream.into_split();
        let (sender, outgoing) = mpsc::channel(SEND_QUEUE.max(options.in_flight_max));
        let (expect, mut expected) = mpsc::channel(options.in_flight_max);
        let in_flight = Arc::new(Semaphore::new(options.in_flight_max));
        let broken = Arc::new(AtomicBool::new(false));
        let traffic = || Arc::clone(&options.traffic);
        let expectation = Expectation { expect, broken: Arc::clone(&broken) };
        let writing = write_requests(writer, outgoing, expectation, Arc::clone(&in_flight), traffic());
        let writing = tokio::spawn(writing).abort_handle();
        let silent = Arc::new(OnceLock::new());
        let (ended, writer, traffic) = (Arc::clone(&broken), writing.clone(), traffic());
        let is_silent = Arc::clone(&silent);
        let reading = tokio::spawn(async move {
            let unanswered = read_answers(reader, &mut expected, &is_silent, &traffic).await;
            // Before the waiting callers are woken, so that their retries take another connection.
            ended.store(true, Ordering::Release);
            drop((unanswered, expected));
            // The writer task may block on a server that does not read, and with it the unwritten requests.
            writer.abort();
        });
        let reading = reading.abort_handle();
        Self {
            address: address.to_owned(),
            options: options.clone(),
            versions: OnceLock::new(),
            next_correlation: AtomicI32::new(0),
            sender,
            in_flight,
            broken,
            silent,
            writing,
            reading,
        }
    }

    /// Starts with version 3; a server that does not know it answers in version 0 with its own versions.
    async fn ask_versions(self: &Arc<Self>) -> Result<HashMap<i16, (i16, i16)>, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "riverrun".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let limits = CallLimits::default();
        let frame = self.hand_over(&request, 3, limits).await?.wait().await?;
        let answer =
            frame.decode::<ApiVersionsRequest<'_>>().or_else(|error| decode_oldest(&frame, error))?;
        if answer.error_code != ErrorCode::UNSUPPORTED_VERSION.0 {
            ClientError::check(answer.error_code, None)?;
            return Ok(version_map(&answer));
        }
        let frame = self.hand_over(&request, 0, limits).await?.wait().await?;
        let answer = frame.decode::<ApiVersionsRequest<'_>>()?;
        ClientError::check(answer.error_code, None)?;
        Ok(version_map(&answer))
    }

    /// True if the connection can no longer be used.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire) || self.sender.is_closed()
    }

    /// Since when the server is known not to answer.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.silent.get().copied()
    }

    /// Requests that are neither answered nor, without an answer, written.
    pub(crate) fn unanswered(&self) -> usize {
        let waiting = self.sender.max_capacity() - self.sender.capacity();
        waiting + (self.options.in_flight_max - self.in_flight.available_permits())
    }

    /// The newest version of a request that both sides support.
    pub(crate) fn version_of(&self, api: ApiKey) -> Result<i16, ClientError> {
        let unsupported = || ClientError::Unsupported { address: self.address.clone(), api };
        let versions = self.versions.get().ok_or_else(unsupported)?;
        let &(min, max) = versions.get(&(api as i16)).ok_or_else(unsupported)?;
        let ours = api.codec_versions();
        let newest = max.min(*ours.end());
        if newest < min.max(*ours.start()) { Err(unsupported()) } else { Ok(newest) }
    }

    /// Sends a request in the newest common version within the limits, and waits for its answer.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: &dyn AnyRequest,
        limits: CallLimits,
    ) -> Result<ResponseFrame, ClientError> {
        let version = self.version_of(request.key())?.min(limits.version_max);
        self.hand_over(request, version, limits).await?.wait().await
    }

    /// Sends a request without waiting, so that requests leave in the order of these calls; the caller awaits the
    /// answer separately. Fails if very many requests wait to be written. `records` are inserted where the request
    /// has `Records::External`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: &dyn AnyRequest,
        records: Vec<Bytes>,
    ) -> Result<PendingAnswer, ClientError> {
        let api = request.key();
        let version = self.version_of(api)?;
        let patience = self.options.request_timeout;
        let (outgoing, answer) = self.outgoing(request, version, records, patience)?;
        self.queue_now(outgoing)?;
        Ok(self.pending(api, version, answer, patience))
    }

    /// The same for a request without an answer.
    pub(crate) fn begin_unanswered(
        self: &Arc<Self>,
        request: &dyn AnyRequest,
        records: Vec<Bytes>,
    ) -> Result<PendingWrite, ClientError> {
        let api = request.key();
        let version = self.version_of(api)?;
        let frame = request.frame(version, self.correlation(), &self.options.client_id)?;
        let (sent, written) = oneshot::channel();
        self.queue_now(Outgoing { frame, records, asked: None, written: Some(sent) })?;
        let deadline = Instant::now() + self.options.request_timeout;
        Ok(PendingWrite { connection: Arc::clone(self), api, written, deadline })
    }

    async fn hand_over(
        self: &Arc<Self>,
        request: &dyn AnyRequest,
        version: i16,
        limits: CallLimits,
    ) -> Result<PendingAnswer, ClientError> {
        let patience = self.options.request_timeout.min(limits.useful).saturating_add(limits.server_wait);
        let (outgoing, answer) = self.outgoing(request, version, Vec::new(), patience)?;
        self.queue(request.key(), outgoing, patience).await?;
        Ok(self.pending(request.key(), version, answer, patience))
    }

    fn outgoing(
        &self,
        request: &dyn AnyRequest,
        version: i16,
        records: Vec<Bytes>,
        patience: Duration,
    ) -> Result<(Outgoing, oneshot::Receiver<Bytes>), ClientError> {
        let correlation = self.correlation();
        let frame = request.frame(version, correlation, &self.options.client_id)?;
        let (reply, answer) = oneshot::channel();
        let asked = Some(Asked { correlation, reply, patience });
        Ok((Outgoing { frame, records, asked, written: None }, answer))
    }

    fn pending(
        self: &Arc<Self>,
        api: ApiKey,
        version: i16,
        answer: oneshot::Receiver<Bytes>,
        patience: Duration,
    ) -> PendingAnswer {
        let deadline = Instant::now() + patience;
        PendingAnswer { connection: Arc::clone(self), api, version, answer, patience, deadline }
    }

    fn queue_now(&self, outgoing: Outgoing) -> Result<(), ClientError> {
        self.sender.try_send(outgoing).map_err(|error| match error {
            TrySendError::Closed(_) => self.lost("it could not be written to"),
            TrySendError::Full(_) => ClientError::Blocked {
                after: Duration::ZERO,
                what: format!("room for another request to {}", self.address),
                last: None,
            },
        })
    }

    /// Waits for a place in the queue. A timeout here is no verdict on the server: it may answer one request after
    /// the other, and the request whose answer is late ends the connection.
    async fn queue(&self, api: ApiKey, outgoing: Outgoing, patience: Duration) -> Result<(), ClientError> {
        let queued =
            timeout(patience, self.sender.send(outgoing)).await.map_err(|_| self.late(api, patience))?;
        queued.map_err(|_| self.lost("it could not be written to"))
    }

    fn correlation(&self) -> i32 {
        self.next_correlation.fetch_add(1, Ordering::Relaxed) & i32::MAX
    }

    /// Ends the connection, because a request was not answered, or not even read, in time.
    fn give_up(&self, api: ApiKey, after: Duration) -> ClientError {
        self.silent.get_or_init(Instant::now);
        self.broken.store(true, Ordering::Release);
        self.late(api, after)
    }

    fn late(&self, api: ApiKey, after: Duration) -> ClientError {
        ClientError::Timeout { address: self.address.clone(), api, after }
    }

    fn lost(&self, reason: &str) -> ClientError {
        ClientError::Disconnected { address: self.address.clone(), reason: reason.to_owned() }
    }
}

fn decode_oldest(frame: &ResponseFrame, error: ClientError) -> Result<ApiVersionsResponse<'_>, ClientError> {
    decode_response::<ApiVersionsRequest<'_>>(&frame.bytes, 0).map(|(_, answer)| answer).map_err(|_| error)
}

fn version_map(answer: &ApiVersionsResponse<'_>) -> HashMap<i16, (i16, i16)> {
    answer.api_keys.iter().map(|range| (range.api_key, (range.min_version, range.max_version))).collect()
}

/// The queue by which the writer task announces expected answers to the reader task.
struct Expectation {
    expect: mpsc::Sender<Expected>,
    broken: Arc<AtomicBool>,
}

impl Expectation {
    /// Announces an expected answer. Returns whether its request should be written. If the reader task has ended
    /// without a failure, no caller holds the connection any more: the sent requests are written all the same, such
    /// as a `LeaveGroup` whose answer is not awaited.
    async fn announce(&self, asked: Asked, permit: OwnedSemaphorePermit) -> bool {
        let announced = self.expect.send(Expected { asked, _permit: permit }).await;
        announced.is_ok() || !self.broken.load(Ordering::Acquire)
    }
}

async fn write_requests(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
    expectation: Expectation,
    in_flight: Arc<Semaphore>,
    traffic: Arc<Traffic>,
) {
    let mut next = None;
    let (mut parts, mut told) = (VecDeque::new(), Vec::<oneshot::Sender<()>>::new());
    while let Some(first) = or_else(next.take(), outgoing.recv()).await {
        // A client with too many requests in flight waits here.
        let permit = match first.asked {
            Some(_) => Arc::clone(&in_flight).acquire_owned().await.ok(),
            None => None,
        };
        let mut leaving = Some((first, permit));
        let (mut requests, mut bytes) = (0, 0);
        while let Some((Outgoing { frame, records, asked, written }, permit)) = leaving.take() {
            if let (Some(asked), Some(permit)) = (asked, permit)
                && !expectation.announce(asked, permit).await
            {
                return;
            }
            told.extend(written);
            requests += 1;
            bytes += frame.bytes.len() + records.iter().map(Bytes::len).sum::<usize>();
            push_frame(&mut parts, frame, records);
            // Requests that already wait are written with it.
            let Ok(another) = outgoing.try_recv() else { break };
            let permit = another.asked.as_ref().map(|_| Arc::clone(&in_flight).try_acquire_owned());
            match permit.transpose() {
                Ok(permit) => leaving = Some((another, permit)),
                Err(_) => next = Some(another),
            }
        }
        if write_all(&mut writer, &mut parts).await.is_err() {
            return;
        }
        traffic.sent(requests, bytes);
        for written in told.drain(..) {
            // The sender of the request may have stopped waiting.
            let _ = written.send(());
        }
    }
}

async fn or_else<T>(known: Option<T>, other: impl Future<Output = Option<T>>) -> Option<T> {
    if known.is_some() { known } else { other.await }
}

/// The parts of a frame: records are written without a copy.
fn push_frame(parts: &mut VecDeque<Bytes>, frame: Frame, records: Vec<Bytes>) {
    let mut rest = frame.bytes.freeze();
    let mut taken = 0;
    for (splice, records) in frame.splices.iter().zip(records) {
        parts.push_back(rest.split_to(splice.position - taken));
        taken = splice.position;
        parts.push_back(records);
    }
    parts.push_back(rest);
}

/// Writes all parts in as few system calls as possible.
async fn write_all(writer: &mut (impl AsyncWrite + Unpin), parts: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !parts.is_empty() {
        let mut slices = [IoSlice::new(&[]); VECTOR_PARTS];
        let count = parts.len().min(VECTOR_PARTS);
        for (slice, part) in slices.iter_mut().zip(&*parts) {
            *slice = IoSlice::new(part);
        }
        let written = writer.write_vectored(&slices[..count]).await?;
        if written == 0 && parts.iter().any(|part| !part.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        drop_written(parts, written);
    }
    Ok(())
}

/// Removes written bytes, and empty parts.
fn drop_written(parts: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(part) = parts.front_mut() {
        if written < part.len() {
            part.advance(written);
            return;
        }
        written -= part.len();
        parts.pop_front();
    }
}

/// Passes answers to the waiting callers until the connection fails or is closed. Returns the request whose answer
/// did not come. The time for an answer begins when the answer before it has come: while a server answers at all,
/// later requests can be awaited.
async fn read_answers(
    mut reader: impl AsyncRead + Unpin,
    expected: &mut mpsc::Receiver<Expected>,
    silent: &OnceLock<Instant>,
    traffic: &Traffic,
) -> Option<Expected> {
    let mut ahead = BytesMut::with_capacity(AHEAD_BYTES);
    while let Some(next) = next_expected(&mut reader, expected, &mut ahead).await {
        let asked = &next.asked;
        let patience = asked.patience.saturating_add(asked.patience / PATIENCE_PART);
        match timeout(patience, read_answer(&mut reader, &mut ahead)).await {
            Ok(Ok(bytes)) if bytes.get(..4) == Some(&asked.correlation.to_be_bytes()) => {
                traffic.received(LENGTH_BYTES + bytes.len());
                // The caller may have stopped waiting; no other needs the answer.
                let _ = next.asked.reply.send(bytes);
            }
            Ok(_) => return Some(next),
            Err(_) => {
                silent.get_or_init(Instant::now);
                return Some(next);
            }
        }
    }
    None
}

/// The request whose answer comes next. `None` when the connection ends: it has no more users, the server has closed
/// it, or the server has sent an unexpected answer.
async fn next_expected(
    reader: &mut (impl AsyncRead + Unpin),
    expected: &mut mpsc::Receiver<Expected>,
    ahead: &mut BytesMut,
) -> Option<Expected> {
    tokio::select! {
        biased;
        next = expected.recv() => next,
        read = reader.read_buf(ahead) => match read {
            // A request is announced before it is written, so the request of this answer must be in the queue by now:
            // it may have been announced, written and answered after the queue was checked.
            Ok(1..) => expected.try_recv().ok(),
            _ => None,
        },
    }
}

/// Reads an answer into memory of its own and of exactly its length, so that slices of it keep nothing else alive.
/// `ahead` holds bytes that were read beyond the answer before.
async fn read_answer(reader: &mut (impl AsyncRead + Unpin), ahead: &mut BytesMut) -> io::Result<Bytes> {
    while ahead.len() < LENGTH_BYTES {
        ahead.reserve(AHEAD_BYTES - ahead.len());
        read_some(reader, ahead).await?;
    }
    let length = ahead.get_u32() as usize;
    if !(4..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = BytesMut::with_capacity(length);
    answer.extend_from_slice(&ahead.split_to(length.min(ahead.len())));
    while answer.len() < length {
        let left = length - answer.len();
        read_some(reader, &mut (&mut answer).limit(left)).await?;
    }
    Ok(answer.freeze())
}

async fn read_some(reader: &mut (impl AsyncRead + Unpin), buffer: &mut impl BufMut) -> io::Result<()> {
    match reader.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
