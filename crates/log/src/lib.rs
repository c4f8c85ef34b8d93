//! Riverrun log.
