//! Sockets: listeners, connections, frames, and the memory that they may hold.
//!
//! Nothing here knows what a request means: a frame goes to the router as bytes and comes back as a
//! [`ResponseFrame`](response::ResponseFrame).

pub(crate) mod budget;
pub(crate) mod connection;
pub(crate) mod frame;
pub(crate) mod listener;
pub(crate) mod response;
pub(crate) mod send;
