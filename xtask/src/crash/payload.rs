//! Values that carry their identity: every record of a run is unique, and any change of a value is recognised.
//!
//! ```text
//!  0        8         12          20       24
//!  +--------+---------+-----------+--------+----------------------------+
//!  | run    | stream  | sequence  | length | filler, made from the rest |
//!  +--------+---------+-----------+--------+----------------------------+
//! ```
//!
//! Numbers are big-endian; the length is that of the whole value. Every byte is compared.

use std::collections::BTreeMap;
use std::fmt;

use riverrun_client::TopicPartition;

use super::random::Rng;

/// Bytes of a value before its filler, and so of the shortest value.
pub(super) const HEADER_BYTES: usize = 24;

/// Identity of a record in a run: the sequence numbers the records of one producer to one partition, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity {
    pub(super) stream: u32,
    pub(super) sequence: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of stream {}", self.sequence, self.stream)
    }
}

/// A record, and its certain or expected offset in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Placed {
    pub(super) offset: i64,
    pub(super) identity: Identity,
}

/// Records of some partitions.
pub(super) type Places = BTreeMap<TopicPartition, Vec<Placed>>;

/// The value of a record, `size_bytes` long or as long as the header.
pub(super) fn value_of(run: u64, identity: Identity, size_bytes: usize) -> Vec<u8> {
    let size_bytes = size_bytes.max(HEADER_BYTES);
    let mut value = Vec::with_capacity(size_bytes + 8);
    value.extend_from_slice(&run.to_be_bytes());
    value.extend_from_slice(&identity.stream.to_be_bytes());
    value.extend_from_slice(&identity.sequence.to_be_bytes());
    value.extend_from_slice(&u32::try_from(size_bytes).unwrap_or(u32::MAX).to_be_bytes());
    let of_stream = Rng::new(run ^ (u64::from(identity.stream) << 32)).next();
    let mut filler = Rng::new(of_stream ^ identity.sequence);
    while value.len() < size_bytes {
        value.extend_from_slice(&filler.next().to_be_bytes());
    }
    value.truncate(size_bytes);
    value
}

/// Identity of a value of this run; the error describes a foreign or changed value.
pub(super) fn identify(run: u64, value: &[u8]) -> Result<Identity, String> {
    let (of_run, rest) = number::<8>(value).ok_or_else(|| too_short(value))?;
    let (stream, rest) = number::<4>(rest).ok_or_else(|| too_short(value))?;
    let (sequence, _) = number::<8>(rest).ok_or_else(|| too_short(value))?;
    if of_run != run {
        return Err(format!("a value of {} bytes that is not of this run", value.len()));
    }
    let identity = Identity { stream: u32::try_from(stream).map_err(|error| error.to_string())?, sequence };
    if value_of(run, identity, value.len()) != value {
        return Err(format!("a value of {} bytes that claims to be {identity}, and is not", value.len()));
    }
    Ok(identity)
}

fn too_short(value: &[u8]) -> String {
    format!("a value of {} bytes, shorter than any of ours", value.len())
}

/// A big-endian number of `N` bytes, and the bytes after it.
fn number<const N: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = bytes.split_first_chunk::<N>()?;
    Some((digits.iter().fold(0, |number, digit| (number << 8) | u64::from(*digit)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { stream: 7, sequence: 9 };

    #[test]
    fn a_value_is_identified_whatever_its_size() {
        for size in [0, HEADER_BYTES, 31, 1000] {
            assert_eq!(identify(5, &value_of(5, IDENTITY, size)), Ok(IDENTITY));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let value = value_of(5, IDENTITY, 60);
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(identify(5, &flipped).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(identify(5, &value[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_value_of_another_run_is_not_ours() {
        assert!(identify(6, &value_of(5, IDENTITY, 60)).is_err());
    }
}
