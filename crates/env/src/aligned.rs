//! A buffer whose bytes begin at an aligned address, as `O_DIRECT` wants it.
//!
//! Owns a vector that has room for one alignment more than asked for, and begins inside it at an aligned address. The
//! vector is never moved to other memory while it is in use, because it refuses more bytes than it was made for.

use std::ops::{Deref, DerefMut};

/// A bounded buffer of bytes at an aligned address.
///
/// Invariants: `bytes.len() >= start`; `bytes[start..]` is the buffer's content, and its address is a multiple of
/// `alignment`; `bytes` has room for `start` and `capacity` more bytes, so that it never moves.
#[derive(Debug)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    capacity: usize,
}

impl AlignedBuffer {
    /// An empty buffer for `capacity` bytes at a multiple of `alignment`, a power of two.
    ///
    /// # Panics
    /// If `alignment` is no power of two.
    pub fn with_capacity(capacity: usize, alignment: usize) -> Self {
        assert!(alignment.is_power_of_two(), "an alignment of {alignment}");
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + alignment);
        let address = bytes.as_ptr().addr();
        let start = address.next_multiple_of(alignment) - address;
        bytes.resize(start, 0);
        Self { bytes, start, capacity }
    }

    /// A buffer of `len` zeros, to read into.
    pub fn zeroed(len: usize, alignment: usize) -> Self {
        let mut buffer = Self::with_capacity(len, alignment);
        buffer.bytes.resize(buffer.start + len, 0);
        buffer
    }

    /// Number of bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adds `bytes` at the end.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.check_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds `count` zeros at the end.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn extend_zeros(&mut self, count: usize) {
        self.check_room(count);
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Cuts the buffer down to `len` bytes, if it has more.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.start + len);
    }

    /// Removes all bytes and keeps the room.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    fn check_room(&self, count: usize) {
        let room = self.capacity - self.len();
        assert!(count <= room, "{count} bytes more where there is room for {room}");
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(buffer: &AlignedBuffer, alignment: usize) -> bool {
        buffer.as_ptr().addr().is_multiple_of(alignment)
    }

    #[test]
    fn bytes_begin_at_an_aligned_address_however_many_come() {
        for alignment in [1, 512, 4096, 65536] {
            for capacity in [0, 1, 4096, 10_000] {
                let mut buffer = AlignedBuffer::with_capacity(capacity, alignment);
                assert!(buffer.is_empty() && is_aligned(&buffer, alignment));
                while buffer.len() < capacity {
                    buffer.extend_from_slice(&[7]);
                }
                assert_eq!(*buffer, vec![7; capacity]);
                assert!(is_aligned(&buffer, alignment));
                buffer.clear();
                buffer.extend_zeros(capacity);
                assert_eq!(*buffer, vec![0; capacity]);
                assert!(is_aligned(&AlignedBuffer::zeroed(capacity, alignment), alignment));
            }
        }
    }

    #[test]
    #[should_panic(expected = "1 bytes more where there is room for 0")]
    fn a_full_buffer_takes_nothing_more_rather_than_move() {
        let mut buffer = AlignedBuffer::with_capacity(3, 512);
        buffer.extend_from_slice(b"abc");
        buffer.extend_zeros(1);
    }
}
