//! One connection: frames in, requests staged in order, responses out in the same order.
//!
//! Requests of one connection are pipelined. Each is *staged* as it arrives: everything that depends on the order of the
//! requests happens then (append, state change). The rest of it is awaited beside the others, and its response waits for
//! those before it. All produce requests that arrived together are staged before the first of them goes on, and responses
//! that are ready then leave with one write. They leave at the end of each [turn](crate::flow::pace) at the latest, so that a
//! client that is gone is soon known to be, and nothing more is worked on for it. A client that sends nothing more gets the
//! answers to its requests, unless they take long. While a request is worked on aside, no later one is staged, and it ends if
//! the client leaves. Nothing is read while the client takes no responses: it is slowed, not buffered.
//! Refuses frames outside of their bounds and clients that neither finish a frame nor stay active.
//!
//! Bytes in are the [`Reader`]'s, unanswered requests the [`Pipeline`]'s, bytes out the [`Outbox`]'s; this file moves a
//! request from one to the next.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use riverrun_protocol::ApiKey;
use tokio::net::TcpStream;
use tokio::task::{block_in_place, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::admission::Standing;
use super::dispatch::{Dispatch, Records, Response, Staged};
use super::limits::{Closed, ConnectionLimits, TICK};
use super::pipeline::{Pipeline, Reservation, not_kept};
use super::reader::{Reader, until};
use super::send::Outbox;
use super::transport::{Read, Transport};
use crate::context::ConnectionInfo;
use crate::flow::budget::{Charge, Share};
use crate::flow::inflate_offload::{Inflating, InflatingLeave, Leave, RecordsWork, Slice};
use crate::flow::pace::Pace;
use crate::flow::produce_backpressure::{Guest, NotNow};
use crate::flow::responses::{Account, LOOK_PERIOD};
use crate::flow::source::Source;
use crate::flow::turns::give_way;
use crate::metrics::TrafficMetrics;
use crate::response::{Outcome, ResponseFrame};

/// Unsent response bytes of one connection after which it starts no further request.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;
/// Fetches of one connection that may wait for records before nothing that comes after them is started. A client has one for
/// each connection, and its answer comes before all others, so that Kafka starts nothing behind it.
const PARKED_FETCHES_MAX: usize = 16;
/// After once to twice this long, responses that a client has not taken share no memory any more.
const SHARING_TIME: Duration = Duration::from_secs(1);
/// How long a client that sends nothing more may wait for the next answer. It may be gone, which only an answer would show; a
/// request that takes longer than most waits for an event, as a fetch does.
const LEAVING_TIME: Duration = Duration::from_secs(1);

/// Invariants: responses leave in the order in which their requests came; `pipeline` has at most `requests_max`; `leaves_at` is
/// set once the client sends nothing more, and `has_ended` once all of it was read.
pub(crate) struct Connection<'a, D> {
    transport: Transport,
    info: Arc<ConnectionInfo>,
    limits: ConnectionLimits,
    dispatch: &'a D,
    traffic: &'a TrafficMetrics,
    reader: Reader,
    pipeline: Pipeline,
    outbox: Outbox,
    standing: &'a Standing,
    /// Its source's share of the memory for whole requests.
    share: Arc<Share>,
    /// The connection, as the gate for records knows it.
    guest: Guest,
    /// Its account in the memory for responses.
    account: Arc<Account>,
    /// Memory for the response to the next request.
    reservation: Reservation,
    inflating: Inflating,
    /// Why nothing more is served once the outbox is empty.
    refused: Option<String>,
    pace: Pace,
    active_at: Instant,
    /// All that the client has sent was read.
    has_ended: bool,
    /// The client sends nothing more, while bytes from it may be unread: when the connection ends at the latest.
    leaves_at: Option<Instant>,
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
    /// There is no memory for the response that is expected for the next one.
    Response,
}

impl Stall {
    /// Waits until there is room for the request, where that is known; otherwise for ever.
    async fn has_passed(stall: Option<Self>, limits: &ConnectionLimits, share: &Share) {
        match stall {
            Some(Self::Gate(not_now)) => limits.produce_gate.has_changed(not_now).await,
            Some(Self::Memory(bytes)) => limits.requests.room_for(share, bytes).await,
            _ => std::future::pending().await,
        }
    }

    /// Whether it may end without this connection's doing, so that the client is to be looked after meanwhile.
    fn is_looked_at(self) -> bool {
        matches!(self, Self::Aside | Self::Answers | Self::Response)
    }
}

/// An event that [`Connection::serve`] saw.
enum Event {
    Readable,
    Answered(Outcome),
    /// The next request may find now the room or the leave that it waits for.
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
    /// It is time to look whether the client is still there, and after the line for response memory.
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
        let account = limits.responses.account(info.id, info.peer.ip());
        Self {
            share: limits.requests.share(account.source()),
            guest: limits.produce_gate.guest(account.source()),
            reader: Reader::new(&limits, account.source()),
            pipeline: Pipeline::new(Arc::clone(&account)),
            outbox: Outbox::new(info.id, Source::of(info.peer.ip()), Arc::clone(&limits.catch_up)),
            transport: Transport::plain(stream),
            info,
            limits,
            dispatch,
            traffic,
            standing,
            account,
            reservation: Reservation::default(),
            inflating: Inflating::new(),
            refused: None,
            pace: Pace::new(),
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
            if self.has_ended && self.pipeline.is_empty() && stall.is_none() {
                return Ok(());
            }
            let may_come = stall.is_none() && !self.has_ended;
            let may_read =
                may_come && self.reader.admit(|begins, missing| self.dispatch.refuses(begins, missing));
            if self.pipeline.is_empty()
                && let Some(why) = self.reader.take_refusal()
            {
                return Err(Closed::BadRequest(why));
            }
            self.standing.note_work(stall.is_some() || self.has_work());
            let (begins_at, judge_at) = (self.reader.begins_at(), self.reader.judge_at());
            let gathers_until = self.reader.gathers_until().filter(|_| may_read);
            let event = tokio::select! {
                biased;
                Some(outcome) = self.pipeline.next(), if !self.pipeline.is_empty() => Event::Answered(outcome),
                ready = self.transport.readable(), if may_read => { ready?; Event::Readable }
                () = self.reader.granted(), if self.reader.is_in_line() => Event::Granted,
                () = self.reservation.granted(), if self.reservation.is_in_line() => Event::Reserved,
                () = self.account.evicted(), if self.unsent_bytes() > 0 => Event::Evicted,
                () = Stall::has_passed(stall, &self.limits, &self.share), if stall.is_some() => Event::Admitted,
                () = until(gathers_until), if gathers_until.is_some() => Event::TooLittle,
                // After a look at the socket: bytes that have arrived already are never late.
                () = until(judge_at), if judge_at.is_some() => Event::Judge,
                () = sleep(LOOK_PERIOD), if stall.is_some_and(Stall::is_looked_at) => Event::Look,
                () = until(begins_at), if begins_at.is_some() => Event::Begins,
                () = until(self.leaves_at), if self.leaves_at.is_some() => Event::Left,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Answered(outcome) => self.note_answered(outcome),
                Event::Readable => self.read().await?,
                Event::Begins => self.reader.begin(),
                Event::Left => return Ok(()),
                Event::Admitted => {}
                Event::Granted => self.reader.note_granted(),
                Event::Reserved => self.reservation.note_granted(),
                Event::Look if self.transport.has_left().await => {
                    if stall != Some(Stall::Answers) {
                        return Ok(());
                    }
                    self.leaves_at.get_or_insert_with(|| Instant::now() + LEAVING_TIME);
                }
                Event::Look => self.limits.responses.look(),
                Event::Evicted => return Err(Closed::InTheWay),
                Event::TooLittle => self.reader.note_too_little(&self.transport),
                Event::Judge => self.reader.judge()?,
                Event::Tick => self.check_deadlines(stall.is_some())?,
            }
        }
    }

    fn note_answered(&mut self, outcome: Outcome) {
        self.take_outcome(outcome);
        self.renew_leaving();
    }

    /// Whether something is to be answered, or keeps the client from sending on.
    fn has_work(&self) -> bool {
        !self.pipeline.is_empty() || self.reader.is_in_line() || self.reader.begins_at().is_some()
    }

    /// A client that sends nothing more has been answered, and may wait as long for the next answer.
    fn renew_leaving(&mut self) {
        self.leaves_at = self.leaves_at.map(|_| Instant::now() + LEAVING_TIME);
    }

    /// Starts the requests that have arrived whole; answers why some are left, if some are.
    async fn start_requests(&mut self) -> Result<Option<Stall>, Closed> {
        while self.refused.is_none()
            && self.pipeline.len() < self.limits.requests_max
            && self.unsent_bytes() < self.account.unsent_bytes_max(UNSENT_BYTES_MAX)
        {
            if self.info.is_aside() {
                return Ok(Some(Stall::Aside));
            }
            let Some(bytes) = self.reader.whole_frame_bytes()? else { return Ok(None) };
            if self.info.parked_fetches() >= PARKED_FETCHES_MAX {
                return Ok(Some(Stall::Answers));
            }
            let api_key = self.reader.api_key();
            let is_produce = api_key == Some(ApiKey::Produce as i16);
            if let Err(not_now) = self.check_gate(api_key, bytes) {
                return Ok(Some(Stall::Gate(not_now)));
            }
            if !is_produce {
                // It is to find records that were produced before it.
                self.take_answers().await;
                if self.refused.is_some() {
                    break;
                }
            }
            let expected_bytes = self.dispatch.expected_bytes(api_key, bytes);
            if !self.reservation.reserve(&self.account, expected_bytes) {
                return Ok(Some(Stall::Response));
            }
            let charge = match self.reader.take_charge(&self.share) {
                Some(charge) => Some(charge),
                None => self.admit(bytes).await,
            };
            let Some(charge) = charge else { return Ok(Some(Stall::Memory(bytes))) };
            let Some(frame) = self.reader.take_frame() else { return Ok(None) };
            self.limits.produce_gate.note_passed(&self.guest, api_key, bytes);
            self.standing.note_asked();
            self.start(frame, charge).await?;
            let is_turn_over = if is_produce {
                self.pace.produced(bytes, self.reader.read_at())
            } else {
                self.pace.started(self.reader.read_at())
            };
            if is_turn_over {
                yield_now().await;
                self.transport.check_peer().await?;
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
        let places = || self.dispatch.places(self.reader.whole_frame());
        self.limits.produce_gate.check(&self.guest, api_key, frame_bytes, places)
    }

    /// Charges a request. Waits only while this connection has nothing unanswered or unsent: that holds charges
    /// itself, and only this task can move it on.
    async fn admit(&mut self, bytes: usize) -> Option<Charge> {
        let limits = &self.limits;
        if self.pipeline.is_empty() && self.outbox.is_empty() {
            return Some(limits.requests.charge_whole(&self.share, bytes).await);
        }
        limits.requests.try_charge_whole(&self.share, bytes)
    }

    /// Bytes of responses that wait for the socket or for those before them.
    fn unsent_bytes(&self) -> usize {
        self.outbox.len() + self.pipeline.ready_bytes()
    }

    /// Stages a request; one whose outcome is known at once costs no further wake-up.
    async fn start(&mut self, frame: BytesMut, charge: Charge) -> Result<(), Closed> {
        let reserved = self.reservation.take();
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let staged = self.dispatch.stage(&mut Context::from_waker(&waker), &self.info, frame, charge);
        match staged {
            Staged::Done(outcome) if self.pipeline.is_empty() => self.take_outcome(outcome),
            Staged::Done(outcome) => self.pipeline.push_done(outcome, reserved),
            Staged::Waits(response) => self.pipeline.push(response, reserved),
            Staged::Records(records) => {
                let response = self.append(records).await?;
                self.pipeline.push(response, reserved);
            }
        }
        Ok(())
    }

    /// Takes all outcomes whose turn has come, so that they leave together.
    async fn take_answers(&mut self) {
        while self.refused.is_none()
            && !self.pipeline.is_empty()
            && let Some(outcome) = self.pipeline.next_ready().await
        {
            self.take_outcome(outcome);
        }
    }

    /// Takes the outcome whose turn it is.
    fn take_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Respond(frame) => self.enqueue(frame),
            Outcome::Silent => {}
            Outcome::Close(why) => self.refused = Some(why),
        }
    }

    fn enqueue(&mut self, mut frame: ResponseFrame) {
        if self.pipeline.charge(&mut frame) {
            self.outbox.push(frame);
        } else {
            self.take_outcome(not_kept(frame.memory_bytes));
        }
    }

    /// Reads what has arrived.
    async fn read(&mut self) -> Result<(), Closed> {
        match self.reader.read(&mut self.transport).await? {
            (Read::Nothing, _) => {}
            (Read::End, _) => {
                self.has_ended = true;
                self.leaves_at = Some(Instant::now() + LEAVING_TIME);
                self.reader.end();
            }
            (Read::Bytes(bytes), is_large) => {
                self.traffic.received(bytes);
                self.active_at = self.reader.read_at();
                self.standing.note_used(self.active_at);
                if is_large && self.pace.read(bytes) {
                    yield_now().await;
                }
            }
        }
        Ok(())
    }

    fn check_deadlines(&mut self, is_stalled: bool) -> Result<(), Closed> {
        let now = Instant::now();
        if self.reader.is_in_line() {
            return self.reader.check_line(now);
        }
        if is_stalled {
            self.reader.note_stalled();
        }
        self.reader.check_frame_time(now)?;
        let idle = now.duration_since(self.active_at);
        if idle > self.limits.idle_time_max {
            return Err(Closed::Idle(self.limits.idle_time_max));
        }
        if idle > TICK {
            self.reader.release();
        }
        Ok(())
    }
}

/// Records.
impl<D: Dispatch> Connection<'_, D> {
    /// Gives the batches of a request their places, slice by slice where they are much work, and answers what is left to do for
    /// it. Nothing that came after it is staged meanwhile, so what it appends keeps its place.
    async fn append(&mut self, mut records: Box<dyn Records>) -> Result<Response, Closed> {
        let work = records.work();
        let mut is_done = work.is_little() && records.append(Slice::whole());
        while !is_done {
            (is_done, records) = self.append_slice(work, records).await?;
        }
        Ok(records.finish())
    }

    async fn append_slice(
        &mut self,
        work: RecordsWork,
        mut records: Box<dyn Records>,
    ) -> Result<(bool, Box<dyn Records>), Closed> {
        if !self.inflating.is_for_aside(work) {
            let since = Instant::now();
            let is_done = records.append(Slice::begin());
            if self.inflating.took_here(since.elapsed()) {
                yield_now().await;
            }
            return Ok((is_done, records));
        }
        let leaves = Arc::clone(&self.limits.inflating);
        let who = self.inflating.worker(self.account.source());
        let leave = match leaves.try_get(who) {
            Some(leave) => leave,
            None => self.wait_to_inflate(&leaves).await?,
        };
        let work_on = move || {
            let (_leave, since) = (leave, Instant::now());
            let is_done = records.append(Slice::begin());
            (since.elapsed(), is_done, records)
        };
        let worked = if who.is_long() {
            self.limits.aside.run_slice(work_on).await
        } else {
            Ok(block_in_place(work_on))
        };
        let Ok((took, is_done, records)) = worked else {
            return Err(Closed::BadRequest("the server stops".to_owned()));
        };
        self.inflating.took_aside(took);
        Ok((is_done, records))
    }

    /// Waits for the leave to inflate. Earlier requests go on meanwhile. Responses that are ready are sent first, and not while
    /// the leave may be given: no connection is to hold it while it waits for its client. If the client leaves meanwhile, its
    /// request is dropped.
    async fn wait_to_inflate(&mut self, leaves: &Arc<InflatingLeave>) -> Result<Leave, Closed> {
        self.take_answers().await;
        self.send_all().await?;
        let mut leave = pin!(leaves.get(self.inflating.worker(self.account.source())));
        loop {
            tokio::select! {
                biased;
                leave = &mut leave => return Ok(leave),
                Some(outcome) = self.pipeline.next(), if self.refused.is_none() && !self.pipeline.is_empty() => {
                    self.take_outcome(outcome);
                }
                () = sleep(LOOK_PERIOD) => {
                    if self.transport.has_left().await {
                        return Err(Closed::Io(io::ErrorKind::ConnectionAborted.into()));
                    }
                }
            }
        }
    }
}

/// Sending.
impl<D: Dispatch> Connection<'_, D> {
    /// Sends all that is to be sent. Requests that wait go on meanwhile, and the large frame of which a part is here is held
    /// to its time limits, too: a client that takes no responses does not keep memory that others wait for.
    async fn send_all(&mut self) -> Result<(), Closed> {
        let mut sent_at = Instant::now();
        let mut looked_at = sent_at;
        let mut shared_since = sent_at;
        while !self.outbox.is_empty() {
            if self.reader.is_in_line() {
                self.reader.check_line(Instant::now())?;
            }
            let look_at = looked_at + TICK.min(self.limits.idle_time_max);
            let share_until = shared_since + SHARING_TIME;
            let judge_at = self.reader.judge_at();
            tokio::select! {
                biased;
                sent = self.outbox.send_some(&self.transport) => {
                    let sent = sent?;
                    self.traffic.sent(sent);
                    self.account.sent(sent);
                    sent_at = Instant::now();
                    looked_at = sent_at;
                    self.standing.note_used(sent_at);
                }
                () = self.reader.granted(), if self.reader.is_in_line() => self.reader.note_granted(),
                () = self.account.evicted() => return Err(Closed::InTheWay),
                Some(outcome) = self.pipeline.next(), if self.refused.is_none() && !self.pipeline.is_empty() => {
                    self.take_outcome(outcome);
                }
                () = sleep_until(judge_at.map_or(look_at, |at| at.min(look_at)).min(share_until)) => {
                    self.reader.judge()?;
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
}

#[cfg(test)]
mod tests;
