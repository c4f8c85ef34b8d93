//! The number of files, directories and sockets that the process may have open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's limit of open descriptors from the soft limit to the hard one, and returns the new limit;
/// `None` if there is none. The limit is the whole process's, so this is for the program that owns it, before its
/// first threads and children.
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum)
}
