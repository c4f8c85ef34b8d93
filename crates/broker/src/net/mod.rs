//! Sockets: listeners, connections, frames, and the memory that they may hold.
//!
//! Nothing here knows what a request means, but for the gate, which knows the key of those with records: a frame goes to
//! the router as bytes and comes back as a [`ResponseFrame`](response::ResponseFrame).

pub(crate) mod budget;
pub(crate) mod connection;
pub(crate) mod crowd;
pub(crate) mod frame;
pub(crate) mod inflate_offload;
mod large_frames;
pub(crate) mod listener;
mod pace;
pub(crate) mod produce_backpressure;
mod read_coalescing;
mod receive_mark;
pub(crate) mod response;
pub(crate) mod responses;
pub(crate) mod send;
pub(crate) mod source;
pub(crate) mod turns;
mod wait;
