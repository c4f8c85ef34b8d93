//! Metadata: which topics there are, and everything else that the server must remember besides records.
//!
//! Owns the immutable [`Image`] that readers take without a lock, the changes to it ([`Draft`]), and the [`Store`]
//! that makes each change durable before anyone sees it. Pure besides the store: an image and a change in, records
//! and a new image out.

mod absent_dirs;
mod copies;
mod directory;
mod draft;
mod error;
pub(crate) mod first_start;
mod frames;
mod image;
mod journals;
mod log_dirs;
mod marks;
mod placement;
mod records;
mod shards;
mod store;
#[cfg(test)]
pub(crate) mod testing;
mod unknown;
mod unseen;
mod verify;

pub(crate) use draft::random_id;
pub(crate) use draft::{Draft, NewTopic};
pub use error::MetadataError;
pub(crate) use error::{NOT_CHANGED, TopicError};
pub use frames::FrameError;
pub(crate) use image::{Image, Topic};
pub(crate) use journals::JournalRegistry;
pub(crate) use log_dirs::{IDENTITY_FILE, check_unowned, log_dir_around};
#[cfg(test)]
pub(crate) use records::Record;
pub(crate) use store::{Store, StoreOptions};
pub use unseen::{NamedKind, UnseenDir, Whereabouts, unseen_dirs, verify_lost_metadata};
pub use verify::{MetadataFinding, named_partitions, verify_identity, verify_mark, verify_metadata};
