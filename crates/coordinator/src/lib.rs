//! Riverrun coordinator.
