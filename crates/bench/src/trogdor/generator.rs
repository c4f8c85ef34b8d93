//! Generators of keys and values, as Trogdor's specs name them.
//!
//! Guarantees the sizes and the structure that a spec asks for, and the same bytes for the same seed. Random bytes come
//! from our own generator, so they differ from those of Java's.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::lenient;
use crate::random::SeededRandom;

/// Most bytes of one value.
const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a time stamp.
const STAMP_BYTES: usize = size_of::<u64>();

/// A generator as written in a spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GeneratorSpec {
    /// The same `size` bytes each time: `value` repeated, or zeros.
    Constant {
        /// Bytes of each.
        #[serde(default, deserialize_with = "lenient::whole")]
        size: usize,
        /// The bytes, as base64.
        #[serde(default)]
        value: Option<String>,
    },
    /// A number that grows by one, little-endian.
    Sequential {
        /// Bytes of each.
        #[serde(default, deserialize_with = "lenient::whole")]
        size: usize,
        /// The first number.
        #[serde(default, deserialize_with = "lenient::bits")]
        offset: u64,
    },
    /// Random bytes, followed by constant padding.
    UniformRandom {
        /// Bytes of each.
        #[serde(default, deserialize_with = "lenient::whole")]
        size: usize,
        /// Seed of the random numbers.
        #[serde(default, deserialize_with = "lenient::bits")]
        seed: u64,
        /// Bytes of the constant padding.
        #[serde(default, deserialize_with = "lenient::whole")]
        padding: usize,
    },
    /// Nothing at all.
    Null,
    /// One of several generators, at random.
    RandomComponent {
        /// Seed of the random numbers.
        #[serde(default, deserialize_with = "lenient::bits")]
        seed: u64,
        /// The generators, with their chances.
        components: Vec<ComponentSpec>,
    },
    /// The time, then random bytes.
    TimestampRandom {
        /// Bytes of each.
        #[serde(default, deserialize_with = "lenient::whole")]
        size: usize,
        /// Seed of the random numbers.
        #[serde(default, deserialize_with = "lenient::bits")]
        seed: u64,
    },
    /// The time, then zeros.
    TimestampConstant {
        /// Bytes of each.
        #[serde(default, deserialize_with = "lenient::whole")]
        size: usize,
    },
    /// The time, then random bytes, of sizes around an average.
    GaussianTimestampRandom(GaussianSpec),
    /// The time, then zeros, of sizes around an average.
    GaussianTimestampConstant(GaussianSpec),
}

/// One of several generators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentSpec {
    /// Its chance in percent.
    #[serde(deserialize_with = "lenient::whole")]
    pub percent: u8,
    /// The generator.
    pub component: GeneratorSpec,
}

/// Sizes around an average.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GaussianSpec {
    /// Bytes, on average.
    #[serde(default, deserialize_with = "lenient::whole")]
    pub message_size_average: usize,
    /// Their standard deviation.
    #[serde(default, deserialize_with = "lenient::real")]
    pub message_size_deviation: f64,
    /// Number of values before the size changes.
    #[serde(default, deserialize_with = "lenient::count")]
    pub messages_until_size_change: u64,
    /// Seed of the random numbers.
    #[serde(default, deserialize_with = "lenient::bits")]
    pub seed: u64,
}

impl GeneratorSpec {
    /// The reason why it cannot be run, if there is one.
    pub(super) fn fault(&self) -> Option<String> {
        if self.bytes() > VALUE_BYTES_MAX {
            return Some(format!("values of more than {VALUE_BYTES_MAX} bytes"));
        }
        match self {
            Self::UniformRandom { size, padding, .. } if padding > size => {
                Some(format!("padding {padding} is more than the size {size}"))
            }
            Self::TimestampRandom { size, .. } | Self::TimestampConstant { size } if *size < STAMP_BYTES => {
                Some(format!("a value with a time stamp has at least {STAMP_BYTES} bytes, not {size}"))
            }
            Self::Constant { value: Some(value), .. } => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(value);
                decoded.err().map(|error| format!("the constant value is no base64: {error}"))
            }
            Self::RandomComponent { components, .. } => fault_of_components(components),
            Self::GaussianTimestampRandom(spec) | Self::GaussianTimestampConstant(spec) => {
                let deviation = spec.message_size_deviation;
                (!deviation.is_finite() || deviation < 0.0)
                    .then(|| format!("messageSizeDeviation is {deviation}"))
            }
            _ => None,
        }
    }

    /// About the bytes of a value.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Constant { size, .. }
            | Self::Sequential { size, .. }
            | Self::UniformRandom { size, .. }
            | Self::TimestampRandom { size, .. }
            | Self::TimestampConstant { size } => *size,
            Self::Null => 0,
            Self::RandomComponent { components, .. } => components
                .iter()
                .map(|one| one.component.bytes().saturating_mul(usize::from(one.percent)))
                .fold(0_usize, usize::saturating_add)
                .div_ceil(100),
            Self::GaussianTimestampRandom(spec) | Self::GaussianTimestampConstant(spec) => {
                spec.message_size_average
            }
        }
    }
}

fn fault_of_components(components: &[ComponentSpec]) -> Option<String> {
    let total: u32 = components.iter().map(|one| u32::from(one.percent)).sum();
    if total != 100 {
        return Some(format!("the components' chances come to {total} %, not 100 %"));
    }
    components.iter().find_map(|one| match one.component {
        // One level is what the original's samples have; it bounds the depth of a file.
        GeneratorSpec::RandomComponent { .. } => Some("components of components".to_owned()),
        _ => one.component.fault(),
    })
}

/// A generator with its state.
#[derive(Debug)]
pub struct Generator {
    spec: GeneratorSpec,
    random: SeededRandom,
    /// Constant bytes: a constant's value, or a padding.
    fixed: Bytes,
    parts: Vec<(u8, Generator)>,
    size_now: usize,
}

impl Generator {
    /// Begins to generate. `seed` distinguishes several producers of one spec.
    pub fn new(spec: &GeneratorSpec, seed: u64) -> Self {
        let own_seed = match spec {
            GeneratorSpec::UniformRandom { seed, .. }
            | GeneratorSpec::TimestampRandom { seed, .. }
            | GeneratorSpec::RandomComponent { seed, .. } => *seed,
            GeneratorSpec::GaussianTimestampRandom(gaussian)
            | GeneratorSpec::GaussianTimestampConstant(gaussian) => gaussian.seed,
            _ => 0,
        };
        let mut random = SeededRandom::new(own_seed ^ seed);
        let fixed = match spec {
            GeneratorSpec::Constant { size, value } => constant(*size, value.as_deref()),
            GeneratorSpec::UniformRandom { padding, .. } => random_bytes(&mut random, *padding).into(),
            _ => Bytes::new(),
        };
        let parts = match spec {
            GeneratorSpec::RandomComponent { components, .. } => {
                components.iter().map(|one| (one.percent, Self::new(&one.component, seed))).collect()
            }
            _ => Vec::new(),
        };
        Self { spec: spec.clone(), random, fixed, parts, size_now: 0 }
    }

    /// The generator for another sender, with other random numbers.
    #[must_use]
    pub(crate) fn another(&mut self) -> Self {
        Self {
            spec: self.spec.clone(),
            random: self.random.split(),
            fixed: self.fixed.clone(),
            parts: self.parts.iter_mut().map(|(percent, part)| (*percent, part.another())).collect(),
            size_now: 0,
        }
    }

    /// The value with this number.
    pub fn next(&mut self, number: u64) -> Option<Bytes> {
        match &self.spec {
            GeneratorSpec::Null => None,
            GeneratorSpec::Constant { .. } => Some(self.fixed.clone()),
            GeneratorSpec::Sequential { size, offset } => {
                Some(sequential(*size, offset.wrapping_add(number)))
            }
            GeneratorSpec::UniformRandom { size, padding, .. } => {
                let mut value = random_bytes(&mut self.random, size - padding);
                value.extend_from_slice(&self.fixed);
                Some(value.into())
            }
            GeneratorSpec::RandomComponent { .. } => self.component(number),
            GeneratorSpec::TimestampRandom { size, .. } => Some(stamped(*size, Some(&mut self.random))),
            GeneratorSpec::TimestampConstant { size } => Some(stamped(*size, None)),
            GeneratorSpec::GaussianTimestampRandom(spec) => {
                self.size_now = gaussian_size(spec, number, self.size_now, &mut self.random);
                Some(stamped(self.size_now, Some(&mut self.random)))
            }
            GeneratorSpec::GaussianTimestampConstant(spec) => {
                self.size_now = gaussian_size(spec, number, self.size_now, &mut self.random);
                Some(stamped(self.size_now, None))
            }
        }
    }

    fn component(&mut self, number: u64) -> Option<Bytes> {
        let mut drawn = self.random.below(100);
        for (percent, part) in &mut self.parts {
            if drawn < u64::from(*percent) {
                return part.next(number);
            }
            drawn -= u64::from(*percent);
        }
        None
    }
}

fn constant(size: usize, value: Option<&str>) -> Bytes {
    let given = value.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    match given {
        Some(value) if !value.is_empty() => value.into_iter().cycle().take(size).collect(),
        _ => vec![0; size].into(),
    }
}

fn sequential(size: usize, number: u64) -> Bytes {
    let mut value = vec![0; size];
    let digits = number.to_le_bytes();
    let count = size.min(digits.len());
    value[..count].copy_from_slice(&digits[..count]);
    value.into()
}

fn random_bytes(random: &mut SeededRandom, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fill(random, &mut bytes);
    bytes
}

fn fill(random: &mut SeededRandom, bytes: &mut [u8]) {
    for part in bytes.chunks_mut(size_of::<u64>()) {
        part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
    }
}

fn stamped(size: usize, random: Option<&mut SeededRandom>) -> Bytes {
    let mut value = vec![0; size.max(STAMP_BYTES)];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    value[..STAMP_BYTES].copy_from_slice(&now_ms.to_le_bytes());
    if let Some(random) = random {
        fill(random, &mut value[STAMP_BYTES..]);
    }
    value.into()
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to sizes that a value may have")]
fn gaussian_size(spec: &GaussianSpec, number: u64, size_now: usize, random: &mut SeededRandom) -> usize {
    if size_now > 0 && !number.is_multiple_of(spec.messages_until_size_change.max(1)) {
        return size_now;
    }
    // Box and Muller, 1958; the first draw lies above 0, which has no logarithm.
    let unit = |draw: u64| ((draw >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let (one, other) = (unit(random.next_u64()), unit(random.next_u64()));
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    let size = spec.message_size_average as f64 + normal * spec.message_size_deviation;
    (size.clamp(STAMP_BYTES as f64, VALUE_BYTES_MAX as f64)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(spec: &str) -> Generator {
        let spec: GeneratorSpec = serde_json::from_str(spec).expect("a generator");
        assert_eq!(spec.fault(), None);
        Generator::new(&spec, 0)
    }

    #[test]
    fn sequence_grows_from_its_offset_in_little_endian() {
        let mut sequence = generator(r#"{"type": "sequential", "size": 4, "offset": 255}"#);
        assert_eq!(sequence.next(0).unwrap().as_ref(), [255, 0, 0, 0]);
        assert_eq!(sequence.next(1).unwrap().as_ref(), [0, 1, 0, 0]);
        let mut long = generator(r#"{"type": "sequential", "size": 10}"#);
        assert_eq!(long.next(7).unwrap().as_ref(), [7, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn constants_repeat_their_value_or_are_zeros() {
        assert_eq!(generator(r#"{"type": "constant", "size": 3}"#).next(0).unwrap().as_ref(), [0, 0, 0]);
        for (size, expected) in [(0, ""), (1, "a"), (2, "ab"), (5, "ababa")] {
            let spec = format!(r#"{{"type": "constant", "size": {size}, "value": "YWI="}}"#);
            assert_eq!(generator(&spec).next(0).unwrap().as_ref(), expected.as_bytes(), "as Kafka's does");
        }
        assert_eq!(generator(r#"{"type": "null"}"#).next(0), None);
    }

    #[test]
    fn random_values_differ_and_their_padding_stays() {
        let spec = r#"{"type": "uniformRandom", "size": 40, "seed": 5, "padding": 16}"#;
        let (mut one, mut same) = (generator(spec), generator(spec));
        let (first, second) = (one.next(0).unwrap(), one.next(1).unwrap());
        assert_eq!((first.len(), &first[24..]), (40, &second[24..]));
        assert_ne!(first[..24], second[..24]);
        assert_eq!(same.next(0).unwrap(), first, "one seed, the same values");
    }

    #[test]
    fn components_come_by_their_chances() {
        let mut mixed = generator(
            r#"{"type": "randomComponent", "seed": 1, "components": [
                {"percent": 30, "component": {"type": "null"}},
                {"percent": 70, "component": {"type": "constant", "size": 2}}]}"#,
        );
        let nulls = (0..10_000).filter(|number| mixed.next(*number).is_none()).count();
        // Ten standard deviations.
        assert!((2_540..3_460).contains(&nulls), "{nulls}");
    }

    #[test]
    fn stamped_values_begin_with_the_time_and_keep_their_sizes() {
        let value = generator(r#"{"type": "timestampConstant", "size": 20}"#).next(0).unwrap();
        let stamp = u64::from_le_bytes(value[..8].try_into().unwrap());
        assert!(stamp > 1_600_000_000_000 && value.len() == 20 && value[8..].iter().all(|byte| *byte == 0));
        let mut gaussian = generator(
            r#"{"type": "gaussianTimestampRandom", "messageSizeAverage": 1000, "messageSizeDeviation": 100.0,
                "messagesUntilSizeChange": 10, "seed": 3}"#,
        );
        let sizes: Vec<_> = (0..2000).map(|number| gaussian.next(number).unwrap().len()).collect();
        assert!(sizes.chunks(10).all(|chunk| chunk.iter().all(|size| *size == chunk[0])));
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        assert!((930.0..1070.0).contains(&mean), "{mean}");
    }

    #[test]
    fn impossible_generator_is_refused() {
        for (spec, reason) in [
            (r#"{"type": "uniformRandom", "size": 4, "padding": 5}"#, "padding 5"),
            (r#"{"type": "timestampConstant", "size": 7}"#, "at least 8 bytes"),
            (r#"{"type": "constant", "value": "%"}"#, "no base64"),
            (r#"{"type": "randomComponent", "components": []}"#, "0 %"),
            (r#"{"type": "constant", "size": 99999999999}"#, "values of more"),
        ] {
            let spec: GeneratorSpec = serde_json::from_str(spec).expect("a generator");
            let fault = spec.fault().expect("a fault");
            assert!(fault.contains(reason), "{fault}");
        }
    }
}
