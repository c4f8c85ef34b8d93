//! Queues that the server offers as topics.

use std::fmt;
use std::path::PathBuf;

use super::definition::FromOption;
use crate::metadata::{check_name, is_internal};

/// A queue's directory, and the name of the topic that it is offered as: `name=directory` or `name=directory:synced`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The topic's name.
    pub topic: String,
    /// The queue's directory.
    pub dir: PathBuf,
    /// Clients see only what a sync has covered, and not what a cut of power may take back.
    pub synced_only: bool,
}

/// What ends a mount of which only the synced is shown.
const SYNCED: &str = ":synced";

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}{}", self.topic, self.dir.display(), if self.synced_only { SYNCED } else { "" })
    }
}

/// What is allowed, for an error message.
const FORM: &str = "it must be pairs of a topic's name and a queue's directory, such as quotes=/var/lib/quotes, each \
                    with :synced behind it if clients are to see only what a sync has covered";

impl FromOption for Mount {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let (topic, dir) = text.and_then(|text| text.split_once('=')).ok_or(FORM)?;
        let (topic, dir) = (topic.trim(), dir.trim());
        let (dir, synced_only) = dir.strip_suffix(SYNCED).map_or((dir, false), |dir| (dir.trim_end(), true));
        if dir.is_empty() {
            return Err(FORM.to_owned());
        }
        check_name(topic)?;
        if is_internal(topic) {
            return Err(format!("{topic} is the server's own topic"));
        }
        Ok(Self { topic: topic.to_owned(), dir: PathBuf::from(dir), synced_only })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mount_is_a_topic_name_and_a_directory() {
        let mount = Mount::from_option(Some("quotes = /var/lib/a=b")).expect("valid");
        let expected = Mount { topic: "quotes".to_owned(), dir: "/var/lib/a=b".into(), synced_only: false };
        assert_eq!(mount, expected);
        for wrong in
            ["", "quotes", "quotes=", "quotes=:synced", "=/dir", "a/b=/dir", "__consumer_offsets=/dir"]
        {
            assert!(Mount::from_option(Some(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_mount_of_the_synced_alone_says_so() {
        for (text, dir, synced_only) in [
            ("q=/a:synced", "/a", true),
            ("q=/a:synced:synced", "/a:synced", true),
            ("q=/a:b", "/a:b", false),
        ] {
            let mount = Mount::from_option(Some(text)).expect("valid");
            assert_eq!((mount.dir.as_path(), mount.synced_only), (Path::new(dir), synced_only), "{text}");
            assert_eq!(mount.to_string(), text);
        }
    }
}
