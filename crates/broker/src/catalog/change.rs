//! A change as the catalog proposes it: typed plans and outcomes in the form that a metadata log takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_log::LogStore;
use tokio::sync::oneshot;

use crate::aside::Turn;
use crate::metadata::{Draft, MetadataError, Proposal};

/// A change in its turn. `T` is what its plan has come to, and `R` what follows from that.
pub(super) struct Change<P, T, F, R> {
    plan: Option<P>,
    outcome: Option<T>,
    follow: F,
    answer: oneshot::Sender<Result<R, MetadataError>>,
    logs: Arc<LogStore>,
    /// Given back when the change has ended, which it does although its request may have gone.
    _turn: Turn,
}

impl<P, T, F, R> Change<P, T, F, R> {
    /// The change, and the receiver of its end. Nothing is received if the process ends first.
    pub(super) fn new(
        plan: P,
        follow: F,
        logs: &Arc<LogStore>,
        turn: Turn,
    ) -> (Self, oneshot::Receiver<Result<R, MetadataError>>) {
        let (answer, told) = oneshot::channel();
        let logs = Arc::clone(logs);
        (Self { plan: Some(plan), outcome: None, follow, answer, logs, _turn: turn }, told)
    }
}

impl<P, T, F, R> Proposal for Change<P, T, F, R>
where
    P: FnOnce(&mut Draft<'_>) -> T + Send,
    T: Send,
    F: FnOnce(Result<T, MetadataError>) -> Result<R, MetadataError> + Send,
    R: Send,
{
    fn draft(&mut self, draft: &mut Draft<'_>) {
        draft.avoid(failed_dirs(&self.logs));
        self.outcome = self.plan.take().map(|plan| plan(draft));
    }

    fn end(self: Box<Self>, ended: Result<(), MetadataError>) {
        let outcome = self.outcome;
        let ended = ended.map(|()| outcome.expect("what is durable was drafted"));
        // The request may have gone.
        let _ = self.answer.send((self.follow)(ended));
    }
}

/// Log dirs that take no more writes, so that no partition is put there.
pub(super) fn failed_dirs(logs: &LogStore) -> BTreeSet<usize> {
    (0..logs.dir_count()).filter(|dir| logs.dir_failure(*dir).is_some()).collect()
}
