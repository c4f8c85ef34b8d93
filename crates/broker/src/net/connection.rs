//! One connection: frames in, requests started in order, responses out in the same order.
//!
//! Requests of one connection are pipelined: each is polled once as it arrives, which is when a handler does
//! what must happen in order (append, state change), and its response waits for those before it. All that arrived
//! together is started before any of it goes on, and what is answered then leaves with one write; but at the end of each
//! [turn](crate::flow::pace), so that a client that is gone is soon known to be, and nothing more is worked on for it. A client that
//! sends nothing more is answered what it has asked for, unless that takes long. While a request is worked
//! on aside, nothing that came after it is started, and it ends if the client leaves. Nothing is
//! read while responses that nobody takes pile up: a client that does not read is slowed, not buffered.
//! Refuses frames outside of their bounds and clients that neither finish a frame nor stay active.

use std::future::{pending, poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use futures_util::stream::{FuturesOrdered, StreamExt as _};
use riverrun_protocol::ApiKey;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::TcpStream;
use tokio::task::{block_in_place, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::crowd::Standing;
use super::frame::{FrameBuffer, FrameLengthError};
use super::read_coalescing::{GATHER_TIME_MAX, Gather};
use super::receive_mark;
use super::send::Outbox;
use crate::aside::Aside;
use crate::catch_up::CatchUp;
use crate::context::ConnectionInfo;
use crate::flow::budget::{Charge, MemoryBudget, Share};
use crate::flow::inflate_offload::{Inflating, InflatingLeave, Leave, RecordsWork, Slices};
use crate::flow::large_frames::Sender;
use crate::flow::pace::Pace;
use crate::flow::produce_backpressure::{Guest, NotNow, Places, ProduceGate};
use crate::flow::responses::{Account, Held, InLine, LOOK_PERIOD, ResponseMemory};
use crate::flow::source::Source;
use crate::flow::turns::give_way;
use crate::metrics::TrafficMetrics;
use crate::response::{Outcome, ResponseFrame};

/// Unsent response bytes of one connection after which it starts no further request.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;
/// Fetches of one connection that may wait for records before nothing that comes after them is started. A client has one for
/// each connection, and its answer comes before all others, so that Kafka starts nothing behind it.
const PARKED_FETCHES_MAX: usize = 16;
/// After once to twice this long, what a client has not taken shares no memory any more.
const SHARING_TIME: Duration = Duration::from_secs(1);
/// Bytes for which a frame has a millisecond more than the patience of its lane, to fill the memory that it was given
/// while others wait for some.
const ARRIVAL_BYTES_PER_MS: usize = 64 * 1024;
/// How long nothing may come of a large frame that was given memory, while others wait for some: longer than packets
/// travel around the world.
const QUIET_TIME_MAX: Duration = Duration::from_millis(250);
/// How often it is looked at whether it does.
const JUDGE_PERIOD: Duration = Duration::from_millis(50);
/// Bytes that one read takes at most while a client sends much at once.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// How long a client that sends nothing more may wait for the next answer. It may be gone, which only an answer would tell;
/// what waits for longer than most others are answered in waits for something to happen, as a fetch does.
const LEAVING_TIME: Duration = Duration::from_secs(1);
/// How often deadlines are looked at unless they are shorter, and the age at which an unused read buffer is given
/// back.
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
    pub(crate) responses: Arc<ResponseMemory>,
    /// Shared by all connections.
    pub(crate) catch_up: Arc<CatchUp>,
    /// What requests with records pass; shared by all connections.
    pub(crate) produce_gate: Arc<ProduceGate>,
    /// Shared by all connections.
    pub(crate) inflating: Arc<InflatingLeave>,
    /// Where slices of requests with much to do are worked on.
    pub(crate) aside: Aside,
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
    #[error("it does not take its responses, and others wait for the memory that these hold")]
    InTheWay,
    #[error("its request arrives too slowly, and others wait for the memory that it was given")]
    HoldsUpOthers,
    #[error("no memory came free for its request in {0:?}")]
    NoMemory(Duration),
    #[error("nothing was sent or received for {0:?}")]
    Idle(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ConnectionLimits {
    /// How often deadlines are looked at: a time-out is late by a quarter at most.
    fn tick(&self) -> Duration {
        let shortest = self.frame_time_max.min(self.idle_time_max);
        (shortest / 4).clamp(Duration::from_millis(1), TICK)
    }

    /// Waits until there is more room for the records of a request that stalls for it.
    async fn room_for_records(&self, stall: Option<Stall>) {
        if let Some(Stall::Gate(not_now)) = stall {
            self.produce_gate.has_changed(not_now).await;
        }
    }

    /// Waits until there is memory for a request that stalls for it.
    async fn room_for(&self, share: &Share, stall: Option<Stall>) {
        if let Some(Stall::Memory(bytes)) = stall {
            self.requests.room_for(share, bytes).await;
        }
    }
}

pub(crate) type Response = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Turns a frame into the future of its outcome. That is polled once when it is made, and if it is not ready then, once
/// more without being woken: when the Produce requests that arrived with it have been polled, too, and before a request
/// of another kind is.
pub(crate) trait Dispatch: Send + Sync {
    /// Bytes that the answer to a request of that key and length is expected to need; none if it is small.
    fn expected_bytes(&self, _api_key: Option<i16>, _frame_bytes: usize) -> Option<usize> {
        None
    }

    /// Why a large request that begins like this, and of which `missing` bytes are to come, is not worth receiving; none if
    /// it may be right.
    fn refuses(&self, _beginning: &[u8], _missing: usize) -> Option<String> {
        None
    }

    /// Where the records of a request go.
    fn places(&self, _frame: &[u8]) -> Places {
        Places::default()
    }

    fn dispatch(&self, connection: &Arc<ConnectionInfo>, frame: BytesMut, charge: Charge) -> Dispatched;
}

/// A request that has been read.
pub(crate) struct Dispatched {
    pub(crate) response: Response,
    /// What the first poll has to do with its records.
    pub(crate) work: RecordsWork,
    /// By which it tells that it gave way meanwhile, and is to be polled on as if it were the first time.
    pub(crate) slices: Option<Arc<Slices>>,
}

impl Dispatched {
    pub(crate) fn at_once(outcome: Outcome) -> Self {
        Self { response: Box::pin(ready(outcome)), work: RecordsWork::default(), slices: None }
    }
}

/// Invariants: responses leave in the order in which their requests came; `waiting` is at most
/// `requests_max` long; `frame_since` is set exactly while part of a frame has arrived, and time in line for memory is
/// taken out of it; `grown_at` is when the large frame was given memory last, or got in line for it, and `filling` how long
/// it had since, as far as this server has looked; `quiet` is how long nothing came, likewise;
/// `begins_at` is set while the large frame has memory and waits for its turn to be read; `leaves_at` is set once the
/// client sends nothing more, and `has_ended` once all of it was read; `turns` counts what came into `waiting` and what left it; `read_ahead` is charged with what a read
/// takes beyond an ordinary one.
pub(crate) struct Connection<'a, D> {
    stream: TcpStream,
    info: Arc<ConnectionInfo>,
    limits: ConnectionLimits,
    dispatch: &'a D,
    traffic: &'a TrafficMetrics,
    frames: FrameBuffer,
    gather: Gather,
    read_at: Instant,
    large_frame: Option<Charge>,
    grown_at: Instant,
    filling: Duration,
    quiet: Duration,
    judged_at: Instant,
    begins_at: Option<Instant>,
    /// A large frame has become whole.
    is_proven: bool,
    /// Memory of reads beyond the ordinary ones.
    read_ahead: Vec<Charge>,
    waiting: FuturesOrdered<Unanswered>,
    next_turn: u64,
    turns: Arc<Turns>,
    outbox: Outbox,
    standing: &'a Standing,
    /// Of the memory for requests that are whole.
    share: Arc<Share>,
    /// Of the memory for records.
    guest: Guest,
    /// Of the memory for responses.
    account: Arc<Account>,
    /// The next request waits for memory for its response, or has it.
    in_line: Option<InLine>,
    reserved: Option<Held>,
    inflating: Inflating,
    /// Why nothing more is served once the outbox is empty.
    refused: Option<String>,
    /// The same, once all that came before is answered: the frame that arrives is not received.
    refused_next: Option<String>,
    pace: Pace,
    frame_since: Option<Instant>,
    active_at: Instant,
    /// All that the client has sent was read.
    has_ended: bool,
    /// The client sends nothing more, while what it has sent may be unread: when the connection ends at the latest.
    leaves_at: Option<Instant>,
}

/// Shared by a connection and its requests that wait for their turn.
#[derive(Default)]
struct Turns {
    /// Requests whose turn has come.
    taken: AtomicU64,
    /// Memory of the responses that are ready and whose turn has not come.
    ready_bytes: AtomicUsize,
}

/// A request whose turn to be answered has not come.
struct Unanswered {
    state: Progress,
    turn: u64,
    account: Arc<Account>,
    /// Until its response is charged.
    reserved: Option<Held>,
    turns: Arc<Turns>,
}

enum Progress {
    Running(Response),
    /// Ready before its turn; taken when that comes.
    Ready(Option<Outcome>),
}

impl Unanswered {
    /// Charges a response that is ready before its turn, so that a parked request at the head does not let others pile
    /// up behind it. It may wait for long, and shares no memory then.
    fn weigh(&mut self, mut outcome: Outcome) -> Outcome {
        if let Outcome::Respond(frame) = &mut outcome {
            let bytes = frame.memory_bytes;
            let Some(held) = self.account.charge(bytes) else { return not_kept(bytes) };
            if self.turn != self.turns.taken.load(Ordering::Relaxed) {
                frame.own();
            }
            frame.charge = Some(held);
            self.turns.ready_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.reserved = None;
        outcome
    }
}

/// What becomes of a large response while clients that do not read theirs hold far too much.
fn not_kept(bytes: usize) -> Outcome {
    Outcome::Close(format!(
        "its response of {bytes} bytes is not kept, because all memory for responses is spent"
    ))
}

impl Future for Unanswered {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.state {
            Progress::Running(response) => match response.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(self.weigh(outcome)),
                Poll::Pending => Poll::Pending,
            },
            Progress::Ready(outcome) => outcome.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

/// Why requests that have arrived are not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// One of them is worked on aside, which is the last that was started.
    Aside,
    /// Too much is unanswered or unsent.
    Answers,
    /// The next one carries records, and there is no room for them.
    Gate(NotNow),
    /// There is no memory for the next one, which has so many bytes, while others of this connection hold some.
    Memory(usize),
    /// There is no memory for what the next one is expected to be answered with.
    Response,
}

/// What [`Connection::serve`] saw.
enum Event {
    Readable,
    Answered(Outcome),
    /// What the next request waits for may be there.
    Admitted,
    /// The large frame has the memory that it was in line for.
    Granted,
    /// The next request has memory for its response.
    Reserved,
    /// Its responses are in the way.
    Evicted,
    /// Less than the socket's mark has come for a while.
    TooLittle,
    /// It is time to look whether the large frame comes on.
    Judge,
    /// It is the turn of the large frame to be read on.
    Begins,
    /// A client that sends nothing more has waited for long enough.
    Left,
    /// It is time to look whether the client is still there, and after all who wait for memory for responses.
    Look,
    Tick,
}

impl<'a, D: Dispatch> Connection<'a, D> {
    pub(crate) fn new(
        stream: TcpStream,
        info: Arc<ConnectionInfo>,
        limits: ConnectionLimits,
        dispatch: &'a D,
        traffic: &'a TrafficMetrics,
        standing: &'a Standing,
    ) -> Self {
        let outbox = Outbox::new(info.id, Source::of(info.peer.ip()), Arc::clone(&limits.catch_up));
        let account = limits.responses.account(info.id, info.peer.ip());
        let share = limits.requests.share(account.source());
        let guest = limits.produce_gate.guest(account.source());
        Self {
            share,
            guest,
            frames: FrameBuffer::new(limits.frame_bytes_max),
            gather: Gather::new(),
            read_at: Instant::now(),
            stream,
            info,
            limits,
            dispatch,
            traffic,
            large_frame: None,
            grown_at: Instant::now(),
            filling: Duration::ZERO,
            quiet: Duration::ZERO,
            is_proven: false,
            judged_at: Instant::now(),
            begins_at: None,
            read_ahead: Vec::new(),
            waiting: FuturesOrdered::new(),
            next_turn: 0,
            turns: Arc::default(),
            outbox,
            standing,
            account,
            in_line: None,
            reserved: None,
            inflating: Inflating::new(),
            refused: None,
            refused_next: None,
            pace: Pace::new(),
            frame_since: None,
            active_at: Instant::now(),
            has_ended: false,
            leaves_at: None,
        }
    }

    /// Serves until the client closes (`Ok`) or the connection has to be closed. Safe to drop at any await.
    pub(crate) async fn serve(mut self) -> Result<(), Closed> {
        let period = self.limits.tick();
        let mut tick = interval_at(Instant::now() + period, period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let stall = self.start_requests().await?;
            self.take_answers().await;
            if !self.outbox.is_empty() {
                self.send_all().await?;
                self.renew_leaving();
                continue;
            }
            if let Some(why) = self.refused.take() {
                return Err(Closed::BadRequest(why));
            }
            if self.has_ended && self.waiting.is_empty() && stall.is_none() {
                return Ok(());
            }
            let leaves_at = self.leaves_at;
            let may_come = stall.is_none() && !self.has_ended;
            let may_read = may_come && self.begins_at.is_none() && self.admit_large();
            if self.waiting.is_empty()
                && let Some(why) = self.refused_next.take()
            {
                return Err(Closed::BadRequest(why));
            }
            let (is_in_line, is_judged) = (self.is_in_line(), self.is_judged());
            self.standing.note_work(stall.is_some() || self.has_work());
            let event = tokio::select! {
                biased;
                Some(outcome) = self.waiting.next(), if !self.waiting.is_empty() => Event::Answered(outcome),
                ready = self.stream.readable(), if may_read => { ready?; Event::Readable }
                () = granted(&mut self.large_frame), if is_in_line => Event::Granted,
                () = reserved(&mut self.in_line), if self.in_line.is_some() => Event::Reserved,
                () = self.account.evicted(), if self.unsent_bytes() > 0 => Event::Evicted,
                () = self.limits.room_for_records(stall), if matches!(stall, Some(Stall::Gate(_))) => Event::Admitted,
                () = self.limits.room_for(&self.share, stall), if matches!(stall, Some(Stall::Memory(_))) => Event::Admitted,
                () = sleep_until(self.read_at + GATHER_TIME_MAX), if may_read && self.gather.is_marked() => Event::TooLittle,
                // After the socket was looked at: what has come already is never late.
                () = sleep_until(self.judged_at + JUDGE_PERIOD), if is_judged => Event::Judge,
                () = sleep(LOOK_PERIOD), if matches!(stall, Some(Stall::Aside | Stall::Answers | Stall::Response)) => Event::Look,
                () = until(self.begins_at) => Event::Begins,
                () = until(leaves_at) => Event::Left,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Answered(outcome) => self.note_answered(outcome),
                Event::Readable if self.read().await? => {}
                Event::Readable => self.note_end(),
                Event::Begins => self.begins_at = None,
                Event::Left => return Ok(()),
                Event::Admitted => {}
                Event::Granted => self.note_granted(),
                Event::Reserved => self.reserved = self.in_line.take().map(InLine::take),
                Event::Look if has_left(&self.stream).await => {
                    if stall != Some(Stall::Answers) {
                        return Ok(());
                    }
                    self.leaves_at.get_or_insert_with(|| Instant::now() + LEAVING_TIME);
                }
                Event::Look => self.limits.responses.look(),
                Event::Evicted => return Err(Closed::InTheWay),
                Event::TooLittle => self.note_too_little(),
                Event::Judge => self.judge_large()?,
                Event::Tick => self.check_deadlines(stall.is_some(), is_in_line)?,
            }
        }
    }

    fn note_answered(&mut self, outcome: Outcome) {
        self.take_turn(outcome);
        self.renew_leaving();
    }

    fn note_too_little(&mut self) {
        let mark = self.gather.timed_out(Instant::now());
        self.set_mark(mark);
    }

    /// Whether something is to be answered, or keeps the client from sending on.
    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.is_in_line() || self.begins_at.is_some()
    }

    /// The client's end of stream was read: what has arrived of a frame is never whole, and needs no memory.
    fn note_end(&mut self) {
        self.has_ended = true;
        self.leaves_at = Some(Instant::now() + LEAVING_TIME);
        (self.large_frame, self.begins_at) = (None, None);
    }

    /// A client that sends nothing more has been answered, and may wait as long for the next answer.
    fn renew_leaving(&mut self) {
        self.leaves_at = self.leaves_at.map(|_| Instant::now() + LEAVING_TIME);
    }

    /// Starts the requests that have arrived whole; answers why some are left, if some are.
    async fn start_requests(&mut self) -> Result<Option<Stall>, Closed> {
        while self.refused.is_none()
            && self.waiting.len() < self.limits.requests_max
            && self.unsent_bytes() < self.account.unsent_bytes_max(UNSENT_BYTES_MAX)
        {
            if self.info.is_aside() {
                return Ok(Some(Stall::Aside));
            }
            let Some(bytes) = self.frames.whole_frame_bytes()? else {
                self.note_progress();
                return Ok(None);
            };
            if self.info.parked_fetches() >= PARKED_FETCHES_MAX {
                return Ok(Some(Stall::Answers));
            }
            let api_key = self.frames.api_key();
            let is_produce = api_key == Some(ApiKey::Produce as i16);
            if let Err(not_now) = self.check_gate(api_key, bytes) {
                return Ok(Some(Stall::Gate(not_now)));
            }
            if !is_produce {
                // It is to find what was produced before it.
                self.take_answers().await;
                if self.refused.is_some() {
                    break;
                }
            }
            if !self.reserve_response(api_key, bytes) {
                return Ok(Some(Stall::Response));
            }
            let charge = match self.large_frame.take() {
                Some(mut charge) => {
                    charge.settle(&self.share);
                    self.is_proven = true;
                    Some(charge)
                }
                None => self.admit(bytes).await,
            };
            let Some(charge) = charge else { return Ok(Some(Stall::Memory(bytes))) };
            let Some(frame) = self.frames.take_frame() else { return Ok(None) };
            self.limits.produce_gate.note_passed(&self.guest, api_key, bytes);
            self.frame_since = None;
            self.standing.note_asked();
            self.start(frame, charge).await?;
            let is_turn_over = if is_produce {
                self.pace.produced(bytes, self.read_at)
            } else {
                self.pace.started(self.read_at)
            };
            if is_turn_over {
                yield_now().await;
                check_peer(&self.stream).await?;
                if !self.outbox.is_empty() {
                    // A client that is gone says so when it is sent something.
                    return Ok(Some(Stall::Answers));
                }
            }
        }
        Ok(Some(Stall::Answers))
    }

    /// Fails if the next request carries records for which there is no room now.
    fn check_gate(&self, api_key: Option<i16>, frame_bytes: usize) -> Result<(), NotNow> {
        let places = || self.dispatch.places(self.frames.whole_frame().unwrap_or_default());
        self.limits.produce_gate.check(&self.guest, api_key, frame_bytes, places)
    }

    /// Takes memory for what the next request is expected to be answered with, if that is much; false while it waits for
    /// it.
    fn reserve_response(&mut self, api_key: Option<i16>, frame_bytes: usize) -> bool {
        if self.in_line.is_some() {
            return false;
        }
        if self.reserved.is_some() {
            return true;
        }
        let Some(bytes) = self.dispatch.expected_bytes(api_key, frame_bytes) else { return true };
        match self.account.reserve(bytes) {
            Ok(reserved) => self.reserved = Some(reserved),
            Err(in_line) => self.in_line = Some(in_line),
        }
        self.in_line.is_none()
    }

    /// Bytes of responses that wait for the socket or for those before them.
    fn unsent_bytes(&self) -> usize {
        self.outbox.len() + self.turns.ready_bytes.load(Ordering::Relaxed)
    }

    /// Polls a request for the first time; one that is finished at once costs no further wake-up.
    async fn start(&mut self, frame: BytesMut, charge: Charge) -> Result<(), Closed> {
        let reserved = self.reserved.take();
        let Dispatched { mut response, work, slices } = self.dispatch.dispatch(&self.info, frame, charge);
        let (polled, response) = if work.is_little() {
            (poll_once(&mut response).await, response)
        } else {
            self.poll_records(work, slices, response).await?
        };
        let state = match polled {
            Poll::Ready(outcome) if self.waiting.is_empty() => {
                self.settle(outcome);
                return Ok(());
            }
            Poll::Ready(outcome) => Progress::Ready(Some(outcome)),
            Poll::Pending => Progress::Running(response),
        };
        let mut unanswered = Unanswered {
            state,
            turn: self.next_turn,
            account: Arc::clone(&self.account),
            reserved,
            turns: Arc::clone(&self.turns),
        };
        self.next_turn += 1;
        if let Progress::Ready(outcome) = &mut unanswered.state {
            let weighed = outcome.take().map(|outcome| unanswered.weigh(outcome));
            unanswered.state = Progress::Ready(weighed);
        }
        self.waiting.push_back(unanswered);
        Ok(())
    }

    /// Polls a request that has much to do with its records until it has done that, slice by slice. Nothing that came
    /// after it is started meanwhile, so what it appends keeps its place.
    async fn poll_records(
        &mut self,
        work: RecordsWork,
        slices: Option<Arc<Slices>>,
        mut response: Response,
    ) -> Result<(Poll<Outcome>, Response), Closed> {
        loop {
            let polled;
            (polled, response) = self.poll_slice(work, slices.as_ref(), response).await?;
            if polled.is_ready() || !slices.as_ref().is_some_and(|slices| slices.go_on()) {
                return Ok((polled, response));
            }
        }
    }

    async fn poll_slice(
        &mut self,
        work: RecordsWork,
        slices: Option<&Arc<Slices>>,
        mut response: Response,
    ) -> Result<(Poll<Outcome>, Response), Closed> {
        if self.inflating.is_for_aside(work) {
            let leaves = Arc::clone(&self.limits.inflating);
            let who = self.inflating.worker(self.account.source());
            let leave = match leaves.try_get(who) {
                Some(leave) => leave,
                None => self.wait_to_inflate(&leaves).await?,
            };
            let slices = slices.map(Arc::clone);
            let work_on = move || {
                let (_leave, since) = (leave, begin(slices.as_deref()));
                // Nobody wakes it: what it is polled for is done, or it tells that it gave way.
                let polled = response.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                (since.elapsed(), polled, response)
            };
            let worked = if who.is_long() {
                self.limits.aside.run_slice(work_on).await
            } else {
                Ok(block_in_place(work_on))
            };
            let Ok((took, polled, response)) = worked else {
                return Err(Closed::BadRequest("the server stops".to_owned()));
            };
            self.inflating.took_aside(took);
            return Ok((polled, response));
        }
        let since = begin(slices.map(|slices| &**slices));
        let polled = poll_once(&mut response).await;
        if self.inflating.took_here(since.elapsed()) {
            yield_now().await;
        }
        Ok((polled, response))
    }

    /// Waits for the leave to inflate. Those that came before go on meanwhile, and what is answered already is sent first:
    /// not while the leave may be given, which is not to be held by who waits for its client. A client that leaves
    /// meanwhile has what it asked for dropped.
    async fn wait_to_inflate(&mut self, leaves: &Arc<InflatingLeave>) -> Result<Leave, Closed> {
        self.take_answers().await;
        self.send_all().await?;
        let mut leave = pin!(leaves.get(self.inflating.worker(self.account.source())));
        loop {
            tokio::select! {
                biased;
                leave = &mut leave => return Ok(leave),
                Some(outcome) = self.waiting.next(), if self.refused.is_none() && !self.waiting.is_empty() => {
                    self.take_turn(outcome);
                }
                () = sleep(LOOK_PERIOD) => {
                    if has_left(&self.stream).await {
                        return Err(Closed::Io(io::ErrorKind::ConnectionAborted.into()));
                    }
                }
            }
        }
    }

    /// Takes all answers whose turn has come, so that they leave together.
    async fn take_answers(&mut self) {
        while self.refused.is_none() && !self.waiting.is_empty() {
            let polled = poll_fn(|context| Poll::Ready(self.waiting.poll_next_unpin(context))).await;
            let Poll::Ready(Some(outcome)) = polled else { return };
            self.take_turn(outcome);
        }
    }

    /// Charges a request. Waits only while this connection has nothing unanswered or unsent: that holds charges
    /// itself, and only this task can move it on.
    async fn admit(&mut self, bytes: usize) -> Option<Charge> {
        let limits = &self.limits;
        if self.may_wait() {
            return Some(limits.requests.charge_whole(&self.share, bytes).await);
        }
        limits.requests.try_charge_whole(&self.share, bytes)
    }

    fn may_wait(&self) -> bool {
        self.waiting.is_empty() && self.outbox.is_empty()
    }

    /// Charges the large frame that arrives, if there is one, for the next part of it. False while it is in line, and if
    /// its beginning says that it is refused.
    fn admit_large(&mut self) -> bool {
        let charged = self.large_frame.as_ref().map_or(0, Charge::bytes);
        let Some((length, wanted)) = self.frames.large_wanted_bytes(charged) else { return true };
        if self.large_frame.is_none() && self.refused_next.is_none() {
            let (beginning, missing) = self.frames.beginning();
            self.refused_next = self.dispatch.refuses(beginning, missing);
        }
        if self.refused_next.is_some() {
            return false;
        }
        let (limits, sender) = (&self.limits, self.sender());
        let charge = self.large_frame.get_or_insert_with(|| limits.requests.arriving(length, sender));
        if charge.is_in_line() {
            return false;
        }
        let held = charge.bytes();
        if wanted <= held {
            return true;
        }
        let is_given = charge.grow(wanted - held, length - held);
        self.grown_at = Instant::now();
        if is_given {
            self.note_given(wanted - held);
        }
        is_given && self.begins_at.is_none()
    }

    fn sender(&self) -> Sender {
        Sender { source: self.account.source(), is_proven: self.is_proven }
    }

    fn note_granted(&mut self) {
        let now = Instant::now();
        // The client is not late: nobody took what it sent.
        self.frame_since = self.frame_since.map(|since| since + now.duration_since(self.grown_at));
        self.note_given(self.large_frame.as_ref().map_or(0, Charge::bytes));
    }

    /// The large frame was given memory. It is read on at once, or when it is the turn of a connection that is not proven.
    fn note_given(&mut self, bytes: usize) {
        let now = Instant::now();
        let begins_at = if self.is_proven { now } else { self.limits.requests.newcomer_begins(now, bytes) };
        self.frame_since = self.frame_since.map(|since| since + begins_at.duration_since(now));
        (self.grown_at, self.judged_at) = (begins_at, begins_at);
        (self.filling, self.quiet) = (Duration::ZERO, Duration::ZERO);
        self.begins_at = (begins_at > now).then_some(begins_at);
    }

    /// Closes a large frame that does not fill the memory which it was given while others wait for memory. A time in which
    /// nobody looked counts as little: the machine stood still then, or had no CPU for the client either.
    fn judge_large(&mut self) -> Result<(), Closed> {
        if !self.is_judged() {
            return Ok(());
        }
        let now = Instant::now();
        let time = now.duration_since(self.judged_at).min(2 * JUDGE_PERIOD);
        self.filling += time;
        self.quiet += time;
        self.judged_at = now;
        let Some(charge) = &self.large_frame else { return Ok(()) };
        let Some(patience) = charge.patience() else { return Ok(()) };
        let time_max = patience + Duration::from_millis((charge.bytes() / ARRIVAL_BYTES_PER_MS) as u64);
        if self.filling > time_max || self.quiet > QUIET_TIME_MAX {
            return Err(Closed::HoldsUpOthers);
        }
        Ok(())
    }

    fn note_progress(&mut self) {
        if !self.frames.mid_frame() {
            self.frame_since = None;
        } else if self.frame_since.is_none() {
            self.frame_since = Some(Instant::now());
        }
    }

    /// Takes the outcome of a request that has waited for its turn.
    fn take_turn(&mut self, outcome: Outcome) {
        self.turns.taken.fetch_add(1, Ordering::Relaxed);
        self.settle(outcome);
    }

    /// Takes the outcome whose turn it is.
    fn settle(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Respond(frame) => self.enqueue(frame),
            Outcome::Silent => {}
            Outcome::Close(why) => self.refused = Some(why),
        }
    }

    fn enqueue(&mut self, mut frame: ResponseFrame) {
        let bytes = frame.memory_bytes;
        if frame.charge.is_some() {
            // It was weighed when it was ready, and its turn has come.
            self.turns.ready_bytes.fetch_sub(bytes, Ordering::Relaxed);
        } else if let Some(held) = self.account.charge(bytes) {
            frame.charge = Some(held);
        } else {
            return self.settle(not_kept(bytes));
        }
        self.outbox.push(frame);
    }

    /// Sends all that is to be sent. Requests that wait go on meanwhile, and the large frame of which a part is here is held
    /// to what holds for it elsewhere, too: who takes no responses does not keep memory that others wait for.
    async fn send_all(&mut self) -> Result<(), Closed> {
        let mut sent_at = Instant::now();
        let mut looked_at = sent_at;
        let mut shared_since = sent_at;
        while !self.outbox.is_empty() {
            let is_in_line = self.is_in_line();
            if is_in_line {
                self.check_line(Instant::now())?;
            }
            let look_at = looked_at + TICK.min(self.limits.idle_time_max);
            let share_until = shared_since + SHARING_TIME;
            let judge_at = self.is_judged().then(|| self.judged_at + JUDGE_PERIOD);
            tokio::select! {
                biased;
                sent = self.outbox.send_some(&self.stream) => {
                    let sent = sent?;
                    self.traffic.sent(sent);
                    self.account.sent(sent);
                    sent_at = Instant::now();
                    looked_at = sent_at;
                    self.standing.note_used(sent_at);
                }
                () = granted(&mut self.large_frame), if is_in_line => self.note_granted(),
                () = self.account.evicted() => return Err(Closed::InTheWay),
                Some(outcome) = self.waiting.next(), if self.refused.is_none() && !self.waiting.is_empty() => {
                    self.take_turn(outcome);
                }
                () = sleep_until(judge_at.map_or(look_at, |at| at.min(look_at)).min(share_until)) => {
                    self.judge_large()?;
                    looked_at = self.check_sending(sent_at, looked_at)?;
                }
            }
            let now = Instant::now();
            if now >= share_until && self.outbox.age() {
                shared_since = now;
            }
            // A client that reads as fast as this sends makes nothing wait by itself.
            give_way().await;
        }
        self.active_at = Instant::now();
        Ok(())
    }

    /// Closes a connection that takes nothing for too long. Answers when that was looked at last.
    fn check_sending(&self, sent_at: Instant, looked_at: Instant) -> Result<Instant, Closed> {
        let (now, idle) = (Instant::now(), self.limits.idle_time_max);
        if now.duration_since(looked_at) < TICK.min(idle) {
            return Ok(looked_at);
        }
        self.limits.responses.look();
        if now.duration_since(sent_at) >= idle {
            return Err(Closed::Idle(idle));
        }
        Ok(now)
    }

    /// Closes a connection whose large frame is in line for too long: whoever waits holds what it has, which others wait
    /// for.
    fn check_line(&self, now: Instant) -> Result<(), Closed> {
        let frame_max = self.limits.frame_time_max;
        if now.duration_since(self.grown_at) > frame_max {
            return Err(Closed::NoMemory(frame_max));
        }
        Ok(())
    }

    /// Whether the large frame waits for memory.
    fn is_in_line(&self) -> bool {
        self.large_frame.as_ref().is_some_and(Charge::is_in_line)
    }

    /// Whether the large frame has memory that it is to fill.
    fn is_judged(&self) -> bool {
        self.large_frame.is_some() && !self.is_in_line() && !self.frames.has_whole_frame()
    }

    /// Reads what has arrived; false at the client's end of stream.
    async fn read(&mut self) -> Result<bool, Closed> {
        let charged = self.large_frame.as_ref().map_or(0, Charge::bytes);
        let mut space = self.frames.space(charged);
        let room = space.remaining_mut();
        // Unlike `try_read_buf` it knows that a read which does not fill its buffer leaves nothing behind, and does not
        // ask the system again before waiting.
        let mut reading = pin!(self.stream.read_buf(&mut space));
        let read = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
        match read {
            Poll::Ready(Ok(0)) => Ok(false),
            Poll::Ready(Ok(read)) => {
                self.traffic.received(read);
                self.active_at = Instant::now();
                self.standing.note_used(self.active_at);
                self.quiet = Duration::ZERO;
                if read == room {
                    self.read_more(room);
                }
                self.read_at = self.active_at;
                let mark = self.gather.read(self.read_at, read);
                self.set_mark(mark);
                if charged > 0 && self.pace.read(read) {
                    yield_now().await;
                }
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Pending => Ok(true),
        }
    }

    fn set_mark(&mut self, mark: Option<usize>) {
        if let Some(bytes) = mark {
            self.note_mark(receive_mark::set(&self.stream, bytes));
        }
    }

    fn note_mark(&mut self, set: io::Result<()>) {
        if let Err(error) = set {
            tracing::debug!(%error, "the connection goes on without gathering");
            self.gather = Gather::none();
        }
    }

    /// More came at once than a read takes: the next ones take more, as far as there is memory to spare.
    fn read_more(&mut self, read: usize) {
        let more = self.frames.read_bytes();
        let has_filled = read == more && self.large_frame.is_none();
        if has_filled
            && more < READ_BYTES_MAX
            && let Some(charge) = self.limits.requests.try_charge_spare(more, self.sender())
        {
            self.read_ahead.push(charge);
            self.frames.set_read_bytes(2 * more);
        }
    }

    fn check_deadlines(&mut self, is_stalled: bool, is_in_line: bool) -> Result<(), Closed> {
        let now = Instant::now();
        let frame_max = self.limits.frame_time_max;
        if is_in_line {
            return self.check_line(now);
        }
        if is_stalled {
            // The client is not late: nobody takes what it sends.
            self.frame_since = self.frame_since.map(|_| now);
        }
        if self.frame_since.is_some_and(|since| now.duration_since(since) > frame_max) {
            return Err(Closed::FrameTimeout(frame_max));
        }
        let idle = now.duration_since(self.active_at);
        if idle > self.limits.idle_time_max {
            return Err(Closed::Idle(self.limits.idle_time_max));
        }
        if idle > TICK && self.frames.release() {
            self.read_ahead.clear();
        }
        Ok(())
    }
}

/// Begins a slice; answers when.
fn begin(slices: Option<&Slices>) -> Instant {
    slices.inspect(|slices| slices.begin());
    Instant::now()
}

/// Polls once here and now, whatever comes of it.
async fn poll_once(response: &mut Response) -> Poll<Outcome> {
    poll_fn(|context| Poll::Ready(response.as_mut().poll(context))).await
}

/// Whether the client takes no answer any more. What it has sent is not read for this.
async fn has_left(stream: &TcpStream) -> bool {
    let mut ready = pin!(stream.ready(Interest::READABLE));
    match poll_fn(|context| Poll::Ready(ready.as_mut().poll(context))).await {
        Poll::Ready(Ok(ready)) => ready.is_read_closed(),
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

/// Refuses to work for a client that takes no answer any more because its end of the connection is gone.
async fn check_peer(stream: &TcpStream) -> Result<(), Closed> {
    let mut ready = pin!(stream.ready(Interest::WRITABLE));
    match poll_fn(|context| Poll::Ready(ready.as_mut().poll(context))).await {
        Poll::Ready(Ok(ready)) if ready.is_write_closed() => {
            Err(Closed::Io(io::ErrorKind::ConnectionReset.into()))
        }
        Poll::Ready(Err(error)) => Err(Closed::Io(error)),
        Poll::Ready(Ok(_)) | Poll::Pending => Ok(()),
    }
}

/// Waits until then, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// Waits until a large frame has the memory that it is in line for.
async fn granted(large_frame: &mut Option<Charge>) {
    if let Some(charge) = large_frame {
        charge.granted().await;
    }
}

/// Waits until the next request has the memory for its response that it is in line for.
async fn reserved(in_line: &mut Option<InLine>) {
    if let Some(in_line) = in_line {
        in_line.granted().await;
    }
}

#[cfg(test)]
mod tests;
