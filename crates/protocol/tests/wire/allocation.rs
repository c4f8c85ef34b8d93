//! Counts what a thread allocates, so that tests can hold a decoder to its bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with a count of bytes held per thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn took(bytes: usize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn gave(bytes: usize) {
    // Memory from another thread may be freed here, so the count can fall below the counted bytes.
    HELD.set(HELD.get().saturating_sub(bytes));
}

#[expect(unsafe_code, reason = "an allocator is the only place that sees every allocation")]
// SAFETY: every call goes to the system's allocator unchanged; the counting around it never allocates, as its
// thread locals are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: the pointer came from `System` through `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work`; returns its result and the most bytes that it held beyond those held before.
pub(crate) fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get() - before)
}
