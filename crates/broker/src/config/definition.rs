//! The definition of an option: name, type, range, default and text, written once.
//!
//! Owns the definition type, the check of a value against it, and the `options!` macro that turns one table into a
//! typed struct *and* the definitions that the parser, the documentation and `DescribeConfigs` read. Nothing here
//! knows a single option; the tables are in the neighbouring files.

use std::borrow::Cow;
use std::fmt;

/// The type and range of an option's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// 32-bit integer between two bounds, both included.
    Int(i32, i32),
    /// 64-bit integer between two bounds, both included.
    Long(i64, i64),
    /// Finite decimal number between two bounds, both included.
    Double(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words, each at most once, separated by commas.
    Choices(&'static [&'static str]),
    /// Free text whose form the sentence fragment describes; the field's type checks it.
    Text(&'static str),
    /// Comma-separated texts whose form the sentence fragment describes; the field's type checks them.
    List(&'static str),
}

impl Kind {
    /// Checks that `value` is of this kind; the error says what is allowed.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        let right = match *self {
            Self::Bool => parse_bool(value).is_some(),
            Self::Int(min, max) => value.parse().is_ok_and(|v: i32| (min..=max).contains(&v)),
            Self::Long(min, max) => value.parse().is_ok_and(|v: i64| (min..=max).contains(&v)),
            Self::Double(min, max) => value.parse().is_ok_and(|v: f64| (min..=max).contains(&v)),
            Self::Choice(words) => words.contains(&value),
            Self::Choices(words) => are_distinct_words(value, words),
            Self::Text(_) | Self::List(_) => true,
        };
        if right { Ok(()) } else { Err(self.to_string()) }
    }

    /// The word for the type in the documentation.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int(..) => "int",
            Self::Long(..) => "long",
            Self::Double(..) => "double",
            Self::Choice(_) | Self::Text(_) => "string",
            Self::Choices(_) | Self::List(_) => "list",
        }
    }
}

/// The allowed values, as the end of the sentence "it must be …".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Int(min, max) => write_range(f, *min, *max, i32::MAX),
            Self::Long(min, max) => write_range(f, *min, *max, i64::MAX),
            Self::Double(min, max) if *max >= f64::MAX => write!(f, "a number of {min} or more"),
            Self::Double(min, max) => write!(f, "a number from {min} to {max}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Choices(words) => write!(f, "a list of {}, each at most once", words.join(", ")),
            Self::Text(form) | Self::List(form) => f.write_str(form),
        }
    }
}

fn write_range<T: Copy + PartialEq + fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    min: T,
    max: T,
    top: T,
) -> fmt::Result {
    if max == top {
        write!(f, "a whole number from {min} up to {top}")
    } else {
        write!(f, "a whole number from {min} to {max}")
    }
}

fn are_distinct_words(value: &str, words: &[&str]) -> bool {
    let items = split_list(value);
    items.iter().enumerate().all(|(at, item)| words.contains(item) && !items[..at].contains(item))
}

/// The items of a comma-separated list, trimmed; an empty text is an empty list.
pub(crate) fn split_list(value: &str) -> Vec<&str> {
    if value.trim().is_empty() { Vec::new() } else { value.split(',').map(str::trim).collect() }
}

fn parse_bool(value: &str) -> Option<bool> {
    if value.eq_ignore_ascii_case("true") {
        Some(true)
    } else if value.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// Values of an option that this server can honour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accept {
    /// Every value of the kind.
    All,
    /// Only these values: any other would ask for something that is not there, which the text names.
    Only(&'static [&'static str], &'static str),
}

/// One option: everything that is known of it besides its value.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionDef {
    /// The name, in Kafka's words where it is Kafka's notion.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// The value where nothing is set; `None` where "not set" is itself a value.
    pub default: Option<&'static str>,
    /// Which values of the kind can be honoured.
    pub accept: Accept,
    /// The description, for people.
    pub doc: Cow<'static, str>,
}

impl OptionDef {
    /// The description as it is shown: one paragraph, and each item of a list behind it on a line of its own.
    pub(crate) fn text(&self) -> String {
        let words: Vec<_> = self.doc.split_whitespace().collect();
        words.join(" ").replace(" - ", "\n- ")
    }

    /// Checks a value against kind and acceptance. The error is the rest of the sentence "`value` …".
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        self.kind.check(value).map_err(|allowed| format!("it must be {allowed}"))?;
        match self.accept {
            Accept::Only(values, why) if !values.contains(&value) => Err(why.to_owned()),
            Accept::All | Accept::Only(..) => Ok(()),
        }
    }
}

/// A Rust type that an option's text becomes.
pub(crate) trait FromOption: Sized {
    /// The value, or what is allowed instead. `None` is an option that is not set and has no default.
    fn from_option(text: Option<&str>) -> Result<Self, String>;
}

macro_rules! from_option_by_parse {
    ($($type:ty),*) => {$(
        impl FromOption for $type {
            fn from_option(text: Option<&str>) -> Result<Self, String> {
                let text = text.ok_or("it must be set")?;
                text.parse().map_err(|_| concat!("it must be a value of type ", stringify!($type)).to_owned())
            }
        }
    )*};
}
from_option_by_parse!(i16, i32, i64, u16, u32, u64, usize, f64, String);
from_option_by_parse!(riverrun_types::DurabilityLevel, riverrun_coordinator::MigrationPolicy);

impl FromOption for bool {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        text.and_then(parse_bool).ok_or_else(|| "it must be true or false".to_owned())
    }
}

impl FromOption for std::path::PathBuf {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        match text.map(str::trim) {
            Some(path) if !path.is_empty() => Ok(Self::from(path)),
            _ => Err("it must be a path".to_owned()),
        }
    }
}

impl<T: FromOption> FromOption for Option<T> {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        text.map(|text| T::from_option(Some(text))).transpose()
    }
}

impl<T: FromOption> FromOption for Vec<T> {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        split_list(text.unwrap_or_default()).into_iter().map(|item| T::from_option(Some(item))).collect()
    }
}

/// A failed read of one field: the option's name and what is allowed.
#[derive(Debug)]
pub(crate) struct BadField {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// Makes a section of options: the struct that the server reads, the definitions, and the way from texts to the
/// struct. A line is: documentation, `field: Type = "option.name", kind, default;`.
macro_rules! options {
    (
        $(#[doc = $head:literal])+
        struct $name:ident;
        $( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $key:literal, $kind:expr, $default:expr $(, $accept:expr)?; )*
    ) => {
        $(#[doc = $head])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $type, )*
        }

        impl $name {
            /// The definitions of this section's options, in the order of the documentation.
            pub(crate) const DEFINITIONS: &'static [$crate::config::definition::OptionDef] = &[
                $( $crate::config::definition::OptionDef {
                    name: $key,
                    kind: $kind,
                    default: $default,
                    accept: $crate::config::definition::options!(@accept $($accept)?),
                    doc: std::borrow::Cow::Borrowed(concat!($($doc),+)),
                }, )*
            ];

            /// Reads every field through `value_of`, which answers an option's text by name.
            pub(crate) fn read<'v>(
                value_of: &dyn Fn(&str) -> Option<std::borrow::Cow<'v, str>>,
            ) -> Result<Self, $crate::config::definition::BadField> {
                Ok(Self {
                    $( $field: $crate::config::definition::FromOption::from_option(value_of($key).as_deref())
                        .map_err(|reason| $crate::config::definition::BadField { name: $key, reason })?, )*
                })
            }
        }
    };
    (@accept) => { $crate::config::definition::Accept::All };
    (@accept $accept:expr) => { $accept };
}
pub(crate) use options;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_for_a_value_outside_its_range_says_what_is_allowed() {
        assert_eq!(Kind::Int(1, 9).check("10"), Err("a whole number from 1 to 9".into()));
        assert_eq!(
            Kind::Int(1, i32::MAX).check("2147483648"),
            Err("a whole number from 1 up to 2147483647".into())
        );
        assert!(Kind::Long(-1, i64::MAX).check("-2").is_err());
        assert!(Kind::Double(0.0, 1.0).check("NaN").is_err());
        assert!(Kind::Double(0.0, f64::MAX).check("inf").is_err());
        assert!(Kind::Bool.check("yes").is_err());
        assert!(Kind::Bool.check("TRUE").is_ok());
    }

    #[test]
    fn items_of_a_description_have_lines_of_their_own() {
        let doc = Cow::Borrowed(concat!(" Bytes at most.", " - One rule", "   of two lines.", " - Another."));
        let def = OptionDef { name: "x", kind: Kind::Bool, default: None, accept: Accept::All, doc };
        assert_eq!(def.text(), "Bytes at most.\n- One rule of two lines.\n- Another.");
    }

    #[test]
    fn a_list_of_words_takes_each_once_and_may_be_empty() {
        let kind = Kind::Choices(&["compact", "delete"]);
        for good in ["", "compact", "delete, compact"] {
            assert_eq!(kind.check(good), Ok(()), "{good:?}");
        }
        for bad in ["compact,compact", "compact,", "truncate"] {
            assert!(kind.check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_honoured_says_why() {
        let def = OptionDef {
            name: "x",
            kind: Kind::Bool,
            default: Some("false"),
            accept: Accept::Only(&["false"], "there is no x here"),
            doc: Cow::Borrowed("x"),
        };
        assert_eq!(def.check("true"), Err("there is no x here".into()));
        assert_eq!(def.check("false"), Ok(()));
        assert_eq!(def.check("maybe"), Err("it must be true or false".into()));
    }
}
