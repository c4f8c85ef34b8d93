//! Sockets: listeners, connections and frames.
//!
//! Nothing here knows the meaning of requests, but for the gate, which knows the key of those with records: a frame goes to
//! the router as bytes and comes back as a [`ResponseFrame`](crate::response::ResponseFrame).

pub(crate) mod admission;
pub(crate) mod connection;
pub(crate) mod dispatch;
pub(crate) mod frame;
pub(crate) mod limits;
pub(crate) mod listener;
mod pipeline;
mod read_coalescing;
mod reader;
mod receive_mark;
pub(crate) mod send;
mod transport;
