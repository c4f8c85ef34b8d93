//! Topic names: what is one, which two are too alike, and which belong to the server itself.

use std::borrow::Cow;

use riverrun_types::limits::TOPIC_NAME_BYTES_MAX;

use crate::text::shown;

/// The topic that holds committed offsets and groups.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The names of the server's own topics, which are Kafka's (`Topic.INTERNAL_TOPICS`). This version makes and uses that of
/// offsets only; the others are kept for transactions and share groups, whose state they will hold.
const INTERNAL_TOPICS: [&str; 3] = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"];

/// Whether a topic is the server's own, which clients see marked and which no client may make or write to.
pub(crate) fn is_internal(name: &str) -> bool {
    INTERNAL_TOPICS.contains(&name)
}

/// Whether a name is kept for a topic of the server's own that this version does not make. An older one may have let a
/// client make a topic of it: that is the client's to delete.
pub(crate) fn is_reserved(name: &str) -> bool {
    is_internal(name) && name != OFFSETS_TOPIC
}

/// The topic of the server's own that a topic of this other name would be in the way of: they differ only in `.` and `_`.
pub(crate) fn internal_like(name: &str) -> Option<&'static str> {
    if is_internal(name) {
        return None;
    }
    let key = collision_key(name)?;
    INTERNAL_TOPICS.into_iter().find(|internal| *internal == key)
}

/// Why `name` cannot be a topic's, as a sentence for the client.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("Topic name is invalid: it is empty".to_owned());
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Err(format!(
            "Topic name is invalid: it has {} bytes, at most {TOPIC_NAME_BYTES_MAX} are allowed",
            name.len()
        ));
    }
    let shown = shown(name);
    if name == "." || name == ".." {
        return Err(format!("Topic name is invalid: it cannot be '{shown}'"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        return Err(format!(
            "Topic name is invalid: '{shown}' has a character other than ASCII letters and digits, '.', '_' and '-'"
        ));
    }
    Ok(())
}

/// The form in which names that differ only in `.` and `_` are the same: Kafka's metrics cannot tell them apart, so
/// it refuses the second, and so does this server. `None`: the name has neither and is like no other.
pub(crate) fn collision_key(name: &str) -> Option<Cow<'_, str>> {
    if name.contains('.') {
        Some(Cow::Owned(name.replace('.', "_")))
    } else {
        name.contains('_').then_some(Cow::Borrowed(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_or_break_clients_are_refused() {
        let long = "x".repeat(250);
        for bad in ["", ".", "..", "../x", "a/b", "a\0b", "ä", "a b", "a\n", long.as_str()] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        let longest = "x".repeat(249);
        for good in ["a", "...", "A-b_c.9", "__consumer_offsets", longest.as_str()] {
            assert_eq!(check_name(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn a_refused_name_is_escaped_in_the_message() {
        let message = check_name("a\u{1b}[31m").expect_err("refused");
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }

    #[test]
    fn dots_and_underscores_are_the_same_to_metrics() {
        assert_eq!(collision_key("a.b_c"), collision_key("a_b.c"));
        assert_eq!(collision_key("a-b"), None);
        assert_ne!(collision_key("a.b"), collision_key("a.c"));
    }
}
