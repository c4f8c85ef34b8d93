//! Runs plans on servers, and measures.
//!
//! Owns the sequence of a run, the search for a rate, backlogs, topics, the page cache and the servers' processes. The
//! plan alone decides the load.

mod backlog;
mod disk_full;
mod error;
mod figures;
mod fleet;
mod groups;
mod held;
mod page_cache;
mod run;
mod search;
mod target;
mod topics;

pub use self::disk_full::DiskFullFigures;
pub use self::error::RunError;
pub use self::figures::{BacklogFigures, Figures, Period, Second};
pub use self::fleet::WorkerRun;
pub use self::groups::MemberFigures;
pub use self::held::HeldTopics;
pub use self::page_cache::PageCache;
pub use self::run::{Event, RunOptions, RunOutcome, check, check_workers, run};
pub use self::search::{FoundRate, RateSearch, SearchOptions};
pub use self::target::{ParseTargetError, ServerTarget};
pub use self::topics::LogDirFigures;
