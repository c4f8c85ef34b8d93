//! The properties of state files that the target checks.

use riverrun_log::state_file::{LogState, decode_state, encode_state};
use riverrun_types::{Offset, PartitionId, TopicId};

use crate::peak_bytes_during;

const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 1 };
/// An error's text, and what is taken for a small input.
const FIXED_BYTES_MAX: usize = 64 << 10;
/// A producer takes 51 bytes of the file and 88 in memory, in a list that may be moved once while it grows.
const RATIO_MAX: usize = 8;

/// Takes `data` as a state file, as it is and with head and checksum mended. Its first byte is the offset that it is read for.
pub fn check_state(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let offset = Offset(i64::from(*first));
    check(data, offset);
    let head = [b"RRlstate".as_slice(), &[0, 1], &[7; 16], &[0, 0, 0, 1], &offset.0.to_be_bytes()].concat();
    let content = [&head, data].concat();
    check(&[&content[..], &crc32c::crc32c(&content).to_be_bytes()].concat(), offset);
}

fn check(bytes: &[u8], offset: Offset) {
    let mut decoded = None;
    let peak = peak_bytes_during(|| decoded = decode_state(bytes, PARTITION, offset).ok());
    assert!(peak <= FIXED_BYTES_MAX + RATIO_MAX * bytes.len(), "{peak} bytes allocated for {}", bytes.len());
    let Some(LogState { epochs, producers }) = decoded else { return };
    assert!(epochs.latest().is_none_or(|latest| latest.start_offset < offset));
    assert_eq!(
        encode_state(PARTITION, offset, &epochs, &producers),
        bytes,
        "what is accepted is what is written"
    );
}
