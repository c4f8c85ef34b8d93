//! Rows of CSV (RFC 4180), with a header or without.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use csv::ByteRecord;

use super::error::InputError;
use super::{InputRecord, RECORD_BYTES_MAX};

/// Bytes that the parser reads at once, and so may hold beside a record.
const READ_BYTES: usize = 256 * 1024;

/// The record's value that a row becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CsvValue {
    /// The row itself, quoted where it must be
    Row,
    /// A JSON object, named by the header; every value is a string
    Json,
}

/// A column, by its name in the header or by its number from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Name(String),
    Number(usize),
}

/// How rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvOptions {
    pub(crate) delimiter: u8,
    pub(crate) has_header: bool,
    /// Which column is the record's key.
    pub(crate) key: Option<Column>,
    pub(crate) value: CsvValue,
}

/// Counts the bytes since the last record, and refuses more than a record may have: an unclosed quote would
/// otherwise make the whole input one field.
struct Counted {
    input: Box<dyn Read>,
    since_record: Arc<AtomicUsize>,
    record_bytes_max: usize,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let taken = self.input.read(buffer)?;
        let since = self.since_record.fetch_add(taken, Ordering::Relaxed) + taken;
        if since > self.record_bytes_max.saturating_add(2 * READ_BYTES) {
            let reason = format!("a row longer than {} bytes; is a quote left open?", self.record_bytes_max);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(taken)
    }
}

/// Rows as records.
pub(super) struct Rows {
    reader: csv::Reader<Counted>,
    since_record: Arc<AtomicUsize>,
    options: CsvOptions,
    /// Names of the columns as JSON strings; empty unless values are JSON.
    names: Vec<String>,
    key: Option<usize>,
    row: ByteRecord,
    failed: bool,
}

impl Rows {
    /// Reads the header, and finds the key's column in it.
    pub(super) fn new(input: Box<dyn Read>, options: CsvOptions) -> Result<Self, InputError> {
        Self::with_limit(input, options, RECORD_BYTES_MAX)
    }

    fn with_limit(
        input: Box<dyn Read>,
        options: CsvOptions,
        record_bytes_max: usize,
    ) -> Result<Self, InputError> {
        let since_record = Arc::new(AtomicUsize::new(0));
        let counted = Counted { input, since_record: Arc::clone(&since_record), record_bytes_max };
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(options.delimiter)
            .has_headers(options.has_header)
            .buffer_capacity(READ_BYTES)
            .from_reader(counted);
        let header = if options.has_header {
            reader.byte_headers().map_err(|error| explain(&error))?.clone()
        } else {
            ByteRecord::new()
        };
        let key = options.key.as_ref().map(|column| find_column(column, &header)).transpose()?;
        let names = match options.value {
            CsvValue::Row => Vec::new(),
            CsvValue::Json => header.iter().map(json_string).collect(),
        };
        Ok(Self { reader, since_record, options, names, key, row: ByteRecord::new(), failed: false })
    }

    fn next_record(&mut self) -> Result<Option<InputRecord>, InputError> {
        let is_row = self.reader.read_byte_record(&mut self.row).map_err(|error| explain(&error))?;
        self.since_record.store(0, Ordering::Relaxed);
        if !is_row {
            return Ok(None);
        }
        let line = self.row.position().map_or(0, csv::Position::line);
        let key = self.key.map(|column| self.key_of(column, line)).transpose()?;
        let value = match self.options.value {
            CsvValue::Row => self.row_text(line)?,
            CsvValue::Json => self.row_json(),
        };
        Ok(Some(InputRecord { line, key, value: Some(value) }))
    }

    fn key_of(&self, column: usize, line: u64) -> Result<Bytes, InputError> {
        let missing = || InputError::at(line, format!("no column {}, which is the key", column + 1));
        self.row.get(column).map(Bytes::copy_from_slice).ok_or_else(missing)
    }

    fn row_text(&self, line: u64) -> Result<Bytes, InputError> {
        let mut writer = csv::WriterBuilder::new().delimiter(self.options.delimiter).from_writer(Vec::new());
        writer.write_byte_record(&self.row).map_err(|error| explain(&error))?;
        let mut text = writer.into_inner().map_err(|error| InputError::at(line, error.to_string()))?;
        text.pop();
        Ok(text.into())
    }

    fn row_json(&self) -> Bytes {
        let mut text = String::from("{");
        for (at, (name, field)) in self.names.iter().zip(&self.row).enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(name);
            text.push(':');
            text.push_str(&json_string(field));
        }
        text.push('}');
        text.into()
    }
}

impl Iterator for Rows {
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

/// A JSON string of these bytes; what is not UTF-8 becomes U+FFFD, because JSON has only text.
fn json_string(bytes: &[u8]) -> String {
    serde_json::Value::from(String::from_utf8_lossy(bytes)).to_string()
}

fn find_column(column: &Column, header: &ByteRecord) -> Result<usize, InputError> {
    match column {
        Column::Number(number) => Ok(number - 1),
        Column::Name(name) => header
            .iter()
            .position(|field| field == name.as_bytes())
            .ok_or_else(|| unknown_column(name, header)),
    }
}

fn unknown_column(name: &str, header: &ByteRecord) -> InputError {
    let names: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
    InputError::whole(format!("the header has no column {name:?}; it has {}", names.join(", ")))
}

fn explain(error: &csv::Error) -> InputError {
    let line = error.position().map(csv::Position::line);
    match (error.kind(), line) {
        (csv::ErrorKind::Io(error), Some(line)) => InputError::io(line, error),
        (csv::ErrorKind::UnequalLengths { expected_len, len, .. }, Some(line)) => {
            InputError::at(line, format!("{len} fields where the rows before have {expected_len}"))
        }
        (_, Some(line)) => InputError::at(line, error.to_string()),
        (_, None) => InputError::whole(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: CsvOptions =
        CsvOptions { delimiter: b',', has_header: true, key: None, value: CsvValue::Row };

    fn with_key(key: Column) -> CsvOptions {
        CsvOptions { key: Some(key), ..PLAIN }
    }

    fn rows(text: &'static [u8], options: CsvOptions) -> Vec<Result<InputRecord, InputError>> {
        Rows::new(Box::new(text), options).expect("a good header").collect()
    }

    fn shown(text: &'static [u8], options: CsvOptions) -> Vec<(String, String)> {
        let text_of = |bytes: Option<Bytes>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let records = rows(text, options).into_iter().map(|r| r.expect("a row"));
        records.map(|record| (text_of(record.key), text_of(record.value))).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_row_is_a_value_and_one_of_its_columns_the_key() {
        let text = b"carrier,flight\nUA,1545\n\"A,A\",\"say \"\"hi\"\"\"\n";
        let by_name = shown(text, with_key(Column::Name("carrier".into())));
        assert_eq!(by_name, [pair("UA", "UA,1545"), pair("A,A", "\"A,A\",\"say \"\"hi\"\"\"")]);
        assert_eq!(shown(text, with_key(Column::Number(2)))[0], pair("1545", "UA,1545"));
    }

    #[test]
    fn without_header_the_first_line_is_a_row() {
        let options = CsvOptions { has_header: false, delimiter: b';', ..with_key(Column::Number(1)) };
        assert_eq!(shown(b"a;1\nb;2", options), [pair("a", "a;1"), pair("b", "b;2")]);
    }

    #[test]
    fn a_row_as_json_is_named_by_the_header_and_always_valid() {
        let text = b"a,\"b\"\"\n\"\n1,\"x\"\"\\\n\"\n\xff,\n";
        let values = shown(text, CsvOptions { value: CsvValue::Json, ..PLAIN });
        for (_, value) in &values {
            serde_json::from_str::<serde_json::Value>(value).expect("JSON");
        }
        assert_eq!(values[0].1, r#"{"a":"1","b\"\n":"x\"\\\n"}"#);
        assert_eq!(values[1].1, "{\"a\":\"\u{fffd}\",\"b\\\"\\n\":\"\"}");
    }

    #[test]
    fn an_unknown_key_column_is_told_the_header() {
        let result = Rows::new(Box::new(&b"a,b\n1,2\n"[..]), with_key(Column::Name("c".into())));
        let error = result.err().expect("no such column").to_string();
        assert_eq!(error, "input: the header has no column \"c\"; it has a, b");
    }

    #[test]
    fn a_row_of_another_length_is_named() {
        let records = rows(b"a,b\n1,2\n3\n", PLAIN);
        let error = records[1].as_ref().expect_err("one field").to_string();
        assert_eq!(error, "input, line 3: 1 fields where the rows before have 2");
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn a_key_column_beyond_the_row_is_named() {
        let records = rows(b"a,b\n1,2\n", with_key(Column::Number(3)));
        assert_eq!(
            records[0].as_ref().expect_err("no third").to_string(),
            "input, line 2: no column 3, which is the key"
        );
    }

    #[test]
    fn a_quote_left_open_is_refused_before_it_fills_the_memory() {
        let input = (&b"a\n\""[..]).chain(io::repeat(b'x'));
        let mut rows = Rows::with_limit(Box::new(input), PLAIN, 1000).expect("a good header");
        let error = rows.next().expect("a result").expect_err("endless").to_string();
        assert!(error.contains("a row longer than 1000 bytes"), "{error}");
        assert!(rows.next().is_none());
    }

    #[test]
    fn many_rows_are_no_long_row() {
        let input = io::Cursor::new(b"a\n".repeat(2_000_000));
        let rows = Rows::with_limit(Box::new(input), CsvOptions { has_header: false, ..PLAIN }, 10)
            .expect("no header");
        assert_eq!(rows.flatten().count(), 2_000_000);
    }

    #[test]
    fn an_empty_input_has_no_rows() {
        assert!(rows(b"", PLAIN).is_empty());
        assert!(rows(b"a,b\n", PLAIN).is_empty());
    }
}
