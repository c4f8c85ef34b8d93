//! Output of a command's answer on stdout: a table for people or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use serde::Serialize;

use crate::exit::Failure;

/// The form of the answer.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print one JSON document instead of text for people
    #[arg(long)]
    pub json: bool,
}

impl OutputArgs {
    /// Prints `document` with `--json`, else the text that `text` makes of it.
    pub fn print<T: Serialize>(self, document: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        self.try_print(document, text).map_err(|error| Failure::output(&error))
    }

    /// [`Self::print`] for a caller that goes on if the output cannot be written.
    pub fn try_print<T: Serialize>(self, document: &T, text: impl FnOnce(&T) -> String) -> io::Result<()> {
        write_text(&if self.json { json_text(document) } else { text(document) })
    }
}

/// Prints one JSON document on a line of its own.
pub fn print_json<T: Serialize>(document: &T) -> Result<(), Failure> {
    print_text(&json_text(document))
}

fn json_text<T: Serialize>(document: &T) -> String {
    serde_json::to_string(document).expect("our documents have text keys and no failing parts") + "\n"
}

/// Prints text as it is.
pub fn print_text(text: &str) -> Result<(), Failure> {
    write_text(text).map_err(|error| Failure::output(&error))
}

fn write_text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whether colours may be used on stdout: a terminal reads it, and nobody said no (<https://no-color.org>).
pub fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
