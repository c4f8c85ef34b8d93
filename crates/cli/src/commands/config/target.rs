//! Whose configuration: a topic's, or a server's.

use clap::Args;

/// `--topic NAME` or `--broker ID`, one of them.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct Target {
    /// The configuration of this topic
    #[arg(long, value_name = "NAME")]
    pub(super) topic: Option<String>,
    /// The configuration of the server with this node id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) broker: Option<i32>,
}
