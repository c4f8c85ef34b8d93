//! `perf end-to-end`: one record at a time, from its send to its return from a poll.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use riverrun_bench::random::SeededRandom;
use riverrun_client::{
    Admin, Consumer, ConsumerOptions, ConsumerRecord, Header, NewTopic, Producer, ProducerOptions, RecordRef,
    StartAt, TopicPartition,
};
use riverrun_measure::histogram::Latencies;
use riverrun_measure::text::number;
use serde_json::json;

use super::hdr::HdrFile;
use super::lines;
use super::properties::{self, PropertyArgs};
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::progress;
use crate::signals::StopSignals;
use crate::text::output::{print_json, print_text};
use crate::text::time::now;

/// Records between two lines of progress.
const LINE_RECORDS: u64 = 1000;
/// A record that is not read by then has been lost.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Names of the old form's places, for its errors.
const OLD_FORM: &str = "bootstrap-server topic num-records producer-acks record-size [command-config]";

#[derive(Args, Debug)]
pub(super) struct EndToEndArgs {
    /// Deprecated form: all of it without names, bootstrap-server topic num-records producer-acks record-size
    /// [command-config]
    #[arg(value_name = "OLD", num_args = 5..=6, hide = true, conflicts_with_all = ["topic", "num_records", "producer_acks", "record_size"])]
    old: Vec<String>,
    /// Send to and read from this topic; it is made if it does not exist
    #[arg(long, required_unless_present = "old")]
    topic: Option<String>,
    /// Send this many records
    #[arg(long, value_name = "COUNT", required_unless_present = "old")]
    num_records: Option<u64>,
    /// Replicas that must have a record before it is read: 1 or all
    #[arg(long, value_name = "REPLICAS", required_unless_present = "old", value_parser = ["1", "all"])]
    producer_acks: Option<String>,
    /// Bytes of a record's value
    #[arg(long, value_name = "BYTES", required_unless_present = "old")]
    record_size: Option<u32>,
    /// Bytes of a record's key; 0 for none
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_key_size: u32,
    /// Headers of a record
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    num_headers: u32,
    /// Bytes of a header's name
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_header_key_size: u32,
    /// Bytes of a header's value; -1 for none
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1..))]
    record_header_size: i32,
    #[command(flatten)]
    properties: PropertyArgs,
    /// Print one JSON document at the end and nothing else
    #[arg(long)]
    json: bool,
    /// Write every latency to this file, second by second, as a log for the histogram tools (.hlog), in microseconds
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

/// The measurement's settings, whichever form they came in.
#[derive(Debug, PartialEq, Eq)]
struct What {
    topic: String,
    num_records: u64,
    acks: String,
    record_bytes: usize,
}

impl EndToEndArgs {
    fn what(&mut self) -> Result<What, Failure> {
        let what = match self.old.clone().as_slice() {
            [] => What {
                topic: self.topic.clone().unwrap_or_default(),
                num_records: self.num_records.unwrap_or(0),
                acks: self.producer_acks.clone().unwrap_or_default(),
                record_bytes: self.record_size.unwrap_or(0) as usize,
            },
            [servers, topic, count, acks, size, file @ ..] => {
                logging::note(
                    "WARNING: arguments without names are deprecated: use --bootstrap-server, --topic and so on",
                );
                self.properties.bootstrap_server = Some(servers.clone());
                let arguments = std::mem::take(&mut self.properties);
                self.properties = arguments.or_older(&[], file.first().map(Path::new));
                let wrong = |_| Failure::usage(format!("the arguments are {OLD_FORM}"));
                What {
                    topic: topic.clone(),
                    num_records: count.parse().map_err(wrong)?,
                    acks: acks.clone(),
                    record_bytes: size.parse::<u32>().map_err(wrong)? as usize,
                }
            }
            _ => return Err(Failure::usage(format!("the arguments are {OLD_FORM}"))),
        };
        if !matches!(what.acks.as_str(), "1" | "all") {
            return Err(Failure::usage("a latency needs an ack: --producer-acks is 1 or all"));
        }
        if what.num_records == 0 {
            return Err(Failure::usage("--num-records is at least 1"));
        }
        Ok(what)
    }

    /// One file sets up both clients, so a setting of the one is no error for the other: each takes its own.
    fn options(&self, what: &What) -> Result<(ProducerOptions, ConsumerOptions), Failure> {
        let all = self.properties.all(&[])?;
        let (mut producing, mut reading) = properties::both(&all)?;
        producing.linger = Duration::ZERO;
        producing.set("acks", &what.acks)?;
        producing.idempotent &= what.acks == "all";
        reading.auto_commit = false;
        Ok((producing, reading))
    }

    fn sample(&self, bytes: usize) -> Sample {
        let header = self.record_header_key_size as usize;
        let header_value = usize::try_from(self.record_header_size).ok();
        let mut random = SeededRandom::new(0);
        let mut letters = |len: usize| {
            let mut letters = vec![0; len];
            random.fill_letters(&mut letters);
            letters
        };
        Sample {
            key: (self.record_key_size > 0).then(|| letters(self.record_key_size as usize)),
            value: letters(bytes),
            headers: (0..self.num_headers)
                .map(|_| (letters(header), header_value.map(&mut letters)))
                .collect(),
            random: SeededRandom::new(1),
        }
    }
}

/// The record of each round, with another value each time.
struct Sample {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    random: SeededRandom,
}

impl Sample {
    fn headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(name, value)| Header { key: name, value: value.as_deref() }).collect()
    }
}

pub(super) async fn run(mut args: EndToEndArgs) -> Result<(), Failure> {
    let what = args.what()?;
    let (producing, reading) = args.options(&what)?;
    let mut hdr = args
        .hdr
        .as_ref()
        .map(|path| HdrFile::create(path, &format!("riverrun perf end-to-end, topic {}", what.topic), "none"))
        .transpose()?;
    let mut sample = args.sample(what.record_bytes);
    make_topic(&producing, &what.topic, args.json).await?;
    let mut consumer = consumer_at_end(reading, &what.topic).await?;
    let producer = Producer::new(producing).await?;
    producer.cluster().topic(&what.topic, false).await?;
    let mut stop = StopSignals::new()?;
    let mut latencies = Latencies::new();
    let mut outcome = Ok(());
    let mut progress = Progress::new(what.num_records);
    let (wall, begun) = (now(), Instant::now());
    for round in 0..what.num_records {
        match one_round(&producer, &mut consumer, &what.topic, &mut sample, &mut stop).await {
            Ok(elapsed) => {
                latencies.record(elapsed);
                hdr.as_mut().map_or(Ok(()), |hdr| hdr.record(elapsed))?;
                if round.is_multiple_of(LINE_RECORDS) && !args.json {
                    let line = format!("{round}\t{}\n", elapsed.as_secs_f64() * 1e3);
                    progress.bar.suspend(|| print_text(&line))?;
                }
                progress.look(&latencies);
            }
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    let time = begun.elapsed();
    progress.bar.finish_and_clear();
    if let Some(hdr) = hdr {
        hdr.finish()?;
    }
    if args.json {
        print_json(&json!({
            "start_timestamp_ms": wall.0,
            "seconds": time.as_secs_f64(),
            "records": latencies.count(),
            "latency_from_send_to_read": latencies.summary(),
        }))?;
    } else if !latencies.is_empty() {
        print_text(&summary(&latencies))?;
    }
    let closing = async {
        producer.close().await;
        consumer.close().await.map_err(Failure::from)
    };
    outcome.and(stop.or_at_once(closing, "the last record may not be acked").await)
}

/// Time between two looks at the percentiles, each of which takes some microseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A bar on a terminal; elsewhere nothing.
struct Progress {
    bar: ProgressBar,
    looked: Instant,
}

impl Progress {
    fn new(records: u64) -> Self {
        Self { bar: progress::bar(Some(records), progress::OF_ALL), looked: Instant::now() }
    }

    fn look(&mut self, latencies: &Latencies) {
        if self.bar.is_hidden() || self.looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        self.bar.set_position(latencies.count());
        self.bar.set_message(message(latencies));
    }
}

fn message(latencies: &Latencies) -> String {
    let at = |percentile| number::duration(Duration::from_micros(latencies.percentile_us(percentile)));
    format!("{} records  p50 {}  p99 {}", number::count(latencies.count()), at(50.0), at(99.0))
}

/// Sends the record, waits for its ack, and polls for it.
async fn one_round(
    producer: &Producer,
    consumer: &mut Consumer,
    topic: &str,
    sample: &mut Sample,
    stop: &mut StopSignals,
) -> Result<Duration, Failure> {
    sample.random.fill_letters(&mut sample.value);
    let headers = sample.headers();
    let record =
        RecordRef { key: sample.key.as_deref(), headers: &headers, ..RecordRef::new(topic, &sample.value) };
    let begun = Instant::now();
    let round = async {
        producer.send_ref(&record).await?.await?;
        let deadline = begun + READ_TIMEOUT;
        let mut records = Vec::new();
        while records.is_empty() && Instant::now() < deadline {
            records = consumer.poll(deadline.saturating_duration_since(Instant::now())).await?;
        }
        Ok::<_, Failure>((records, begun.elapsed()))
    };
    let (records, elapsed) = tokio::select! {
        biased;
        outcome = round => outcome?,
        () = stop.next() => {
            return Err(Failure::new(Exit::Interrupted, "interrupted; the summary is about the rounds until then"));
        }
    };
    check(&records, &sample.value)?;
    Ok(elapsed)
}

fn check(records: &[ConsumerRecord], value: &[u8]) -> Result<(), Failure> {
    let failed = |text: String| Err(Failure::new(Exit::CheckFailed, text));
    match records {
        [] => failed(format!("the record was acked and could not be read within {READ_TIMEOUT:?}")),
        [record] if record.value.as_deref() == Some(value) => Ok(()),
        [_] => failed("the record that was read is not the one that was sent".to_owned()),
        _ => failed(format!(
            "{} records were read where one was sent: another producer writes to the topic",
            records.len()
        )),
    }
}

fn summary(latencies: &Latencies) -> String {
    let percentile = |percentile| lines::cut_ms(latencies.percentile_us(percentile));
    format!(
        "{}\nAvg latency: {:.4} ms\nPercentiles: 50th = {}, 99th = {}, 99.9th = {}\n",
        lines::microseconds("from send to read", latencies),
        latencies.mean_us() / 1e3,
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
    )
}

/// With one partition and one replica, if it does not exist; `quietly` says nothing of it.
async fn make_topic(options: &ProducerOptions, topic: &str, quietly: bool) -> Result<(), Failure> {
    let admin = Admin::new(options.cluster.clone()).await?;
    if admin.list_topics().await?.iter().any(|one| one.name == topic) {
        return Ok(());
    }
    if !quietly {
        print_text(&format!(
            "Topic \"{topic}\" does not exist. Will create topic with 1 partition(s) and replication factor = 1\n"
        ))?;
    }
    let new = NewTopic { partitions: Some(1), replication: Some(1), ..NewTopic::named(topic) };
    for (_, created) in admin.create_topics(vec![new], false).await {
        created.map_err(|error| Failure::from(error).about(format!("topic {topic}")))?;
    }
    Ok(())
}

/// A consumer of all partitions, from their ends on.
async fn consumer_at_end(mut options: ConsumerOptions, topic: &str) -> Result<Consumer, Failure> {
    options.group = Some(format!("test-group-{}", now().0));
    let mut consumer = Consumer::new(options).await?;
    let found = consumer.cluster().topic(topic, false).await?;
    let partitions: Vec<_> =
        found.partitions.iter().map(|one| TopicPartition::new(topic, one.index)).collect();
    let ends = consumer.end_offsets(&partitions).await?;
    let from_end = ends.into_iter().map(|(partition, end)| (partition, StartAt::Offset(end))).collect();
    consumer.assign(from_end).await?;
    Ok(consumer)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        end_to_end: EndToEndArgs,
    }

    fn args(flags: &[&str]) -> Result<EndToEndArgs, clap::Error> {
        Line::try_parse_from([&["end-to-end"], flags].concat()).map(|line| line.end_to_end)
    }

    const NAMED: [&str; 8] =
        ["--topic", "t", "--num-records", "9", "--producer-acks", "all", "--record-size", "20"];

    #[test]
    fn the_old_form_means_the_same_as_the_one_with_names() {
        let mut named = args(&[&NAMED[..], &["--bootstrap-server", "h:1"]].concat()).expect("named");
        let mut old = args(&["h:1", "t", "9", "all", "20"]).expect("old");
        assert_eq!(named.what(), old.what());
        assert_eq!(old.properties.bootstrap_server.as_deref(), Some("h:1"));
        for wrong in [&["h:1", "t", "9"][..], &["h:1", "t", "x", "all", "20"], &["h:1", "t", "9", "0", "20"]]
        {
            assert!(args(wrong).is_err() || args(wrong).expect("parsed").what().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nothing_may_be_missing_and_an_ack_is_needed() {
        for left_out in (0..NAMED.len()).step_by(2) {
            let flags: Vec<_> = [&NAMED[..left_out], &NAMED[left_out + 2..]].concat();
            assert!(args(&flags).is_err(), "{flags:?}");
        }
        assert!(
            args(&["--topic", "t", "--num-records", "9", "--producer-acks", "0", "--record-size", "1"])
                .is_err()
        );
    }

    #[test]
    fn a_record_has_the_key_and_headers_that_are_asked_for() {
        let flags = ["--record-key-size", "3", "--num-headers", "2", "--record-header-key-size", "4"];
        let sample =
            args(&[&NAMED[..], &flags, &["--record-header-size", "-1"]].concat()).expect("flags").sample(20);
        assert_eq!((sample.key.as_ref().map(Vec::len), sample.value.len()), (Some(3), 20));
        assert!(sample.headers().iter().all(|header| header.key.len() == 4 && header.value.is_none()));
        assert_eq!(sample.headers.len(), 2);
        assert_eq!(args(&NAMED).expect("flags").sample(1).key, None);
    }

    #[test]
    fn both_clients_take_their_own_settings_of_one_list() {
        let pairs = ["--command-property", "batch.size=7", "fetch.min.bytes=3", "linger.ms=99"];
        let mut args = args(&[&NAMED[..], &pairs].concat()).expect("flags");
        let what = args.what().expect("complete");
        let (producing, reading) = args.options(&what).expect("options");
        assert_eq!((producing.batch_bytes, reading.fetch_min_bytes), (7, 3));
        assert!(producing.linger.is_zero() && !reading.auto_commit, "nothing waits but for the server");
    }

    #[test]
    fn progress_says_how_long_rounds_took_so_far() {
        let mut latencies = Latencies::new();
        (1..=100).for_each(|ms| latencies.record_us(ms * 1000));
        let text = message(&latencies);
        assert!(text.starts_with("100 records  p50 ") && text.contains("  p99 "), "{text}");
    }

    #[test]
    fn the_summary_has_the_lines_of_kafka_s_tool() {
        let mut below = Latencies::new();
        below.record_us(525);
        assert!(summary(&below).ends_with("\nPercentiles: 50th = 0, 99th = 0, 99.9th = 0\n"));
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|ms| latencies.record_us(ms * 1000));
        let text = summary(&latencies);
        assert!(text.starts_with("from send to read, us: mean 500500.0 p50 "), "{text}");
        assert!(
            text.ends_with(
                "\nAvg latency: 500.5000 ms\nPercentiles: 50th = 500, 99th = 990, 99.9th = 1000\n"
            ),
            "{text}"
        );
    }
}
