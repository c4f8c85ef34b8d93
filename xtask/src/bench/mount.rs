//! `cargo xtask bench mount`: from an append to a mounted queue to the record's arrival at a Kafka consumer that waits, and
//! the other way, from a Kafka producer to a tailer that waits in a process.
//!
//! One thread of this process appends with pauses, so that the consumer waits each time; our own client polls over
//! loopback. Both ends read the same clock: the time counts from before the append until the poll has returned. The other
//! way our producer sends one record after another, and the time counts until it has the ack, and until a parked tailer
//! has the record. Of the queues each way one is shown as it is published, the other as far as it is synced.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use riverrun_client::{
    ClusterOptions, Consumer, ConsumerOptions, Producer, ProducerOptions, ProducerRecord, StartAt,
    TopicPartition,
};
use riverrun_measure::text::table::Table;
use riverrun_queue::{AppendOptions, Appender, CreateOptions, Durability, Park, Queue, Tailer};
use riverrun_types::Offset;

use super::latency::Row;
use super::machine::Machine;
use super::{Bench, Level};
use crate::clients::checkout;
use crate::clients::install::{Kit, Profile, Toolbox};
use crate::clients::server::{Server, ServerKind};

/// Bytes of a record's value.
const VALUE_BYTES: usize = 512;

/// Records of each queue that do not count.
const WARMUP_RECORDS: u32 = 100;

/// A record that has not come by then is lost.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(10);

/// The name of each mount to which this process appends, and whether only the synced is shown.
const MOUNTS: [(&str, bool); 2] = [("published", false), ("synced", true)];

/// The same of the mounts to which a client produces.
const PRODUCED: [(&str, bool); 2] = [("produced", false), ("produced-synced", true)];

/// Arguments of `cargo xtask bench mount`.
#[derive(Args)]
pub(super) struct Options {
    /// Records of each queue
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..))]
    records: u32,
    /// Microseconds between the arrival of a record and the next append
    #[arg(long, default_value_t = 1000)]
    pause_us: u64,
    /// A server to measure instead of the one of this checkout, which is built first
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Directory for the server's data and the queues, emptied before and after; `target/bench` when absent
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let toolbox = Toolbox::new(checkout()?, Profile::Dist);
    if options.server.is_none() {
        toolbox.install(&[Kit::Server].into())?;
    }
    let data = options.data.clone().unwrap_or_else(|| toolbox.bench_dir());
    let (kinds, binary) = (vec![ServerKind::Riverrun], options.server.clone());
    let bench = Bench { toolbox, data, kinds, binary, level: Level::PageCache };
    let machine = Machine::look(&bench.toolbox);
    let launch = bench.plain_launch(ServerKind::Riverrun)?;
    let above = bench.data.join(ServerKind::Riverrun.name());
    let dir = |name: &str| above.join(format!("queue-{name}"));
    let mut appenders = Vec::new();
    for (name, is_synced) in MOUNTS {
        appenders.push(appender(&dir(name), is_synced)?);
    }
    let mut tailers = Vec::new();
    for (name, is_synced) in PRODUCED {
        tailers.push(tailer(&dir(name), is_synced)?);
    }
    let mount = |(name, is_synced): (&str, bool), flags: &str| {
        format!("{name}={}{flags}{}", dir(name).display(), if is_synced { ":synced" } else { "" })
    };
    let shown = MOUNTS.map(|shown| mount(shown, ""));
    let taking = PRODUCED.map(|taking| mount(taking, ":rw"));
    let mounts = [shown, taking].concat().join(",");
    let mut server = launch.with_own_settings([format!("mounts={mounts}")]).spawn()?;
    server.wait_until_ready()?;
    let mut rows = Vec::new();
    for ((name, _), appender) in MOUNTS.into_iter().zip(appenders) {
        let mut times = measure(&server, name, appender, options)?;
        rows.push(Row::of(format!("append to consumer, {name}"), &mut times));
    }
    for ((name, _), tailer) in PRODUCED.into_iter().zip(tailers) {
        let (mut acks, mut arrivals) = measure_produced(&server, name, tailer, options)?;
        rows.push(Row::of(format!("produce to ack, {name}"), &mut acks));
        rows.push(Row::of(format!("produce to tailer, {name}"), &mut arrivals));
    }
    server.stop()?;
    bench.clear(ServerKind::Riverrun)?;
    println!("\n{machine}\nTo and from mounted queues\n\n{}", table(&rows));
    Ok(())
}

fn appender(dir: &Path, is_synced: bool) -> anyhow::Result<Appender> {
    let durability = if is_synced { Durability::Sync } else { Durability::Async };
    let queue = Queue::create(dir, CreateOptions::default())?;
    Ok(queue.appender(AppendOptions { durability, ..AppendOptions::default() })?)
}

fn tailer(dir: &Path, is_synced: bool) -> anyhow::Result<Tailer> {
    let queue = Queue::create(dir, CreateOptions::default())?;
    let mut tailer = queue.tailer(riverrun_queue::StartAt::Start)?;
    tailer.set_synced_only(is_synced);
    Ok(tailer)
}

/// Produces one record after another, each when the one before was acked and has arrived. Returns the times to the acks and
/// those to the arrivals.
fn measure_produced(
    server: &Server,
    topic: &str,
    mut tailer: Tailer,
    options: &Options,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let count = WARMUP_RECORDS + options.records;
    let (tell, told) = mpsc::sync_channel(count as usize);
    let pause = Duration::from_micros(options.pause_us);
    std::thread::scope(|scope| {
        let tailing = scope.spawn(move || -> anyhow::Result<()> {
            for _ in 0..count {
                let record = tailer.wait(&mut Park::default(), Some(ARRIVAL_LIMIT))?;
                ensure!(record.is_some(), "a record did not come");
                tell.send(Instant::now())?;
            }
            Ok(())
        });
        let times = produce(server, topic, count, pause, &told);
        drop(told);
        let followed = tailing.join().ok().context("the tailing thread panicked")?;
        // What kept the producer from sending keeps the tailer from getting.
        let (mut acks, mut arrivals) = times?;
        followed?;
        let warm = WARMUP_RECORDS as usize;
        Ok((acks.split_off(warm), arrivals.split_off(warm)))
    })
}

/// Times from before a record is sent until it is acked, and until `arrivals` tells that it has come.
fn produce(
    server: &Server,
    topic: &str,
    count: u32,
    pause: Duration,
    arrivals: &mpsc::Receiver<Instant>,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = ClusterOptions::new(&server.bootstrap());
        let options = ProducerOptions { linger: Duration::ZERO, ..ProducerOptions::new(cluster) };
        let producer = Producer::new(options).await?;
        let (mut to_ack, mut to_arrival) = (Vec::new(), Vec::new());
        for _ in 0..count {
            // By then the tailer sleeps, and nothing else is under way in this thread.
            std::thread::sleep(pause);
            let begun = Instant::now();
            producer.send(ProducerRecord::new(topic, vec![0; VALUE_BYTES])).await?.await?;
            to_ack.push(begun.elapsed());
            to_arrival.push(arrivals.recv_timeout(ARRIVAL_LIMIT)?.saturating_duration_since(begun));
        }
        producer.close().await;
        Ok((to_ack, to_arrival))
    })
}

/// Lets one record after another be appended, each when the one before has arrived.
fn measure(
    server: &Server,
    topic: &str,
    mut appender: Appender,
    options: &Options,
) -> anyhow::Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let count = WARMUP_RECORDS + options.records;
    let (ask, asked) = mpsc::sync_channel(1);
    let (tell, told) = mpsc::sync_channel(count as usize);
    let pause = Duration::from_micros(options.pause_us);
    std::thread::scope(|scope| {
        let appending = scope.spawn(move || -> anyhow::Result<()> {
            while asked.recv().is_ok() {
                // By then the consumer's request waits in the server.
                std::thread::sleep(pause);
                let begun = Instant::now();
                appender.append(&[0; VALUE_BYTES])?;
                tell.send(begun)?;
            }
            Ok(())
        });
        let times = runtime.block_on(consume(server, topic, count, || {
            ask.send(())?;
            Ok(())
        }));
        drop(ask);
        appending.join().ok().context("the appending thread panicked")??;
        let times = times?.into_iter().map(|arrived| Ok(arrived - told.recv()?));
        Ok(times.collect::<anyhow::Result<Vec<_>>>()?.split_off(WARMUP_RECORDS as usize))
    })
}

/// When each of `count` records arrived, of which each is asked for before it is polled for.
async fn consume(
    server: &Server,
    topic: &str,
    count: u32,
    mut ask: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Instant>> {
    let cluster = ClusterOptions::new(&server.bootstrap());
    let options = ConsumerOptions { auto_commit_interval: None, ..ConsumerOptions::new(cluster) };
    let mut consumer = Consumer::new(options).await?;
    consumer.assign(vec![(TopicPartition::new(topic, 0), StartAt::Offset(Offset(0)))]).await?;
    let mut arrivals = Vec::new();
    for _ in 0..count {
        ask()?;
        let found = consumer.poll(ARRIVAL_LIMIT).await?;
        arrivals.push(Instant::now());
        ensure!(found.len() == 1, "{} records came where one was appended", found.len());
    }
    consumer.close().await?;
    Ok(arrivals)
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::of_figures(1, &["what", "count", "p50 us", "p90 us", "p99 us", "max us"]);
    for row in rows {
        let us = |us: f64| format!("{us:.0}");
        table.row(&[
            row.what.clone(),
            row.count.to_string(),
            us(row.p50_us),
            us(row.p90_us),
            us(row.p99_us),
            us(row.max_us),
        ]);
    }
    table.render(0)
}
