//! A budget of bytes that many connections share.
//!
//! Requests are charged *before* their memory is allocated and wait while the budget is spent. Refuses nothing: it slows
//! the senders.
//!
//! A whole request counts for its source until it is answered: a source that holds more for such requests than it leaves free
//! begins no other, so that others find memory whatever it sends. Its further requests wait, and stand in no line before theirs.
//!
//! Connections of which no large frame has become whole yet fill their memory one after the other: many large frames at once
//! would keep the machine's processors from everybody else's small requests for tens of milliseconds, most of it in the
//! clients' processes and the system.
//!
//! A large frame is charged while it arrives, in one of two [lanes](super::large_frames), which leave a quarter of the budget to
//! whole requests. A frame that finds its lane full waits in line. The time that a frame then has to fill its memory follows
//! from how much waits behind it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::large_frames::{Grant, Lane, ORDINARY_BYTES_MAX, Sender};
use super::source::Source;
use super::wait::{Counted, wait_until};

/// The part of a budget that may be spent on optional things, so that these never stand in the way of requests.
const SPARE_SHARE: usize = 4;
/// The part of a budget for ordinary frames that arrive, and the part for huge ones.
const ORDINARY_SHARE: usize = 2;
const HUGE_SHARE: usize = 4;
/// The part of a budget up to which fetches that hold much may wait for records.
const WAITING_SHARE: usize = 2;
/// Bytes that connections which are not proven are given to fill in a millisecond, all together: to receive so many takes an
/// eighth of that time for the system, their clients and this server.
const NEWCOMERS_BYTES_PER_MS: usize = 256 * 1024;
/// How long one of them waits for its turn at most: clients that open ever new connections and leave them hold up nobody for
/// longer.
const NEWCOMER_WAIT_MAX: Duration = Duration::from_millis(125);

/// Bytes that may be held at once.
///
/// Invariants: `used` is the sum of all live [`Charge`]s without their overdrawn bytes; it passes the capacity only by
/// bytes that exist already and by one charge that was taken when nothing else was held. `in_line` counts the frames that wait
/// in both lanes; it is raised before the last look for memory, and memory is given back before it is looked at, so that no
/// release is missed (both in the one order of all). `waiting` counts the other waits. `overdrawn_bytes` is the sum that the
/// charges overdraw. `shares` has each source that has a connection, and some that had one.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    capacity_bytes: usize,
    used_bytes: AtomicUsize,
    overdrawn_bytes: AtomicUsize,
    released: Notify,
    ordinary: Mutex<Lane>,
    huge: Mutex<Lane>,
    in_line: AtomicUsize,
    waiting: AtomicUsize,
    /// When the next connection that is not proven begins to fill its memory.
    newcomer_begins_at: Mutex<Option<Instant>>,
    shares: Mutex<HashMap<Source, Arc<Share>>>,
}

/// The memory that the whole requests of one source hold.
///
/// Invariants: `whole_bytes` is the sum of what the live [`Charge`]s with this share count for it.
#[derive(Debug, Default)]
pub(crate) struct Share {
    whole_bytes: AtomicUsize,
}

/// Bytes of the budget, given back when dropped.
///
/// Invariants: it is in its lane's line exactly while `awaited` is set and no grant has come.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    /// Bytes that are counted in the budget.
    bytes: usize,
    /// Its arrival, while it is not whole, or while it is overdrawn.
    arrival: Option<Arrival>,
    /// Bytes beyond the budget.
    overdrawn_bytes: usize,
    /// The source for which so many bytes count, since they are whole.
    share: Option<Arc<Share>>,
    whole_bytes: usize,
}

#[derive(Debug)]
struct Arrival {
    sender: Sender,
    is_huge: bool,
    is_whole: bool,
    /// The older, the lower.
    ticket: u64,
    is_overdrawn: bool,
    awaited: Option<(usize, oneshot::Receiver<Grant>)>,
}

impl MemoryBudget {
    pub(crate) fn new(capacity_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity_bytes,
            used_bytes: AtomicUsize::new(0),
            overdrawn_bytes: AtomicUsize::new(0),
            released: Notify::new(),
            ordinary: Mutex::new(Lane::new(capacity_bytes / ORDINARY_SHARE)),
            huge: Mutex::new(Lane::new(capacity_bytes / HUGE_SHARE)),
            in_line: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            newcomer_begins_at: Mutex::new(None),
            shares: Mutex::default(),
        })
    }

    /// The share of a source, which all of its connections have together.
    pub(crate) fn share(&self, source: Source) -> Arc<Share> {
        let mut shares = self.shares.lock();
        if shares.len() == shares.capacity() {
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        Arc::clone(shares.entry(source).or_default())
    }

    /// Bytes held now, without overdrawn ones.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.used_bytes() + self.overdrawn_bytes.load(Ordering::Relaxed)
    }

    /// Frames that have arrived in part and wait for memory.
    pub(crate) fn in_line(&self) -> usize {
        self.in_line.load(Ordering::Relaxed)
    }

    /// Whether requests that only wait may hold more of it: not beyond a half, so that there is always some for work.
    pub(crate) fn has_room_to_wait(&self) -> bool {
        self.held_bytes() <= self.capacity_bytes / WAITING_SHARE
    }

    /// Whether a request waits for memory.
    pub(crate) fn is_wanted(&self) -> bool {
        self.in_line() > 0 || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a request waits that is there as a whole, as a small one is.
    pub(crate) fn is_wanted_for_whole(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes `bytes`, waiting while others hold too much, for no source.
    #[cfg(test)]
    pub(crate) async fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        if !self.take(bytes) {
            self.wait_for(|| self.take(bytes)).await;
        }
        self.charged(bytes)
    }

    /// Takes `bytes` for a request that is whole, waiting while others hold too much or its source has its share. A charge
    /// larger than the whole budget is admitted when nothing else is held, so that a legal request is never stuck.
    pub(crate) async fn charge_whole(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Charge {
        if !self.take_whole(share, bytes) {
            self.wait_for(|| self.take_whole(share, bytes)).await;
        }
        self.charged_whole(share, bytes)
    }

    /// Waits until `bytes` could be taken for a whole request. The first request to come then takes them.
    pub(crate) async fn room_for(&self, share: &Share, bytes: usize) {
        let has_room = || {
            let used = self.used_bytes.load(Ordering::SeqCst);
            self.fits(used, bytes) && self.has_share(share, used, bytes)
        };
        self.wait_for(has_room).await;
    }

    /// Takes `bytes` for a request that is whole, at once, if the budget has them for its source.
    pub(crate) fn try_charge_whole(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Option<Charge> {
        self.take_whole(share, bytes).then(|| self.charged_whole(share, bytes))
    }

    /// Takes `bytes` at once if the budget has them.
    #[cfg(test)]
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.take(bytes).then(|| self.charged(bytes))
    }

    /// Takes `bytes` at once if most of the budget is free: for optional things. They count as arriving.
    pub(crate) fn try_charge_spare(self: &Arc<Self>, bytes: usize, sender: Sender) -> Option<Charge> {
        let has_spare = self.used_bytes().saturating_add(bytes) <= self.capacity_bytes / SPARE_SHARE;
        let mut charge = self.arriving(0, sender);
        (has_spare && charge.try_grow(bytes)).then_some(charge)
    }

    /// When a connection that is not proven may begin to fill the bytes that its large frame was given just now.
    pub(crate) fn newcomer_begins(&self, now: Instant, bytes: usize) -> Instant {
        let mut next = self.newcomer_begins_at.lock();
        let begins_at = next.map_or(now, |at| at.clamp(now, now + NEWCOMER_WAIT_MAX));
        *next = Some(begins_at + Duration::from_micros((bytes * 1000 / NEWCOMERS_BYTES_PER_MS) as u64));
        begins_at
    }

    /// A charge of nothing yet, for a frame of this length that arrives.
    pub(crate) fn arriving(self: &Arc<Self>, length: usize, sender: Sender) -> Charge {
        let is_huge = length > ORDINARY_BYTES_MAX;
        let ticket = self.lane(is_huge).lock().next_ticket();
        let mut charge = self.charged(0);
        charge.arrival =
            Some(Arrival { sender, is_huge, is_whole: false, ticket, is_overdrawn: false, awaited: None });
        charge
    }

    /// The charge of bytes that have been taken.
    fn charged(self: &Arc<Self>, bytes: usize) -> Charge {
        let budget = Arc::clone(self);
        Charge { budget, bytes, arrival: None, overdrawn_bytes: 0, share: None, whole_bytes: 0 }
    }

    fn charged_whole(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Charge {
        let mut charge = self.charged(bytes);
        charge.count_whole(share);
        charge
    }

    /// Whether a source may begin a request of so many bytes: one in any case, and more as long as it holds no more than it
    /// leaves free.
    fn has_share(&self, share: &Share, used: usize, bytes: usize) -> bool {
        let whole = share.whole_bytes.load(Ordering::SeqCst);
        whole == 0 || whole.saturating_add(bytes) <= self.capacity_bytes.saturating_sub(used)
    }

    /// Whether frames of a source with this share that arrive get nothing more for now.
    fn is_spent(&self, share: &Share) -> bool {
        !self.has_share(share, self.used_bytes.load(Ordering::SeqCst), 0)
    }

    fn is_source_spent(&self, source: Source) -> bool {
        self.shares.lock().get(&source).is_some_and(|share| self.is_spent(share))
    }

    /// Gives free bytes to the frames in line whose sources are not spent.
    fn serve(&self, lane: &mut Lane) {
        let shares = self.shares.lock();
        let spent: Vec<Source> =
            shares.iter().filter(|(_, share)| self.is_spent(share)).map(|(source, _)| *source).collect();
        drop(shares);
        let served = lane.serve(|bytes| self.take(bytes), &spent);
        self.in_line.fetch_sub(served, Ordering::SeqCst);
    }

    fn take_whole(&self, share: &Share, bytes: usize) -> bool {
        self.has_share(share, self.used_bytes.load(Ordering::SeqCst), bytes) && self.take(bytes)
    }

    fn lane(&self, is_huge: bool) -> &Mutex<Lane> {
        if is_huge { &self.huge } else { &self.ordinary }
    }

    fn fits(&self, used: usize, bytes: usize) -> bool {
        used == 0 || used.saturating_add(bytes) <= self.capacity_bytes
    }

    fn take(&self, bytes: usize) -> bool {
        self.used_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                self.fits(used, bytes).then(|| used.saturating_add(bytes))
            })
            .is_ok()
    }

    /// Wakes the requests that wait for bytes, because some were given back.
    fn tell_released(&self) {
        if self.in_line.load(Ordering::SeqCst) > 0 {
            for lane in [&self.ordinary, &self.huge] {
                self.serve(&mut lane.lock());
            }
        }
        self.released.notify_waiters();
    }

    /// Tries until `taken` says yes, each time that something was released.
    async fn wait_for(&self, taken: impl Fn() -> bool) {
        let _counted = Counted::new(&self.waiting);
        wait_until(&self.released, taken).await;
    }
}

impl Charge {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.overdrawn_bytes
    }

    /// Whether it waits for more.
    pub(crate) fn is_in_line(&self) -> bool {
        self.arrival.as_ref().is_some_and(|arrival| arrival.awaited.is_some())
    }

    /// How long a frame may take to fill its memory, because others wait for some in its lane.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let arrival = self.arrival.as_ref()?;
        self.budget.lane(arrival.is_huge).lock().patience()
    }

    /// Takes more for a frame that arrives, at once: if its lane has it, or if this charge is overdrawn.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        let Some(arrival) = &self.arrival else { return false };
        if arrival.is_overdrawn {
            self.overdraw(bytes);
            return true;
        }
        let budget = &self.budget;
        let (source, mut lane) = (arrival.sender.source, budget.lane(arrival.is_huge).lock());
        let is_taken =
            lane.try_take(source, bytes, |bytes| !budget.is_source_spent(source) && budget.take(bytes));
        drop(lane);
        if is_taken {
            self.bytes += bytes;
        }
        is_taken
    }

    /// Takes more for a frame of which `rest` has not been charged, or gets in line for it: see [`Self::granted`].
    pub(crate) fn grow(&mut self, bytes: usize, rest: usize) -> bool {
        if self.try_grow(bytes) {
            return true;
        }
        let budget = Arc::clone(&self.budget);
        let Some(arrival) = &mut self.arrival else { return false };
        let mut lane = budget.lane(arrival.is_huge).lock();
        arrival.awaited = Some((bytes, lane.join(arrival.sender, arrival.ticket, bytes, rest)));
        budget.in_line.fetch_add(1, Ordering::SeqCst);
        // A release before it was counted as in line did not serve it.
        budget.serve(&mut lane);
        false
    }

    /// Waits until the bytes that it is in line for were granted. Safe to drop at any time.
    pub(crate) async fn granted(&mut self) {
        let Some(Arrival { awaited: Some((_, granted)), .. }) = &mut self.arrival else { return };
        // The sender is in the line until it grants.
        if let Ok(grant) = granted.await {
            self.accept(grant);
        }
    }

    fn overdraw(&mut self, bytes: usize) {
        self.overdrawn_bytes += bytes;
        self.budget.overdrawn_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back_overdrawn(&mut self) {
        let bytes = std::mem::take(&mut self.overdrawn_bytes);
        if bytes > 0 {
            self.budget.overdrawn_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn accept(&mut self, grant: Grant) {
        let Some(arrival) = &mut self.arrival else { return };
        let Some((bytes, _)) = arrival.awaited.take() else { return };
        match grant {
            Grant::Taken => self.bytes += bytes,
            Grant::Overdraft => {
                arrival.is_overdrawn = true;
                self.overdraw(bytes);
            }
        }
    }

    /// Counts the bytes that it holds for this source.
    fn count_whole(&mut self, share: &Arc<Share>) {
        self.whole_bytes = self.bytes;
        share.whole_bytes.fetch_add(self.whole_bytes, Ordering::SeqCst);
        self.share = Some(Arc::clone(share));
    }

    fn uncount_whole(&mut self) {
        let bytes = std::mem::take(&mut self.whole_bytes);
        if let Some(share) = &self.share {
            share.whole_bytes.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    /// The frame is whole. It keeps its bytes, and those that it overdrew are nobody else's until it ends: there is never
    /// more than one such frame in a lane.
    pub(crate) fn become_whole(&mut self, share: &Arc<Share>) {
        self.count_whole(share);
        self.end_arrival(self.overdrawn_bytes == 0);
        self.budget.tell_released();
    }

    /// From now on holds so many bytes as whole. They exist already: those beyond the bytes of before are taken whatever is held.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.end_arrival(true);
        self.give_back_overdrawn();
        self.budget.used_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.bytes = bytes;
        self.uncount_whole();
        if let Some(share) = self.share.take() {
            self.count_whole(&share);
        }
        self.budget.tell_released();
    }

    /// Gives its place in the lane back; with `overdraft`, also the leave to overdraw.
    fn end_arrival(&mut self, overdraft: bool) {
        let Some(arrival) = &mut self.arrival else { return };
        let mut lane = self.budget.lane(arrival.is_huge).lock();
        if !std::mem::replace(&mut arrival.is_whole, true) {
            lane.give_back(arrival.sender.source, self.bytes);
        }
        if overdraft {
            lane.end_overdraft(arrival.is_overdrawn);
            drop(lane);
            self.arrival = None;
        }
    }

    fn leave_line(&mut self) {
        let Some(arrival) = &mut self.arrival else { return };
        let Some((_, granted)) = &mut arrival.awaited else { return };
        if self.budget.lane(arrival.is_huge).lock().leave(arrival.ticket) {
            self.budget.in_line.fetch_sub(1, Ordering::SeqCst);
        } else if let Ok(grant) = granted.try_recv() {
            self.accept(grant);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.leave_line();
        self.give_back_overdrawn();
        self.uncount_whole();
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.end_arrival(true);
        self.budget.tell_released();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_charge_waits_until_another_is_given_back() {
        let budget = MemoryBudget::new(100);
        let first = budget.charge(80).await;
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.charge(40).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!(budget.used_bytes(), 40);
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn waiting_requests_find_room_up_to_a_half() {
        let budget = MemoryBudget::new(100);
        let mut waits = budget.charge(50).await;
        assert!(budget.has_room_to_wait());
        waits.resize(51);
        assert!(!budget.has_room_to_wait());
    }

    #[tokio::test]
    async fn a_source_holds_no_more_of_what_is_whole_than_it_leaves_free() {
        let budget = MemoryBudget::new(100);
        let [one, other] = [1, 2].map(|last| budget.share(Source::of([192, 0, 2, last].into())));
        let first = budget.charge_whole(&one, 30).await;
        assert!(budget.try_charge_whole(&one, 50).is_none());
        let second = budget.try_charge_whole(&one, 20).expect("half of it");
        let mut waiting = std::pin::pin!(budget.charge_whole(&one, 1));
        assert!(waiting.as_mut().now_or_never().is_none() && budget.is_wanted());
        let others = budget.try_charge_whole(&other, 25).expect("the other half is free");
        assert!(budget.room_for(&one, 1).now_or_never().is_none());
        drop((second, others));
        assert!(waiting.now_or_never().is_some() && !budget.is_wanted());
        drop(first);
        assert!(budget.room_for(&one, 1).now_or_never().is_some());
        let huge = budget.try_charge_whole(&one, 1_000).expect("one in any case");
        assert_eq!(one.whole_bytes.load(Ordering::SeqCst), 1_000);
        drop(huge);
        assert_eq!((one.whole_bytes.load(Ordering::SeqCst), budget.used_bytes()), (0, 0));
    }

    #[test]
    fn newcomers_begin_one_by_one_unless_they_are_few() {
        let (budget, now) = (budget(), Instant::now());
        let each = Duration::from_millis(4);
        let begins: Vec<_> = (0..4).map(|_| budget.newcomer_begins(now, MIB) - now).collect();
        assert_eq!(begins, [Duration::ZERO, each, 2 * each, 3 * each]);
        let later = now + 10 * each;
        assert_eq!([0, 1].map(|_| budget.newcomer_begins(later, MIB) - later), [Duration::ZERO, each]);
        let longest = (0..1000).map(|_| budget.newcomer_begins(later, MIB) - later).max();
        assert_eq!(longest, Some(NEWCOMER_WAIT_MAX));
    }

    #[test]
    fn frames_of_a_source_with_its_share_wait_and_delay_no_others() {
        let budget = budget();
        let mut whole = arrived(&budget, 9 * MIB, 2 * MIB);
        whole.become_whole(&budget.share(Source::SOME));
        let _more = budget.try_charge(5 * MIB).expect("free");
        let (mut spent, mut other) = (waiting(&budget, MIB), waiting_of(&budget, [192, 0, 2, 1], false));
        assert!(!has_been_granted(&mut spent), "it does not overdraw either");
        assert!(has_been_granted(&mut other));
        whole.resize(0);
        drop(other);
        assert!(has_been_granted(&mut spent));
    }

    #[test]
    fn shares_of_sources_that_have_gone_are_forgotten() {
        let budget = budget();
        let kept = budget.share(Source::SOME);
        for last in 0..=u8::MAX {
            budget.share(Source::of([192, 0, 2, last].into()));
        }
        assert!(budget.shares.lock().len() < 64);
        assert!(Arc::ptr_eq(&kept, &budget.share(Source::SOME)));
    }

    #[tokio::test]
    async fn one_charge_above_the_capacity_passes_alone() {
        let budget = MemoryBudget::new(100);
        let huge = budget.charge(1_000).await;
        assert!(budget.try_charge(1).is_none());
        drop(huge);
        assert!(budget.try_charge(1).is_some());
    }

    const MIB: usize = 1 << 20;
    const SENDER: Sender = Sender { source: Source::SOME, is_proven: false };

    /// A budget of 8 MiB, half of which is for ordinary frames and a quarter for huge ones.
    fn budget() -> Arc<MemoryBudget> {
        MemoryBudget::new(8 * MIB)
    }

    #[track_caller]
    fn assert_nothing_is_held(budget: &Arc<MemoryBudget>) {
        let held = [&budget.ordinary, &budget.huge].map(|lane| lane.lock().held_bytes());
        assert_eq!((budget.held_bytes(), held, budget.in_line.load(Ordering::SeqCst)), (0, [0, 0], 0));
        let (ordinary, huge) = (budget.arriving(1, SENDER), budget.arriving(100 * MIB, SENDER));
        assert_eq!((ordinary.patience(), huge.patience()), (None, None));
    }

    /// A frame that arrives and has this much.
    fn arrived(budget: &Arc<MemoryBudget>, length: usize, bytes: usize) -> Charge {
        let mut charge = budget.arriving(length, SENDER);
        assert!(charge.try_grow(bytes));
        charge
    }

    /// A frame that got in line for the rest of it.
    fn waiting(budget: &Arc<MemoryBudget>, length: usize) -> Charge {
        let mut charge = budget.arriving(length, SENDER);
        assert!(!charge.grow(length, length) && charge.is_in_line());
        charge
    }

    /// Whether it has the bytes that it was in line for.
    fn has_been_granted(charge: &mut Charge) -> bool {
        charge.granted().now_or_never().is_some()
    }

    #[test]
    fn frames_that_arrive_leave_a_quarter_to_those_that_are_whole() {
        let budget = budget();
        let mut ordinary: Vec<_> = (0..4).map(|_| arrived(&budget, MIB, MIB)).collect();
        let huge = arrived(&budget, 9 * MIB, 2 * MIB);
        assert!(!budget.arriving(MIB, SENDER).try_grow(1) && budget.try_charge_spare(1, SENDER).is_none());
        let whole = budget.try_charge(2 * MIB).expect("the rest is for requests that are whole");
        assert!(budget.try_charge(1).is_none());
        drop(whole);
        ordinary[0].become_whole(&budget.share(Source::SOME));
        assert_eq!(budget.used_bytes(), 6 * MIB, "a frame that is whole is held like any request");
        assert!(budget.arriving(MIB, SENDER).try_grow(MIB));
        drop((ordinary, huge));
        assert_nothing_is_held(&budget);
    }

    #[test]
    fn huge_frames_hold_up_no_ordinary_ones() {
        let budget = budget();
        let mut huge: Vec<_> = (0..2).map(|_| arrived(&budget, 9 * MIB, MIB)).collect();
        assert!(!huge[0].grow(MIB, 8 * MIB) && has_been_granted(&mut huge[0]), "it overdraws");
        assert!(!huge[1].grow(MIB, 8 * MIB) && !has_been_granted(&mut huge[1]));
        let ordinary = arrived(&budget, MIB, MIB);
        assert_eq!(ordinary.patience(), None, "nobody waits for it");
        assert!(huge[0].patience().is_some());
        drop((huge, ordinary));
        assert_nothing_is_held(&budget);
    }

    #[test]
    fn oldest_frame_in_line_is_served_first_unless_it_leaves() {
        let budget = budget();
        let mut held: Vec<_> = (0..4).map(|_| arrived(&budget, MIB, MIB)).collect();
        let mut older = budget.arriving(MIB, SENDER);
        let mut overdrawn = waiting(&budget, MIB);
        assert!(has_been_granted(&mut overdrawn));
        let (gone, mut younger) = (waiting(&budget, MIB), waiting(&budget, MIB));
        assert!(!older.grow(MIB, MIB));
        held.pop();
        assert!(has_been_granted(&mut older) && !has_been_granted(&mut younger));
        drop(gone);
        held.pop();
        assert!(has_been_granted(&mut younger));
        assert_eq!(budget.used_bytes(), 4 * MIB);
        held.pop();
        let granted_and_gone = waiting_after(&budget, &mut held);
        drop((granted_and_gone, held, older, younger, overdrawn));
        assert_nothing_is_held(&budget);
    }

    fn waiting_of(budget: &Arc<MemoryBudget>, address: [u8; 4], is_proven: bool) -> Charge {
        let sender = Sender { source: Source::of(std::net::IpAddr::from(address)), is_proven };
        let mut charge = budget.arriving(MIB, sender);
        assert!(!charge.grow(MIB, MIB));
        charge
    }

    #[test]
    fn proven_sender_is_served_first_then_the_source_holding_least() {
        let budget = budget();
        let mut held: Vec<_> = (0..4).map(|_| arrived(&budget, MIB, MIB)).collect();
        let mut overdrawn = waiting(&budget, MIB);
        assert!(has_been_granted(&mut overdrawn));
        let mut line = [
            waiting(&budget, MIB),
            waiting_of(&budget, [192, 0, 2, 1], false),
            waiting_of(&budget, [192, 0, 2, 1], false),
            waiting_of(&budget, [192, 0, 2, 2], false),
            waiting_of(&budget, [192, 0, 2, 1], true),
        ];
        for next in [4, 3, 0] {
            let granted: Vec<_> = line.iter_mut().map(|charge| !charge.is_in_line()).collect();
            assert!(!granted[next]);
            held.pop();
            assert!(has_been_granted(&mut line[next]), "{next}");
        }
        assert_eq!(budget.in_line(), 2);
        drop((held, overdrawn, line));
        assert_nothing_is_held(&budget);
    }

    /// One that was granted memory and never looked.
    fn waiting_after(budget: &Arc<MemoryBudget>, held: &mut Vec<Charge>) -> Charge {
        let filler = arrived(budget, MIB, MIB);
        let charge = waiting(budget, MIB);
        drop(filler);
        held.clear();
        charge
    }

    #[test]
    fn one_of_two_frames_in_deadlock_overdraws_and_is_done() {
        let budget = budget();
        let (mut first, mut second) = (arrived(&budget, 9 * MIB, MIB), arrived(&budget, 9 * MIB, MIB));
        assert!(!first.grow(2 * MIB, 8 * MIB) && has_been_granted(&mut first));
        assert!(first.try_grow(6 * MIB), "it goes on to overdraw");
        assert_eq!((first.bytes(), budget.used_bytes(), budget.held_bytes()), (9 * MIB, 2 * MIB, 10 * MIB));
        first.become_whole(&budget.share(Source::SOME));
        assert!(budget.try_charge(6 * MIB).is_some(), "what is overdrawn stands in nobody's way");
        assert!(!second.grow(2 * MIB, 8 * MIB));
        assert!(!has_been_granted(&mut second), "one at a time, until its memory is free");
        drop(first);
        assert!(has_been_granted(&mut second));
        assert_eq!((second.bytes(), budget.used_bytes()), (3 * MIB, MIB));
        drop(second);
        assert_nothing_is_held(&budget);
    }

    #[test]
    fn the_more_waits_the_less_time_a_frame_has() {
        let budget = budget();
        let held: Vec<_> = (0..4).map(|_| arrived(&budget, MIB, MIB)).collect();
        let mut line: Vec<_> = (0..2).map(|_| waiting(&budget, MIB)).collect();
        assert_eq!(held[0].patience(), Some(Duration::from_secs(2)));
        line.extend((0..8).map(|_| waiting(&budget, MIB)));
        assert!(held[0].patience() < Some(Duration::from_secs(1)));
        line.extend((0..100).map(|_| waiting(&budget, MIB)));
        assert_eq!(held[0].patience(), Some(Duration::from_millis(250)));
        drop((held, line));
        assert_nothing_is_held(&budget);
    }

    #[tokio::test]
    async fn a_frame_in_line_takes_what_a_whole_request_gives_back() {
        let budget = budget();
        let overdrawn = {
            let _held: Vec<_> = (0..4).map(|_| arrived(&budget, MIB, MIB)).collect();
            let mut overdrawn = waiting(&budget, MIB);
            overdrawn.granted().await;
            overdrawn
        };
        let whole = budget.charge(8 * MIB).await;
        let mut waiting = waiting(&budget, MIB);
        assert!(!has_been_granted(&mut waiting));
        let granted = tokio::spawn(async move {
            waiting.granted().await;
            waiting
        });
        tokio::task::yield_now().await;
        drop(whole);
        assert_eq!(granted.await.unwrap().bytes(), MIB);
        drop(overdrawn);
        assert_nothing_is_held(&budget);
    }

    #[tokio::test]
    async fn charge_follows_the_bytes_that_a_request_keeps() {
        let budget = budget();
        let mut parked = budget.charge(6 * MIB).await;
        let mut waiting = std::pin::pin!(budget.charge(4 * MIB));
        assert!(waiting.as_mut().now_or_never().is_none() && budget.is_wanted());
        parked.resize(MIB);
        let other = waiting.now_or_never().expect("there is room");
        assert!(!budget.is_wanted());
        parked.resize(9 * MIB);
        assert_eq!(budget.used_bytes(), 13 * MIB);
        drop((parked, other));
        assert_nothing_is_held(&budget);
    }

    #[test]
    fn a_huge_request_that_keeps_little_overdraws_no_more() {
        let budget = budget();
        let held = arrived(&budget, 9 * MIB, 2 * MIB);
        let mut parked = waiting(&budget, 9 * MIB);
        assert!(has_been_granted(&mut parked));
        let mut next = waiting(&budget, 9 * MIB);
        parked.become_whole(&budget.share(Source::SOME));
        assert!(!has_been_granted(&mut next));
        parked.resize(100);
        assert!(has_been_granted(&mut next));
        assert_eq!((parked.bytes(), budget.used_bytes()), (100, 2 * MIB + 100));
        drop((held, parked, next));
        assert_nothing_is_held(&budget);
    }
}
