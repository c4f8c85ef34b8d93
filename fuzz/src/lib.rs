//! Parts that the fuzz targets share: an allocator that knows its peak, and the properties that each kind of input is
//! checked for.

mod allocation;
mod batches;
mod journals;
mod messages;
mod queues;
mod quorums;
mod states;

pub use allocation::peak_bytes_during;
pub use batches::{check_batch, check_stream};
pub use journals::check_journal;
pub use messages::{check_message, check_request};
pub use queues::check_queue;
pub use quorums::{check_quorum_command, check_quorum_files, check_quorum_message};
pub use states::check_state;
