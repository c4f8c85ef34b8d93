//! A microservice between two queues: gateway -> `requests` -> service -> `replies` -> gateway.
//!
//! ```sh
//! cargo run --profile dist -p riverrun-queue --example two_hops -- /dev/shm/service 50000 5
//! ```
//!
//! DIR, requests a second, seconds. The service keeps its place by name: killed and started again, it continues at
//! that place. All three threads park while there is nothing to do, so the example runs on any number of cores.
//! Requests are to be synced, so `requests` syncs every 10 ms in the background. Latency counts from the instant at
//! which a request was due.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use riverrun_queue::{
    AppendOptions, CreateOptions, Durability, NewRecord, Park, Queue, Record, StartAt, Tailer,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PATIENCE: Duration = Duration::from_secs(10);
/// Requests after which the service stores its place: after a crash it repeats those since.
const KEEP_EVERY: u64 = 1000;

/// The next record. The wait is bounded, in case a thread has failed.
fn next(tailer: &mut Tailer) -> Outcome<Record<'_>> {
    Ok(tailer.wait(&mut Park::default(), Some(PATIENCE))?.ok_or("nothing came")?)
}

/// Doubles the number in each request. The reply has the request's key and time.
fn serve(dir: &Path, count: u64) -> Outcome<()> {
    let mut requests = Queue::open(&dir.join("requests"))?.named_tailer("service", StartAt::Start)?;
    let mut replies = Queue::open(&dir.join("replies"))?.appender(AppendOptions::default())?;
    for index in 1..=count {
        let request = next(&mut requests)?;
        let number =
            request.value.and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let doubled = (2 * number).to_le_bytes();
        replies.append_record(&NewRecord {
            key: request.key,
            value: Some(&doubled),
            timestamp: Some(request.timestamp),
            ..NewRecord::default()
        })?;
        if index % KEEP_EVERY == 0 {
            requests.keep_place()?;
        }
    }
    requests.keep_place()?;
    Ok(())
}

/// Sends requests on a schedule. The key holds the time at which each was due.
fn ask(dir: &Path, rate: u64, count: u64, epoch: Instant) -> Outcome<()> {
    let durability = Durability::SyncEvery { interval: Duration::from_millis(10), bytes: 16 << 20 };
    let options = AppendOptions { durability, ..AppendOptions::default() };
    let mut requests = Queue::open(&dir.join("requests"))?.appender(options)?;
    for number in 0..count {
        let due = Duration::from_nanos(number * 1_000_000_000 / rate);
        while let Some(left) = due.checked_sub(epoch.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        let due_ns = u64::try_from(due.as_nanos())?.to_le_bytes();
        let value = number.to_le_bytes();
        requests.append_record(&NewRecord {
            key: Some(&due_ns),
            value: Some(&value),
            ..NewRecord::default()
        })?;
    }
    Ok(())
}

/// Reads the replies, and measures their latency.
fn collect(dir: &Path, count: u64, epoch: Instant) -> Outcome<Histogram<u64>> {
    let mut replies = Queue::open(&dir.join("replies"))?.tailer(StartAt::Start)?;
    let mut latency = Histogram::new(3)?;
    for number in 0..count {
        let reply = next(&mut replies)?;
        if reply.value != Some(&(2 * number).to_le_bytes()) {
            return Err("a reply that answers another request".into());
        }
        let due = reply.key.and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let now = u64::try_from(epoch.elapsed().as_nanos())?;
        latency.record(now.saturating_sub(due))?;
    }
    Ok(latency)
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, rate, seconds] = args.as_slice() else { return Err("usage: two_hops DIR RATE SECONDS".into()) };
    let (dir, rate, seconds): (&Path, u64, u64) = (Path::new(dir), rate.parse()?, seconds.parse()?);
    let count = rate * seconds;
    for name in ["requests", "replies"] {
        Queue::create(&dir.join(name), CreateOptions::default())?;
    }
    let epoch = Instant::now();
    let latency = std::thread::scope(|scope| {
        let service = scope.spawn(|| serve(dir, count));
        let gateway = scope.spawn(|| ask(dir, rate, count, epoch));
        let latency = collect(dir, count, epoch);
        gateway.join().map_err(|_| "the gateway panicked")??;
        service.join().map_err(|_| "the service panicked")??;
        latency
    })?;
    let at = |quantile| latency.value_at_quantile(quantile);
    println!("{count} requests at {rate} a second through two queues, parked, requests synced every 10 ms");
    println!("ns  p50 {}  p99 {}  p99.9 {}  max {}", at(0.5), at(0.99), at(0.999), latency.max());
    Ok(())
}
