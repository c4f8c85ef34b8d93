//! Riverrun client.
