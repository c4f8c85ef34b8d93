//! Frames as bytes: written frames are read, and changed ones are not.

use bytes::Bytes;
use proptest::prelude::*;
use riverrun_env::AlignedBuffer;

use super::*;

const ID: JournalId = JournalId([9; 16]);

fn header(index: u64) -> EntryHeader {
    let byte = u8::try_from(index).unwrap();
    EntryHeader {
        stream: StreamId([byte; 20]),
        kind: EntryKind::Records,
        index,
        cuts: 7,
        base_offset: Offset(index as i64 - 5),
        leader_epoch: LeaderEpoch(-1),
    }
}

fn encode(position: u64, payloads: &[Vec<u8>], alignment: usize) -> Vec<u8> {
    let headers: Vec<_> = (0..payloads.len() as u64).map(header).collect();
    let entries = headers.iter().zip(payloads).map(|(header, payload)| EntryToEncode {
        header,
        payload,
        payload_crc: crc32c::crc32c(payload),
    });
    let payload_bytes = payloads.iter().map(Vec::len).sum();
    let bytes = frame_bytes(payloads.len(), payload_bytes).next_multiple_of(alignment);
    let mut out = AlignedBuffer::with_capacity(bytes, alignment);
    let frame = FrameHeader { id: ID, position, synced: position / 2, settled: position / 3 };
    encode_frame(&mut out, &frame, entries, alignment);
    out.to_vec()
}

/// Header, rows and payloads of a frame, if all of them are intact.
fn decode(bytes: &[u8], position: u64) -> Option<(Frame, Vec<Bytes>)> {
    let frame = Frame::decode(bytes, ID, position, bytes.len()).ok()?;
    let all = Bytes::copy_from_slice(bytes.get(..frame.bytes)?);
    let payloads: Option<Vec<_>> =
        frame.entries(&all).map(|(row, payload)| row.is_payload(&payload).then_some(payload)).collect();
    Some((frame.clone(), payloads?))
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_frame_is_read_as_it_was_written(
        payloads in payloads(),
        position in 0..1_u64 << 50,
        alignment in prop::sample::select(vec![512_usize, 4096]),
    ) {
        let bytes = encode(position, &payloads, alignment);
        prop_assert!(bytes.len().is_multiple_of(alignment));
        let (frame, found) = decode(&bytes, position).expect("intact");
        prop_assert_eq!(frame.bytes, bytes.len());
        prop_assert_eq!(frame.header, FrameHeader { id: ID, position, synced: position / 2, settled: position / 3 });
        prop_assert_eq!(&found, &payloads);
        for (index, row) in frame.rows.iter().enumerate() {
            prop_assert_eq!(row.header, header(index as u64));
            prop_assert_eq!(row.position, entry_position(position, index));
        }
    }

    #[test]
    fn a_frame_at_another_place_or_of_another_journal_is_refused(payloads in payloads(), moved in 1..9_u64) {
        let bytes = encode(4096, &payloads, 512);
        prop_assert!(decode(&bytes, 4096 + moved * 512).is_none());
        let other = JournalId([8; 16]);
        prop_assert!(Frame::decode(&bytes, other, 4096, bytes.len()).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_no_frame(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(Frame::decode(&bytes, ID, 0, bytes.len()).is_err());
        prop_assert!(!matches!(decode_file_head(&bytes), FileHead::Used(_)));
    }
}

#[test]
fn every_flipped_bit_of_a_frame_is_found_or_in_the_padding() {
    let payloads = [b"first".to_vec(), Vec::new(), vec![3; 40]];
    let bytes = encode(8192, &payloads, 512);
    let used = frame_bytes(payloads.len(), 45);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&flipped, 8192).is_some(), bit / 8 >= used, "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len], 8192).is_none(), "cut to {len}");
    }
}

#[test]
fn payloads_that_changed_places_are_found() {
    let mut bytes = encode(0, &[vec![1; 100], vec![1; 100], vec![2; 100]], 512);
    let first = FRAME_HEADER_BYTES + 3 * ENTRY_BYTES;
    let (head, tail) = bytes.split_at_mut(first + 100);
    head[first..].swap_with_slice(&mut tail[100..200]);
    assert!(decode(&bytes, 0).is_none());
    // Equal payloads have different checksums, because they belong to different places.
    let rows = Frame::decode(&bytes, ID, 0, bytes.len()).unwrap().rows;
    assert_ne!(rows[0].crc, rows[1].crc);
}

#[test]
fn kinds_that_only_a_newer_program_knows_are_refused_by_name() {
    let kind_at = FRAME_HEADER_BYTES + 20;
    for (kind, name) in [(2, "kind 2"), (9, "kind 9")] {
        let mut bytes = encode(0, &[vec![1; 10]], 512);
        bytes[kind_at] = kind;
        let end = FRAME_HEADER_BYTES + ENTRY_BYTES;
        let checksum = crc32c::crc32c(&bytes[FRAME_CHECKED..end]);
        bytes[FRAME_CHECKSUM..FRAME_CHECKED].copy_from_slice(&checksum.to_be_bytes());
        match Frame::decode(&bytes, ID, 0, bytes.len()) {
            Err(NoFrame::Foreign(what)) => assert!(what.contains(name), "{what}"),
            other => panic!("{other:?}"),
        }
    }
}

fn file_header() -> FileHeader {
    FileHeader {
        id: ID,
        alignment: 4096,
        start: 1 << 20,
        bytes: 1 << 20,
        previous_end: 5000,
        synced: 4096,
        settled: 1,
    }
}

#[test]
fn every_flipped_bit_of_a_file_header_is_found() {
    let bytes = file_header().encode();
    assert_eq!(bytes.len(), FILE_HEADER_BYTES);
    assert_eq!(decode_file_head(&bytes), FileHead::Used(file_header()));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(decode_file_head(&flipped), FileHead::Used(_)), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(matches!(decode_file_head(&bytes[..len]), FileHead::Damaged(_)), "cut to {len}");
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = file_header().encode();
    bytes[9] = 3;
    match decode_file_head(&bytes) {
        FileHead::Foreign(what) => assert!(what.contains("version 3"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_version_without_cuts_is_refused_by_name_with_the_way_out() {
    let mut bytes = file_header().encode();
    bytes[9] = 1;
    let content = bytes.len() - CHECKSUM_BYTES;
    let checksum = crc32c::crc32c(&bytes[..content]);
    bytes[content..].copy_from_slice(&checksum.to_be_bytes());
    match decode_file_head(&bytes) {
        FileHead::Foreign(what) => {
            assert!(what.contains("format version 1") && what.contains("older program"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_header_with_values_that_are_never_written_is_refused() {
    let good = file_header();
    for bad in [
        FileHeader { alignment: 256, ..good },
        FileHeader { alignment: 5000, ..good },
        FileHeader { start: 100, ..good },
        FileHeader { bytes: 4096, ..good },
        FileHeader { bytes: u64::MAX - 4095, ..good },
        FileHeader { previous_end: good.start + 1, ..good },
        FileHeader { start: 1 << 63, ..good },
        FileHeader { synced: good.end() + 1, ..good },
        FileHeader { settled: good.start + 1, ..good },
    ] {
        assert!(matches!(decode_file_head(&bad.encode()), FileHead::Damaged(_)), "{bad:?}");
    }
}
