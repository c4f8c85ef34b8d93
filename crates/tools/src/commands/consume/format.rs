//! `--format`: how a record is printed.
//!
//! Guarantees that on a terminal no record can send control sequences; into a pipe or file bytes go as they are.

use std::str::FromStr;

use riverrun_types::{Offset, TimestampMs};
use serde_json::{Map, Value};

use crate::text::bytes::{push_for_terminal, push_hex_dump, put_json};
use crate::text::time::format_time;

/// Printed for a key or value that is not there, except as JSON, which has its own word.
const NOTHING: &[u8] = b"null";

const FORMS: &str = "value, key-value, json, hex, or a template with {topic}, {partition}, {offset}, {timestamp}, \
    {timestamp_ms}, {key}, {value}, {headers}; \\n, \\t, \\\\ are escapes, {{ is a brace";

/// The parts of a record that can be printed.
#[derive(Clone, Debug)]
pub(super) struct RecordView<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) offset: Offset,
    pub(super) timestamp: TimestampMs,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// How records are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Value,
    KeyValue,
    Json,
    Hex,
    Template(Vec<Piece>),
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Field(Field),
}

/// A field that a template can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampMs,
    Key,
    Value,
    Headers,
}

impl Field {
    fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Self::Topic,
            "partition" => Self::Partition,
            "offset" => Self::Offset,
            "timestamp" => Self::Timestamp,
            "timestamp_ms" => Self::TimestampMs,
            "key" => Self::Key,
            "value" => Self::Value,
            "headers" => Self::Headers,
            _ => return None,
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "value" => Ok(Self::Value),
            "key-value" => Ok(Self::KeyValue),
            "json" => Ok(Self::Json),
            "hex" => Ok(Self::Hex),
            _ if text.contains('{') => parse_template(text).map(Self::Template),
            _ => Err(format!("it must be {FORMS}")),
        }
    }
}

fn parse_template(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        match character {
            '{' if after.starts_with('{') => {
                plain.push('{');
                rest = &after[1..];
            }
            '{' => {
                let (name, after) = after.split_once('}').ok_or("a { in the template is not closed")?;
                let field = Field::by_name(name)
                    .ok_or_else(|| format!("there is no {{{name}}}; it must be {FORMS}"))?;
                push_text(&mut pieces, &mut plain);
                pieces.push(Piece::Field(field));
                rest = after;
            }
            '\\' => {
                let (escaped, after) = unescape(after)?;
                plain.push(escaped);
                rest = after;
            }
            other => {
                plain.push(other);
                rest = after;
            }
        }
    }
    push_text(&mut pieces, &mut plain);
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, plain: &mut String) {
    if !plain.is_empty() {
        pieces.push(Piece::Text(std::mem::take(plain)));
    }
}

fn unescape(text: &str) -> Result<(char, &str), String> {
    let escaped = match text.chars().next() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('\\') => '\\',
        _ => return Err("a template knows the escapes \\n, \\t and \\\\".to_owned()),
    };
    Ok((escaped, &text[1..]))
}

impl Format {
    /// Appends one record, with its end of line. `escape` is for terminals.
    pub(super) fn push(&self, out: &mut Vec<u8>, record: &RecordView<'_>, escape: bool) {
        match self {
            Self::Value => push_bytes(out, record.value, escape),
            Self::KeyValue => {
                push_bytes(out, record.key, escape);
                out.push(b'\t');
                push_bytes(out, record.value, escape);
            }
            Self::Json => out.extend_from_slice(json(record).to_string().as_bytes()),
            Self::Hex => return push_hex(out, record),
            Self::Template(pieces) => {
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                        Piece::Field(field) => push_field(out, *field, record, escape),
                    }
                }
                // A template that ends with an end of line gets one, not two.
                if matches!(pieces.last(), Some(Piece::Text(text)) if text.ends_with('\n')) {
                    return;
                }
            }
        }
        out.push(b'\n');
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>, escape: bool) {
    let bytes = bytes.unwrap_or(NOTHING);
    if escape { push_for_terminal(out, bytes) } else { out.extend_from_slice(bytes) }
}

fn push_field(out: &mut Vec<u8>, field: Field, record: &RecordView<'_>, escape: bool) {
    match field {
        Field::Topic => push_bytes(out, Some(record.topic.as_bytes()), escape),
        Field::Partition => out.extend_from_slice(record.partition.to_string().as_bytes()),
        Field::Offset => out.extend_from_slice(record.offset.to_string().as_bytes()),
        Field::Timestamp => out.extend_from_slice(format_time(record.timestamp).as_bytes()),
        Field::TimestampMs => out.extend_from_slice(record.timestamp.0.to_string().as_bytes()),
        Field::Key => push_bytes(out, record.key, escape),
        Field::Value => push_bytes(out, record.value, escape),
        Field::Headers => {
            for (at, (name, value)) in record.headers.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push_bytes(out, Some(name), escape);
                out.push(b'=');
                push_bytes(out, *value, escape);
            }
        }
    }
}

fn json(record: &RecordView<'_>) -> Value {
    let mut object = Map::new();
    object.insert("topic".to_owned(), record.topic.into());
    object.insert("partition".to_owned(), record.partition.into());
    object.insert("offset".to_owned(), record.offset.0.into());
    object.insert("timestamp_ms".to_owned(), record.timestamp.0.into());
    put_json(&mut object, "key", record.key);
    put_json(&mut object, "value", record.value);
    let headers = record.headers.iter().map(|(name, value)| {
        let mut header = Map::new();
        put_json(&mut header, "key", Some(name));
        put_json(&mut header, "value", *value);
        Value::Object(header)
    });
    object.insert("headers".to_owned(), headers.collect());
    Value::Object(object)
}

fn push_hex(out: &mut Vec<u8>, record: &RecordView<'_>) {
    let mut head = Vec::new();
    push_bytes(&mut head, Some(record.topic.as_bytes()), true);
    let place = format!("-{} @ {}  {}\n", record.partition, record.offset, format_time(record.timestamp));
    head.extend_from_slice(place.as_bytes());
    out.extend_from_slice(&head);
    let mut part = |name: &str, bytes: Option<&[u8]>| match bytes {
        None => out.extend_from_slice(format!("  {name}: null\n").as_bytes()),
        Some(bytes) => {
            out.extend_from_slice(format!("  {name}: {} bytes\n", bytes.len()).as_bytes());
            push_hex_dump(out, "    ", bytes);
        }
    };
    part("key", record.key);
    part("value", record.value);
    for (name, value) in &record.headers {
        part(&format!("header {}", name.escape_ascii()), *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: RecordView<'static> = RecordView {
        topic: "flights",
        partition: 3,
        offset: Offset(42),
        timestamp: TimestampMs(1_357_034_400_000),
        key: Some(b"UA"),
        value: Some(b"a\x1b[2Jb"),
        headers: Vec::new(),
    };

    fn shown(format: &str, record: &RecordView<'_>, escape: bool) -> String {
        let mut out = Vec::new();
        format.parse::<Format>().expect(format).push(&mut out, record, escape);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn the_named_formats_print_what_they_say() {
        assert_eq!(shown("value", &RECORD, false), "a\x1b[2Jb\n");
        assert_eq!(shown("key-value", &RECORD, false), "UA\ta\x1b[2Jb\n");
        let deletion = RecordView { value: None, ..RECORD };
        assert_eq!(shown("key-value", &deletion, false), "UA\tnull\n");
    }

    #[test]
    fn on_a_terminal_no_record_sends_control_sequences() {
        let record =
            RecordView { key: Some(b"\x1b]0;x\x07"), headers: vec![(b"\x1b", Some(b"\x9b"))], ..RECORD };
        for format in ["value", "key-value", "json", "hex", "{key}{value}{headers}{topic}"] {
            let text = shown(format, &record, true);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{format}: {text:?}");
        }
    }

    #[test]
    fn json_is_valid_for_any_bytes() {
        let record = RecordView {
            key: None,
            value: Some(b"\xff\x00"),
            headers: vec![(b"trace", Some(b"1\n")), (b"\xff", None)],
            ..RECORD
        };
        let text = shown("json", &record, false);
        assert_eq!(text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["value_base64"], "/wA=");
        assert_eq!(value["key"], Value::Null);
        assert_eq!(value["headers"][0]["value"], "1\n");
        assert_eq!(value["headers"][1]["key_base64"], "/w==");
        assert_eq!((&value["partition"], &value["offset"]), (&3.into(), &42.into()));
    }

    #[test]
    fn a_template_names_fields_and_escapes() {
        let record =
            RecordView { value: Some(b"v"), headers: vec![(b"h", Some(b"1")), (b"i", None)], ..RECORD };
        for (template, text) in [
            ("{topic}-{partition}@{offset}", "flights-3@42\n"),
            ("{timestamp} {timestamp_ms}", "2013-01-01T10:00:00.000Z 1357034400000\n"),
            ("{key}\\t{value}\\n", "UA\tv\n"),
            ("{{{key}}} \\\\", "{UA}} \\\n"),
            ("{headers}", "h=1,i=null\n"),
            ("\u{fc}{key}\u{fc}", "\u{fc}UA\u{fc}\n"),
        ] {
            assert_eq!(shown(template, &record, false), text, "{template}");
        }
    }

    #[test]
    fn a_template_that_means_nothing_is_refused() {
        for bad in ["", "values", "{", "{key", "{Key}", "{}", "{key}\\", "{key}\\x", "{key}\\\u{fc}", "}{"] {
            assert!(bad.parse::<Format>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hex_shows_the_place_and_the_bytes() {
        let text = shown("hex", &RecordView { key: None, ..RECORD }, false);
        assert!(
            text.starts_with("flights-3 @ 42  2013-01-01T10:00:00.000Z\n  key: null\n  value: 6 bytes\n"),
            "{text}"
        );
        assert!(text.contains("61 1b 5b 32 4a 62"), "{text}");
    }
}
