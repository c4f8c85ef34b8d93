//! kcat, the command-line client on librdkafka: one process per step.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::Value;

use super::rust_cases::{Bench, Case, refuse, same, says, succeed, succeed_with};

/// The suite.
pub(super) const CASES: &[Case] = &[
    Case { name: "metadata", run: metadata },
    Case { name: "produce-consume", run: produce_consume },
    Case { name: "codecs", run: codecs },
    Case { name: "headers-and-nulls", run: headers_and_nulls },
    Case { name: "idempotence", run: idempotence },
    Case { name: "group", run: group },
    Case { name: "group-cooperative", run: group_cooperative },
    Case { name: "group-takeover", run: group_takeover },
    Case { name: "timestamp-query", run: timestamp_query },
    Case { name: "offsets-from-the-end", run: offsets_from_the_end },
    Case { name: "unknown-topic", run: unknown_topic },
];

fn kcat(bench: &Bench<'_>, arguments: &[&str]) -> Command {
    let mut command = Command::new("kcat");
    command.args(["-b", &bench.bootstrap(), "-X", "broker.address.family=v4"]).args(arguments);
    command
}

/// `count` lines `KEY:VALUE`, one record each.
fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |text, n| text + &format!("key-{}:value-{n}\n", n % 7))
}

fn produce(bench: &Bench<'_>, topic: &str, input: &str, more: &[&str]) -> anyhow::Result<()> {
    let arguments = [&["-P", "-t", topic, "-K", ":"], more].concat();
    succeed_with(&mut kcat(bench, &arguments), input).map(drop)
}

/// Everything in the topic as sorted lines `KEY:VALUE`.
fn consume(bench: &Bench<'_>, topic: &str, more: &[&str]) -> anyhow::Result<Vec<String>> {
    let arguments = [&["-C", "-q", "-e", "-t", topic, "-K", ":"], more].concat();
    Ok(sorted_lines(&succeed(&mut kcat(bench, &arguments))?.stdout))
}

fn sorted_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn metadata(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("kcat-metadata");
    produce(bench, &topic, &lines(1), &[])?;
    let listing = succeed(&mut kcat(bench, &["-L", "-J"]))?.stdout;
    let listing: Value = serde_json::from_str(&listing).with_context(|| format!("no JSON: {listing}"))?;
    let brokers = listing["brokers"].as_array().context("no brokers")?;
    same("brokers", &brokers.len(), &1)?;
    same("the broker's address", &brokers[0]["name"].as_str(), &Some(bench.bootstrap().as_str()))?;
    let topics = listing["topics"].as_array().context("no topics")?;
    let ours =
        topics.iter().find(|found| found["topic"] == topic.as_str()).context("our topic is missing")?;
    let partition = &ours["partitions"][0];
    same("the leader", &partition["leader"], &brokers[0]["id"])?;
    says(&succeed(&mut kcat(bench, &["-L", "-t", &topic]))?.stdout, &format!("topic \"{topic}\""))
}

fn produce_consume(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, input) = (bench.name("kcat-plain"), lines(2000));
    produce(bench, &topic, &input, &[])?;
    same("records", &consume(bench, &topic, &["-o", "beginning"])?, &sorted_lines(&input))?;
    let counted =
        succeed(&mut kcat(bench, &["-C", "-q", "-t", &topic, "-o", "1500", "-c", "3", "-f", "%o %s\n"]))?;
    same("from offset 1500", &counted.stdout.as_str(), &"1500 value-1500\n1501 value-1501\n1502 value-1502\n")
}

fn codecs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, input) = (bench.name("kcat-codecs"), lines(300));
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    for codec in codecs {
        produce(bench, &topic, &input, &["-z", codec])?;
    }
    let expected = sorted_lines(&input.repeat(codecs.len()));
    same("records", &consume(bench, &topic, &["-X", "check.crcs=true"])?, &expected)
}

fn headers_and_nulls(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("kcat-nulls");
    // -Z makes empty parts null: a value, a tombstone, and a record without a key.
    produce(bench, &topic, "a:1\na:\n:2\n", &["-Z", "-H", "origin=kcat", "-H", "empty="])?;
    let arguments = ["-C", "-q", "-e", "-Z", "-t", &topic, "-f", "%K %S %h\n"];
    let found = succeed(&mut kcat(bench, &arguments))?.stdout;
    let headers = "origin=kcat,empty=";
    same(
        "key sizes, value sizes, headers",
        &found,
        &format!("1 1 {headers}\n1 -1 {headers}\n-1 1 {headers}\n"),
    )
}

fn idempotence(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, input) = (bench.name("kcat-idempotence"), lines(2000));
    produce(bench, &topic, &input, &["-X", "enable.idempotence=true", "-X", "batch.num.messages=50"])?;
    same("records", &consume(bench, &topic, &[])?, &sorted_lines(&input))
}

/// A group reads everything and commits; its second run reads only new records.
fn group(bench: &Bench<'_>) -> anyhow::Result<()> {
    group_with(bench, "kcat-group", &[])
}

fn group_cooperative(bench: &Bench<'_>) -> anyhow::Result<()> {
    group_with(bench, "kcat-cooperative", &["-X", "partition.assignment.strategy=cooperative-sticky"])
}

fn group_with(bench: &Bench<'_>, name: &str, more: &[&str]) -> anyhow::Result<()> {
    let (topic, group) = (bench.name(name), bench.name(name));
    let read = || {
        let ends = ["-G", &group, "-q", "-e", "-K", ":", "-X", "auto.offset.reset=earliest"];
        let arguments = [&ends, more, &[topic.as_str()]].concat();
        Ok::<_, anyhow::Error>(sorted_lines(&succeed(&mut kcat(bench, &arguments))?.stdout))
    };
    let first = lines(500);
    produce(bench, &topic, &first, &[])?;
    same("the first run", &read()?, &sorted_lines(&first))?;
    produce(bench, &topic, "late:one\n", &[])?;
    same("the second run", &read()?, &vec!["late:one".to_owned()])
}

/// A killed member does not leave: when its session has expired, the next member gets its partitions.
fn group_takeover(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (bench.name("kcat-takeover"), bench.name("kcat-takeover"));
    produce(bench, &topic, "before:1\n", &[])?;
    let settings = ["-X", "session.timeout.ms=6000", "-X", "auto.commit.interval.ms=100"];
    let member =
        [&["-G", &group, "-q", "-K", ":", "-X", "auto.offset.reset=earliest"], &settings[..]].concat();
    let mut doomed = kcat(bench, &member);
    let mut doomed = doomed.args(["-u", &topic]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut first = String::new();
    let read = BufReader::new(doomed.stdout.take().context("no output")?).read_line(&mut first);
    doomed.kill()?;
    doomed.wait()?;
    read?;
    same("what the first member read", &first.as_str(), &"before:1\n")?;
    produce(bench, &topic, "after:2\n", &[])?;
    // kcat commits when it leaves, so the records of the first member may come again.
    let next = succeed(kcat(bench, &member).args(["-e", &topic]))?.stdout;
    same("the last that the next member read", &next.lines().last(), &Some("after:2"))
}

fn timestamp_query(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("kcat-times");
    produce(bench, &topic, &lines(10), &[])?;
    let query = |timestamp: &str| {
        let question = format!("{topic}:0:{timestamp}");
        let answer = succeed(&mut kcat(bench, &["-Q", "-t", &question]))?.stdout;
        Ok::<_, anyhow::Error>(answer.trim().to_owned())
    };
    same("the earliest", &query("-2")?, &format!("{topic} [0] offset 0"))?;
    same("the latest", &query("-1")?, &format!("{topic} [0] offset 10"))?;
    same("everything is younger than 1 ms", &query("1")?, &format!("{topic} [0] offset 0"))?;
    // No record is that young: the answer is the end, which librdkafka spells -1.
    same("nothing is as young as the year 2100", &query("4102444800000")?, &format!("{topic} [0] offset -1"))
}

fn offsets_from_the_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("kcat-tail");
    produce(bench, &topic, &lines(20), &[])?;
    let found = consume(bench, &topic, &["-o", "-2"])?;
    same("the last two", &found, &vec!["key-4:value-18".to_owned(), "key-5:value-19".to_owned()])?;
    same("from the end", &consume(bench, &topic, &["-o", "end"])?, &Vec::new())
}

fn unknown_topic(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("kcat-absent");
    let arguments = ["-C", "-e", "-t", &topic, "-X", "allow.auto.create.topics=false"];
    refuse(&mut kcat(bench, &arguments), "Unknown topic or partition")
}
