//! Writes the `Decode` and `Encode` implementations of one struct.
//!
//! Owns the translation of versions into conditions. A condition that is constant over the struct's own versions is not
//! written, and neither is a constant flexible flag, so that most fields are one call.

use std::fmt::Write as _;

use super::schema::{Field, Message, Struct, Type, Versions};
use super::types::{default_expression, differs_from_default, element_bytes_min, lifetime};

/// The two implementations. `is_root` adds the check of the version.
pub(super) fn implementations(message: &Message, structure: &Struct) -> String {
    let is_root = structure.name == message.name();
    format!("{}\n{}", decode(message, structure, is_root), encode(message, structure, is_root))
}

/// The condition under which a version of `within` is one of `versions`; `None` if it always is.
fn condition(versions: Versions, within: Versions) -> Option<String> {
    let from_start = versions.min <= within.min;
    let to_end = versions.max >= within.max;
    match (from_start, to_end) {
        (true, true) => None,
        _ if versions.min == versions.max => Some(format!("version == {}", versions.min)),
        (false, true) => Some(format!("version >= {}", versions.min)),
        (true, false) => Some(format!("version <= {}", versions.max)),
        (false, false) => Some(format!("({}..={}).contains(&version)", versions.min, versions.max)),
    }
}

/// The condition under which a version of `within` is none of `versions`; `None` if it never is.
fn negated_condition(versions: Versions, within: Versions) -> Option<String> {
    let condition = condition(versions, within)?;
    let flipped = [(" >= ", " < "), (" <= ", " > "), (" == ", " != ")];
    let flip = flipped.iter().find(|(from, _)| condition.contains(from));
    Some(flip.map_or_else(|| format!("!{condition}"), |(from, to)| condition.replace(from, to)))
}

/// The flexible flag in `versions`: a literal if it is constant, else the variable of the function.
fn flexible(message: &Message, versions: Versions) -> &'static str {
    match message.flexible_from {
        None => "false",
        Some(from) if from <= versions.min => "true",
        Some(from) if from > versions.max => "false",
        Some(_) => "flexible",
    }
}

/// The line that defines the flexible variable, if a field needs it.
fn flexible_variable(message: &Message, structure: &Struct) -> String {
    match message.flexible_from {
        Some(from) if flexible(message, structure.versions) == "flexible" => {
            format!("let flexible = version >= {from};\n")
        }
        _ => String::new(),
    }
}

/// Wraps a body in its function, with underscores on the names of parameters that the body does not use.
fn function(signature_to_version: &str, result: &str, body: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let used = body.split(|c| !is_name(c)).any(|word| word == "version");
    let version = if used { "version" } else { "_version" };
    format!("{signature_to_version}{version}: i16) -> Result<{result}> {{\n{body}}}\n")
}

fn decode(message: &Message, structure: &Struct, is_root: bool) -> String {
    let Struct { name, versions, fields } = structure;
    let life = lifetime(message, structure);
    let mut body = String::new();
    if is_root {
        let _ = writeln!(body, "check_decode(version, {}, {})?;", versions.min, versions.max);
    }
    body += &flexible_variable(message, structure);
    for field in fields {
        body += &decode_field(message, structure, field);
    }
    body += &decode_tags(message, structure);
    let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
    let _ = writeln!(body, "Ok(Self {{ {} }})", names.join(", "));
    let function = function("fn decode(d: &mut Decoder<'a>, ", "Self, DecodeError", &body);
    format!("impl<'a> Decode<'a> for {name}{life} {{\n{function}}}\n")
}

fn decode_field(message: &Message, structure: &Struct, field: &Field) -> String {
    let name = &field.name;
    if field.tag.is_some() {
        return format!("let mut {name} = {};\n", default_expression(field));
    }
    let value = decode_value(message, field);
    match condition(field.versions, structure.versions) {
        None => format!("let {name} = {value};\n"),
        Some(condition) => {
            let default = default_expression(field);
            format!("let {name} = if {condition} {{ {value} }} else {{ {default} }};\n")
        }
    }
}

/// The expression that reads a field, in versions that have it.
fn decode_value(message: &Message, field: &Field) -> String {
    let plain = |nullable| decode_type(message, &field.kind, field.versions, nullable);
    match field.nullable {
        None => plain(false),
        Some(nullable) => match condition(nullable, field.versions) {
            None => plain(true),
            Some(condition) => {
                format!("if {condition} {{ {} }} else {{ Some({}) }}", plain(true), plain(false))
            }
        },
    }
}

fn decode_type(message: &Message, kind: &Type, versions: Versions, nullable: bool) -> String {
    let prefix = if nullable { "nullable_" } else { "" };
    let flexible = flexible(message, versions);
    match kind {
        Type::Bool | Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 | Type::Uuid => {
            format!("d.{}()?", method(kind))
        }
        Type::String | Type::Bytes | Type::Records => format!("d.{prefix}{}({flexible})?", method(kind)),
        Type::Struct(_) if nullable => "d.nullable_struct(version)?".into(),
        Type::Struct(name) => format!("{name}::decode(d, version)?"),
        Type::Array(element) => {
            let bytes_min = element_bytes_min(message, element, versions);
            match element.as_ref() {
                Type::Struct(_) => format!("d.{prefix}structs({flexible}, {bytes_min}, version)?"),
                Type::String | Type::Bytes => {
                    let method = method(element);
                    format!("d.{prefix}array({flexible}, {bytes_min}, |d| d.{method}({flexible}))?")
                }
                element => format!("d.{prefix}array({flexible}, {bytes_min}, Decoder::{})?", method(element)),
            }
        }
    }
}

/// Name of the method that reads or writes a type that is no struct and no array.
fn method(kind: &Type) -> &'static str {
    match kind {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Int32 => "i32",
        Type::Int64 => "i64",
        Type::Uuid => "uuid",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Records => "records",
        Type::Struct(_) | Type::Array(_) => unreachable!("written by their own branches"),
    }
}

fn decode_tags(message: &Message, structure: &Struct) -> String {
    let tagged: Vec<_> = structure.fields.iter().filter(|field| field.tag.is_some()).collect();
    let flag = flexible(message, structure.versions);
    let statement = if flag == "false" {
        return String::new();
    } else if tagged.is_empty() {
        "d.skip_tagged_fields()?;\n".to_owned()
    } else {
        let arms: String = tagged.iter().map(|field| decode_tag(message, structure, field)).collect();
        format!("d.tagged_fields(|d, tag| {{ match tag {{ {arms} _ => return Ok(false) }} Ok(true) }})?;\n")
    };
    if flag == "true" { statement } else { format!("if {flag} {{ {statement} }}\n") }
}

fn decode_tag(message: &Message, structure: &Struct, field: &Field) -> String {
    let (name, value) = (&field.name, decode_value(message, field));
    let tag = field.tag.unwrap_or_default();
    let flexible_versions = flexible_part(message, structure);
    let guard = condition(field.versions, flexible_versions).map(|text| format!(" if {text}"));
    format!("{tag}{} => {name} = {value},\n", guard.unwrap_or_default())
}

/// The versions of a struct in which it has tagged fields.
fn flexible_part(message: &Message, structure: &Struct) -> Versions {
    let from = message.flexible_from.unwrap_or(i16::MAX);
    Versions { min: from.max(structure.versions.min), max: structure.versions.max }
}

fn encode(message: &Message, structure: &Struct, is_root: bool) -> String {
    let Struct { name, versions, fields } = structure;
    let life = if lifetime(message, structure).is_empty() { "" } else { "<'_>" };
    let mut body = String::new();
    if is_root {
        let _ = writeln!(body, "check_encode(version, {}, {})?;", versions.min, versions.max);
    }
    body += &flexible_variable(message, structure);
    for field in fields.iter().filter(|field| field.tag.is_none()) {
        body += &encode_field(message, structure, field);
    }
    body += &encode_tags(message, structure);
    body += "Ok(())\n";
    let function = function("fn encode(&self, e: &mut Encoder, ", "(), EncodeError", &body);
    format!("impl Encode for {name}{life} {{\n{function}}}\n")
}

fn encode_field(message: &Message, structure: &Struct, field: &Field) -> String {
    let write = encode_value(message, field);
    let Some(condition) = condition(field.versions, structure.versions) else { return write };
    if field.ignorable {
        return format!("if {condition} {{ {write} }}\n");
    }
    format!("if {condition} {{ {write} }} else if {} {{ {} }}\n", differs(field), absent(field))
}

fn differs(field: &Field) -> String {
    differs_from_default(field, &format!("self.{}", field.name))
}

fn absent(field: &Field) -> String {
    format!("return Err(EncodeError::AbsentField {{ field: \"{}\", version }});", field.name)
}

/// The statements that write a field, in versions that have it.
fn encode_value(message: &Message, field: &Field) -> String {
    let Field { name, versions, .. } = field;
    match field.nullable {
        None => encode_type(message, &field.kind, *versions, false, &format!("self.{name}")),
        Some(nullable) => {
            let write = encode_type(message, &field.kind, *versions, true, &format!("self.{name}"));
            match negated_condition(nullable, *versions) {
                None => write,
                Some(without_null) => format!(
                    "if {without_null} && self.{name}.is_none() {{ \
                     return Err(EncodeError::NullField {{ field: \"{name}\", version }}); }}\n{write}"
                ),
            }
        }
    }
}

fn encode_type(message: &Message, kind: &Type, versions: Versions, nullable: bool, place: &str) -> String {
    let prefix = if nullable { "nullable_" } else { "" };
    let flexible = flexible(message, versions);
    match kind {
        Type::Bool | Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 | Type::Uuid => {
            format!("e.{}({place});\n", method(kind))
        }
        Type::Records => format!("e.{prefix}records({flexible}, {place})?;\n"),
        Type::String | Type::Bytes => {
            let value = if nullable { format!("{place}.as_deref()") } else { format!("&{place}") };
            format!("e.{prefix}{}({flexible}, {value})?;\n", method(kind))
        }
        Type::Struct(_) if nullable => format!("e.nullable_struct({place}.as_ref(), version)?;\n"),
        Type::Struct(_) => format!("{place}.encode(e, version)?;\n"),
        Type::Array(element) => {
            let value = if nullable { format!("{place}.as_deref()") } else { format!("&{place}") };
            match element.as_ref() {
                Type::Struct(_) => format!("e.{prefix}structs({flexible}, {value}, version)?;\n"),
                Type::String | Type::Bytes => {
                    let method = method(element);
                    format!(
                        "e.{prefix}array({flexible}, {value}, |e, value| e.{method}({flexible}, value))?;\n"
                    )
                }
                element => {
                    let method = method(element);
                    format!(
                        "e.{prefix}array({flexible}, {value}, |e, value| {{ e.{method}(*value); Ok(()) }})?;\n"
                    )
                }
            }
        }
    }
}

fn encode_tags(message: &Message, structure: &Struct) -> String {
    let tagged: Vec<_> = structure.fields.iter().filter(|field| field.tag.is_some()).collect();
    let refusals: String = tagged
        .iter()
        .filter(|field| !field.ignorable)
        .filter_map(|field| {
            let lacking = negated_condition(field.versions, structure.versions)?;
            Some(format!("if {lacking} && {} {{ {} }}\n", differs(field), absent(field)))
        })
        .collect();
    let flag = flexible(message, structure.versions);
    let statements = if flag == "false" {
        return refusals;
    } else if tagged.is_empty() {
        "e.no_tagged_fields();\n".to_owned()
    } else {
        let fields: String = tagged.iter().map(|field| encode_tag(message, structure, field)).collect();
        format!("let tags = e.begin_tagged_fields();\n{fields}")
    };
    if flag == "true" { refusals + &statements } else { format!("{refusals}if {flag} {{ {statements} }}\n") }
}

fn encode_tag(message: &Message, structure: &Struct, field: &Field) -> String {
    let in_version = condition(field.versions, flexible_part(message, structure));
    let guard = in_version.map(|text| format!("{text} && ")).unwrap_or_default();
    let (differs, write) = (differs(field), encode_value(message, field));
    let tag = field.tag.unwrap_or_default();
    format!(
        "if {guard}{differs} {{ let start = e.begin_tagged_field(&tags, {tag});\n{write}e.end_tagged_field(&start)?; }}\n"
    )
}
