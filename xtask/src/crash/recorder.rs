//! The recorder: another process that records each ack before the load goes on.
//!
//! It knows only lines. A group of lines ends with an empty one; the recorder checks that each is an event, writes them
//! to its file, and only then answers with the number of lines written in all. A load that waits for the answer can
//! claim only what is recorded, and no later mistake of the load changes the record.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, bail};
use tokio::sync::{mpsc, oneshot};

use super::event::Event;

/// Length of the queue: callers beyond it wait for a place.
const QUEUE_REQUESTS: usize = 256;

/// Entry point of the recorder's process: reads groups of lines from its input until that ends.
pub(super) fn serve(file: &Path) -> anyhow::Result<()> {
    let mut file = File::create_new(file).with_context(|| format!("{} cannot be made", file.display()))?;
    let (mut group, mut written) = (String::new(), 0_u64);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !line.is_empty() {
            line.parse::<Event>()?;
            group.push_str(&line);
            group.push('\n');
            written += 1;
            continue;
        }
        file.write_all(group.as_bytes())?;
        group.clear();
        println!("{written}");
    }
    if !group.is_empty() {
        bail!("the input ended inside of a group");
    }
    Ok(())
}

/// Lines to write, and the waiting caller.
struct Request {
    lines: String,
    count: u64,
    done: oneshot::Sender<()>,
}

/// The load's side of the recorder, shared by all streams.
///
/// Invariants: only the recorder's thread talks to the process; when this is dropped both end.
pub(super) struct Recorder {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Recorder {
    /// Starts the process, which writes to `file`.
    pub(super) fn start(file: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("crash-recorder").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().context("the recorder could not be started")?;
        let (requests, queue) = mpsc::channel(QUEUE_REQUESTS);
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(|| pass_on(child, queue))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Returns when the events are recorded.
    pub(super) async fn record(&self, events: &[Event]) -> anyhow::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut lines = String::new();
        for event in events {
            writeln!(lines, "{event}")?;
        }
        let (done, written) = oneshot::channel();
        let requests = self.requests.as_ref().context("the recorder has ended")?;
        let request = Request { lines, count: events.len() as u64, done };
        requests.send(request).await.ok().context("the recorder has ended")?;
        written.await.context("the recorder has ended")
    }

    /// Ends the process, and returns its error if it had one.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        drop(self.requests.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => bail!("the recorder's thread panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

/// Passes requests on until there are no more senders; all waiting ones form one group.
fn pass_on(mut child: Child, mut queue: mpsc::Receiver<Request>) -> anyhow::Result<()> {
    let input = child.stdin.take().context("the recorder has no input")?;
    let output = child.stdout.take().context("the recorder has no output")?;
    let result = Pipes { input, output: BufReader::new(output), written: 0 }.pass_on(&mut queue);
    let status = child.wait()?;
    result?;
    if !status.success() {
        bail!("the recorder ended with {status}");
    }
    Ok(())
}

struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    written: u64,
}

impl Pipes {
    fn pass_on(mut self, queue: &mut mpsc::Receiver<Request>) -> anyhow::Result<()> {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while let Ok(next) = queue.try_recv() {
                group.push(next);
            }
            self.pass_group(&group)?;
            for request in group {
                // The waiting caller may have been dropped since.
                let _ = request.done.send(());
            }
        }
        Ok(())
    }

    fn pass_group(&mut self, group: &[Request]) -> anyhow::Result<()> {
        let mut text: String = group.iter().map(|request| request.lines.as_str()).collect();
        text.push('\n');
        self.input.write_all(text.as_bytes()).context("the recorder does not read")?;
        self.written += group.iter().map(|request| request.count).sum::<u64>();
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        if answer.trim().parse().ok() != Some(self.written) {
            bail!("the recorder answered `{}`, not {}", answer.trim(), self.written);
        }
        Ok(())
    }
}
