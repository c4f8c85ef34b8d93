//! The schema's types in Rust and on the wire.
//!
//! Owns the mapping to Rust types, defaults, lifetimes and smallest sizes, on which both the structs and their
//! codecs rely.

use super::schema::{Field, Message, Struct, Type, Versions};

/// Whether values of this type borrow from the input.
pub(super) fn type_borrows(message: &Message, kind: &Type) -> bool {
    match kind {
        Type::String | Type::Bytes | Type::Records => true,
        Type::Struct(name) => struct_borrows(message, message.structure(name)),
        Type::Array(element) => type_borrows(message, element),
        _ => false,
    }
}

/// Whether the struct has a lifetime.
pub(super) fn struct_borrows(message: &Message, structure: &Struct) -> bool {
    structure.fields.iter().any(|field| type_borrows(message, &field.kind))
}

/// `<'a>` if the struct has a lifetime.
pub(super) fn lifetime(message: &Message, structure: &Struct) -> &'static str {
    if struct_borrows(message, structure) { "<'a>" } else { "" }
}

/// The Rust type of a field.
pub(super) fn field_type(message: &Message, field: &Field) -> String {
    let inner = bare_type(message, &field.kind);
    if is_option(field) { format!("Option<{inner}>") } else { inner }
}

/// Whether the field is an `Option`. Records always are: the schema's reader ensures it.
pub(super) fn is_option(field: &Field) -> bool {
    field.nullable.is_some()
}

fn bare_type(message: &Message, kind: &Type) -> String {
    match kind {
        Type::Bool => "bool".into(),
        Type::Int8 => "i8".into(),
        Type::Int16 => "i16".into(),
        Type::Int32 => "i32".into(),
        Type::Int64 => "i64".into(),
        Type::Uuid => "TopicId".into(),
        Type::String => "Str<'a>".into(),
        Type::Bytes => "Blob<'a>".into(),
        Type::Records => "Records<'a>".into(),
        Type::Struct(name) => format!("{name}{}", lifetime(message, message.structure(name))),
        Type::Array(element) => format!("Vec<{}>", bare_type(message, element)),
    }
}

/// The type in the schema's notation.
pub(super) fn schema_type(kind: &Type) -> String {
    match kind {
        Type::Bool => "bool".into(),
        Type::Int8 => "int8".into(),
        Type::Int16 => "int16".into(),
        Type::Int32 => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Uuid => "uuid".into(),
        Type::String => "string".into(),
        Type::Bytes => "bytes".into(),
        Type::Records => "records".into(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("[]{}", schema_type(element)),
    }
}

/// Whether the field's default is that of `Default::default()` for its Rust type.
pub(super) fn default_is_natural(field: &Field) -> bool {
    match field.default.as_deref() {
        _ if field.kind == Type::Records => true,
        Some("null") => true,
        Some(_) => false,
        None => !is_option(field),
    }
}

/// The field's default as a Rust expression.
pub(super) fn default_expression(field: &Field) -> String {
    match (&field.kind, field.default.as_deref()) {
        (_, Some("null")) | (Type::Records, _) => "None".into(),
        (_, Some(value)) => digits_grouped(value),
        (Type::Bool, None) => "false".into(),
        (Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64, None) => "0".into(),
        (Type::Uuid, None) => "TopicId::ZERO".into(),
        (Type::Struct(name), None) => format!("{name}::default()"),
        (Type::String, None) if is_option(field) => "Some(Str::Borrowed(\"\"))".into(),
        (Type::String, None) => "Str::Borrowed(\"\")".into(),
        (Type::Bytes, None) if is_option(field) => "Some(Blob::Borrowed(&[]))".into(),
        (Type::Bytes, None) => "Blob::Borrowed(&[])".into(),
        (Type::Array(_), None) if is_option(field) => "Some(Vec::new())".into(),
        (Type::Array(_), None) => "Vec::new()".into(),
    }
}

/// A number with digits grouped as in Rust code: `2_147_483_647`. Other words stay unchanged.
fn digits_grouped(value: &str) -> String {
    let (sign, digits) = value.strip_prefix('-').map_or(("", value), |digits| ("-", digits));
    if digits.len() < 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.to_owned();
    }
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{sign}{}", groups.join("_"))
}

/// A condition that holds when `place` (an expression such as `self.name`) is not the field's default.
pub(super) fn differs_from_default(field: &Field, place: &str) -> String {
    let default = default_expression(field);
    match (&field.kind, field.default.as_deref()) {
        (_, Some("null")) | (Type::Records, _) => format!("{place}.is_some()"),
        (Type::Bool, None | Some("false")) => place.to_owned(),
        (Type::Bool, Some(_)) => format!("!{place}"),
        (Type::Uuid, _) => format!("!{place}.is_zero()"),
        (Type::String | Type::Bytes | Type::Array(_), None) if is_option(field) => {
            format!("{place}.as_ref().is_none_or(|value| !value.is_empty())")
        }
        (Type::String | Type::Bytes | Type::Array(_), None) => format!("!{place}.is_empty()"),
        _ => format!("{place} != {default}"),
    }
}

/// The fewest bytes that an element of an array takes in any of `versions`.
pub(super) fn element_bytes_min(message: &Message, element: &Type, versions: Versions) -> usize {
    let versions = Versions { max: versions.max.min(message.root().versions.max), ..versions };
    (versions.min..=versions.max).map(|version| bytes_min(message, element, version)).min().unwrap_or(1)
}

fn bytes_min(message: &Message, kind: &Type, version: i16) -> usize {
    let flexible = message.is_flexible(version);
    match kind {
        Type::Bool | Type::Int8 => 1,
        Type::Int16 => 2,
        Type::Int32 => 4,
        Type::Int64 => 8,
        Type::Uuid => 16,
        _ if flexible && !matches!(kind, Type::Struct(_)) => 1,
        Type::String => 2,
        Type::Bytes | Type::Records | Type::Array(_) => 4,
        Type::Struct(name) => struct_bytes_min(message, message.structure(name), version),
    }
}

fn struct_bytes_min(message: &Message, structure: &Struct, version: i16) -> usize {
    let fields = structure.fields.iter();
    let present = fields.filter(|field| field.tag.is_none() && field.versions.contains(version));
    let fields_bytes: usize = present.map(|field| field_bytes_min(message, field, version)).sum();
    fields_bytes + usize::from(message.is_flexible(version))
}

fn field_bytes_min(message: &Message, field: &Field, version: i16) -> usize {
    let null = field.nullable.is_some_and(|nullable| nullable.contains(version));
    match &field.kind {
        Type::Struct(_) if null => 1,
        kind => bytes_min(message, kind, version),
    }
}
