//! `riverrun perf` against a real server, read by the same code that reads what Kafka's tools print.
//!
//! `testdata/kafka-perf/` holds what those tools of Kafka 4.3.1 printed, as they printed it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Server, finish, signal};

/// The figures that a script finds in a summary or an interval of a producer.
#[derive(Debug, PartialEq)]
struct Produced {
    records: u64,
    records_per_s: f64,
    mb_per_s: f64,
    average_ms: f64,
    max_ms: f64,
    /// 50, 95, 99 and 99.9 %; none in an interval.
    percentiles_ms: Vec<u64>,
}

/// Takes a line apart as scripts do: by its commas, and the number at the begin of each part.
fn parse_produced(line: &str) -> Produced {
    let parts: Vec<_> = line.trim_end_matches('.').split(", ").collect();
    let number = |part: &str| part.split(' ').next().expect(part).parse::<f64>().expect(part);
    let (rate, size) = parts[1].split_once(" records/sec (").expect("two rates");
    assert!(parts[2].ends_with(" ms avg latency") && parts[3].ends_with(" ms max latency"), "{line}");
    let names = [" ms 50th", " ms 95th", " ms 99th", " ms 99.9th"];
    let percentile = |(part, name): (&&str, &str)| part.strip_suffix(name).expect(name).parse().expect(part);
    Produced {
        records: parts[0].split(' ').next().expect(line).parse().expect(line),
        records_per_s: rate.parse().expect(line),
        mb_per_s: size.strip_suffix(" MB/sec)").expect(line).parse().expect(line),
        average_ms: number(parts[2]),
        max_ms: number(parts[3]),
        percentiles_ms: parts[4..].iter().zip(names).map(percentile).collect(),
    }
}

/// All lines of a producer that scripts read, by what they are about.
fn producer_lines(text: &str) -> BTreeMap<&'static str, Vec<Produced>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for line in text.lines() {
        let what = match () {
            () if line.contains(" steady state records sent, ") => "steady",
            () if line.contains(" records sent, ") && line.contains("99.9th") => "total",
            () if line.contains(" records sent, ") => "interval",
            () => continue,
        };
        found.entry(what).or_default().push(parse_produced(line));
    }
    found
}

/// The numbers of a consumer's row after its first two columns, which are the given number of parts of a time.
fn parse_row(line: &str) -> Vec<f64> {
    let columns: Vec<_> = line.split(", ").collect();
    assert_eq!(columns.len(), 10, "{line}");
    columns[2..].iter().map(|column| column.parse().expect(line)).collect()
}

/// Average and percentiles of an end-to-end run.
fn parse_end_to_end(text: &str) -> (f64, Vec<u64>) {
    let line = |begin: &str| text.lines().find_map(|line| line.strip_prefix(begin)).expect(begin);
    let average = line("Avg latency: ").strip_suffix(" ms").expect("milliseconds").parse().expect("a number");
    let percentiles = line("Percentiles: ")
        .split(", ")
        .map(|part| part.split_once(" = ").expect(part).1.parse().expect(part));
    (average, percentiles.collect())
}

fn produce<'a>(topic: &'a str, count: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["perf", "produce", "--topic", topic, "--num-records", count], flags].concat()
}

#[test]
fn parsers_of_these_tests_read_lines_of_kafkas_tools() {
    let lines = producer_lines(include_str!("testdata/kafka-perf/producer.txt"));
    assert_eq!((lines["interval"].len(), lines["total"].len(), lines["steady"].len()), (2, 1, 1));
    assert_eq!(lines["total"][0].records, 8000);
    assert_eq!(lines["steady"][0].percentiles_ms, [613, 806, 848, 848]);
    let lines = producer_lines(include_str!("testdata/kafka-perf/producer-unpaced.txt"));
    assert_eq!((lines.len(), lines["total"][0].max_ms.round()), (1, 1435.0));
    for text in [
        include_str!("testdata/kafka-perf/consumer.txt"),
        include_str!("testdata/kafka-perf/consumer-detailed.txt"),
        include_str!("testdata/kafka-perf/consumer-timeout.txt"),
    ] {
        assert!(parse_row(text.lines().last().unwrap())[2] >= 1.0);
    }
    let (average, percentiles) = parse_end_to_end(include_str!("testdata/kafka-perf/end-to-end.txt"));
    assert_eq!((average.round(), percentiles), (3.0, vec![1, 19, 63]));
}

#[test]
fn a_paced_producers_lines_read_as_kafkas_with_every_latency() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let hdr = dir.path().join("run.hlog");
    let flags = ["--record-size", "100", "--throughput", "1000", "--warmup-records", "500"];
    let more = [
        "--reporting-interval",
        "500",
        "--hdr",
        hdr.to_str().unwrap(),
        "--print-metrics",
        "--command-property",
        "client.id=paced-client",
    ];
    let text = server.run(&produce("paced", "2500", &[&flags[..], &more].concat())).ended(0).text();
    let lines = producer_lines(&text);
    let (total, steady) = (&lines["total"][0], &lines["steady"][0]);
    assert_eq!((total.records, steady.records), (2500, 2000));
    assert!(total.records_per_s < 1010.0 && total.records_per_s > 500.0, "{text}");
    assert!((total.mb_per_s - total.records_per_s * 100.0 / 1_048_576.0).abs() < 0.01, "{text}");
    assert!(total.percentiles_ms.is_sorted() && total.max_ms >= total.average_ms, "{text}");
    assert!(lines["interval"].len() >= 3, "{text}");
    assert!(lines["interval"].iter().map(|one| one.records).sum::<u64>() <= 2500, "{text}");
    let order: Vec<_> = [
        "Warmup first 500 records. ",
        "In steady state.",
        "latency from the time at which",
        " steady state records",
    ]
    .iter()
    .map(|words| text.find(words).expect(words))
    .collect();
    assert!(order.is_sorted(), "{text}");
    let metric = |name: &str| {
        let name = format!("producer-metrics:{name}:{{client-id=paced-client}}");
        let line =
            text.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.rsplit_once(" : ").and_then(|(_, value)| value.parse::<f64>().ok()).expect("a number")
    };
    assert_eq!((metric("record-send-total"), metric("record-error-total")), (2500.0, 0.0));
    assert!((metric("record-size-avg") - 100.0).abs() < 0.5, "{text}");
    assert!(metric("outgoing-byte-total") > 250_000.0 && metric("outgoing-byte-rate") > 0.0, "{text}");
    assert!(
        metric("request-latency-avg") > 0.0 && metric("request-latency-max") >= metric("request-latency-avg")
    );
    assert!(metric("batch-size-avg") > 100.0 && metric("record-queue-time-avg") > 0.0, "{text}");
    assert_eq!(
        (metric("buffer-available-bytes"), metric("buffer-total-bytes")),
        (33_554_432.0, 33_554_432.0)
    );
    let log = std::fs::read_to_string(&hdr).expect("written");
    let of_tag = |tag: bool| {
        log.lines()
            .filter(|line| line.contains(",HISTF") && line.starts_with("Tag=from-send,") == tag)
            .count()
    };
    assert!(log.starts_with(
        "#[riverrun perf produce, topic paced; values are microseconds]\n#[Histogram log format"
    ));
    assert!(of_tag(false) >= 2 && of_tag(false) == of_tag(true), "{log}");
}

#[test]
fn a_producers_run_in_json_is_one_document() {
    let server = Server::start();
    let flags = ["--record-size", "100", "--json", "--reporting-interval", "100"];
    let told = server.run(&produce("json", "500", &flags)).ended(0).json();
    assert_eq!((&told["records"], &told["bytes"]), (&500.into(), &50_000.into()), "{told}");
    assert_eq!((&told["failed_records"], &told["latency_from_send"]["count"]), (&0.into(), &500.into()));
    assert!(told["latency_from_due"].is_null() && told["after_warmup"].is_null(), "{told}");
    let paced = ["--throughput", "1000", "--warmup-records", "200"];
    let told = server.run(&produce("json", "500", &[&flags[..], &paced].concat())).ended(0).json();
    let steady = &told["after_warmup"];
    assert_eq!((&told["records"], &steady["records"]), (&500.into(), &300.into()), "{told}");
    assert_eq!(steady["latency_from_due"]["count"], 300, "{told}");
    assert!(steady["seconds"].as_f64() < told["seconds"].as_f64(), "{told}");
    assert_eq!(server.run(&produce("json", "1", &[&flags[..], &["--print-metrics"]].concat())).code, 2);
}

/// The self-check of the whole tool: of all records, a quarter were due while the server stood still.
#[test]
fn a_server_stopped_for_a_second_shows_in_the_percentiles() {
    let server = Server::start();
    let flags = ["--record-size", "100", "--throughput", "200", "--reporting-interval", "200"];
    let mut producing = server.command(&produce("stalled", "800", &flags)).spawn().expect("the binary runs");
    let mut output = BufReader::new(producing.stdout.take().expect("piped"));
    let mut text = String::new();
    // However long it takes to connect: not before some were acked.
    while !text.contains(" records sent, ") {
        assert_ne!(output.read_line(&mut text).expect("text"), 0, "{text}");
    }
    signal(&server.child, Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    signal(&server.child, Signal::CONT);
    output.read_to_string(&mut text).expect("text");
    assert!(producing.wait().expect("a child of ours").success());
    let total = &producer_lines(&text)["total"][0];
    let [p50, p95, p99, p999] = total.percentiles_ms[..] else { panic!("{text}") };
    assert!(total.max_ms >= 950.0 && p999 >= 900 && p99 >= 850, "{text}");
    assert!(p95 >= 600, "a quarter waited, up to a second: {text}");
    assert!(p50 as f64 + 300.0 < total.max_ms, "most did not: {text}");
}

#[test]
fn an_interrupt_ends_a_run_with_figures_of_sent_records() {
    let server = Server::start();
    let flags = ["--record-size", "100", "--throughput", "500"];
    let producing =
        server.command(&produce("broken-off", "1000000", &flags)).spawn().expect("the binary runs");
    std::thread::sleep(Duration::from_secs(1));
    signal(&producing, Signal::INT);
    let finished = finish(producing, b"").ended(130);
    let records = producer_lines(&finished.text())["total"][0].records;
    assert!((1..10_000).contains(&records), "{finished:?}");
    let read = server.run(&["consume", "broken-off"]).ended(0).text();
    assert_eq!(read.lines().count() as u64, records, "each record that was sent was settled");
}

#[test]
fn a_wait_for_a_stopped_server_ends_with_the_second_signal() {
    let server = Server::start();
    server.run(&["topic", "create", "t", "--partitions", "1"]).ended(0);
    let flags = ["--record-size", "100", "--throughput", "500", "--reporting-interval", "200"];
    let end_to_end = ["--num-records", "1000000", "--producer-acks", "all", "--record-size", "100"];
    let runs = [
        produce("t", "1000000", &flags),
        [&["perf", "end-to-end", "--topic", "e"], &end_to_end[..]].concat(),
        ["perf", "consume", "--topic", "t", "--num-records", "1000000", "--timeout", "60000"].to_vec(),
    ]
    .map(|command| server.command(&command).spawn().expect("the binary runs"));
    std::thread::sleep(Duration::from_secs(2));
    signal(&server.child, Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..2 {
        for run in &runs {
            signal(run, Signal::INT);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let begun = Instant::now();
    let told = runs.map(|run| finish(run, b"").ended(130).text());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    signal(&server.child, Signal::CONT);
    assert!(producer_lines(&told[0])["total"][0].records > 0, "{}", told[0]);
    assert!(parse_end_to_end(&told[1]).0 > 0.0, "{}", told[1]);
    assert_eq!(told[2].lines().count(), 2, "{}", told[2]);
}

/// As `head -1` does. The server may stand still by then.
#[test]
fn a_producer_whose_reader_left_sends_its_last_and_ends_soon() {
    const LINGERING: [&str; 2] = ["linger.ms=600000", "batch.size=1000000"];
    let server = Server::start();
    let flags = ["--payload-monotonic", "--throughput", "1000", "--reporting-interval", "200"];
    let flags = [&flags[..], &["--command-property"], &LINGERING].concat();
    for (topic, stands_still) in [("read", false), ("lost", true)] {
        server.run(&["topic", "create", topic, "--partitions", "1"]).ended(0);
        let command = server.command(&produce(topic, "1000000", &flags)).spawn();
        let mut producing = command.expect("the binary runs");
        let mut output = BufReader::new(producing.stdout.take().expect("piped"));
        assert_ne!(output.read_line(&mut String::new()).expect("text"), 0);
        if stands_still {
            signal(&server.child, Signal::STOP);
        }
        drop(output);
        let ended = finish(producing, b"").ended(0);
        assert_eq!(ended.stderr.contains("are given up"), stands_still, "{}", ended.stderr);
    }
    signal(&server.child, Signal::CONT);
    let read = server.run(&["consume", "read"]).ended(0).text();
    let numbers: Vec<u64> = read.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.len() >= 100 && numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
}

#[test]
fn several_threads_and_producers_send_each_record_once() {
    let server = Server::start();
    server.run(&["topic", "create", "shared", "--partitions", "3"]).ended(0);
    for (threads, producers) in [("3", "2"), ("2", "3")] {
        let flags = ["--payload-monotonic", "--threads", threads, "--producers", producers];
        let text = server.run(&produce("shared", "1000", &flags)).ended(0).text();
        assert_eq!(producer_lines(&text)["total"][0].records, 1000, "{text}");
    }
    let read = server.run(&["consume", "shared"]).ended(0).text();
    let mut numbers: Vec<u64> = read.lines().map(|line| line.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2000).map(|number| number / 2).collect::<Vec<_>>());
}

#[test]
fn keys_are_distributed_as_asked() {
    let server = Server::start();
    for (name, range, expected) in [
        ("range", Some("3"), vec!["0", "1", "2"]),
        ("sequential", None, vec!["0", "1", "2", "3", "4", "5"]),
        ("mixed", Some("1"), vec!["0", "null"]),
        ("none", None, vec!["null"]),
    ] {
        let flags = ["--record-size", "5", "--key-distribution", name, "--partitioner", "round-robin"];
        let range: Vec<_> = range.iter().flat_map(|range| ["--record-key-range", *range]).collect();
        server.run(&produce(name, "6", &[&flags[..], &range].concat())).ended(0);
        let read = server.run(&["consume", name, "--format", "json"]).ended(0);
        let mut keys: Vec<_> = read
            .json_lines()
            .iter()
            .map(|record| record["key"].as_str().unwrap_or("null").to_owned())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys, expected, "{name}");
    }
}

#[test]
fn a_consumers_row_is_read_as_kafkas() {
    let server = Server::start();
    server.run(&["topic", "create", "read-1", "--partitions", "4"]).ended(0);
    server.run(&produce("read-1", "3000", &["--record-size", "1000"])).ended(0);
    let consume = ["perf", "consume", "--num-records", "3000", "--timeout", "20000"];
    let text = server.run(&[&consume[..], &["--topic", "read-1", "--threads", "2"]].concat()).ended(0).text();
    let kafka = include_str!("testdata/kafka-perf/consumer.txt");
    assert_eq!(text.lines().next(), kafka.lines().next());
    let row = parse_row(text.lines().nth(1).expect("a row"));
    assert!((row[0] - 3_000_000.0 / 1_048_576.0).abs() < 0.001 && (row[2] - 3000.0).abs() < 0.1, "{text}");
    assert!(row[3] > 0.0 && row[7] >= row[3], "{text}");
    let pattern =
        ["--include", "read-[0-9]", "--hide-header", "--show-detailed-stats", "--reporting-interval", "100"];
    let command = [
        "perf",
        "consume",
        "--num-records",
        "9000",
        "--timeout",
        "1500",
        "--command-property",
        "group.protocol=consumer",
    ];
    let text = server.run(&[&command[..], &pattern].concat()).ended(0).text();
    let kafka = include_str!("testdata/kafka-perf/consumer-timeout.txt").lines().next().expect("a warning");
    let (last, rows) =
        text.lines().collect::<Vec<_>>().split_last().map(|(last, rows)| (*last, rows.to_vec())).unwrap();
    assert_eq!(last, kafka.replace("3000 ms", "1500 ms"));
    assert!(rows.len() >= 5 && rows.iter().all(|row| row.split(", ").nth(1) == Some("0")), "{text}");
    let row = parse_row(rows.last().unwrap());
    assert!((row[2] - 3000.0).abs() < 0.1, "{text}");
    assert_eq!(server.run(&["perf", "consume", "--num-records", "1", "--include", "none.*"]).code, 3);
    let consume = [&consume[..], &["--topic", "read-1", "--json"]].concat();
    let told = server.run(&consume).ended(0).json();
    assert_eq!((&told["records"], &told["bytes"]), (&3000.into(), &3_000_000.into()), "{told}");
    assert_eq!((&told["timed_out"], told["records_per_second"].is_f64()), (&false.into(), true), "{told}");
}

#[test]
fn an_end_to_end_run_is_read_as_kafkas() {
    let server = Server::start();
    let flags =
        ["--num-records", "50", "--producer-acks", "all", "--record-size", "100", "--record-key-size", "8"];
    let headers = ["--num-headers", "2", "--record-header-key-size", "3", "--record-header-size", "-1"];
    let named = [&["perf", "end-to-end", "--topic", "e"], &flags[..], &headers].concat();
    let text = server.run(&named).ended(0).text();
    assert_eq!(
        text.lines().next(),
        Some("Topic \"e\" does not exist. Will create topic with 1 partition(s) and replication factor = 1")
    );
    let (average, percentiles) = parse_end_to_end(&text);
    assert!(average > 0.0 && percentiles.len() == 3 && percentiles.is_sorted(), "{text}");
    let first: f64 =
        text.lines().find_map(|line| line.strip_prefix("0\t")).expect("progress").parse().expect("ms");
    assert!(first > 0.0);
    let named = [&["perf", "end-to-end", "--topic", "new", "--json"], &flags[..]].concat();
    let told = server.run(&named).ended(0).json();
    let latency = &told["latency_from_send_to_read"];
    assert_eq!((&told["records"], &latency["count"]), (&50.into(), &50.into()), "{told}");
    assert!(latency["p50_us"].as_u64() > Some(0) && told["seconds"].as_f64() > Some(0.0), "{told}");
    let old = server.run(&["perf", "end-to-end", server.bootstrap(), "e", "20", "1", "10"]).ended(0);
    assert!(old.stderr.starts_with("WARNING: "), "{}", old.stderr);
    parse_end_to_end(&old.text());
}

#[test]
fn failures_of_perf_produce_have_their_exit_codes() {
    let server = Server::start();
    let refused = ["--record-size", "10", "--command-property", "security.protocol=SSL"];
    assert_eq!(server.run(&produce("t", "1", &refused)).code, 2);
    assert_eq!(
        server.run(&produce("t", "1", &["--record-size", "10", "--command-property", "acks=7"])).code,
        2
    );
    let nowhere = ["--record-size", "10", "--bootstrap-server", "127.0.0.1:1"];
    assert_eq!(server.run(&produce("t", "1", &nowhere)).code, 4);
    let too_large = ["--record-size", "3000000", "--command-property", "max.request.size=4000000"];
    let failed = server.run(&produce("t", "2", &too_large));
    assert!(failed.code != 0 && failed.stderr.contains("2 records were not acked"), "{failed:?}");
    let total = &producer_lines(&failed.text())["total"][0];
    assert!(total.records == 0 && total.average_ms > 0.0, "what was not acked has waited: {failed:?}");
    assert!(failed.text().contains("call of send (with 2 that failed, until then)"), "{failed:?}");
}
