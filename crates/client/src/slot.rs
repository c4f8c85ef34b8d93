//! The connection to one server for one lane: made on demand, and again when it is lost, with pauses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::connection::{Connection, ConnectionOptions};
use crate::error::ClientError;
use crate::retry::Pauses;

/// How long a server stays suspect after it could not be reached. If it is gone, the metadata of others shows it
/// meanwhile.
const SUSPECT_FOR: Duration = Duration::from_mins(1);

/// The connection to one server, or the state of making one.
///
/// Invariants: at most one connection is live; at most one is being made, by the holder of `connecting`, and not
/// before `next_at`.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The last connection. Locked only for a moment, so that it is always readable.
    made: Mutex<Option<Arc<Connection>>>,
    connecting: tokio::sync::Mutex<()>,
    attempts: Mutex<Attempts>,
}

#[derive(Debug)]
struct Attempts {
    pauses: Pauses,
    /// When the server may be tried next.
    next_at: Option<Instant>,
    /// When and how the last attempt failed, if it did.
    failed: Option<(Instant, ClientError)>,
}

impl Slot {
    pub(crate) fn new(pauses: Pauses) -> Self {
        let attempts = Attempts { pauses, next_at: None, failed: None };
        Self {
            made: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            attempts: Mutex::new(attempts),
        }
    }

    /// The connection, if it is live, without waiting for one.
    pub(crate) fn live(&self) -> Option<Arc<Connection>> {
        self.made().as_ref().filter(|connection| !connection.is_broken()).map(Arc::clone)
    }

    /// True if the server could not be reached just now, so that another should be asked.
    pub(crate) fn is_paused(&self) -> bool {
        let attempts = self.attempts();
        attempts.failed.is_some() && attempts.next_at.is_some_and(|at| at > Instant::now())
    }

    /// True if the server recently did not answer, or could not be reached.
    pub(crate) fn is_suspect(&self) -> bool {
        let silent_at = self.made().as_ref().and_then(|connection| connection.silent_since());
        let failed_at = self.attempts().failed.as_ref().map(|(at, _)| *at);
        silent_at.max(failed_at).is_some_and(|at| at.elapsed() < SUSPECT_FOR)
    }

    /// Connects after the pause, unless another task has done so meanwhile. Tasks that wait for the same attempt get
    /// its error.
    pub(crate) async fn connect(
        &self,
        address: &str,
        options: &ConnectionOptions,
    ) -> Result<Arc<Connection>, ClientError> {
        let asked_at = Instant::now();
        let _connecting = self.connecting.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let (next_at, failed) = {
            let attempts = self.attempts();
            (attempts.next_at, attempts.failed.clone())
        };
        if let Some((_, error)) = failed.filter(|(at, _)| *at > asked_at) {
            return Err(error);
        }
        if let Some(at) = next_at {
            sleep_until(at).await;
        }
        let opened = Connection::open(address, options).await;
        self.attempts().note(&opened);
        let connection = opened?;
        *self.made() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn made(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    /// A server that accepts connections only to close them is given pauses, too.
    fn note(&mut self, opened: &Result<Arc<Connection>, ClientError>) {
        let now = Instant::now();
        self.failed = opened.as_ref().err().map(|error| (now, error.clone()));
        let pause = if opened.is_ok() { self.pauses.succeed() } else { self.pauses.fail() };
        self.next_at = Some(now + pause);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use riverrun_protocol::{ApiKey, ApiVersionsResponse, encode_response};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::cluster::ClusterOptions;
    use crate::retry::Backoff;

    fn slot(first_ms: u64, max_ms: u64) -> Arc<Slot> {
        let mut options = ClusterOptions::new("a:1");
        options.reconnect_backoff = Duration::from_millis(first_ms);
        options.reconnect_backoff_max = Duration::from_millis(max_ms);
        Arc::new(Slot::new(Pauses::new(Backoff::of_reconnects(&options))))
    }

    fn options() -> ConnectionOptions {
        ConnectionOptions {
            client_id: "c".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
            in_flight_max: 5,
            traffic: Arc::default(),
        }
    }

    /// A server that closes accepted connections, and reports when it did.
    async fn closing_server() -> (String, tokio::sync::mpsc::Receiver<Instant>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (accepted, times) = tokio::sync::mpsc::channel(100);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
                if accepted.send(Instant::now()).await.is_err() {
                    return;
                }
            }
        });
        (address, times)
    }

    /// A server that accepts one connection, answers with its versions, and keeps it open.
    pub(crate) async fn greeting_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut frame = vec![0; stream.read_u32().await.expect("a length") as usize];
            stream.read_exact(&mut frame).await.expect("a request");
            let correlation = i32::from_be_bytes(frame[4..8].try_into().expect("four bytes"));
            let answer = ApiVersionsResponse::default();
            let frame = encode_response(ApiKey::ApiVersions, 3, correlation, &answer).expect("an answer");
            stream.write_all(&frame.bytes).await.expect("a reader");
            std::future::pending::<()>().await;
        });
        address
    }

    #[tokio::test]
    async fn a_live_connection_is_seen_whoever_else_looks_for_it() {
        let (address, slot) = (greeting_server().await, slot(1, 1));
        slot.connect(&address, &options()).await.expect("it is there");
        let _asking = slot.connecting.lock().await;
        let _looking = slot.live().expect("seen");
        assert!(slot.live().is_some());
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_tried_ever_less_often() {
        let (address, mut times) = closing_server().await;
        let slot = slot(40, 10_000);
        let mut last = Instant::now();
        for least_ms in [0, 32, 64, 128] {
            slot.connect(&address, &options()).await.expect_err("it closes");
            let at = times.recv().await.expect("an attempt");
            assert!(at - last >= Duration::from_millis(least_ms), "{:?} of {least_ms} ms", at - last);
            assert!(slot.is_paused());
            last = at;
        }
    }

    #[tokio::test]
    async fn all_waiters_of_an_attempt_get_its_error() {
        let (address, mut times) = closing_server().await;
        let slot = slot(1, 1);
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let (slot, address) = (Arc::clone(&slot), address.clone());
                async move { slot.connect(&address, &options()).await.expect_err("it closes") }
            })
            .collect();
        futures_util::future::join_all(waiting).await;
        times.recv().await.expect("an attempt");
        assert!(times.try_recv().is_err(), "there was a second one");
    }
}
