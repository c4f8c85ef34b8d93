//! One connection: frames in, requests started in order, responses out in the same order.
//!
//! Requests of one connection are pipelined: each is polled once as it arrives, which is when a handler does
//! what must happen in order (append, state change), and its response waits for those before it. Nothing is
//! read while responses that nobody takes pile up: a client that does not read is slowed, not buffered.
//! Refuses frames outside of their bounds and clients that neither finish a frame nor stay active.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::stream::{FuturesOrdered, StreamExt as _};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::budget::{Charge, MemoryBudget};
use super::frame::{FrameBuffer, FrameLengthError};
use super::response::{Outcome, ResponseFrame};
use super::send::Outbox;
use crate::context::ConnectionInfo;
use crate::metrics::TrafficMetrics;

/// Unsent response bytes of one connection after which it starts no further request.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;
/// How often deadlines are looked at, and the age at which an unused read buffer is given back.
const TICK: Duration = Duration::from_secs(2);

/// What a connection needs from its server.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    /// Bytes of a frame at most.
    pub(crate) frame_bytes_max: usize,
    /// Requests that may be unanswered at once.
    pub(crate) requests_max: usize,
    /// From a frame's first byte to its last, at most.
    pub(crate) frame_time_max: Duration,
    /// Without a byte in either direction, at most.
    pub(crate) idle_time_max: Duration,
    /// Shared by all connections.
    pub(crate) requests: Arc<MemoryBudget>,
    /// Shared by all connections.
    pub(crate) responses: Arc<MemoryBudget>,
}

/// Why a connection ended other than by its client's wish.
#[derive(Debug, Error)]
pub(crate) enum Closed {
    #[error(transparent)]
    FrameLength(#[from] FrameLengthError),
    #[error("{0}")]
    BadRequest(String),
    #[error("a frame was not complete after {0:?}")]
    FrameTimeout(Duration),
    #[error("nothing was sent or received for {0:?}")]
    Idle(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Response = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Turns a frame into the future of its outcome.
pub(crate) trait Dispatch: Send + Sync {
    fn dispatch(&self, connection: &Arc<ConnectionInfo>, frame: BytesMut, charge: Charge) -> Response;
}

/// Invariants: responses leave in the order in which their requests came; `waiting` is at most
/// `requests_max` long; `frame_since` is set exactly while part of a frame has arrived.
pub(crate) struct Connection<'a, D> {
    stream: TcpStream,
    info: Arc<ConnectionInfo>,
    limits: ConnectionLimits,
    dispatch: &'a D,
    traffic: &'a TrafficMetrics,
    frames: FrameBuffer,
    large_frame: Option<Charge>,
    waiting: FuturesOrdered<Response>,
    outbox: Outbox,
    frame_since: Option<Instant>,
    active_at: Instant,
}

/// What [`Connection::wait`] saw.
enum Event {
    Readable,
    Answered(Outcome),
    Tick,
}

impl<'a, D: Dispatch> Connection<'a, D> {
    pub(crate) fn new(
        stream: TcpStream,
        info: Arc<ConnectionInfo>,
        limits: ConnectionLimits,
        dispatch: &'a D,
        traffic: &'a TrafficMetrics,
    ) -> Self {
        Self {
            frames: FrameBuffer::new(limits.frame_bytes_max),
            stream,
            info,
            limits,
            dispatch,
            traffic,
            large_frame: None,
            waiting: FuturesOrdered::new(),
            outbox: Outbox::default(),
            frame_since: None,
            active_at: Instant::now(),
        }
    }

    /// Serves until the client closes (`Ok`) or the connection has to be closed. Safe to drop at any await.
    pub(crate) async fn serve(mut self) -> Result<(), Closed> {
        let mut tick = interval_at(Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let stalled = self.start_requests().await?;
            if !self.outbox.is_empty() {
                self.send_all().await?;
                continue;
            }
            let may_read = !stalled && self.admit_large().await;
            let event = tokio::select! {
                biased;
                Some(outcome) = self.waiting.next(), if !self.waiting.is_empty() => Event::Answered(outcome),
                ready = self.stream.readable(), if may_read => { ready?; Event::Readable }
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Answered(outcome) => self.settle(outcome)?,
                Event::Readable if self.read()? => {}
                Event::Readable => return Ok(()),
                Event::Tick => self.check_deadlines()?,
            }
        }
    }

    /// Starts the requests that have arrived whole. True if some are left because too much is unanswered.
    async fn start_requests(&mut self) -> Result<bool, Closed> {
        while self.waiting.len() < self.limits.requests_max && self.outbox.len() < UNSENT_BYTES_MAX {
            let Some(bytes) = self.frames.whole_frame_bytes()? else {
                self.note_progress();
                return Ok(false);
            };
            let charge = match self.large_frame.take() {
                Some(charge) => Some(charge),
                None => self.admit(bytes).await,
            };
            let (Some(charge), Some(frame)) = (charge, self.frames.take_frame()) else { return Ok(true) };
            self.frame_since = None;
            self.start(frame, charge).await?;
        }
        Ok(true)
    }

    /// Polls a request for the first time; one that is finished at once costs no further wake-up.
    async fn start(&mut self, frame: BytesMut, charge: Charge) -> Result<(), Closed> {
        let mut response = self.dispatch.dispatch(&self.info, frame, charge);
        // Polled once here and now, whatever comes of it.
        match std::future::poll_fn(|context| Poll::Ready(response.as_mut().poll(context))).await {
            Poll::Ready(outcome) if self.waiting.is_empty() => self.settle(outcome)?,
            Poll::Ready(outcome) => self.waiting.push_back(Box::pin(std::future::ready(outcome))),
            Poll::Pending => self.waiting.push_back(response),
        }
        Ok(())
    }

    /// Charges a request. Waits only while this connection has nothing unanswered or unsent: that holds charges
    /// itself, and only this task can move it on.
    async fn admit(&mut self, bytes: usize) -> Option<Charge> {
        let limits = &self.limits;
        if self.waiting.is_empty() && self.outbox.is_empty() {
            // Others' unsent responses first: a request that is admitted adds to them.
            drop(limits.responses.charge(0).await);
            return Some(limits.requests.charge(bytes).await);
        }
        limits.responses.try_charge(0)?;
        limits.requests.try_charge(bytes)
    }

    /// Charges the large frame that has begun to arrive, if there is one. False if it has to wait.
    async fn admit_large(&mut self) -> bool {
        if let Some(bytes) = self.frames.large_pending_bytes()
            && self.large_frame.is_none()
        {
            self.large_frame = self.admit(bytes).await;
            return self.large_frame.is_some();
        }
        true
    }

    fn note_progress(&mut self) {
        if !self.frames.mid_frame() {
            self.frame_since = None;
        } else if self.frame_since.is_none() {
            self.frame_since = Some(Instant::now());
        }
    }

    /// Takes the outcome whose turn it is.
    fn settle(&mut self, outcome: Outcome) -> Result<(), Closed> {
        match outcome {
            Outcome::Respond(frame) => self.enqueue(frame),
            Outcome::Silent => {}
            Outcome::Close(why) => return Err(Closed::BadRequest(why)),
        }
        Ok(())
    }

    fn enqueue(&mut self, mut frame: ResponseFrame) {
        frame.charge = Some(self.limits.responses.force_charge(frame.memory_bytes()));
        self.outbox.push(frame);
    }

    async fn send_all(&mut self) -> Result<(), Closed> {
        let idle = self.limits.idle_time_max;
        while !self.outbox.is_empty() {
            let sent = timeout(idle, self.outbox.send_some(&self.stream))
                .await
                .map_err(|_| Closed::Idle(idle))??;
            self.traffic.sent(sent);
        }
        self.active_at = Instant::now();
        Ok(())
    }

    /// Reads what has arrived; false at the client's end of stream.
    fn read(&mut self) -> Result<bool, Closed> {
        match self.stream.try_read_buf(self.frames.space()) {
            Ok(0) => Ok(false),
            Ok(read) => {
                self.traffic.received(read);
                self.active_at = Instant::now();
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn check_deadlines(&mut self) -> Result<(), Closed> {
        let now = Instant::now();
        let frame_max = self.limits.frame_time_max;
        if self.frame_since.is_some_and(|since| now.duration_since(since) > frame_max) {
            return Err(Closed::FrameTimeout(frame_max));
        }
        let idle = now.duration_since(self.active_at);
        if idle > self.limits.idle_time_max && self.waiting.is_empty() {
            return Err(Closed::Idle(self.limits.idle_time_max));
        }
        if idle > TICK {
            self.frames.release();
        }
        Ok(())
    }
}
