//! Owns how a random way is chosen: first the kind of a step, by weight, then a step of that kind.
//!
//! Drawn evenly, most steps would be frames and power cuts, because there are many of them to choose from. Bounds on failures
//! would be used up early, and the way would end far from a leader that asks for a new member. The weights let records flow and
//! images learn between failures, and let come back what has failed.

use crate::model::{Kind, Step};
use crate::state::{Message, State};

/// Kinds that are drawn from.
const KINDS: usize = 26;

/// The kind of a step, and its weight against the other kinds that are possible.
fn kind_of(step: &Step) -> (usize, usize) {
    match step.0 {
        Kind::Append { .. } => (0, 4),
        Kind::Sync { .. } => (1, 12),
        Kind::Advance { .. } => (2, 20),
        Kind::AckAlone { .. } => (3, 3),
        Kind::Send(Message::Alter { .. }) => (4, 12),
        Kind::Send(_) => (5, 24),
        Kind::Take(Message::Alter { .. }) => (6, 16),
        Kind::Take(_) => (7, 24),
        Kind::TakeCopy(Message::Alter { .. }) => (8, 4),
        Kind::TakeCopy(_) => (9, 1),
        Kind::Drop(_) => (10, 1),
        Kind::Learn { .. } => (11, 20),
        Kind::Fence(_) => (12, 2),
        Kind::Unfence(_) => (13, 12),
        Kind::LeaseEnds(_) => (14, 1),
        Kind::LeaseRenewed(_) => (15, 2),
        Kind::Register(_) => (16, 12),
        Kind::Crash { .. } | Kind::PowerCut(_) => (17, 1),
        Kind::Restart(_) => (18, 12),
        Kind::StartReassignment { .. } => (19, 2),
        Kind::FinishReassignment { .. } | Kind::Resign { .. } => (20, 12),
        Kind::Report { .. } | Kind::Choose { .. } => (21, 12),
        Kind::UncleanLeader { .. } => (22, 1),
    }
}

/// The kind of an offer (see [`crate::mirror`]), and its weight.
fn kind_of_offer(step: &Step) -> (usize, usize) {
    match step.0 {
        Kind::FinishReassignment { .. } => (23, 1),
        Kind::UncleanLeader { .. } => (24, 1),
        _ => (25, 4),
    }
}

/// Draws one of the steps and offers: its place among the steps, and the offers after them. None if there is no step: offers
/// lead nowhere, so that a way does not go on with them alone.
pub(crate) fn draw(
    steps: &[(Step, State)],
    offers: &[Step],
    random: &mut impl FnMut(usize) -> usize,
) -> Option<usize> {
    if steps.is_empty() {
        return None;
    }
    let kinds = || steps.iter().map(|(step, _)| kind_of(step)).chain(offers.iter().map(kind_of_offer));
    let mut counts = [0; KINDS];
    let mut weights = [0; KINDS];
    for (kind, weight) in kinds() {
        counts[kind] += 1;
        weights[kind] = weight;
    }
    let mut drawn = random(weights.iter().sum());
    let kind = weights.iter().position(|weight| {
        let found = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        found
    })?;
    let place = random(counts[kind]);
    kinds().enumerate().filter(|(_, (other, _))| *other == kind).map(|(place, _)| place).nth(place)
}
