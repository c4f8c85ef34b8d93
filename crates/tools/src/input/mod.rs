//! Records from text: lines, `key:value` lines, or CSV; from stdin or a file, gzip'd or not.
//!
//! Guarantees that memory stays bounded whatever the input is: a record longer than [`RECORD_BYTES_MAX`] is an error
//! that names its line. Bytes are passed on as they are; nothing asks for UTF-8.

mod csv_rows;
mod error;
mod lines;
mod open;

use std::io::Read;

use bytes::Bytes;

pub(crate) use csv_rows::{Column, CsvOptions, CsvValue};
pub(crate) use error::InputError;
pub(crate) use open::{Opened, open};

/// Bytes of one record of the input at most.
pub(crate) const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One record of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputRecord {
    /// The line where it begins, from 1.
    pub(crate) line: u64,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
}

/// How records are cut out of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each line is a value.
    Lines,
    /// Each line is a key, this separator, and a value.
    KeyValue { separator: Vec<u8> },
    /// Each row is a value.
    Csv(CsvOptions),
}

/// Records, one after the other.
pub(crate) type Records = Box<dyn Iterator<Item = Result<InputRecord, InputError>>>;

/// Cuts records out of `input`. A value that is exactly `null_value` becomes no value at all.
pub(crate) fn records(
    input: Box<dyn Read>,
    shape: Shape,
    null_value: Option<Vec<u8>>,
) -> Result<Records, InputError> {
    let records: Records = match shape {
        Shape::Lines => Box::new(lines::Lines::new(input, None)),
        Shape::KeyValue { separator } => Box::new(lines::Lines::new(input, Some(separator))),
        Shape::Csv(options) => Box::new(csv_rows::Rows::new(input, options)?),
    };
    Ok(match null_value {
        None => records,
        Some(mark) => Box::new(records.map(move |record| record.map(|record| unmark(record, &mark)))),
    })
}

fn unmark(mut record: InputRecord, mark: &[u8]) -> InputRecord {
    if record.value.as_deref() == Some(mark) {
        record.value = None;
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_no_value_is_taken_out_of_every_shape() {
        for (shape, text) in [
            (Shape::Lines, "NULL\nNULLS\n"),
            (Shape::KeyValue { separator: b":".to_vec() }, "a:NULL\nb:NULLS\n"),
        ] {
            let input: Box<dyn Read> = Box::new(text.as_bytes());
            let records = records(input, shape, Some(b"NULL".to_vec())).expect("no header to read");
            let values: Vec<_> = records.map(|record| record.expect("well formed").value).collect();
            assert_eq!(values, [None, Some(Bytes::from_static(b"NULLS"))]);
        }
    }
}
