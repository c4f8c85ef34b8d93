//! One event as one line: as text for people, or as a JSON object for programs.
//!
//! Guarantees that a line has one line feed, its last byte, and no other control character, whatever a client has named a
//! topic or itself, and that its length has a bound.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value as Json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::Context;

use super::queue::LogQueue;

/// Bytes of one field's value at most. A path, an error or a backtrace fits; what a client made longer helps nobody.
const VALUE_BYTES_MAX: usize = 4096;
/// Behind a value that was cut.
const CUT: &str = "...";

/// The form of lines, which may change while the process runs.
pub(super) struct Style {
    is_json: AtomicBool,
    has_colours: bool,
}

impl Style {
    pub(super) fn new(has_colours: bool) -> Self {
        Self { is_json: AtomicBool::new(false), has_colours }
    }

    pub(super) fn set_json(&self, is_json: bool) {
        self.is_json.store(is_json, Ordering::Relaxed);
    }

    pub(super) fn is_json(&self) -> bool {
        self.is_json.load(Ordering::Relaxed)
    }

    /// A line as it is written, with its end.
    pub(super) fn line(
        &self,
        level: Level,
        target: &str,
        message: &str,
        fields: &[(&'static str, Value)],
    ) -> String {
        if self.is_json() {
            json_line(level, target, message, fields)
        } else {
            self.text_line(level, target, message, fields)
        }
    }

    fn text_line(
        &self,
        level: Level,
        target: &str,
        message: &str,
        fields: &[(&'static str, Value)],
    ) -> String {
        let mut line = String::with_capacity(256);
        let (dim, coloured, plain) = match (self.has_colours, level) {
            (false, _) => ("", "", ""),
            (true, Level::ERROR) => ("\x1b[2m", "\x1b[31m", "\x1b[0m"),
            (true, Level::WARN) => ("\x1b[2m", "\x1b[33m", "\x1b[0m"),
            (true, Level::INFO) => ("\x1b[2m", "\x1b[32m", "\x1b[0m"),
            (true, _) => ("\x1b[2m", "\x1b[34m", "\x1b[0m"),
        };
        let time = now();
        write!(line, "{dim}{time}{plain} {coloured}{level:>5}{plain} {dim}{target}:{plain} ")
            .expect("a String takes every text");
        push_escaped(&mut line, message);
        for (name, value) in fields {
            line.extend([" ", name, "="]);
            match value {
                Value::Quoted(text) => write!(line, "{text:?}").expect("a String takes every text"),
                Value::Shown(text) => push_escaped(&mut line, text),
                Value::Plain(value) => write!(line, "{value}").expect("a String takes every text"),
            }
        }
        line.push('\n');
        line
    }
}

fn json_line(level: Level, target: &str, message: &str, fields: &[(&'static str, Value)]) -> String {
    let of = |value: &Value| match value {
        Value::Quoted(text) | Value::Shown(text) => Json::String(text.clone()),
        Value::Plain(value) => value.clone(),
    };
    let fields: Map<String, Json> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), of(value))).collect();
    let line = serde_json::json!({
        "timestamp": now(),
        "level": level.as_str(),
        "target": target,
        "message": message,
        "fields": fields,
    });
    format!("{line}\n")
}

fn now() -> String {
    let mut time = String::new();
    // A clock before 1970 has no text; the line is worth more than its time.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

/// Control characters as a program would write them: a line feed in a name must not look like the end of the line, and
/// an escape sequence must not reach a terminal.
fn push_escaped(line: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

/// The value of a field.
pub(super) enum Value {
    /// A text that stands in quotes.
    Quoted(String),
    /// A type's own formatting.
    Shown(String),
    /// A number or a truth.
    Plain(Json),
}

/// Takes text up to a bound, and says when it had to stop, so that whatever formats itself stops as well.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = VALUE_BYTES_MAX - self.0.len().min(VALUE_BYTES_MAX);
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(left)]);
        self.0.push_str(CUT);
        Err(fmt::Error)
    }
}

fn bounded(text: fmt::Arguments<'_>) -> String {
    let mut taken = Bounded(String::new());
    // An error says that it was cut.
    let _ = taken.write_fmt(text);
    taken.0
}

/// The message and the fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.others.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = bounded(format_args!("{value}"));
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, Value::Quoted(text));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = bounded(format_args!("{value:?}"));
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, Value::Shown(text));
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Plain(value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::Plain(value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::Plain(value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::Plain(value.into()));
    }
}

/// Makes each event a line and puts it into the queue.
pub(super) struct LineLayer {
    queue: Arc<LogQueue>,
}

impl LineLayer {
    pub(super) fn new(queue: Arc<LogQueue>) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber> Layer<S> for LineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let about = event.metadata();
        let line = self.queue.style().line(*about.level(), about.target(), &fields.message, &fields.others);
        self.queue.push(line);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::queue::tests::{new_queue, taken_text};
    use super::*;

    fn logged(is_json: bool, log: impl FnOnce()) -> String {
        let queue = Arc::new(new_queue());
        queue.style().set_json(is_json);
        let subscriber = tracing_subscriber::registry().with(LineLayer::new(Arc::clone(&queue)));
        tracing::subscriber::with_default(subscriber, log);
        taken_text(&queue)
    }

    fn of_a_hostile_name() {
        let name = "a\n2000-01-01 ERROR forged\x1b[31m";
        tracing::warn!(topic = name, shown = %name, debug = ?name, count = 7, right = true, "made {name}");
    }

    #[test]
    fn a_hostile_name_makes_no_second_line_of_text() {
        let text = logged(false, of_a_hostile_name);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(text.ends_with('\n') && !text.contains('\x1b'), "{text}");
        let end =
            " WARN riverrun_tools::logging::line::tests: made a\\n2000-01-01 ERROR forged\\u{1b}[31m topic=";
        assert!(text.contains(end), "{text}");
        assert!(text.contains(" count=7 right=true"), "{text}");
    }

    #[test]
    fn a_json_line_is_one_object_with_typed_fields() {
        let text = logged(true, of_a_hostile_name);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: Json = serde_json::from_str(&text).expect("one object");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["target"], "riverrun_tools::logging::line::tests");
        assert_eq!(line["message"], "made a\n2000-01-01 ERROR forged\x1b[31m");
        assert_eq!(line["fields"]["topic"], "a\n2000-01-01 ERROR forged\x1b[31m");
        assert_eq!((&line["fields"]["count"], &line["fields"]["right"]), (&Json::from(7), &Json::from(true)));
        assert!(line["timestamp"].as_str().expect("a time").ends_with('Z'), "{text}");
    }

    #[test]
    fn a_long_value_is_cut_at_a_character() {
        let name = "ä".repeat(1_000_000);
        for is_json in [false, true] {
            let text = logged(is_json, || tracing::info!(name, shown = %name, "{name}"));
            assert!(text.len() < 4 * VALUE_BYTES_MAX, "{} bytes", text.len());
            assert_eq!(text.matches("ä...").count(), 3);
        }
    }
}
