//! Which journals may hold what is in no segment of a log dir yet: a small file in each log dir, replaced as a whole.
//!
//! ```text
//! magic "RRjrnals"   8
//! version            u16
//! count              u16, then per journal: bytes of its path u16 | path
//! CRC-32C of all before u32
//! ```
//! All big-endian. It is written before a journal takes the first entry and emptied when the server has stopped in
//! order. A server that is told to use other journals meanwhile, or the same in another order, refuses to start: it
//! would not find what was acked.

use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::{ChangeError, FileSystem, atomic_replace, read_whole};

use crate::error::LogError;
use crate::fields::{DecodeError, FieldReader};

/// Name of the file in a log dir.
pub(crate) const JOURNALS_FILE: &str = "journals";

const MAGIC: &[u8; 8] = b"RRjrnals";
const VERSION: u16 = 1;
const NAME: &str = "the list of a log dir's journals";
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Refuses journals other than those that may hold something.
pub(crate) fn check(fs: &dyn FileSystem, dir: &Path, journals: &[PathBuf]) -> Result<(), LogError> {
    let file = dir.join(JOURNALS_FILE);
    let before = match read_whole(fs, &file, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LogError::io(&file, error)),
        Ok(bytes) => decode(&bytes).map_err(|source| LogError::Format { path: file.clone(), source })?,
    };
    let now = names(journals);
    if before.is_empty() || before == now {
        return Ok(());
    }
    Err(LogError::JournalsChanged { before, now, file })
}

/// Notes that these journals, and no others, may hold something from now on. Durable when it returns.
pub(crate) fn write(fs: &dyn FileSystem, dir: &Path, journals: &[PathBuf]) -> Result<(), ChangeError> {
    atomic_replace(fs, &dir.join(JOURNALS_FILE), &encode(&names(journals)))
}

fn names(journals: &[PathBuf]) -> Vec<String> {
    journals.iter().map(|path| path.display().to_string()).collect()
}

fn encode(names: &[String]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_be_bytes());
    let short = |len: usize| u16::try_from(len).expect("few journals, and paths that the system takes");
    out.extend_from_slice(&short(names.len()).to_be_bytes());
    for name in names {
        out.extend_from_slice(&short(name.len()).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
    out
}

fn decode(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    let mut reader = FieldReader::new(bytes);
    if reader.array::<8>(NAME)? != *MAGIC {
        return Err(DecodeError::WrongMagic(NAME));
    }
    let found = reader.u16(NAME)?;
    if found > VERSION {
        return Err(DecodeError::NewerVersion { name: NAME, found, supported: VERSION });
    }
    let body = bytes.len().checked_sub(size_of::<u32>()).ok_or(DecodeError::Truncated(NAME))?;
    if crc32c::crc32c(&bytes[..body]).to_be_bytes() != bytes[body..] {
        return Err(DecodeError::Checksum(NAME));
    }
    let count = reader.u16(NAME)?;
    let mut names = Vec::new();
    for _ in 0..count {
        let len = usize::from(reader.u16(NAME)?);
        let name = std::str::from_utf8(reader.bytes(len, NAME)?).map_err(|_| DecodeError::Invalid(NAME))?;
        names.push(name.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use riverrun_env::OpenMode;
    use riverrun_env::sim::SimEnv;

    use super::*;

    #[test]
    fn journals_may_change_only_while_none_is_named() {
        let sim = SimEnv::new(1);
        let fs = &*sim.fs;
        let (one, two) = (PathBuf::from("/one"), PathBuf::from("/two"));
        let both = [one.clone(), two.clone()];
        check(fs, Path::new("/"), &both).unwrap();
        write(fs, Path::new("/"), &both).unwrap();
        check(fs, Path::new("/"), &both).unwrap();
        for other in [&[][..], std::slice::from_ref(&one), &[two, one.clone()]] {
            let error = check(fs, Path::new("/"), other).unwrap_err();
            assert!(error.to_string().contains("/one, /two"), "{error}");
        }
        write(fs, Path::new("/"), &[]).unwrap();
        check(fs, Path::new("/"), &both[..1]).unwrap();
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let sim = SimEnv::new(1);
        let intact = encode(&["/journal".to_owned()]);
        let file = sim.fs.open(Path::new("/journals"), OpenMode::CreateOrOpen).unwrap();
        for position in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[position] ^= 0x40;
            file.write_all_at(&damaged, 0).unwrap();
            let error = check(&*sim.fs, Path::new("/"), &["/journal".into()]).unwrap_err();
            assert!(matches!(error, LogError::Format { .. }), "byte {position}: {error}");
        }
    }
}
