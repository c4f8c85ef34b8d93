//! The error text for a file that is older than this program can read.

/// The text for a file of format version `found`, where `oldest` is the oldest readable one: the fact, and the way
/// out.
pub fn old_format(found: u16, oldest: u16) -> String {
    format!(
        "format version {found}, and this program reads none older than {oldest}: start the older program that wrote it, or \
         begin with an empty directory and copy the records from there with a client"
    )
}
