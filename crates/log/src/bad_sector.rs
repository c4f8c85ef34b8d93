//! Reading segments from a disk that has bad sectors.
//!
//! A bad sector fails only the reads that touch it. So [`read_exact`] and [`bad_sector`] tell its position, and
//! [`read_over`] saves the readable bytes behind it. The zeros that [`read_over`] puts in its place are for counting
//! and copying; nothing of them is ever served.

use std::io;
use std::ops::Range;

use riverrun_env::{File, is_device_error};
use thiserror::Error;

/// The page cache reads at least so much from a disk: around a bad sector as much is unreadable.
const BLOCK_BYTES: u64 = 4096;

/// A read has met bytes at this position of a file that the disk does not give back.
#[derive(Clone, Copy, Debug, Error)]
#[error("byte {0} cannot be read: the disk answers with an error")]
struct BadSector(u64);

/// The position of the bad sector that an error of [`read_exact`] reports, if it reports one.
pub(crate) fn bad_sector(error: &io::Error) -> Option<u64> {
    error.get_ref()?.downcast_ref().map(|BadSector(position)| *position)
}

/// Adds `position` to an error of a file's use, if it is the disk's.
pub(crate) fn at(position: u64, error: io::Error) -> io::Error {
    if is_device_error(&error) { io::Error::other(BadSector(position)) } else { error }
}

/// As [`File::read_exact_at`]; the error of a bad sector has its position. `buffer` has the bytes before it then.
pub(crate) fn read_exact(file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let from = position + done as u64;
        match file.read_at(&mut buffer[done..], from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(error) => return Err(at(from, error)),
        }
    }
    Ok(())
}

/// As [`read_exact`], with zeros in the place of unreadable bytes, whose positions it returns.
pub(crate) fn read_over(file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<Vec<Range<u64>>> {
    let end = position + buffer.len() as u64;
    let index = |at: u64| usize::try_from(at - position).expect("inside the buffer");
    let (mut unread, mut from) = (Vec::new(), position);
    while let Err(error) = read_exact(file, &mut buffer[index(from)..], from) {
        let Some(bad) = bad_sector(&error) else { return Err(error) };
        let upto = (bad - bad % BLOCK_BYTES).saturating_add(BLOCK_BYTES).min(end);
        buffer[index(bad)..index(upto)].fill(0);
        unread.push(bad..upto);
        from = upto;
    }
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use riverrun_env::sim::SimEnv;
    use riverrun_env::{FileSystem, OpenMode};

    use super::*;

    #[test]
    fn bytes_around_a_bad_sector_are_read_and_its_place_is_reported() {
        let (sim, path) = (SimEnv::new(1), Path::new("/file"));
        let file = sim.fs.open(path, OpenMode::CreateNew).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        sim.fs.break_sectors(path, 5000..5100).unwrap();
        let unread = |buffer: &mut [u8], position| -> Vec<(u64, u64)> {
            let ranges = read_over(&*file, buffer, position).unwrap();
            ranges.into_iter().map(|range| (range.start, range.end)).collect()
        };
        let mut buffer = vec![1; 9000];
        let error = read_exact(&*file, &mut buffer, 1000).unwrap_err();
        assert_eq!(bad_sector(&error), Some(5000), "{error}");
        assert!(buffer[..4000].iter().all(|byte| *byte == 7));
        assert_eq!(unread(&mut buffer, 1000), [(5000, 8192)]);
        let is_zero = |index: usize| (4000..7192).contains(&index);
        assert!(buffer.iter().enumerate().all(|(index, byte)| *byte == if is_zero(index) { 0 } else { 7 }));

        assert_eq!(unread(&mut buffer[..100], 5050), [(5050, 5150)], "it ends in the block");
        assert_eq!(unread(&mut buffer[..100], 0), []);
        let error = read_over(&*file, &mut buffer, 1001).unwrap_err();
        assert_eq!((error.kind(), bad_sector(&error)), (io::ErrorKind::UnexpectedEof, None));
    }
}
