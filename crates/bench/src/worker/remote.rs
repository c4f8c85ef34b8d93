//! A worker in another process or on another machine: the same orders, over a connection.
//!
//! Owns the protocol: one JSON document per line, a request and its answer in turn. The first request has the runner's
//! version, which must be the worker's. Both sides bound the lines that they read, and a worker bounds its wait for a
//! first request.
//!
//! A worker sends load to any server that its peer names: it belongs on an address that only the runner can reach. When
//! the connection ends, so does its load: at once if it is closed, and after a minute if the other machine or the
//! network has failed.

use std::time::Duration;

use riverrun_measure::histogram::Latencies;
use riverrun_measure::process::{ProcessUsage, ProcessWatch};
use rustix::net::sockopt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::meter::{Counts, Taken};
use super::{HeldByGroup, Load, LoadShare, Order};
use crate::runner::RunError;

/// Most bytes of one line.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longest wait for an answer: setting up thousands of clients takes time. Beyond it a worker is taken for lost.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(5);
/// A worker that lives accepts a connection at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A runner sends a request as soon as it is connected. A peer that does not blocks others no longer than this.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept; its cause, such as too many open files, may pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The system ends a connection if the other system has not answered for this long. A runner itself may be silent for
/// longer, while it waits for another worker.
const GONE_AFTER: Duration = Duration::from_mins(1);
/// Interval of keepalive probes on a silent connection.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// Version of both sides. They must agree: the messages have no compatible older form.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Hello { version: String },
    Prepare(Box<LoadShare>),
    Order(Order),
    Take,
    Held,
    Usage,
    Finish,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done,
    Taken(Box<WireTaken>),
    Held(HeldByGroup),
    Usage(WorkerUsage),
    Failed(String),
}

/// Use of a worker's process so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerUsage {
    /// Its id there.
    pub(crate) pid: u32,
    /// Its use of processor and memory.
    pub(crate) used: ProcessUsage,
}

impl WorkerUsage {
    fn own() -> std::io::Result<Self> {
        let own = ProcessWatch::own()?;
        Ok(Self { pid: own.pid(), used: own.usage()? })
    }
}

/// A [`Taken`] in the form of the protocol.
#[derive(Debug, Default, Serialize, Deserialize)]
struct WireTaken {
    counts: Counts,
    publish: WireLatencies,
    delay: WireLatencies,
    end_to_end: WireLatencies,
    undelivered: WireLatencies,
    poll: WireLatencies,
    error: Option<String>,
}

/// Latencies as pairs of value and count. Only the greatest is exact, as in the histogram itself.
#[derive(Debug, Default, Serialize, Deserialize)]
struct WireLatencies {
    counts: Vec<(u64, u64)>,
    max_us: u64,
}

impl From<&Latencies> for WireLatencies {
    fn from(latencies: &Latencies) -> Self {
        let recorded = latencies.histogram().iter_recorded();
        let counts = recorded.map(|step| (step.value_iterated_to(), step.count_since_last_iteration()));
        Self { counts: counts.collect(), max_us: latencies.max_us() }
    }
}

impl From<WireLatencies> for Latencies {
    fn from(wire: WireLatencies) -> Self {
        let mut latencies = Self::new();
        for (value_us, count) in wire.counts {
            latencies.record_many_us(value_us.min(wire.max_us), count);
        }
        latencies
    }
}

impl From<&Taken> for WireTaken {
    fn from(taken: &Taken) -> Self {
        Self {
            counts: taken.counts,
            publish: (&taken.publish).into(),
            delay: (&taken.delay).into(),
            end_to_end: (&taken.end_to_end).into(),
            undelivered: (&taken.undelivered).into(),
            poll: (&taken.poll).into(),
            error: taken.error.clone(),
        }
    }
}

impl From<WireTaken> for Taken {
    fn from(wire: WireTaken) -> Self {
        Self {
            counts: wire.counts,
            publish: wire.publish.into(),
            delay: wire.delay.into(),
            end_to_end: wire.end_to_end.into(),
            undelivered: wire.undelivered.into(),
            poll: wire.poll.into(),
            error: wire.error,
        }
    }
}

/// Invariants: `line` has the beginning of a message that was not read completely.
#[derive(Debug)]
struct Lines {
    read: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
    write: OwnedWriteHalf,
}

impl Lines {
    fn new(stream: TcpStream) -> Self {
        // Best effort: without it an answer may come some milliseconds later.
        let _ = stream.set_nodelay(true);
        if let Err(error) = notice_dead_peer(&stream) {
            tracing::warn!(%error, "cannot set keepalive: a peer that fails silently will not be noticed");
        }
        let (read, write) = stream.into_split();
        Self { read: BufReader::new(read), line: Vec::new(), write }
    }

    async fn send(&mut self, message: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.write.write_all(&line).await.map_err(|error| error.to_string())
    }

    /// The next message; `None` if the other side has closed the connection. May be dropped while it waits, without
    /// loss.
    async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let mut bounded = (&mut self.read).take(LINE_BYTES_MAX.saturating_sub(self.line.len() as u64));
        bounded.read_until(b'\n', &mut self.line).await.map_err(|error| error.to_string())?;
        let mut line = std::mem::take(&mut self.line);
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => serde_json::from_slice(&line).map(Some).map_err(|error| error.to_string()),
            Some(_) => Err("the line was cut off, or is longer than any message".to_owned()),
        }
    }
}

/// The user timeout bounds the probes, and the wait for acks of sent data, during which there are no probes.
fn notice_dead_peer(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(GONE_AFTER.as_millis()).unwrap_or(u32::MAX))
}

/// Serves one runner after the other, until the future is dropped.
pub async fn serve(listener: TcpListener) {
    serve_within(listener, FIRST_REQUEST_TIMEOUT).await;
}

/// As [`serve`], with a bound on the wait for the first request.
async fn serve_within(listener: TcpListener, patience: Duration) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        tracing::info!(%peer, "working");
        let mut lines = Lines::new(stream);
        let mut load = None;
        if let Err(error) = work(&mut lines, &mut load, patience).await {
            tracing::warn!(%peer, error, "the connection to the runner failed");
        }
        if let Some(load) = load {
            Load::finish(load).await;
        }
        tracing::info!(%peer, "done");
    }
}

/// The next request. An unreadable one is answered, so that its sender learns the reason.
async fn next_request(lines: &mut Lines) -> Result<Option<Request>, String> {
    let read = lines.receive().await;
    if let Err(reason) = &read {
        // Best effort: the peer may be gone.
        let _ = lines.send(&Answer::Failed(format!("the request cannot be read: {reason}"))).await;
    }
    read
}

async fn work(lines: &mut Lines, load: &mut Option<Load>, patience: Duration) -> Result<(), String> {
    let first = timeout(patience, next_request(lines)).await;
    let mut next = first.map_err(|_| "it sent no request in time".to_owned())??;
    let mut is_known = false;
    while let Some(request) = next {
        let answer = match (request, &mut *load) {
            (Request::Hello { version }, _) => {
                is_known = version == VERSION;
                if is_known { Answer::Done } else { Answer::Failed(other_version(&version)) }
            }
            _ if !is_known => Answer::Failed("the runner did not send its version".to_owned()),
            (Request::Prepare(share), None) => match Load::prepare(*share).await {
                Ok(prepared) => {
                    *load = Some(prepared);
                    Answer::Done
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
            (Request::Order(order), Some(load)) => {
                load.order(order).await;
                Answer::Done
            }
            (Request::Take, Some(load)) => Answer::Taken(Box::new((&load.take()).into())),
            (Request::Held, Some(load)) => Answer::Held(load.held()),
            (Request::Usage, Some(_)) => match WorkerUsage::own() {
                Ok(usage) => Answer::Usage(usage),
                Err(error) => Answer::Failed(error.to_string()),
            },
            (Request::Finish, Some(_)) => {
                if let Some(load) = load.take() {
                    load.finish().await;
                }
                Answer::Done
            }
            (Request::Prepare(_), Some(_)) => Answer::Failed("it has a load already".to_owned()),
            (_, None) => Answer::Failed("it has no load".to_owned()),
        };
        lines.send(&answer).await?;
        next = next_request(lines).await?;
    }
    Ok(())
}

fn other_version(runner: &str) -> String {
    format!("it has version {VERSION}, and the runner {runner}: both must have the same version")
}

/// A worker in another process, as its runner sees it.
///
/// Invariants: `unanswered` requests have no answer yet; the futures of all but the last of them were dropped.
#[derive(Debug)]
pub(crate) struct RemoteWorker {
    address: String,
    lines: Lines,
    unanswered: u32,
}

impl RemoteWorker {
    /// Connects.
    pub(crate) async fn connect(address: &str) -> Result<TcpStream, RunError> {
        let lost = |message: String| RunError::Worker { address: address.to_owned(), message };
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        connected
            .map_err(|_| lost("it cannot be reached".to_owned()))?
            .map_err(|error| lost(format!("it cannot be reached: {error}")))
    }

    /// Connects, and makes the worker set up its part.
    pub(crate) async fn prepare(address: &str, share: LoadShare) -> Result<Self, RunError> {
        let stream = Self::connect(address).await?;
        let mut worker = Self { address: address.to_owned(), lines: Lines::new(stream), unanswered: 0 };
        worker.ask_done(&Request::Hello { version: VERSION.to_owned() }).await?;
        worker.ask_done(&Request::Prepare(Box::new(share))).await?;
        Ok(worker)
    }

    /// Sends a request that is answered without a result.
    async fn ask_done(&mut self, request: &Request) -> Result<(), RunError> {
        match self.ask(request).await? {
            Answer::Done => Ok(()),
            answer => Err(self.strange(&answer)),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Answer, RunError> {
        let talk = async {
            self.unanswered += 1;
            self.lines.send(request).await?;
            loop {
                let answer = self.lines.receive::<Answer>().await?;
                let answer = answer.ok_or_else(|| "it has closed the connection".to_owned())?;
                self.unanswered -= 1;
                if self.unanswered == 0 {
                    return Ok(answer);
                }
            }
        };
        let answered = timeout(ANSWER_TIMEOUT, talk).await;
        let message = match answered {
            Ok(Ok(Answer::Failed(message)) | Err(message)) => message,
            Ok(Ok(answer)) => return Ok(answer),
            Err(_) => "it does not answer".to_owned(),
        };
        Err(RunError::Worker { address: self.address.clone(), message })
    }

    fn strange(&self, answer: &Answer) -> RunError {
        let message = format!("it gave an answer to another request: {answer:?}");
        RunError::Worker { address: self.address.clone(), message }
    }

    pub(crate) async fn order(&mut self, order: Order) -> Result<(), RunError> {
        self.ask_done(&Request::Order(order)).await
    }

    pub(crate) async fn take(&mut self) -> Result<Taken, RunError> {
        match self.ask(&Request::Take).await? {
            Answer::Taken(taken) => Ok((*taken).into()),
            answer => Err(self.strange(&answer)),
        }
    }

    /// Partitions of each group's members on this worker.
    pub(crate) async fn held(&mut self) -> Result<HeldByGroup, RunError> {
        match self.ask(&Request::Held).await? {
            Answer::Held(held) => Ok(held),
            answer => Err(self.strange(&answer)),
        }
    }

    /// Its address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Use of its process so far.
    pub(crate) async fn usage(&mut self) -> Result<WorkerUsage, RunError> {
        match self.ask(&Request::Usage).await? {
            Answer::Usage(usage) => Ok(usage),
            answer => Err(self.strange(&answer)),
        }
    }

    pub(crate) async fn finish(mut self) -> Result<(), RunError> {
        self.ask(&Request::Finish).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::tests::idle_share;
    use super::*;

    #[test]
    fn latencies_survive_their_encoding() {
        let mut taken = Taken::default();
        (1..5000_u64).for_each(|us| taken.publish.record_us(us * us));
        taken.end_to_end.record_many_us(123_456_789, 3);
        taken.undelivered.record_many_us(4_000, 2);
        taken.poll.record_many_us(7_000, 3);
        taken.counts.acked = 7;
        taken.error = Some("e".to_owned());
        let text = serde_json::to_string(&WireTaken::from(&taken)).expect("plain data");
        let back = Taken::from(serde_json::from_str::<WireTaken>(&text).expect("our own"));
        assert_eq!((back.counts, back.error), (taken.counts, taken.error));
        let pairs = [
            (&back.publish, &taken.publish),
            (&back.end_to_end, &taken.end_to_end),
            (&back.undelivered, &taken.undelivered),
            (&back.poll, &taken.poll),
        ];
        for (one, other) in pairs {
            assert_eq!((one.count(), one.max_us()), (other.count(), other.max_us()));
            for percentile in [50.0, 99.0, 99.99] {
                assert_eq!(one.percentile_us(percentile), other.percentile_us(percentile));
            }
        }
    }

    /// Runs a test beside a serving worker.
    async fn beside_a_worker(test: impl AsyncFnOnce(String)) {
        beside_one_of_patience(FIRST_REQUEST_TIMEOUT, test).await;
    }

    async fn beside_one_of_patience(patience: Duration, test: impl AsyncFnOnce(String)) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        tokio::select! {
            () = serve_within(listener, patience) => panic!("the worker ended"),
            () = test(address) => {}
        }
    }

    #[tokio::test]
    async fn worker_follows_orders_and_serves_the_next_runner() {
        beside_a_worker(async |address| {
            for _ in 0..2 {
                let mut worker = RemoteWorker::prepare(&address, idle_share()).await.expect("it works");
                worker.order(Order::PauseConsumers).await.expect("it does");
                assert_eq!(worker.take().await.expect("it answers").counts, Counts::default());
                assert_eq!(worker.held().await.expect("it answers"), HeldByGroup::new());
                let usage = worker.usage().await.expect("it answers");
                assert!(usage.pid == std::process::id() && usage.used.resident_bytes > 0, "{usage:?}");
                worker.finish().await.expect("it ends");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn answer_of_a_dropped_request_is_skipped() {
        beside_a_worker(async |address| {
            let mut worker = RemoteWorker::prepare(&address, idle_share()).await.expect("it works");
            for _ in 0..2 {
                assert!(worker.take().now_or_never().is_none(), "the answer takes a moment");
            }
            assert_eq!(worker.usage().await.expect("it answers").pid, std::process::id());
            worker.finish().await.expect("it ends");
        })
        .await;
    }

    #[tokio::test]
    async fn both_sides_enable_keepalive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (runner, worker) = tokio::join!(TcpStream::connect(address), listener.accept());
        for stream in [runner.expect("it listens"), worker.expect("one has connected").0] {
            let lines = Lines::new(stream);
            let socket: &TcpStream = lines.write.as_ref();
            assert!(sockopt::socket_keepalive(socket).expect("an option"));
            assert_eq!(sockopt::tcp_keepidle(socket).expect("an option"), PROBE_EVERY);
            assert_eq!(sockopt::tcp_keepintvl(socket).expect("an option"), PROBE_EVERY);
            assert_eq!(sockopt::tcp_user_timeout(socket).expect("an option"), 60_000);
        }
    }

    #[tokio::test]
    async fn foreign_message_ends_the_session_but_not_the_worker() {
        beside_a_worker(async |address| {
            let mut stranger = TcpStream::connect(&address).await.expect("it listens");
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it reads");
            let mut answer = String::new();
            // It may end with a reset, because not all that was sent was read.
            let _ = stranger.read_to_string(&mut answer).await;
            assert!(answer.contains("the request cannot be read") && answer.ends_with('\n'), "{answer}");
            RemoteWorker::prepare(&address, idle_share()).await.expect("it serves the next");
        })
        .await;
    }

    #[tokio::test]
    async fn runner_of_another_version_is_refused() {
        beside_a_worker(async |address| {
            for hello in [r#"{"Hello":{"version":"0.0.1"}}"#, r#""Take""#] {
                let mut runner = Lines::new(TcpStream::connect(&address).await.expect("it listens"));
                let hello: Request = serde_json::from_str(hello).expect("a request");
                let prepare = Request::Prepare(Box::new(idle_share()));
                for (request, reason) in [(&hello, "version"), (&prepare, "did not send its version")] {
                    runner.send(request).await.expect("it reads");
                    let answer = runner.receive().await.expect("it answers");
                    let Some(Answer::Failed(message)) = answer else { panic!("{answer:?}") };
                    assert!(message.contains(reason), "{message}");
                }
            }
            let message = other_version("0.0.1");
            assert!(message.contains(VERSION) && message.contains("0.0.1"), "{message}");
            RemoteWorker::prepare(&address, idle_share()).await.expect("it serves the next");
        })
        .await;
    }

    #[tokio::test]
    async fn silent_peer_blocks_others_for_a_bounded_time() {
        beside_one_of_patience(Duration::from_secs(2), async |address| {
            let silent = TcpStream::connect(&address).await.expect("it listens");
            let worker = RemoteWorker::prepare(&address, idle_share()).await.expect("it serves the next");
            worker.finish().await.expect("it ends");
            drop(silent);
        })
        .await;
    }
}
