//! How many entries of an index are taken in.

use riverrun_records::layout::HEADER_BYTES;
use riverrun_types::{PartitionId, TimestampMs, TopicId};

use super::{ENTRY_BYTES, IndexContent, IndexEntry, IndexHeader, Offset, READ_ENTRIES, entry_position};
use crate::index::BAD_ENTRY;
use crate::scan::tests::{BASE, BytesFile};

const INDEX: IndexHeader =
    IndexHeader { partition: PartitionId { topic: TopicId([7; 16]), index: 0 }, base_offset: Offset(BASE) };

/// An index with entries behind so many of the smallest batches each.
fn index(batches: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = INDEX.encode().to_vec();
    for (number, count) in (0..).zip(batches) {
        let position = count * u32::try_from(HEADER_BYTES).unwrap();
        let entry = IndexEntry {
            relative_offset: count,
            position,
            max_timestamp: TimestampMs(0),
            running_checksum: 0,
        };
        bytes.extend(INDEX.codec().encode(number, entry));
    }
    bytes
}

#[test]
fn index_read_is_bounded_by_the_batches_that_its_log_can_have() {
    let log_bytes = 10 * HEADER_BYTES as u64 + 60;
    let whole = index(1..=10);
    let end = whole.len() as u64;
    let read = |file: &BytesFile| IndexContent::read_file(file, INDEX, log_bytes).unwrap();
    let read_max = whole.len() + ENTRY_BYTES;
    let intact = read(&BytesFile::new(whole.clone(), read_max));
    assert_eq!((intact.entries.len(), intact.flaw), (10, None));

    let grown = read(&BytesFile::new(whole, read_max).with_len(8 << 30));
    assert_eq!((grown.entries.len(), grown.flaw), (10, Some((end, BAD_ENTRY.to_string()))));
    let repeated = read(&BytesFile::new(index((1..=10).chain([10; 5])), read_max));
    let what = "more entries than there can be batches in a log of 670 bytes".to_owned();
    assert_eq!((repeated.entries.len(), repeated.flaw), (11, Some((end, what))));

    // The index of a log that was cut reaches beyond it, and is intact.
    let longer = read(&BytesFile::new(index(1..=20), read_max));
    assert_eq!((longer.entries.last().map(|entry| entry.position), longer.flaw), (Some(11 * 61), None));
}

#[test]
fn an_index_of_many_entries_is_read_piece_by_piece() {
    let count = u32::try_from(2 * READ_ENTRIES + 3).unwrap();
    let mut bytes = index(1..=count);
    let (len, log_bytes) = (bytes.len(), u64::from(count) * HEADER_BYTES as u64);
    let content = IndexContent::read_file(&BytesFile::new(bytes.clone(), len), INDEX, log_bytes).unwrap();
    assert!(
        content.flaw.is_none() && content.entries.iter().map(|entry| entry.relative_offset).eq(1..=count)
    );
    // The last entry of the first piece.
    let position = entry_position(u32::try_from(READ_ENTRIES).unwrap() - 1);
    bytes[usize::try_from(position).unwrap()] ^= 1;
    let content = IndexContent::read_file(&BytesFile::new(bytes, len), INDEX, log_bytes).unwrap();
    assert_eq!(content.flaw, Some((position, BAD_ENTRY.to_string())));
    assert_eq!(content.entries.len() as u64, u64::from(count) - 1);
}
