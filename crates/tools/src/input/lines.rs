//! Lines, and lines that hold a key and a value.

use std::io::{BufRead, BufReader, Read};

use bytes::Bytes;

use super::error::InputError;
use super::{InputRecord, RECORD_BYTES_MAX};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;

/// Cuts lines at `\n`; one `\r` before it goes with it. The last line may lack its end.
pub(super) struct Lines {
    input: BufReader<Box<dyn Read>>,
    separator: Option<Vec<u8>>,
    line: u64,
    line_bytes_max: usize,
    /// Set at the first error: what follows cannot be trusted.
    failed: bool,
}

impl Lines {
    pub(super) fn new(input: Box<dyn Read>, separator: Option<Vec<u8>>) -> Self {
        let input = BufReader::with_capacity(READ_BYTES, input);
        Self { input, separator, line: 0, line_bytes_max: RECORD_BYTES_MAX, failed: false }
    }

    fn next_record(&mut self) -> Result<Option<InputRecord>, InputError> {
        self.line += 1;
        let Some(line) = self.next_line()? else { return Ok(None) };
        let line = Bytes::from(line);
        let (key, value) = match &self.separator {
            None => (None, line),
            Some(separator) => {
                let at = find(&line, separator).ok_or_else(|| self.no_separator(separator))?;
                (Some(line.slice(..at)), line.slice(at + separator.len()..))
            }
        };
        Ok(Some(InputRecord { line: self.line, key, value: Some(value) }))
    }

    /// The next line without its end; nothing at the end of the input.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        let mut line = Vec::new();
        let limit = self.line_bytes_max as u64 + 1;
        let taken = (&mut self.input).take(limit).read_until(b'\n', &mut line);
        let taken = taken.map_err(|error| InputError::io(self.line, &error))?;
        if taken == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if line.len() > self.line_bytes_max {
            let reason = format!("longer than {} bytes", self.line_bytes_max);
            return Err(InputError::at(self.line, reason));
        }
        Ok(Some(line))
    }

    fn no_separator(&self, separator: &[u8]) -> InputError {
        let separator = String::from_utf8_lossy(separator);
        InputError::at(self.line, format!("no {separator:?} between key and value"))
    }
}

/// The first position of `needle`, which is not empty, in `text`.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

impl Iterator for Lines {
    type Item = Result<InputRecord, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = self.next_record();
        self.failed = record.is_err();
        record.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8], separator: Option<&str>) -> Vec<Result<InputRecord, InputError>> {
        let separator = separator.map(|separator| separator.as_bytes().to_vec());
        Lines::new(Box::new(text), separator).collect()
    }

    fn values(text: &'static [u8]) -> Vec<Bytes> {
        lines(text, None).into_iter().map(|r| r.expect("a line").value.expect("a value")).collect()
    }

    #[test]
    fn a_line_ends_with_a_line_feed_with_or_without_carriage_return() {
        assert_eq!(values(b"a\nb\r\n\nc"), [&b"a"[..], b"b", b"", b"c"]);
        assert_eq!(values(b""), [&b""[..]; 0]);
        assert_eq!(values(b"\n"), [&b""[..]]);
        assert_eq!(values(b"\r\r\n"), [&b"\r"[..]]);
        assert_eq!(values(b"a\rb"), [&b"a\rb"[..]]);
    }

    #[test]
    fn bytes_that_are_not_text_pass_as_they_are() {
        assert_eq!(values(b"\xff\x00\xfe\n\x1b"), [&b"\xff\x00\xfe"[..], b"\x1b"]);
    }

    #[test]
    fn a_key_ends_at_the_first_separator() {
        let records = lines(b"k:v:w\n:v\nk:\n", Some(":"));
        let pairs: Vec<_> = records
            .into_iter()
            .map(|r| r.expect("a pair"))
            .map(|r| (r.key.unwrap(), r.value.unwrap()))
            .collect();
        let pair = |k: &'static [u8], v: &'static [u8]| (Bytes::from_static(k), Bytes::from_static(v));
        assert_eq!(pairs, [pair(b"k", b"v:w"), pair(b"", b"v"), pair(b"k", b"")]);
        let long = lines(b"a=>b\n", Some("=>"));
        assert_eq!(long[0].as_ref().expect("a pair").key.as_deref(), Some(&b"a"[..]));
    }

    #[test]
    fn a_line_without_separator_is_named_and_ends_the_reading() {
        let records = lines(b"a:b\nnothing\nc:d\n", Some(":"));
        assert_eq!(records.len(), 2);
        let error = records[1].as_ref().expect_err("no separator").to_string();
        assert_eq!(error, "input, line 2: no \":\" between key and value");
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut lines = Lines::new(Box::new(std::io::repeat(b'x')), None);
        lines.line_bytes_max = 1000;
        let error = lines.next().expect("a result").expect_err("endless").to_string();
        assert_eq!(error, "input, line 1: longer than 1000 bytes");
        assert!(lines.next().is_none());
    }

    #[test]
    fn a_line_of_the_greatest_length_is_taken() {
        let mut lines = Lines::new(Box::new(&b"12345\n1234"[..]), None);
        lines.line_bytes_max = 5;
        assert_eq!(
            lines.next().expect("a line").expect("short enough").value.as_deref(),
            Some(&b"12345"[..])
        );
        assert!(lines.next().expect("a line").is_ok());
        assert!(lines.next().is_none());
    }
}
