//! Riverrun log.

pub mod checkpoint;
pub mod compaction;
pub mod config;
pub mod epochs;
mod fields;
pub mod producer_state;
pub mod retention;
