//! Side files: entries put aside, in files called `held-<name>-<number>`.
//!
//! ```text
//! magic "RRheldxx"       8
//! version                u16
//! zero                   u16
//! journal id             16
//! entry count            u32
//! per entry:
//!   position             u64     where it was in the journal
//!   row                  56      as in a frame's table (frames.rs)
//!   payload
//! CRC-32C of all before  u32
//! ```
//! All big-endian. The version rises with each change of layout. A newer version is refused by name, and so is
//! version 1, which knew no cuts. An entry without payload stands for one whose payload was found to be damaged. The
//! file's name ends with `.new` until it is whole; a restart removes files of that name.
//!
//! A log dir that cannot take its entries must not keep the journal's files from being used again: the log puts the
//! entries aside here until the dir is back. Guarantees that a side file is whole or not there, and that a damaged
//! one is refused.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use riverrun_env::{Env, atomic_replace, is_device_error, read_whole, readable_bytes};
use riverrun_types::old_format;

use crate::files::parse_number;
use crate::frames::{LOOSE_BYTES, NoFrame, decode_loose, encode_loose};
use crate::reader::UNREAD;
use crate::volume::Volume;
use crate::{JournalError, JournalId, RecoveredEntry};

const MAGIC: [u8; 8] = *b"RRheldxx";
const VERSION: u16 = 2;
const VERSION_AT: usize = MAGIC.len();
const ZERO_AT: usize = VERSION_AT + 2;
const ID_AT: usize = ZERO_AT + 2;
const COUNT_AT: usize = ID_AT + 16;
const HEADER_BYTES: usize = COUNT_AT + 4;
const _: () = assert!(HEADER_BYTES == 8 + 2 + 2 + 16 + 4);
const CHECKSUM_BYTES: usize = 4;
const PREFIX: &str = "held-";
/// Ending of a file until it is whole.
const NEW_SUFFIX: &str = ".new";
/// Upper bound of a side file in bytes: twice that of a journal file.
const FILE_BYTES_MAX: u64 = 2 * crate::FILE_BYTES_MAX;
/// Upper bound of a name in letters.
const NAME_LETTERS_MAX: usize = 64;

/// One side file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldFile {
    /// Orders all side files, whatever their names.
    pub(crate) number: u64,
    pub(crate) name: String,
}

impl HeldFile {
    /// `None`: not the name of a side file.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let (name, number) = file_name.strip_prefix(PREFIX)?.rsplit_once('-')?;
        let number = parse_number(number)?;
        check_name(name).is_ok().then(|| Self { number, name: name.to_owned() })
    }

    /// Whether the file is a side file that was not finished: nothing in it is needed.
    pub(crate) fn is_unfinished(file_name: &str) -> bool {
        file_name.strip_suffix(NEW_SUFFIX).is_some_and(|name| Self::parse(name).is_some())
    }

    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{PREFIX}{}-{:08}", self.name, self.number))
    }

    /// Writes the side file, if the volume has room for it. It is durable when this returns; after an error it is
    /// whole or not there.
    pub(crate) fn write(
        &self,
        env: &Env,
        volume: &Volume,
        id: JournalId,
        entries: &[RecoveredEntry],
    ) -> Result<(), JournalError> {
        let (path, bytes) = (self.path(volume.dir()), encode(id, entries));
        if !volume.has_room_to_hold(bytes.len() as u64) {
            let what = format!("there is no room for {} bytes that are to be put aside", bytes.len());
            return Err(JournalError::io(&path, io::Error::new(io::ErrorKind::StorageFull, what)));
        }
        atomic_replace(&*env.fs, &path, &bytes).map_err(|error| JournalError::io(&path, error.into()))
    }

    /// Reads the side file.
    pub(crate) fn read(
        &self,
        env: &Env,
        dir: &Path,
        id: JournalId,
    ) -> Result<Vec<RecoveredEntry>, JournalError> {
        Ok(self.read_placed(env, dir, id)?.into_iter().map(|held| held.entry).collect())
    }

    /// As [`Self::read`], with the places of the entries in the file.
    pub(crate) fn read_placed(
        &self,
        env: &Env,
        dir: &Path,
        id: JournalId,
    ) -> Result<Vec<HeldEntry>, JournalError> {
        let path = self.path(dir);
        let decoded = match read_whole(&*env.fs, &path, FILE_BYTES_MAX) {
            Ok(bytes) => decode(&bytes.into(), id),
            Err(error) if is_device_error(&error) => {
                let position =
                    readable_bytes(&*env.fs, &path).map_err(|error| JournalError::io(&path, error))?;
                Err(Flaw { position, why: NoFrame::Damaged(UNREAD) })
            }
            Err(error) => return Err(JournalError::io(&path, error)),
        };
        decoded.map_err(|Flaw { position, why }| match why {
            NoFrame::Foreign(what) => JournalError::format(&path, what),
            NoFrame::Damaged(what) => JournalError::corrupt(
                &path,
                position,
                format!("{what}; restore the file from a copy, or remove it to give up the entries in it"),
            ),
        })
    }
}

/// An entry in a side file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldEntry {
    /// Its start, in bytes from the start of its file.
    pub position: u64,
    /// The entry itself; see [`RecoveredEntry::is_damaged`].
    pub entry: RecoveredEntry,
}

/// Why a side file cannot be read, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flaw {
    position: u64,
    why: NoFrame,
}

impl Flaw {
    fn damage(position: usize, what: &'static str) -> Self {
        Self { position: position as u64, why: NoFrame::Damaged(what) }
    }
}

/// Refuses a name that is too long or cannot be part of a file's name.
pub(crate) fn check_name(name: &str) -> Result<(), JournalError> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_plain && (1..=NAME_LETTERS_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(JournalError::invalid(format!(
        "{name:?}: entries are held under names of 1 to {NAME_LETTERS_MAX} letters, digits, `-` or `_`"
    )))
}

fn encode(id: JournalId, entries: &[RecoveredEntry]) -> Vec<u8> {
    let payload_bytes: usize = entries.iter().map(|entry| LOOSE_BYTES + entry.payload.len()).sum();
    let mut out = Vec::with_capacity(HEADER_BYTES + payload_bytes + CHECKSUM_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&id.0);
    out.extend_from_slice(&u32::try_from(entries.len()).expect("entries fit into memory").to_be_bytes());
    for entry in entries {
        encode_loose(entry, &mut out);
    }
    out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
    out
}

/// Reads a whole file.
fn decode(bytes: &Bytes, id: JournalId) -> Result<Vec<HeldEntry>, Flaw> {
    let version = bytes.get(VERSION_AT..ZERO_AT).map(|version| u16::from_be_bytes([version[0], version[1]]));
    let foreign =
        |position: usize, what: String| Flaw { position: position as u64, why: NoFrame::Foreign(what) };
    if bytes.starts_with(&MAGIC)
        && let Some(version) = version.filter(|version| *version > VERSION)
    {
        let what = format!(
            "held entries of format version {version}, and this program knows versions up to {VERSION}"
        );
        return Err(foreign(VERSION_AT, what));
    }
    if let Some(version) =
        version.filter(|version| bytes.starts_with(&MAGIC) && (1..VERSION).contains(version))
    {
        return Err(foreign(VERSION_AT, format!("held entries of {}", old_format(version, VERSION))));
    }
    let content = checked_content(bytes, version)?;
    if content[ID_AT..COUNT_AT] != id.0 {
        let what = "the entries held in this file are of a journal whose files are not here: bring these back, or move this \
                    file away, too, to give up the entries in it";
        return Err(foreign(ID_AT, what.to_owned()));
    }
    read_entries(&content)
}

/// The content without the checksum, which it matches. It begins with a header.
fn checked_content(bytes: &Bytes, version: Option<u16>) -> Result<Bytes, Flaw> {
    let Some((content, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Flaw::damage(0, "the file ends in its header"));
    };
    if !content.starts_with(&MAGIC) {
        return Err(Flaw::damage(0, "no file of held entries begins so"));
    }
    if version != Some(VERSION) {
        return Err(Flaw::damage(VERSION_AT, "there was never such a version"));
    }
    if content.len() < HEADER_BYTES {
        return Err(Flaw::damage(content.len(), "the file ends in its header"));
    }
    let content = bytes.slice_ref(content);
    if crc32c::crc32c(&content).to_be_bytes() == *checksum {
        return Ok(content);
    }
    // The checksum of the whole does not tell where the damage is, but those of the payloads may.
    let what = "the file does not match its checksum, though all payloads match theirs";
    let flaw = read_entries(&content).err().unwrap_or(Flaw::damage(0, what));
    Err(match flaw.why {
        NoFrame::Damaged(_) => flaw,
        NoFrame::Foreign(_) => Flaw { why: NoFrame::Damaged("there was never such an entry"), ..flaw },
    })
}

/// The entries of a file, which end where it ends.
fn read_entries(content: &Bytes) -> Result<Vec<HeldEntry>, Flaw> {
    let count = &content[COUNT_AT..HEADER_BYTES];
    let count = u32::from_be_bytes([count[0], count[1], count[2], count[3]]) as usize;
    if count > content.len() / LOOSE_BYTES {
        return Err(Flaw::damage(COUNT_AT, "it counts more entries than there is room for"));
    }
    let (mut entries, mut at) = (Vec::new(), HEADER_BYTES);
    for _ in 0..count {
        let position = at as u64;
        let entry = decode_loose(content, &mut at).map_err(|why| Flaw { position, why })?;
        entries.push(HeldEntry { position, entry });
    }
    if at < content.len() {
        return Err(Flaw::damage(at, "something follows the last entry"));
    }
    Ok(entries)
}
