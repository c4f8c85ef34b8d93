//! Riverrun env.
