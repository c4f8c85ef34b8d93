//! Owns the snapshot that arrives from another member: one at a time, whichever link it comes over.
//!
//! A snapshot that begins takes the place of one that is still arriving: its sender is the newer leader, or has begun anew. One
//! that is being installed keeps its place until that is over, so that there are never two in memory.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::wire::Beginning;

/// Upper bound of a snapshot in bytes.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 512 << 20;

/// The place of the snapshot that arrives.
#[derive(Clone, Default)]
pub(crate) struct Arrival(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Arriving(Arriving),
    Installing,
}

struct Arriving {
    /// The number of the link over which it comes.
    link: u64,
    beginning: Beginning,
    /// The size that it is to have, in bytes.
    total: usize,
    bytes: Vec<u8>,
}

impl Arriving {
    /// Takes a piece. Memory grows with what has arrived, whatever was announced.
    fn add(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        let missing = self.total - self.bytes.len();
        if piece.len() > missing {
            return Err("a snapshot is larger than it said");
        }
        if piece.is_empty() && missing > 0 {
            return Err("a piece of a snapshot is empty");
        }
        if self.bytes.capacity() - self.bytes.len() < piece.len() {
            self.bytes.reserve_exact(piece.len().max(self.bytes.len()).min(missing));
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// A snapshot that has arrived as a whole. It keeps its place until this is dropped.
pub(crate) struct Arrived {
    pub(crate) beginning: Beginning,
    pub(crate) bytes: Bytes,
    pub(crate) place: Installing,
}

/// The place of a snapshot that is being installed.
pub(crate) struct Installing(Arrival);

impl Drop for Installing {
    fn drop(&mut self) {
        *self.0.0.lock() = State::Nothing;
    }
}

/// The pieces that come over one link. Once this is dropped, the rest of its snapshot is not waited for.
pub(crate) struct Incoming {
    arrival: Arrival,
    link: u64,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut state = self.arrival.0.lock();
        if matches!(&*state, State::Arriving(arriving) if arriving.link == self.link) {
            *state = State::Nothing;
        }
    }
}

impl Arrival {
    /// The pieces that come over the link of that number.
    pub(crate) fn over(&self, link: u64) -> Incoming {
        Incoming { arrival: self.clone(), link }
    }
}

impl Incoming {
    /// Takes a piece; returns the snapshot with the last one. An error is the reason for which the sender is refused.
    pub(crate) fn take(
        &self,
        beginning: Option<Beginning>,
        piece: &[u8],
    ) -> Result<Option<Arrived>, &'static str> {
        let mut state = self.arrival.0.lock();
        if let Some(beginning) = beginning {
            self.begin(&mut state, beginning)?;
        }
        let State::Arriving(arriving) = &mut *state else { return Err("a piece belongs to no snapshot") };
        if arriving.link != self.link {
            return Err("another snapshot has begun to arrive");
        }
        if let Err(reason) = arriving.add(piece) {
            *state = State::Nothing;
            return Err(reason);
        }
        if arriving.bytes.len() < arriving.total {
            return Ok(None);
        }
        let State::Arriving(arriving) = std::mem::replace(&mut *state, State::Installing) else {
            return Ok(None);
        };
        let Arriving { beginning, bytes, .. } = arriving;
        Ok(Some(Arrived { beginning, bytes: bytes.into(), place: Installing(self.arrival.clone()) }))
    }

    fn begin(&self, state: &mut State, beginning: Beginning) -> Result<(), &'static str> {
        if matches!(state, State::Installing) {
            return Err("another snapshot is being installed");
        }
        let total = usize::try_from(beginning.total).unwrap_or(usize::MAX);
        if total > SNAPSHOT_BYTES_MAX {
            return Err("a snapshot has at most 512 MiB");
        }
        *state = State::Arriving(Arriving { link: self.link, beginning, total, bytes: Vec::new() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SnapshotMeta, Vote, VoterId};

    fn beginning(total: usize) -> Beginning {
        let vote = Vote::new_committed(1, VoterId { node: 1, life: 1 });
        Beginning { vote, meta: SnapshotMeta::default(), total: total as u64 }
    }

    fn reason(taken: Result<Option<Arrived>, &'static str>) -> &'static str {
        taken.err().expect("it is refused")
    }

    fn capacity(arrival: &Arrival) -> Option<usize> {
        match &*arrival.0.lock() {
            State::Arriving(arriving) => Some(arriving.bytes.capacity()),
            _ => None,
        }
    }

    #[test]
    fn a_snapshot_is_what_its_pieces_are() {
        let arrival = Arrival::default();
        let incoming = arrival.over(1);
        for pieces in [vec![&b"abc"[..], b"de", b"f"], vec![b"abcdef"]] {
            let mut first = Some(beginning(6));
            let mut arrived = None;
            for piece in pieces {
                assert!(arrived.is_none(), "it is not whole yet");
                arrived = incoming.take(first.take(), piece).unwrap();
            }
            let arrived = arrived.expect("it is whole");
            assert_eq!((arrived.bytes, arrived.beginning), (Bytes::from_static(b"abcdef"), beginning(6)));
        }
        let empty = incoming.take(Some(beginning(0)), b"").unwrap().expect("it is whole");
        assert!(empty.bytes.is_empty());
    }

    #[test]
    fn the_newest_snapshot_takes_the_place_of_another() {
        let arrival = Arrival::default();
        let (old, new) = (arrival.over(1), arrival.over(2));
        assert!(old.take(Some(beginning(4)), b"ab").unwrap().is_none());
        assert!(new.take(Some(beginning(4)), b"12").unwrap().is_none());
        assert_eq!(reason(old.take(None, b"cd")), "another snapshot has begun to arrive");
        drop(old);
        let arrived = new.take(None, b"34").unwrap().expect("it is whole");
        assert_eq!(arrived.bytes, "1234");
        assert_eq!(reason(new.take(Some(beginning(4)), b"ab")), "another snapshot is being installed");
        drop(arrived);
        assert!(new.take(Some(beginning(4)), b"abcd").unwrap().is_some());
    }

    #[test]
    fn a_link_that_ends_takes_its_half_snapshot_along() {
        let arrival = Arrival::default();
        let (one, other) = (arrival.over(1), arrival.over(2));
        assert!(one.take(Some(beginning(4)), b"ab").unwrap().is_none());
        drop(other);
        assert!(capacity(&arrival).is_some());
        drop(one);
        assert_eq!(capacity(&arrival), None);
        assert_eq!(reason(arrival.over(3).take(None, b"cd")), "a piece belongs to no snapshot");
    }

    #[test]
    fn memory_grows_with_what_has_arrived() {
        let arrival = Arrival::default();
        let incoming = arrival.over(1);
        let piece = vec![7; 10_000];
        assert!(incoming.take(Some(beginning(SNAPSHOT_BYTES_MAX)), &piece).unwrap().is_none());
        let mut arrived = piece.len();
        for _ in 0..100 {
            assert!(capacity(&arrival).unwrap() <= 2 * arrived, "{arrived}");
            assert!(incoming.take(None, &piece).unwrap().is_none());
            arrived += piece.len();
        }
        let exact = arrival.over(2);
        assert!(exact.take(Some(beginning(25_000)), &piece).unwrap().is_none());
        assert!(exact.take(None, &piece).unwrap().is_none());
        assert!(capacity(&arrival).unwrap() <= 25_000, "no more than the whole");
    }

    #[test]
    fn a_snapshot_that_is_not_what_it_said_is_refused() {
        let arrival = Arrival::default();
        let incoming = arrival.over(1);
        for total in [SNAPSHOT_BYTES_MAX + 1, usize::MAX] {
            assert_eq!(
                reason(incoming.take(Some(beginning(total)), b"ab")),
                "a snapshot has at most 512 MiB"
            );
        }
        assert!(incoming.take(Some(beginning(4)), b"ab").unwrap().is_none());
        assert_eq!(reason(incoming.take(None, b"cde")), "a snapshot is larger than it said");
        assert_eq!(reason(incoming.take(None, b"cd")), "a piece belongs to no snapshot");
        assert!(incoming.take(Some(beginning(4)), b"ab").unwrap().is_none());
        assert_eq!(reason(incoming.take(None, b"")), "a piece of a snapshot is empty");
        assert_eq!(capacity(&arrival), None, "nothing of it is kept");
    }
}
