//! The recorder of a queue's run. Its input is the output of each appending process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use crate::crash::event::Event;
use crate::crash::follow::Follow;

/// The process that records events.
pub(super) struct Recorder {
    file: PathBuf,
    process: Child,
    input: Option<File>,
}

impl Recorder {
    pub(super) fn start(file: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("crash-recorder").arg(file).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().context("the recorder could not be started")?;
        let input = process.stdin.take().context("the recorder has no input")?;
        Ok(Self { file: file.to_owned(), process, input: Some(File::from(OwnedFd::from(input))) })
    }

    fn input(&self) -> anyhow::Result<&File> {
        self.input.as_ref().context("the recorder has ended")
    }

    pub(super) fn pipe(&self) -> anyhow::Result<Stdio> {
        Ok(self.input()?.as_fd().try_clone_to_owned()?.into())
    }

    pub(super) fn tell(&self, event: &Event) -> anyhow::Result<()> {
        Ok(self.input()?.write_all(format!("{event}\n\n").as_bytes())?)
    }

    /// Ends the process once all writers have closed its input. Returns the recorded events.
    pub(super) fn finish(&mut self) -> anyhow::Result<Vec<Event>> {
        drop(self.input.take());
        let status = self.process.wait()?;
        ensure!(status.success(), "the recorder ended with {status}");
        let lines = BufReader::new(File::open(&self.file)?).lines();
        lines.map(|line| line?.parse()).collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.process.wait() {
            eprintln!("the recorder: {error}");
        }
    }
}

/// Numbers of acked and refused appends of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) acked: u64,
    pub(super) refused: u64,
}

/// Counts events while the recorder writes them.
pub(super) struct Follower {
    follow: Follow,
    counts: BTreeMap<u32, Count>,
}

impl Follower {
    pub(super) fn new(file: &Path) -> Self {
        Self { follow: Follow::new(file), counts: BTreeMap::new() }
    }

    /// The latest counts of a stream.
    pub(super) fn of(&self, stream: u32) -> Count {
        self.counts.get(&stream).copied().unwrap_or_default()
    }

    /// Reads the new events.
    pub(super) fn follow(&mut self) -> anyhow::Result<()> {
        self.follow.read_on(|event| {
            match event {
                Event::Acked { span, .. } => self.counts.entry(span.stream).or_default().acked += 1,
                Event::Failed(span) => self.counts.entry(span.stream).or_default().refused += 1,
                _ => {}
            }
            Ok(())
        })
    }
}
