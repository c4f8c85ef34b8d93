//! `--from`: where reading begins.

use std::str::FromStr;

use riverrun_types::TimestampMs;

use crate::text::time::{now, parse_time};

/// A place in every partition that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Beginning,
    End,
    /// This offset, or the nearest that there is.
    Offset(i64),
    /// So many records before the end.
    BeforeEnd(i64),
    /// The first record at this time or later.
    Time(TimestampMs),
}

const FORMS: &str = "beginning, end, an offset, -N for the last N of each partition, @ and milliseconds since 1970, a time \
    such as 2013-01-01T10:00:00Z, or a time ago such as -90s, -15m, -1h, -2d";

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let failed = |_| format!("it must be {FORMS}");
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| text.parse::<i64>().map_err(|_| failed(String::new()));
        match text {
            "beginning" => Ok(Self::Beginning),
            "end" => Ok(Self::End),
            _ if is_number(text) => number(text).map(Self::Offset),
            _ if text.strip_prefix('-').is_some_and(is_number) => number(&text[1..]).map(Self::BeforeEnd),
            _ => {
                let time = match text.strip_prefix('@') {
                    Some(ms) if !is_number(ms) => return Err(failed(String::new())),
                    Some(ms) => ms,
                    None => text,
                };
                parse_time(time, now()).map(Self::Time).map_err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_read() {
        for (text, from) in [
            ("beginning", From::Beginning),
            ("end", From::End),
            ("0", From::Offset(0)),
            ("9223372036854775807", From::Offset(i64::MAX)),
            ("-10", From::BeforeEnd(10)),
            ("@1357034400000", From::Time(TimestampMs(1_357_034_400_000))),
            ("2013-01-01T10:00:00Z", From::Time(TimestampMs(1_357_034_400_000))),
        ] {
            assert_eq!(text.parse(), Ok(from), "{text:?}");
        }
    }

    #[test]
    fn a_time_ago_is_before_now() {
        let Ok(From::Time(time)) = "-1h".parse() else { panic!("not a time") };
        let ago_ms = now().0 - time.0;
        assert!((3_600_000..3_660_000).contains(&ago_ms), "{ago_ms}");
    }

    #[test]
    fn wrong_place_to_begin_is_refused_with_the_forms() {
        for text in [
            "",
            "-",
            "@",
            "@-5",
            "@2013-01-01",
            "9223372036854775808",
            "-9223372036854775808",
            "start",
            "1.5",
            "--1",
        ] {
            let error = text.parse::<From>().expect_err(text);
            assert!(error.contains("beginning, end, an offset"), "{error}");
        }
    }
}
