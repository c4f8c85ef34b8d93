//! Owns what a member asks of others besides the quorum's own requests: one connection for each lane to a member.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft_rt::AsyncRuntime as _;
use parking_lot::Mutex;
use riverrun_env::NodeEnv;
use thiserror::Error;
use tokio::sync::Mutex as TurnMutex;

use crate::net::{Connection, Connections, IDLE_TIME, NoAnswer};
use crate::runtime::Runtime;
use crate::types::{Peer, VoterId};

/// A kind of asks that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Signs of life, which nothing may hold up.
    Heartbeats,
    /// All else.
    Decisions,
}

/// Why another member has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// It was not reached: it has done nothing.
    #[error("member {0} is not reached: {1}")]
    NotReached(VoterId, String),
    /// The answer has not come. It may have done what was asked.
    #[error("member {0} has not answered: {1}")]
    NotAnswered(VoterId, String),
}

impl AskError {
    /// Whether nothing was done for certain.
    pub fn is_certain(&self) -> bool {
        matches!(self, Self::NotReached(..))
    }
}

/// The connection of a lane to a member.
struct Used {
    connection: Connection,
    /// When it was used last. The other side lets an idle link go, and what is asked over one that it lets go may be done or not: so
    /// this side lets it go before.
    at: Duration,
}

/// The connections for what is asked.
pub(super) struct Asking {
    connections: Connections,
    lanes: Mutex<Lanes>,
}

/// The connection of each lane, with the place of the member that it was made for.
type Lanes = BTreeMap<(VoterId, Lane), (Peer, Arc<TurnMutex<Used>>)>;

impl Asking {
    pub(super) fn new(connections: Connections) -> Self {
        Self { connections, lanes: Mutex::default() }
    }

    pub(super) async fn ask(
        &self,
        node: &NodeEnv,
        to: VoterId,
        peer: &Peer,
        lane: Lane,
        asked: Bytes,
        time: Duration,
    ) -> Result<Bytes, AskError> {
        let begun = node.env.clock.monotonic();
        let used = self.lane(to, peer, lane, begun);
        let turn = Runtime::timeout(time, used.lock()).await;
        let mut used = turn
            .map_err(|_| AskError::NotReached(to, "others were asked before in all the time".to_owned()))?;
        let now = node.env.clock.monotonic();
        if now.saturating_sub(used.at) > IDLE_TIME / 2 {
            used.connection.let_go();
        }
        let left = time.saturating_sub(now.saturating_sub(begun));
        let told = used.connection.ask(asked, left).await;
        used.at = node.env.clock.monotonic();
        told.map_err(|error| match error {
            NoAnswer::Unreachable(failure) => AskError::NotReached(to, failure.to_string()),
            NoAnswer::NotMade => AskError::NotReached(to, "there was no link in time".to_owned()),
            NoAnswer::Broken(error) | NoAnswer::Lost(error) => AskError::NotAnswered(to, error.to_string()),
        })
    }

    fn lane(&self, to: VoterId, peer: &Peer, lane: Lane, now: Duration) -> Arc<TurnMutex<Used>> {
        let mut lanes = self.lanes.lock();
        if let Some((known, used)) = lanes.get(&(to, lane))
            && known == peer
        {
            return Arc::clone(used);
        }
        let connection = self.connections.connection(to, peer);
        let used = Arc::new(TurnMutex::new(Used { connection, at: now }));
        lanes.insert((to, lane), (peer.clone(), Arc::clone(&used)));
        used
    }
}
