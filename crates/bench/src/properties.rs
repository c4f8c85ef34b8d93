//! Java's properties format, in which benchmark drivers carry a client's settings.
//!
//! Owns the syntax only: the client knows the meaning of keys.

use serde::{Deserialize, Serialize};

/// Settings in their order; the later of two with one key holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties(Vec<(String, String)>);

impl Properties {
    /// Reads lines of `key=value`, `key: value` or `key value`; `#` and `!` begin comments, and a backslash at the end
    /// of a line joins it with the next.
    pub fn parse(text: &str) -> Self {
        let mut properties = Self::default();
        let mut joined = String::new();
        for line in text.lines() {
            let line = line.trim_start();
            if joined.is_empty() && (line.is_empty() || line.starts_with(['#', '!'])) {
                continue;
            }
            if let Some(part) = line.strip_suffix('\\') {
                joined.push_str(part);
                continue;
            }
            joined.push_str(line);
            properties.take_line(&std::mem::take(&mut joined));
        }
        properties.take_line(&joined);
        properties
    }

    fn take_line(&mut self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let end = line.find(['=', ':', ' ', '\t']).unwrap_or(line.len());
        let (key, rest) = line.split_at(end);
        let rest = rest.trim_start();
        let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
        self.set(key, value);
    }

    /// Sets a key, replacing its value.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// These settings, overridden by those of `other`.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        for (key, value) in other.iter() {
            self.set(key, value);
        }
        self
    }
}

impl FromIterator<(String, String)> for Properties {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        let mut properties = Self::default();
        for (key, value) in pairs {
            properties.set(key, value);
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_line_is_read() {
        let text = "# c\n! c\n\na=1\n b : 2 \nc 3\nd=\ne=x=y\nf=g\\\n   h\na=9\nlast";
        let properties = Properties::parse(text);
        let pairs: Vec<_> = properties.iter().collect();
        let expected =
            [("a", "9"), ("b", "2"), ("c", "3"), ("d", ""), ("e", "x=y"), ("f", "gh"), ("last", "")];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn later_settings_go_over_earlier_ones() {
        let base = Properties::parse("a=1\nb=2");
        let both = base.with(&Properties::parse("b=3\nc=4"));
        assert_eq!(both.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "3"), ("c", "4")]);
    }
}
