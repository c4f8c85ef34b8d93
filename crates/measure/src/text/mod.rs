//! Figures for people: counts, sizes, rates, durations, and the tables that they stand in.

pub mod number;
pub mod printable;
pub mod table;
