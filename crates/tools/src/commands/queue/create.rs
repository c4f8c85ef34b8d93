//! `riverrun queue create`.

use std::path::PathBuf;

use clap::Args;
use riverrun_queue::{CreateOptions, Queue};
use serde::Serialize;

use super::queue_failure;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// Flags of `queue create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// The queue's directory, made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Bytes of a segment, a multiple of 4096; a record is smaller than that
    #[arg(long, value_name = "BYTES", default_value_t = CreateOptions::default().segment_bytes)]
    segment_bytes: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Created {
    dir: String,
    segment_bytes: u64,
}

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    let options = CreateOptions { segment_bytes: args.segment_bytes };
    Queue::create(&args.dir, options).map_err(|error| queue_failure(&error))?;
    let created = Created { dir: args.dir.display().to_string(), segment_bytes: args.segment_bytes };
    args.output.print(&created, |created| {
        let Created { dir, segment_bytes } = created;
        format!("{dir} created, segments of {segment_bytes} bytes\n")
    })
}
