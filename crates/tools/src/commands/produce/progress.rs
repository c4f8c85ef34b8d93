//! Progress of a long input, on stderr, if that is a terminal.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use riverrun_measure::text::number;

use crate::input::Opened;

/// Records between two looks at the clock.
const UPDATE_RECORDS: u64 = 1024;

/// A bar where the input's length is known, else a running count. Where somebody types, nothing.
pub(super) struct Progress {
    bar: ProgressBar,
    position: Arc<AtomicU64>,
}

impl Progress {
    pub(super) fn start(opened: &Opened) -> Self {
        let is_typed = opened.len.is_none() && std::io::stdin().is_terminal();
        let bar = match opened.len {
            _ if is_typed || !std::io::stderr().is_terminal() => ProgressBar::hidden(),
            Some(len) => ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr_with_hz(10))
                .with_style(style("{bar:30} {percent:>3}%  {msg}  {binary_bytes_per_sec}  {eta} left")),
            None => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
                .with_style(style("{spinner} {msg}  {elapsed}")),
        };
        Self { bar, position: Arc::clone(&opened.position) }
    }

    pub(super) fn set_records(&self, records: u64) {
        if records.is_multiple_of(UPDATE_RECORDS) && !self.bar.is_hidden() {
            self.bar.set_message(number::records(records));
            self.bar.set_position(self.position.load(Ordering::Relaxed));
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant of this file")
}
