//! `bench worker`: does what a runner elsewhere says.

use std::net::SocketAddr;

use clap::Args;
use riverrun_bench::worker::serve;
use tokio::net::TcpListener;

use crate::exit::Failure;
use crate::text::output::print_text;

#[derive(Args, Debug)]
pub(super) struct WorkerArgs {
    /// Listen here for a runner. Any peer that connects can make this process send load to any server: give only an
    /// address that nobody else reaches
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9750")]
    listen: SocketAddr,
}

pub(super) async fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(format!("cannot listen on {}", args.listen), &error);
    let listener = TcpListener::bind(args.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    print_text(&format!("listening on {address}\n"))?;
    serve(listener).await;
    Ok(())
}
