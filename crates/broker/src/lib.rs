//! Riverrun broker.
