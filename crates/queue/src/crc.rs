//! CRC-32C of values of some hundred bytes, computed by every append.
//!
//! The CRC instruction has a latency of three cycles and a throughput of one per cycle. Three parts are therefore
//! summed at once and joined by carry-less multiplication (V. Gopal and others, "Fast CRC Computation for iSCSI
//! Polynomial Using CRC32 Instruction", Intel 2011). The `crc32c` crate does so from about 800 bytes on; this module
//! begins at 56. Processors without the instructions use that crate.
//!
//! A processor that multiplies four pairs at once (VPCLMULQDQ with AVX-512) sums 256 bytes in the time that the
//! instruction takes for some 32: four vectors of 64 bytes are repeatedly multiplied past the next 256 bytes and
//! added to them, then joined, and the instruction sums the result.
//!
//! Guarantees the sums of the `crc32c` crate on every processor.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "instructions that not every processor has")
)]

/// Continues the sum `before` with `bytes`.
#[inline]
pub(crate) fn extend(before: u32, bytes: &[u8]) -> u32 {
    extend_by(before, bytes, &[])
}

/// As [`extend`], for bytes in two slices, the second of which is short.
#[inline]
pub(crate) fn extend_by(before: u32, bytes: &[u8], few: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        if bytes.len() >= wide::BYTES_MIN && wide::is_known() {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { wide::extend(before, bytes, few) };
        }
        if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: as above.
            return unsafe { x86::extend(before, bytes, few) };
        }
    }
    crc32c::crc32c_append(crc32c::crc32c_append(before, bytes), few)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
        _mm_xor_si128,
    };

    /// Most words of one part.
    const WORDS_MAX: usize = 64;

    /// For each count of words: the factor that moves a sum over so many words and the joining word. It is x^(64 n +
    /// 31) modulo the polynomial, bits reflected.
    pub(super) const SHIFTS: [u32; 2 * WORDS_MAX + 1] = {
        const POLYNOMIAL: u32 = 0x82F6_3B78;
        let mut shifts = [0; 2 * WORDS_MAX + 1];
        let mut power = 0x8000_0000_u32;
        let mut exponent = 0;
        while exponent <= 64 * 2 * WORDS_MAX + 31 {
            if exponent % 64 == 31 {
                shifts[exponent / 64] = power;
            }
            power = (power >> 1) ^ (if power & 1 == 1 { POLYNOMIAL } else { 0 });
            exponent += 1;
        }
        shifts
    };

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn extend(before: u32, bytes: &[u8], few: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut sum = u64::from(!before);
        let mut words = words;
        // Three parts of equal length and the word that joins them.
        while words.len() > 6 {
            let part = ((words.len() - 1) / 3).min(WORDS_MAX);
            let (joined, after) = words.split_at(3 * part + 1);
            sum = three(sum, joined, part);
            words = after;
        }
        one_by_one(sum, &bytes[bytes.len() - rest.len() - words.len() * 8..], few)
    }

    /// Continues `sum`, which is not inverted, with a few bytes.
    #[target_feature(enable = "sse4.2")]
    pub(super) fn one_by_one(mut sum: u64, bytes: &[u8], few: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            sum = _mm_crc32_u64(sum, u64::from_le_bytes(*word));
        }
        let mut sum = sum as u32;
        for byte in rest.iter().chain(few) {
            sum = _mm_crc32_u8(sum, *byte);
        }
        !sum
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn three(before: u64, words: &[[u8; 8]], part: usize) -> u64 {
        let (first, rest) = words.split_at(part);
        let (second, rest) = rest.split_at(part);
        let (third, last) = rest.split_at(part);
        let (mut a, mut b, mut c) = (before, 0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(third) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
        }
        let moved = |sum: u64, words: usize| {
            let (sum, shift) = (_mm_cvtsi32_si128(sum as i32), _mm_cvtsi32_si128(SHIFTS[words] as i32));
            _mm_clmulepi64_si128(sum, shift, 0)
        };
        let joined = _mm_cvtsi128_si64(_mm_xor_si128(moved(a, 2 * part), moved(b, part))) as u64;
        let last = last.first().map_or(0, |word| u64::from_le_bytes(*word));
        _mm_crc32_u64(c, last ^ joined)
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
        _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_setr_epi64,
        _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    use super::x86::{SHIFTS, one_by_one};

    /// Bytes of one vector.
    const WIDE: usize = 64;
    /// Below this length the scalar way is as quick.
    pub(super) const BYTES_MIN: usize = 2 * WIDE;
    /// Truth table of a three-way exclusive or.
    const ADD: i32 = 0x96;

    pub(super) fn is_known() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    }

    #[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
    pub(super) fn extend(before: u32, bytes: &[u8], few: &[u8]) -> u32 {
        let (vectors, rest) = bytes.as_chunks::<WIDE>();
        let Some((first, mut vectors)) = vectors.split_first() else {
            return one_by_one(u64::from(!before), rest, few);
        };
        let begin = _mm512_zextsi128_si512(_mm_cvtsi32_si128(!before as i32));
        let mut sum = _mm512_xor_si512(load(first), begin);
        if let Some(([second, third, fourth], after)) = vectors.split_first_chunk() {
            let mut sums = [sum, load(second), load(third), load(fourth)];
            let (fours, after) = after.as_chunks::<4>();
            for four in fours {
                for (sum, next) in sums.iter_mut().zip(four) {
                    *sum = pass::<4>(*sum, load(next));
                }
            }
            let [a, b, c, d] = sums;
            sum = pass::<2>(pass::<1>(a, b), pass::<1>(c, d));
            vectors = after;
        }
        for next in vectors {
            sum = pass::<1>(sum, load(next));
        }
        let [low, high] = join(sum);
        one_by_one(_mm_crc32_u64(_mm_crc32_u64(0, low), high), rest, few)
    }

    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8; WIDE]) -> __m512i {
        // SAFETY: the array has as many bytes as are loaded, and no alignment is asked for.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// `sum` moved over `VECTORS` vectors, the last of which is `next`, each 16 bytes separately.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn pass<const VECTORS: usize>(sum: __m512i, next: __m512i) -> __m512i {
        let (low, high) = (i64::from(SHIFTS[WIDE / 8 * VECTORS]), i64::from(SHIFTS[WIDE / 8 * VECTORS - 1]));
        let shifts = _mm512_setr_epi64(low, high, low, high, low, high, low, high);
        multiply_and_add(sum, shifts, next)
    }

    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn multiply_and_add(sum: __m512i, shifts: __m512i, next: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128(sum, shifts, 0x00);
        let high = _mm512_clmulepi64_epi128(sum, shifts, 0x11);
        _mm512_ternarylogic_epi64(low, high, next, ADD)
    }

    /// Sixteen bytes with the same sum as the vector.
    #[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
    fn join(sum: __m512i) -> [u64; 2] {
        let shift = |words: usize| i64::from(SHIFTS[words]);
        // The first three lanes move past the lanes after them; the last stays as it is.
        let shifts = _mm512_setr_epi64(shift(6), shift(5), shift(4), shift(3), shift(2), shift(1), 0, 0);
        let zero = _mm512_xor_si512(sum, sum);
        let moved = multiply_and_add(sum, shifts, zero);
        let a = _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 0), _mm512_extracti32x4_epi32(moved, 1));
        let b = _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 2), _mm512_extracti32x4_epi32(sum, 3));
        let joined = _mm_xor_si128(a, b);
        [_mm_cvtsi128_si64(joined) as u64, _mm_extract_epi64(joined, 1) as u64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_the_plain_algorithm_at_every_length() {
        let bytes: Vec<u8> = (0..5000_u32).map(|index| (index * 131 + index / 7) as u8).collect();
        assert_eq!(extend(0, b"123456789"), 0xE306_9283);
        // Miri is slow.
        let step = if cfg!(miri) { 61 } else { 1 };
        #[cfg(target_arch = "x86_64")]
        let narrow = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "x86_64")]
        let wide = wide::is_known();
        for len in (0..2000).step_by(step).chain([3071, 3072, 3080, 4999]) {
            for (begin, before) in [(0, 0), (1, 7), (0, 0xdead_beef)] {
                let part = &bytes[begin..=len][..len];
                assert_eq!(extend(before, part), crc32c::crc32c_append(before, part), "{len} bytes");
                #[cfg(target_arch = "x86_64")]
                if narrow {
                    // SAFETY: the processor has what the function is compiled for.
                    let sum = unsafe { x86::extend(before, part, &[]) };
                    assert_eq!(sum, extend(before, part), "{len} bytes");
                }
                #[cfg(target_arch = "x86_64")]
                if wide {
                    // SAFETY: as above.
                    let sum = unsafe { wide::extend(before, part, &[]) };
                    assert_eq!(sum, extend(before, part), "{len} bytes");
                }
                let (most, few) = part.split_at(len - len.min(3));
                assert_eq!(extend_by(before, most, few), extend(before, part), "{len} bytes");
            }
        }
    }
}
