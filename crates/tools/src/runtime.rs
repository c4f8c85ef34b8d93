//! The runtime that a command of a client runs on.

use std::pin::Pin;

use tokio::runtime::Builder;

use crate::exit::Failure;

/// Runs a future on a runtime of its own, and does not wait for what it leaves behind. It is boxed, so that the runtime's
/// loop is compiled once and not for each command.
pub(crate) fn block_on(
    future: Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>>,
) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start threads", &error))?;
    let outcome = runtime.block_on(future);
    runtime.shutdown_background();
    outcome
}
