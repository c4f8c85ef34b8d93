//! Who is told what became of records: a function for each of them, or a listener for all that one batch carried.
//!
//! Guarantees that each is told once, in the order of its records of a batch, and that one that panics keeps no other from
//! being told.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use riverrun_types::TimestampMs;

use super::delivery::{BatchPlace, Delivery, Outcome};
use super::record::RecordMetadata;
use crate::error::ClientError;

/// What is called with the outcome of one record. A type of its own: with the bare box in it, the compiler takes none of the
/// futures of sending for one that another thread may run.
pub(super) struct Callback(Box<dyn FnOnce(Result<RecordMetadata, ClientError>) + Send>);

impl Callback {
    pub(super) fn new(call: impl FnOnce(Result<RecordMetadata, ClientError>) + Send + 'static) -> Self {
        Self(Box::new(call))
    }
}

/// Notes of one batch for which there is room at first.
const NOTES: usize = 4;
/// Groups whose memory is kept for the next batch.
const GROUPS_KEPT: usize = 2;

/// Is told what became of records that were sent with [`Producer::send_noted`](super::Producer::send_noted): those of a
/// batch together, with one call. A record costs its sender no allocation, and whatever the listener does for a batch (a
/// lock, a look at the clock) is not done for each record.
pub trait DeliveryListener: Send + Sync + 'static {
    /// What a record is sent with, by which the listener knows it again.
    type Note: Send + 'static;

    /// Records have their outcome. Called by the task that sends, so it must not wait: least of all for a flush, which waits
    /// for this call.
    fn settled(&self, records: &SettledRecords<'_, Self::Note>);
}

/// Records of one batch that have their outcome, in the order in which they were sent.
#[derive(Debug)]
pub struct SettledRecords<'a, N> {
    outcome: &'a Outcome,
    result: &'a Result<BatchPlace, ClientError>,
    noted: &'a [Noted<N>],
}

impl<'a, N> SettledRecords<'a, N> {
    /// What became of them: all have arrived, or none.
    pub fn result(&self) -> Result<(), &'a ClientError> {
        self.result.as_ref().map(drop)
    }

    /// What they were sent with.
    pub fn notes(&self) -> impl ExactSizeIterator<Item = &'a N> + use<'a, N> {
        self.noted.iter().map(|noted| &noted.note)
    }

    /// What they were sent with, and where each came to lie.
    pub fn each(&self) -> impl Iterator<Item = (&'a N, Result<RecordMetadata, ClientError>)> + use<'a, N> {
        let Self { outcome, result, noted } = *self;
        noted.iter().map(move |Noted { place, note }| (note, outcome.of_record(result, *place)))
    }
}

/// Which record of its batch one is.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPlace {
    pub(super) index: i32,
    pub(super) timestamp: TimestampMs,
}

/// A note and the record that it belongs to.
#[derive(Debug)]
struct Noted<N> {
    place: RecordPlace,
    note: N,
}

/// Has somebody told of a record.
pub(super) trait Enlist {
    /// What whoever sends the record keeps.
    type Handle;

    /// The record has this place in the batch that `audience` and `outcome` belong to.
    fn enlist(&mut self, place: RecordPlace, audience: &mut Audience, outcome: &Arc<Outcome>)
    -> Self::Handle;
}

/// With or without a callback.
impl Enlist for Option<Callback> {
    type Handle = Delivery;

    fn enlist(&mut self, place: RecordPlace, audience: &mut Audience, outcome: &Arc<Outcome>) -> Delivery {
        if let Some(callback) = self.take() {
            audience.callbacks.push((place, callback));
        }
        outcome.delivery(place.index, place.timestamp)
    }
}

/// A note for a listener. It is taken when the record is in a batch.
#[derive(Debug)]
pub(super) struct Noting<'a, L: DeliveryListener> {
    pub(super) listener: &'a Arc<L>,
    pub(super) note: Option<L::Note>,
}

impl<L: DeliveryListener> Enlist for Noting<'_, L> {
    type Handle = ();

    fn enlist(&mut self, place: RecordPlace, audience: &mut Audience, _: &Arc<Outcome>) {
        if let Some(note) = self.note.take() {
            audience.note(self.listener, Noted { place, note });
        }
    }
}

/// Everybody who is told of a batch's records.
///
/// Invariants: what is in it is in the order of the records, for each listener and for all callbacks. A listener has one
/// group; groups without one stand behind all others of their kind.
#[derive(Default)]
pub(super) struct Audience {
    callbacks: Vec<(RecordPlace, Callback)>,
    groups: Vec<Box<dyn Group>>,
}

impl Audience {
    fn note<L: DeliveryListener>(&mut self, listener: &Arc<L>, noted: Noted<L::Note>) {
        // Nearly always all records of a batch have the same listener.
        for group in &mut self.groups {
            let group: &mut dyn Any = &mut **group;
            if let Some(group) = group.downcast_mut::<ListenerGroup<L>>()
                && Arc::ptr_eq(group.listener.get_or_insert_with(|| Arc::clone(listener)), listener)
            {
                group.noted.push(noted);
                return;
            }
        }
        let listener = Some(Arc::clone(listener));
        let mut group = ListenerGroup { listener, noted: Vec::with_capacity(NOTES) };
        group.noted.push(noted);
        self.groups.push(Box::new(group));
    }

    /// Bytes of memory that it takes, without what callbacks own.
    pub(super) fn memory_bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|group| group.memory_bytes()).sum();
        self.callbacks.capacity() * size_of::<(RecordPlace, Callback)>() + groups
    }

    /// Tells all, and forgets them; some of the memory is kept.
    pub(super) fn tell(&mut self, outcome: &Outcome, result: &Result<BatchPlace, ClientError>) {
        for (place, callback) in std::mem::take(&mut self.callbacks) {
            guard(|| (callback.0)(outcome.of_record(result, place)));
        }
        for group in &mut self.groups {
            guard(|| group.tell(outcome, result));
            group.clear();
        }
        self.groups.truncate(GROUPS_KEPT);
    }

    /// Takes out those of the records from `at` on, which count from there.
    pub(super) fn split_off(&mut self, at: i32) -> Self {
        let mut callbacks = self.callbacks.split_off(self.callbacks.partition_point(|one| one.0.index < at));
        for (place, _) in &mut callbacks {
            place.index -= at;
        }
        let groups = self.groups.iter_mut().filter_map(|group| group.split_off(at)).collect();
        Self { callbacks, groups }
    }
}

/// The sender goes on for all other records.
fn guard(tell: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(tell)).is_err() {
        tracing::error!("whoever was told of a delivery has panicked");
    }
}

/// Notes of whatever kind, for one listener.
trait Group: Any + Send {
    fn tell(&self, outcome: &Outcome, result: &Result<BatchPlace, ClientError>);

    fn split_off(&mut self, at: i32) -> Option<Box<dyn Group>>;

    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> usize;

    /// Forgets the listener and the notes.
    fn clear(&mut self);
}

/// Invariants: without a listener there are no notes.
struct ListenerGroup<L: DeliveryListener> {
    listener: Option<Arc<L>>,
    noted: Vec<Noted<L::Note>>,
}

impl<L: DeliveryListener> Group for ListenerGroup<L> {
    fn tell(&self, outcome: &Outcome, result: &Result<BatchPlace, ClientError>) {
        if let Some(listener) = &self.listener
            && !self.noted.is_empty()
        {
            listener.settled(&SettledRecords { outcome, result, noted: &self.noted });
        }
    }

    fn split_off(&mut self, at: i32) -> Option<Box<dyn Group>> {
        let mut noted = self.noted.split_off(self.noted.partition_point(|noted| noted.place.index < at));
        if noted.is_empty() {
            return None;
        }
        for noted in &mut noted {
            noted.place.index -= at;
        }
        Some(Box::new(Self { listener: self.listener.clone(), noted }))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.noted.capacity() * size_of::<Noted<L::Note>>()
    }

    fn clear(&mut self) {
        self.listener = None;
        self.noted.clear();
    }
}
