//! Zigzag variable-length integers, as records use them: seven bits to a byte, least significant first.
//!
//! Writing goes to a growing buffer; reading is in [`crate::source`], beside the sources of the bytes.

/// Longest encoding of an `i32`.
pub(crate) const VARINT_BYTES_MAX: u32 = 5;
/// Longest encoding of an `i64`.
pub(crate) const VARLONG_BYTES_MAX: u32 = 10;

/// Small magnitudes become small unsigned numbers.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// [`unzigzag`] for an `i32`.
pub(crate) fn unzigzag_int(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

/// Bytes that `value` takes. An `i32` takes as many as the same number in an `i64`.
pub(crate) fn encoded_bytes(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Appends `value`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, value: i64) {
    let mut raw = zigzag(value);
    while raw >= 0x80 {
        out.push(raw.to_le_bytes()[0] | 0x80);
        raw >>= 7;
    }
    out.push(raw.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::InvalidCause;
    use crate::source::{SliceSource, Source as _};

    proptest! {
        #[test]
        fn a_long_survives_and_its_size_is_known(value: i64) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), encoded_bytes(value));
            let mut source = SliceSource::new(&out);
            prop_assert_eq!(source.varlong(), Ok(value));
            prop_assert_eq!(source.position(), out.len());
        }

        #[test]
        fn an_int_survives(value: i32) {
            let mut out = Vec::new();
            put(&mut out, i64::from(value));
            prop_assert_eq!(SliceSource::new(&out).varint(), Ok(value));
        }
    }

    #[test]
    fn an_integer_that_is_too_long_or_too_large_is_refused() {
        let varint = |bytes: &[u8]| SliceSource::new(bytes).varint();
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MIN));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(InvalidCause::Varint.into()));
        assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), Err(InvalidCause::Varint.into()));
        let varlong = |bytes: &[u8]| SliceSource::new(bytes).varlong();
        assert_eq!(varlong(&[0x80; 11]), Err(InvalidCause::Varint.into()));
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(varlong(&largest), Ok(i64::MIN));
        let past = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(varlong(&past), Err(InvalidCause::Varint.into()));
    }
}
