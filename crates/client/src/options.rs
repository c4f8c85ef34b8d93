//! The definition of an option: name, type, range, default and text, written once.
//!
//! Owns the definition type, the parsing of values, and the `options!` macro that turns one table into a typed struct
//! *and* the definitions that [`markdown`] and the setters read. Names are Kafka's where Kafka has the option, and so
//! are the defaults unless the text says otherwise. The tables stand where their structs are.

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
    /// The first number, or a whole number between the two others, both included.
    OneOrInt(i64, i64, i64),
    /// A time in milliseconds between two bounds, both included.
    Millis(i64, i64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Free text; the sentence fragment describes its form.
    Text(&'static str),
    /// Comma-separated texts; the sentence fragment describes their form.
    List(&'static str),
}

impl Kind {
    /// Checks a number against its range; other kinds are checked by their parsers.
    fn check(&self, value: &str) -> Result<(), String> {
        let number = value.parse::<i64>();
        let right = match *self {
            Self::Int(min, max) | Self::Millis(min, max) => {
                number.is_ok_and(|number| (min..=max).contains(&number))
            }
            Self::OneOrInt(one, min, max) => {
                number.is_ok_and(|number| number == one || (min..=max).contains(&number))
            }
            Self::Bool | Self::Choice(_) | Self::Text(_) | Self::List(_) => true,
        };
        if right { Ok(()) } else { Err(self.to_string()) }
    }

    /// The word for the type in the documentation.
    fn type_name(&self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int(..) | Self::OneOrInt(..) => "integer",
            Self::Millis(..) => "milliseconds",
            Self::Choice(_) | Self::Text(_) => "string",
            Self::List(_) => "list",
        }
    }
}

/// The allowed values, as the end of the sentence "it must be …".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Int(min, max) => write!(f, "a whole number from {min} to {max}"),
            Self::OneOrInt(one, min, max) => write!(f, "{one}, or a whole number from {min} to {max}"),
            Self::Millis(min, max) => write!(f, "milliseconds from {min} to {max}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Text(form) | Self::List(form) => f.write_str(form),
        }
    }
}

/// The definition of one option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionDef {
    /// The name, Kafka's where Kafka has the option.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// The default; `None` where "not set" is itself a value.
    pub default: Option<&'static str>,
    /// Its documentation.
    pub doc: &'static str,
}

impl OptionDef {
    /// Parses a value. The error names the option and the allowed values.
    pub(crate) fn read<T: OptionValue>(&self, value: &str) -> Result<T, String> {
        let value = value.trim();
        self.kind
            .check(value)
            .and_then(|()| T::from_text(value).ok_or_else(|| self.kind.to_string()))
            .map_err(|allowed| self.refuse(value, &allowed))
    }

    /// Checks a value that was set without a text. `None` is valid if the option need not be set.
    pub(crate) fn check_set<T: OptionValue>(&self, value: &T) -> Result<(), String> {
        let text = value.to_text();
        if text.is_empty() && T::not_set().is_some() {
            return Ok(());
        }
        self.kind.check(&text).map_err(|allowed| self.refuse(&text, &allowed))
    }

    fn refuse(&self, value: &str, allowed: &str) -> String {
        format!("{} is {value:?}; it must be {allowed}", self.name)
    }

    /// The default value. The tables' defaults are valid: a test parses them all.
    pub(crate) fn default_value<T: OptionValue>(&self) -> T {
        let value = match self.default {
            Some(text) => self.read(text).ok(),
            None => T::not_set(),
        };
        value.unwrap_or_else(|| panic!("{} has an invalid default", self.name))
    }
}

/// Defines a struct of options, with further fields that have no text. A line is: documentation, `field: Type =
/// "option.name", kind, default;`.
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

            /// Sets an option of this table from its text. Returns whether the table has this option.
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

            /// Checks every number of this table against its range, however it was set.
            pub(crate) fn check_own(&self) -> Result<(), $crate::error::ClientError> {
                let mut definitions = Self::DEFINITIONS.iter();
                let mut next = || definitions.next().expect("one definition for each field");
                $( next().check_set(&self.$field).map_err($crate::error::ClientError::Invalid)?; )*
                Ok(())
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

    use super::{Kind, OptionDef};
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
    fn set_options_are_used() {
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

    /// Option, minimum and maximum in Kafka 4.3.1.
    const BOUNDS_OF_KAFKA: [(&str, i64, i64); 30] = [
        ("request.timeout.ms", 0, INT_MAX),
        ("default.api.timeout.ms", 0, INT_MAX),
        ("retry.backoff.ms", 0, i64::MAX),
        ("retry.backoff.max.ms", 0, i64::MAX),
        ("reconnect.backoff.ms", 0, i64::MAX),
        ("reconnect.backoff.max.ms", 0, i64::MAX),
        ("metadata.max.age.ms", 0, i64::MAX),
        ("max.in.flight.requests.per.connection", 1, INT_MAX),
        ("compression.gzip.level", 1, 9),
        ("compression.lz4.level", 1, 17),
        ("compression.zstd.level", -131_072, 22),
        ("linger.ms", 0, i64::MAX),
        ("batch.size", 0, INT_MAX),
        ("buffer.memory", 0, i64::MAX),
        ("max.request.size", 0, INT_MAX),
        ("max.block.ms", 0, i64::MAX),
        ("delivery.timeout.ms", 0, INT_MAX),
        ("retries", 0, INT_MAX),
        ("partitioner.availability.timeout.ms", 0, i64::MAX),
        ("session.timeout.ms", 1, INT_MAX),
        ("heartbeat.interval.ms", 1, INT_MAX),
        ("max.poll.interval.ms", 1, INT_MAX),
        ("auto.commit.interval.ms", 0, INT_MAX),
        ("fetch.min.bytes", 0, INT_MAX),
        ("fetch.max.bytes", 0, INT_MAX),
        ("max.partition.fetch.bytes", 0, INT_MAX),
        ("fetch.max.wait.ms", 0, INT_MAX),
        ("max.poll.records", 1, INT_MAX),
        ("socket.connection.setup.timeout.ms", 1, i64::MAX),
        ("read.ahead.bytes", 0, i64::MAX),
    ];
    const INT_MAX: i64 = i32::MAX as i64;

    /// Sets it in each table that has it; returns the errors.
    fn set_of_any(name: &str, value: i64) -> Result<(), String> {
        let (mut producer, mut consumer) = (producer(), consumer());
        let knows = |tables: &[&[OptionDef]]| tables.iter().any(|one| one.iter().any(|one| one.name == name));
        let mut taken = Ok(());
        if knows(&[ClusterOptions::DEFINITIONS, ProducerOptions::DEFINITIONS]) {
            taken = producer.set(name, &value.to_string()).map_err(|error| error.to_string());
        }
        if knows(&[ClusterOptions::DEFINITIONS, ConsumerOptions::DEFINITIONS]) {
            taken = taken.and(consumer.set(name, &value.to_string()).map_err(|error| error.to_string()));
        }
        taken
    }

    /// Except for a request timeout of 0, with which there would be no answers.
    #[test]
    fn numbers_have_the_bounds_that_kafka_has() {
        for (name, least, most) in BOUNDS_OF_KAFKA {
            for value in [least, most] {
                let taken = set_of_any(name, value);
                assert_eq!(
                    taken.is_ok(),
                    (name, value) != ("request.timeout.ms", 0),
                    "{name}={value}: {taken:?}"
                );
            }
        }
        let tables =
            [ClusterOptions::DEFINITIONS, ProducerOptions::DEFINITIONS, ConsumerOptions::DEFINITIONS];
        for definition in tables.into_iter().flatten() {
            let known = BOUNDS_OF_KAFKA.iter().any(|(name, ..)| *name == definition.name);
            let numeric = matches!(definition.kind, Kind::Int(..) | Kind::OneOrInt(..) | Kind::Millis(..));
            assert_eq!(known, numeric, "{}", definition.name);
        }
    }

    #[test]
    fn value_out_of_range_is_refused_with_name_and_range() {
        let tables =
            [ClusterOptions::DEFINITIONS, ProducerOptions::DEFINITIONS, ConsumerOptions::DEFINITIONS];
        for definition in tables.into_iter().flatten() {
            let (Kind::Int(least, most) | Kind::OneOrInt(_, least, most) | Kind::Millis(least, most)) =
                definition.kind
            else {
                continue;
            };
            for value in [least.checked_sub(1), most.checked_add(1)].into_iter().flatten() {
                let refused = set_of_any(definition.name, value).expect_err(definition.name);
                for part in [definition.name, &least.to_string(), &most.to_string(), &value.to_string()] {
                    assert!(refused.contains(part), "{part} in {refused}");
                }
            }
        }
        assert!(set_of_any("compression.gzip.level", -1).is_ok());
    }

    #[test]
    fn a_number_that_was_set_without_a_text_has_the_same_bounds() {
        let mut options = producer();
        options.request_bytes_max = usize::MAX;
        let refused = options.check_own().unwrap_err().to_string();
        assert!(refused.contains("max.request.size") && refused.contains("2147483647"), "{refused}");
        let mut options = consumer();
        options.auto_commit_interval = None;
        assert!(options.check_own().is_ok());
        options.poll_records = 0;
        assert!(options.check_own().is_err());
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
