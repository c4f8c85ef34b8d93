//! Metadata: the topics, and everything else that the server must remember besides records.
//!
//! Owns the immutable [`Image`] that readers take without a lock, the changes to it ([`Draft`]), and the [`Store`]
//! that makes each change durable before anyone sees it. The image has two halves: the cluster's ([`ClusterImage`]:
//! topics, configs, producer ids, leader epochs) and this node's ([`NodeImage`]: log dirs, cordons, placements, deleted
//! files). Images and drafts are pure: an image and a change in, records and a new image out.

mod cluster;
mod copies;
mod draft;
mod error;
pub(crate) mod first_start;
mod frames;
mod image;
mod node;
mod producer_ids;
mod proposal;
mod records;
mod store;
#[cfg(test)]
pub(crate) mod testing;
mod verify;

pub(crate) use cluster::{ClusterImage, Topic};
pub(crate) use draft::random_id;
pub(crate) use draft::{Draft, NewTopic};
pub use error::MetadataError;
pub(crate) use error::{NOT_CHANGED, TopicError};
pub use frames::FrameError;
pub(crate) use image::Image;
pub(crate) use node::NodeImage;
pub(crate) use node::journals::JournalRegistry;
pub(crate) use node::log_dirs::{IDENTITY_FILE, check_unowned, log_dir_around, refuse_in_use};
pub use node::unseen::{NamedKind, UnseenDir, Whereabouts, unseen_dirs, verify_lost_metadata};
pub(crate) use producer_ids::ProducerIds;
pub(crate) use proposal::{MetadataLog, Proposal};
#[cfg(test)]
pub(crate) use records::Record;
pub(crate) use store::{Store, StoreOptions};
pub use verify::{MetadataFinding, named_partitions, verify_identity, verify_mark, verify_metadata};
