//! The door to changes of the metadata: a change is proposed and awaited, whatever makes it durable.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::cluster::ClusterImage;
use super::draft::Draft;
use super::error::MetadataError;
use super::image::Image;

/// A change that is proposed, and what follows from it on this node.
pub(crate) trait Proposal: Send {
    /// Drafts the change against the newest image. Not called where the metadata takes no change.
    fn draft(&mut self, draft: &mut Draft<'_>);

    /// Hears that the change is durable and visible, or why nothing has changed. Called once, on a thread that may block, also
    /// where the change is awaited no more.
    fn end(self: Box<Self>, ended: Result<(), MetadataError>);
}

/// What makes changes of the metadata durable, one after the other, and then visible.
pub(crate) trait MetadataLog: fmt::Debug + Send + Sync {
    /// What the metadata says now. All of it is durable.
    fn image(&self) -> Arc<Image>;

    /// What it says of the cluster now.
    fn cluster(&self) -> Arc<ClusterImage>;

    /// Makes a change, which begins when this is polled first, and has ended when it is ready. Dropped in between, it goes on
    /// to its end. Where the process ends before the change begins, the proposal is dropped.
    fn propose(self: Arc<Self>, proposal: Box<dyn Proposal>) -> BoxFuture<'static, ()>;
}
