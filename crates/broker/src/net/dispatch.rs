//! The two steps of a request: the first in the order in which a connection's requests came, the second awaited beside others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;

use crate::context::ConnectionInfo;
use crate::flow::budget::Charge;
use crate::flow::inflate_offload::{RecordsWork, Slice};
use crate::flow::produce_backpressure::Places;
use crate::response::Outcome;

/// The rest of a request, which is awaited beside those of the requests around it.
pub(crate) type Response = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Serves the requests of connections.
pub(crate) trait Dispatch: Send + Sync {
    /// Bytes that the answer to a request of that key and length is expected to need; none if it is small.
    fn expected_bytes(&self, _api_key: Option<i16>, _frame_bytes: usize) -> Option<usize> {
        None
    }

    /// Why a large request that begins like this, and of which `missing` bytes are to come, is not worth receiving; none if
    /// it may be right.
    fn refuses(&self, _beginning: &[u8], _missing: usize) -> Option<String> {
        None
    }

    /// The places that the records of a request go to.
    fn places(&self, _frame: &[u8]) -> Places {
        Places::default()
    }

    /// The first step of a request. A connection takes it for one request after the other, in their order; `context` wakes its
    /// task.
    fn stage(
        &self,
        context: &mut Context<'_>,
        connection: &Arc<ConnectionInfo>,
        frame: BytesMut,
        charge: Charge,
    ) -> Staged;
}

/// A request after its first step.
pub(crate) enum Staged {
    /// Its outcome is known.
    Done(Outcome),
    /// Nothing of it depends on the order of the requests any more.
    Waits(Response),
    /// Its batches are to get their places, before anything else is staged.
    Records(Box<dyn Records>),
}

impl Staged {
    /// A request whose handler does all that depends on the order of the requests before its first wait: that is done now.
    pub(crate) fn handled(mut response: Response, context: &mut Context<'_>) -> Self {
        match response.as_mut().poll(context) {
            Poll::Ready(outcome) => Self::Done(outcome),
            Poll::Pending => Self::Waits(response),
        }
    }
}

/// The records of a Produce request.
pub(crate) trait Records: Send {
    /// The work of appending them.
    fn work(&self) -> RecordsWork;

    /// Gives batches their places until all have theirs, or the slice is over; answers whether all have. Waits for nothing.
    fn append(&mut self, slice: Slice) -> bool;

    /// The rest, once all batches that arrived together have their places: to write them, and to wait until they are durable.
    fn finish(self: Box<Self>) -> Response;
}
