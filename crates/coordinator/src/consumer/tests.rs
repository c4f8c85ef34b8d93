//! Groups under random clients that keep to the protocol, and rules that no simulation reaches by itself.

mod bounds;
mod commits;
pub(crate) mod memory;
mod migration;
mod own_configs;
mod replay;
mod sign_of_life;
mod simulation;
mod world;
