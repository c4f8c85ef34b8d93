//! The hash by which Kafka's clients spread keys: `MurmurHash2` (Austin Appleby, public domain) with Kafka's seed.

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// The partition of a key among `partitions`, which is at least 1.
pub fn partition_of_key(key: &[u8], partitions: i32) -> i32 {
    // The sign bit is masked, as in the Java client; the absolute value is not taken.
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

    /// Lengths 0 to 20 of the bytes `37 i + 11 length + 95`, and their hash by Kafka 4.3.1's `Utils.murmur2`.
    const OF_LENGTH: [i32; 21] = [
        275_646_681,
        -2_073_756_642,
        -407_869_302,
        -238_679_352,
        1_687_201_594,
        -1_292_820_190,
        -1_858_773_594,
        -1_570_429_757,
        -1_586_660_306,
        -501_263_747,
        848_835_555,
        -205_715_209,
        156_308_123,
        718_712_548,
        -650_516_220,
        -129_208_173,
        1_142_737_313,
        -1_048_329_092,
        -132_376_507,
        1_950_085_161,
        1_537_111_996,
    ];
    /// The partition of each of them among 17.
    const PARTITIONS: [i32; 21] = [11, 12, 11, 11, 10, 1, 6, 9, 6, 13, 4, 15, 8, 12, 9, 13, 16, 6, 3, 14, 12];

    fn key(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from((37 * at + 11 * length + 95) % 256).unwrap()).collect()
    }

    #[test]
    fn hashes_equal_those_of_the_java_client() {
        for (length, (hashed, partition)) in OF_LENGTH.into_iter().zip(PARTITIONS).enumerate() {
            assert_eq!(hash(&key(length)) as i32, hashed, "{length}");
            assert_eq!(partition_of_key(&key(length), 17), partition, "{length}");
        }
    }

    #[test]
    fn hashes_of_texts_are_those_of_the_java_client() {
        for (key, expected) in [
            ("0", 971_027_396),
            ("1", -1_993_445_489),
            ("2", 648_968_168),
            ("21", -973_932_308),
            ("42", 417_700_972),
            ("-7", 430_111_211),
            ("abc", 479_470_107),
            ("foobar", -790_332_482),
            ("user-1001", -1_052_335_918),
            ("Größe", -255_045_697),
            ("キー", -443_984_012),
            ("a\0b", -19_837_367),
            ("order:2024-11-22", 1_231_377_234),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ] {
            assert_eq!(hash(key.as_bytes()) as i32, expected, "{key}");
        }
        assert_eq!(hash(&[0xff; 9]) as i32, 1_612_811_207, "bytes are not signed");
    }

    #[test]
    fn a_key_whose_hash_is_negative_has_a_partition() {
        assert_eq!(partition_of_key(b"21", 7), 3);
        assert_eq!(partition_of_key(b"", 1), 0);
    }
}
