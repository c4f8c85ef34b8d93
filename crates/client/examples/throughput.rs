//! How fast one producer and one consumer are on one partition, and what processor time a record costs them.
//!
//! ```text
//! riverrun serve --set default.durability=4
//! cargo run --profile dist --example throughput -- localhost:9092 5000000
//! ```
//!
//! It makes a topic `throughput` of one partition if there is none, produces as many records of 512 bytes (a third
//! argument says otherwise) in order and acknowledged by all, and reads them back.
//! Further arguments are options of the producer, such as `compression.type=lz4`.

use std::time::{Duration, Instant};

use riverrun_client::{
    ClientError, ClusterOptions, Consumer, ConsumerOptions, Delivery, Offset, Producer, ProducerOptions,
    RecordRef, StartAt, TopicPartition,
};

const TOPIC: &str = "throughput";

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let servers = arguments.first().map_or("localhost:9092", String::as_str);
    let (records, record_bytes) = (number(1, 1_000_000), number(2, 512));
    let mut options = ProducerOptions::new(ClusterOptions::new(servers));
    options.batch_bytes = 512 * 1024;
    for option in arguments.iter().skip(3) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        options.set(name, value)?;
    }
    let from = produce(options, records, record_bytes).await?;
    consume(servers, from, records, record_bytes).await
}

/// Sends the records, and returns the offset of the first.
async fn produce(options: ProducerOptions, records: usize, record_bytes: usize) -> Result<i64, ClientError> {
    let producer = Producer::new(options).await?;
    let value: Vec<u8> =
        (0..record_bytes).map(|at| b'a' + u8::try_from(at % 26).unwrap_or_default()).collect();
    let record = RecordRef::new(TOPIC, &value).with_partition(0);
    let first = producer.send_ref(&record).await?.await?.offset.0;
    let measure = Measure::start();
    let mut last: Option<Delivery> = None;
    for _ in 1..records {
        last = Some(producer.send_ref(&record).await?);
    }
    producer.flush().await;
    if let Some(last) = last {
        last.await?;
    }
    measure.report("produced", records, record_bytes);
    producer.close().await;
    Ok(first)
}

async fn consume(servers: &str, from: i64, records: usize, record_bytes: usize) -> Result<(), ClientError> {
    let partition = TopicPartition::new(TOPIC, 0);
    let mut consumer = Consumer::new(ConsumerOptions::new(ClusterOptions::new(servers))).await?;
    let start = StartAt::Offset(Offset(from));
    consumer.assign(vec![(partition.clone(), start)]).await?;
    let measure = Measure::start();
    let mut read = 0;
    while read < records {
        read += consumer.poll(Duration::from_secs(1)).await?.len();
    }
    measure.report("consumed", read, record_bytes);
    Ok(())
}

/// Time and processor time since the start.
struct Measure {
    start: Instant,
    processor: Duration,
}

impl Measure {
    fn start() -> Self {
        Self { start: Instant::now(), processor: processor_time() }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn report(&self, what: &str, records: usize, record_bytes: usize) {
        let seconds = self.start.elapsed().as_secs_f64();
        let processor = processor_time().saturating_sub(self.processor).as_secs_f64();
        let rate = records as f64 / seconds;
        println!(
            "{what} {records} records in {seconds:.2} s: {rate:.0} records/s, {:.0} MB/s, {:.0} ns of processor a record",
            rate * record_bytes as f64 / 1e6,
            processor * 1e9 / records as f64
        );
    }
}

/// Processor time of this process, as far as the system reports it.
fn processor_time() -> Duration {
    const TICKS_A_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|one| one.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_A_SECOND)
}
