//! An executable model of replication: leader, followers, controller, and all that may go wrong between them.
//!
//! A [`Model`] has a [`Setup`] (level, quorum, replicas), [`Bounds`] and [`Rules`]. [`search`] visits every state that is
//! reachable within the bounds, [`walk`] goes one random way through larger ones, [`guided`] one from milestone to milestone.
//! All check every [`Invariant`] in every state, and show the steps that lead to a broken one. Each [`Rule`] is there because a
//! search without it finds a loss.
//!
//! The model knows nothing of the product's code, so that the two can be held against each other: a trace is a list of steps
//! with a text for each, and `testdata/` keeps those that broke something. [`mirror`] lets a controller of the product decide in
//! the place of the model's.
//!
//! ```
//! use riverrun_model::{Bounds, Limits, Model, Outcome, Rule, Rules, Setup, search};
//!
//! let bounds = Bounds { values: 1, epochs: 2, messages: 2, fences: 1, ..Bounds::NONE };
//! let safe = Model::new(Setup::default(), bounds, Rules::default());
//! assert!(matches!(search(&safe, Limits::states(1_000_000)), Outcome::Exhausted { .. }));
//!
//! let model = Model::new(Setup::default(), bounds, Rules::without(Rule::CutByEpoch));
//! let Outcome::Broken { trace, .. } = search(&model, Limits::states(1_000_000)) else { panic!() };
//! assert!(!trace.is_empty());
//! ```

#![allow(
    clippy::cast_possible_truncation,
    clippy::trivially_copy_pass_by_ref,
    reason = "everything is a byte: counts are bounded by `Model::new`, and a log of nine bytes is passed as one of five hundred would be"
)]

mod cases;
mod choice;
mod controller;
mod explore;
mod failures;
mod follower;
mod invariants;
mod leader;
mod log;
pub mod mirror;
mod model;
mod rules;
mod state;

pub use cases::case;
pub use explore::{Limits, Outcome, Walked, guided, replay, search, walk};
pub use invariants::Invariant;
pub use log::{Epoch, Node, Set};
pub use model::{Bounds, Model, Setup, Step};
pub use rules::{Level, Quorum, Rule, Rules};
