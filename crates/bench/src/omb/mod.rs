//! `OpenMessaging` Benchmark's files: workloads and drivers as they are, results in its shape.
//!
//! Owns the mapping between these files and a [`Plan`](crate::plan::Plan). As in the original, unknown keys are
//! ignored, so that a file may carry keys of ours; here they are also reported. Refuses drivers of other systems than
//! Kafka, and workloads that the original refuses.

mod driver;
mod result;
mod to_plan;
mod workload;

pub use self::driver::Driver;
pub(crate) use self::result::omb_result;
pub use self::to_plan::{PlanOptions, to_plan};
pub use self::workload::{KeyDistributor, Workload};
