//! Text for people and for programs: times, and bytes that may be anything. Figures and tables are in `riverrun-measure`.

pub mod bytes;
pub mod output;
pub mod time;
