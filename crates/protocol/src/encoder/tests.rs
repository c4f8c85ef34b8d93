//! Lengths, tagged fields and splices as bytes.

use super::*;

fn bytes(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new();
    write(&mut encoder);
    encoder.into_parts().0.to_vec()
}

#[test]
fn lengths_are_classic_or_compact() {
    assert_eq!(bytes(|e| e.string(false, "ab").unwrap()), [0, 2, b'a', b'b']);
    assert_eq!(bytes(|e| e.string(true, "ab").unwrap()), [3, b'a', b'b']);
    assert_eq!(bytes(|e| e.nullable_string(false, None).unwrap()), [0xff, 0xff]);
    assert_eq!(bytes(|e| e.nullable_bytes(false, None).unwrap()), [0xff; 4]);
    assert_eq!(bytes(|e| e.nullable_bytes(true, None).unwrap()), [0]);
    assert_eq!(bytes(|e| e.varint(300)), [0xac, 0x02]);
}

#[test]
fn a_string_too_long_for_the_wire_is_refused() {
    let long = "x".repeat(STRING_BYTES_MAX + 1);
    for flexible in [false, true] {
        let result = Encoder::new().string(flexible, &long);
        assert_eq!(result, Err(EncodeError::TooLong(long.len())));
    }
}

#[test]
fn tagged_fields_are_counted_and_sized() {
    let written = bytes(|e| {
        let tags = e.begin_tagged_fields();
        let start = e.begin_tagged_field(&tags, 0);
        e.i16(0x0102);
        e.end_tagged_field(&start).unwrap();
        let start = e.begin_tagged_field(&tags, 3);
        e.raw(&[7; 200]);
        e.end_tagged_field(&start).unwrap();
    });
    assert_eq!(written[..8], [2, 0, 2, 1, 2, 3, 0xc8, 0x01]);
    assert_eq!(written[8..], [7; 200]);
}

#[test]
fn external_records_leave_their_length_and_a_splice() {
    let mut encoder = Encoder::new();
    encoder.i8(9);
    encoder.nullable_records(true, Some(Records::External { len: 1000 })).unwrap();
    encoder.i8(8);
    assert_eq!(encoder.wire_len(), 1 + 2 + 1000 + 1);
    let (bytes, splices) = encoder.into_parts();
    assert_eq!(bytes[..], [9, 0xe9, 0x07, 8]);
    assert_eq!(splices, [Splice { position: 3, len: 1000 }]);
}
