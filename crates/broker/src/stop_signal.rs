//! The signal that tells every task of a server to end.

use tokio::sync::watch;

/// Turns true once.
pub(crate) type StopSignal = watch::Receiver<bool>;

/// Waits until the server stops. A server that is gone without a word has stopped, too.
pub(crate) async fn stopped(signal: &mut StopSignal) {
    let _ = signal.wait_for(|&stopping| stopping).await;
}
