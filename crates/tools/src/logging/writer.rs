//! The one thread that writes the log, and alone waits for its reader.
//!
//! A write that fails ends nothing: its lines are counted as lost, and after a pause the next ones are tried. A panic of
//! the thread is caught and counts as such a failure.

use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::queue::{Batch, LogQueue};

/// How long a log that cannot be written is left alone: a full disk or a reader that was started anew is noticed soon
/// after, and a reader that is gone for good costs one write each time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long a terminal or pipe that another process has made non-blocking is left alone while it takes nothing.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Starts the thread. It goes with the process.
pub(super) fn spawn(queue: Arc<LogQueue>, mut out: Box<dyn Write + Send>) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("riverrun-log".to_owned());
    thread.spawn(move || {
        loop {
            write_next(&queue, &mut *out);
        }
    })?;
    Ok(())
}

/// Waits for lines and writes them, or counts them as lost.
fn write_next(queue: &LogQueue, out: &mut dyn Write) {
    let batch = queue.take();
    let mut written = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| write_all(out, batch.text.as_bytes(), &mut written)));
    match outcome {
        Ok(Ok(())) => queue.account().works(),
        Ok(Err(error)) => give_up(queue, &batch, written, error.to_string()),
        Err(_) => give_up(queue, &batch, written, "the thread that writes it panicked".to_owned()),
    }
}

fn give_up(queue: &LogQueue, batch: &Batch, written: usize, reason: String) {
    queue.account().failed(reason);
    queue.give_up(batch, written);
    queue.pause(RETRY_PAUSE);
}

fn write_all(out: &mut dyn Write, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match out.write(&bytes[*written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(BUSY_PAUSE),
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::time::Instant;

    use super::super::queue::tests::new_queue;
    use super::*;

    /// Takes one step for each write, and then every write.
    struct Script {
        steps: Vec<Step>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    enum Step {
        Fail(ErrorKind),
        Take(usize),
        Panic,
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = match (!self.steps.is_empty()).then(|| self.steps.remove(0)) {
                None => bytes.len(),
                Some(Step::Take(count)) => count.min(bytes.len()),
                Some(Step::Fail(kind)) => return Err(kind.into()),
                Some(Step::Panic) => panic!("planted"),
            };
            self.taken.lock().expect("no panic").extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text that a thread with these troubles writes of three lines in turn, and how many are lost.
    fn written(steps: Vec<Step>) -> (Vec<String>, u64) {
        let (queue, taken) = (Arc::new(new_queue()), Arc::new(Mutex::default()));
        let mut script = Script { steps, taken: Arc::clone(&taken) };
        for line in ["one\n", "two\n", "three\n"] {
            queue.push(line.to_owned());
            // Nobody waits for the pause of a process that ends.
            std::thread::scope(|scope| {
                let write = scope.spawn(|| write_next(&queue, &mut script));
                while !write.is_finished() {
                    queue.drain(Duration::from_millis(1));
                }
            });
        }
        let text = String::from_utf8(taken.lock().expect("no panic").clone()).expect("text");
        (text.lines().map(str::to_owned).collect(), queue.account().lost_lines())
    }

    #[test]
    fn a_write_that_fails_loses_its_line_and_the_next_one_says_so() {
        for kind in [ErrorKind::BrokenPipe, ErrorKind::StorageFull, ErrorKind::Other] {
            let (lines, lost) = written(vec![Step::Fail(kind)]);
            let [told, two, three] = &lines[..] else { panic!("{lines:?}") };
            assert!(told.ends_with("lines=1"), "{told}");
            assert_eq!((two.as_str(), three.as_str(), lost), ("two", "three", 1));
        }
    }

    #[test]
    fn a_panic_of_the_writer_loses_its_line_and_nothing_else() {
        let (lines, lost) = written(vec![Step::Take(4), Step::Panic]);
        assert_eq!((lines.len(), lines[0].as_str(), lines[2].as_str(), lost), (3, "one", "three", 1));
    }

    #[test]
    fn a_partial_or_blocked_write_goes_on_where_it_was() {
        let steps = [Step::Take(1), Step::Fail(ErrorKind::WouldBlock), Step::Fail(ErrorKind::Interrupted)];
        assert_eq!(written(steps.into()), (["one", "two", "three"].map(str::to_owned).to_vec(), 0));
    }

    #[test]
    fn a_reader_that_does_not_read_holds_up_nobody() {
        let (reader, out) = UnixStream::pair().expect("a pair");
        let queue = Arc::new(new_queue());
        spawn(Arc::clone(&queue), Box::new(out)).expect("started");
        let line = "x".repeat(1023) + "\n";
        let begun = Instant::now();
        (0..10_000).for_each(|_| queue.push(line.clone()));
        queue.drain(Duration::from_millis(100));
        assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
        assert!(queue.account().lost_lines() > 1000, "{}", queue.account().lost_lines());
        // Once the log is read, it goes on, and counts the lost lines.
        let mut log = BufReader::new(reader).lines();
        let mut told = 0;
        while told < queue.account().lost_lines() {
            let line = log.next().expect("the log goes on").expect("text");
            // There may be several places where some are missing.
            told += line.rsplit_once("lines=").map_or(0, |(_, lost)| lost.parse::<u64>().expect("a number"));
        }
        assert_eq!(told, queue.account().lost_lines());
    }
}
