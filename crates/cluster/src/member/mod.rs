//! Owns a node of the cluster as the rest of the program sees it: the image that is agreed upon, decisions that are asked for, and the
//! life of this node's broker.
//!
//! A node is a member of the quorum, with a vote or without. Whatever it asks goes to the member that leads.

mod asks;
mod lead;
mod life;
#[cfg(test)]
mod tests;
mod timer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverrun_env::{BoxFuture, NodeEnv, TaskHandle};
use tokio::sync::{mpsc, oneshot};

pub use self::life::{Life, LifeEnded};
use crate::controller::{Controller, Decided, Decision, Image, Newcomer, Policy};
use crate::quorum::{Answerer, Lane, Quorum, QuorumOptions, StartError};
use crate::types::VoterId;
#[cfg(feature = "fuzzing")]
pub(crate) use asks::check_ask;
use asks::{Ask, Told};
use lead::{Asked, Lead};
use life::{Living, Times};
use timer::or_after;

/// Asks that wait for the controller at most; more of them wait outside.
const WAITING_MAX: usize = 1_024;
/// The pause before a leader is looked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// The options of a node.
#[derive(Clone)]
pub struct MemberOptions {
    /// Those of its member of the quorum.
    pub quorum: QuorumOptions,
    /// The meaning of topics' configs.
    pub policy: Arc<dyn Policy>,
    /// The time without a sign of life after which a broker is fenced (`broker.session.timeout.ms`).
    pub session: Duration,
    /// Between two signs of life (`broker.heartbeat.interval.ms`).
    pub heartbeat: Duration,
}

impl fmt::Debug for MemberOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberOptions").field("quorum", &self.quorum).finish_non_exhaustive()
    }
}

/// Why it is not known that decisions hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// No leader was found in time. Nothing was decided.
    #[error("no member leads the quorum, or it cannot be reached")]
    NoLeader,
    /// The answer has not come. The decisions may hold.
    #[error("it is not known whether the change holds: {0}")]
    Unknown(String),
}

/// Decisions that hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// They hold in images of this version and of later ones.
    pub version: u64,
    /// The answer to each.
    pub answers: Vec<Decided>,
}

/// A node of the cluster. Clones are the same one.
#[derive(Clone)]
pub struct Member {
    asking: Asking,
    leading: TaskHandle,
    /// The tasks of lives of this node's broker.
    living: Arc<Mutex<Vec<TaskHandle>>>,
    times: Times,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").finish_non_exhaustive()
    }
}

impl Member {
    /// Starts the member of the quorum, and its controller, which decides while the member leads.
    pub async fn start(node: &NodeEnv, options: MemberOptions) -> Result<Self, StartError> {
        let MemberOptions { quorum, policy, session, heartbeat } = options;
        let voter = quorum.voter;
        let quorum = Quorum::start(node, quorum, Controller::default()).await?;
        let (sender, asks) = mpsc::channel(WAITING_MAX);
        quorum.answer_with(Arc::new(Door { asks: sender.clone() }));
        let lead = Lead { node: node.clone(), quorum: quorum.clone(), policy, session, asks };
        let leading = node.tasks.spawn("controller", Box::pin(lead.run()));
        let asking = Asking { node: node.clone(), quorum, voter, asks: sender };
        Ok(Self { asking, leading, living: Arc::default(), times: Times { session, heartbeat } })
    }

    /// The member of the quorum.
    pub fn quorum(&self) -> &Quorum<Controller> {
        &self.asking.quorum
    }

    /// The newest image that this node knows.
    pub fn image(&self) -> Arc<Image> {
        self.asking.image()
    }

    /// Asks for decisions, which are made together, and waits until they hold here.
    pub async fn decide(&self, decisions: Vec<Decision>, time: Duration) -> Result<Decisions, DecideError> {
        let told = self.asking.ask(Ask::Decide(decisions), time).await;
        match told {
            Some(Told::Decided { version, answers }) => {
                let here = or_after(&self.asking.node, time, self.quorum().wait_for(version)).await;
                let unseen =
                    || DecideError::Unknown("it holds, but this node has not learnt of it".to_owned());
                here.flatten().ok_or_else(unseen)?;
                Ok(Decisions { version, answers })
            }
            Some(Told::Unknown(reason)) => Err(DecideError::Unknown(reason)),
            Some(Told::NotLeader(_) | Told::Alive(_)) | None => Err(DecideError::NoLeader),
        }
    }

    /// Begins a life of this node's broker: it registers, and gives signs of life from then on.
    pub fn begin_life(&self, newcomer: Newcomer) -> Life {
        let living = Living::new(self.asking.clone(), newcomer, self.times);
        let life = living.life.clone();
        let task = self.asking.node.tasks.spawn("broker-life", Box::pin(living.run()));
        self.living.lock().push(task);
        life
    }

    /// Stops the node. What the quorum has taken stays.
    pub async fn stop(&self) {
        self.leading.abort();
        for life in self.living.lock().drain(..) {
            life.abort();
        }
        self.asking.quorum.stop().await;
    }
}

/// The door for what other members ask.
struct Door {
    asks: mpsc::Sender<Asked>,
}

impl Answerer for Door {
    fn answer(&self, _from: VoterId, asked: Bytes) -> BoxFuture<'static, Bytes> {
        let asks = self.asks.clone();
        Box::pin(async move {
            let told = match Ask::decode(&asked) {
                Ok(ask) => ask_here(&asks, ask).await,
                Err(flaw) => Told::Unknown(flaw.to_string()),
            };
            told.encode()
        })
    }
}

/// Asks the controller of this node.
async fn ask_here(asks: &mpsc::Sender<Asked>, ask: Ask) -> Told {
    let (answer, told) = oneshot::channel();
    if asks.send(Asked { ask, answer }).await.is_err() {
        return Told::NotLeader(None);
    }
    told.await.unwrap_or_else(|_| Told::Unknown("the node has stopped".to_owned()))
}

/// The way to the member that leads.
#[derive(Clone)]
struct Asking {
    node: NodeEnv,
    quorum: Quorum<Controller>,
    voter: VoterId,
    asks: mpsc::Sender<Asked>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("voter", &self.voter).finish_non_exhaustive()
    }
}

impl Asking {
    fn image(&self) -> Arc<Image> {
        self.quorum.look(|controller| Arc::clone(controller.image()))
    }

    /// Asks the member that leads, whoever that is, for as long as nothing can have been decided. None if there is no answer in
    /// time, and nothing was decided.
    async fn ask(&self, ask: Ask, time: Duration) -> Option<Told> {
        let is_under_way = AtomicBool::new(false);
        let asked = or_after(&self.node, time, async {
            let mut leader = self.quorum.leader();
            loop {
                is_under_way.store(leader.is_some(), Ordering::Relaxed);
                let told = self.ask_member(leader, &ask, time).await;
                let other = match told {
                    Some(Told::NotLeader(other)) => other.filter(|other| leader != Some(*other)),
                    Some(told) => return told,
                    None => None,
                };
                is_under_way.store(false, Ordering::Relaxed);
                if other.is_none() {
                    self.node.tasks.sleep(PAUSE).await;
                }
                leader = other.or_else(|| self.quorum.leader());
            }
        });
        match asked.await {
            None if is_under_way.into_inner() => {
                Some(Told::Unknown("the answer has not come in time".to_owned()))
            }
            told => told,
        }
    }

    /// Asks one member. None if it was not reached.
    async fn ask_member(&self, member: Option<VoterId>, ask: &Ask, time: Duration) -> Option<Told> {
        let member = member?;
        if member == self.voter {
            return Some(ask_here(&self.asks, ask.clone()).await);
        }
        let lane = if let Ask::Heartbeat(_) = ask { Lane::Heartbeats } else { Lane::Decisions };
        match self.quorum.ask(member, lane, ask.encode(), time).await {
            Ok(told) => Some(Told::decode(&told).unwrap_or_else(|flaw| Told::Unknown(flaw.to_string()))),
            Err(error) if error.is_certain() => None,
            Err(error) => Some(Told::Unknown(error.to_string())),
        }
    }
}
