//! Which partition a record goes to.
//!
//! Records with a key go where Kafka's own clients send that key ([`murmur2`]); records without one stay with a
//! partition for a batch's worth of bytes and then move on ([`Sticky`]), so that batches fill.

mod murmur2;
mod sticky;

pub(super) use murmur2::partition_of_key;
pub(super) use sticky::Sticky;
