//! Riverrun protocol.
