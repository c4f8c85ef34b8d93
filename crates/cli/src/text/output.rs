//! Where a command's answer goes: stdout, as a table for people or as JSON for programs.

use std::io::{IsTerminal as _, Write as _};

use clap::Args;
use serde::Serialize;

use crate::exit::Failure;

/// The form of the answer.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArgs {
    /// Print one JSON document instead of text for people
    #[arg(long)]
    pub(crate) json: bool,
}

impl OutputArgs {
    /// Prints `document` with `--json`, else the text that `text` makes of it.
    pub(crate) fn print<T: Serialize>(
        self,
        document: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json { print_json(document) } else { print_text(&text(document)) }
    }
}

/// Prints one JSON document on a line of its own.
pub(crate) fn print_json<T: Serialize>(document: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(document).expect("our documents have text keys and no failing parts");
    print_text(&(text + "\n"))
}

/// Prints text as it is.
pub(crate) fn print_text(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Whether colours may be used on stdout: a terminal reads it, and nobody said no (<https://no-color.org>).
pub(crate) fn has_colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
