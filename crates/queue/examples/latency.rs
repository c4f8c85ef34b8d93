//! Latency of a paced stream through one queue: the duration of an append, and the time from append to reading.
//!
//! `cargo run --profile dist -p riverrun-queue --example latency -- DIR RATE SECONDS SIZE` (a rate of 0 appends at
//! full speed). One producer, one consumer, each spinning on a core of its own. End-to-end latency counts from the
//! instant at which a record was due, whether or not the producer kept up, and is never clipped.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use hdrhistogram::Histogram;
use riverrun_queue::{AppendOptions, BusySpin, CreateOptions, Queue, StartAt};

const HIGHEST_NS: u64 = 60_000_000_000;

fn ns(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

struct Plan {
    dir: PathBuf,
    rate: u64,
    count: u64,
    warmup: u64,
    size_bytes: usize,
}

fn plan() -> Option<Plan> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next()?);
    let rate: u64 = args.next()?.parse().ok()?;
    let seconds: u64 = args.next()?.parse().ok()?;
    let size_bytes: usize = args.next()?.parse().ok()?;
    let count = if rate == 0 { seconds * 1_000_000 } else { rate * seconds };
    Some(Plan { dir, rate, count, warmup: count / 5, size_bytes: size_bytes.max(8) })
}

fn consume(
    queue: &Queue,
    plan: &Plan,
    epoch: Instant,
) -> Result<Histogram<u64>, Box<dyn Error + Send + Sync>> {
    let mut tailer = queue.tailer(StartAt::Start)?;
    let mut latency = Histogram::new_with_max(HIGHEST_NS, 3)?;
    for index in 0..plan.count {
        let record = tailer.wait(&mut BusySpin, None)?.ok_or("no record without a time-out")?;
        let due = record.value.and_then(|value| value.first_chunk()).ok_or("a record without its time")?;
        if index > plan.warmup {
            latency.record(ns(epoch) - u64::from_le_bytes(*due))?;
        }
    }
    Ok(latency)
}

fn produce(
    queue: &Queue,
    plan: &Plan,
    epoch: Instant,
) -> Result<(Histogram<u64>, f64), Box<dyn Error + Send + Sync>> {
    let mut appender = queue.appender(AppendOptions::default())?;
    let mut publishing = Histogram::new_with_max(HIGHEST_NS, 3)?;
    let mut message = vec![0; plan.size_bytes];
    let begin = ns(epoch);
    for index in 0..plan.count {
        let due = begin + (index * 1_000_000_000).checked_div(plan.rate).unwrap_or(0);
        let mut now = ns(epoch);
        while now < due {
            std::hint::spin_loop();
            now = ns(epoch);
        }
        message[..8].copy_from_slice(&(if plan.rate == 0 { now } else { due }).to_le_bytes());
        let started = Instant::now();
        appender.append(&message)?;
        if index > plan.warmup {
            publishing.record(ns(started))?;
        }
    }
    let took_ns = ns(epoch) - begin;
    Ok((publishing, plan.count as f64 * 1e9 / took_ns as f64))
}

fn percentiles(histogram: &Histogram<u64>) -> String {
    let at = |quantile| histogram.value_at_quantile(quantile);
    format!(
        "p50={} p99={} p99.9={} p99.99={} max={}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        histogram.max()
    )
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let plan = plan().ok_or("usage: latency DIR RATE SECONDS SIZE")?;
    let queue = Queue::create(&plan.dir, CreateOptions { segment_bytes: 256 << 20 })?;
    let epoch = Instant::now();
    let (latency, published) = std::thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&queue, &plan, epoch));
        let produced = produce(&queue, &plan, epoch);
        (consumer.join(), produced)
    });
    let latency = latency.map_err(|_| "the consumer panicked")??;
    let (publishing, achieved) = published?;
    println!("rate={} achieved={achieved:.0} size={} async", plan.rate, plan.size_bytes);
    println!("publish    ns {}", percentiles(&publishing));
    println!("end to end ns {}", percentiles(&latency));
    Ok(())
}
