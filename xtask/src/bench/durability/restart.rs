//! Start after a kill, with many partitions and a journal as full as it gets.
//!
//! Several connections write to all partitions as fast as they are answered; the journal's fill is watched, and the
//! server killed when it is full, or near the most that was ever seen, or as soon as it holds what the options say: what
//! a start finds unwritten in the page cache depends on it. Only ours has a journal, so only ours is here.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::super::metrics::{JOURNAL_BYTES_USED, Metrics};
use super::super::probe::{Probe, Target, Topic, batch_of, until_answered};
use super::super::procfs::Memory;
use super::super::table::Table;
use super::contender::Contender;
use super::{Findings, Options};
use crate::bench::Bench;
use crate::clients::server::{Server, ServerKind};

const TOPIC: &str = "restart";

/// Connections that write.
const WRITERS: usize = 4;

/// Partitions in one request, and bytes of the value in each.
const PARTITIONS_PER_REQUEST: i32 = 16;
const VALUE_BYTES: usize = 32 << 10;

/// Default size of the journal.
const JOURNAL_BYTES: f64 = (512 << 20) as f64;

/// This part of it counts as full.
const FULL_SHARE: f64 = 0.95;

/// How long the fill is only watched. After that, near the most that was seen is as full as it gets.
const WATCH: Duration = Duration::from_secs(20);
const NEAR_SHARE: f64 = 0.95;

/// Near the most that was seen comes again within this.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// One start.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) round: u32,
    pub(super) partitions: i32,
    /// When the server was killed.
    pub(super) journal_bytes: f64,
    /// From before the process is made to the ack of a record in the partition that was created last.
    pub(super) restart_s: f64,
    pub(super) peak_memory_bytes: u64,
}

/// Measures every round.
pub(super) fn measure(bench: &Bench, options: &Options, findings: &mut Findings) -> anyhow::Result<()> {
    for round in 1..=options.rounds {
        let launch = bench.plain_launch(ServerKind::Riverrun)?;
        let mut server = launch.spawn()?;
        server.wait_until_ready()?;
        let partitions = options.restart_partitions;
        let topic = Topic { name: TOPIC.to_owned(), partitions };
        until_answered(&mut server, |probe| Contender::RiverrunSynced.create(probe, &topic))?;
        touch_all(&mut server, partitions)?;
        let journal_bytes = fill_journal(&server, partitions, options.restart_fill_mib)?;
        findings.peak_memory.push(super::goals::Peak::of("restart, filling the journal", &server)?);
        server.kill()?;
        let begun = Instant::now();
        let mut server = launch.spawn()?;
        let last = target(partitions - 1..partitions);
        until_answered(&mut server, |probe| probe.produce(std::slice::from_ref(&last)))?;
        let restart_s = begun.elapsed().as_secs_f64();
        let peak_memory_bytes = Memory::of(server.process_id())?.peak_bytes;
        findings.peak_memory.push(super::goals::Peak::of("restart, after the kill", &server)?);
        eprintln!(
            "round {round}: killed with {:.0} MB in the journal, back after {restart_s:.3} s",
            journal_bytes / 1e6
        );
        findings.restart.push(Run { round, partitions, journal_bytes, restart_s, peak_memory_bytes });
        server.stop()?;
        bench.clear(ServerKind::Riverrun)?;
    }
    Ok(())
}

fn target(partitions: Range<i32>) -> Target {
    Target { topic: TOPIC.to_owned(), partitions }
}

/// A record to each partition, so that each has a file to recover.
fn touch_all(server: &mut Server, partitions: i32) -> anyhow::Result<()> {
    for first in (0..partitions).step_by(1000) {
        let target = target(first..partitions.min(first + 1000));
        until_answered(server, |probe| probe.produce(std::slice::from_ref(&target)))?;
    }
    Ok(())
}

/// Writes until the journal is full, and returns how full it is, with the writers still at work.
fn fill_journal(server: &Server, partitions: i32, fill_mib: Option<u32>) -> anyhow::Result<f64> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let stop = &stop;
                    move || write(server, partitions, writer, stop)
                })
            })
            .collect();
        let used = watch(server, fill_mib);
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        used
    })
}

fn write(server: &Server, partitions: i32, writer: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut probe = Probe::connect(server)?;
    let batch = batch_of(VALUE_BYTES)?;
    let starts = (0..partitions).step_by(PARTITIONS_PER_REQUEST as usize).cycle();
    for first in starts.skip(writer).step_by(WRITERS) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let target = target(first..partitions.min(first + PARTITIONS_PER_REQUEST));
        probe.produce_batch(std::slice::from_ref(&target), &batch)?;
    }
    Ok(())
}

/// Looks at the journal until it holds `fill_mib`, or is as full as it gets.
fn watch(server: &Server, fill_mib: Option<u32>) -> anyhow::Result<f64> {
    let (begun, mut most) = (Instant::now(), 0.0_f64);
    let enough = fill_mib.map_or(JOURNAL_BYTES * FULL_SHARE, |mib| f64::from(mib) * f64::from(1 << 20));
    loop {
        let used = Metrics::of(server)?.sum(JOURNAL_BYTES_USED).unwrap_or_default();
        let near = begun.elapsed() > WATCH && used >= most * NEAR_SHARE;
        if used >= enough || (near && fill_mib.is_none()) || begun.elapsed() > PATIENCE {
            return Ok(used);
        }
        most = most.max(used);
        thread::sleep(LOOK_INTERVAL);
    }
}

/// The table, empty if nothing was measured.
pub(super) fn text(runs: &[Run]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(0, &["round", "partitions", "journal MB", "restart s", "peak RSS MB"]);
    for run in runs {
        table.row([
            run.round.to_string(),
            run.partitions.to_string(),
            format!("{:.0}", run.journal_bytes / 1e6),
            format!("{:.3}", run.restart_s),
            format!("{:.0}", run.peak_memory_bytes as f64 / 1e6),
        ]);
    }
    format!("Restart after kill -9 while writing, durability 1 synced\n\n{}", table.text())
}
