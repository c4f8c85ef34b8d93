//! Conversion between an option's text and its type.

use std::time::Duration;

use riverrun_records::Compression;
use riverrun_types::Acks;

/// The Rust type of an option's value.
pub(crate) trait OptionValue: Sized {
    /// Parses the value; `None` if the text is invalid.
    fn from_text(text: &str) -> Option<Self>;

    /// The text of the value.
    fn to_text(&self) -> String;

    /// The value of an unset option; `None` if it must be set.
    fn not_set() -> Option<Self> {
        None
    }
}

macro_rules! by_parse {
    ($($type:ty),*) => {$(
        impl OptionValue for $type {
            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
by_parse!(i32, u32, usize, String);

/// Case-insensitive.
impl OptionValue for bool {
    fn from_text(text: &str) -> Option<Self> {
        text.to_ascii_lowercase().parse().ok()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// In milliseconds.
impl OptionValue for Duration {
    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::from_millis)
    }

    fn to_text(&self) -> String {
        self.as_millis().to_string()
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    /// An empty text, and -1 where the type has no negative number, means `None`.
    fn from_text(text: &str) -> Option<Self> {
        match T::from_text(text) {
            Some(value) if !text.is_empty() => Some(Some(value)),
            _ if text.is_empty() || text == "-1" => Some(None),
            _ => None,
        }
    }

    fn to_text(&self) -> String {
        self.as_ref().map(T::to_text).unwrap_or_default()
    }

    fn not_set() -> Option<Self> {
        Some(None)
    }
}

impl<T: OptionValue> OptionValue for Vec<T> {
    fn from_text(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::new());
        }
        text.split(',').map(|item| T::from_text(item.trim())).collect()
    }

    fn to_text(&self) -> String {
        self.iter().map(T::to_text).collect::<Vec<_>>().join(",")
    }
}

impl OptionValue for Acks {
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "0" => Some(Self::None),
            "1" => Some(Self::Leader),
            "all" | "-1" => Some(Self::All),
            _ => None,
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::None => "0",
            Self::Leader => "1",
            Self::All => "all",
        }
        .to_owned()
    }
}

impl OptionValue for Compression {
    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yes_and_no_are_said_in_letters_of_any_case() {
        assert_eq!(
            ["true", "True", "FALSE", "yes"].map(bool::from_text),
            [Some(true), Some(true), Some(false), None]
        );
    }

    #[test]
    fn empty_text_and_minus_one_unset_an_optional_value() {
        type Maybe = Option<Duration>;
        assert_eq!(Maybe::from_text(""), Some(None));
        assert_eq!(Maybe::from_text("-1"), Some(None));
        assert_eq!(Maybe::from_text("7"), Some(Some(Duration::from_millis(7))));
        assert_eq!(Maybe::from_text("x"), None);
        assert_eq!(Option::<String>::from_text(""), Some(None));
        assert_eq!(Option::<i32>::from_text("-1"), Some(Some(-1)));
    }
}
