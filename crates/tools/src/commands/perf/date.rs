//! Dates in the patterns of Java's `SimpleDateFormat`, with English names. Times are UTC.

use std::iter::Peekable;
use std::str::{Chars, FromStr};

use riverrun_types::TimestampMs;

use crate::text::time::{day_of_week, parts};

/// The pattern of Kafka's consumer tool.
pub(super) const DEFAULT_PATTERN: &str = "yyyy-MM-dd HH:mm:ss:SSS";

/// Letters of the parts of a time, in their order.
const PART_LETTERS: &str = "yMdHmsS";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Letters of a name's short form.
const SHORT_LEN: usize = 3;

/// A pattern that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DateFormat(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Letter(char),
    /// Index of the part, and its digits at least.
    Part(usize, usize),
    ShortYear,
    /// The hour from 1 to 12, and its digits at least.
    HalfDayHour(usize),
    /// AM or PM.
    HalfDay,
    /// Whether they are written in full.
    Month(bool),
    DayOfWeek(bool),
    /// UTC, as this is written.
    Zone(&'static str),
}

/// Letters y, M, d, E, H, h, a, m, s, S, X, Z and z, text in single quotes, and anything that is no letter.
impl FromStr for DateFormat {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let (mut pieces, mut letters) = (Vec::new(), pattern.chars().peekable());
        while let Some(letter) = letters.next() {
            if letter == '\'' {
                quoted(&mut letters, &mut pieces)?;
            } else if letter.is_ascii_alphabetic() {
                let mut digits = 1;
                while letters.next_if_eq(&letter).is_some() {
                    digits += 1;
                }
                pieces.push(part(letter, digits)?);
            } else {
                pieces.push(Piece::Letter(letter));
            }
        }
        Ok(Self(pieces))
    }
}

/// Takes text up to the closing quote. Two quotes are one, inside of a text and outside.
fn quoted(letters: &mut Peekable<Chars<'_>>, pieces: &mut Vec<Piece>) -> Result<(), String> {
    if letters.next_if_eq(&'\'').is_some() {
        pieces.push(Piece::Letter('\''));
        return Ok(());
    }
    while let Some(letter) = letters.next() {
        if letter == '\'' && letters.next_if_eq(&'\'').is_none() {
            return Ok(());
        }
        pieces.push(Piece::Letter(letter));
    }
    Err("a quote is not closed".to_owned())
}

fn part(letter: char, digits: usize) -> Result<Piece, String> {
    Ok(match (letter, digits) {
        ('y', 2) => Piece::ShortYear,
        ('M', 3..) => Piece::Month(digits > SHORT_LEN),
        ('E', _) => Piece::DayOfWeek(digits > SHORT_LEN),
        ('h', _) => Piece::HalfDayHour(digits),
        ('a', _) => Piece::HalfDay,
        ('X', 1..=3) => Piece::Zone("Z"),
        ('Z', _) => Piece::Zone("+0000"),
        ('z', _) => Piece::Zone("UTC"),
        _ => match PART_LETTERS.find(letter) {
            Some(index) => Piece::Part(index, digits),
            None => return Err(format!("{letter} is none of y, M, d, E, H, h, a, m, s, S, X, Z, z")),
        },
    })
}

fn named(name: &str, in_full: bool) -> String {
    if in_full { name.to_owned() } else { name.chars().take(SHORT_LEN).collect() }
}

/// One of these names; the index comes of a time, so that it is in range.
fn name_at(names: &[&str], index: i64, in_full: bool) -> String {
    named(usize::try_from(index).ok().and_then(|index| names.get(index)).unwrap_or(&""), in_full)
}

impl DateFormat {
    /// The time in this format, in UTC.
    pub(super) fn format(&self, time: TimestampMs) -> String {
        let parts = parts(time);
        let piece = |piece: &Piece| match piece {
            Piece::Letter(letter) => letter.to_string(),
            Piece::Part(index, digits) => format!("{:0digits$}", parts[*index]),
            Piece::ShortYear => format!("{:02}", parts[0].rem_euclid(100)),
            Piece::HalfDayHour(digits) => format!("{:0digits$}", (parts[3] + 11) % 12 + 1),
            Piece::HalfDay => if parts[3] < 12 { "AM" } else { "PM" }.to_owned(),
            Piece::Month(in_full) => name_at(&MONTHS, parts[1] - 1, *in_full),
            Piece::DayOfWeek(in_full) => name_at(&DAYS, day_of_week(time), *in_full),
            Piece::Zone(zone) => (*zone).to_owned(),
        };
        self.0.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22 04:21:43.388 UTC.
    const TIME: TimestampMs = TimestampMs(1_795_321_303_388);

    #[test]
    fn a_time_is_written_as_java_writes_it() {
        for (pattern, expected) in [
            (DEFAULT_PATTERN, "2026-11-22 04:21:43:388"),
            ("yy/M/d H:m:s.SSSS", "26/11/22 4:21:43.0388"),
            ("yyyy-MM-dd'T'HH:mm:ss 'o''clock' ''", "2026-11-22T04:21:43 o'clock '"),
            ("EEE, d MMM yyyy hh:mm:ss a z", "Sun, 22 Nov 2026 04:21:43 AM UTC"),
            ("E EEEE MMMM yyyy-MM-dd'T'HH:mm:ssXXX Z", "Sun Sunday November 2026-11-22T04:21:43Z +0000"),
        ] {
            let format: DateFormat = pattern.parse().expect(pattern);
            assert_eq!(format.format(TIME), expected);
        }
    }

    #[test]
    fn hours_of_half_a_day_go_from_12_to_11() {
        let format: DateFormat = "h a".parse().expect("a pattern");
        let at = |hour: i64| format.format(TimestampMs(hour * 3_600_000));
        assert_eq!([0, 1, 11, 12, 13, 23].map(at), ["12 AM", "1 AM", "11 AM", "12 PM", "1 PM", "11 PM"]);
        let format: DateFormat = "E".parse().expect("a pattern");
        assert_eq!(
            [0, 24, -1].map(|hour| format.format(TimestampMs(hour * 3_600_000))),
            ["Thu", "Fri", "Wed"]
        );
    }

    #[test]
    fn a_pattern_that_would_be_written_otherwise_is_refused() {
        for pattern in ["ww", "G", "XXXX", "'open"] {
            assert!(pattern.parse::<DateFormat>().is_err(), "{pattern}");
        }
    }
}
