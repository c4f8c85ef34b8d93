//! A file that takes all the room that is left on its file system, without a byte being written.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

/// The smallest piece that is tried: a server can use no less room.
const PIECE_BYTES_MIN: u64 = 4096;

/// Lets `file` grow until its file system takes no more, not even for the super user.
pub fn take_all_room(file: &File) -> io::Result<()> {
    let (mut end, mut piece_bytes) = (file.metadata()?.len(), free_bytes(file)?);
    while piece_bytes >= PIECE_BYTES_MIN {
        match fallocate(file, FallocateFlags::empty(), end, piece_bytes) {
            Ok(()) => end += piece_bytes,
            Err(rustix::io::Errno::NOSPC) => {}
            Err(error) => return Err(error.into()),
        }
        // A piece that was refused may have been made in part.
        end = end.max(file.metadata()?.len());
        piece_bytes = (piece_bytes / 2).min(free_bytes(file)?);
    }
    Ok(())
}

fn free_bytes(file: &File) -> io::Result<u64> {
    let space = fstatvfs(file)?;
    Ok(space.f_bfree.saturating_mul(space.f_frsize))
}
