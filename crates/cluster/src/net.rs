//! Owns how members of a quorum reach each other: a link for each direction of speech, one request after the other on it.
//!
//! A link [begins](hello) with both sides proving that they have the cluster's secret. That settles who may speak: a node of
//! another cluster, a stranger on the port, and a recorded or reflected conversation are not heard, and take neither memory nor
//! places that members need ([`links`]). It does not settle what is said afterwards: until links are encrypted, anybody on the
//! way between two members can read their messages, and change them.

mod arrival;
mod calling;
mod hello;
mod links;
mod notes;
mod serving;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::secret::Secret;
use crate::types::VoterId;

pub(crate) use calling::{Connection, Connections, NoAnswer};
#[cfg(feature = "fuzzing")]
pub(crate) use hello::check_beginning;
pub(crate) use serving::{AnswererSlot, start_serving};

/// The versions of the protocol between nodes that this program speaks, the first and the last.
const VERSIONS: (u16, u16) = (1, 1);
/// Time for a link to prove itself, from when it was made.
const PROOF_TIME: Duration = Duration::from_secs(5);
/// Time without a request after which a link is closed.
pub(crate) const IDLE_TIME: Duration = Duration::from_mins(1);

/// A member, as the others see it, and what proves it.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) cluster: [u8; 16],
    pub(crate) voter: VoterId,
    pub(crate) secret: Secret,
}
