//! Queues that the server offers as topics.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use riverrun_queue::Retention;

use super::definition::FromOption;
use crate::topic_names::{check_name, is_internal};

/// A queue's directory, and the name of the topic that it is offered as: `name=directory`, with `:rw`, `:synced`,
/// `:retention.ms=N` and `:retention.bytes=N` behind it, in whatever order, where they are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The topic's name.
    pub topic: String,
    /// The queue's directory.
    pub dir: PathBuf,
    /// Clients may produce to it.
    pub writable: bool,
    /// Clients see only records that a sync has covered, which no power cut takes back, and their own records are acked
    /// once they are synced.
    pub synced_only: bool,
    /// Limits beyond which this server removes old records. Only a mount that takes records has any.
    pub retention: Retention,
}

/// Suffix of a mount that takes records from clients.
const WRITABLE: &str = ":rw";
/// Suffix of a mount that shows only synced records.
const SYNCED: &str = ":synced";
/// Suffix of a mount whose old records are removed, before the milliseconds or the bytes.
const RETENTION_MS: &str = ":retention.ms=";
const RETENTION_BYTES: &str = ":retention.bytes=";

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writable = if self.writable { WRITABLE } else { "" };
        let synced = if self.synced_only { SYNCED } else { "" };
        write!(f, "{}={}{writable}{synced}", self.topic, self.dir.display())?;
        if let Some(age) = self.retention.age {
            write!(f, "{RETENTION_MS}{}", age.as_millis())?;
        }
        if let Some(bytes) = self.retention.bytes {
            write!(f, "{RETENTION_BYTES}{bytes}")?;
        }
        Ok(())
    }
}

/// The error text for a value of another form.
const FORM: &str = "it must be pairs of a topic's name and a queue's directory, such as quotes=/var/lib/quotes, each \
                    with :rw behind it if clients may produce to it, with :synced if they are to see only records that \
                    a sync has covered, and with :retention.ms=N or :retention.bytes=N if the server is to remove records \
                    that are older, or above so many bytes";
/// The error text for limits on a mount to which this server adds nothing, and so removes nothing.
const KEEPS: &str = "retention.ms and retention.bytes are for a mount with :rw: from any other, the processes that append \
                     remove old records";

impl FromOption for Mount {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        let (topic, dir) = text.and_then(|text| text.split_once('=')).ok_or(FORM)?;
        let (topic, mut dir) = (topic.trim(), dir.trim());
        let (mut writable, mut synced_only) = (false, false);
        let (mut age_ms, mut bytes) = (None, None);
        // Each suffix is taken once: the rest may be a directory of such a name.
        for _ in 0..4 {
            dir = strip_flag(dir, WRITABLE, &mut writable);
            dir = strip_flag(dir, SYNCED, &mut synced_only);
            dir = strip_limit(dir, RETENTION_MS, &mut age_ms)?;
            dir = strip_limit(dir, RETENTION_BYTES, &mut bytes)?;
        }
        if dir.is_empty() {
            return Err(FORM.to_owned());
        }
        if !writable && (age_ms.is_some() || bytes.is_some()) {
            return Err(KEEPS.to_owned());
        }
        check_name(topic)?;
        if is_internal(topic) {
            return Err(format!("{topic} is the server's own topic"));
        }
        let limit = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let age = limit(age_ms).map(Duration::from_millis);
        let retention = Retention { age, bytes: limit(bytes), ..Retention::default() };
        Ok(Self { topic: topic.to_owned(), dir: PathBuf::from(dir), writable, synced_only, retention })
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

/// Takes a limit from the end of `text`: `word` and a number, of which -1 is no limit. A second one is an error.
fn strip_limit<'t>(text: &'t str, word: &str, limit: &mut Option<i64>) -> Result<&'t str, String> {
    let Some((rest, number)) = text.rsplit_once(word).filter(|(_, number)| !number.contains(':')) else {
        return Ok(text);
    };
    let word = &word[1..];
    if limit.is_some() {
        return Err(format!("{} stands twice behind the directory", word.trim_end_matches('=')));
    }
    let wrong = || format!("{word}{number}: it must be a whole number from -1 (no limit) on");
    let number: i64 = number.parse().map_err(|_| wrong())?;
    if number < -1 {
        return Err(wrong());
    }
    *limit = Some(number);
    Ok(rest.trim_end())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mount_is_a_topic_name_and_a_directory() {
        let mount = Mount::from_option(Some("quotes = /var/lib/a=b")).expect("valid");
        let dir = "/var/lib/a=b".into();
        let expected = Mount {
            topic: "quotes".to_owned(),
            dir,
            writable: false,
            synced_only: false,
            retention: Retention::default(),
        };
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
            "__transaction_state=/dir",
        ] {
            assert!(Mount::from_option(Some(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn suffixes_of_a_mount_say_what_it_shows_and_takes() {
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

    #[test]
    fn limits_of_a_mount_that_takes_records_are_suffixes() {
        for (text, age_ms, bytes) in [
            ("q=/a:rw:retention.ms=1000", Some(1000), None),
            ("q=/a:rw:retention.bytes=1", None, Some(1)),
            (
                "q=/a:rw:synced:retention.ms=0:retention.bytes=9223372036854775807",
                Some(0),
                Some(u64::MAX / 2),
            ),
        ] {
            let mount = Mount::from_option(Some(text)).expect("valid");
            let retention =
                Retention { age: age_ms.map(Duration::from_millis), bytes, ignore_readers: false };
            assert_eq!((mount.dir.as_path(), mount.retention), (Path::new("/a"), retention), "{text}");
            assert_eq!(mount.to_string(), text);
        }
        for (text, same) in [
            (
                "q=/a:retention.bytes=5:retention.ms=7:synced:rw",
                "q=/a:rw:synced:retention.ms=7:retention.bytes=5",
            ),
            ("q=/a:rw:retention.ms=-1:retention.bytes=-1", "q=/a:rw"),
        ] {
            assert_eq!(Mount::from_option(Some(text)).expect("valid").to_string(), same);
        }
        for wrong in [
            "q=/a:rw:retention.ms=-2",
            "q=/a:rw:retention.bytes=",
            "q=/a:rw:retention.ms=1d",
            "q=/a:rw:retention.ms=5/b",
            "q=/a:retention.ms=5",
            "q=/a:synced:retention.bytes=-1",
        ] {
            let told = Mount::from_option(Some(wrong)).expect_err(wrong);
            assert!(told.contains("retention."), "{told}");
        }
        for (wrong, limit) in [
            ("q=/a:rw:retention.ms=5:retention.ms=7", "ms"),
            ("q=/a:retention.bytes=5:rw:synced:retention.ms=1:retention.bytes=5", "bytes"),
            ("q=/a:retention.ms=1:rw:synced:retention.ms=1:retention.bytes=5", "ms"),
        ] {
            let told = Mount::from_option(Some(wrong)).expect_err(wrong);
            assert_eq!(told, format!("retention.{limit} stands twice behind the directory"));
        }
    }
}
