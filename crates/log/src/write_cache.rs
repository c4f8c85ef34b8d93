//! Memory of records that are in no segment yet, and the conditions for settling it.
//!
//! Counts bytes from their submission to the journal, or from the start that has found them there, until they are
//! settled. When bytes that can be settled fill half of it, the log dirs wake their settlers. Beyond that the
//! producers' backpressure looks at the share of each producer, and is told each time that bytes have left.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Called when there is more room.
type Hook = Box<dyn Fn() + Send + Sync>;

/// Bytes that count although they have left a tail of one log dir. Each dir has its own, so that a dir that hangs while
/// it is settled withholds no room that others have made.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<KeptBytes>);

#[derive(Debug, Default)]
struct KeptBytes {
    /// Settlings that are under way.
    settlings: u32,
    bytes: u64,
}

impl Kept {
    /// To be held while tails of the dir are settled, one after another: the tails of many partitions share the memory
    /// of the journal's groups, which is freed with the last of them. Room that was announced before would be used
    /// twice.
    pub(crate) fn settling<'a>(&'a self, cache: &'a WriteCache) -> Settling<'a> {
        self.0.lock().settlings += 1;
        Settling { kept: self, cache }
    }

    /// The dir's tails share no memory any more: bytes that have left them count no longer, also during a settling.
    pub(crate) fn let_go(&self, cache: &WriteCache) {
        let bytes = std::mem::take(&mut self.0.lock().bytes);
        cache.remove(bytes);
    }

    /// So many bytes have left a tail. While tails are being settled they count until the end of that.
    pub(crate) fn remove_stored(&self, cache: &WriteCache, bytes: u64) {
        take_off(&cache.stored_bytes, bytes);
        {
            let mut kept = self.0.lock();
            if kept.settlings > 0 {
                kept.bytes += bytes;
                return;
            }
        }
        cache.remove(bytes);
    }
}

/// The write cache of a store.
///
/// Invariants: `bytes` is the sum over all log dirs that can be written to, and of bytes that settling has taken from
/// tails while their memory may still be there; `stored_bytes` is the part of it that the journals have stored, which
/// settling can remove.
pub struct WriteCache {
    bytes_max: u64,
    bytes: AtomicU64,
    /// Sum of all bytes that have ever left.
    removed_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    /// Bytes in tails of healthy dirs that cannot be written, or are aside in a journal's directory, and do not count
    /// above.
    aside_bytes: AtomicU64,
    hooks: Mutex<Vec<Hook>>,
}

impl WriteCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: bytes_max.max(1),
            bytes: AtomicU64::new(0),
            removed_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            aside_bytes: AtomicU64::new(0),
            hooks: Mutex::default(),
        }
    }

    /// Bytes that are not settled.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The size of the cache.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes that have left since the server started: bytes that had come in are gone when so many more have left, as
    /// far as settling takes the oldest first.
    pub fn removed_bytes(&self) -> u64 {
        self.removed_bytes.load(Ordering::Relaxed)
    }

    /// Whether it is so full that the shares of producers matter.
    pub fn is_contended(&self) -> bool {
        self.bytes() > self.bytes_max / 2
    }

    /// Whether no producer should append now. Appends are not refused for it: the backpressure holds producers up
    /// before them.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    /// Whether bytes that can be settled fill half of it.
    pub(crate) fn is_half_full(&self) -> bool {
        self.stored_bytes.load(Ordering::Relaxed) >= self.bytes_max / 2
    }

    /// Whether so many bytes of the journals may stay in memory when a server starts: half of the cache is left to the
    /// later appends.
    pub(crate) fn has_room_at_start(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes) <= self.bytes_max / 2
    }

    /// Calls `hook` each time that bytes leave while more than half of the cache is full, on the thread that removes
    /// them: the hook must not block.
    pub fn on_room(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.hooks.lock().push(hook);
    }

    /// So many bytes are on their way into a journal.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of them are stored there, and lie in a tail. Returns whether the cache is half full with them.
    pub(crate) fn count_stored(&self, bytes: u64) -> bool {
        let before = self.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
        before + bytes >= self.bytes_max / 2
    }

    /// So many bytes more may stay in memory uncounted: as many as may be counted, over all tails of healthy dirs.
    pub(crate) fn room_aside_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.aside_bytes.load(Ordering::Relaxed))
    }

    /// So many bytes of a tail took up that room, and so many do now.
    pub(crate) fn move_aside(&self, before: u64, after: u64) {
        if after > before {
            self.aside_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            take_off(&self.aside_bytes, before - after);
        }
    }

    /// So many bytes never get into a tail.
    pub(crate) fn remove(&self, bytes: u64) {
        let before = take_off(&self.bytes, bytes);
        self.removed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0 && before > self.bytes_max / 2 {
            for hook in self.hooks.lock().iter() {
                hook();
            }
        }
    }
}

/// Subtracts bytes from a count; returns the count before. A count that went below zero would be full for ever.
pub(crate) fn take_off(count: &AtomicU64, bytes: u64) -> u64 {
    let less = |count: u64| Some(count.saturating_sub(bytes));
    let (Ok(before) | Err(before)) = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    debug_assert!(before >= bytes, "{bytes} bytes are taken off {before}");
    before
}

/// Tails are being settled.
#[derive(Debug)]
pub(crate) struct Settling<'a> {
    kept: &'a Kept,
    cache: &'a WriteCache,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let bytes = {
            let mut kept = self.kept.0.lock();
            kept.settlings -= 1;
            if kept.settlings == 0 { std::mem::take(&mut kept.bytes) } else { 0 }
        };
        self.cache.remove(bytes);
    }
}

impl fmt::Debug for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteCache")
            .field("bytes", &self.bytes())
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn all_that_leaves_a_cache_that_is_more_than_half_full_is_told() {
        let cache = WriteCache::new(100);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        cache.on_room(Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
        cache.add(50);
        cache.remove(20);
        assert_eq!(calls.load(Ordering::Relaxed), 0, "no producer waits");
        cache.add(71);
        assert!(cache.is_full() && cache.is_contended());
        cache.remove(0);
        assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing has left");
        cache.remove(10);
        cache.remove(41);
        cache.remove(30);
        assert_eq!((calls.load(Ordering::Relaxed), cache.bytes()), (2, 20));
        assert_eq!(cache.removed_bytes(), 101);
    }

    #[test]
    fn settled_bytes_make_room_at_the_end_of_the_settling() {
        let cache = WriteCache::new(100);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        cache.on_room(Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
        cache.add(120);
        assert!(cache.count_stored(120));
        let kept = Kept::default();
        let (one, other) = (kept.settling(&cache), kept.settling(&cache));
        kept.remove_stored(&cache, 60);
        kept.remove_stored(&cache, 50);
        drop(one);
        assert!(cache.is_full() && calls.load(Ordering::Relaxed) == 0, "their memory may be there still");
        drop(other);
        assert_eq!((cache.bytes(), calls.load(Ordering::Relaxed)), (10, 1));
        kept.remove_stored(&cache, 10);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn dir_makes_room_while_another_dir_is_being_settled() {
        let cache = WriteCache::new(100);
        let (hanging, well) = (Kept::default(), Kept::default());
        cache.add(120);
        cache.count_stored(120);
        let _for_ever = hanging.settling(&cache);
        let settling = well.settling(&cache);
        well.remove_stored(&cache, 80);
        drop(settling);
        assert_eq!(cache.bytes(), 40);
        hanging.remove_stored(&cache, 10);
        assert_eq!(cache.bytes(), 40);
    }
}
