//! Subscriptions by regular expression: which topics a pattern names.
//!
//! Kafka compiles these patterns with RE2/J and asks for a match of the whole name. The engine here has the same
//! grammar but for corners: `\Q...\E` is translated, and classes may nest, which RE2/J reads literally. Matching is
//! linear in the name whatever the pattern, and a pattern whose program exceeds [`PROGRAM_BYTES_MAX`] is invalid, so
//! a hostile one costs nothing much.

use regex_automata::Input;
use regex_automata::meta::{Builder, Config, Regex};
use regex_syntax::hir::{Hir, Look};
use thiserror::Error;

/// A compiled pattern in bytes at most.
const PROGRAM_BYTES_MAX: usize = 1024 * 1024;

/// A pattern in bytes at most: it is part of a record's key, whose strings have no longer lengths.
const PATTERN_BYTES_MAX: usize = i16::MAX as usize;

/// Why a pattern is refused.
#[derive(Debug, Error)]
pub(super) enum PatternError {
    /// It is longer than a record's key can hold.
    #[error("it has more than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// It does not parse.
    #[error("{0}")]
    Syntax(String),
    /// It parses, but its program would be too large.
    #[error("it is too large once compiled")]
    TooLarge,
}

/// A pattern, compiled.
#[derive(Debug)]
pub(super) struct TopicPattern(Regex);

impl TopicPattern {
    /// Compiles `pattern`.
    pub(super) fn compile(pattern: &str) -> Result<Self, PatternError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let parsed = regex_syntax::parse(&unquoted(pattern));
        let parsed = parsed.map_err(|error| PatternError::Syntax(reason(&error)))?;
        // Anchored as a tree and not as text: text around the pattern could change what it means.
        let whole = Hir::concat(vec![Hir::look(Look::Start), parsed, Hir::look(Look::End)]);
        let config = Config::new().nfa_size_limit(Some(PROGRAM_BYTES_MAX));
        let program = Builder::new().configure(config).build_from_hir(&whole);
        program.map(Self).map_err(|_| PatternError::TooLarge)
    }

    /// Whether the whole of `topic` matches.
    pub(super) fn matches(&self, topic: &str) -> bool {
        self.0.is_match(Input::new(topic))
    }
}

/// What is wrong, in one line and without the pattern itself.
fn reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "it does not parse".to_owned(),
    }
}

/// The pattern with what stands between `\Q` and `\E` (or the end) escaped.
fn unquoted(pattern: &str) -> String {
    let mut plain = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(position) = rest.find('\\') {
        let (before, escape) = rest.split_at(position);
        plain.push_str(before);
        if let Some(quoted) = escape.strip_prefix("\\Q") {
            let (literal, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            plain.push_str(&regex_syntax::escape(literal));
            rest = after;
        } else {
            // The escaped character goes along, so that the second half of `\\` begins no escape.
            let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
            plain.push_str(&escape[..end]);
            rest = &escape[end..];
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        TopicPattern::compile(pattern).expect("a valid pattern").matches(topic)
    }

    #[test]
    fn the_whole_name_must_match() {
        assert!(matches("clicks.*", "clicks-eu"));
        assert!(!matches("clicks", "clicks-eu"));
        assert!(!matches("eu", "clicks-eu"));
        assert!(matches("a|ab", "ab"));
        assert!(!matches("a|b", "ab"));
    }

    #[test]
    fn text_of_the_pattern_cannot_undo_the_anchors() {
        assert!(matches("(?x) clicks # all of them", "clicks"));
        assert!(!matches("(?x) clicks # all of them", "clicks-eu"));
        assert!(TopicPattern::compile("a)|(b").is_err());
    }

    #[test]
    fn quoted_text_is_literal() {
        assert!(matches(r"\Qa.b\E.*", "a.b-1"));
        assert!(!matches(r"\Qa.b\E.*", "axb-1"));
        assert!(matches(r"\Qa.b", "a.b"));
        assert!(matches(r"a\\Qb", r"a\Qb"));
        assert!(matches(r"a\.b\d", "a.b7"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        assert!(matches!(TopicPattern::compile("["), Err(PatternError::Syntax(_))));
        assert!(matches!(TopicPattern::compile("*"), Err(PatternError::Syntax(_))));
        assert!(matches!(TopicPattern::compile("(?=a)b"), Err(PatternError::Syntax(_))));
        assert!(matches!(TopicPattern::compile(r"a\"), Err(PatternError::Syntax(_))));
        assert!(matches!(TopicPattern::compile("((a{500}){500}){500}"), Err(PatternError::TooLarge)));
        assert!(matches!(TopicPattern::compile(&"a".repeat(40_000)), Err(PatternError::TooLong)));
    }
}
