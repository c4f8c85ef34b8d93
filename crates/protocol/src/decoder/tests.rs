//! Each wire type at its bounds.

use super::*;

#[test]
fn varints_have_exactly_one_spelling() {
    for (bytes, value) in [
        (&[0_u8][..], 0_u32),
        (&[0x7f], 127),
        (&[0x80, 0x01], 128),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], u32::MAX),
    ] {
        assert_eq!(Decoder::new(bytes).varint(), Ok(value));
    }
    for overlong in [
        &[0x80_u8, 0x00][..],
        &[0x81, 0x80, 0x00],
        &[0xff, 0xff, 0xff, 0xff, 0x1f],
        &[0xff, 0xff, 0xff, 0xff, 0x8f, 0x00],
    ] {
        assert_eq!(Decoder::new(overlong).varint(), Err(DecodeError::OverlongVarint), "{overlong:?}");
    }
}

#[test]
fn null_and_negative_lengths_are_told_apart() {
    assert_eq!(Decoder::new(&[0xff, 0xff]).nullable_string(false), Ok(None));
    assert_eq!(Decoder::new(&[0xff, 0xff]).string(false), Err(DecodeError::UnexpectedNull));
    assert_eq!(Decoder::new(&[0xff, 0xfe]).string(false), Err(DecodeError::NegativeLength(-2)));
    assert_eq!(Decoder::new(&[0]).nullable_bytes(true), Ok(None));
    assert_eq!(Decoder::new(&[0]).bytes(true), Err(DecodeError::UnexpectedNull));
    let minus_two = (-2_i32).to_be_bytes();
    let array = Decoder::new(&minus_two).nullable_array(false, 4, Decoder::i32);
    assert_eq!(array, Err(DecodeError::NegativeLength(-2)));
}

#[test]
fn a_string_longer_than_sixteen_bits_can_say_is_refused() {
    let mut bytes = vec![0x81, 0x80, 0x02];
    bytes.resize(40_000, b'x');
    assert_eq!(Decoder::new(&bytes).string(true), Err(DecodeError::StringTooLong(0x8000)));
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    assert_eq!(Decoder::new(&[0, 1, 0xff]).string(false), Err(DecodeError::NotUtf8));
}

#[test]
fn count_beyond_the_bytes_is_refused_before_reading() {
    let mut bytes = i32::MAX.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 7]);
    let mut elements_read = 0;
    let result = Decoder::new(&bytes).array(false, 4, |d| {
        elements_read += 1;
        d.i32()
    });
    assert_eq!(result, Err(DecodeError::TooManyElements { count: i32::MAX as usize, most: 1 }));
    assert_eq!(elements_read, 0);
}

#[test]
fn a_vector_reserves_no_more_bytes_than_the_input_has() {
    let mut bytes = 1000_i32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 1000]);
    let mut decoder = Decoder::new(&bytes);
    let elements = decoder.array(false, 1, |d| d.i8().map(|_| [0_u64; 8])).unwrap();
    assert_eq!(elements.len(), 1000, "growth follows what was really read");
}

#[test]
fn one_budget_of_objects_holds_for_a_whole_message() {
    let half = limits::REQUEST_OBJECTS_MAX / 2 + 1;
    let mut bytes = i32::try_from(half).unwrap().to_be_bytes().to_vec();
    bytes.resize(4 + half, 0);
    let twice = [bytes.clone(), bytes].concat();
    let mut decoder = Decoder::new(&twice);
    assert_eq!(decoder.array(false, 1, Decoder::i8).map(|values| values.len()), Ok(half));
    assert_eq!(decoder.array(false, 1, Decoder::i8), Err(DecodeError::TooManyObjects));
}

#[test]
fn unknown_tags_are_skipped_whatever_they_hold() {
    let bytes = [2, 5, 3, 1, 2, 3, 9, 0, 77];
    let mut decoder = Decoder::new(&bytes);
    decoder.skip_tagged_fields().unwrap();
    assert_eq!(decoder.i8(), Ok(77));
}

#[test]
fn tags_that_repeat_or_fall_are_refused() {
    assert_eq!(Decoder::new(&[2, 5, 0, 5, 0]).skip_tagged_fields(), Err(DecodeError::TagOrder(5)));
    assert_eq!(Decoder::new(&[2, 5, 0, 4, 0]).skip_tagged_fields(), Err(DecodeError::TagOrder(4)));
}

#[test]
fn a_tagged_field_keeps_to_its_size() {
    let read = |bytes: &[u8]| {
        let mut value = 0;
        let result = Decoder::new(bytes).tagged_fields(|d, tag| {
            assert_eq!(tag, 0);
            value = d.i16()?;
            Ok(true)
        });
        result.map(|()| value)
    };
    assert_eq!(read(&[1, 0, 2, 0, 7]), Ok(7));
    assert_eq!(read(&[1, 0, 3, 0, 7, 0]), Err(DecodeError::TaggedFieldSize(1)));
    assert_eq!(read(&[1, 0, 1, 0, 7]), Err(DecodeError::Truncated { needed: 2, remaining: 1 }));
}

#[test]
fn more_tagged_fields_than_the_limit_are_refused() {
    let mut bytes = vec![0x91, 0x4e];
    bytes.resize(30_000, 0);
    let result = Decoder::new(&bytes).skip_tagged_fields();
    assert_eq!(result, Err(DecodeError::TooManyElements { count: 10_001, most: limits::TAGGED_FIELDS_MAX }));
}

#[test]
fn bytes_after_the_end_are_refused() {
    let mut decoder = Decoder::new(&[1, 2]);
    decoder.i8().unwrap();
    assert_eq!(decoder.finish(), Err(DecodeError::TrailingBytes(1)));
}

#[test]
fn bounded_message_counts_objects_of_all_its_arrays() {
    let mut bytes = vec![];
    for count in [3_u8, 2] {
        bytes.extend([0, 0, 0, count]);
        bytes.extend(vec![0; 4 * usize::from(count)]);
    }
    let read = |objects_max| {
        let mut decoder = Decoder::bounded(&bytes, objects_max);
        decoder.array(false, 4, Decoder::i32)?;
        decoder.array(false, 4, Decoder::i32)?;
        Ok(decoder.objects_left())
    };
    assert_eq!(read(7), Ok(2));
    assert_eq!(read(5), Ok(0));
    assert_eq!(read(4), Err(DecodeError::TooManyObjects));
    assert_eq!(read(2), Err(DecodeError::TooManyObjects));
}

#[test]
fn a_beginning_tells_of_more_objects_than_the_bound() {
    let mut bytes = vec![0, 0, 0, 1, 0, 0, 1, 0];
    bytes.extend([0; 40]);
    let read = |missing, objects_max| {
        let mut decoder = Decoder::beginning(&bytes, missing, objects_max);
        decoder.array(false, 4, |decoder| decoder.array(false, 4, Decoder::i32))
    };
    assert_eq!(read(984, 256), Err(DecodeError::TooManyObjects));
    assert!(matches!(read(984, 257), Err(DecodeError::Truncated { .. })));
    assert_eq!(read(979, 257), Err(DecodeError::TooManyElements { count: 256, most: 254 }));
}
