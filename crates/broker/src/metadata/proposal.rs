//! The door to changes of the metadata: a change is proposed and awaited, whatever makes it durable.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::cluster::ClusterImage;
use super::draft::Draft;
use super::error::MetadataError;
use super::image::Image;

/// A change that is proposed, and its consequences on this node.
pub(crate) trait Proposal: Send {
    /// Drafts the change against the newest image. Not called if the metadata takes no change.
    fn draft(&mut self, draft: &mut Draft<'_>);

    /// Acts on the outcome: the change is durable and visible, or nothing has changed for this reason. Called once, on a thread
    /// that may block, even if the change is no longer awaited.
    fn end(self: Box<Self>, ended: Result<(), MetadataError>);
}

/// Makes changes of the metadata durable, one after the other, and then visible.
pub(crate) trait MetadataLog: fmt::Debug + Send + Sync {
    /// The metadata now. All of it is durable.
    fn image(&self) -> Arc<Image>;

    /// The cluster's half now.
    fn cluster(&self) -> Arc<ClusterImage>;

    /// Makes a change, which begins when the future is polled first, and has ended when it is ready. A future that is dropped
    /// in between does not stop the change. If the process ends before the change begins, the proposal is dropped.
    fn propose(self: Arc<Self>, proposal: Box<dyn Proposal>) -> BoxFuture<'static, ()>;
}
