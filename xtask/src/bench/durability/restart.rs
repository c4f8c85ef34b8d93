//! Start after a kill, with many partitions and a journal as full as it gets.
//!
//! Several connections write to all partitions as fast as they are answered, and the journal's fill is watched. The
//! server is killed when the journal is full, or near the largest fill that was seen, or as soon as it has the fill of
//! the options. The kill decides how much a start finds unwritten in the page cache, so the connections write until it
//! ends them: requests are answered by a full journal only when a checkpoint has emptied it. The bytes that the next
//! start has read from the journal stand beside the fill. Kafka has no journal and is not measured here.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use riverrun_measure::text::table::Table;
use serde::Serialize;

use super::super::metrics::{FOR_SETTLING, JOURNAL_BYTES_USED, JOURNAL_WAITING, Metrics, WRITE_CACHE_BYTES};
use super::super::probe::{Probe, Target, Topic, batch_of, until_answered};
use super::contender::Contender;
use super::goals::Peak;
use super::{Findings, Options};
use crate::bench::Bench;
use crate::clients::server::{Server, ServerKind};

const TOPIC: &str = "restart";

/// Connections that write.
const WRITERS: usize = 4;

/// Partitions in one request, and bytes of the value for each.
const PARTITIONS_PER_REQUEST: i32 = 16;
const VALUE_BYTES: usize = 32 << 10;

/// Default size of the journal.
pub(super) const JOURNAL_BYTES: f64 = (512 << 20) as f64;

/// Share of it that counts as full. A journal that waits for settling is full at less, since it is emptied file by
/// file: an eighth of it may be settled records in the oldest file.
const FULL_SHARE: f64 = 0.95;

/// Time for the journal to get full. After it, a fill near the largest seen is as full as it gets.
const WATCH: Duration = Duration::from_secs(20);
const NEAR_SHARE: f64 = 0.95;

/// Time for a fill near the largest to come again.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Time for the recovered records to reach the segments; if it runs out, the memory peak is that of this time.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// Line and field of the log with the bytes that a start has read from the journals.
const RECOVERED: &str = "recovered from the journals";
const RECOVERED_BYTES: &str = "bytes=";

/// The reason for killing the server at this fill of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fill {
    /// The journal could hold no more.
    Full,
    /// The journal did not get full, and this is near the largest fill seen.
    LargestSeen,
    /// The fill that the options name.
    Asked,
}

impl Fill {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::LargestSeen => "largest seen",
            Self::Asked => "as asked",
        }
    }
}

/// One start.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) round: u32,
    pub(super) partitions: i32,
    /// Fill of the journal when the server was killed.
    pub(super) journal_bytes: f64,
    pub(super) fill: Fill,
    /// Bytes of records that the next start found in the journal and in no segment.
    pub(super) recovered_bytes: f64,
    /// From before the process is made to the ack of a record in the partition that was created last.
    pub(super) restart_s: f64,
    /// From there until the recovered records were in the segments; `None` if that took longer than the limit.
    pub(super) settled_s: Option<f64>,
    /// The peak until then.
    pub(super) peak_memory_bytes: u64,
}

/// Measures every round.
pub(super) fn measure(bench: &Bench, options: &Options, findings: &mut Findings) -> anyhow::Result<()> {
    for round in 1..=options.rounds {
        let launch = bench.launch(ServerKind::Riverrun)?;
        let mut server = launch.start()?;
        let partitions = options.restart_partitions;
        let topic = Topic { name: TOPIC.to_owned(), partitions };
        until_answered(&mut server, |probe| Contender::RiverrunSynced.create(probe, &topic))?;
        touch_all(&mut server, partitions)?;
        if options.restart_fill_mib.is_none() {
            until_settled(&mut server)?;
        }
        let filled = fill_and_kill(&mut server, partitions, options.restart_fill_mib)?;
        findings.peak_memory.push(filled.peak);
        let begun = Instant::now();
        let mut server = launch.spawn()?;
        let last = target(partitions - 1..partitions);
        until_answered(&mut server, |probe| probe.produce(std::slice::from_ref(&last)))?;
        let restart_s = begun.elapsed().as_secs_f64();
        let settled_s = until_settled(&mut server)?.map(|settled| settled.as_secs_f64());
        findings.peak_memory.push(Peak::of("restart, after the kill", &server)?);
        let run = Run {
            round,
            partitions,
            journal_bytes: filled.journal_bytes,
            fill: filled.fill,
            recovered_bytes: recovered_bytes(&server.log()?)?,
            restart_s,
            settled_s,
            peak_memory_bytes: server.usage()?.peak_bytes,
        };
        eprintln!("{}", progress(&run));
        findings.restart.push(run);
        server.stop()?;
        bench.clear(ServerKind::Riverrun)?;
    }
    Ok(())
}

fn progress(run: &Run) -> String {
    let Run { round, journal_bytes, recovered_bytes, restart_s, .. } = run;
    format!(
        "round {round}: killed with {:.0} MB in the journal ({}), back after {restart_s:.3} s with {:.0} MB recovered",
        journal_bytes / 1e6,
        run.fill.name(),
        recovered_bytes / 1e6
    )
}

fn target(partitions: Range<i32>) -> Target {
    Target { topic: TOPIC.to_owned(), partitions }
}

/// Writes a record to each partition, so that each has a file to recover.
fn touch_all(server: &mut Server, partitions: i32) -> anyhow::Result<()> {
    for first in (0..partitions).step_by(1000) {
        let target = target(first..partitions.min(first + 1000));
        until_answered(server, |probe| probe.produce(std::slice::from_ref(&target)))?;
    }
    Ok(())
}

/// A server's state when it was killed.
struct Filled {
    journal_bytes: f64,
    fill: Fill,
    peak: Peak,
}

/// Writes until the journal is full, and kills the server while the writers are at work.
fn fill_and_kill(server: &mut Server, partitions: i32, fill_mib: Option<u32>) -> anyhow::Result<Filled> {
    let probes: Vec<_> = (0..WRITERS).map(|_| Probe::connect(server)).collect::<Result<_, _>>()?;
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        let start = |(writer, probe)| {
            let killed = &killed;
            scope.spawn(move || write(probe, partitions, writer, killed))
        };
        let writers: Vec<_> = probes.into_iter().enumerate().map(start).collect();
        let filled = watch(server, fill_mib);
        killed.store(true, Ordering::Relaxed);
        let gone = server.kill();
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        gone.and(filled)
    })
}

/// Writes to one part of the partitions after the other, until the server is killed.
fn write(mut probe: Probe, partitions: i32, writer: usize, killed: &AtomicBool) -> anyhow::Result<()> {
    let batch = batch_of(VALUE_BYTES)?;
    let starts = (0..partitions).step_by(PARTITIONS_PER_REQUEST as usize).cycle();
    for first in starts.skip(writer).step_by(WRITERS) {
        let target = target(first..partitions.min(first + PARTITIONS_PER_REQUEST));
        match probe.produce_batch(std::slice::from_ref(&target), &batch) {
            Err(_) if killed.load(Ordering::Relaxed) => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}

/// Watches the journal until it holds `fill_mib`, or is full. If it does not get full, waits for a fill near the
/// largest.
fn watch(server: &mut Server, fill_mib: Option<u32>) -> anyhow::Result<Filled> {
    let (begun, mut most) = (Instant::now(), 0.0_f64);
    let enough = fill_mib.map(|mib| f64::from(mib) * f64::from(1 << 20));
    loop {
        server.must_run()?;
        let peak = Peak::of("restart, filling the journal", server)?;
        let metrics = Metrics::of(server)?;
        let journal_bytes = metrics.sum(JOURNAL_BYTES_USED).unwrap_or_default();
        let is_full =
            journal_bytes >= JOURNAL_BYTES * FULL_SHARE || metrics.is_any(JOURNAL_WAITING, FOR_SETTLING);
        let near = begun.elapsed() > WATCH && journal_bytes >= most * NEAR_SHARE;
        if enough.map_or(is_full || near, |enough| journal_bytes >= enough) || begun.elapsed() > PATIENCE {
            let fill = match enough {
                _ if is_full => Fill::Full,
                Some(_) => Fill::Asked,
                None => Fill::LargestSeen,
            };
            return Ok(Filled { journal_bytes, fill, peak });
        }
        most = most.max(journal_bytes);
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Waits until everything is in segments, and returns how long that took; `None` after the limit.
fn until_settled(server: &mut Server) -> anyhow::Result<Option<Duration>> {
    let begun = Instant::now();
    while begun.elapsed() < SETTLE_LIMIT {
        server.must_run()?;
        if Metrics::of(server)?.sum(WRITE_CACHE_BYTES) == Some(0.0) {
            return Ok(Some(begun.elapsed()));
        }
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(None)
}

/// Bytes that the newest start has read from the journals, by its log; 0 without such a line.
fn recovered_bytes(log: &str) -> anyhow::Result<f64> {
    let Some(line) = log.lines().rfind(|line| line.contains(RECOVERED)) else { return Ok(0.0) };
    let digits = line.split_whitespace().find_map(|word| word.strip_prefix(RECOVERED_BYTES));
    Ok(digits.with_context(|| format!("no bytes in `{line}`"))?.parse()?)
}

/// The table, empty if nothing was measured.
pub(super) fn text(runs: &[Run]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let columns = [
        "round",
        "partitions",
        "journal MB",
        "fill",
        "recovered MB",
        "restart s",
        "settled s later",
        "peak RSS MB",
    ];
    let mut table = Table::of_figures(0, &columns);
    for run in runs {
        table.row(&[
            run.round.to_string(),
            run.partitions.to_string(),
            format!("{:.0}", run.journal_bytes / 1e6),
            run.fill.name().to_owned(),
            format!("{:.0}", run.recovered_bytes / 1e6),
            format!("{:.3}", run.restart_s),
            run.settled_s.map_or_else(|| format!("> {}", SETTLE_LIMIT.as_secs()), |s| format!("{s:.1}")),
            format!("{:.0}", run.peak_memory_bytes as f64 / 1e6),
        ]);
    }
    format!("Restart after kill -9 while writing, durability 1 synced\n\n{}", table.render(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_start_logs_its_recovered_bytes() {
        let line = |bytes: u32| format!("INFO {RECOVERED} entries=2 bytes={bytes} partitions=1\n");
        let log = format!("{}something else bytes=9\n{}listens\n", line(7), line(136_614_400));
        assert_eq!(recovered_bytes(&log).ok(), Some(136_614_400.0));
        assert_eq!(recovered_bytes("listens\n").ok(), Some(0.0));
        assert!(recovered_bytes(&format!("{RECOVERED}: all\n")).is_err());
    }
}
