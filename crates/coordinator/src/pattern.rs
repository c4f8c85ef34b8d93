//! Subscriptions by regular expression: the topics that a pattern matches.
//!
//! Kafka compiles these patterns with RE2/J and requires a match of the whole name. Patterns that RE2/J refuses are
//! refused here, too: counts above [`REPEATS_MAX`], a repetition of a repetition, unknown flags. The grammar is the
//! same except for corners: `\Q...\E` is translated, and classes may nest, which RE2/J reads literally.
//!
//! Guarantees that a hostile pattern costs little: its length, its Unicode classes and its program have bounds,
//! matching takes at most the program's size times the name's length, and a match leaves nothing in memory. The shard
//! neither compiles nor matches: the host does so on another thread, and passes the result in [`PatternTopics`].

use std::collections::BTreeSet;
use std::sync::Arc;

use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::{Anchored, Input};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    self, Ast, ClassSetItem, Flag, Flags, FlagsItemKind, GroupKind, RepetitionKind, Visitor,
};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Hir, Look};
use thiserror::Error;

/// Upper bound of a compiled pattern in bytes: room for an alternation of names as long as a pattern may be. Every
/// state may be examined for every byte of every topic's name.
const PROGRAM_BYTES_MAX: usize = 256 * 1024;

/// Upper bound of a pattern in bytes: sixteen names of the longest kind. Kafka has no such bound.
const PATTERN_BYTES_MAX: usize = 4 * 1024;

/// Upper bound of nested groups: the stack of the parser, and of the walks in this file.
const NESTING_MAX: u32 = 100;

/// Upper bound of a count of repetitions, as in RE2/J.
const REPEATS_MAX: u32 = 1_000;

/// Upper bound of classes in a pattern that names characters outside of ASCII. Each may be a table of hundreds of
/// ranges, and topics' names have none of these characters.
const UNICODE_CLASSES_MAX: usize = 8;

/// The topics of a pattern, as far as the host knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternTopics {
    /// All topics whose names it matches.
    Known(Arc<BTreeSet<String>>),
    /// They are being determined.
    Pending,
    /// The pattern cannot be used, for this reason.
    Invalid(String),
}

/// Why a pattern is refused.
#[derive(Debug, Error)]
pub enum PatternError {
    /// It is longer than patterns may be.
    #[error("it has more than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// It does not parse.
    #[error("{0}")]
    Syntax(String),
    /// It parses, but RE2/J would refuse it.
    #[error("{0}")]
    NotInRe2(&'static str),
    /// It parses, but its program would be too large.
    #[error("it is too large once compiled")]
    TooLarge,
}

/// A pattern, compiled.
#[derive(Debug)]
pub struct TopicPattern(PikeVM);

/// The memory that matching works with. Used for one pattern at a time, for any number of names.
#[derive(Debug)]
pub struct Workspace(Cache);

impl TopicPattern {
    /// Compiles `pattern`.
    pub fn compile(pattern: &str) -> Result<Self, PatternError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let text = unquoted(pattern);
        let parsed = ParserBuilder::new().nest_limit(NESTING_MAX).build().parse(&text);
        let parsed = parsed.map_err(|error| PatternError::Syntax(error.kind().to_string()))?;
        let is_unicode = ast::visit(&parsed, Check::default())?;
        // Without Unicode a class is a set of bytes, however it is written.
        let mut translator = TranslatorBuilder::new().unicode(is_unicode).utf8(false).build();
        let parsed = translator.translate(&text, &parsed);
        let parsed = parsed.map_err(|error| PatternError::Syntax(error.kind().to_string()))?;
        // Anchored as a tree and not as text: text around the pattern could change its meaning.
        let whole = Hir::concat(vec![Hir::look(Look::Start), parsed, Hir::look(Look::End)]);
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(PROGRAM_BYTES_MAX));
        let program = NFA::compiler().configure(config).build_from_hir(&whole);
        let program = program.map_err(|_| PatternError::TooLarge)?;
        PikeVM::new_from_nfa(program).map(Self).map_err(|_| PatternError::TooLarge)
    }

    /// A new workspace for this pattern.
    pub fn workspace(&self) -> Workspace {
        Workspace(self.0.create_cache())
    }

    /// Whether the whole of `topic` matches. The workspace must be one of this pattern.
    pub fn matches(&self, topic: &str, workspace: &mut Workspace) -> bool {
        self.0.is_match(&mut workspace.0, Input::new(topic).anchored(Anchored::Yes))
    }

    /// Memory of the program.
    pub fn size_bytes(&self) -> usize {
        self.0.get_nfa().memory_usage()
    }
}

/// Walks through a pattern, and determines whether it needs Unicode.
#[derive(Debug, Default)]
struct Check {
    is_unicode: bool,
    classes: usize,
}

impl Check {
    fn literal(&mut self, literal: &ast::Literal) {
        self.is_unicode |= !literal.c.is_ascii();
    }

    fn repetition(repetition: &ast::Repetition) -> Result<(), PatternError> {
        if matches!(*repetition.ast, Ast::Repetition(_)) {
            return Err(PatternError::NotInRe2("a repetition is repeated"));
        }
        let counts = match &repetition.op.kind {
            RepetitionKind::Range(
                ast::RepetitionRange::Exactly(count) | ast::RepetitionRange::AtLeast(count),
            ) => *count,
            RepetitionKind::Range(ast::RepetitionRange::Bounded(_, most)) => *most,
            _ => 0,
        };
        if counts > REPEATS_MAX {
            return Err(PatternError::NotInRe2("a count of repetitions is above 1000"));
        }
        Ok(())
    }

    fn flags(flags: &Flags) -> Result<(), PatternError> {
        let is_known = |kind: &FlagsItemKind| {
            !matches!(kind, FlagsItemKind::Flag(Flag::Unicode | Flag::CRLF | Flag::IgnoreWhitespace))
        };
        if flags.items.iter().all(|item| is_known(&item.kind)) {
            Ok(())
        } else {
            Err(PatternError::NotInRe2("unrecognized flag"))
        }
    }
}

impl Visitor for Check {
    type Output = bool;
    type Err = PatternError;

    fn finish(self) -> Result<bool, PatternError> {
        if self.is_unicode && self.classes > UNICODE_CLASSES_MAX {
            return Err(PatternError::TooLarge);
        }
        Ok(self.is_unicode)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), PatternError> {
        match ast {
            Ast::Literal(literal) => self.literal(literal),
            Ast::ClassUnicode(_) => {
                self.is_unicode = true;
                self.classes += 1;
            }
            Ast::ClassPerl(_) | Ast::ClassBracketed(_) => self.classes += 1,
            Ast::Repetition(repetition) => Self::repetition(repetition)?,
            Ast::Flags(set) => Self::flags(&set.flags)?,
            Ast::Group(group) => {
                if let GroupKind::NonCapturing(flags) = &group.kind {
                    Self::flags(flags)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), PatternError> {
        match item {
            ClassSetItem::Literal(literal) => self.literal(literal),
            ClassSetItem::Range(range) => {
                self.literal(&range.start);
                self.literal(&range.end);
            }
            ClassSetItem::Unicode(_) => {
                self.is_unicode = true;
                self.classes += 1;
            }
            ClassSetItem::Perl(_) | ClassSetItem::Bracketed(_) => self.classes += 1,
            _ => {}
        }
        Ok(())
    }
}

/// The pattern with the text between `\Q` and `\E` (or the end) escaped.
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
        let pattern = TopicPattern::compile(pattern).expect("a valid pattern");
        pattern.matches(topic, &mut pattern.workspace())
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
        assert!(matches("(?i)CLICKS", "clicks"));
        assert!(!matches("(?i)CLICKS", "clicks-eu"));
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
        assert!(matches!(
            TopicPattern::compile(&"a".repeat(PATTERN_BYTES_MAX + 1)),
            Err(PatternError::TooLong)
        ));
    }

    #[test]
    fn pattern_that_re2_refuses_is_refused() {
        for pattern in ["a{1001}", "a{1,1001}", "x*+", "x**", "x{2}{3}", "(?x)a", "(?u)a", "(?R)a", "(?-u:a)"]
        {
            let refused = TopicPattern::compile(pattern);
            assert!(matches!(refused, Err(PatternError::NotInRe2(_))), "{pattern}: {refused:?}");
        }
        assert!(matches("a{1000}", &"a".repeat(1_000)));
        assert!(matches("(?:x*)+y*?", "xxy"));
        assert!(matches("(?s)a.*", "a\nb"));
    }

    #[test]
    fn classes_of_unicode_match_and_are_few() {
        assert!(matches(r"\pL+-\p{Nd}[é\pL]*", "clicks-7a"));
        assert!(matches(r"\w+\d\s?", "clicks7"));
        for pattern in ["(?i)\\pL".repeat(9), "é[a-z]".repeat(9), "(?i)[\\x{0}-\\x{10FFFF}]".repeat(20)] {
            let refused = TopicPattern::compile(&pattern);
            assert!(matches!(refused, Err(PatternError::TooLarge)), "{pattern}: {refused:?}");
        }
        assert!(TopicPattern::compile(&"[a-z]".repeat(300)).is_ok());
    }
}
