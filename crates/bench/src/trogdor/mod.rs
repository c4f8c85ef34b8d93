//! Trogdor's task specs: `ProduceBench`, `ConsumeBench` and `RoundTrip` in their original form, comments included.
//!
//! Owns the mapping between a spec and a [`Plan`](crate::plan::Plan), and the generators of keys and values that specs
//! name. Refuses transactional specs, with the reason, and tasks of other kinds. There are no agents and no
//! coordinator: a spec is run here, or by our own workers.

mod comments;
mod generator;
mod lenient;
mod nested;
mod spec;
mod to_plan;
mod topics;

pub use self::generator::{Generator, GeneratorSpec};
pub use self::spec::Spec;
