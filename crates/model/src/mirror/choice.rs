//! Owns how a random way is chosen: first the kind of a step, by weight, then a step of that kind.
//!
//! Drawn evenly, most steps would be frames and power cuts, because there are many of them to choose from. Bounds on failures
//! would be used up early, and the way would end far from a leader that asks for a new member. The weights let records flow and
//! images learn between failures, and let come back what has failed.

use crate::model::{Kind, Step};
use crate::state::{Message, State};

use super::Line;

/// Kinds that are drawn from.
const KINDS: usize = 25;

/// The kind of a step or offer, and its weight against the other kinds that are possible.
fn kind_of(line: &Line) -> (usize, usize) {
    match line {
        Line::Step(step) => kind_of_step(step),
        Line::Offer(Step(Kind::FinishReassignment { .. })) => (22, 1),
        Line::Offer(Step(Kind::UncleanLeader { .. })) => (23, 1),
        Line::Offer(_) => (24, 2),
    }
}

fn kind_of_step(step: &Step) -> (usize, usize) {
    match step.0 {
        Kind::Append { .. } => (0, 3),
        Kind::Sync { .. } => (1, 4),
        Kind::Advance { .. } => (2, 6),
        Kind::AckAlone { .. } => (3, 2),
        Kind::Send(Message::Alter { .. }) => (4, 6),
        Kind::Send(_) => (5, 8),
        Kind::Take(Message::Alter { .. }) => (6, 6),
        Kind::Take(_) => (7, 8),
        Kind::TakeCopy(Message::Alter { .. }) => (8, 2),
        Kind::TakeCopy(_) => (9, 1),
        Kind::Drop(_) => (10, 1),
        Kind::Learn { .. } => (11, 8),
        Kind::Fence(_) => (12, 2),
        Kind::Unfence(_) => (13, 6),
        Kind::LeaseEnds(_) => (14, 1),
        Kind::LeaseRenewed(_) => (15, 1),
        Kind::Register(_) => (16, 6),
        Kind::Crash { .. } | Kind::PowerCut(_) => (17, 1),
        Kind::Restart(_) => (18, 6),
        Kind::StartReassignment { .. } => (19, 1),
        Kind::FinishReassignment { .. } | Kind::Resign { .. } => (20, 6),
        Kind::UncleanLeader { .. } | Kind::Report { .. } | Kind::Choose { .. } => (21, 2),
    }
}

/// Draws one of the steps and offers; none if there are none.
pub(super) fn draw(
    steps: &[(Step, State)],
    offers: &[Step],
    random: &mut impl FnMut(usize) -> usize,
) -> Option<Line> {
    let lines =
        || steps.iter().map(|(step, _)| Line::Step(*step)).chain(offers.iter().copied().map(Line::Offer));
    let mut counts = [0; KINDS];
    let mut weights = [0; KINDS];
    for line in lines() {
        let (kind, weight) = kind_of(&line);
        counts[kind] += 1;
        weights[kind] = weight;
    }
    let total = weights.iter().sum();
    if total == 0 {
        return None;
    }
    let mut drawn = random(total);
    let kind = weights.iter().position(|weight| {
        let found = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        found
    })?;
    let place = random(counts[kind]);
    lines().filter(|line| kind_of(line).0 == kind).nth(place)
}
