//! The journal's files on disk: `<number>.journal`, a header and then frames, one for each group.
//!
//! A file is called `<number>.new` while it is made or made ready to be used again, and gets its name once its header
//! is synced; a restart finds nothing in a file that is still called `.new`. A number has eight digits, or more if it
//! needs them.
//!
//! ```text
//! file                                          frame, at a multiple of the alignment
//!   header, padded to the alignment               magic "RRfr"                         4
//!   frames, one behind the other                  CRC-32C of what follows up to the    u32
//!   zeros or stale frames                           payloads
//!                                                 journal id                           16
//! header                                          position of this frame               u64
//!   magic "RRjournl"               8              synced before it was written         u64
//!   version                        u16            settled                              u64
//!   zero                           u16            frame bytes, with padding            u32
//!   alignment                      u32            entry count                          u32
//!   journal id                     16             per entry:
//!   start: position of byte 0      u64              stream                             20
//!   bytes: size when allocated     u64              kind (1 records, 2 in segment)     u8
//!   end of what is before start    u64              zero                               3
//!   synced                         u64              index                              u64
//!   settled                        u64              cuts                               u32
//!   CRC-32C of all before          u32              base offset                        i64
//!                                                   leader epoch                       i32
//!                                                   payload bytes                      u32
//!                                                   CRC-32C of payload, then position  u32
//!                                                     of this entry (u64)
//!                                                 payloads, one behind the other
//!                                                 zeros up to the alignment
//! ```
//! All big-endian. The version rises with each change of layout. A newer version is refused by name, and so is
//! version 1, which knew no cuts. Kind 2 is reserved for entries whose bytes are synced in a segment already; this
//! version writes none and refuses them by name.
//!
//! *Cuts* says how often the entry's stream had been cut before. It tells entries written before a cut from those
//! written after it, wherever they are found.
//!
//! A *position* is the start of a file plus an offset in it. Starts only grow, and a file that is used again gets a new
//! one, so positions are never reused: a frame whose position is not where it lies is stale and ends the file. An
//! entry's position is that of its row in the frame's table.
//!
//! *Settled* frames are durable elsewhere. A frame without entries is a *note* of that; if all before it is settled, so
//! is the frame itself.
//!
//! Each frame states the *synced* position as of its writing. The highest one that is found divides the journal:
//!
//! - damage below it hit bytes that were acked, and is corruption, unless all before the next intact frame is
//!   settled;
//! - damage at or above it is a tail that the crash has torn, and is cut.
//!
//! The *end of what is before start* says where the frames of the file before end; frames behind that are void.
//! Recovery uses it to replace a tail that may never have been synced: it writes the tail anew into another file,
//! syncs that, and only then gives the file its name. A file is filled with synced zeros at least one block beyond
//! the frame that is written next, so a file that ends inside a frame or right behind it was cut.
//!
//! Guarantees: a flipped byte in a header, a table or a payload is found, and so is a frame, an entry or a payload at
//! another place than its own; decoding is bounded by the length of the input. Padding is not checked.

use bytes::Bytes;
use riverrun_env::AlignedBuffer;
use riverrun_types::{LeaderEpoch, Offset, Position, old_format};

use crate::{EntryHeader, EntryKind, JournalId, StreamId};

const FILE_MAGIC: [u8; 8] = *b"RRjournl";
/// Version of the layout above.
const VERSION: u16 = 2;
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"RRfr";
/// Alignments that a file may have.
pub(crate) const ALIGNMENTS: std::ops::RangeInclusive<u32> = 512..=64 * 1024;

/// A file's header without its padding: it lies in one sector of any disk.
pub(crate) const FILE_HEADER_BYTES: usize = 8 + 2 + 2 + 4 + 16 + 5 * 8 + CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = 4;
const _: () = assert!(FILE_HEADER_BYTES == 76);

/// A frame's header, before its table.
pub(crate) const FRAME_HEADER_BYTES: usize = FRAME_COUNT + 4;
const FRAME_CHECKSUM: usize = FRAME_MAGIC.len();
const FRAME_CHECKED: usize = FRAME_CHECKSUM + CHECKSUM_BYTES;
const FRAME_COUNT: usize = FRAME_CHECKED + 16 + 3 * 8 + 4;
const _: () = assert!(FRAME_HEADER_BYTES == 56);

/// A row of a frame's table.
pub(crate) const ENTRY_BYTES: usize = 20 + 1 + 3 + 8 + 4 + 8 + 4 + 4 + CHECKSUM_BYTES;
const _: () = assert!(ENTRY_BYTES == 56);

/// An entry outside of a frame, without its payload.
pub(crate) const LOOSE_BYTES: usize = 8 + ENTRY_BYTES;

/// Upper bound of positions, never reached in practice: sums of a position and a size below it cannot overflow.
const POSITION_MAX: u64 = u64::MAX / 2;

const KIND_RECORDS: u8 = 1;
const KIND_IN_SEGMENT: u8 = 2;

/// Content of a file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) id: JournalId,
    pub(crate) alignment: u32,
    /// Position of the file's first byte.
    pub(crate) start: u64,
    /// Size that the file has or will have.
    pub(crate) bytes: u64,
    /// End of the frames before `start`.
    pub(crate) previous_end: u64,
    /// Everything below was synced when this header was written.
    pub(crate) synced: u64,
    /// Everything below is settled: a start does not need it.
    pub(crate) settled: u64,
}

impl FileHeader {
    /// Position of the file's first frame.
    pub(crate) fn frames_start(&self) -> u64 {
        self.start + u64::from(self.alignment)
    }

    /// Position of the first byte behind the file.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Position of the first byte of the file after this one: a multiple of every alignment.
    pub(crate) fn next_start(&self) -> u64 {
        self.end().next_multiple_of(u64::from(*ALIGNMENTS.end()))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FILE_HEADER_BYTES);
        out.extend_from_slice(&FILE_MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.alignment.to_be_bytes());
        out.extend_from_slice(&self.id.0);
        for field in [self.start, self.bytes, self.previous_end, self.synced, self.settled] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out
    }
}

/// Kinds of a file by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileHead {
    /// A file of the journal.
    Used(FileHeader),
    /// Another kind of file or a newer version; the text says which.
    Foreign(String),
    /// A header that was damaged; the text says how.
    Damaged(String),
}

/// Reads the head of a file. `bytes` may be fewer than [`FILE_HEADER_BYTES`] if the file is that short.
pub(crate) fn decode_file_head(bytes: &[u8]) -> FileHead {
    let bytes = &bytes[..bytes.len().min(FILE_HEADER_BYTES)];
    let mut fields = Fields(bytes);
    let (Some(magic), Some(version)) = (fields.array::<8>(), fields.u16()) else {
        return FileHead::Damaged("the file ends inside its header".into());
    };
    let is_intact = match bytes.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((content, checksum)) => crc32c::crc32c(content).to_be_bytes() == *checksum,
        None => false,
    };
    if magic == FILE_MAGIC && version > VERSION {
        return FileHead::Foreign(format!(
            "journal file of format version {version}, and this program knows versions up to {VERSION}; start \
             the newer program that wrote it"
        ));
    }
    if magic == FILE_MAGIC && (1..VERSION).contains(&version) && is_intact {
        return FileHead::Foreign(format!("journal file of {}", old_format(version, VERSION)));
    }
    if bytes.len() < FILE_HEADER_BYTES {
        return FileHead::Damaged("the file ends inside its header".into());
    }
    if !is_intact || magic != FILE_MAGIC || version != VERSION {
        return FileHead::Damaged("the file's header does not match its checksum".into());
    }
    decode_fields(fields).map_or_else(
        || FileHead::Damaged("the file's header holds values that are never written".into()),
        FileHead::Used,
    )
}

fn decode_fields(mut fields: Fields<'_>) -> Option<FileHeader> {
    let (_zero, alignment) = (fields.u16()?, fields.u32()?);
    let header = FileHeader {
        id: JournalId(fields.array()?),
        alignment,
        start: fields.u64()?,
        bytes: fields.u64()?,
        previous_end: fields.u64()?,
        synced: fields.u64()?,
        settled: fields.u64()?,
    };
    let is_sane = alignment.is_power_of_two()
        && ALIGNMENTS.contains(&alignment)
        && header.start.is_multiple_of(u64::from(alignment))
        && header.bytes.is_multiple_of(u64::from(alignment))
        && header.bytes > u64::from(alignment)
        && header
            .start
            .checked_add(header.bytes)
            .is_some_and(|end| end <= POSITION_MAX && header.synced <= end)
        && header.previous_end <= header.start
        && header.settled <= header.start;
    is_sane.then_some(header)
}

/// Content of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) id: JournalId,
    pub(crate) position: u64,
    pub(crate) synced: u64,
    pub(crate) settled: u64,
}

/// An entry to be put into a frame, with the checksum of its payload alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryToEncode<'a> {
    pub(crate) header: &'a EntryHeader,
    pub(crate) payload: &'a [u8],
    pub(crate) payload_crc: u32,
}

/// Size of a frame without padding.
pub(crate) fn frame_bytes(entries: usize, payload_bytes: usize) -> usize {
    FRAME_HEADER_BYTES + entries * ENTRY_BYTES + payload_bytes
}

/// Position of an entry in the frame at `frame`.
pub(crate) fn entry_position(frame: u64, index: usize) -> Position {
    Position(frame + (FRAME_HEADER_BYTES + index * ENTRY_BYTES) as u64)
}

/// The checksum in an entry's row: the payload's own, continued over the position where it belongs.
fn placed_crc(payload_crc: u32, position: Position) -> u32 {
    crc32c::crc32c_append(payload_crc, &position.0.to_be_bytes())
}

/// Appends a frame, padded to `alignment`, to `out`, which must have room for it. The payloads begin
/// [`FRAME_HEADER_BYTES`] and one row per entry behind the frame's start.
pub(crate) fn encode_frame<'a>(
    out: &mut AlignedBuffer,
    header: &FrameHeader,
    entries: impl Iterator<Item = EntryToEncode<'a>> + Clone,
    alignment: usize,
) {
    let start = out.len();
    let (count, payload_bytes) =
        entries.clone().fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.payload.len()));
    let used = frame_bytes(count, payload_bytes);
    let padded = used.next_multiple_of(alignment);
    let size = |bytes: usize| u32::try_from(bytes).expect("a frame lies in a file of 2 GiB at most");

    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_zeros(CHECKSUM_BYTES);
    out.extend_from_slice(&header.id.0);
    for field in [header.position, header.synced, header.settled] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(&size(padded).to_be_bytes());
    out.extend_from_slice(&size(count).to_be_bytes());
    for (index, entry) in entries.clone().enumerate() {
        let crc = placed_crc(entry.payload_crc, entry_position(header.position, index));
        out.extend_from_slice(&encode_row(&entry, size(entry.payload.len()), crc));
    }
    let checksum = crc32c::crc32c(&out[start + FRAME_CHECKED..]);
    out[start + FRAME_CHECKSUM..start + FRAME_CHECKED].copy_from_slice(&checksum.to_be_bytes());
    for entry in entries {
        out.extend_from_slice(entry.payload);
    }
    out.extend_zeros(padded - used);
}

fn encode_row(entry: &EntryToEncode<'_>, payload_bytes: u32, crc: u32) -> [u8; ENTRY_BYTES] {
    let header = entry.header;
    let kind = match header.kind {
        EntryKind::Records => KIND_RECORDS,
    };
    let mut row = [0; ENTRY_BYTES];
    let mut at = 0;
    for field in [
        header.stream.0.as_slice(),
        &[kind, 0, 0, 0],
        &header.index.to_be_bytes(),
        &header.cuts.to_be_bytes(),
        &header.base_offset.0.to_be_bytes(),
        &header.leader_epoch.0.to_be_bytes(),
        &payload_bytes.to_be_bytes(),
        &crc.to_be_bytes(),
    ] {
        row[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    row
}

/// An entry's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRow {
    pub(crate) header: EntryHeader,
    pub(crate) position: Position,
    pub(crate) payload_bytes: usize,
    crc: u32,
}

impl EntryRow {
    /// Whether `payload` is the one written for this entry, at this place.
    pub(crate) fn is_payload(&self, payload: &[u8]) -> bool {
        placed_crc(crc32c::crc32c(payload), self.position) == self.crc
    }
}

/// Reasons why there is no usable frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoFrame {
    /// No frame, another journal's, a stale one, or a damaged one: they cannot be told apart.
    Damaged(&'static str),
    /// An intact frame that this program cannot read; the text says why.
    Foreign(String),
}

/// Bytes from a frame's start that are needed to read its table, as its first [`FRAME_HEADER_BYTES`] bytes say; these
/// are unchecked. At most `bytes_max`.
pub(crate) fn table_end(bytes: &[u8], bytes_max: usize) -> Result<usize, NoFrame> {
    let mut fields = Fields(bytes.get(FRAME_COUNT..).ok_or(NoFrame::Damaged("the file ends there"))?);
    let count = fields.u32().ok_or(NoFrame::Damaged("the file ends there"))? as usize;
    if bytes[..FRAME_MAGIC.len()] != FRAME_MAGIC {
        return Err(NoFrame::Damaged("no frame begins there"));
    }
    let end = frame_bytes(count, 0);
    if count > bytes_max / ENTRY_BYTES || end > bytes_max {
        return Err(NoFrame::Damaged("the frame's size is more than there is room for"));
    }
    Ok(end)
}

/// The claims in the first [`FRAME_HEADER_BYTES`] of a frame, wherever it lies. These bytes lie in one sector, so
/// they are right even if the rest of the frame was torn. A process that is killed may leave less than a sector, so
/// they are not to be relied on alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) position: u64,
    pub(crate) end: u64,
    pub(crate) has_entries: bool,
}

/// Reads a possible beginning of a frame of journal `id`, unchecked.
pub(crate) fn claim_of(bytes: &[u8], id: JournalId) -> Option<Claim> {
    let mut fields = Fields(bytes.get(FRAME_CHECKED..FRAME_HEADER_BYTES)?);
    let is_one = bytes.starts_with(&FRAME_MAGIC) && fields.array()? == id.0;
    let (position, _synced, _settled) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (frame_bytes, count) = (fields.u32()?, fields.u32()?);
    let end = position.saturating_add(u64::from(frame_bytes));
    is_one.then_some(Claim { position, end, has_entries: count > 0 })
}

/// An entry with its position outside of a frame: the position, then its row and its payload.
pub(crate) fn encode_loose(entry: &crate::RecoveredEntry, out: &mut Vec<u8>) {
    let payload_bytes = u32::try_from(entry.payload.len()).expect("a payload fits into a frame");
    let crc = placed_crc(crc32c::crc32c(&entry.payload), entry.position);
    out.extend_from_slice(&entry.position.0.to_be_bytes());
    let to_encode = EntryToEncode { header: &entry.header, payload: &entry.payload, payload_crc: crc };
    out.extend_from_slice(&encode_row(&to_encode, payload_bytes, crc));
    out.extend_from_slice(&entry.payload);
}

/// Reads an entry that [`encode_loose`] wrote at `at` in `bytes`, and moves `at` behind it.
pub(crate) fn decode_loose(bytes: &Bytes, at: &mut usize) -> Result<crate::RecoveredEntry, NoFrame> {
    let ends = NoFrame::Damaged("the file ends there");
    let mut fields = Fields(bytes.get(*at..).ok_or(ends.clone())?);
    let position = Position(fields.u64().ok_or(ends.clone())?);
    let row = decode_row(&mut fields, position).ok_or(ends.clone())??;
    let start = *at + LOOSE_BYTES;
    let payload = bytes.get(start..start + row.payload_bytes).map(|payload| bytes.slice_ref(payload));
    let payload = payload.ok_or(ends)?;
    if !row.is_payload(&payload) {
        return Err(NoFrame::Damaged("the payload does not match its checksum"));
    }
    *at = start + row.payload_bytes;
    Ok(crate::RecoveredEntry { header: row.header, payload, position })
}

/// A frame whose header and table are intact; its payloads are unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    /// Size with padding.
    pub(crate) bytes: usize,
    pub(crate) rows: Vec<EntryRow>,
}

impl Frame {
    /// Reads header and table of the frame of journal `id` that has to be at `position`. `bytes` must reach from the
    /// frame's start to the end of its table; the frame takes at most `bytes_max` with padding.
    pub(crate) fn decode(
        bytes: &[u8],
        id: JournalId,
        position: u64,
        bytes_max: usize,
    ) -> Result<Self, NoFrame> {
        let table_end = table_end(bytes, bytes_max)?;
        let checked = bytes.get(FRAME_CHECKED..table_end).ok_or(NoFrame::Damaged("the file ends there"))?;
        let checksum = &bytes[FRAME_CHECKSUM..FRAME_CHECKED];
        if crc32c::crc32c(checked).to_be_bytes() != *checksum {
            return Err(NoFrame::Damaged("the frame's header does not match its checksum"));
        }
        let insane = NoFrame::Damaged("the frame's header holds values that are never written");
        let (header, frame_bytes, count, fields) = decode_frame_header(checked).ok_or(insane.clone())?;
        if header.id != id || header.position != position {
            return Err(NoFrame::Damaged("the frame there belongs elsewhere"));
        }
        let rows = decode_rows(fields, count, position, &insane)?;
        let payload_bytes: usize = rows.iter().map(|row| row.payload_bytes).sum();
        let is_sane = frame_bytes <= bytes_max && table_end + payload_bytes <= frame_bytes;
        if is_sane { Ok(Self { header, bytes: frame_bytes, rows }) } else { Err(insane) }
    }

    /// The settled position as of this frame. A frame without entries is settled itself if all before it is.
    pub(crate) fn settled(&self) -> u64 {
        let is_settled = self.rows.is_empty() && self.header.settled == self.header.position;
        if is_settled { self.end() } else { self.header.settled }
    }

    /// Position of the first byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.header.position + self.bytes as u64
    }

    /// The entries with their payloads, given all bytes of the frame.
    pub(crate) fn entries<'a>(&'a self, frame: &'a Bytes) -> impl Iterator<Item = (&'a EntryRow, Bytes)> {
        let mut at = frame_bytes(self.rows.len(), 0);
        self.rows.iter().map(move |row| {
            let payload = frame.slice(at..at + row.payload_bytes);
            at += row.payload_bytes;
            (row, payload)
        })
    }
}

fn decode_frame_header(checked: &[u8]) -> Option<(FrameHeader, usize, usize, Fields<'_>)> {
    let mut fields = Fields(checked);
    let header = FrameHeader {
        id: JournalId(fields.array()?),
        position: fields.u64()?,
        synced: fields.u64()?,
        settled: fields.u64()?,
    };
    let (frame_bytes, count) = (fields.u32()? as usize, fields.u32()? as usize);
    let is_sane = header.synced <= header.position && header.settled <= header.position;
    is_sane.then_some((header, frame_bytes, count, fields))
}

fn decode_rows(
    mut fields: Fields<'_>,
    count: usize,
    frame: u64,
    insane: &NoFrame,
) -> Result<Vec<EntryRow>, NoFrame> {
    let row = |index| decode_row(&mut fields, entry_position(frame, index)).ok_or(insane.clone())?;
    (0..count).map(row).collect()
}

/// `None` if the bytes end before the row does.
fn decode_row(fields: &mut Fields<'_>, position: Position) -> Option<Result<EntryRow, NoFrame>> {
    let stream = StreamId(fields.array()?);
    let [kind, ..] = fields.array::<4>()?;
    let row = EntryRow {
        header: EntryHeader {
            stream,
            kind: EntryKind::Records,
            index: fields.u64()?,
            cuts: fields.u32()?,
            base_offset: Offset(fields.u64()? as i64),
            leader_epoch: LeaderEpoch(fields.u32()? as i32),
        },
        position,
        payload_bytes: fields.u32()? as usize,
        crc: fields.u32()?,
    };
    let what = match kind {
        KIND_RECORDS => return Some(Ok(row)),
        KIND_IN_SEGMENT => "entries that refer to a segment (kind 2)".to_owned(),
        _ => format!("entries of kind {kind}"),
    };
    Some(Err(NoFrame::Foreign(format!(
        "the journal holds {what}, which this program does not know; start the newer program that wrote it"
    ))))
}

/// Reads big-endian fields one after another and nothing past the end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests;
