//! `cargo xtask bench mount`: from an append to a mounted queue to the record's arrival at a waiting Kafka consumer,
//! and the other way, from a Kafka producer to a waiting tailer in a process.
//!
//! One thread of this process appends with pauses, so that the consumer waits each time; our own client polls over
//! loopback. Both ends read the same clock: the time counts from before the append until the poll has returned. The
//! other way our producer sends one record after another, and the time counts until its ack, and until a parked tailer
//! has the record. Each way has two queues: one is shown as published, the other only as far as it is synced.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use riverrun_client::{
    ClusterOptions, Consumer, ConsumerOptions, Producer, ProducerOptions, ProducerRecord, StartAt,
    TopicPartition,
};
use riverrun_measure::histogram::Latencies;
use riverrun_queue::{AppendOptions, Appender, CreateOptions, Durability, Park, Queue, Tailer};
use riverrun_types::Offset;
use serde::Serialize;

use super::latency::{self, Row};
use super::machine::{Client, Machine};
use super::{Bench, Place};
use crate::clients::server::{Server, ServerKind};

/// Title of the table, with the durability of its names.
const TITLE: &str = "To and from mounted queues: published is level 4 page cache, synced level 3";

/// Bytes of a record's value.
const VALUE_BYTES: usize = 512;

/// Records of the warm-up of each queue.
const WARMUP_RECORDS: u32 = 100;

/// A record that has not arrived by then is lost.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(10);

/// Name of each mount to which this process appends, and whether it shows only synced records.
const MOUNTS: [(&str, bool); 2] = [("published", false), ("synced", true)];

/// The same for the mounts to which a client produces.
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
    #[command(flatten)]
    place: Place,
}

/// Results of a run, as written to the JSON file.
#[derive(Serialize)]
struct Findings {
    machine: Machine,
    rows: Vec<Row>,
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let client = Client::Ours("riverrun-client and riverrun-queue");
    let (bench, machine) = Bench::prepare(&options.place, vec![ServerKind::Riverrun], client)?;
    let launch = bench.launch(ServerKind::Riverrun)?;
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
    let mut server = launch.with_own_settings([format!("mounts={mounts}")]).start()?;
    let mut rows = Vec::new();
    for ((name, _), appender) in MOUNTS.into_iter().zip(appenders) {
        let times = measure(&server, name, appender, options)?;
        rows.push(Row::of(format!("append to consumer, {name}"), &times));
    }
    for ((name, _), tailer) in PRODUCED.into_iter().zip(tailers) {
        let (acks, arrivals) = measure_produced(&server, name, tailer, options)?;
        rows.push(Row::of(format!("produce to ack, {name}"), &acks));
        rows.push(Row::of(format!("produce to tailer, {name}"), &arrivals));
    }
    server.stop()?;
    bench.clear(ServerKind::Riverrun)?;
    println!("\n{machine}\n{TITLE}\n\n{}", latency::rows(&rows));
    options.place.write_json(&Findings { machine, rows })
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

/// Produces one record after another, each when the one before was acked and has arrived. Returns the times to the acks
/// and to the arrivals.
fn measure_produced(
    server: &Server,
    topic: &str,
    mut tailer: Tailer,
    options: &Options,
) -> anyhow::Result<(Latencies, Latencies)> {
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
        // The producer's error comes first: a tailer without records fails as its consequence.
        let times = times?;
        followed.map(|()| times)
    })
}

/// Times from before a record is sent until it is acked, and until `arrivals` reports it.
fn produce(
    server: &Server,
    topic: &str,
    count: u32,
    pause: Duration,
    arrivals: &mpsc::Receiver<Instant>,
) -> anyhow::Result<(Latencies, Latencies)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = ClusterOptions::new(&server.bootstrap());
        let options = ProducerOptions { linger: Duration::ZERO, ..ProducerOptions::new(cluster) };
        let producer = Producer::new(options).await?;
        let (mut to_ack, mut to_arrival) = (Latencies::new(), Latencies::new());
        for number in 0..count {
            // After the pause the tailer sleeps, and this thread has no other work under way.
            std::thread::sleep(pause);
            let begun = Instant::now();
            producer.send(ProducerRecord::new(topic, vec![0; VALUE_BYTES])).await?.await?;
            let acked = begun.elapsed();
            let arrived = arrivals.recv_timeout(ARRIVAL_LIMIT)?.saturating_duration_since(begun);
            if number >= WARMUP_RECORDS {
                to_ack.record(acked);
                to_arrival.record(arrived);
            }
        }
        producer.close().await;
        Ok((to_ack, to_arrival))
    })
}

/// Appends one record after another, each when the one before has arrived.
fn measure(
    server: &Server,
    topic: &str,
    mut appender: Appender,
    options: &Options,
) -> anyhow::Result<Latencies> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let count = WARMUP_RECORDS + options.records;
    let (ask, asked) = mpsc::sync_channel(1);
    let (tell, told) = mpsc::sync_channel(count as usize);
    let pause = Duration::from_micros(options.pause_us);
    std::thread::scope(|scope| {
        let appending = scope.spawn(move || -> anyhow::Result<()> {
            while asked.recv().is_ok() {
                // After the pause the consumer's request waits in the server.
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
        let mut found = Latencies::new();
        for (number, arrived) in (0..).zip(times?) {
            let time = arrived - told.recv()?;
            if number >= WARMUP_RECORDS {
                found.record(time);
            }
        }
        Ok(found)
    })
}

/// Arrival times of `count` records. Each is requested from the appender before it is polled for.
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
