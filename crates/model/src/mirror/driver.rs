//! Owns the state of the model while another controller decides, and holds the two against each other after every step.

use crate::choice;
use crate::explore::nearest;
use crate::invariants::{self, Invariant};
use crate::log::{Epoch, PARTITIONS, nodes};
use crate::model::{Kind, Model, Step, Steps};
use crate::rules::{Quorum, Rule};
use crate::state::{Message, NOBODY, State};

use super::{
    BrokerView, Controller, Decision, Driven, Event, Events, Line, Mismatch, OFFERED, PartitionView, Trace,
    Views,
};

/// Steps that a scenario takes at most. A controller that never does what a milestone waits for ends it.
const SCENARIO_STEPS_MAX: usize = 10_000;

/// Goes one random way of up to `steps` steps and offers. `random(n)` returns a number below `n`.
///
/// # Errors
/// The first step after which the controller has what the model does not allow.
///
/// # Panics
/// If the model's quorum is a majority: its reports are no events.
pub fn drive(
    model: &Model,
    controller: &mut impl Controller,
    random: &mut impl FnMut(usize) -> usize,
    steps: usize,
) -> Result<Driven, Mismatch> {
    let mut driver = Driver::new(model, controller)?;
    for _ in 0..steps {
        let Some(place) = choice::draw(&driver.steps, &driver.offers, random) else { break };
        driver.go(driver.line_at(place))?;
        if driver.broken.is_some() {
            break;
        }
    }
    Ok(driver.end(None))
}

/// Goes the steps that a trace's lines name; lines with `#` are comments. It ends at the first line that is no step of the model.
/// If that line asks for what a controller must refuse, the controller is asked.
///
/// # Errors
/// The first step after which the controller has what the model does not allow.
///
/// # Panics
/// If the model's quorum is a majority: its reports are no events.
pub fn drive_trace(model: &Model, controller: &mut impl Controller, text: &str) -> Result<Driven, Mismatch> {
    let mut driver = Driver::new(model, controller)?;
    for text in lines_of(text) {
        let Some(line) = driver.line_named(text) else { return Ok(driver.end(Some(text))) };
        driver.go(line)?;
        if matches!(line, Line::Offer(_)) && !text.starts_with(OFFERED) {
            return Ok(driver.end(Some(text)));
        }
        if driver.broken.is_some() {
            break;
        }
    }
    Ok(driver.end(None))
}

/// Goes from one milestone to the next, as [`guided`](crate::guided) does: each line is a part of a step's text, and the nearest
/// step that has it is taken. It ends at the first that is not reached within `states_max` states of the model.
///
/// # Errors
/// The first step after which the controller has what the model does not allow.
///
/// # Panics
/// If the model's quorum is a majority: its reports are no events.
pub fn drive_scenario(
    model: &Model,
    controller: &mut impl Controller,
    text: &str,
    states_max: usize,
) -> Result<Driven, Mismatch> {
    let mut driver = Driver::new(model, controller)?;
    for milestone in lines_of(text) {
        if !driver.reach(milestone, states_max)? {
            return Ok(driver.end(Some(milestone)));
        }
        if driver.broken.is_some() {
            break;
        }
    }
    Ok(driver.end(None))
}

fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The model and the controller, side by side.
///
/// Invariants: the controller's views are those of `state`; `steps` and `offers` are all that are possible in it.
struct Driver<'a, C> {
    model: &'a Model,
    controller: &'a mut C,
    state: State,
    steps: Steps,
    offers: Vec<Step>,
    /// The controller's version for each of the model's, by partition. The model may move by more than one; a version that it
    /// passed over is known to nobody.
    versions: [Vec<u64>; PARTITIONS],
    /// The epoch in which a leader has resigned last; 0 if none has.
    resigned: [Epoch; PARTITIONS],
    events: Events,
    trace: Trace,
    broken: Option<Invariant>,
}

impl<'a, C: Controller> Driver<'a, C> {
    fn new(model: &'a Model, controller: &'a mut C) -> Result<Self, Mismatch> {
        assert!(model.setup.quorum == Quorum::All, "with a majority a leader is chosen by reports");
        let mut driver = Self {
            model,
            controller,
            state: model.first(),
            steps: Steps::new(),
            offers: Vec::new(),
            versions: Default::default(),
            resigned: [0; PARTITIONS],
            events: Events::default(),
            trace: Trace::default(),
            broken: None,
        };
        for part in 0..model.setup.partitions {
            let first = driver.controller.partition(part).version;
            driver.note_version(part, first);
        }
        if !driver.agrees(&driver.state) {
            return Err(driver.mismatch(None, &[driver.state]));
        }
        driver.look();
        Ok(driver)
    }

    fn end(self, ended: Option<&str>) -> Driven {
        Driven {
            steps: self.trace.len(),
            events: self.events,
            broken: self.broken,
            ended: ended.map(str::to_owned),
            trace: self.trace,
        }
    }

    /// Finds the steps and offers of the state.
    fn look(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        self.model.steps(&self.state, &mut steps);
        steps.retain(|(step, _)| match step.0 {
            Kind::FinishReassignment { part } => !self.waits_for_resignation(part),
            _ => true,
        });
        self.steps = steps;
        self.offers.clear();
        let stale = |message: &Message| match *message {
            Message::Alter { part, epoch, version, .. } => {
                let view = self.state.meta(part).view;
                (view.epoch, view.version) != (epoch, version)
            }
            _ => false,
        };
        if self.model.rules.has(Rule::VersionChecked) {
            let messages = self.state.net.iter().filter(stale);
            self.offers.extend(messages.map(|message| Step(Kind::Take(message))));
        }
        for part in 0..self.model.setup.partitions {
            self.offer_end(part);
            self.offer_leaders(part);
        }
    }

    /// Whether a reassignment's end waits for a leader's word. The model looks into the leader itself: one that has just died, or
    /// does not know yet that it leads, need not resign there. A controller cannot see that, and waits until such a leader is
    /// fenced or has learned.
    fn waits_for_resignation(&self, part: u8) -> bool {
        let meta = self.state.meta(part);
        let leader = meta.view.leader;
        self.model.rules.has(Rule::Resigns)
            && self.model.setup.level.acks_alone()
            && leader != NOBODY
            && !meta.target.has(leader)
            && self.resigned[usize::from(part)] != meta.view.epoch
    }

    fn offer_end(&mut self, part: u8) {
        let meta = self.state.meta(part);
        let lacks_members = !meta.target.within(meta.view.isr) && self.model.rules.has(Rule::TargetInSync);
        if !meta.target.is_empty() && (lacks_members || self.waits_for_resignation(part)) {
            self.offers.push(Step(Kind::FinishReassignment { part }));
        }
    }

    fn offer_leaders(&mut self, part: u8) {
        if self.model.bounds.unclean == 0 {
            return;
        }
        let view = self.state.meta(part).view;
        for node in nodes() {
            if view.leader != NOBODY || !self.state.may_lead(node) || !view.replicas.has(node) {
                self.offers.push(Step(Kind::UncleanLeader { part, node }));
            }
        }
    }

    /// The step of a place, or the offer behind all steps.
    fn line_at(&self, place: usize) -> Line {
        match self.steps.get(place) {
            Some((step, _)) => Line::Step(*step),
            None => Line::Offer(self.offers[place - self.steps.len()]),
        }
    }

    /// The step or offer that a trace's line names.
    fn line_named(&self, text: &str) -> Option<Line> {
        let asked = text.strip_prefix(OFFERED).unwrap_or(text);
        let step = self.steps.iter().map(|(step, _)| step).find(|step| step.to_string() == text);
        let offer = || self.offers.iter().find(|step| step.to_string() == asked);
        step.copied().map(Line::Step).or_else(|| offer().copied().map(Line::Offer))
    }

    /// Goes to the nearest step whose text has `milestone`. False if there is none. The controller may elect another leader than
    /// the way was made for: then a new way is looked for.
    fn reach(&mut self, milestone: &str, states_max: usize) -> Result<bool, Mismatch> {
        while self.trace.len() < SCENARIO_STEPS_MAX {
            let Some((way, _)) = nearest(self.model, &self.state, milestone, states_max) else { break };
            let mut gone = 0;
            for step in &way {
                if !self.steps.iter().any(|(other, _)| other == step) {
                    break;
                }
                self.go(Line::Step(*step))?;
                gone += 1;
                if self.broken.is_some() {
                    return Ok(true);
                }
            }
            if gone == way.len() || gone == 0 {
                return Ok(gone != 0);
            }
        }
        Ok(false)
    }

    /// Takes a step, or makes an offer. The controller decides, if it is the controller's, and says by its views where it leads.
    fn go(&mut self, line: Line) -> Result<(), Mismatch> {
        self.trace.0.push(line);
        let (Line::Step(step) | Line::Offer(step)) = line;
        let event = self.event_of(&step);
        if let Some(event) = event {
            self.controller.decide(event);
        }
        let allowed: Vec<State> = match line {
            Line::Step(step) => {
                self.steps.iter().filter(|(other, _)| *other == step).map(|(_, after)| *after).collect()
            }
            Line::Offer(_) => vec![self.without_message(&step)],
        };
        let Some(after) = allowed.iter().find(|after| self.agrees(after)).copied() else {
            return Err(self.mismatch(event, &allowed));
        };
        if let Some(event) = event {
            self.count(event, line, &after);
        }
        if let Kind::Resign { part, .. } = step.0 {
            self.resigned[usize::from(part)] = after.meta(part).view.epoch;
        }
        let before = std::mem::replace(&mut self.state, after);
        for part in 0..self.model.setup.partitions {
            let version = self.controller.partition(part).version;
            self.note_version(part, version);
        }
        if self.state != before {
            self.broken = invariants::broken(self.model, &self.state);
            self.look();
        }
        Ok(())
    }

    /// The state after an offer: a stale message is gone, as it may be lost at any time.
    fn without_message(&self, step: &Step) -> State {
        let mut after = self.state;
        if let Kind::Take(message) = &step.0 {
            after.net.take(message);
        }
        after
    }

    /// The event of a step that is the controller's.
    fn event_of(&self, step: &Step) -> Option<Event> {
        let event = match step.0 {
            Kind::Fence(node) => Event::Fence { node },
            Kind::Unfence(node) => Event::Unfence { node },
            Kind::Register(node) => Event::Register {
                node,
                life: self.state.registered[usize::from(node)].life + 1,
                suspect: self.state.broker(node).suspect,
            },
            Kind::Take(Message::Alter { part, from, epoch, version, change })
            | Kind::TakeCopy(Message::Alter { part, from, epoch, version, change }) => Event::Alter {
                part,
                from,
                epoch,
                version: self.versions[usize::from(part)][usize::from(version)],
                isr: change.isr,
                joiner: change.joiner,
            },
            Kind::StartReassignment { part } => {
                Event::StartReassignment { part, target: self.model.setup.target }
            }
            Kind::FinishReassignment { part } => Event::FinishReassignment { part },
            Kind::Resign { part, node } => Event::Resign { part, node },
            Kind::UncleanLeader { part, node } => Event::UncleanLeader { part, node },
            _ => return None,
        };
        Some(event)
    }

    /// The controller's version of a partition after the step before.
    fn version(&self, part: u8) -> u64 {
        self.versions[usize::from(part)].last().copied().unwrap_or_default()
    }

    /// Notes the controller's version for the model's version now.
    fn note_version(&mut self, part: u8, version: u64) {
        let now = usize::from(self.state.meta(part).view.version);
        self.versions[usize::from(part)].resize(now + 1, version);
    }

    /// A partition as a state of the model would have the controller have it.
    fn allowed_partition(&self, part: u8, after: &State) -> PartitionView {
        let meta = after.meta(part);
        let moves = meta.view.version != self.state.meta(part).view.version;
        PartitionView::of(meta, self.version(part) + u64::from(moves))
    }

    fn allowed_broker(after: &State, node: u8) -> BrokerView {
        let registered = after.registered[usize::from(node)];
        BrokerView { life: registered.life, fenced: registered.fenced }
    }

    /// Whether the controller has what a state of the model has.
    fn agrees(&self, after: &State) -> bool {
        nodes().all(|node| self.controller.broker(node) == Self::allowed_broker(after, node))
            && (0..self.model.setup.partitions).all(|part| {
                let allowed = self.allowed_partition(part, after);
                let actual = self.controller.partition(part);
                // A version moves by as much as it likes, but where it has to, and not back.
                let before = self.version(part);
                (actual.version > before) == (allowed.version > before)
                    && actual.version >= before
                    && PartitionView { version: allowed.version, ..actual } == allowed
            })
    }

    fn mismatch(&self, event: Option<Event>, allowed: &[State]) -> Mismatch {
        let parts = || 0..self.model.setup.partitions;
        let views = |after: &State| Views {
            partitions: parts().map(|part| self.allowed_partition(part, after)).collect(),
            brokers: std::array::from_fn(|node| Self::allowed_broker(after, node as u8)),
        };
        Mismatch {
            trace: self.trace.clone(),
            event,
            allowed: allowed.iter().map(views).collect(),
            actual: Views {
                partitions: parts().map(|part| self.controller.partition(part)).collect(),
                brokers: std::array::from_fn(|node| self.controller.broker(node as u8)),
            },
        }
    }

    /// Counts a decision, and the elections that came of it.
    fn count(&mut self, event: Event, line: Line, after: &State) {
        let offered = matches!(line, Line::Offer(_));
        let decision = match event {
            Event::Fence { .. } => Decision::Fence,
            Event::Unfence { .. } => Decision::Unfence,
            Event::Register { suspect: false, .. } => Decision::Register,
            Event::Register { suspect: true, .. } => Decision::RegisterSuspect,
            Event::Alter { .. } if offered => Decision::AlterStale,
            Event::Alter { part, isr, .. } if after.meta(part).view.isr != isr => Decision::AlterRefused,
            Event::Alter { joiner: None, .. } => Decision::Shrink,
            Event::Alter { joiner: Some(_), .. } => Decision::Join,
            Event::StartReassignment { .. } => Decision::StartReassignment,
            Event::FinishReassignment { .. } if offered => Decision::FinishRefused,
            Event::FinishReassignment { .. } => Decision::FinishReassignment,
            Event::Resign { .. } => Decision::Resign,
            Event::UncleanLeader { .. } if offered => Decision::UncleanRefused,
            Event::UncleanLeader { .. } => Decision::UncleanLeader,
        };
        self.events.add(decision);
        if decision == Decision::UncleanLeader {
            return;
        }
        for part in 0..self.model.setup.partitions {
            let before = self.state.meta(part);
            let view = after.meta(part).view;
            if view.epoch == before.view.epoch {
                continue;
            }
            self.events.add(if view.leader == NOBODY {
                Decision::LeftLeaderless
            } else if before.view.isr.has(view.leader) {
                Decision::ElectedInSync
            } else {
                Decision::ElectedEligible
            });
        }
    }
}
