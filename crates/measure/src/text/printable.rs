//! Text from elsewhere, made fit to be shown.

use std::fmt::Write as _;

/// The text with control characters escaped: it stays on its line and cannot steer a terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        push_printable(&mut shown, character);
    }
    shown
}

/// Appends a character, escaped if it is a control character.
pub fn push_printable(shown: &mut String, character: char) {
    match character {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        control if control.is_control() => {
            write!(shown, "\\x{:02x}", u32::from(control)).expect("a String takes every text");
        }
        other => shown.push(other),
    }
}
