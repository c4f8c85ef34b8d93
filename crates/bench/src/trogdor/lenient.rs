//! Values as leniently read as by Trogdor's own parser.
//!
//! `null` counts as absent, a number may be written as a text and the value of a setting as a number, and a single
//! element may stand for a list of one. Refuses what that parser refuses, too.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Any value; the default of its type for `null`.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[expect(clippy::cast_possible_truncation, reason = "fractions are cut off, as in Java")]
fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Null => Some(0),
        Value::Number(number) => (number.as_i64().map(i128::from))
            .or_else(|| number.as_u64().map(i128::from))
            .or_else(|| number.as_f64().map(|number| number as i128)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn number_in<E: serde::de::Error, N>(value: &Value, convert: impl Fn(i128) -> Option<N>) -> Result<N, E> {
    let found = number(value).and_then(convert);
    found.ok_or_else(|| E::custom(format!("{value} is no whole number, or out of its range")))
}

/// A whole number.
pub(super) fn whole<'de, D: Deserializer<'de>, N: TryFrom<i128>>(deserializer: D) -> Result<N, D::Error> {
    number_in(&Value::deserialize(deserializer)?, |number| N::try_from(number).ok())
}

/// A whole number; numbers below 0 mean 0.
pub(super) fn count<'de, D: Deserializer<'de>, N: TryFrom<i128>>(deserializer: D) -> Result<N, D::Error> {
    number_in(&Value::deserialize(deserializer)?, |number| N::try_from(number.max(0)).ok())
}

/// A seed or an offset: any 64 bits, signed in Java.
pub(super) fn bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let signed = |number| i64::try_from(number).ok().map(i64::cast_unsigned);
    number_in(&Value::deserialize(deserializer)?, |number| {
        u64::try_from(number).ok().or_else(|| signed(number))
    })
}

/// A number that may have a fraction.
pub(super) fn real<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = match &value {
        Value::Null => Some(0.0),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    number.ok_or_else(|| D::Error::custom(format!("{value} is no number")))
}

/// Settings of a client or configs of a topic. A setting that is `null` is not set.
pub(super) fn settings<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let all: BTreeMap<String, Value> = or_default(deserializer)?;
    let text = |(name, value): (String, Value)| match value {
        Value::Null => None,
        Value::String(text) => Some(Ok((name, text))),
        Value::Number(_) | Value::Bool(_) => Some(Ok((name, value.to_string()))),
        Value::Array(_) | Value::Object(_) => {
            let reason = "its value is a text, a number, true or false, and no list or object";
            Some(Err(D::Error::custom(format!("{name}: {reason}"))))
        }
    };
    all.into_iter().filter_map(text).collect()
}

/// Texts; a single text stands for a list of one.
pub(super) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Texts {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::<Texts>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Texts::One(text)) => vec![text],
        Some(Texts::Many(texts)) => texts,
    })
}

/// The replicas of each partition; a single one stands for a list of one.
pub(super) fn assignments<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u32, Vec<i32>>, D::Error> {
    let all: BTreeMap<String, Value> = or_default(deserializer)?;
    let server = |value: &Value| number_in(value, |number| i32::try_from(number).ok());
    let assignment = |(partition, replicas): (String, Value)| {
        let partition = partition.trim().parse().map_err(|_| {
            D::Error::custom(format!("partitionAssignments: {partition:?} is no partition number"))
        })?;
        let replicas = match &replicas {
            Value::Null => Ok(Vec::new()),
            Value::Array(replicas) => replicas.iter().map(server).collect(),
            one => server(one).map(|server| vec![server]),
        };
        Ok((partition, replicas?))
    };
    all.into_iter().map(assignment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Sample {
        #[serde(default, deserialize_with = "whole")]
        whole: i16,
        #[serde(default, deserialize_with = "count")]
        count: u32,
        #[serde(default, deserialize_with = "bits")]
        bits: u64,
        #[serde(default, deserialize_with = "real")]
        real: f64,
        #[serde(default, deserialize_with = "settings")]
        settings: BTreeMap<String, String>,
        #[serde(default, deserialize_with = "texts")]
        texts: Vec<String>,
        #[serde(default, deserialize_with = "assignments")]
        assignments: BTreeMap<u32, Vec<i32>>,
        #[serde(default, deserialize_with = "or_default")]
        flag: bool,
    }

    fn sample(text: &str) -> Result<Sample, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn null_counts_as_absent() {
        let names = ["whole", "count", "bits", "real", "settings", "texts", "assignments", "flag"];
        let nulls: Vec<_> = names.iter().map(|name| format!("\"{name}\": null")).collect();
        assert_eq!(sample(&format!("{{{}}}", nulls.join(", "))), sample("{}"));
    }

    #[test]
    fn numbers_and_texts_replace_each_other() {
        let text = r#"{"whole": "7", "count": -3, "bits": -1, "real": "0.5", "texts": "one",
            "settings": {"a": 1, "b": 2.5, "c": true, "d": "x", "e": null}, "assignments": {"1": 5, "0": [null, "3"]}}"#;
        let found = sample(text).expect("all of it is taken");
        assert_eq!((found.whole, found.count, found.bits), (7, 0, u64::MAX));
        assert!((found.real - 0.5).abs() < f64::EPSILON);
        assert_eq!(found.texts, ["one"]);
        let settings: Vec<_> = found.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(settings, ["a=1", "b=2.5", "c=true", "d=x"]);
        assert_eq!(found.assignments, [(0, vec![0, 3]), (1, vec![5])].into());
        assert_eq!(sample(r#"{"whole": 7.9}"#).expect("cut off").whole, 7);
        assert_eq!(sample(r#"{"bits": 18446744073709551615}"#).expect("as we write it").bits, u64::MAX);
    }

    #[test]
    fn other_values_are_refused_with_their_reason() {
        for (text, reason) in [
            (r#"{"whole": 40000}"#, "40000 is no whole number, or out of its range"),
            (r#"{"whole": []}"#, "[] is no whole number"),
            (r#"{"real": {}}"#, "{} is no number"),
            (r#"{"settings": {"a": [1]}}"#, "a: its value is a text"),
            (r#"{"assignments": {"x": [1]}}"#, "\"x\" is no partition number"),
        ] {
            let error = sample(text).expect_err(text);
            assert!(error.contains(reason), "{error}");
        }
    }
}
