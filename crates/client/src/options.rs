//! What an option is: name, type, range, default and text, written once.
//!
//! Owns the definition type, the reading of values from text, and the `options!` macro that turns one table into a
//! typed struct *and* the definitions that [`markdown`] and the setters read. Names are Kafka's where it has the
//! notion, and so are the defaults unless the text says otherwise. The tables stand where their structs are.

mod docs;
mod value;

use std::fmt;

pub use self::docs::markdown;
pub(crate) use self::value::OptionValue;

/// The type and range of an option's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number between two bounds, both included.
    Int(i64, i64),
    /// A time in milliseconds between two bounds, both included.
    Millis(i64, i64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Free text whose form the sentence fragment describes.
    Text(&'static str),
    /// Comma-separated texts whose form the sentence fragment describes.
    List(&'static str),
}

impl Kind {
    /// Whether a number is in range; other kinds are checked where the text is read.
    fn check(&self, value: &str) -> Result<(), String> {
        let right = match *self {
            Self::Int(min, max) | Self::Millis(min, max) => {
                value.parse().is_ok_and(|number: i64| (min..=max).contains(&number))
            }
            Self::Bool | Self::Choice(_) | Self::Text(_) | Self::List(_) => true,
        };
        if right { Ok(()) } else { Err(self.to_string()) }
    }

    /// The word for the type in the documentation.
    fn type_name(&self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int(..) => "integer",
            Self::Millis(..) => "milliseconds",
            Self::Choice(_) | Self::Text(_) => "string",
            Self::List(_) => "list",
        }
    }
}

/// What is allowed, as the end of the sentence "it must be …".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Int(min, i64::MAX) => write!(f, "a whole number from {min} up"),
            Self::Int(min, max) => write!(f, "a whole number from {min} to {max}"),
            Self::Millis(min, i64::MAX) => write!(f, "milliseconds from {min} up"),
            Self::Millis(min, max) => write!(f, "milliseconds from {min} to {max}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Text(form) | Self::List(form) => f.write_str(form),
        }
    }
}

/// One option: everything that is known of it besides its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionDef {
    /// The name, in Kafka's words where it is Kafka's notion.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// The value where nothing is set; `None` where "not set" is itself a value.
    pub default: Option<&'static str>,
    /// What it does, for people.
    pub doc: &'static str,
}

impl OptionDef {
    /// Reads a value. The error names the option and what it takes.
    pub(crate) fn read<T: OptionValue>(&self, value: &str) -> Result<T, String> {
        let value = value.trim();
        self.kind
            .check(value)
            .and_then(|()| T::from_text(value).ok_or_else(|| self.kind.to_string()))
            .map_err(|allowed| format!("{} is {value:?}; it must be {allowed}", self.name))
    }

    /// The value where nothing is set. The tables' own texts are right: a test reads them all.
    pub(crate) fn default_value<T: OptionValue>(&self) -> T {
        let value = match self.default {
            Some(text) => self.read(text).ok(),
            None => T::not_set(),
        };
        value.unwrap_or_else(|| panic!("{} has a default that it does not take", self.name))
    }
}

/// Makes a struct of options, with fields beside them that are no text. A line is: documentation,
/// `field: Type = "option.name", kind, default;`.
macro_rules! options {
    (
        $(#[doc = $head:literal])+
        pub struct $name:ident { $( $(#[doc = $plain_doc:literal])+ $plain:ident: $plain_type:ty; )* }
        $( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $key:literal, $kind:expr, $default:expr; )*
    ) => {
        $(#[doc = $head])+
        #[derive(Clone, Debug)]
        pub struct $name {
            $( $(#[doc = $plain_doc])+ pub $plain: $plain_type, )*
            $( $(#[doc = $doc])+ #[doc = concat!("\n\nOption `", $key, "`.")] pub $field: $type, )*
        }

        impl $name {
            /// The definitions of these options, in the order of the documentation.
            pub const DEFINITIONS: &'static [$crate::options::OptionDef] = &[
                $( $crate::options::OptionDef {
                    name: $key,
                    kind: $kind,
                    default: $default,
                    doc: concat!($($doc),+),
                }, )*
            ];

            fn defaults($($plain: $plain_type),*) -> Self {
                let mut definitions = Self::DEFINITIONS.iter();
                let mut next = || definitions.next().expect("one definition for each field");
                Self { $($plain,)* $( $field: next().default_value(), )* }
            }

            /// Sets an option of this table from its text. Answers whether there is one of this name.
            pub(crate) fn set_own(&mut self, name: &str, value: &str) -> Result<bool, String> {
                let Some(definition) = Self::DEFINITIONS.iter().find(|one| one.name == name) else {
                    return Ok(false);
                };
                match name {
                    $( $key => self.$field = definition.read(value)?, )*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// The text of an option of this table.
            pub(crate) fn get_own(&self, name: &str) -> Option<String> {
                match name {
                    $( $key => Some($crate::options::OptionValue::to_text(&self.$field)), )*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use options;

#[cfg(test)]
mod tests {

    use crate::{ClientError, ClusterOptions, ConsumerOptions, ProducerOptions};

    fn producer() -> ProducerOptions {
        ProducerOptions::new(ClusterOptions::new("a:1"))
    }

    fn consumer() -> ConsumerOptions {
        ConsumerOptions::new(ClusterOptions::new("a:1"))
    }

    #[test]
    fn every_default_reads_as_itself_and_shows_as_itself() {
        let (mut producer, mut consumer) = (producer(), consumer());
        for definition in ClusterOptions::DEFINITIONS.iter().chain(ProducerOptions::DEFINITIONS) {
            let Some(default) = definition.default.filter(|text| !text.is_empty()) else { continue };
            producer.set(definition.name, default).unwrap();
            assert_eq!(producer.get(definition.name).as_deref(), Some(default), "{}", definition.name);
        }
        for definition in ConsumerOptions::DEFINITIONS {
            let Some(default) = definition.default.filter(|text| !text.is_empty()) else { continue };
            consumer.set(definition.name, default).unwrap();
            assert_eq!(consumer.get(definition.name).as_deref(), Some(default), "{}", definition.name);
        }
    }

    #[test]
    fn what_is_set_is_what_is_used() {
        let mut options = producer();
        options.set("linger.ms", "25").unwrap();
        options.set("client.id", "me").unwrap();
        options.set("acks", "-1").unwrap();
        assert_eq!(options.linger.as_millis(), 25);
        assert_eq!(options.cluster.client_id, "me");
        assert_eq!(options.get("acks").as_deref(), Some("all"));
        assert_eq!(options.get("no.such.option"), None);
    }

    #[test]
    fn a_value_out_of_range_and_an_unknown_name_are_refused_by_name() {
        let mut options = producer();
        for (name, value) in
            [("batch.size", "-1"), ("acks", "2"), ("linger.ms", "soon"), ("enable.idempotence", "yes")]
        {
            let Err(ClientError::Invalid(text)) = options.set(name, value) else { panic!("{name} takes it") };
            assert!(text.contains(name) && text.contains("must be"), "{text}");
        }
        let Err(ClientError::Invalid(text)) = options.set("batch.sise", "1") else { panic!("taken") };
        assert!(text.contains("batch.sise"), "{text}");
    }

    #[test]
    fn names_are_given_once() {
        for tables in [ProducerOptions::DEFINITIONS, ConsumerOptions::DEFINITIONS] {
            let mut names: Vec<&str> =
                ClusterOptions::DEFINITIONS.iter().chain(tables).map(|definition| definition.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
    }
}
