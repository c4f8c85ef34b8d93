//! The locks of the control file: one word in shared memory, released by the kernel when its holder dies.
//!
//! Whoever may lock is an [`Owner`]: a number, and an open file description that holds the exclusive lock of
//! the number's byte of the control file. Locking stores the number into the word. The kernel drops the
//! byte's lock when the owner's process ends, however it ends, and not while it is merely stopped. So a word
//! that names an owner whose byte can be locked is a dead one's, and whoever finds it so takes over, holding
//! that byte meanwhile, so that nobody else does and the number is not given anew. Process ids, which are
//! used again, play no part.
//!
//! Locking a free word is one compare-and-swap, unlocking a store: a thread that goes to sleep puts a memory
//! barrier into the running appenders ([`sys::barrier_in_appenders`]), so that they need none of their own to
//! see it.

use std::fs::File;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence, fence};
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::{At as _, QueueError};
use crate::layout::{OWNERS_MAX, owner_byte};
use crate::mapping::Access;
use crate::protocol;
use crate::sys::{self, LockFile, LockKind};

/// Tries before a thread goes to sleep: a record is appended in less time.
const SPINS: u32 = 200;
/// How long a thread sleeps before it looks whether the holder has died.
const SLEEP: Duration = Duration::from_millis(2);

/// A number under which locks are held.
///
/// Invariants: `file` holds the exclusive lock of `owner_byte(number)`. It must not be inherited by a process
/// that outlives this one: descriptors are closed on exec, and a process that forks without exec keeps its
/// parent's locks.
#[derive(Debug)]
pub(crate) struct Owner {
    file: LockFile,
    number: u32,
    barriers: bool,
}

/// How a lock was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// From nobody.
    Free,
    /// From an owner that died with it: what the lock protects may be half done.
    FromDead,
}

impl Owner {
    /// Takes a number that nobody has and that no lock names: one that a dead owner left held is for those
    /// who wait for it.
    pub(crate) fn attach(control: &Control) -> Result<Self, QueueError> {
        let path = control.path();
        let file = LockFile::from(Access::Write.open(path).at("open", path)?);
        for number in 1..=OWNERS_MAX {
            let byte = owner_byte(number);
            if !sys::try_lock_byte(&file, byte, LockKind::Exclusive).at("lock", path)? {
                continue;
            }
            let words = [control.writer_lock().0, control.sync_lock().0, control.mark_lock().0];
            if words.iter().all(|word| word.load(Relaxed) != number) {
                return Ok(Self { file, number, barriers: !sys::reached_by_barriers() });
            }
            sys::unlock_byte(&file, byte).at("unlock", path)?;
        }
        Err(QueueError::TooManyAppenders { limit: OWNERS_MAX })
    }

    /// The open file description that stands for the owner's life.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    #[inline]
    fn try_free(&self, word: &AtomicU32) -> bool {
        protocol::take(word, self.number)
    }

    /// Takes the lock if it is free or its holder is dead.
    pub(crate) fn try_lock(&self, control: &Control, word: &AtomicU32) -> Result<Option<Taken>, QueueError> {
        if self.try_free(word) {
            return Ok(Some(Taken::Free));
        }
        Ok(self.take_over(control, word)?.then_some(Taken::FromDead))
    }

    /// Takes the lock, waiting for it as long as `patience` allows.
    #[inline]
    pub(crate) fn lock(
        &self,
        control: &Control,
        (word, asleep): (&AtomicU32, &AtomicU32),
        patience: Option<Duration>,
    ) -> Result<Taken, QueueError> {
        if self.try_free(word) {
            return Ok(Taken::Free);
        }
        self.lock_slowly(control, word, asleep, patience)
    }

    #[cold]
    fn lock_slowly(
        &self,
        control: &Control,
        word: &AtomicU32,
        asleep: &AtomicU32,
        patience: Option<Duration>,
    ) -> Result<Taken, QueueError> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if word.load(Relaxed) == 0 && self.try_free(word) {
                return Ok(Taken::Free);
            }
        }
        let begin = Instant::now();
        loop {
            if let Some(taken) = self.try_lock(control, word)? {
                // Others may sleep too, and whoever woke this one has cleared the flag.
                asleep.store(1, Relaxed);
                return Ok(taken);
            }
            if patience.is_some_and(|patience| begin.elapsed() >= patience) {
                return Err(QueueError::Busy);
            }
            asleep.store(1, Relaxed);
            sys::barrier_in_appenders();
            let holder = word.load(Acquire);
            if holder != 0 {
                sys::futex_wait(word, holder, SLEEP);
            }
        }
    }

    /// Takes the lock from a dead holder; false if there is no holder, or a living one.
    fn take_over(&self, control: &Control, word: &AtomicU32) -> Result<bool, QueueError> {
        let holder = word.load(Relaxed);
        if holder == 0 || holder == self.number {
            return Ok(false);
        }
        if holder > OWNERS_MAX {
            return Err(control.damaged(crate::layout::WRITER_LOCK_AT, "holder of a lock"));
        }
        let byte = owner_byte(holder);
        if !sys::try_lock_byte(&self.file, byte, LockKind::Exclusive).at("lock", control.path())? {
            return Ok(false);
        }
        let taken = protocol::take_over(word, holder, self.number);
        sys::unlock_byte(&self.file, byte).at("unlock", control.path())?;
        Ok(taken)
    }

    /// Lets go of the lock, and wakes one that sleeps for it.
    #[inline]
    pub(crate) fn unlock(&self, (word, asleep): (&AtomicU32, &AtomicU32)) {
        protocol::release(word);
        self.order_before_flags();
        if asleep.load(Relaxed) != 0 {
            asleep.store(0, Relaxed);
            sys::futex_wake(word, 1);
        }
    }

    /// Orders what this owner has stored before the flags that it reads next. Those who set the flags see to
    /// it where the kernel reaches this process with their barriers.
    #[inline]
    pub(crate) fn order_before_flags(&self) {
        if self.barriers {
            fence(SeqCst);
        } else {
            compiler_fence(SeqCst);
        }
    }
}
