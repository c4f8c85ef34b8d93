//! The parts that all measurements share.
//!
//! Owns the times at which records are due ([`pacing`]), latencies ([`histogram`]), the system's figures of a process and
//! of its threads ([`process`], [`threads`]), and figures for people ([`text`]). Knows no server, no client and no file
//! format, so that the demo needs nothing else of the benchmarks.
//!
//! ```
//! use std::time::Duration;
//!
//! use riverrun_measure::histogram::Latencies;
//! use riverrun_measure::text::number;
//!
//! let mut latencies = Latencies::new();
//! latencies.record_many(Duration::from_micros(250), 1000);
//! let p99 = Duration::from_micros(latencies.percentile_us(99.0));
//! assert_eq!(number::records(latencies.count()) + " in " + &number::duration(p99), "1,000 records in 250 us");
//! ```

pub mod histogram;
pub mod pacing;
pub mod process;
mod procfs;
pub mod text;
pub mod threads;
