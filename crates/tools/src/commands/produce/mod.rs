//! `riverrun produce`: text in, records out.
//!
//! The input is read on a thread of its own, because reading stdin blocks, and comes through a bounded channel. What
//! is sent and not yet answered is bounded too, so memory does not grow with the input.

mod progress;
mod summary;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use futures_util::FutureExt as _;
use riverrun_client::{Delivery, Producer, ProducerOptions, ProducerRecord};
use riverrun_measure::text::number;
use riverrun_records::Compression;
use riverrun_types::Acks;
use tokio::sync::mpsc;

use self::progress::Progress;
use self::summary::Summary;
use crate::args::{ClientArgs, parse_pair, parse_partition};
use crate::exit::{Exit, Failure};
use crate::input::{self, Column, CsvOptions, CsvValue, InputError, InputRecord, Shape};
use crate::logging;
use crate::runtime::block_on;
use crate::signals::StopSignals;
use crate::text::output::{OutputArgs, print_json};

/// Records that may wait between the reading thread and the sender.
const READ_AHEAD_RECORDS: usize = 1024;
/// Records that may be sent and not yet answered.
const UNANSWERED_RECORDS_MAX: usize = 100_000;

const EXAMPLES: &str = "\
Examples:
  echo hello | riverrun produce greetings
  riverrun produce users --key-separator : --file users.txt --null-value ''
  riverrun produce flights --file flights.csv.gz --csv --key-column carrier --compression zstd
  tail -F app.log | riverrun produce logs --linger-ms 200

A file whose name ends with .gz is unpacked. A summary goes to stderr, with --json to stdout.";

/// Flags of `produce`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProduceArgs {
    /// The topic
    topic: String,
    /// Read this file, unpacked if its name ends with .gz [default: stdin, also as -]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Send a record without value (a deletion where the topic is compacted) where the value is exactly this text
    #[arg(long, value_name = "TEXT")]
    null_value: Option<String>,
    /// Send everything to this partition instead of choosing by the key
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_partition)]
    partition: Option<i32>,
    /// Add a header to every record; repeatable
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = parse_pair)]
    headers: Vec<(String, String)>,
    /// Stop after so many records
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    #[command(flatten)]
    sending: SendingArgs,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How records are cut out of the input.
#[derive(Args, Debug)]
struct ShapeArgs {
    /// Cut each line at the first of these into key and value
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key_separator: Option<String>,
    /// Read CSV with a header
    #[arg(long, conflicts_with = "key_separator")]
    csv: bool,
    /// Take the key from this CSV column: its name, or with --no-header its number from 1
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    key_column: Option<String>,
    /// The CSV has no header; its first line is a record
    #[arg(long, requires = "csv")]
    no_header: bool,
    /// Separator of CSV fields, one ASCII character; \t is a tab
    #[arg(long, value_name = "CHAR", requires = "csv", default_value = ",", value_parser = parse_delimiter)]
    delimiter: u8,
    /// The record's value that a CSV row becomes
    #[arg(long, value_name = "FORM", requires = "csv", default_value = "row")]
    csv_value: CsvValue,
}

impl ShapeArgs {
    fn shape(&self) -> Result<Shape, Failure> {
        if let Some(separator) = &self.key_separator {
            return Ok(Shape::KeyValue { separator: separator.clone().into_bytes() });
        }
        if !self.csv {
            return Ok(Shape::Lines);
        }
        if self.no_header && self.csv_value == CsvValue::Json {
            return Err(Failure::usage(
                "--csv-value json takes its names from the header, and --no-header says there is none",
            ));
        }
        let key = self.key_column.as_deref().map(|text| self.key_column(text)).transpose()?;
        let (delimiter, value) = (self.delimiter, self.csv_value);
        Ok(Shape::Csv(CsvOptions { delimiter, has_header: !self.no_header, key, value }))
    }

    fn key_column(&self, text: &str) -> Result<Column, Failure> {
        if !self.no_header {
            return Ok(Column::Name(text.to_owned()));
        }
        let number = text.parse().ok().filter(|number| *number >= 1);
        number
            .map(Column::Number)
            .ok_or_else(|| Failure::usage("--key-column: with --no-header it is a number from 1"))
    }
}

/// How records are sent.
#[derive(Args, Debug)]
struct SendingArgs {
    /// Replicas that must have a record before it counts: all, or with --no-idempotence 0 or 1
    #[arg(long, value_name = "REPLICAS", default_value = "all")]
    acks: AcksArg,
    /// Do without the sequence numbers that keep retries from repeating or reordering records
    #[arg(long)]
    no_idempotence: bool,
    /// Compress batches: none, gzip, snappy, lz4 or zstd
    #[arg(long, value_name = "CODEC", default_value = "none", value_parser = parse_compression)]
    compression: Compression,
    /// Milliseconds that a batch waits for more records
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    linger_ms: u64,
    /// Bytes at which a batch is sent without waiting
    #[arg(long, value_name = "BYTES", default_value_t = 128 * 1024, value_parser = clap::value_parser!(u32).range(1..))]
    batch_bytes: u32,
    /// Bytes of a request at most, and so of a record (max.request.size). The topic's max.message.bytes limits records,
    /// too
    #[arg(long, value_name = "BYTES", default_value_t = 32 * 1024 * 1024, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    request_bytes: u32,
}

/// `--acks`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum AcksArg {
    /// Do not wait for an answer
    #[value(name = "0")]
    None,
    /// The partition's leader has it
    #[value(name = "1")]
    Leader,
    /// As many as the topic's durability asks for
    #[value(name = "all", alias = "-1")]
    All,
}

impl SendingArgs {
    fn options(&self, client: &ClientArgs) -> Result<ProducerOptions, Failure> {
        let acks = match self.acks {
            AcksArg::None => Acks::None,
            AcksArg::Leader => Acks::Leader,
            AcksArg::All => Acks::All,
        };
        if acks != Acks::All && !self.no_idempotence {
            return Err(Failure::usage("--acks 0 and 1 go only with --no-idempotence")
                .advise("leave --acks at all, or add --no-idempotence and bear records lost or repeated"));
        }
        let linger = Duration::from_millis(self.linger_ms);
        let defaults = ProducerOptions::new(client.cluster());
        Ok(ProducerOptions {
            acks,
            idempotent: !self.no_idempotence,
            compression: self.compression,
            linger,
            delivery_timeout: linger + client.timeout(),
            block_max: linger + client.timeout(),
            batch_bytes: self.batch_bytes as usize,
            request_bytes_max: self.request_bytes as usize,
            buffer_bytes: defaults.buffer_bytes.max(self.request_bytes as usize),
            ..defaults
        })
    }
}

fn parse_compression(text: &str) -> Result<Compression, String> {
    text.parse().map_err(|_| "it must be none, gzip, snappy, lz4 or zstd".to_owned())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    let text = if text == "\\t" { "\t" } else { text };
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n') => Ok(*byte),
        _ => Err("it must be one ASCII character, and no quote or line end".to_owned()),
    }
}

/// Does what the command line says.
pub fn run(args: ProduceArgs) -> Result<(), Failure> {
    block_on(Box::pin(produce(args)))
}

async fn produce(args: ProduceArgs) -> Result<(), Failure> {
    let options = args.sending.options(&args.client)?;
    let shape = args.shape.shape()?;
    let opened = input::open(args.file.as_deref()).map_err(|error| {
        let name = args.file.as_deref().unwrap_or("stdin".as_ref());
        Failure::io(name.display(), &error)
    })?;
    let producer = Producer::new(options).await?;
    check_partition(&producer, &args).await?;
    let progress = Progress::start(&opened);
    let null_value = args.null_value.as_ref().map(|text| text.clone().into_bytes());
    let records = read_on_thread(opened.input, shape, null_value)?;
    let mut sending =
        Sending { args: &args, producer: &producer, unanswered: VecDeque::new(), summary: Summary::start() };
    let mut stop = StopSignals::new()?;
    let outcome = sending.all(records, &progress, &mut stop).await;
    let left_undone = "records that were not acked yet may or may not have arrived";
    let drained = stop.or_at_once(sending.drain(0), left_undone).await;
    let Sending { mut summary, unanswered, .. } = sending;
    // After giving up on records, closing would wait for the same.
    if unanswered.is_empty() {
        producer.close().await;
    }
    progress.finish();
    summary.finish(Instant::now());
    if args.output.json {
        print_json(&summary)?;
    } else {
        logging::note(&summary.to_string());
    }
    outcome.and(drained)
}

/// Refuses a partition that the topic does not have. A topic that is not there yet may be made by the first record.
async fn check_partition(producer: &Producer, args: &ProduceArgs) -> Result<(), Failure> {
    let Some(partition) = args.partition else { return Ok(()) };
    match producer.cluster().topic(&args.topic, false).await {
        Ok(topic) if partition >= topic.partition_count() => {
            let has = number::counted(topic.partition_count(), "partition");
            let text =
                format!("there is no partition {partition}: topic {} has {has}, from 0 on", args.topic);
            Err(Failure::new(Exit::NotFound, text))
        }
        _ => Ok(()),
    }
}

type ReadResult = Result<InputRecord, InputError>;

/// Starts the reading thread. It ends with the input, or when nobody takes its records any more; at an interactive
/// stdin it may wait for a line until the process ends, so it is not joined.
fn read_on_thread(
    input: Box<dyn std::io::Read + Send>,
    shape: Shape,
    null_value: Option<Vec<u8>>,
) -> Result<mpsc::Receiver<ReadResult>, Failure> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD_RECORDS);
    let read = move || match input::records(input, shape, null_value) {
        Ok(records) => {
            for record in records {
                if sender.blocking_send(record).is_err() {
                    break;
                }
            }
        }
        // Nobody to tell is nobody to care.
        Err(error) => sender.blocking_send(Err(error)).unwrap_or_default(),
    };
    let thread = std::thread::Builder::new().name("input".to_owned()).spawn(read);
    thread.map_err(|error| Failure::io("cannot start a thread", &error))?;
    Ok(receiver)
}

struct Sending<'a> {
    args: &'a ProduceArgs,
    producer: &'a Producer,
    /// In the order of sending: the line of the input, its bytes, and its delivery.
    unanswered: VecDeque<(u64, usize, Delivery)>,
    summary: Summary,
}

impl Sending<'_> {
    /// Sends records until the input ends, `--max` is reached, an error comes, or a signal stops it, also while a record
    /// waits for room.
    async fn all(
        &mut self,
        mut records: mpsc::Receiver<ReadResult>,
        progress: &Progress,
        stop: &mut StopSignals,
    ) -> Result<(), Failure> {
        let mut left = self.args.max.unwrap_or(u64::MAX);
        while left > 0 {
            let next = async {
                let Some(record) = records.recv().await else { return Ok(false) };
                self.one(record?).await.map(|()| true)
            };
            let more = tokio::select! {
                biased;
                () = stop.next() => {
                    return Err(Failure::new(Exit::Interrupted, "interrupted; the records sent so far are counted above"));
                }
                more = next => more?,
            };
            if !more {
                break;
            }
            left -= 1;
            progress.set_records(self.summary.sent());
        }
        Ok(())
    }

    async fn one(&mut self, record: InputRecord) -> Result<(), Failure> {
        let line = record.line;
        let size = record.key.as_ref().map_or(0, Bytes::len) + record.value.as_ref().map_or(0, Bytes::len);
        let delivery =
            self.producer.send(self.record(record)).await.map_err(|error| self.failed(line, error))?;
        self.unanswered.push_back((line, size, delivery));
        self.summary.count_sent();
        self.settle()?;
        self.drain(UNANSWERED_RECORDS_MAX).await
    }

    /// Takes the outcomes that are there already, so that an error shows while a slow input goes on.
    fn settle(&mut self) -> Result<(), Failure> {
        while let Some((line, size, delivery)) = self.unanswered.front_mut() {
            let (line, size) = (*line, *size);
            match delivery.now_or_never() {
                None => break,
                Some(Ok(placed)) => self.summary.count_acked(placed.partition, size),
                Some(Err(error)) => return Err(self.failed(line, error)),
            }
            self.unanswered.pop_front();
        }
        Ok(())
    }

    fn record(&self, record: InputRecord) -> ProducerRecord {
        let header = |(key, value): &(String, String)| (key.clone(), Some(Bytes::from(value.clone())));
        ProducerRecord {
            topic: self.args.topic.clone(),
            partition: self.args.partition,
            key: record.key,
            value: record.value,
            headers: self.args.headers.iter().map(header).collect(),
            timestamp: None,
        }
    }

    /// Waits until at most `keep` records are unanswered. At an error, the others are still counted. May be dropped while
    /// it waits, without loss.
    async fn drain(&mut self, keep: usize) -> Result<(), Failure> {
        let mut first_error = None;
        while self.unanswered.len() > keep {
            let Some((line, size, delivery)) = self.unanswered.front_mut() else { break };
            let (line, size) = (*line, *size);
            match delivery.await {
                Ok(placed) => self.summary.count_acked(placed.partition, size),
                Err(error) => first_error = first_error.or(Some((line, error))),
            }
            self.unanswered.pop_front();
        }
        first_error.map_or(Ok(()), |(line, error)| Err(self.failed(line, error)))
    }

    fn failed(&self, line: u64, error: riverrun_client::ClientError) -> Failure {
        let too_large = matches!(error, riverrun_client::ClientError::RecordTooLarge { .. });
        let failure =
            Failure::from(error).about(format!("record of line {line} to topic {:?}", self.args.topic));
        if too_large {
            failure.advise("--request-bytes with more bytes, or smaller records")
        } else {
            failure
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        produce: ProduceArgs,
    }

    fn args(flags: &[&str]) -> Result<ProduceArgs, clap::Error> {
        Line::try_parse_from([&["produce", "topic"], flags].concat()).map(|line| line.produce)
    }

    #[test]
    fn flags_of_csv_need_csv() {
        for flags in
            [&["--key-column", "a"][..], &["--no-header"], &["--delimiter", ";"], &["--csv-value", "json"]]
        {
            assert!(args(flags).is_err(), "{flags:?}");
            assert!(args(&[flags, &["--csv"]].concat()).is_ok(), "{flags:?}");
        }
        assert!(args(&["--csv", "--key-separator", ":"]).is_err());
    }

    #[test]
    fn a_delimiter_is_one_ascii_character() {
        for (text, byte) in [(",", b','), (";", b';'), ("\\t", b'\t'), ("\t", b'\t'), ("|", b'|')] {
            assert_eq!(parse_delimiter(text), Ok(byte), "{text:?}");
        }
        for bad in ["", ",,", "\"", "\n", "\u{fc}", "\\n"] {
            assert!(parse_delimiter(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_key_column_is_a_name_or_without_header_a_number() {
        let shape = |flags: &[&str]| args(flags).expect("valid flags").shape.shape();
        let key = |flags: &[&str]| match shape(flags).expect("a shape") {
            Shape::Csv(options) => options.key,
            other => panic!("{other:?}"),
        };
        assert_eq!(key(&["--csv", "--key-column", "2"]), Some(Column::Name("2".into())));
        assert_eq!(key(&["--csv", "--no-header", "--key-column", "2"]), Some(Column::Number(2)));
        for bad in ["0", "a", "-1", "99999999999999999999"] {
            let column = format!("--key-column={bad}");
            assert_eq!(shape(&["--csv", "--no-header", &column]).expect_err(bad).exit, Exit::Usage);
        }
        assert!(shape(&["--csv", "--no-header", "--csv-value", "json"]).is_err());
    }

    #[test]
    fn less_than_all_acks_needs_a_word_about_idempotence() {
        let options = |flags: &[&str]| {
            let args = args(flags).expect("valid flags");
            args.sending.options(&args.client)
        };
        assert!(options(&["--acks", "1"]).is_err());
        let lax = options(&["--acks", "1", "--no-idempotence"]).expect("said so");
        assert!(!lax.idempotent && lax.acks == Acks::Leader);
        assert!(options(&[]).expect("defaults").idempotent);
    }

    #[test]
    fn a_missing_topic_or_partition_is_awaited_like_an_answer() {
        let args = args(&["--timeout", "7", "--linger-ms", "500"]).expect("valid flags");
        let options = args.sending.options(&args.client).expect("options");
        assert_eq!(
            (options.block_max, options.delivery_timeout),
            (Duration::from_millis(7500), options.block_max)
        );
    }

    #[test]
    fn an_empty_separator_or_an_unknown_codec_is_refused() {
        assert!(args(&["--key-separator", ""]).is_err());
        assert!(args(&["--compression", "brotli"]).is_err());
        assert!(args(&["--partition", "-1"]).is_err());
        assert!(args(&["--header", "no-value"]).is_err());
    }
}
