//! Prefetching: tells the processor which memory will be needed soon, so that it does not wait for it then.
//!
//! Ten thousand partitions exceed the processor's caches, and each lies in a dozen places. Code that walks over many
//! of them knows which ones come next. Prefetching reads and changes nothing, and no result depends on it.

#![expect(unsafe_code, reason = "the instruction takes a pointer")]

use std::sync::{Arc, Weak};

/// Bytes that the processor fetches at once.
const LINE_BYTES: usize = 64;
/// Bytes that an `Arc` keeps in front of its content.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// Prefetches the memory of `value` itself, not of its targets.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value), 0, size_of::<T>());
}

/// Prefetches `bytes` bytes that lie `offset` bytes behind `base`. The memory need not exist.
#[inline]
pub fn prefetch_at<T>(base: *const T, offset: usize, bytes: usize) {
    let start = base.cast::<u8>().wrapping_add(offset);
    let mut address = start.wrapping_sub(start.addr() % LINE_BYTES);
    while address.addr() < start.addr() + bytes {
        prefetch_line(address);
        address = address.wrapping_add(LINE_BYTES);
    }
}

/// Prefetches the content of `shared`, with its counts.
#[inline]
pub fn prefetch_arc<T>(shared: &Arc<T>) {
    prefetch_at(Arc::as_ptr(shared), 0_usize.wrapping_sub(COUNTS_BYTES), COUNTS_BYTES + size_of::<T>());
}

/// As [`prefetch_at`], for the content of `shared`, with its counts, which every new reference needs.
#[inline]
pub fn prefetch_shared<T>(shared: &Weak<T>, offset: usize, bytes: usize) {
    // The counts lie in front of it.
    prefetch_at(shared.as_ptr(), 0_usize.wrapping_sub(COUNTS_BYTES), COUNTS_BYTES);
    prefetch_at(shared.as_ptr(), offset, bytes);
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is part of every x86_64; it is a hint, which no address makes fail.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line(_address: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_fails_whatever_is_asked_for() {
        prefetch(&[7_u8; 1000]);
        prefetch(&());
        prefetch_at(std::ptr::null::<u64>(), 0, 200);
        prefetch_at(std::ptr::dangling::<u64>(), usize::MAX / 2, 1);
    }
}
