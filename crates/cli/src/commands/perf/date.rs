//! Dates in the patterns of Java's `SimpleDateFormat`, as far as digits go. Times are UTC.

use std::iter::Peekable;
use std::str::{Chars, FromStr};

use riverrun_types::TimestampMs;

use crate::text::time::parts;

/// The pattern of Kafka's consumer tool.
pub(super) const DEFAULT_PATTERN: &str = "yyyy-MM-dd HH:mm:ss:SSS";

/// Letters of the parts of a time, in their order.
const PART_LETTERS: &str = "yMdHmsS";

/// A pattern that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DateFormat(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Letter(char),
    /// Index of the part, and its digits at least.
    Part(usize, usize),
    ShortYear,
}

/// Letters y, M, d, H, m, s and S for digits, text in single quotes, and anything that is no letter.
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
    let Some(index) = PART_LETTERS.find(letter) else {
        return Err(format!("the letter {letter} is none of y, M, d, H, m, s, S"));
    };
    match (letter, digits) {
        ('M', 3..) => Err("names of months are not written here, only their numbers".to_owned()),
        ('y', 2) => Ok(Piece::ShortYear),
        _ => Ok(Piece::Part(index, digits)),
    }
}

impl DateFormat {
    /// The time in this format, in UTC.
    pub(super) fn format(&self, time: TimestampMs) -> String {
        let parts = parts(time);
        let piece = |piece: &Piece| match piece {
            Piece::Letter(letter) => letter.to_string(),
            Piece::Part(index, digits) => format!("{:0digits$}", parts[*index]),
            Piece::ShortYear => format!("{:02}", parts[0].rem_euclid(100)),
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
        ] {
            let format: DateFormat = pattern.parse().expect(pattern);
            assert_eq!(format.format(TIME), expected);
        }
    }

    #[test]
    fn a_pattern_that_would_be_written_otherwise_is_refused() {
        for pattern in ["EEE, dd MM", "MMM", "hh:mm a", "'open"] {
            assert!(pattern.parse::<DateFormat>().is_err(), "{pattern}");
        }
    }
}
