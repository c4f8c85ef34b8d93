//! The socket's receive mark (`SO_RCVLOWAT`): how many bytes must have arrived before the socket is readable.
//!
//! A mark that is set lower than what has arrived makes the socket readable at once (Linux 4.18).

#![expect(unsafe_code, reason = "neither rustix nor socket2 has this option")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Sets the mark. The kernel takes half of the receive buffer at most.
pub(super) fn set(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
    let length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the value is an int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The mark that the socket has.
#[cfg(test)]
pub(super) fn get(socket: impl AsFd) -> io::Result<usize> {
    let (mut bytes, mut length): (libc::c_int, _) = (0, 4);
    // SAFETY: the descriptor is open while it is borrowed, and both values outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(usize::try_from(bytes).unwrap_or_default()) } else { Err(io::Error::last_os_error()) }
}
