//! The queue between the threads that log and the one that writes.
//!
//! Invariants: its lines and bytes are bounded; a thread that logs waits for no more than another one that does, or for
//! the writer to take the lines that are there; each line is written, or counted as lost, with the count in its place.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riverrun_types::LogAccount;
use tracing::Level;

use super::line::{Style, Value};

/// Lines that wait at most: some seconds of a server in great trouble.
const LINES_MAX: usize = 8192;
/// Bytes that wait at most. It is memory that nothing else can use while the reader of the log is away.
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes that the writer takes at once: one write to a pipe of usual size, so that a stop has little to wait for.
const TAKEN_BYTES: usize = 64 * 1024;

/// An entry of the queue, to be written.
enum Entry {
    Line(String),
    /// So many lines are missing here.
    Lost(u64),
}

/// The text that the writer took.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) text: String,
    pieces: Vec<Piece>,
}

/// One line of a batch.
#[derive(Debug)]
struct Piece {
    /// The piece's end in the text.
    end: usize,
    /// Lost lines that it counts, if it is a line about these.
    told: Option<u64>,
}

impl Batch {
    fn push(&mut self, line: &str, told: Option<u64>) {
        self.text.push_str(line);
        self.pieces.push(Piece { end: self.text.len(), told });
    }
}

pub(super) struct LogQueue {
    state: Mutex<State>,
    changed: Condvar,
    account: Arc<LogAccount>,
    style: Arc<Style>,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Lines that found no room since the last that did.
    lost: u64,
    /// Lines that were taken and could not be written; the next batch begins with their number.
    unwritten: u64,
    /// Whether the last of what was written is a part of a line.
    is_cut: bool,
    /// Whether the writer has taken something and is not done with it.
    is_writing: bool,
    /// Whether the process ends and waits for the writer.
    is_ending: bool,
}

impl State {
    fn has_room(&self, line: &str) -> bool {
        self.entries.len() < LINES_MAX && self.bytes + line.len() <= BYTES_MAX
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lost == 0
    }

    /// Puts what was lost in its place.
    fn place_lost(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.entries.push_back(Entry::Lost(lost));
        }
    }
}

impl LogQueue {
    pub(super) fn new(account: Arc<LogAccount>, style: Arc<Style>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), account, style }
    }

    pub(super) fn style(&self) -> &Style {
        &self.style
    }

    pub(super) fn account(&self) -> &LogAccount {
        &self.account
    }

    /// Nothing that is done under the lock can panic half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a line in, or drops and counts it.
    pub(super) fn push(&self, line: String) {
        let mut state = self.state();
        if !state.has_room(&line) {
            state.lost += 1;
            drop(state);
            self.account.lost(1);
            return;
        }
        state.place_lost();
        state.bytes += line.len();
        state.entries.push_back(Entry::Line(line));
        drop(state);
        self.changed.notify_all();
    }

    /// Counts what of a batch could not be written, of which so many bytes were.
    pub(super) fn give_up(&self, batch: &Batch, written: usize) {
        let lost: Vec<&Piece> = batch.pieces.iter().filter(|piece| piece.end > written).collect();
        self.account.lost(lost.iter().filter(|piece| piece.told.is_none()).count() as u64);
        let mut state = self.state();
        state.unwritten += lost.iter().map(|piece| piece.told.unwrap_or(1)).sum::<u64>();
        state.is_cut = match written.checked_sub(1) {
            Some(before) => batch.text.as_bytes()[before] != b'\n',
            None => batch.text.starts_with('\n'),
        };
    }

    /// Waits for something to write. What was taken before counts as done.
    pub(super) fn take(&self) -> Batch {
        let mut state = self.state();
        state.is_writing = false;
        self.changed.notify_all();
        state = self
            .changed
            .wait_while(state, |queued| queued.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        let batch = self.gather(&mut state);
        state.is_cut = false;
        batch
    }

    fn gather(&self, state: &mut State) -> Batch {
        let mut batch = Batch::default();
        if state.is_cut {
            batch.push("\n", Some(0));
        }
        let unwritten = std::mem::take(&mut state.unwritten);
        if unwritten > 0 {
            batch.push(&self.lost_line(unwritten), Some(unwritten));
        }
        while batch.text.len() < TAKEN_BYTES {
            match state.entries.pop_front() {
                Some(Entry::Line(line)) => {
                    state.bytes -= line.len();
                    batch.push(&line, None);
                }
                Some(Entry::Lost(lost)) => batch.push(&self.lost_line(lost), Some(lost)),
                None if state.lost > 0 => state.place_lost(),
                None => break,
            }
        }
        batch
    }

    fn lost_line(&self, lost: u64) -> String {
        let fields = [("lines", Value::Plain(lost.into()))];
        let told =
            "lines of the log are missing here: there was no room for them, or they could not be written";
        self.style.line(Level::WARN, "riverrun::logging", told, &fields)
    }

    /// Waits a moment before the next try; not while the process ends.
    pub(super) fn pause(&self, pause: Duration) {
        let state = self.state();
        drop(self.changed.wait_timeout_while(state, pause, |state| !state.is_ending));
    }

    /// Waits until everything is written or lost, or for so long.
    pub(super) fn drain(&self, wait: Duration) {
        let deadline = Instant::now() + wait;
        let mut state = self.state();
        state.is_ending = true;
        self.changed.notify_all();
        while state.is_writing || !state.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_ending = false;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn new_queue() -> LogQueue {
        LogQueue::new(Arc::default(), Arc::new(Style::new(false)))
    }

    pub(crate) fn taken_text(queue: &LogQueue) -> String {
        queue.take().text
    }

    #[test]
    fn a_full_queue_drops_counts_and_tells_in_place() {
        let queue = new_queue();
        for number in 0..LINES_MAX + 5 {
            queue.push(format!("{number:>20}\n"));
        }
        assert_eq!(queue.account().lost_lines(), 5);
        let first = queue.take();
        queue.push("after\n".to_owned());
        let mut text = first.text;
        while !text.ends_with("after\n") {
            text += &queue.take().text;
        }
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let [first, .., last, told, after] = lines[..] else { panic!("{lines:?}") };
        assert_eq!((first, last, after), ("0", (LINES_MAX - 1).to_string().as_str(), "after"));
        assert!(told.ends_with("lines=5"), "{told}");
        assert_eq!(lines.len(), LINES_MAX + 2);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let queue = new_queue();
        let line = "x".repeat(BYTES_MAX / 4) + "\n";
        (0..8).for_each(|_| queue.push(line.clone()));
        assert_eq!(queue.account().lost_lines(), 5);
    }

    #[test]
    fn lines_lost_last_are_counted_without_another_line() {
        let queue = new_queue();
        (0..=LINES_MAX).for_each(|_| queue.push("x\n".to_owned()));
        let told = queue.take().text;
        assert!(told.ends_with("lines=1\n"), "{}", &told[told.len() - 100..]);
    }

    #[test]
    fn lines_that_could_not_be_written_are_told_before_the_next() {
        let queue = new_queue();
        for line in ["a\n", "b\n", "c\n"] {
            queue.push(line.to_owned());
        }
        let taken = queue.take();
        queue.give_up(&taken, 3);
        queue.push("d\n".to_owned());
        // Half of b stands there: what comes next begins a line.
        let told = queue.take();
        assert!(told.text.starts_with('\n') && told.text.ends_with("lines=2\nd\n"), "{told:?}");
        queue.give_up(&told, 0);
        queue.push("e\n".to_owned());
        let text = taken_text(&queue);
        assert!(text.starts_with('\n') && text.ends_with("lines=3\ne\n"), "{text}");
        assert_eq!(queue.account().lost_lines(), 3);
    }
}
