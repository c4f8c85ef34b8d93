//! The node's half of the metadata: its log dirs, their partitions, and how log dirs and journals are known again.
//!
//! [`NodeImage`] and the placement of new partitions are pure. The other modules have the questions that a start asks
//! the disks: the identity of each log dir, which of them are away, how far the metadata has come by their marks, and
//! which topics in them the metadata does not know.

pub(super) mod absent_dirs;
pub(super) mod directory;
mod image;
pub(super) mod journals;
pub(super) mod log_dirs;
pub(super) mod marks;
pub(super) mod placement;
pub(super) mod unknown;
pub(super) mod unseen;

#[cfg(test)]
pub(super) use self::image::GIVEN_UP_DIRS_MAX;
pub(super) use self::image::LogDir;
pub(crate) use self::image::NodeImage;
