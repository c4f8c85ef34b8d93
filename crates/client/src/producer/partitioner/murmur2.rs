//! The hash by which Kafka's clients spread keys: `MurmurHash2` (Austin Appleby, public domain) with Kafka's seed.

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition of a key among `partitions`, which is at least 1.
pub(crate) fn partition_of_key(key: &[u8], partitions: i32) -> i32 {
    // The sign bit is dropped, as the Java client does, rather than the absolute value taken.
    (hash(key) & 0x7fff_ffff) as i32 % partitions
}

fn hash(bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    #[expect(clippy::cast_possible_truncation, reason = "the hash takes the length's low 32 bits")]
    let start = SEED ^ bytes.len() as u32;
    let mut hash = words.iter().fold(start, |hash, word| {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        mixed = (mixed ^ (mixed >> SHIFT)).wrapping_mul(MULTIPLIER);
        hash.wrapping_mul(MULTIPLIER) ^ mixed
    });
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| (rest << 8) | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        for (key, expected) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(hash(key.as_bytes()) as i32, expected, "{key}");
        }
    }

    #[test]
    fn a_key_whose_hash_is_negative_has_a_partition() {
        assert_eq!(partition_of_key(b"21", 7), 3);
        assert_eq!(partition_of_key(b"", 1), 0);
    }
}
