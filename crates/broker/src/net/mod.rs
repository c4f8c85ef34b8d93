//! Sockets: listeners, connections, frames, and the memory that they may hold.
//!
//! Nothing here knows what a request means, but for the gate, which knows the key of those with records: a frame goes to
//! the router as bytes and comes back as a [`ResponseFrame`](response::ResponseFrame).

pub(crate) mod budget;
pub(crate) mod connection;
pub(crate) mod crowd;
pub(crate) mod frame;
pub(crate) mod gate;
mod gather;
pub(crate) mod inflating;
mod lane;
pub(crate) mod listener;
mod pace;
mod receive_mark;
pub(crate) mod response;
pub(crate) mod responses;
pub(crate) mod send;
pub(crate) mod source;
pub(crate) mod turns;
mod wait;
