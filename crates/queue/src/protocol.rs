//! The memory orders by which positions are published and locks change hands.
//!
//! Owns those orders, apart from where the words lie: in the mapped control file, or under a model checker
//! (`model.rs`), which tries every order that the memory model allows. Guarantees that a thread which reads a
//! published position also sees everything that was stored before it, and that it reads a head whole or knows that it
//! was overtaken.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use riverrun_types::Offset;

use crate::control::Head;
use crate::layout as at;

/// A word that several threads store into.
pub(crate) trait Word {
    type Value;
    fn load(&self, order: Ordering) -> Self::Value;
    fn store(&self, value: Self::Value, order: Ordering);
    /// Stores `to` if the word holds `from`, with the order of taking a lock.
    fn replace(&self, from: Self::Value, to: Self::Value) -> bool;
}

/// Words by their places in the control file.
pub(crate) trait Memory {
    type Long: Word<Value = u64>;
    fn long(&self, place: usize) -> &Self::Long;
    fn fence(order: Ordering);
}

/// The published position, where readers end. SYNC: published, with [`publish`].
#[inline]
pub(crate) fn published<M: Memory>(memory: &M) -> u64 {
    memory.long(at::PUBLISHED_AT).load(Acquire)
}

/// Publishes everything up to `head`. Requires the writer lock.
#[inline]
pub(crate) fn publish<M: Memory>(memory: &M, head: &Head) {
    // SYNC: heads. A slot is filled only after the position that it held before was replaced.
    M::fence(Release);
    let published = memory.long(at::PUBLISHED_AT).load(Relaxed);
    let taken = memory.long(at::HEADS_AT).load(Relaxed) == published;
    store_head(memory, usize::from(taken), head);
    // SYNC: published. Bytes and head are stored before the position that covers them.
    memory.long(at::PUBLISHED_AT).store(head.position, Release);
}

/// Publishes `head` alone, wherever the queue was before. Requires that no appender is active; readers may be.
pub(crate) fn reset<M: Memory>(memory: &M, head: &Head) {
    if look(memory) != Look::Whole(*head) {
        publish(memory, head);
    }
    let other = usize::from(load_head(memory, 0) == *head);
    // SYNC: heads. A reader that misses the old slot's content sees that another position is published.
    M::fence(Release);
    memory.long(at::HEADS_AT + other * at::HEAD_BYTES).store(u64::MAX, Relaxed);
}

/// Result of one try to read the queue's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Whole(Head),
    /// Something was published meanwhile.
    Overtaken,
    /// No slot holds the published position: the file is damaged.
    Nothing,
}

pub(crate) fn look<M: Memory>(memory: &M) -> Look {
    let position = published(memory);
    let found = [0, 1].into_iter().map(|slot| load_head(memory, slot)).find(|head| head.position == position);
    // SYNC: heads. The fields above are read before the position is read again.
    M::fence(Acquire);
    if memory.long(at::PUBLISHED_AT).load(Relaxed) != position {
        return Look::Overtaken;
    }
    found.map_or(Look::Nothing, Look::Whole)
}

fn load_head<M: Memory>(memory: &M, slot: usize) -> Head {
    let place = at::HEADS_AT + slot * at::HEAD_BYTES;
    Head {
        position: memory.long(place).load(Relaxed),
        next_offset: Offset(memory.long(place + 8).load(Relaxed) as i64),
        segment_base: Offset(memory.long(place + 16).load(Relaxed) as i64),
    }
}

#[inline]
fn store_head<M: Memory>(memory: &M, slot: usize, head: &Head) {
    let place = at::HEADS_AT + slot * at::HEAD_BYTES;
    memory.long(place).store(head.position, Relaxed);
    memory.long(place + 8).store(head.next_offset.0 as u64, Relaxed);
    memory.long(place + 16).store(head.segment_base.0 as u64, Relaxed);
}

/// Takes a free lock. SYNC: lock word, with [`release`].
#[inline]
pub(crate) fn take<W: Word<Value = u32>>(word: &W, owner: u32) -> bool {
    word.replace(0, owner)
}

/// Takes the lock of a dead holder, while the caller holds the lock of the holder's byte.
pub(crate) fn take_over<W: Word<Value = u32>>(word: &W, holder: u32, owner: u32) -> bool {
    word.replace(holder, owner)
}

/// Releases a lock. SYNC: lock word, with [`take`].
#[inline]
pub(crate) fn release<W: Word<Value = u32>>(word: &W) {
    word.store(0, Release);
}

/// The words of real memory.
macro_rules! real_word {
    ($atomic:ty, $value:ty) => {
        impl Word for $atomic {
            type Value = $value;

            #[inline]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn replace(&self, from: $value, to: $value) -> bool {
                self.compare_exchange(from, to, Acquire, Relaxed).is_ok()
            }
        }
    };
}
#[cfg(test)]
pub(crate) use real_word;

real_word!(std::sync::atomic::AtomicU64, u64);
real_word!(std::sync::atomic::AtomicU32, u32);
