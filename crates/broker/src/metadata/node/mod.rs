//! The node's half of the metadata: its log dirs, what lies in each, and how they and the journals are known again.
//!
//! [`NodeImage`] and where new partitions go are pure. Beside them lies what a start asks the disks: whose a log dir is, which
//! ones are away, how far they say that the metadata has come, and which topics in them it does not know.

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
