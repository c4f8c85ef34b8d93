//! Opening the input, and counting how much of it was read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// The input before records are cut out of it.
pub(crate) struct Opened {
    /// The text; unpacked if the name ends with `.gz`.
    pub(crate) input: Box<dyn Read + Send>,
    /// Bytes of the file that were read so far, before unpacking.
    pub(crate) position: Arc<AtomicU64>,
    /// Bytes of the file, where it is a plain one.
    pub(crate) len: Option<u64>,
}

/// Opens a file, or stdin for `-` and for no name at all.
pub(crate) fn open(path: Option<&Path>) -> io::Result<Opened> {
    let position = Arc::new(AtomicU64::new(0));
    let (input, len): (Box<dyn Read + Send>, _) = match path.filter(|path| *path != Path::new("-")) {
        None => (Box::new(io::stdin()), None),
        Some(path) => {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            (Box::new(file), metadata.is_file().then_some(metadata.len()))
        }
    };
    let counted = Counted { input, position: Arc::clone(&position) };
    let is_packed = path.and_then(Path::extension).is_some_and(|name| name.eq_ignore_ascii_case("gz"));
    let input: Box<dyn Read + Send> =
        if is_packed { Box::new(MultiGzDecoder::new(counted)) } else { Box::new(counted) };
    Ok(Opened { input, position, len })
}

struct Counted {
    input: Box<dyn Read + Send>,
    position: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let taken = self.input.read(buffer)?;
        self.position.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read(path: &Path) -> io::Result<(Vec<u8>, u64)> {
        let mut opened = open(Some(path))?;
        let mut text = Vec::new();
        opened.input.read_to_end(&mut text)?;
        assert_eq!(opened.len, Some(opened.position.load(Ordering::Relaxed)));
        Ok((text, opened.position.load(Ordering::Relaxed)))
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).and_then(|()| encoder.finish()).expect("memory takes it")
    }

    #[test]
    fn a_name_with_gz_is_unpacked_and_others_are_not() {
        let dir = tempfile::tempdir().expect("a directory");
        // Several members one after the other are one stream (RFC 1952, section 2.2).
        let bytes = [packed(b"one\n"), packed(b"two\n")].concat();
        for (name, expected) in [("a.txt.gz", &b"one\ntwo\n"[..]), ("b.GZ", b"one\ntwo\n"), ("c.txt", &bytes)]
        {
            let path = dir.path().join(name);
            std::fs::write(&path, &bytes).expect("written");
            assert_eq!(read(&path).expect("readable"), (expected.to_vec(), bytes.len() as u64), "{name}");
        }
    }

    #[test]
    fn damaged_gzip_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.gz");
        let mut bytes = packed(&b"text ".repeat(1000));
        bytes.truncate(bytes.len() - 9);
        std::fs::write(&path, &bytes).expect("written");
        assert!(read(&path).is_err());
        std::fs::write(&path, b"plain text").expect("written");
        assert!(read(&path).is_err());
    }

    #[test]
    fn a_directory_or_a_missing_file_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let kind = |path: &Path| open(Some(path)).err().expect("an error").kind();
        assert_eq!(kind(dir.path()), io::ErrorKind::IsADirectory);
        assert_eq!(kind(&dir.path().join("none")), io::ErrorKind::NotFound);
    }
}
