//! The memory of frames, which is used again after the last reader of its payloads has dropped it.
//!
//! Owns the buffers that came back. The kernel zeroes a large buffer page by page at its first use, which costs as
//! much as the copy into it; a buffer that is used again is spared that. Guarantees that the buffers kept for later
//! have a bound, and that a buffer is not much larger than the frame that it is lent for.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_env::AlignedBuffer;

/// Buffers up to this size are cheap, and not kept here.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;
/// Sizes are rounded up to a multiple of this many bytes, so that a buffer fits more than one frame. The step is
/// small enough that the smallest buffers kept here can serve frames of their own size again.
const STEP_BYTES: usize = 8 * 1024;
/// Bytes of free buffers that are kept at most.
const FREE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Buffers that wait for a frame.
///
/// Invariants: `bytes` is the sum of their capacities, at most [`FREE_BYTES_MAX`].
#[derive(Default)]
struct Free {
    buffers: VecDeque<AlignedBuffer>,
    bytes: usize,
}

/// Shared by the journal's thread and every holder of a payload.
#[derive(Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Free>>);

/// A buffer on loan: it returns to the pool when the last reader drops it.
struct Lent {
    buffer: Option<AlignedBuffer>,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.home.put(buffer);
        }
    }
}

impl Buffers {
    /// An empty buffer for `bytes`. Every caller of one journal passes the same `alignment`.
    pub(crate) fn take(&self, bytes: usize, alignment: usize) -> AlignedBuffer {
        if bytes <= SMALL_BYTES {
            return AlignedBuffer::with_capacity(bytes, alignment);
        }
        let fits = |buffer: &AlignedBuffer| (bytes..=bytes + bytes / 4).contains(&buffer.capacity());
        let mut free = self.0.lock();
        // The buffer that came back last is the likeliest to be in the processor's cache.
        let found = free.buffers.iter().rposition(fits).and_then(|index| free.buffers.remove(index));
        let Some(mut buffer) = found else {
            drop(free);
            return AlignedBuffer::with_capacity(bytes.next_multiple_of(STEP_BYTES), alignment);
        };
        free.bytes -= buffer.capacity();
        drop(free);
        buffer.clear();
        buffer
    }

    /// Shares the content of a buffer that was taken here, until the last reader drops it.
    pub(crate) fn lend(&self, buffer: AlignedBuffer) -> Bytes {
        Bytes::from_owner(Lent { buffer: Some(buffer), home: self.clone() })
    }

    /// Takes back a buffer without readers, and keeps it if it is worth that.
    pub(crate) fn put(&self, buffer: AlignedBuffer) {
        if !(SMALL_BYTES + 1..=FREE_BYTES_MAX).contains(&buffer.capacity()) {
            return;
        }
        let mut dropped = Vec::new();
        let mut free = self.0.lock();
        free.bytes += buffer.capacity();
        free.buffers.push_back(buffer);
        while free.bytes > FREE_BYTES_MAX
            && let Some(oldest) = free.buffers.pop_front()
        {
            free.bytes -= oldest.capacity();
            dropped.push(oldest);
        }
        // The allocator is not called under the lock.
        drop(free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES: usize = 528 * 1024;

    fn lent(buffers: &Buffers, bytes: usize) -> (Bytes, *const u8) {
        let mut buffer = buffers.take(bytes, 4096);
        assert!(buffer.is_empty() && buffer.capacity() >= bytes);
        buffer.extend_zeros(bytes);
        let address = buffer.as_ptr();
        (buffers.lend(buffer), address)
    }

    #[test]
    fn a_buffer_is_used_again_once_its_last_reader_is_gone() {
        let buffers = Buffers::default();
        let (bytes, address) = lent(&buffers, FRAME_BYTES);
        let slice = bytes.slice(100..200);
        drop(bytes);
        let (second, other) = lent(&buffers, FRAME_BYTES);
        assert_ne!(address, other, "a slice is still read");
        drop(slice);
        assert_eq!(lent(&buffers, FRAME_BYTES - 50_000).1, address);
        drop(second);
    }

    #[test]
    fn a_small_frame_does_not_hold_a_large_buffer() {
        let buffers = Buffers::default();
        drop(lent(&buffers, FRAME_BYTES));
        assert!(buffers.take(FRAME_BYTES / 2, 4096).capacity() < FRAME_BYTES * 3 / 4);
    }

    #[test]
    fn buffer_fits_its_frame_and_serves_others_of_that_size() {
        let buffers = Buffers::default();
        for bytes in [SMALL_BYTES + 1, 70_000, 100_000, FRAME_BYTES] {
            let (frame, address) = lent(&buffers, bytes);
            drop(frame);
            let buffer = buffers.take(bytes, 4096);
            assert_eq!(buffer.as_ptr(), address, "{bytes}");
            assert!(buffer.capacity() - bytes < bytes / 8, "{bytes}: {}", buffer.capacity());
        }
    }

    #[test]
    fn free_buffers_have_a_bound() {
        let buffers = Buffers::default();
        let lent: Vec<_> = (0..100).map(|_| lent(&buffers, FRAME_BYTES).0).collect();
        drop(lent);
        let free = buffers.0.lock();
        assert!(free.bytes <= FREE_BYTES_MAX && free.bytes > FREE_BYTES_MAX - 2 * FRAME_BYTES);
        assert_eq!(free.bytes, free.buffers.iter().map(AlignedBuffer::capacity).sum::<usize>());
    }
}
