//! Requests made from the schema alone: one list of a request is long, everything else is as small as possible.
//!
//! Walks the schema that the protocol's code is generated from, so that a new request is covered by itself.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use riverrun_protocol::{Encoder, RequestHeader};
use riverrun_types::TopicId;

use crate::gen_protocol::schema::{Field, Message, Struct, Type};

/// A topic that exists.
const EXISTING: &str = "honest-small";

/// Longest request, below the server's bound on requests, which is not under test here.
const FRAME_BYTES_MAX: usize = 90_000_000;

/// Milliseconds in fields that are times to wait.
const TIMEOUT_MS: i32 = 1000;

/// Elements of a long list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Filling {
    /// Empty names, zeros.
    Empty,
    /// The same existing name, repeated.
    Same,
    /// Different names, none of which exists.
    Different,
    /// Names that nothing can have.
    Unknown,
}

impl Filling {
    pub(super) const ALL: [Self; 4] = [Self::Empty, Self::Same, Self::Different, Self::Unknown];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Same => "same",
            Self::Different => "different",
            Self::Unknown => "unknown",
        }
    }

    fn text(self, index: usize) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Same => EXISTING.to_owned(),
            Self::Different => format!("n{index}"),
            Self::Unknown => format!("/{index}"),
        }
    }

    fn id(self, index: usize) -> TopicId {
        let mut id = [0x11; 16];
        match self {
            Self::Empty => id = [0; 16],
            Self::Same => {}
            Self::Different | Self::Unknown => id[8..].copy_from_slice(&(index as u64).to_be_bytes()),
        }
        TopicId(id)
    }

    fn number(self, index: usize) -> i64 {
        let index = i64::try_from(index).unwrap_or_default();
        match self {
            Self::Empty | Self::Same => 0,
            Self::Different => index,
            Self::Unknown => -1 - index,
        }
    }
}

/// One long list of one request, in a form that can be passed to another process. With several fillings or counts it
/// stands for several requests, which are sent in turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub(super) api: String,
    pub(super) version: i16,
    /// The list's field after those that contain it, separated by dots.
    pub(super) path: String,
    /// Elements of all lists of the request together: the long list has those that its containers leave.
    pub(super) counts: Vec<usize>,
    pub(super) fillings: Vec<Filling>,
}

impl Case {
    /// Common name of its fillings.
    pub(super) fn fillings_name(&self) -> String {
        self.fillings.iter().map(|filling| filling.name()).collect::<Vec<_>>().join("+")
    }

    /// Common name of its counts.
    pub(super) fn counts_name(&self) -> String {
        self.counts.iter().map(usize::to_string).collect::<Vec<_>>().join("+")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api, version, path, .. } = self;
        write!(f, "{api}:{version}:{path}:{}:{}", self.fillings_name(), self.counts_name())
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let [api, version, path, fillings, counts] = text.split(':').collect::<Vec<_>>()[..] else {
            bail!("{text} names no generated request");
        };
        let filling = |name: &str| {
            let known = Filling::ALL.into_iter().find(|known| known.name() == name);
            known.with_context(|| format!("{text} has no filling {name}"))
        };
        Ok(Self {
            api: api.to_owned(),
            version: version.parse()?,
            path: path.to_owned(),
            counts: counts.split('+').map(str::parse).collect::<Result<_, _>>()?,
            fillings: fillings.split('+').map(filling).collect::<anyhow::Result<_>>()?,
        })
    }
}

/// The lists of a request at a version, each as the path of fields to it.
pub(super) fn lists(message: &Message, version: i16) -> Vec<String> {
    let mut found = Vec::new();
    collect(message, message.root(), version, "", &mut found);
    found
}

fn collect(message: &Message, structure: &Struct, version: i16, above: &str, found: &mut Vec<String>) {
    let here = structure.fields.iter().filter(|field| is_written(field, version));
    for field in here {
        let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
        if matches!(field.kind, Type::Array(_)) {
            found.push(path.clone());
        }
        if let Some(name) = field.kind.struct_name() {
            collect(message, message.structure(name), version, &path, found);
        }
    }
}

/// Tagged fields are left out: no request has a list in one.
fn is_written(field: &Field, version: i16) -> bool {
    field.versions.contains(version) && field.tag.is_none()
}

/// The newest version, and the newest that does not know topics by id, if that differs.
pub(super) fn versions(message: &Message, newest: i16) -> Vec<i16> {
    let oldest = message.root().versions.min;
    let fields = message.structs.iter().flat_map(|structure| &structure.fields);
    let ids = fields.filter(|field| field.kind == Type::Uuid && field.tag.is_none());
    let by_id = ids.map(|field| field.versions.min).filter(|from| *from > oldest && *from <= newest).min();
    [Some(newest), by_id.map(|from| from - 1)].into_iter().flatten().collect()
}

/// The whole requests of a case, those of one count after another. A list that would be too long is cut to the longest
/// request.
pub(super) fn frames(message: &Message, key: i16, case: &Case) -> anyhow::Result<Vec<Vec<u8>>> {
    let pairs =
        case.counts.iter().flat_map(|count| case.fillings.iter().map(move |filling| (*count, *filling)));
    let frame = |(count, filling)| frame(message, key, case, count, filling);
    pairs.map(frame).collect()
}

/// One request with this many elements.
fn frame(
    message: &Message,
    key: i16,
    case: &Case,
    count: usize,
    filling: Filling,
) -> anyhow::Result<Vec<u8>> {
    let path: Vec<_> = case.path.split('.').collect();
    // Each list on the path has one element, which counts too.
    let count = count.saturating_sub(path.len() - 1).max(1);
    let writer = |count| Writer { message, version: case.version, filling, count };
    let few = writer(count.min(1000)).request(key, &path)?;
    let element_bytes = few.len() / count.clamp(1, 1000) + 8;
    let frame = writer(count.min(FRAME_BYTES_MAX / element_bytes)).request(key, &path)?;
    ensure!(frame.len() < FRAME_BYTES_MAX + (1 << 20), "{case} is {} bytes", frame.len());
    Ok(frame)
}

struct Writer<'a> {
    message: &'a Message,
    version: i16,
    filling: Filling,
    count: usize,
}

impl Writer<'_> {
    /// The request with its header and its length.
    fn request(&self, key: i16, path: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut encoder = Encoder::new();
        encoder.i32(0);
        let header = RequestHeader {
            api_key: key,
            api_version: self.version,
            correlation_id: 1,
            client_id: Some("attack"),
        };
        header.encode(&mut encoder)?;
        self.structure(&mut encoder, self.message.root(), Some(path), None)?;
        let mut frame = encoder.into_parts().0.to_vec();
        let length = i32::try_from(frame.len() - size_of::<i32>())?;
        frame[..size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }

    /// `path` leads from here to the long list, if it is in here; `index` is the number of the element of that list
    /// that contains this structure. Structures outside of it name existing things, so that the server looks at the
    /// list.
    fn structure(
        &self,
        encoder: &mut Encoder,
        structure: &Struct,
        path: Option<&[&str]>,
        index: Option<usize>,
    ) -> anyhow::Result<()> {
        for field in structure.fields.iter().filter(|field| is_written(field, self.version)) {
            let inner = path.filter(|path| path.first() == Some(&field.name.as_str()));
            let inner = inner.map(|path| &path[1..]);
            self.field(encoder, field, inner, index).with_context(|| field.name.clone())?;
        }
        if self.message.is_flexible(self.version) {
            encoder.no_tagged_fields();
        }
        Ok(())
    }

    fn field(
        &self,
        encoder: &mut Encoder,
        field: &Field,
        inner: Option<&[&str]>,
        index: Option<usize>,
    ) -> anyhow::Result<()> {
        let is_null = inner.is_none() && field.default.as_deref() == Some("null");
        if let (true, Some(nullable)) = (is_null, field.nullable)
            && nullable.contains(self.version)
        {
            return self.null(encoder, &field.kind);
        }
        match &field.kind {
            Type::Array(element) => {
                let count = match inner {
                    // The long list itself, and a list on the path to it.
                    Some([]) => self.count,
                    Some(_) => 1,
                    None => 0,
                };
                self.length(encoder, count)?;
                if inner == Some(&[]) {
                    return self.long_list(encoder, element, count);
                }
                (0..count).try_for_each(|_| self.value(encoder, element, None, inner, index))
            }
            kind => self.value(encoder, kind, Some(field), inner, index),
        }
    }

    /// The elements of the long list. Elements that are all alike are encoded once and copied.
    fn long_list(&self, encoder: &mut Encoder, element: &Type, count: usize) -> anyhow::Result<()> {
        if matches!(self.filling, Filling::Empty | Filling::Same) {
            let mut one = Encoder::new();
            self.value(&mut one, element, None, Some(&[]), Some(0))?;
            encoder.raw(&one.into_parts().0.repeat(count));
            return Ok(());
        }
        (0..count).try_for_each(|index| self.value(encoder, element, None, Some(&[]), Some(index)))
    }

    fn value(
        &self,
        encoder: &mut Encoder,
        kind: &Type,
        field: Option<&Field>,
        inner: Option<&[&str]>,
        index: Option<usize>,
    ) -> anyhow::Result<()> {
        let flexible = self.message.is_flexible(self.version);
        let filling = index.map_or(Filling::Same, |_| self.filling);
        let at = index.unwrap_or_default();
        let number = || field.and_then(given).unwrap_or_else(|| filling.number(at));
        match kind {
            Type::Bool => encoder.bool(field.and_then(|field| field.default.as_deref()) == Some("true")),
            // Numbers that do not fit become the largest.
            Type::Int8 => {
                let number = i8::try_from(number()).unwrap_or(i8::MAX);
                encoder.i8(kind_of_resource(field).unwrap_or(number));
            }
            Type::Int16 => encoder.i16(i16::try_from(number()).unwrap_or(i16::MAX)),
            Type::Int32 => encoder.i32(i32::try_from(number()).unwrap_or(i32::MAX)),
            Type::Int64 => encoder.i64(number()),
            Type::Uuid => encoder.uuid(filling.id(at)),
            Type::String => encoder.string(flexible, &filling.text(at))?,
            Type::Bytes => encoder.bytes(flexible, b"")?,
            Type::Records => encoder.nullable_records(flexible, None)?,
            Type::Struct(name) => {
                self.structure(encoder, self.message.structure(name), inner, index)?;
            }
            Type::Array(_) => bail!("a list of lists"),
        }
        Ok(())
    }

    fn length(&self, encoder: &mut Encoder, count: usize) -> anyhow::Result<()> {
        if self.message.is_flexible(self.version) {
            encoder.varint(u32::try_from(count + 1)?);
        } else {
            encoder.i32(i32::try_from(count)?);
        }
        Ok(())
    }

    fn null(&self, encoder: &mut Encoder, kind: &Type) -> anyhow::Result<()> {
        let flexible = self.message.is_flexible(self.version);
        match kind {
            Type::String => encoder.nullable_string(flexible, None)?,
            Type::Bytes => encoder.nullable_bytes(flexible, None)?,
            Type::Records => encoder.nullable_records(flexible, None)?,
            Type::Array(_) if flexible => encoder.varint(0),
            Type::Array(_) => encoder.i32(-1),
            Type::Struct(_) => encoder.i8(-1),
            other => bail!("{other:?} is never null"),
        }
        Ok(())
    }
}

/// Value of a field at any filling: its default, or a time to wait.
fn given(field: &Field) -> Option<i64> {
    if field.name.contains("timeout") || field.name.ends_with("wait_ms") {
        return Some(i64::from(TIMEOUT_MS));
    }
    match field.name.as_str() {
        "acks" => Some(-1),
        "replication_factor" | "num_partitions" => Some(1),
        _ => field.default.as_deref().and_then(|default| default.parse().ok()),
    }
}

/// Resources are always topics.
fn kind_of_resource(field: Option<&Field>) -> Option<i8> {
    field.is_some_and(|field| field.name == "resource_type").then_some(2)
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::{Decode, Decoder, FetchRequest, MetadataRequest};

    use super::*;
    use crate::gen_protocol::schema::SchemaFile;
    use crate::gen_protocol::{load_schema, request_of};

    fn request<'a>(schema: &'a [SchemaFile], api: &str) -> (&'a Message, i16) {
        let file =
            schema.iter().find(|file| file.api.as_ref().is_some_and(|known| known.name == api)).unwrap();
        (request_of(file).unwrap(), file.api.as_ref().unwrap().key)
    }

    fn case(text: &str) -> Case {
        let case: Case = text.parse().unwrap();
        assert_eq!(case.to_string(), text);
        case
    }

    fn frame(message: &Message, key: i16, case: &Case) -> anyhow::Result<Vec<u8>> {
        let mut frames = frames(message, key, case)?;
        assert_eq!(frames.len(), 1);
        Ok(frames.remove(0))
    }

    fn body<'a, T: Decode<'a>>(frame: &'a [u8], version: i16) -> T {
        let mut decoder = Decoder::new(&frame[4..]);
        RequestHeader::decode(&mut decoder).unwrap();
        let request = T::decode(&mut decoder, version).unwrap();
        decoder.finish().unwrap();
        request
    }

    #[test]
    fn container_of_a_long_list_has_one_element() {
        let schema = load_schema().unwrap();
        let (message, key) = request(&schema, "Fetch");
        assert_eq!(versions(message, 18), [18, 12]);
        let case = case("Fetch:12:topics.partitions:different:71");
        let frame = frame(message, key, &case).unwrap();
        let fetch: FetchRequest<'_> = body(&frame, 12);
        assert_eq!(fetch.topics.len(), 1);
        assert_eq!(fetch.topics[0].partitions.len(), 70);
        assert_eq!(fetch.topics[0].partitions[69].partition, 69);
        assert_eq!(fetch.topics[0].topic, EXISTING, "the container of the list exists");
        assert!(fetch.forgotten_topics_data.is_empty());
    }

    #[test]
    fn same_elements_exist_and_different_ones_differ() {
        let schema = load_schema().unwrap();
        let (message, key) = request(&schema, "Metadata");
        let same = frame(message, key, &case("Metadata:9:topics:same:2")).unwrap();
        let names = |frame: &[u8]| -> Vec<_> {
            let request: MetadataRequest<'_> = body(frame, 9);
            request.topics.unwrap().iter().map(|topic| topic.name.clone().unwrap().into_owned()).collect()
        };
        assert_eq!(names(&same), [EXISTING, EXISTING]);
        let different = frame(message, key, &case("Metadata:9:topics:different:2")).unwrap();
        assert_eq!(names(&different), ["n0", "n1"]);
    }

    #[test]
    fn every_list_of_every_request_can_be_made() {
        let schema = load_schema().unwrap();
        for file in schema.iter().filter(|file| file.api.is_some()) {
            let (api, message) = (file.api.as_ref().unwrap(), request_of(file).unwrap());
            let newest = message.root().versions.max;
            for version in versions(message, newest) {
                for path in lists(message, version) {
                    let case = Case {
                        api: api.name.clone(),
                        version,
                        path: path.clone(),
                        fillings: Filling::ALL.to_vec(),
                        counts: vec![3, 4],
                    };
                    let made = frames(message, api.key, &case);
                    assert_eq!(made.unwrap().len(), 8, "{case}");
                }
            }
        }
    }

    #[test]
    fn list_that_would_be_too_long_is_cut() {
        let schema = load_schema().unwrap();
        let (message, key) = request(&schema, "Metadata");
        let huge = frame(message, key, &case("Metadata:9:topics:same:20000000")).unwrap();
        assert!(huge.len() < FRAME_BYTES_MAX + (1 << 20), "{}", huge.len());
    }
}
