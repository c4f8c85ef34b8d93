//! Bytes from records and names from the network, made fit to be shown.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use riverrun_measure::text::printable::push_printable;
use serde_json::{Map, Value};

/// Bytes in one line of a hex dump.
const DUMP_LINE_BYTES: usize = 16;

/// Appends `bytes` as they are to appear on a terminal: lines and tabs stay, other control characters and what is
/// not UTF-8 are escaped.
pub fn push_for_terminal(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' | '\t' => shown.push(character),
                other => push_printable(&mut shown, other),
            }
        }
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("a String takes every text");
        }
    }
    out.extend_from_slice(shown.as_bytes());
}

/// Puts bytes into a JSON object: text under `name`, anything else as base64 under `name_base64`.
pub fn put_json(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let (name, value) = match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (name.to_owned(), Value::Null),
        Some((_, Ok(text))) => (name.to_owned(), Value::String(text.to_owned())),
        Some((bytes, Err(_))) => (format!("{name}_base64"), Value::String(STANDARD.encode(bytes))),
    };
    object.insert(name, value);
}

/// Appends a hex dump: position, bytes, and the ASCII among them.
pub fn push_hex_dump(out: &mut Vec<u8>, indent: &str, bytes: &[u8]) {
    for (at, line) in bytes.chunks(DUMP_LINE_BYTES).enumerate() {
        let hex: String = line.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x} ").expect("a String takes every text");
            hex
        });
        let ascii: String =
            line.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { byte as char } else { '.' }).collect();
        let width = DUMP_LINE_BYTES * 3;
        let text = format!("{indent}{:08x}  {hex:<width$} {ascii}\n", at * DUMP_LINE_BYTES);
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_terminal(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        push_for_terminal(&mut out, bytes);
        String::from_utf8(out).expect("only valid text is pushed")
    }

    #[test]
    fn a_terminal_gets_no_control_characters_but_lines_and_tabs() {
        assert_eq!(for_terminal(b"a\tb\nc"), "a\tb\nc");
        assert_eq!(for_terminal(b"\x1b]0;x\x07\r"), "\\x1b]0;x\\x07\\r");
        assert_eq!(for_terminal(b"\xff\xc3\xbc\xc3"), "\\xff\u{fc}\\xc3");
        // A control character of two bytes: the one-character form of ESC [.
        assert_eq!(for_terminal("\u{9b}2J".as_bytes()), "\\x9b2J");
    }

    #[test]
    fn json_tells_text_from_bytes_and_from_nothing() {
        let mut object = Map::new();
        put_json(&mut object, "a", Some(b"x\"y"));
        put_json(&mut object, "b", Some(b"\xff\x00"));
        put_json(&mut object, "c", None);
        let text = Value::Object(object).to_string();
        assert_eq!(text, r#"{"a":"x\"y","b_base64":"/wA=","c":null}"#);
    }

    #[test]
    fn a_hex_dump_shows_position_bytes_and_ascii() {
        let mut out = Vec::new();
        push_hex_dump(&mut out, "", b"riverrun flows \xff!");
        let text = String::from_utf8(out).expect("ASCII");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "00000000  72 69 76 65 72 72 75 6e 20 66 6c 6f 77 73 20 ff  riverrun flows .");
        assert!(lines[1].starts_with("00000010  21 ") && lines[1].ends_with(" !"), "{}", lines[1]);
    }
}
