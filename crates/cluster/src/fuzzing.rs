//! Doors for the fuzz targets: what a member reads from its disk and from the network.

use bytes::Bytes;

use crate::controller::check_command;
use crate::log::check_log;
pub use crate::log::sealed_log;
use crate::machine::check_snapshot;
use crate::member::check_ask;
use crate::net::check_beginning;
use crate::wire::check_message;

/// Reads a log file; what is accepted is the same after it was written again.
///
/// # Panics
/// If it is not.
pub fn log(file: &Bytes) {
    check_log(file);
}

/// Reads what a link begins with, a request and an answer; what is accepted is the same after it was written again.
///
/// # Panics
/// If it is not.
pub fn message(bytes: &Bytes) {
    check_beginning(bytes);
    check_message(bytes);
}

/// Reads a snapshot's file, whose checksum may be made good first.
///
/// # Panics
/// If what is accepted is not the same after it was written again.
pub fn snapshot(file: &Bytes) {
    check_snapshot(file);
}

/// Reads a command of the controller, and what a member asks of another; what is accepted is the same after it was written again.
///
/// # Panics
/// If it is not.
pub fn command(bytes: &Bytes) {
    check_command(bytes);
    check_ask(bytes);
}
