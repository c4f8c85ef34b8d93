//! Text for people and for programs: tables, times, sizes, and bytes that may be anything.

pub(crate) mod bytes;
pub(crate) mod number;
pub(crate) mod output;
pub(crate) mod table;
pub(crate) mod time;
