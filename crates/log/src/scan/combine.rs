//! The CRC-32C of two ranges that lie one behind the other, from the CRCs of both.
//!
//! `crc32c::crc32c_combine` returns the same. It squares matrices anew at each call, which takes as long as the CRC of
//! hundreds of KiB; here it is called for each header that may be one, millions of them in an attack.
//!
//! A CRC is a polynomial over GF(2), taken modulo the one below, and `n` bytes that follow multiply it by x^(8n). This
//! is the method of zlib's `crc32_combine_op`; the powers of x are looked up by the four bytes of `n`. Bits are
//! reflected, as everywhere with CRC-32C: the highest one is x^0.

/// The polynomial of CRC-32C without its x^32.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^0.
const ONE: u32 = 1 << 31;
/// x^8: the factor of one byte.
const BYTE: u32 = 1 << 23;

/// x^(8 · n · 256^k) at `[k][n]`.
static POWERS: [[u32; 256]; 4] = powers();

const fn powers() -> [[u32; 256]; 4] {
    let mut powers = [[ONE; 256]; 4];
    let (mut k, mut step) = (0, BYTE);
    while k < 4 {
        let mut n = 1;
        while n < 256 {
            powers[k][n] = multiply(powers[k][n - 1], step);
            n += 1;
        }
        step = multiply(powers[k][255], step);
        k += 1;
    }
    powers
}

/// The product of two polynomials. Without branches: the bits cannot be predicted.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        product ^= shifted & ((a >> bit) & 1).wrapping_neg();
        shifted = (shifted >> 1) ^ (POLYNOMIAL & (shifted & 1).wrapping_neg());
    }
    product
}

/// The CRC of a range of CRC `first` with `second_len` bytes of CRC `second` behind it.
pub(super) fn combine(first: u32, second: u32, second_len: u32) -> u32 {
    let bytes = POWERS.iter().zip(second_len.to_le_bytes());
    let moved = bytes
        .filter(|(_, byte)| *byte != 0)
        .fold(first, |crc, (powers, byte)| multiply(powers[usize::from(byte)], crc));
    moved ^ second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_crcs_give_that_of_both_ranges() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|number| ((number * 7) >> 3).to_le_bytes()[0]).collect();
        for second_len in [0_u32, 1, 2, 255, 256, 257, 4096, 65_535, 65_536, 69_999, 70_000] {
            let (first, second) = bytes.split_at(bytes.len() - second_len as usize);
            let combined = combine(crc32c::crc32c(first), crc32c::crc32c(second), second_len);
            assert_eq!(combined, crc32c::crc32c(&bytes), "{second_len}");
        }
    }

    #[test]
    fn every_length_that_a_batch_may_claim_is_as_the_crate_has_it() {
        let (first, second) = (0xdead_beef, 0x1234_5678);
        let lengths = (0..32).flat_map(|bit| [1_u32 << bit, u32::MAX >> bit, 0x9e37_79b9 >> bit]);
        for len in lengths.filter(|len| *len > 0) {
            let told = crc32c::crc32c_combine(first, second, len as usize);
            assert_eq!(combine(first, second, len), told, "{len}");
        }
    }
}
