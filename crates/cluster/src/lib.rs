//! The metadata quorum: members that agree on a log of commands, by Raft, and each apply it to a [`Machine`].
//!
//! `openraft` decides; ours is its ground: the files of a member (`log`, in our own format), the messages between members
//! (`wire`), the links that carry them (`net`), on which both sides prove that they have the cluster's [`Secret`], and the
//! runtime, which is a node's [environment](riverrun_env::NodeEnv), real or simulated. A [`Quorum`] is one member. What
//! commands mean is the machine's.
//!
//! No part of the server yet: its metadata is still the log of one node.

mod codec;
pub mod controller;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod log;
mod machine;
mod member;
mod net;
#[cfg(test)]
mod planted;
mod quorum;
mod runtime;
mod secret;
mod types;
mod wire;

pub use log::StoreError;
pub use machine::{Machine, Unreadable};
pub use member::{DecideError, Decisions, Life, LifeEnded, Member, MemberOptions};
pub use quorum::{
    Accepted, Answerer, AskError, COMMAND_BYTES_MAX, Lane, Progress, ProposeError, Quorum, QuorumOptions,
    StartError,
};
pub use secret::Secret;
pub use types::{Peer, VoterId};
pub use wire::MESSAGE_BYTES_MAX;
