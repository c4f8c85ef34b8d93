//! Owns the operator of a simulated quorum: it changes the members, one change after the other, and tries until it is done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft_rt::{AsyncRuntime as _, WatchReceiver as _};
use parking_lot::Mutex;
use riverrun_env::NodeEnv;

use super::rig::{Kept, NAMES, Slot};
use crate::quorum::Quorum;
use crate::runtime::{InNode, Runtime};
use crate::types::{Peer, VoterId};

/// The voters, as the operator knows them.
#[derive(Default)]
pub(super) struct Operator {
    /// The voters of the last change that has succeeded.
    pub(super) voters: BTreeSet<VoterId>,
    /// The voters that are wanted, while they are not reached.
    pub(super) wish: Option<BTreeSet<VoterId>>,
    pub(super) changes: usize,
}

impl Operator {
    /// Wants other voters.
    pub(super) fn want(&mut self, voters: BTreeSet<VoterId>) {
        if voters != self.voters || self.wish.is_some() {
            self.wish = Some(voters);
        }
    }
}

/// Does what is wanted.
pub(super) async fn operate(env: NodeEnv, operator: Arc<Mutex<Operator>>, slots: Vec<Arc<Mutex<Slot>>>) {
    loop {
        env.tasks.sleep(Duration::from_millis(50)).await;
        let wish = operator.lock().wish.clone();
        let Some(wish) = wish else { continue };
        let leading = slots.iter().filter_map(|slot| slot.lock().quorum.clone());
        let Some(leader) = leading.into_iter().find(|quorum| quorum.leads().1) else { continue };
        let changing = async {
            for id in wish.iter().filter(|id| !is_member(&leader, **id)) {
                let address = NAMES[id.node as usize].to_owned();
                leader.add_learner(*id, Peer { address }).await?;
            }
            leader.set_voters(wish.clone()).await
        };
        // Without an answer it is tried again: nobody knows what became of it.
        let limited = async { Runtime::timeout(Duration::from_secs(5), changing).await };
        if matches!(InNode::new(&env, limited).await, Ok(Ok(()))) {
            let mut operator = operator.lock();
            operator.voters = wish.clone();
            operator.changes += 1;
            operator.wish = operator.wish.take().filter(|newer| *newer != wish);
        }
    }
}

/// Whether the leader knows of a member: a change that nobody has answered may have been made.
fn is_member(leader: &Quorum<Kept>, id: VoterId) -> bool {
    let metrics = leader.inner.raft.metrics();
    metrics.borrow_watched().membership_config.membership().get_node(&id).is_some()
}
