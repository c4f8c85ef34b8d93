//! Queues that the server offers as topics.

use std::fmt;
use std::path::PathBuf;

use super::definition::FromOption;
use crate::metadata::{check_name, is_internal};

/// A queue's directory, and the name of the topic that it is offered as: `name=directory`, with `:rw` and `:synced` behind
/// it, in whatever order, where they are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The topic's name.
    pub topic: String,
    /// The queue's directory.
    pub dir: PathBuf,
    /// Clients may produce to it.
    pub writable: bool,
    /// Clients see only what a sync has covered, and not what a cut of power may take back; and what they produce is
    /// acked then.
    pub synced_only: bool,
}

/// What follows the directory of a mount that takes records from clients.
const WRITABLE: &str = ":rw";
/// What follows the directory of a mount of which only the synced is shown.
const SYNCED: &str = ":synced";

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writable = if self.writable { WRITABLE } else { "" };
        let synced = if self.synced_only { SYNCED } else { "" };
        write!(f, "{}={}{writable}{synced}", self.topic, self.dir.display())
    }
}

/// What is allowed, for an error message.
const FORM: &str = "it must be pairs of a topic's name and a queue's directory, such as quotes=/var/lib/quotes, each \
                    with :rw behind it if clients may produce to it, and with :synced if they are to see only what a \
                    sync has covered";

impl FromOption for Mount {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let (topic, dir) = text.and_then(|text| text.split_once('=')).ok_or(FORM)?;
        let (topic, mut dir) = (topic.trim(), dir.trim());
        let (mut writable, mut synced_only) = (false, false);
        // Each once: what is left may be a directory of such a name.
        for _ in 0..2 {
            dir = strip_flag(dir, WRITABLE, &mut writable);
            dir = strip_flag(dir, SYNCED, &mut synced_only);
        }
        if dir.is_empty() {
            return Err(FORM.to_owned());
        }
        check_name(topic)?;
        if is_internal(topic) {
            return Err(format!("{topic} is the server's own topic"));
        }
        Ok(Self { topic: topic.to_owned(), dir: PathBuf::from(dir), writable, synced_only })
    }
}

/// Takes a word from the end of `text`, unless it was taken before.
fn strip_flag<'t>(text: &'t str, word: &str, is_set: &mut bool) -> &'t str {
    match text.strip_suffix(word) {
        Some(rest) if !*is_set => {
            *is_set = true;
            rest.trim_end()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mount_is_a_topic_name_and_a_directory() {
        let mount = Mount::from_option(Some("quotes = /var/lib/a=b")).expect("valid");
        let dir = "/var/lib/a=b".into();
        let expected = Mount { topic: "quotes".to_owned(), dir, writable: false, synced_only: false };
        assert_eq!(mount, expected);
        for wrong in [
            "",
            "quotes",
            "quotes=",
            "quotes=:synced",
            "quotes=:rw",
            "=/dir",
            "a/b=/dir",
            "__consumer_offsets=/dir",
        ] {
            assert!(Mount::from_option(Some(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_a_mount_shows_and_takes_stands_behind_its_directory() {
        for (text, dir, writable, synced_only) in [
            ("q=/a:synced", "/a", false, true),
            ("q=/a:rw", "/a", true, false),
            ("q=/a:rw:synced", "/a", true, true),
            ("q=/a:synced:synced", "/a:synced", false, true),
            ("q=/a:rw:rw", "/a:rw", true, false),
            ("q=/a:rw:rw:synced", "/a:rw", true, true),
            ("q=/a:b", "/a:b", false, false),
        ] {
            let mount = Mount::from_option(Some(text)).expect("valid");
            let told = (mount.dir.as_path(), mount.writable, mount.synced_only);
            assert_eq!(told, (Path::new(dir), writable, synced_only), "{text}");
            assert_eq!(mount.to_string(), text);
        }
        let turned = Mount::from_option(Some("q=/a:synced :rw")).expect("valid");
        assert_eq!(turned.to_string(), "q=/a:rw:synced");
    }
}
