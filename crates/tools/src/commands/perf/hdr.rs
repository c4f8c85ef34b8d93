//! `--hdr FILE`: every latency of a run, second by second, in a log that the histogram tools read.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use riverrun_bench::hdr_log::HdrLogWriter;
use riverrun_measure::histogram::Latencies;

use crate::exit::Failure;

/// Length of the log's intervals.
const INTERVAL: Duration = Duration::from_secs(1);

/// One or two series of latencies, the second with a tag.
///
/// Invariants: `main` and `tagged` hold what was measured since `begin`, and nothing of it is in the file yet.
pub(super) struct HdrFile {
    log: HdrLogWriter<BufWriter<File>>,
    name: String,
    started: Instant,
    begin: Duration,
    main: Latencies,
    tagged: Latencies,
    tag: &'static str,
}

impl HdrFile {
    /// Creates the file, or empties it. What is measured is `what`, and the second series is `tag`.
    pub(super) fn create(path: &Path, what: &str, tag: &'static str) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| Failure::io(&name, &error))?;
        let log = HdrLogWriter::new(BufWriter::new(file), SystemTime::now(), what)
            .map_err(|error| Failure::io(&name, &error))?;
        Ok(Self {
            log,
            name,
            started: Instant::now(),
            begin: Duration::ZERO,
            main: Latencies::new(),
            tagged: Latencies::new(),
            tag,
        })
    }

    /// Adds what was measured lately, and writes an interval if a second is over.
    pub(super) fn add(&mut self, main: &Latencies, tagged: &Latencies) -> Result<(), Failure> {
        self.main.merge(main);
        self.tagged.merge(tagged);
        self.write_if_due()
    }

    /// Adds one latency to the main series, and writes an interval if a second is over.
    pub(super) fn record(&mut self, latency: Duration) -> Result<(), Failure> {
        self.main.record(latency);
        self.write_if_due()
    }

    fn write_if_due(&mut self) -> Result<(), Failure> {
        if self.started.elapsed() >= self.begin + INTERVAL { self.write() } else { Ok(()) }
    }

    /// Writes the last interval.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.write()
    }

    fn write(&mut self) -> Result<(), Failure> {
        let length = self.started.elapsed().saturating_sub(self.begin);
        let mut written = Ok(());
        for (tag, latencies) in [(None, &self.main), (Some(self.tag), &self.tagged)] {
            if written.is_ok() && !latencies.is_empty() {
                written = self.log.write(tag, self.begin, length, latencies);
            }
        }
        self.begin += length;
        self.main.clear();
        self.tagged.clear();
        written.map_err(|error| Failure::io(&self.name, &error))
    }
}
