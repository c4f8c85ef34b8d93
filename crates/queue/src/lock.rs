//! The locks of the control file: one word in shared memory, released by the kernel when its holder dies.
//!
//! An [`Owner`] may lock. It is a number, and an open file description that holds the exclusive lock of the number's
//! byte of the control file. Locking stores the number into the word. The kernel releases the byte's lock when the
//! owner's process ends, however it ends, but not while it is merely stopped. If a word names an owner whose byte can
//! be locked, that owner is dead, and the thread that found this takes over. It holds the byte meanwhile, so that no
//! other thread takes over and the number is not given out again. Process ids play no part: they are reused.
//!
//! Locking a free word is one compare-and-swap, and unlocking it a store. A thread that goes to sleep issues a memory
//! barrier in the running appenders ([`sys::barrier_in_appenders`]), so that they see its flag without a barrier of
//! their own.

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

/// Tries before a thread goes to sleep: appending a record takes less time.
const SPINS: u32 = 200;
/// How long a thread sleeps before it checks whether the holder has died.
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

/// The previous state of a lock that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// No owner held it.
    Free,
    /// Its owner died: the protected state may be incomplete.
    FromDead,
}

impl Owner {
    /// Takes a number that no owner has and no lock names: a number that a dead owner left in a lock is needed by its
    /// waiters.
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
                // Other threads may sleep too, and the unlocking one has cleared the flag.
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

    /// Takes the lock from a dead holder; false if it is free or its holder lives.
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

    /// Releases the lock, and wakes one thread that sleeps for it.
    #[inline]
    pub(crate) fn unlock(&self, (word, asleep): (&AtomicU32, &AtomicU32)) {
        protocol::release(word);
        self.order_before_flags();
        if asleep.load(Relaxed) != 0 {
            asleep.store(0, Relaxed);
            sys::futex_wake(word, 1);
        }
    }

    /// Orders this owner's stores before its next reads of the flags. Does nothing where the barrier of
    /// [`sys::barrier_in_appenders`] reaches this process.
    #[inline]
    pub(crate) fn order_before_flags(&self) {
        if self.barriers {
            fence(SeqCst);
        } else {
            compiler_fence(SeqCst);
        }
    }
}
