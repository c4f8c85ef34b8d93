//! Running other programs: with a deadline, with their output kept, and without ever blocking on a full pipe.
//!
//! Guarantees that a program that does not end in time is killed and named, together with its output. Children stay in
//! our process group, so that Ctrl-C reaches them too.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Interval of looks at a running child.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Exit status and output of a program.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Both outputs, for a failure's report.
    pub(crate) fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs `command` to its end, feeding it `input`. An exit code other than zero is not an error here.
pub(crate) fn run(command: &mut Command, input: &[u8], limit: Duration) -> anyhow::Result<Finished> {
    run_watched(command, input, limit, &mut |_| {})
}

/// As [`run`], and calls `watch` with the program's process id every [`POLL_INTERVAL`] while it runs.
pub(crate) fn run_watched(
    command: &mut Command,
    input: &[u8],
    limit: Duration,
    watch: &mut dyn FnMut(u32),
) -> anyhow::Result<Finished> {
    let line = format!("{command:?}");
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().with_context(|| format!("could not start {line}"))?;
    let stdin = child.stdin.take();
    let input = input.to_vec();
    // A program that ends before it has read its input breaks the pipe: its exit code is the better error.
    let feeder = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait_watched(&mut child, limit, watch)?;
    let finished = |status| Finished { status, stdout: text(stdout), stderr: text(stderr) };
    if let Some(status) = status {
        drop(feeder.join());
        return Ok(finished(status));
    }
    child.kill()?;
    let finished = finished(child.wait()?);
    bail!(
        "{line} did not end within {} s and was killed; it had printed:\n{}",
        limit.as_secs(),
        finished.output()
    )
}

/// As [`run`], but an exit code other than zero is an error that carries the output.
pub(crate) fn run_ok(command: &mut Command, input: &[u8], limit: Duration) -> anyhow::Result<Finished> {
    let finished = run(command, input, limit)?;
    if !finished.status.success() {
        bail!("{command:?} failed ({}):\n{}", finished.status, finished.output());
    }
    Ok(finished)
}

/// Waits for a child until `limit`; `None` if it still runs then.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    wait_watched(child, limit, &mut |_| {})
}

fn wait_watched(
    child: &mut Child,
    limit: Duration,
    watch: &mut dyn FnMut(u32),
) -> anyhow::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        watch(child.id());
        thread::sleep(POLL_INTERVAL);
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // Bytes read before an error are output all the same.
            drop(pipe.read_to_end(&mut bytes));
        }
        bytes
    })
}

fn text(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_reaches_the_program_and_both_outputs_come_back() {
        let finished = run_ok(&mut shell("cat; echo said >&2"), b"fed", Duration::from_secs(10)).unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("fed", "said\n"));
    }

    #[test]
    fn a_running_program_is_watched_by_its_own_process_id() {
        let mut seen = Vec::new();
        let watch = &mut |process| seen.push(process);
        let finished =
            run_watched(&mut shell("echo $$; sleep 0.2"), b"", Duration::from_secs(10), watch).unwrap();
        assert!(!seen.is_empty() && seen.iter().all(|process| process.to_string() == finished.stdout.trim()));
    }

    #[test]
    fn a_program_past_its_deadline_is_killed_and_its_output_shown() {
        let error =
            run(&mut shell("echo begun; exec sleep 60"), b"", Duration::from_millis(300)).err().unwrap();
        assert!(error.to_string().contains("begun"), "{error}");
    }

    #[test]
    fn a_failing_program_is_an_error_with_its_output() {
        let error = run_ok(&mut shell("echo why; exit 3"), b"", Duration::from_secs(10)).err().unwrap();
        assert!(error.to_string().contains("why"), "{error}");
    }
}
