//! Owns a life of a broker: it registers, gives signs of life, and knows how long it may count on being heard.
//!
//! A broker counts on a part of a session from when it sent the sign of life that was answered. Once that is over it takes itself
//! for fenced, whatever the controller says later. It goes by boot time: while a machine sleeps, others go on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::NodeEnv;
use riverrun_types::NodeId;

use super::asks::{Alive, Ask, Heartbeat, Told};
use super::{Asking, PAUSE};
use crate::controller::{Decided, Decision, Newcomer, Refusal, lease};
#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// Why a life of a broker has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LifeEnded {
    /// The controller does not let it in.
    #[error("the cluster does not take this broker: {0}")]
    Refused(Refusal),
    /// Another process has registered as this broker, or somebody has unregistered it.
    #[error("broker {} is registered as another process, or not any more: this one stops", .0.0)]
    Replaced(NodeId),
    /// Its image differs from the leader's at the same index: one of the two is wrong.
    #[error(
        "the metadata of this node differ from those of the cluster: it stops, and its log of metadata has to be looked at"
    )]
    Differs,
}

/// A broker's view of its own life.
#[derive(Debug, Default)]
struct View {
    incarnation: Option<u64>,
    /// The time until which it counts on its session; none while it is fenced.
    lease_until: Option<Duration>,
    ended: Option<LifeEnded>,
}

/// A life of a broker. Clones are the same one.
#[derive(Clone)]
pub struct Life {
    node: NodeEnv,
    view: Arc<Mutex<View>>,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.lock().fmt(f)
    }
}

impl Life {
    /// Its incarnation, once it has registered.
    pub fn incarnation(&self) -> Option<u64> {
        self.view.lock().incarnation
    }

    /// Whether it may act as the leader that its image says it is: it is not fenced, and its session lasts.
    pub fn may_act(&self) -> bool {
        let now = self.node.env.clock.boot();
        let view = self.view.lock();
        view.ended.is_none() && view.lease_until.is_some_and(|until| now < until)
    }

    /// Why it has ended, if it has.
    pub fn ended(&self) -> Option<LifeEnded> {
        self.view.lock().ended.clone()
    }

    fn end(&self, why: LifeEnded) {
        tracing::error!("{why}");
        let mut view = self.view.lock();
        view.lease_until = None;
        view.ended = Some(why);
    }
}

/// The times of a broker's life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The controller's session (`broker.session.timeout.ms`).
    pub(super) session: Duration,
    /// Between two signs of life (`broker.heartbeat.interval.ms`).
    pub(super) heartbeat: Duration,
}

/// The task of a broker's life.
pub(super) struct Living {
    pub(super) asking: Asking,
    pub(super) newcomer: Newcomer,
    pub(super) times: Times,
    pub(super) life: Life,
}

impl Living {
    pub(super) fn new(asking: Asking, newcomer: Newcomer, times: Times) -> Self {
        let life = Life { node: asking.node.clone(), view: Arc::default() };
        Self { asking, newcomer, times, life }
    }

    /// Registers, and gives signs of life until the life has ended.
    pub(super) async fn run(self) {
        let Some(incarnation) = self.register().await else { return };
        self.life.view.lock().incarnation = Some(incarnation);
        loop {
            let sent = self.asking.node.env.clock.boot();
            // A leader that is gone does not say so: the next one is to hear in time.
            let told = self.asking.ask(self.heartbeat(incarnation), self.times.heartbeat).await;
            let Some(Told::Alive(alive)) = told else {
                // It may be told so at once, again and again.
                self.asking.node.tasks.sleep(PAUSE).await;
                continue;
            };
            if let Some(why) = self.why_over(alive) {
                return self.life.end(why);
            }
            let until = sent + lease(self.times.session);
            #[cfg(test)]
            let until = if is_planted(Planted::LeaseTooLong) { sent + 2 * self.times.session } else { until };
            self.life.view.lock().lease_until = (!alive.is_fenced).then_some(until);
            self.asking.node.tasks.sleep(self.times.heartbeat).await;
        }
    }

    fn heartbeat(&self, incarnation: u64) -> Ask {
        let progress = self.asking.quorum.progress();
        let (node, applied) = (self.newcomer.registration.node, progress.applied.unwrap_or(0));
        Ask::Heartbeat(Heartbeat { node, incarnation, applied, digest: progress.digest })
    }

    fn why_over(&self, alive: Alive) -> Option<LifeEnded> {
        if alive.differs {
            return Some(LifeEnded::Differs);
        }
        (!alive.is_known).then_some(LifeEnded::Replaced(self.newcomer.registration.node))
    }

    /// Registers until it is known whether that holds, and answers with the incarnation.
    async fn register(&self) -> Option<u64> {
        let node = self.newcomer.registration.node;
        loop {
            let ask = Ask::Decide(vec![Decision::Register(self.newcomer.clone())]);
            if let Some(Told::Decided { version, answers }) = self.asking.ask(ask, self.times.session).await {
                match answers.into_iter().next() {
                    Some(Decided::Refused(refusal @ Refusal::DuplicateBroker(_))) => {
                        // The other one may be dead, and its session last.
                        tracing::warn!("{refusal}");
                    }
                    Some(Decided::Refused(refusal)) => {
                        self.life.end(LifeEnded::Refused(refusal));
                        return None;
                    }
                    Some(_) => {
                        self.asking.quorum.wait_for(version).await?;
                        let image = self.asking.image();
                        let registered = image.broker(node);
                        let mine = registered
                            .filter(|broker| broker.registration.life == self.newcomer.registration.life);
                        if mine.is_none() {
                            self.life.end(LifeEnded::Replaced(node));
                        }
                        return mine.map(|broker| broker.incarnation);
                    }
                    None => {}
                }
            }
            self.asking.node.tasks.sleep(self.times.heartbeat).await;
        }
    }
}
