//! Text for people and for programs: tables, times, sizes, and bytes that may be anything.

pub mod bytes;
pub mod number;
pub mod output;
pub mod table;
pub mod time;
