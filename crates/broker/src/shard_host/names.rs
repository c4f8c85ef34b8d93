//! Which shard a part belongs to, by its key, as a group by its id: as in Kafka, so that a data set keeps its place when it
//! comes from there.

/// Java's string hash, over UTF-16 units, then modulo the number of shards.
pub(crate) fn shard_of(key: &str, shards: usize) -> usize {
    let hash =
        key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // The one number without a positive counterpart counts as 0.
    let positive = hash.checked_abs().unwrap_or(0);
    usize::try_from(positive).unwrap_or(0) % shards.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_partitions_that_kafka_gives_them() {
        // "abc".hashCode() == 96354 and "polygenelubricants".hashCode() == Integer.MIN_VALUE in Java.
        assert_eq!(shard_of("abc", 50), 96_354 % 50);
        assert_eq!(shard_of("polygenelubricants", 50), 0);
        assert_eq!(shard_of("", 50), 0);
        assert_eq!(shard_of("\u{1F600}", 1_000_000), ((0xD83D * 31 + 0xDE00) % 1_000_000) as usize);
    }
}
