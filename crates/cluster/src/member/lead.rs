//! Owns the controller's task: while its member leads the quorum it takes what is asked, decides all of it at once, has the quorum
//! agree, and answers.
//!
//! One command is under way at a time, and what is asked meanwhile is in the next one: each is made from the newest image. Nothing is
//! answered, not even that nothing changes, before a majority has confirmed that this member leads.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::NodeEnv;
use riverrun_types::NodeId;
use tokio::sync::{mpsc, oneshot};

use super::asks::{Alive, Ask, Heartbeat, Told};
use super::timer::or_after;
use crate::controller::{Controller, Decided, Draft, Image, Outcome, Policy, Refusal, Sessions};
#[cfg(test)]
use crate::planted::{Planted, is_planted};
use crate::quorum::{ProposeError, Quorum};

/// Asks that are decided together at most.
const BATCH_MAX: usize = 1_024;
/// Times that a batch is drafted anew because the image has changed meanwhile. Only a member that leads no more sees that.
const TRIES: usize = 5;

/// An ask, and who waits for the answer.
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) answer: oneshot::Sender<Told>,
}

#[cfg(test)]
impl Asked {
    fn is_of_clients(&self) -> bool {
        use crate::controller::Decision;
        let is_of_client = |decision: &Decision| !matches!(decision, Decision::Register(_));
        matches!(&self.ask, Ask::Decide(decisions) if decisions.iter().all(is_of_client))
    }
}

/// The controller of a member.
pub(super) struct Lead {
    pub(super) node: NodeEnv,
    pub(super) quorum: Quorum<Controller>,
    pub(super) policy: Arc<dyn Policy>,
    pub(super) session: Duration,
    pub(super) asks: mpsc::Receiver<Asked>,
}

/// The controller's knowledge while its member leads in a term.
struct Term {
    number: u64,
    sessions: Sessions,
    /// When it looked at the clock last. It may have been away since: then it cannot tell who else has.
    looked: Duration,
}

impl Lead {
    /// Runs until nobody can ask any more.
    pub(super) async fn run(mut self) {
        let mut term: Option<Term> = None;
        let mut batch = Vec::new();
        loop {
            let turn = self.session / 20;
            if or_after(&self.node, turn, self.asks.recv_many(&mut batch, BATCH_MAX)).await == Some(0) {
                return;
            }
            let asked = std::mem::take(&mut batch);
            term = self.take_over(term).await;
            if let Some(term) = &mut term {
                self.serve(term, asked).await;
            } else {
                let leader = self.quorum.leader();
                answer_all(asked, |_| Told::NotLeader(leader));
            }
        }
    }

    /// The term in which this member leads, begun if it is a new one. None if it does not lead.
    async fn take_over(&self, term: Option<Term>) -> Option<Term> {
        let (number, leads) = self.quorum.leads();
        let now = self.node.env.clock.monotonic();
        match term {
            _ if !leads => None,
            Some(mut term) if term.number == number => {
                let away = now.saturating_sub(term.looked);
                if away > self.session / 2 {
                    term.sessions = Sessions::new(self.session, now);
                }
                term.looked = now;
                Some(term)
            }
            _ => {
                self.quorum.confirm_leadership().await.ok()?;
                let now = self.node.env.clock.monotonic();
                let since = now;
                #[cfg(test)]
                let since = if is_planted(Planted::SessionsFromZero) { Duration::ZERO } else { since };
                Some(Term { number, sessions: Sessions::new(self.session, since), looked: now })
            }
        }
    }

    async fn serve(&self, term: &mut Term, asked: Vec<Asked>) {
        let now = term.looked;
        let mut waiting = asked;
        for _ in 0..TRIES {
            let image = self.quorum.look(|controller| Arc::clone(controller.image()));
            let plan = Plan::make(&image, &*self.policy, &mut term.sessions, &waiting, now, |beat| {
                self.quorum.digest_at(beat.applied).is_some_and(|digest| digest != beat.digest)
            });
            #[cfg(test)]
            if is_planted(Planted::AnsweredEarly) && waiting.iter().all(Asked::is_of_clients) {
                for (asked, told) in waiting.into_iter().zip(plan.answers) {
                    let _ = asked.answer.send(told.at(image.version()));
                }
                let _ = self.agree(&image, plan.command).await;
                return;
            }
            match self.agree(&image, plan.command).await {
                Agreed::Holds(version) => {
                    let version = version.unwrap_or(image.version());
                    for (asked, told) in waiting.into_iter().zip(plan.answers) {
                        // Nobody may wait any more.
                        let _ = asked.answer.send(told.at(version));
                    }
                    return;
                }
                Agreed::Stale => {}
                Agreed::TooLarge => return self.serve_in_parts(term, waiting).await,
                Agreed::NotLeader => {
                    let leader = self.quorum.leader();
                    return answer_all(waiting, |_| Told::NotLeader(leader));
                }
                Agreed::Unknown(reason) => {
                    return answer_all(waiting, |_| Told::Unknown(reason.clone()));
                }
            }
            waiting.retain(|asked| !asked.answer.is_closed());
        }
        answer_all(waiting, |_| Told::NotLeader(None));
    }

    /// Serves a batch that is too large for one command: half of it, and then the other half. A single ask that is too large by itself
    /// is refused.
    async fn serve_in_parts(&self, term: &mut Term, mut asked: Vec<Asked>) {
        if asked.len() < 2 {
            return answer_all(asked, |ask| match ask {
                Ask::Decide(decisions) => {
                    let refused = Decided::Refused(Refusal::TooLarge);
                    Told::Decided { version: 0, answers: vec![refused; decisions.len()] }
                }
                Ask::Heartbeat(_) => Told::Unknown("a change is too large".to_owned()),
            });
        }
        let rest = asked.split_off(asked.len() / 2);
        for part in [asked, rest] {
            Box::pin(self.serve(term, part)).await;
        }
    }

    /// Has the quorum agree on a command, or confirm that this member leads if nothing changes.
    async fn agree(&self, image: &Image, command: Command) -> Agreed {
        let command = match command {
            Command::Unreadable => return Agreed::TooLarge,
            Command::Some(command) => Some(command),
            Command::None => None,
        };
        let Some(command) = command else {
            if self.quorum.confirm_leadership().await.is_err() {
                return Agreed::NotLeader;
            }
            // Others may have led, and changed it, since the plan was made.
            let version = self.quorum.look(|controller| controller.image().version());
            return if version == image.version() { Agreed::Holds(None) } else { Agreed::Stale };
        };
        match self.quorum.propose(command).await {
            Ok(accepted) => match Outcome::decode(&accepted.reply) {
                Some(Outcome::Taken) => Agreed::Holds(Some(accepted.index)),
                Some(Outcome::Stale { .. }) => Agreed::Stale,
                Some(Outcome::Unfit) => Agreed::Unknown("the change does not fit".to_owned()),
                None => Agreed::Unknown("the answer of the quorum cannot be read".to_owned()),
            },
            Err(ProposeError::NotLeader(_)) => Agreed::NotLeader,
            Err(ProposeError::TooLarge) => Agreed::TooLarge,
            Err(error) => Agreed::Unknown(error.to_string()),
        }
    }
}

/// The outcome of a command.
enum Agreed {
    /// It holds, in the image of this version; without a command in the newest.
    Holds(Option<u64>),
    Stale,
    TooLarge,
    NotLeader,
    Unknown(String),
}

fn answer_all(asked: Vec<Asked>, told: impl Fn(&Ask) -> Told) {
    for Asked { ask, answer } in asked {
        // Nobody may wait any more.
        let _ = answer.send(told(&ask));
    }
}

/// An answer that lacks the version of the image in which it holds.
enum Answer {
    Decided(Vec<Decided>),
    Alive(Alive),
}

impl Answer {
    fn at(self, version: u64) -> Told {
        match self {
            Self::Decided(answers) => Told::Decided { version, answers },
            Self::Alive(alive) => Told::Alive(alive),
        }
    }
}

/// A command of a plan.
pub(super) enum Command {
    /// Nothing changes.
    None,
    Some(bytes::Bytes),
    /// It has more than members read.
    Unreadable,
}

/// The decisions about a batch of asks, and about brokers that were not heard from.
pub(super) struct Plan {
    /// The command that makes them hold.
    pub(super) command: Command,
    /// The answers, in the order of the asks.
    answers: Vec<Answer>,
}

impl Plan {
    pub(super) fn make(
        image: &Image,
        policy: &dyn Policy,
        sessions: &mut Sessions,
        asked: &[Asked],
        now: Duration,
        differs: impl Fn(&Heartbeat) -> bool,
    ) -> Self {
        sessions.keep(image);
        let mut draft = Draft::new(image, policy);
        let beats = asked.iter().filter_map(|asked| match &asked.ask {
            Ask::Heartbeat(beat) if !differs(beat) => Some(*beat),
            _ => None,
        });
        let beats: Vec<_> = beats.collect();
        for beat in &beats {
            sessions.hear(image, beat.node, beat.incarnation, now);
        }
        for node in sessions.over(image, now) {
            tracing::warn!("broker {} is fenced: it has not been heard from for a session", node.0);
            // It is registered: its session is.
            let _ = draft.fence(node);
        }
        for beat in &beats {
            let caught_up = image.broker(beat.node).is_some_and(|broker| {
                let knows = broker.changed_at <= beat.applied;
                #[cfg(test)]
                let knows =
                    (knows || is_planted(Planted::UnfencedUnaware)) && !is_planted(Planted::NeverUnfenced);
                broker.is_fenced && !broker.is_stopping && knows
            });
            if caught_up {
                // An older life stays as it is.
                let _ = draft.unfence(beat.node, beat.incarnation);
            }
        }
        // A broker that registers in this draft has no session yet, and none of its own before.
        let is_heard = |node: NodeId| sessions.lasts(image, node, now);
        let agreed: HashSet<_> = beats.iter().map(|beat| beat.node).collect();
        let answers = asked.iter().map(|asked| match &asked.ask {
            Ask::Decide(decisions) => {
                let decide = |decision: &_| draft.decide(Clone::clone(decision), &is_heard);
                Answer::Decided(decisions.iter().map(decide).collect())
            }
            Ask::Heartbeat(beat) => {
                let broker = draft.image().broker(beat.node);
                let known = broker.filter(|broker| broker.incarnation == beat.incarnation);
                Answer::Alive(Alive {
                    is_known: known.is_some(),
                    is_fenced: known.is_none_or(|broker| broker.is_fenced),
                    differs: !agreed.contains(&beat.node),
                })
            }
        });
        let answers = answers.collect();
        let command = if draft.is_empty() {
            Command::None
        } else {
            draft.into_readable().map_or(Command::Unreadable, Command::Some)
        };
        Self { command, answers }
    }
}
