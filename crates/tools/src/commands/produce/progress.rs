//! Progress of a long input, on stderr, if that is a terminal.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use riverrun_measure::text::number;

use crate::input::Opened;
use crate::progress;

/// Form of a bar over a known number of bytes.
const OF_BYTES: &str = "{bar:30} {percent:>3}%  {msg}  {binary_bytes_per_sec}  {eta} left";

/// Records between two looks at the clock.
const UPDATE_RECORDS: u64 = 1024;

/// A bar where the input's length is known, else a running count. Nothing if the input is typed.
pub(super) struct Progress {
    bar: ProgressBar,
    position: Arc<AtomicU64>,
}

impl Progress {
    pub(super) fn start(opened: &Opened) -> Self {
        let is_typed = opened.len.is_none() && std::io::stdin().is_terminal();
        let bar = match opened.len {
            _ if is_typed => ProgressBar::hidden(),
            Some(len) => progress::bar(Some(len), OF_BYTES),
            None => progress::bar(None, progress::WITHOUT_END),
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
