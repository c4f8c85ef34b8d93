//! The client side of `riverrun`: the commands that need no server in their process, and what every command shares.
//!
//! Owns what people and programs see of a command ([`exit`], [`logging`], [`text`]), how it hears that it is to end
//! ([`signals`]), how far it is ([`progress`]), and the commands that go through a client or a queue ([`commands`]). Knows nothing of the broker, the log
//! and the journal, so that a change of these compiles none of it again: commands on a server's inside are in
//! `riverrun-cli`, which also owns the command line as a whole.
//!
//! ```
//! use riverrun_tools::exit::{Exit, Failure};
//!
//! let failure = Failure::new(Exit::NotFound, "no such topic").advise("riverrun topic list");
//! assert_eq!(failure.to_string(), "error: no such topic\n  try: riverrun topic list");
//! ```

// A reader of stdout or stderr that has left, or a full disk behind it, is no panic: `text::output` and `logging` write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod args;
pub mod commands;
pub mod exit;
mod input;
pub mod logging;
pub mod progress;
mod runtime;
pub mod signals;
pub mod text;
