//! The commands of a client, one file or folder for each. Each has a type with its flags and a `run` that does it.

#[cfg(feature = "bench")]
pub mod bench;
pub mod config;
pub mod consume;
pub mod demo;
pub mod group;
#[cfg(any(test, not(feature = "bench")))]
pub mod left_out;
mod outcome;
#[cfg(feature = "bench")]
pub mod perf;
pub mod produce;
pub mod queue;
pub mod topic;

/// In the place of `bench`, in a build without it.
#[cfg(not(feature = "bench"))]
pub mod bench {
    pub use super::left_out::{LeftOut as BenchArgs, run};
}

/// In the place of `perf`, in a build without it.
#[cfg(not(feature = "bench"))]
pub mod perf {
    pub use super::left_out::{LeftOut as PerfArgs, run};
}
