//! The client against a scripted server: its handling of wrong, late, missing and refusing answers.

#![expect(clippy::unwrap_used, reason = "it is how a test asserts")]

mod admin;
mod cluster;
mod commits;
mod consumer;
mod departures;
mod groups;
mod heartbeats;
mod hostile;
mod leaders;
mod options;
mod patterns;
mod producer;
mod rebalances;
mod server;
