//! Models of publishing, of taking over a lock and of rolling, under a checker (loom) that tries every interleaving
//! and every memory order that is allowed.
//!
//! The code under test is `protocol.rs` itself. Each batch is one cell, in which the checker finds racing accesses; a
//! segment's file is a flag; the kernel's lock that shows whether an owner lives is a flag that is cleared when its
//! thread ends.

#![expect(unsafe_code, reason = "cells that the checker watches over")]

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::thread;
use riverrun_types::Offset;

use crate::control::Head;
use crate::layout as at;
use crate::protocol::{self, Look, Memory, Word, real_word};

real_word!(AtomicU64, u64);
real_word!(AtomicU32, u32);

/// Batches that fit; those from `SEGMENT` on lie in the second segment.
const BATCHES: usize = 4;

/// A queue: batch `n` is one cell, which holds `n + 1` when it is whole.
struct Queue {
    longs: Vec<(usize, AtomicU64)>,
    lock: AtomicU32,
    cells: Vec<UnsafeCell<u64>>,
    /// Whether the second segment has its file.
    rolled: AtomicBool,
    /// Which owners live.
    lives: Vec<AtomicBool>,
}

impl Memory for Queue {
    type Long = AtomicU64;

    fn long(&self, place: usize) -> &AtomicU64 {
        &self.longs.iter().find(|(known, _)| *known == place).expect("a place of a word").1
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

impl Queue {
    fn new() -> Arc<Self> {
        let heads = (0..6).map(|word| at::HEADS_AT + word * 8);
        let places = heads.chain([at::PUBLISHED_AT, at::DIRTY_END_AT]);
        let queue = Self {
            longs: places.map(|place| (place, AtomicU64::new(0))).collect(),
            lock: AtomicU32::new(0),
            cells: (0..BATCHES).map(|_| UnsafeCell::new(0)).collect(),
            rolled: AtomicBool::new(false),
            lives: (0..3).map(|_| AtomicBool::new(true)).collect(),
        };
        queue.long(at::HEADS_AT + at::HEAD_BYTES).store(u64::MAX, Relaxed);
        Arc::new(queue)
    }

    fn head(position: u64, segment: u64) -> Head {
        Head { position, next_offset: Offset(position as i64 * 10), segment_base: Offset(segment as i64) }
    }

    fn lock(&self, owner: u32) {
        loop {
            if protocol::take(&self.lock, owner) {
                return;
            }
            let holder = self.lock.load(Relaxed);
            let dead = holder != 0 && !self.lives[holder as usize].load(Acquire);
            if dead && protocol::take_over(&self.lock, holder, owner) {
                self.mend();
                return;
            }
            thread::yield_now();
        }
    }

    /// Undoes what a dead holder has left, as the next holder does.
    fn mend(&self) {
        let published = protocol::published(self);
        for batch in published..self.long(at::DIRTY_END_AT).load(Relaxed) {
            // SAFETY: the lock is held, and the batch is not published; the checker verifies both.
            self.cells[batch as usize].with_mut(|cell| unsafe { *cell = 0 });
        }
        self.long(at::DIRTY_END_AT).store(published, Relaxed);
    }

    /// Stores a batch, and publishes it unless the appender dies first.
    fn append(&self, owner: u32, dies: bool) {
        self.lock(owner);
        let batch = protocol::published(self);
        self.long(at::DIRTY_END_AT).store(batch + 1, Relaxed);
        // SAFETY: as in `mend`.
        self.cells[batch as usize].with_mut(|cell| unsafe {
            assert_eq!(*cell, 0, "no other appender has left a value here");
            *cell = if dies { u64::MAX } else { batch + 1 };
        });
        if !dies {
            protocol::publish(self, &Self::head(batch + 1, 0));
            protocol::release(&self.lock);
        }
    }

    fn die(&self, owner: u32) {
        self.lives[owner as usize].store(false, Release);
    }

    /// Reads everything that is published. Returns the number of batches.
    fn read(&self) -> u64 {
        let end = protocol::published(self);
        for batch in 0..end {
            // SAFETY: the batch is published; the checker verifies it.
            let found = self.cells[batch as usize].with(|cell| unsafe { *cell });
            assert_eq!(found, batch + 1, "a batch is whole");
        }
        end
    }
}

#[test]
fn published_batches_and_heads_are_whole() {
    loom::model(|| {
        let queue = Queue::new();
        let appenders: Vec<_> = [1, 2]
            .map(|owner| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.append(owner, false))
            })
            .into();
        let end = queue.read();
        match protocol::look(&*queue) {
            Look::Whole(head) => {
                assert_eq!(head, Queue::head(head.position, 0));
                assert!(head.position >= end, "the head does not go back");
            }
            Look::Overtaken => {}
            Look::Nothing => panic!("a head is missing"),
        }
        for appender in appenders {
            appender.join().expect("the appender ends");
        }
        assert_eq!(queue.read(), 2);
        assert_eq!(protocol::look(&*queue), Look::Whole(Queue::head(2, 0)));
    });
}

#[test]
fn a_head_that_is_set_back_is_whole() {
    for (position, segment) in [(1, 1), (2, 0)] {
        loom::model(move || {
            let queue = Queue::new();
            for position in [1, 2] {
                protocol::publish(&*queue, &Queue::head(position, 0));
            }
            let recovering = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || protocol::reset(&*queue, &Queue::head(position, segment)))
            };
            match protocol::look(&*queue) {
                Look::Whole(head) => assert_eq!(head, Queue::head(head.position, 2 - head.position)),
                Look::Overtaken => {}
                Look::Nothing => panic!("a head is missing"),
            }
            recovering.join().expect("the recovery ends");
            assert_eq!(protocol::look(&*queue), Look::Whole(Queue::head(position, segment)));
        });
    }
}

#[test]
fn a_head_is_not_mixed_from_two_while_one_appender_goes_on() {
    loom::model(|| {
        let queue = Queue::new();
        let appender = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (0..3).for_each(|_| queue.append(1, false)))
        };
        match protocol::look(&*queue) {
            Look::Whole(head) => assert_eq!(head, Queue::head(head.position, 0)),
            Look::Overtaken => {}
            Look::Nothing => panic!("a head is missing"),
        }
        appender.join().expect("the appender ends");
    });
}

#[test]
fn dead_appenders_lock_is_taken_over_and_its_bytes_undone() {
    loom::model(|| {
        let queue = Queue::new();
        let dying = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.append(1, true);
                queue.die(1);
            })
        };
        let living = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.append(2, false))
        };
        queue.read();
        dying.join().expect("the dying ends");
        living.join().expect("the living ends");
        // Whichever thread was first: the dead one's bytes are zeros again or still there, and one batch is
        // published.
        assert_eq!(queue.read(), 1);
    });
}

#[test]
fn reader_that_sees_a_roll_finds_the_segment() {
    loom::model(|| {
        let queue = Queue::new();
        let appender = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.append(1, false);
                queue.lock(1);
                queue.long(at::DIRTY_END_AT).store(2, Relaxed);
                // The file has its name, in the kernel's order, before the head names it.
                queue.rolled.store(true, Relaxed);
                protocol::publish(&*queue, &Queue::head(2, 2));
                protocol::release(&queue.lock);
            })
        };
        if protocol::published(&*queue) >= 2 {
            assert!(queue.rolled.load(Relaxed), "the segment is there");
        }
        if let Look::Whole(head) = protocol::look(&*queue) {
            assert_eq!(head.segment_base == Offset(2), head.position == 2);
        }
        appender.join().expect("the appender ends");
    });
}
