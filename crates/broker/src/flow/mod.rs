//! Flow control: the sources of requests, their turns, and the memory that requests and answers may hold.
//!
//! Nothing here knows a socket or the meaning of a request. Shares are kept for a [`source`].

use std::time::Duration;

pub(crate) mod budget;
pub(crate) mod inflate_offload;
pub(crate) mod large_frames;
pub(crate) mod pace;
pub(crate) mod produce_backpressure;
pub(crate) mod responses;
pub(crate) mod source;
pub(crate) mod turns;
mod wait;

/// Pause after an accept that failed because the system lacks something: a loop would burn a core.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(50);
