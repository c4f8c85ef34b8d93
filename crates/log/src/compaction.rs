//! Compaction: of all records with the same key, the last one stays.
//!
//! [`plan`] decides when and what (pure), [`offset_map`] remembers the last offset of each key in bounded memory,
//! [`rewrite`] decides record by record and builds a batch anew only if it has to (pure), [`pace`] spreads the work
//! over time (pure), [`execute`] reads the segments and writes their replacement, and [`swap`] puts it in place so that
//! a crash at any instant leaves either the old segments or the new one.
//!
//! Offsets never change: a reader that has a position keeps it, and finds gaps. Two batches stay although no reader
//! needs them, as headers without records if need be: the last one of each segment, so that every segment ends where
//! the next one begins, and the one with an idempotent producer's last sequence.

pub mod execute;
pub mod offset_map;
pub mod pace;
pub mod plan;
pub mod rewrite;
pub mod swap;
pub(crate) mod write;
