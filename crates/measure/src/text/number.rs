//! Counts, sizes, rates and durations for people.

use std::time::Duration;

/// A count with a comma between thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A measured number, as the nearest [`count`]; 0 for a negative one or NaN.
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and the number is for people")]
pub fn rounded(value: f64) -> String {
    count(value.round() as u64)
}

/// A count of records.
pub fn records(value: u64) -> String {
    counted(value, "record")
}

/// A count and its noun, which takes an s unless the count is 1.
pub fn counted(value: impl TryInto<u64>, noun: &str) -> String {
    match value.try_into().unwrap_or_default() {
        1 => format!("1 {noun}"),
        value => format!("{} {noun}s", count(value)),
    }
}

/// Bytes in decimal units.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if value < 1000 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.95 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// A duration in the unit that fits it, with three digits or so.
pub fn duration(value: Duration) -> String {
    let micros = value.as_secs_f64() * 1e6;
    match micros {
        ..1000.0 => format!("{micros:.0} us"),
        ..10_000.0 => format!("{:.2} ms", micros / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// `value` per second; 0 in no time.
pub fn rate(value: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { value / time.as_secs_f64() }
}

/// `value` per second, as a whole number.
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and a rate is for people")]
pub fn per_second(value: u64, time: Duration) -> u64 {
    rate(value as f64, time).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas_between_thousands() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([7.0, 1234.4, 1_234_567.5, -1.0].map(rounded), ["7", "1,234", "1,234,568", "0"]);
        assert_eq!([0, 1, 2000].map(records), ["0 records", "1 record", "2,000 records"]);
        assert_eq!([1_i32, 2].map(|value| counted(value, "partition")), ["1 partition", "2 partitions"]);
    }

    #[test]
    fn sizes_take_the_unit_that_fits() {
        for (value, text) in [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_999, "1.0 MB")] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
    }

    #[test]
    fn durations_take_the_unit_that_fits() {
        for (micros, text) in
            [(0, "0 us"), (999, "999 us"), (1500, "1.50 ms"), (42_000, "42 ms"), (2_500_000, "2.50 s")]
        {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn a_rate_over_no_time_is_none() {
        assert_eq!(per_second(5, Duration::ZERO), 0);
        assert_eq!(per_second(5, Duration::from_millis(100)), 50);
    }
}
