//! `riverrun group delete`.

use clap::Args;
use riverrun_client::Admin;

use crate::args::ClientArgs;
use crate::commands::outcome::{outcome, report};
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// Flags of `group delete`.
#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Names of the groups; none of them may have members
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: DeleteArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let results = admin.delete_groups(&args.groups).await;
    let told = |(name, result)| outcome("group", name, result, |()| "deleted".to_owned());
    report(args.output, results.into_iter().map(told).collect())
}
