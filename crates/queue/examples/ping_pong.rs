//! Market data, ping-pong: one process publishes quotes, another answers each with an order, over two queues.
//!
//! ```sh
//! cargo run --profile dist -p riverrun-queue --example ping_pong -- /dev/shm/market 100000
//! ```
//!
//! The example starts itself again as the other process. Both write in place and spin, and so need a core each; with
//! `park` as a third argument they sleep instead. Prints the round-trip times.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use riverrun_queue::{
    AppendOptions, Appender, BusySpin, CreateOptions, Park, Queue, QueueError, Retention, StartAt, Tailer,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Longer than any answer takes: after it the other process is taken for gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The argument that tells the other process its role.
const TRADER: &str = "trader";
/// A message: its number, then a price.
const MESSAGE_BYTES: usize = 64;

fn options() -> AppendOptions {
    // Messages that both sides have read are not needed any more: a few segments are enough.
    let retention = Retention { bytes: Some(256 << 20), ..Retention::default() };
    AppendOptions { retention, ..AppendOptions::default() }
}

/// Publishes a message, written in place.
fn publish(appender: &mut Appender, number: u64, price: u64) -> Result<(), QueueError> {
    let mut message = appender.reserve(MESSAGE_BYTES)?;
    message[..8].copy_from_slice(&number.to_le_bytes());
    message[8..16].copy_from_slice(&price.to_le_bytes());
    message.publish()?;
    Ok(())
}

/// Number and price of the next message.
fn receive(tailer: &mut Tailer, park: bool) -> Outcome<(u64, u64)> {
    let record = if park {
        tailer.wait(&mut Park::default(), Some(PATIENCE))?
    } else {
        tailer.wait(&mut BusySpin, Some(PATIENCE))?
    };
    let message = record.and_then(|record| record.value).ok_or("the other process is gone")?;
    let word = |at: usize| message[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Ok((word(0), word(8)))
}

/// Answers each quote with an order at its price.
fn trade(dir: &Path, count: u64, park: bool) -> Outcome<()> {
    let mut quotes = Queue::open(&dir.join("quotes"))?.tailer(StartAt::Start)?;
    let mut orders = Queue::open(&dir.join("orders"))?.appender(options())?;
    for _ in 0..count {
        let (number, price) = receive(&mut quotes, park)?;
        publish(&mut orders, number, price)?;
    }
    Ok(())
}

/// Publishes quotes, each after the answer to the one before, and measures the round trips.
fn quote(dir: &Path, count: u64, park: bool) -> Outcome<Histogram<u64>> {
    let mut quotes = Queue::open(&dir.join("quotes"))?.appender(options())?;
    let mut orders = Queue::open(&dir.join("orders"))?.tailer(StartAt::Start)?;
    let mut round_trips = Histogram::new(3)?;
    for number in 0..count {
        let begin = Instant::now();
        publish(&mut quotes, number, 100 + number % 7)?;
        if receive(&mut orders, park)? != (number, 100 + number % 7) {
            return Err("an order that answers another quote".into());
        }
        // The first ones wait for the other process to start.
        if number >= count / 10 {
            round_trips.record(u64::try_from(begin.elapsed().as_nanos())?)?;
        }
    }
    Ok(round_trips)
}

fn start_trader(dir: &str, count: u64, wait: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args([dir, &count.to_string(), wait, TRADER]).spawn()
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, count, rest @ ..] = args.as_slice() else {
        return Err("usage: ping_pong DIR COUNT [park]".into());
    };
    let (path, count) = (Path::new(dir), count.parse()?);
    let wait = rest.first().map_or("spin", String::as_str);
    if rest.get(1).is_some_and(|role| role == TRADER) {
        return trade(path, count, wait == "park");
    }
    for name in ["quotes", "orders"] {
        Queue::create(&path.join(name), CreateOptions::default())?;
    }
    let mut trader = start_trader(dir, count, wait)?;
    let round_trips = quote(path, count, wait == "park");
    trader.wait()?;
    let round_trips = round_trips?;
    let at = |quantile| round_trips.value_at_quantile(quantile);
    println!("{count} round trips of {MESSAGE_BYTES} bytes between two processes, {wait}, async");
    println!("ns  p50 {}  p99 {}  p99.9 {}  max {}", at(0.5), at(0.99), at(0.999), round_trips.max());
    Ok(())
}
