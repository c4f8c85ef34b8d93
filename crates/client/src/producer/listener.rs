//! Callbacks for the outcomes of records: a function for each record, or a listener for all records of one batch.
//!
//! Guarantees that each is called once, in the order of its records of a batch, and that one that panics keeps no
//! other from being called.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use riverrun_types::TimestampMs;

use super::delivery::{BatchPlace, Delivery, Outcome};
use super::record::RecordMetadata;
use crate::error::ClientError;

/// The callback of one record. A type of its own: with the bare box in it, the compiler does not prove the futures of
/// sending to be `Send`.
pub(super) struct Callback(Box<dyn FnOnce(Result<RecordMetadata, ClientError>) + Send>);

impl Callback {
    pub(super) fn new(call: impl FnOnce(Result<RecordMetadata, ClientError>) + Send + 'static) -> Self {
        Self(Box::new(call))
    }
}

/// Initial capacity for tags of one batch.
const TAGS: usize = 4;
/// Groups whose memory is kept for the next batch.
const GROUPS_KEPT: usize = 2;

/// Gets the outcomes of records sent with [`Producer::send_tagged`](super::Producer::send_tagged): those of one batch
/// in one call. A record costs its sender no allocation, and the listener's work for a batch (a lock, reading the
/// clock) is not repeated for each record.
pub trait DeliveryListener: Send + Sync + 'static {
    /// A value sent with a record, by which the listener recognises it.
    type Tag: Send + 'static;

    /// Records have their outcome. The sender task makes the call, so it must not wait: least of all for a flush,
    /// which waits for this call.
    fn completed(&self, records: &CompletedRecords<'_, Self::Tag>);
}

/// Completed records of one batch, in the order in which they were sent.
#[derive(Debug)]
pub struct CompletedRecords<'a, N> {
    outcome: &'a Outcome,
    result: &'a Result<BatchPlace, ClientError>,
    tagged: &'a [Tagged<N>],
}

impl<'a, N> CompletedRecords<'a, N> {
    /// Their outcome: all have arrived, or none.
    pub fn result(&self) -> Result<(), &'a ClientError> {
        self.result.as_ref().map(drop)
    }

    /// Their tags.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = &'a N> + use<'a, N> {
        self.tagged.iter().map(|tagged| &tagged.tag)
    }

    /// Their tags, and the place of each record.
    pub fn each(&self) -> impl Iterator<Item = (&'a N, Result<RecordMetadata, ClientError>)> + use<'a, N> {
        let Self { outcome, result, tagged } = *self;
        tagged.iter().map(move |Tagged { place, tag }| (tag, outcome.of_record(result, *place)))
    }
}

/// Index and timestamp of a record in its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPlace {
    pub(super) index: i32,
    pub(super) timestamp: TimestampMs,
}

/// A tag and the record that it belongs to.
#[derive(Debug)]
struct Tagged<N> {
    place: RecordPlace,
    tag: N,
}

/// A receiver of a record's outcome.
pub(super) trait Enlist {
    /// The handle that a send returns.
    type Handle;

    /// Enlists for the record at this place in the batch of `audience` and `outcome`.
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

/// A tag for a listener. It is taken when the record is in a batch.
#[derive(Debug)]
pub(super) struct Tagging<'a, L: DeliveryListener> {
    pub(super) listener: &'a Arc<L>,
    pub(super) tag: Option<L::Tag>,
}

impl<L: DeliveryListener> Enlist for Tagging<'_, L> {
    type Handle = ();

    fn enlist(&mut self, place: RecordPlace, audience: &mut Audience, _: &Arc<Outcome>) {
        if let Some(tag) = self.tag.take() {
            audience.tag(self.listener, Tagged { place, tag });
        }
    }
}

/// All callbacks and listeners of a batch's records.
///
/// Invariants: entries are in the order of the records, for each listener and for all callbacks. A listener has one
/// group; groups without one stand behind all others of their kind.
#[derive(Default)]
pub(super) struct Audience {
    callbacks: Vec<(RecordPlace, Callback)>,
    groups: Vec<Box<dyn Group>>,
}

impl Audience {
    fn tag<L: DeliveryListener>(&mut self, listener: &Arc<L>, tagged: Tagged<L::Tag>) {
        // Nearly always all records of a batch have the same listener.
        for group in &mut self.groups {
            let group: &mut dyn Any = &mut **group;
            if let Some(group) = group.downcast_mut::<ListenerGroup<L>>()
                && Arc::ptr_eq(group.listener.get_or_insert_with(|| Arc::clone(listener)), listener)
            {
                group.tagged.push(tagged);
                return;
            }
        }
        let listener = Some(Arc::clone(listener));
        let mut group = ListenerGroup { listener, tagged: Vec::with_capacity(TAGS) };
        group.tagged.push(tagged);
        self.groups.push(Box::new(group));
    }

    /// Bytes of its memory, without memory that callbacks own.
    pub(super) fn memory_bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|group| group.memory_bytes()).sum();
        self.callbacks.capacity() * size_of::<(RecordPlace, Callback)>() + groups
    }

    /// Calls all with the outcome, and removes them; some of the memory is kept.
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

    /// Takes out the entries of the records from `at` on, renumbered from there.
    pub(super) fn split_off(&mut self, at: i32) -> Self {
        let mut callbacks = self.callbacks.split_off(self.callbacks.partition_point(|one| one.0.index < at));
        for (place, _) in &mut callbacks {
            place.index -= at;
        }
        let groups = self.groups.iter_mut().filter_map(|group| group.split_off(at)).collect();
        Self { callbacks, groups }
    }
}

/// Catches a panic: the sender task continues for all other records.
fn guard(tell: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(tell)).is_err() {
        tracing::error!("a delivery callback or listener has panicked");
    }
}

/// Tags of any type, for one listener.
trait Group: Any + Send {
    fn tell(&self, outcome: &Outcome, result: &Result<BatchPlace, ClientError>);

    fn split_off(&mut self, at: i32) -> Option<Box<dyn Group>>;

    /// Bytes of its memory.
    fn memory_bytes(&self) -> usize;

    /// Removes the listener and the tags.
    fn clear(&mut self);
}

/// Invariants: without a listener there are no tags.
struct ListenerGroup<L: DeliveryListener> {
    listener: Option<Arc<L>>,
    tagged: Vec<Tagged<L::Tag>>,
}

impl<L: DeliveryListener> Group for ListenerGroup<L> {
    fn tell(&self, outcome: &Outcome, result: &Result<BatchPlace, ClientError>) {
        if let Some(listener) = &self.listener
            && !self.tagged.is_empty()
        {
            listener.completed(&CompletedRecords { outcome, result, tagged: &self.tagged });
        }
    }

    fn split_off(&mut self, at: i32) -> Option<Box<dyn Group>> {
        let mut tagged = self.tagged.split_off(self.tagged.partition_point(|tagged| tagged.place.index < at));
        if tagged.is_empty() {
            return None;
        }
        for tagged in &mut tagged {
            tagged.place.index -= at;
        }
        Some(Box::new(Self { listener: self.listener.clone(), tagged }))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.tagged.capacity() * size_of::<Tagged<L::Tag>>()
    }

    fn clear(&mut self) {
        self.listener = None;
        self.tagged.clear();
    }
}
