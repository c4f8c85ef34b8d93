//! The outcomes of batches that were taken out: retried, split or completed, and passed on in the order of records.

use std::sync::atomic::Ordering;

use riverrun_types::ErrorKind;
use tokio::time::Instant;

use super::{Accumulator, NONE_TOLD};
use crate::error::ClientError;
use crate::producer::batch::{Batch, Ended};
use crate::producer::delivery::BatchPlace;
use crate::producer::queue::PartitionQueue;
use crate::producer::verdict::{self, Verdict};

impl Accumulator {
    /// Completes a batch that is not in flight any more. `broken`: its sequence numbers leave a gap. The callbacks of
    /// its records run after those of all earlier batches of the partition, without a lock.
    pub(in crate::producer) fn complete(
        &self,
        batch: Batch,
        result: Result<BatchPlace, ClientError>,
        broken: bool,
    ) {
        let Some((first, others)) = self.end(Ended { batch, result }, broken) else { return };
        if !others.is_empty() {
            // Batches that wait behind them may go now.
            self.wake.notify_one();
        }
        for ended in std::iter::once(first).chain(others) {
            self.tell(ended);
        }
        // SYNC: told. Pairs with the acquire in `is_told`: all callbacks have returned.
        self.telling.store(NONE_TOLD, Ordering::Release);
        self.completed.notify_waiters();
    }

    /// Records the outcome of a batch. Returns the batches whose callbacks are due, this one first: none while an
    /// earlier one has no outcome.
    fn end(&self, ended: Ended, broken: bool) -> Option<(Ended, Vec<Ended>)> {
        let key = ended.batch.key;
        let mut state = self.lock();
        let queue = state.queue(key)?;
        queue.came_back(ended.batch.id);
        let is_delivered = ended.result.is_ok();
        if is_delivered {
            queue.confirm();
        }
        if broken {
            queue.break_chain();
        }
        let first = queue.end(ended);
        let others: Vec<Ended> = std::iter::from_fn(|| queue.next_ended()).collect();
        if is_delivered {
            state.trouble = None;
        }
        state.list_unless_empty(key);
        let first = first?;
        // SYNC: told. Stored before the batches leave `unresolved`, for readers under the same lock.
        self.telling.store(first.batch.id, Ordering::Relaxed);
        for ended in std::iter::once(&first).chain(&others) {
            state.leave(ended);
        }
        Some((first, others))
    }

    /// Calls the callbacks of a batch's records, and takes back its bytes.
    fn tell(&self, Ended { batch, result }: Ended) {
        let reserved_bytes = batch.reserved_bytes;
        let memory = batch.finish(result);
        self.space.free(reserved_bytes);
        if let Some(memory) = memory {
            self.keep(memory);
        }
    }

    /// Retries, splits or completes a batch that came back with this error, and returns whether its leader may have
    /// changed.
    pub(in crate::producer) fn handle_error(
        &self,
        mut batch: Batch,
        error: ClientError,
        retry_at: Instant,
    ) -> bool {
        let verdict = verdict::of_error(&batch, &error, self.is_next(&batch), self.options.retries);
        tracing::debug!(%error, ?verdict, attempts = batch.attempts, "a batch came back");
        match verdict {
            Verdict::Delivered => {
                let place = BatchPlace { base_offset: None, append_time: None };
                self.complete(batch, Ok(place), false);
                false
            }
            Verdict::Split => {
                batch.last_error = Some(error);
                self.split(batch);
                false
            }
            Verdict::Again { broken } => {
                let moved = error.kind() == ErrorKind::Retry;
                self.set_trouble(error.clone());
                batch.last_error = Some(error);
                self.retry(batch, retry_at, broken);
                moved
            }
            Verdict::Failed { broken } => {
                self.complete(batch, Err(error), broken);
                false
            }
        }
    }

    /// Replaces a batch that the server finds too large by its halves.
    fn split(&self, batch: Batch) {
        let (id, key) = (batch.id, batch.key);
        let parts = match batch.split() {
            Ok(parts) => parts,
            Err(failed) => {
                let (batch, error) = *failed;
                let broken = batch.stamp.is_some();
                return self.complete(batch, Err(error.into()), broken);
            }
        };
        let mut state = self.lock();
        state.counts.batches_split += 1;
        state.unresolved.remove(&id);
        state.unresolved.extend(parts.iter().map(|part| part.id));
        let now = Instant::now();
        if let Some(queue) = state.queue(key) {
            queue.came_back(id);
            for part in parts {
                queue.put_back(part, now);
            }
        }
        state.list(key);
    }

    /// Queues a batch again that came back. `broken`: its sequence has to begin again first.
    fn retry(&self, batch: Batch, retry_at: Instant, broken: bool) {
        let mut state = self.lock();
        state.counts.batches_retried += 1;
        state.counts.records_retried += u64::try_from(batch.record_count()).unwrap_or_default();
        let key = batch.key;
        let Some(queue) = state.queue(key) else { return };
        queue.came_back(batch.id);
        queue.put_back(batch, retry_at);
        if broken {
            queue.break_chain();
        }
        state.list(key);
    }

    /// True if the server expects this batch's sequence numbers, as far as is known.
    fn is_next(&self, batch: &Batch) -> bool {
        self.lock().queue(batch.key).is_some_and(|queue| queue.is_next(batch.id))
    }

    /// Sends all batches without lingering, and waits until all have their outcome.
    pub(in crate::producer) async fn flush(&self) {
        let target = {
            let mut state = self.lock();
            state.hurry_below = state.next_batch;
            state.hurried = true;
            state.next_batch
        };
        self.wake.notify_one();
        loop {
            let mut completed = std::pin::pin!(self.completed.notified());
            completed.as_mut().enable();
            if self.is_told(target) {
                return;
            }
            completed.await;
        }
    }

    /// True if every batch before this one has its outcome, and its callbacks have returned.
    fn is_told(&self, target: u64) -> bool {
        let completed = self.lock().unresolved.first().is_none_or(|first| *first >= target);
        // SYNC: told. Pairs with the stores in `complete` and `end`.
        let is_told = completed && self.telling.load(Ordering::Acquire) >= target;
        // SYNC: ended. Pairs with the release in `end_of_sender`.
        is_told || self.ended.load(Ordering::Acquire)
    }

    /// Fails waiting batches, and takes no more records: the sender task has ended. Batches in flight have failed by
    /// themselves.
    pub(in crate::producer) fn end_of_sender(&self) {
        self.close();
        self.space.close();
        let left = {
            let mut state = self.lock();
            let queues = state.topics.iter_mut().flat_map(|topic| &mut topic.queues);
            let left: Vec<Ended> = queues.flat_map(PartitionQueue::end_all).collect();
            // SYNC: told. Stored before the batches leave `unresolved`; `ended` is set after all callbacks.
            self.telling.store(0, Ordering::Relaxed);
            for ended in &left {
                state.leave(ended);
            }
            left
        };
        for ended in left {
            self.tell(ended);
        }
        // Batches in flight have called their callbacks themselves.
        self.lock().unresolved.clear();
        // SYNC: ended. Pairs with the acquire in `is_told`: all possible callbacks have returned.
        self.ended.store(true, Ordering::Release);
        self.completed.notify_waiters();
    }
}
