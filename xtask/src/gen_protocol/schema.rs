//! The schema's text format, read into a tree and checked.
//!
//! Owns the grammar and every rule that a schema file must keep, so that the emitters can rely on it. Refuses,
//! with file and line: unknown words, struct types that nothing defines, structs that contain themselves, tags
//! that do not count up from zero, records that are inside a tagged field or never null, arrays of arrays.
//!
//! One file per request or family. `#` begins a comment, indentation is two spaces per level.
//!
//! ```text
//! group NAME                          the file's modules go below this module
//! api NAME KEY [advertised A-B]       a request and its response follow
//! request|response VERSIONS [flexible N+]
//! data NAME VERSIONS [flexible N+]    a message by itself
//! record NAME TYPE                    a log record: `key` and `value` follow, TYPE is the key's leading int16
//! key|value VERSIONS [flexible N+]
//!   FIELD TYPE [VERSIONS] [ATTRIBUTE ...]
//!     FIELD ...                       the fields of a struct that is defined where it is first used
//!   struct NAME                       a struct that several fields use, before the first of them
//!     FIELD ...
//! ```
//!
//! VERSIONS is `3-13`, `12+` (to the end of the enclosing range) or `1`; a field without it has its struct's.
//! TYPE is `bool int8 int16 int32 int64 uuid string bytes records`, a struct's name, or `[]` before one of these.
//! ATTRIBUTE is `null` or `null=VERSIONS` (may be null there), `default=VALUE` (else zero or empty), `tag=N`
//! (a tagged field), `ignorable` (dropped silently where a version lacks it).

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

/// An inclusive range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) min: i16,
    pub(crate) max: i16,
}

/// Type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Type>),
}

/// One field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Type,
    pub(crate) versions: Versions,
    pub(crate) nullable: Option<Versions>,
    pub(crate) default: Option<String>,
    pub(crate) tag: Option<u32>,
    pub(crate) ignorable: bool,
}

/// A struct, or a message's top level.
#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) versions: Versions,
    pub(crate) fields: Vec<Field>,
}

/// The purpose of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Request { api: String },
    Response { api: String },
    Data,
    Key { record: String, record_type: i16 },
    Value { record: String },
}

/// One message. `structs[0]` is its top level.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) flexible_from: Option<i16>,
    pub(crate) structs: Vec<Struct>,
}

/// One request key.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) name: String,
    pub(crate) key: i16,
    pub(crate) advertised: Option<Versions>,
}

/// One schema file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaFile {
    pub(crate) group: Option<String>,
    pub(crate) api: Option<Api>,
    pub(crate) messages: Vec<Message>,
}

impl Versions {
    /// Whether every version of `other` is one of these.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Whether `version` is one of these.
    pub(crate) fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    fn parse(text: &str, within: Self) -> Result<Self> {
        let parsed = if let Some(min) = text.strip_suffix('+') {
            Self { min: min.parse()?, max: within.max }
        } else if let Some((min, max)) = text.split_once('-') {
            Self { min: min.parse()?, max: max.parse()? }
        } else {
            let only = text.parse()?;
            Self { min: only, max: only }
        };
        ensure!(parsed.min <= parsed.max && within.covers(parsed), "versions {text} are outside {within:?}");
        Ok(parsed)
    }
}

/// The range that encloses every message's versions.
const ALL_VERSIONS: Versions = Versions { min: 0, max: i16::MAX };

impl Type {
    fn parse(text: &str) -> Self {
        match text {
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uuid" => Self::Uuid,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            other => match other.strip_prefix("[]") {
                Some(element) => Self::Array(Box::new(Self::parse(element))),
                None => Self::Struct(other.to_owned()),
            },
        }
    }

    /// The struct that this type holds, by itself or as an array's element.
    pub(crate) fn struct_name(&self) -> Option<&str> {
        match self {
            Self::Struct(name) => Some(name),
            Self::Array(element) => element.struct_name(),
            _ => None,
        }
    }
}

impl Message {
    /// The message's name.
    pub(crate) fn name(&self) -> &str {
        &self.root().name
    }

    /// The top level.
    pub(crate) fn root(&self) -> &Struct {
        &self.structs[0]
    }

    /// The struct of this name; [`parse`] has checked that there is one.
    pub(crate) fn structure(&self, name: &str) -> &Struct {
        self.structs.iter().find(|candidate| candidate.name == name).expect("checked when parsed")
    }

    /// Whether this version has compact lengths and tagged fields.
    pub(crate) fn is_flexible(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|from| version >= from)
    }
}

/// A line without its comment: level of indentation and words.
struct Line<'a> {
    number: usize,
    level: usize,
    words: Vec<&'a str>,
}

/// Reads one schema file.
pub(crate) fn parse(text: &str) -> Result<SchemaFile> {
    let mut file = SchemaFile::default();
    let mut record = None;
    let mut open: Vec<usize> = Vec::new();
    for line in lines(text) {
        let at = || format!("line {}", line.number);
        if line.level == 0 {
            open.clear();
            top_level_line(&mut file, &mut record, &line.words).with_context(at)?;
        } else {
            let message = file.messages.last_mut().context("a field before any message").with_context(at)?;
            nested_line(message, &mut open, &line).with_context(at)?;
        }
    }
    for message in &file.messages {
        check(message).with_context(|| message.name().to_owned())?;
    }
    Ok(file)
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = line.split_whitespace().collect();
        let level = (line.len() - line.trim_start().len()) / 2;
        (!words.is_empty()).then_some(Line { number: index + 1, level, words })
    })
}

fn top_level_line(file: &mut SchemaFile, record: &mut Option<(String, i16)>, words: &[&str]) -> Result<()> {
    match *words {
        ["group", name] => file.group = Some(name.to_owned()),
        ["api", name, key] => {
            file.api = Some(Api { name: name.to_owned(), key: key.parse()?, advertised: None });
        }
        ["api", name, key, "advertised", versions] => {
            let advertised = Some(Versions::parse(versions, ALL_VERSIONS)?);
            file.api = Some(Api { name: name.to_owned(), key: key.parse()?, advertised });
        }
        ["record", name, record_type] => *record = Some((name.to_owned(), record_type.parse()?)),
        ["data", name, ref rest @ ..] => {
            file.messages.push(message(name.to_owned(), Role::Data, rest)?);
        }
        [part @ ("request" | "response"), ref rest @ ..] => {
            let api = file.api.as_ref().context("a request or response before its api")?.name.clone();
            let is_request = part == "request";
            let name = format!("{api}{}", if is_request { "Request" } else { "Response" });
            let role = if is_request { Role::Request { api } } else { Role::Response { api } };
            file.messages.push(message(name, role, rest)?);
        }
        [part @ ("key" | "value"), ref rest @ ..] => {
            let (record, record_type) = record.clone().context("a key or value before its record")?;
            let is_key = part == "key";
            let name = format!("{record}{}", if is_key { "Key" } else { "Value" });
            let role = if is_key { Role::Key { record, record_type } } else { Role::Value { record } };
            file.messages.push(message(name, role, rest)?);
        }
        _ => bail!("not a line of the schema: {}", words.join(" ")),
    }
    Ok(())
}

fn message(name: String, role: Role, rest: &[&str]) -> Result<Message> {
    let (versions, flexible_from) = match *rest {
        [versions] => (Versions::parse(versions, ALL_VERSIONS)?, None),
        [versions, "flexible", from] => {
            let versions = Versions::parse(versions, ALL_VERSIONS)?;
            (versions, Some(Versions::parse(from, versions)?.min))
        }
        _ => bail!("versions and `flexible N+` expected"),
    };
    let root = Struct { name, versions, fields: Vec::new() };
    Ok(Message { role, flexible_from, structs: vec![root] })
}

/// A `struct` or field line. `open[level - 1]` is the struct that takes fields at that level.
fn nested_line(message: &mut Message, open: &mut Vec<usize>, line: &Line<'_>) -> Result<()> {
    if open.is_empty() {
        open.push(0);
    }
    ensure!(line.level <= open.len(), "indented below a field that is no new struct");
    open.truncate(line.level);
    if let ["struct", name] = *line.words {
        ensure!(line.level == 1, "a shared struct stands at the message's level");
        let versions = message.root().versions;
        open.push(message.structs.len());
        message.structs.push(Struct { name: name.to_owned(), versions, fields: Vec::new() });
        return Ok(());
    }
    let owner = open[line.level - 1];
    let field = field(&line.words, message.structs[owner].versions)?;
    let versions = field.versions;
    let defines = field.kind.struct_name().filter(|name| !message.structs.iter().any(|s| s.name == *name));
    if let Some(name) = defines.map(str::to_owned) {
        open.push(message.structs.len());
        message.structs.push(Struct { name, versions, fields: Vec::new() });
    }
    message.structs[owner].fields.push(field);
    Ok(())
}

fn field(words: &[&str], within: Versions) -> Result<Field> {
    let [name, kind, ref rest @ ..] = *words else { bail!("a field has a name and a type") };
    let mut field = Field {
        name: name.to_owned(),
        kind: Type::parse(kind),
        versions: within,
        nullable: None,
        default: None,
        tag: None,
        ignorable: false,
    };
    for word in rest {
        match word.split_once('=') {
            None if word.starts_with(|c: char| c.is_ascii_digit()) => {
                field.versions = Versions::parse(word, within)?;
            }
            None if *word == "null" => field.nullable = Some(field.versions),
            None if *word == "ignorable" => field.ignorable = true,
            Some(("null", versions)) => field.nullable = Some(Versions::parse(versions, field.versions)?),
            Some(("default", value)) => field.default = Some(value.to_owned()),
            Some(("tag", tag)) => field.tag = Some(tag.parse()?),
            _ => bail!("unknown attribute {word}"),
        }
    }
    Ok(field)
}

/// The rules that span more than one line.
fn check(message: &Message) -> Result<()> {
    let mut seen = BTreeSet::new();
    for structure in &message.structs {
        ensure!(seen.insert(&structure.name), "{} is defined twice", structure.name);
        ensure!(!structure.fields.is_empty(), "{} has no fields", structure.name);
        let tags: Vec<_> = structure.fields.iter().filter_map(|field| field.tag).collect();
        let counts_up = tags.iter().enumerate().all(|(index, tag)| *tag as usize == index);
        ensure!(counts_up && tags.len() < 0x80, "{}: tags count up from zero", structure.name);
        for field in &structure.fields {
            check_field(message, field).with_context(|| format!("{}.{}", structure.name, field.name))?;
        }
    }
    check_depth(message, &message.root().name, message.structs.len())
}

fn check_field(message: &Message, field: &Field) -> Result<()> {
    if field.tag.is_some() {
        ensure!(message.is_flexible(field.versions.min), "tagged before the versions are flexible");
        ensure!(field.kind != Type::Records, "records inside a tagged field");
    }
    if let Some(name) = field.kind.struct_name() {
        ensure!(message.structs.iter().any(|s| s.name == name), "no struct {name}");
    }
    if let Type::Array(element) = &field.kind {
        ensure!(!matches!(**element, Type::Array(_) | Type::Records), "an array of arrays or records");
    }
    let may_be_null_always = field.nullable == Some(field.versions);
    ensure!(field.kind != Type::Records || may_be_null_always, "records that are never null");
    ensure!(
        field.default.as_deref() != Some("null") || field.nullable.is_some(),
        "null by default, never null"
    );
    Ok(())
}

/// A struct that contains itself would let the input decide the depth of recursion.
fn check_depth(message: &Message, name: &str, budget: usize) -> Result<()> {
    ensure!(budget > 0, "{name} contains itself");
    let inner = message.structure(name).fields.iter().filter_map(|field| field.kind.struct_name());
    for name in inner {
        check_depth(message, name, budget - 1)?;
    }
    Ok(())
}
