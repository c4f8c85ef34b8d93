//! Compaction: of all records with the same key, the last one stays.
//!
//! [`plan`] decides when and what (pure), [`offset_map`] remembers the last offset of each key in bounded memory,
//! [`rewrite`] decides record by record and builds a batch anew only if it has to (pure), [`execute`] reads the
//! segments and writes their replacements, [`swap`] puts a replacement in place so that a crash at any instant
//! leaves either the old segments or the new one.
//!
//! What it keeps although no reader needs it, as Kafka does: the last batch of the part that was cleaned, so that
//! the end of that part stays known, and the batch with an idempotent producer's last sequence. Both may become
//! empty batches: a header without records.

pub mod offset_map;
pub mod plan;
