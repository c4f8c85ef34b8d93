//! What an error says of a file that is older than what this program reads.

/// Of a file of format version `found`, where the oldest one that is read is `oldest`: what it is, and the way out.
pub fn old_format(found: u16, oldest: u16) -> String {
    format!(
        "format version {found}, and this program reads none older than {oldest}: start the older program that wrote it, or \
         begin with an empty directory and copy the records from there with a client"
    )
}
