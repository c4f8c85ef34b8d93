//! Writes the generated files: one module per message, the list of modules, and the table of keys.
//!
//! Owns the files' heads and docs. Every field's doc has its type on the wire, its versions and its default, which are
//! all the facts that the schema has.

use std::fmt::Write as _;

use super::codec;
use super::schema::{Field, Message, Role, SchemaFile, Struct, Type, Versions};
use super::types::{default_expression, default_is_natural, field_type, lifetime, schema_type};

/// First line of every generated file.
const NOTICE: &str = "// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.\n\n";

/// Name of the module of a message: its name in snake case.
pub(super) fn module_name(message: &Message) -> String {
    let mut name = String::new();
    for (index, letter) in message.name().char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The module of one message. A request comes with its response.
pub(super) fn message_file(message: &Message, response: Option<&Message>) -> String {
    let mut code = format!("{NOTICE}//! {}\n\n{}\n", module_doc(message), imports(message));
    for structure in &message.structs {
        code += &structure_code(message, structure);
    }
    if let Some(response) = response {
        code += &request_impl(message, response);
    }
    code
}

fn module_doc(message: &Message) -> String {
    let name = message.name();
    let what = match &message.role {
        Role::Request { api } => format!("Request of `{api}`."),
        Role::Response { api } => format!("Response of `{api}`."),
        Role::Data => format!("`{name}`, a message inside other messages."),
        Role::Key { record, record_type } => format!("Key of the record `{record}`, type {record_type}."),
        Role::Value { record } => format!("Value of the record `{record}`."),
    };
    let flexible = match message.flexible_from {
        Some(from) => format!(", tagged fields from version {from} on"),
        None => String::new(),
    };
    format!("{what} {}{flexible}.", capitalized(&versions_text(message.root().versions)))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn versions_text(versions: Versions) -> String {
    let Versions { min, max } = versions;
    if min == max { format!("version {min}") } else { format!("versions {min} to {max}") }
}

/// The `use` lines that the module needs.
fn imports(message: &Message) -> String {
    let kinds: Vec<_> =
        message.structs.iter().flat_map(|s| &s.fields).map(|field| leaf(&field.kind)).collect();
    let mut names = vec!["Decode", "Encode", "check_decode", "check_encode"];
    let optional = [(Type::Bytes, "Blob"), (Type::Records, "Records"), (Type::String, "Str")];
    names.extend(optional.iter().filter(|(kind, _)| kinds.contains(&kind)).map(|(_, name)| *name));
    let topic_id = if kinds.contains(&&Type::Uuid) { "use riverrun_types::TopicId;\n" } else { "" };
    let mut code = format!(
        "{topic_id}use crate::decoder::Decoder;\nuse crate::encoder::Encoder;\n\
         use crate::error::{{DecodeError, EncodeError}};\n"
    );
    if let Role::Request { .. } = message.role {
        names.push("Request");
        code += "use crate::ApiKey;\n";
    }
    code + &format!("use crate::message::{{{}}};\n", names.join(", "))
}

fn leaf(kind: &Type) -> &Type {
    match kind {
        Type::Array(element) => leaf(element),
        kind => kind,
    }
}

fn structure_code(message: &Message, structure: &Struct) -> String {
    let Struct { name, versions, fields } = structure;
    let life = lifetime(message, structure);
    let natural = fields.iter().all(default_is_natural);
    let mut code = format!("/// `{name}`, {}.\n", versions_text(*versions));
    let _ =
        writeln!(code, "#[derive(Clone, Debug, {}PartialEq, Eq)]", if natural { "Default, " } else { "" });
    let _ = writeln!(code, "pub struct {name}{life} {{");
    for field in fields {
        let _ = writeln!(code, "/// {}", field_doc(structure, field));
        let _ = writeln!(code, "pub {}: {},", field.name, field_type(message, field));
    }
    code += "}\n\n";
    if !natural {
        code += &default_impl(structure, life);
    }
    code + &codec::implementations(message, structure) + "\n"
}

fn field_doc(structure: &Struct, field: &Field) -> String {
    let mut facts = vec![format!("`{}`", schema_type(&field.kind))];
    if field.versions != structure.versions {
        facts.push(versions_text(field.versions));
    }
    if let Some(tag) = field.tag {
        facts.push(format!("tag {tag}"));
    }
    match field.nullable {
        None => {}
        Some(nullable) if nullable == field.versions => facts.push("may be null".into()),
        Some(nullable) => facts.push(format!("may be null in {}", versions_text(nullable))),
    }
    if let Some(default) = &field.default {
        facts.push(format!("default {default}"));
    }
    facts.join(", ") + "."
}

fn default_impl(structure: &Struct, life: &str) -> String {
    let name = &structure.name;
    let life = if life.is_empty() { "" } else { "<'_>" };
    let mut fields = String::new();
    for field in &structure.fields {
        let _ = writeln!(fields, "{}: {},", field.name, default_expression(field));
    }
    format!("impl Default for {name}{life} {{\nfn default() -> Self {{\nSelf {{\n{fields}}}\n}}\n}}\n\n")
}

/// The implementation that ties a request to its key and its response.
fn request_impl(request: &Message, response: &Message) -> String {
    let Role::Request { api } = &request.role else { unreachable!("only requests have responses") };
    let life = lifetime(request, request.root());
    let (generics, request_life) = if life.is_empty() { ("", "_") } else { ("<'a>", "a") };
    let response_life = if lifetime(response, response.root()).is_empty() { "" } else { "<'r>" };
    format!(
        "impl{generics} Request<'{request_life}> for {api}Request{life} {{\n\
         const KEY: ApiKey = ApiKey::{api};\n\
         type Response<'r> = super::{api}Response{response_life};\n}}\n"
    )
}

/// The module that lists the messages of one group, or of none.
pub(super) fn module_list(messages: &[&Message], groups: &[&str], head: &str) -> String {
    let mut code = format!("{NOTICE}//! {head}\n\n");
    for group in groups {
        let _ = writeln!(code, "pub(crate) mod {group};");
    }
    for message in messages {
        let _ = writeln!(code, "pub mod {};", module_name(message));
    }
    code.push('\n');
    for message in messages {
        let _ = writeln!(code, "pub use {}::{};", module_name(message), message.name());
    }
    code
}

/// The enum of keys and its table, in ascending order of key.
pub(super) fn api_keys(files: &[SchemaFile]) -> String {
    let mut files: Vec<_> = files.iter().filter(|file| file.api.is_some()).collect();
    files.sort_by_key(|file| file.api.as_ref().map(|api| api.key));
    let mut variants = String::new();
    let mut names = String::new();
    let mut arms = String::new();
    for file in files {
        let Some(api) = &file.api else { continue };
        let [request, response] = file.messages.as_slice() else { unreachable!("checked by load") };
        let name = &api.name;
        let codec = request.root().versions;
        let advertised = api.advertised.unwrap_or(codec);
        let _ =
            writeln!(variants, "/// Key {}, {}.\n{name} = {},", api.key, versions_text(advertised), api.key);
        let _ = writeln!(names, "Self::{name},");
        let _ = writeln!(
            arms,
            "Self::{name} => &ApiFacts {{ name: \"{name}\", advertised: ({}, {}), \
             codec: ({}, {}), flexible_request: {}, flexible_response: {} }},",
            advertised.min,
            advertised.max,
            codec.min,
            codec.max,
            flexible_from(request),
            flexible_from(response),
        );
    }
    format!(
        "{NOTICE}//! The keys of the requests in the schema.\n\nuse crate::api_key::ApiFacts;\n\n\
         /// A request of Kafka's protocol that Riverrun can read and write.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\n\
         pub enum ApiKey {{\n{variants}}}\n\n\
         impl ApiKey {{\n/// Every key, ascending.\npub const ALL: &'static [Self] = &[\n{names}];\n\n\
         #[expect(clippy::too_many_lines, reason = \"one arm for each key\")]\n\
         pub(crate) fn facts(self) -> &'static ApiFacts {{\nmatch self {{\n{arms}}}\n}}\n}}\n"
    )
}

fn flexible_from(message: &Message) -> String {
    message.flexible_from.map_or_else(|| "i16::MAX".into(), |from| from.to_string())
}

/// The table of every message, for tools that work on all of them.
pub(super) fn catalog(files: &[SchemaFile]) -> String {
    let rows: String =
        files.iter().flat_map(|file| file.messages.iter().map(move |m| (file, m))).map(row).collect();
    format!(
        "{NOTICE}//! Every message of the schema with its codec.\n\n\
         use crate::catalog::{{Codec, codec}};\n\n\
         pub(crate) const MESSAGES: &[Codec] = &[\n{rows}];\n"
    )
}

fn row((file, message): (&SchemaFile, &Message)) -> String {
    let Versions { min, max } = message.root().versions;
    let name = message.name();
    let path = file.group.as_ref().map(|group| format!("{group}::")).unwrap_or_default();
    format!("codec!(crate::generated::{path}{name}, \"{name}\", {min}, {max}),\n")
}
