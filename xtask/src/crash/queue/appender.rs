//! The process that is crashed: it appends to a queue as several programs at once would, and reports each append before
//! and after.
//!
//! Each report goes into the recorder's pipe with one call, which the kernel executes wholly or not at all: a report
//! made before a kill is recorded, and none by half. The process does not wait for the recorder: its report is in the
//! pipe before it goes on.

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use riverrun_client::TopicPartition;
use riverrun_queue::{
    AppendOptions, Appender, Durability, NewRecord, Offset, Park, Queue, QueueError, StartAt,
};

use crate::crash::event::{Event, Span};
use crate::crash::payload::{Identity, identify, value_of};
use crate::crash::random::Rng;

/// Records of one append.
const BATCH_RECORDS_MAX: u64 = 6;

/// Bytes of a record.
const VALUE_BYTES_MAX: usize = 3000;

/// Pause of a stream without syncs, which would fill the disk. A small disk is to be full only after every stream had
/// some of it.
const CACHED_PAUSE: Duration = Duration::from_micros(400);

/// Pause after an append that was refused for want of room.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// One in this many records that the reader of synced records gets is reported.
const TOLD_ONE_IN: i64 = 8;

/// Streams of one process: one with syncs, and one without.
pub(super) const STREAMS: u32 = 2;

/// Arguments of the process, which the harness starts itself.
#[derive(Args)]
pub(crate) struct AppenderOptions {
    /// The queue's directory
    dir: PathBuf,
    /// Number of the run, which every value contains
    #[arg(long)]
    run: u64,
    /// The first of the process's streams
    #[arg(long)]
    stream: u32,
    /// Report a sync that was not done: a run has to fail then
    #[arg(long, value_enum)]
    lie: Option<Lie>,
    /// Go on after an append that is refused for want of room
    #[arg(long)]
    through_full: bool,
}

/// The fault of a stream whose acks have to come after a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Lie {
    /// It never syncs
    Never,
    /// It acks, and syncs then
    Late,
}

impl Lie {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Late => "late",
        }
    }

    /// The fault that a setting of `--set` names.
    pub(super) fn of(setting: &str) -> Option<Self> {
        setting.strip_prefix("sync=").and_then(|name| Self::from_str(name, false).ok())
    }
}

/// The only partition of a queue.
pub(super) fn partition() -> TopicPartition {
    TopicPartition::new("queue", 0)
}

/// Whether a stream's acks come after a sync.
pub(super) fn is_synced(stream: u32) -> bool {
    stream.is_multiple_of(STREAMS)
}

/// Appends and reads until it is crashed. The first error of any thread ends the process.
pub(super) fn run(options: &AppenderOptions) -> anyhow::Result<()> {
    let pipe = Pipe(File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
    let queue = Queue::open(&options.dir)?;
    std::panic::set_hook(Box::new(|panic| end(&panic)));
    std::thread::scope(|scope| {
        for stream in options.stream..options.stream + STREAMS {
            let work = Work { queue: &queue, pipe: &pipe, options, stream };
            scope.spawn(move || {
                work.append_until_crashed().unwrap_or_else(|error| end(&format!("{error:#}")));
            });
        }
        scope.spawn(|| {
            read_synced(&queue, &pipe, options.run).unwrap_or_else(|error| end(&format!("{error:#}")));
        });
    });
    bail!("the appender ended without a crash")
}

fn end(why: &dyn Display) -> ! {
    eprintln!("process {}: {why}", std::process::id());
    std::process::exit(1)
}

/// The recorder's input.
struct Pipe(File);

impl Pipe {
    fn tell(&self, event: &Event) -> anyhow::Result<()> {
        // Each event is a group of its own, far shorter than what a pipe takes at once.
        Ok((&self.0).write_all(format!("{event}\n\n").as_bytes())?)
    }
}

struct Work<'a> {
    queue: &'a Queue,
    pipe: &'a Pipe,
    options: &'a AppenderOptions,
    stream: u32,
}

impl Work<'_> {
    fn append_until_crashed(&self) -> anyhow::Result<()> {
        let syncs = is_synced(self.stream);
        let lie = self.options.lie.filter(|_| syncs);
        let durability = if syncs && lie.is_none() { Durability::Sync } else { Durability::Async };
        let mut appender = self.queue.appender(AppendOptions { durability, ..AppendOptions::default() })?;
        let mut rng = Rng::new(self.options.run ^ u64::from(self.stream));
        self.pipe.tell(&Event::Stream { stream: self.stream, partition: partition(), exactly_once: true })?;
        let mut first = 0;
        loop {
            let span = Span { stream: self.stream, first, count: 1 + rng.below(BATCH_RECORDS_MAX) };
            self.pipe.tell(&Event::Sent(span))?;
            match self.append(&mut appender, span, &mut rng) {
                Ok(offset) => self.pipe.tell(&Event::Acked { span, offset: Some(offset.0) })?,
                Err(error) => {
                    self.pipe.tell(&Event::Failed(span))?;
                    if !self.options.through_full || !is_want_of_room(&error) {
                        return Err(error.into());
                    }
                    std::thread::sleep(REFUSED_PAUSE);
                }
            }
            if lie == Some(Lie::Late) {
                appender.sync()?;
            }
            first += span.count;
            if !syncs || self.options.through_full {
                std::thread::sleep(CACHED_PAUSE);
            }
        }
    }

    /// One append, in any of the possible ways.
    fn append(&self, appender: &mut Appender, span: Span, rng: &mut Rng) -> Result<Offset, QueueError> {
        let mut value = |sequence| {
            let identity = Identity { stream: span.stream, sequence };
            value_of(self.options.run, identity, rng.size_below(VALUE_BYTES_MAX))
        };
        let values: Vec<_> = (span.first..span.first + span.count).map(&mut value).collect();
        if let [value] = &values[..] {
            if span.first.is_multiple_of(2) {
                return appender.append(value);
            }
            let mut reserved = appender.reserve(value.len())?;
            reserved.copy_from_slice(value);
            return reserved.publish();
        }
        let records: Vec<_> = values.iter().map(|value| of_value(value)).collect();
        appender.append_batch(&records)
    }
}

fn is_want_of_room(error: &QueueError) -> bool {
    matches!(error, QueueError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
}

fn of_value(value: &[u8]) -> NewRecord<'_> {
    NewRecord { value: Some(value), ..NewRecord::default() }
}

/// Reports records that a reader of synced records gets, which no crash may take.
fn read_synced(queue: &Queue, pipe: &Pipe, run: u64) -> anyhow::Result<()> {
    let mut tailer = queue.tailer(StartAt::End)?;
    tailer.set_synced_only(true);
    loop {
        let Some(record) = tailer.wait(&mut Park::default(), None)? else { continue };
        let offset = record.offset.0;
        if offset % TOLD_ONE_IN != 0 {
            continue;
        }
        let found = identify(run, record.value.unwrap_or_default());
        let Ok(Identity { stream, sequence }) = found else { bail!("at {offset}: {found:?}") };
        pipe.tell(&Event::Seen { partition: partition(), offset, stream, sequence })?;
    }
}
