//! Queues that the server offers as topics.

use std::fmt;
use std::path::PathBuf;

use super::definition::FromOption;
use crate::metadata::{check_name, is_internal};

/// A queue's directory, and the name of the topic that it is offered as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The topic's name.
    pub topic: String,
    /// The queue's directory.
    pub dir: PathBuf,
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.topic, self.dir.display())
    }
}

/// What is allowed, for an error message.
const FORM: &str =
    "it must be pairs of a topic's name and a queue's directory, such as quotes=/var/lib/quotes";

impl FromOption for Mount {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let (topic, dir) = text.and_then(|text| text.split_once('=')).ok_or(FORM)?;
        let (topic, dir) = (topic.trim(), dir.trim());
        if dir.is_empty() {
            return Err(FORM.to_owned());
        }
        check_name(topic)?;
        if is_internal(topic) {
            return Err(format!("{topic} is the server's own topic"));
        }
        Ok(Self { topic: topic.to_owned(), dir: PathBuf::from(dir) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_a_topic_name_and_a_directory() {
        let mount = Mount::from_option(Some("quotes = /var/lib/a=b")).expect("valid");
        assert_eq!(mount, Mount { topic: "quotes".to_owned(), dir: "/var/lib/a=b".into() });
        for wrong in ["", "quotes", "quotes=", "=/dir", "a/b=/dir", "__consumer_offsets=/dir"] {
            assert!(Mount::from_option(Some(wrong)).is_err(), "{wrong:?}");
        }
    }
}
