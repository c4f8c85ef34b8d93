//! Text for people.

/// A text from outside, made fit for a message: escaped, and cut if it is long.
pub(crate) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect()
}
