//! The limits of a connection, and the reasons for its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::frame::FrameLengthError;
use crate::aside::Aside;
use crate::catch_up::CatchUp;
use crate::flow::budget::MemoryBudget;
use crate::flow::inflate_offload::InflatingLeave;
use crate::flow::produce_backpressure::ProduceGate;
use crate::flow::responses::ResponseMemory;

/// How often deadlines are looked at unless they are shorter, and the age at which an unused read buffer is given
/// back.
pub(super) const TICK: Duration = Duration::from_secs(2);

/// The limits and the shared parts of the server that a connection needs.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    /// Bytes of a frame at most.
    pub(crate) frame_bytes_max: usize,
    /// Requests that may be unanswered at once.
    pub(crate) requests_max: usize,
    /// From a frame's first byte to its last, at most.
    pub(crate) frame_time_max: Duration,
    /// Without a byte in either direction, at most.
    pub(crate) idle_time_max: Duration,
    /// Shared by all connections.
    pub(crate) requests: Arc<MemoryBudget>,
    /// Shared by all connections.
    pub(crate) responses: Arc<ResponseMemory>,
    /// Shared by all connections.
    pub(crate) catch_up: Arc<CatchUp>,
    /// The gate that requests with records pass; shared by all connections.
    pub(crate) produce_gate: Arc<ProduceGate>,
    /// Shared by all connections.
    pub(crate) inflating: Arc<InflatingLeave>,
    /// The runtime for slices of requests with much to do.
    pub(crate) aside: Aside,
}

impl ConnectionLimits {
    /// How often deadlines are looked at: a time-out is late by a quarter at most.
    pub(super) fn tick(&self) -> Duration {
        let shortest = self.frame_time_max.min(self.idle_time_max);
        (shortest / 4).clamp(Duration::from_millis(1), TICK)
    }
}

/// Why a connection ended other than by its client's wish.
#[derive(Debug, Error)]
pub(crate) enum Closed {
    #[error(transparent)]
    FrameLength(#[from] FrameLengthError),
    #[error("{0}")]
    BadRequest(String),
    #[error("a frame was not complete after {0:?}")]
    FrameTimeout(Duration),
    #[error("it does not take its responses, and others wait for the memory that these hold")]
    InTheWay,
    #[error("its request arrives too slowly, and others wait for the memory that it was given")]
    HoldsUpOthers,
    #[error("no memory came free for its request in {0:?}")]
    NoMemory(Duration),
    #[error("nothing was sent or received for {0:?}")]
    Idle(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
}
