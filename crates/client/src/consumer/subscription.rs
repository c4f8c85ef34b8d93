//! The subscription of a group member: topics by name, or by a pattern of names.

use std::collections::BTreeSet;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use crate::cluster::Cluster;
use crate::error::ClientError;

/// Most bytes of a compiled pattern.
const PROGRAM_BYTES_MAX: usize = 1024 * 1024;

/// The subscribed topics.
#[derive(Clone, Debug)]
pub(super) enum Subscription {
    Topics(Vec<String>),
    Pattern(Pattern),
}

/// Equal for the same topics in any order, or the same pattern text.
impl PartialEq for Subscription {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Topics(ours), Self::Topics(theirs)) => {
                ours.iter().collect::<BTreeSet<_>>() == theirs.iter().collect::<BTreeSet<_>>()
            }
            (Self::Pattern(ours), Self::Pattern(theirs)) => ours.text == theirs.text,
            (Self::Topics(_), Self::Pattern(_)) | (Self::Pattern(_), Self::Topics(_)) => false,
        }
    }
}

/// A regular expression that a topic's whole name has to match.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    compiled: Result<Regex, String>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), compiled: compile(text) }
    }

    /// Fails if this client cannot compile it. The server may be able to.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        let unreadable = |error: &String| {
            ClientError::Invalid(format!("the pattern {:?} cannot be read: {error}", self.text))
        };
        self.compiled.as_ref().map(drop).map_err(unreadable)
    }

    fn matches(&self, name: &str) -> bool {
        self.compiled.as_ref().is_ok_and(|regex| regex.is_match(name))
    }
}

/// The text alone is compiled first: the text around it must not change its meaning.
fn compile(text: &str) -> Result<Regex, String> {
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let config = Regex::config().utf8_empty(false).nfa_size_limit(Some(PROGRAM_BYTES_MAX));
    let build = |text: &str| {
        let built = Regex::builder().configure(config.clone()).syntax(syntax).build(text);
        built.map_err(|error| match error.syntax_error() {
            Some(syntax) => syntax.to_string(),
            None => error.to_string(),
        })
    };
    build(text).and_then(|_| build(&format!("^(?:{text})$")))
}

impl Subscription {
    /// The subscribed topics. For a pattern, lists the cluster's topics without the internal ones.
    pub(super) async fn topics(&self, cluster: &Cluster) -> Result<Vec<String>, ClientError> {
        let pattern = match self {
            Self::Topics(topics) => return Ok(topics.clone()),
            Self::Pattern(pattern) => pattern,
        };
        pattern.check()?;
        let all = cluster.refresh(None, false).await?;
        let ours = all.iter().flatten().filter(|topic| !topic.internal && pattern.matches(&topic.name));
        Ok(ours.map(|topic| topic.name.clone()).collect())
    }

    /// True if this topic is subscribed, judged by its name.
    pub(super) fn reads(&self, topic: &str) -> bool {
        match self {
            Self::Topics(topics) => topics.iter().any(|one| one == topic),
            Self::Pattern(pattern) => pattern.matches(topic),
        }
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Topics(_) => None,
            Self::Pattern(pattern) => Some(pattern),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_to_match_as_a_whole() {
        for (pattern, name, matches) in [
            ("clicks", "clicks", true),
            ("clicks", "clicks-2", false),
            ("a|b-.*", "b-x", true),
            ("a|b", "ab", false),
            (r"\w+\.[0-9]{2}", "logs.07", true),
            (".*", "anything", true),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(pattern.check().is_ok(), "{}", pattern.text);
            assert_eq!(pattern.matches(name), matches, "{} {name}", pattern.text);
        }
    }

    #[test]
    fn the_same_topics_are_the_same_subscription_in_any_order() {
        let topics =
            |names: &[&str]| Subscription::Topics(names.iter().map(|&name| name.to_owned()).collect());
        let pattern = |text| Subscription::Pattern(Pattern::new(text));
        assert_eq!(topics(&["t", "u"]), topics(&["u", "t", "u"]));
        assert_ne!(topics(&["t"]), topics(&["t", "u"]));
        assert_eq!(pattern("t"), pattern("t"));
        assert_ne!(pattern("t"), pattern("u"));
        assert_ne!(pattern("t"), topics(&["t"]));
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_refused() {
        for bad in ["a)|(b", "(", "[a", "(?x)a #", "(a{1000}){1000}"] {
            assert!(matches!(Pattern::new(bad).check(), Err(ClientError::Invalid(_))), "{bad}");
        }
    }
}
