//! Times as people write them: RFC 3339, a date, milliseconds since 1970, or so long ago.
//!
//! Everything is UTC. The calendar is the proleptic Gregorian one; the conversion between days and dates follows
//! Howard Hinnant's `days_from_civil` and `civil_from_days`, which count years from March.

use std::time::{SystemTime, UNIX_EPOCH};

use riverrun_types::TimestampMs;

const DAY_MS: i64 = 86_400_000;
/// Days in the 400 years after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// The forms of a time, for error messages and help.
pub const TIME_FORMS: &str =
    "2013-01-01T10:00:00Z, 2013-01-01, milliseconds since 1970, or -90s, -15m, -1h, -2d ago";

/// The system's time.
pub fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Reads a time in one of the forms of [`TIME_FORMS`].
pub fn parse_time(text: &str, now: TimestampMs) -> Result<TimestampMs, String> {
    let failed = || format!("{text:?} is not a time; write it as {TIME_FORMS}");
    if let Some(ago) = text.strip_prefix('-') {
        let ago_ms = parse_ago_ms(ago).ok_or_else(failed)?;
        return now.0.checked_sub(ago_ms).filter(|ms| *ms >= 0).map(TimestampMs).ok_or_else(failed);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(TimestampMs).map_err(|_| failed());
    }
    parse_rfc3339(text).ok_or_else(failed)
}

/// `90s`, `15m`, `1h`, `2d`, `500ms`.
fn parse_ago_ms(text: &str) -> Option<i64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(unit_ms)
}

/// RFC 3339, section 5.6, or a date alone. Milliseconds are kept, finer digits are cut off.
fn parse_rfc3339(text: &str) -> Option<TimestampMs> {
    let (date, rest) = text.split_at_checked(10)?;
    let day = parse_date(date)?;
    if rest.is_empty() {
        return Some(TimestampMs(day * DAY_MS));
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, zone) = rest.split_at_checked(8)?;
    let (fraction_ms, zone) = parse_fraction_ms(zone)?;
    let local_ms = day * DAY_MS + parse_clock_ms(clock)? + fraction_ms;
    Some(TimestampMs(local_ms - parse_zone_ms(zone)?))
}

fn parse_date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..])?);
    let valid = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
    valid.then(|| days_from_date(year, month, day))
}

fn parse_clock_ms(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(&text[..2])?, digits(&text[3..5])?, digits(&text[6..])?);
    // A leap second counts as the first of the next minute, as in POSIX time.
    let valid = hour < 24 && minute < 60 && second <= 60;
    valid.then_some(((hour * 60 + minute) * 60 + second) * 1000)
}

fn parse_fraction_ms(text: &str) -> Option<(i64, &str)> {
    let Some(text) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (fraction, rest) = text.split_at(end);
    if fraction.is_empty() {
        return None;
    }
    let kept: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some((digits(&kept)?, rest))
}

fn parse_zone_ms(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hour, minute) = text.get(1..)?.split_once(':')?;
    if hour.len() != 2 || minute.len() != 2 {
        return None;
    }
    let (hour, minute) = (digits(hour)?, digits(minute)?);
    (hour < 24 && minute < 60).then_some(sign * (hour * 60 + minute) * 60_000)
}

/// ASCII digits only: `parse` alone would take a sign.
fn digits(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAYS
}

fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// A time's parts in UTC: year, month, day, hour, minute, second, millisecond.
pub fn parts(time: TimestampMs) -> [i64; 7] {
    let (year, month, day) = date_from_days(time.0.div_euclid(DAY_MS));
    let in_day_ms = time.0.rem_euclid(DAY_MS);
    let (seconds, ms) = (in_day_ms / 1000, in_day_ms % 1000);
    [year, month, day, seconds / 3600, seconds / 60 % 60, seconds % 60, ms]
}

/// The day of the week in UTC, from 0 for Sunday.
pub fn day_of_week(time: TimestampMs) -> i64 {
    // The epoch was a Thursday.
    (time.0.div_euclid(DAY_MS) + 4).rem_euclid(7)
}

/// RFC 3339 with milliseconds, in UTC; `-` for Kafka's "no timestamp".
pub fn format_time(time: TimestampMs) -> String {
    if time == TimestampMs::NONE {
        return "-".to_owned();
    }
    let [year, month, day, hour, minute, second, ms] = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

    fn parse(text: &str) -> Option<i64> {
        parse_time(text, NOW).ok().map(|time| time.0)
    }

    #[test]
    fn every_form_of_a_time_is_read() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01", 0),
            ("2013-01-01T10:00:00Z", 1_357_034_400_000),
            ("2013-01-01 10:00:00.25Z", 1_357_034_400_250),
            ("2013-01-01T12:00:00.123456+02:00", 1_357_034_400_123),
            ("2013-01-01T04:30:00-05:30", 1_357_034_400_000),
            ("2000-02-29", 951_782_400_000),
            ("1969-12-31T23:59:59.999Z", -1),
            ("1357034400000", 1_357_034_400_000),
            ("-90s", NOW.0 - 90_000),
            ("-15m", NOW.0 - 900_000),
            ("-1h", NOW.0 - 3_600_000),
            ("-2d", NOW.0 - 2 * DAY_MS),
            ("-250ms", NOW.0 - 250),
        ] {
            assert_eq!(parse(text), Some(ms), "{text:?}");
        }
    }

    #[test]
    fn wrong_time_is_refused_with_the_forms() {
        for text in [
            "",
            "-",
            "--1h",
            "-1",
            "-1w",
            "-99999999999999999999d",
            "-9223372036854775807d",
            "-999999d",
            "yesterday",
            "2013-1-1",
            "2013-02-29",
            "1900-02-29",
            "2013-13-01",
            "2013-00-10",
            "2013-01-01T",
            "2013-01-01T10:00:00",
            "2013-01-01T24:00:00Z",
            "2013-01-01T10:61:00Z",
            "2013-01-01T10:00:00.Z",
            "2013-01-01T10:00:00+2:00",
            "2013-01-01T10:00:00+02",
            "+013-01-01",
            "2013-01-01T+1:00:00Z",
            "99999999999999999999",
            "2013-01-0\u{fc}",
            "2013-01-01T10:00:0\u{fc}Z",
        ] {
            let error = parse_time(text, NOW).expect_err(text);
            assert!(error.contains("2013-01-01T10:00:00Z"), "{error}");
        }
    }

    #[test]
    fn a_time_that_is_shown_reads_back_as_itself() {
        for day in (-200_000..200_000).step_by(97) {
            let time = TimestampMs(day * DAY_MS + 12_345_678);
            let text = format_time(time);
            if text.len() == 24 {
                assert_eq!(parse(&text), Some(time.0), "{text}");
            }
        }
    }

    #[test]
    fn extreme_timestamps_are_shown_without_panic() {
        assert_eq!(format_time(TimestampMs::NONE), "-");
        for ms in [i64::MIN, i64::MAX] {
            assert!(format_time(TimestampMs(ms)).ends_with('Z'));
        }
    }
}
