//! The client against a scripted server: what it does when an answer is wrong, late, missing or a refusal.

#![expect(clippy::unwrap_used, reason = "it is how a test asserts")]

mod admin;
mod cluster;
mod commits;
mod consumer;
mod departures;
mod groups;
mod hostile;
mod leaders;
mod options;
mod patterns;
mod producer;
mod rebalances;
mod server;
mod signs_of_life;
