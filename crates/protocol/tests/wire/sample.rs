//! Random bytes of a message, straight from the schema.
//!
//! A sample is valid input that encodes back to itself: bools are 0 or 1, tagged fields appear only with values other
//! than their default, and no tag is unknown.

use crate::schema::{Field, Message, Struct, Type};

/// Random numbers from a seed (splitmix64), so that a failing case is one number.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }
}

/// Whether a value may be its field's default.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    Any,
    NotDefault,
}

/// The state of writing a message's bytes.
struct Writer<'s> {
    message: &'s Message,
    version: i16,
    flexible: bool,
    random: &'s mut Random,
    out: Vec<u8>,
}

/// Random bytes of one message.
pub(crate) fn bytes(message: &Message, version: i16, random: &mut Random) -> Vec<u8> {
    let flexible = message.is_flexible(version);
    let mut writer = Writer { message, version, flexible, random, out: Vec::new() };
    writer.structure(message.root(), Value::Any);
    writer.out
}

impl Writer<'_> {
    fn structure(&mut self, structure: &Struct, value: Value) {
        let version = self.version;
        for field in structure.fields.iter().filter(|f| f.tag.is_none() && f.versions.contains(version)) {
            self.field(field, value);
        }
        if self.flexible {
            self.tagged_fields(structure);
        }
    }

    fn tagged_fields(&mut self, structure: &Struct) {
        let (version, coin) = (self.version, self.random.next());
        let written = |field: &&Field| match field.tag {
            Some(tag) => field.versions.contains(version) && coin >> tag & 1 == 1,
            None => false,
        };
        let fields: Vec<_> = structure.fields.iter().filter(written).collect();
        self.varint(fields.len());
        for field in fields {
            self.varint(field.tag.unwrap() as usize);
            let outer = std::mem::take(&mut self.out);
            self.field(field, Value::NotDefault);
            let content = std::mem::replace(&mut self.out, outer);
            self.varint(content.len());
            self.out.extend(content);
        }
    }

    fn field(&mut self, field: &Field, value: Value) {
        let nullable = field.nullable.is_some_and(|versions| versions.contains(self.version));
        let is_null = nullable && value == Value::Any && self.random.below(3) == 0;
        match &field.kind {
            Type::Struct(name) => self.struct_field(name, nullable, is_null, value),
            kind if is_null => self.null(kind),
            Type::Bool if value == Value::NotDefault => {
                self.out.push(u8::from(field.default.as_deref() != Some("true")));
            }
            Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 if value == Value::NotDefault => {
                let default: i64 = field.default.as_deref().unwrap_or("0").parse().unwrap();
                let other = (self.random.next() as i64).wrapping_shr(40).wrapping_abs() & 0x3f;
                self.integer(&field.kind, if other == default { 0x40 } else { other });
            }
            kind => self.value(kind, value),
        }
    }

    fn struct_field(&mut self, name: &str, nullable: bool, is_null: bool, value: Value) {
        if nullable {
            self.out.push(if is_null { 0xff } else { 1 });
        }
        if !is_null {
            let message = self.message;
            self.structure(message.structure(name), value);
        }
    }

    fn null(&mut self, kind: &Type) {
        match kind {
            _ if self.flexible => self.out.push(0),
            Type::String => self.out.extend([0xff; 2]),
            _ => self.out.extend([0xff; 4]),
        }
    }

    fn value(&mut self, kind: &Type, value: Value) {
        let least = usize::from(value == Value::NotDefault);
        match kind {
            Type::Bool => self.out.push((self.random.next() & 1) as u8),
            Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => {
                let number = self.random.next() as i64;
                self.integer(kind, number);
            }
            Type::Uuid => self.raw(16),
            Type::String => {
                let text: String = (0..least + self.random.below(9)).map(|_| self.letter()).collect();
                self.length(text.len(), 2);
                self.out.extend(text.bytes());
            }
            Type::Bytes | Type::Records => {
                let length = least + self.random.below(200);
                self.length(length, 4);
                self.raw(length);
            }
            Type::Struct(name) => {
                let message = self.message;
                self.structure(message.structure(name), value);
            }
            Type::Array(element) => {
                let count = least + self.random.below(3);
                self.length(count, 4);
                (0..count).for_each(|_| self.value(element, value));
            }
        }
    }

    fn letter(&mut self) -> char {
        ['a', 'Z', '0', '.', ' ', '\0', 'é', '語', '🦀'][self.random.below(9)]
    }

    fn integer(&mut self, kind: &Type, number: i64) {
        let width = match kind {
            Type::Int8 => 1,
            Type::Int16 => 2,
            Type::Int32 => 4,
            _ => 8,
        };
        self.out.extend(&number.to_be_bytes()[8 - width..]);
    }

    /// Random bytes, none of them zero: an id of zeros is the default that a tagged field leaves out.
    fn raw(&mut self, count: usize) {
        for _ in 0..count {
            self.out.push(self.random.next().to_le_bytes()[0] | 1);
        }
    }

    fn length(&mut self, length: usize, classic_bytes: usize) {
        if self.flexible {
            self.varint(length + 1);
        } else {
            self.out.extend(&length.to_be_bytes()[8 - classic_bytes..]);
        }
    }

    fn varint(&mut self, value: usize) {
        let mut rest = value;
        while rest >= 0x80 {
            self.out.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        self.out.push(rest.to_le_bytes()[0]);
    }
}
