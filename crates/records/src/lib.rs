//! Riverrun records.
