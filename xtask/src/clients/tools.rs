//! Kafka's own command-line tools, each started by its class as a process of its own, as Kafka's shell scripts do.

use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::rust_cases::{Bench, Case, has_row, refuse, same, says, succeed, succeed_with};

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";

/// The suite.
pub(super) const CASES: &[Case] = &[
    Case { name: "api-versions", run: api_versions },
    Case { name: "topics", run: topics },
    Case { name: "configs", run: configs },
    Case { name: "broker-configs", run: broker_configs },
    Case { name: "group-configs", run: group_configs },
    Case { name: "console", run: console },
    Case { name: "offsets", run: offsets },
    Case { name: "delete-records", run: delete_records },
    Case { name: "log-dirs", run: log_dirs },
    Case { name: "groups-and-reset", run: groups_and_reset },
    Case { name: "offsets-topic", run: offsets_topic },
    Case { name: "perf", run: perf },
    Case { name: "cluster-and-election", run: cluster_and_election },
];

/// A tool that talks to the server, with its arguments split at spaces.
fn tool(bench: &Bench<'_>, class: &str, arguments: &str) -> Command {
    let mut command = bench.tool(class);
    command.args(["--bootstrap-server", &bench.bootstrap()]).args(arguments.split_whitespace());
    command
}

/// Runs a tool that is expected to succeed and returns its output.
fn output_of(bench: &Bench<'_>, class: &str, arguments: &str) -> anyhow::Result<String> {
    Ok(succeed(&mut tool(bench, class, arguments))?.stdout)
}

fn create(bench: &Bench<'_>, topic: &str, partitions: u32) -> anyhow::Result<()> {
    output_of(bench, TOPICS, &format!("--create --topic {topic} --partitions {partitions}")).map(drop)
}

/// Produces lines `KEY:VALUE`.
fn produce(bench: &Bench<'_>, topic: &str, input: &str) -> anyhow::Result<()> {
    let arguments =
        format!("--topic {topic} --reader-property parse.key=true --reader-property key.separator=:");
    succeed_with(&mut tool(bench, PRODUCER, &arguments), input).map(drop)
}

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |text, n| text + &format!("key-{n}:value-{n}\n"))
}

/// Output of the tool begins with `HOST:PORT (id: N rack: R isFenced: F) -> (`.
fn api_versions(bench: &Bench<'_>) -> anyhow::Result<()> {
    let printed = output_of(bench, "org.apache.kafka.tools.BrokerApiVersionsCommand", "")?;
    says(&printed, &format!("{} (id: ", bench.bootstrap()))?;
    for key in ["Produce(0)", "Fetch(1)", "ConsumerGroupHeartbeat(68)", "DescribeTopicPartitions(75)"] {
        let line = printed.lines().find(|line| line.contains(key)).context(format!("{key} is missing"))?;
        says(line, "usable: ")?;
    }
    Ok(())
}

fn topics(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-topic");
    let made = output_of(
        bench,
        TOPICS,
        &format!(
            "--create --topic {topic} --partitions 3 --replication-factor 1 --config retention.ms=3600000"
        ),
    )?;
    says(&made, &format!("Created topic {topic}."))?;
    refuse(&mut tool(bench, TOPICS, &format!("--create --topic {topic}")), "already exists")?;
    says(&output_of(bench, TOPICS, "--list")?, &topic)?;
    output_of(bench, TOPICS, &format!("--alter --topic {topic} --partitions 5"))?;
    let described = output_of(bench, TOPICS, &format!("--describe --topic {topic}"))?;
    for expected in
        ["PartitionCount: 5", "ReplicationFactor: 1", "retention.ms=3600000", "Partition: 4\tLeader: "]
    {
        says(&described, expected)?;
    }
    refuse(
        &mut tool(bench, TOPICS, &format!("--alter --topic {topic} --partitions 4")),
        "InvalidPartitionsException",
    )?;
    output_of(bench, TOPICS, &format!("--delete --topic {topic}"))?;
    refuse(&mut tool(bench, TOPICS, &format!("--describe --topic {topic}")), "does not exist as expected")
}

fn configs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-config");
    create(bench, &topic, 1)?;
    let entity = format!("--entity-type topics --entity-name {topic}");
    let add = format!("{entity} --alter --add-config cleanup.policy=compact,segment.bytes=2097152");
    says(&output_of(bench, CONFIGS, &add)?, "Completed updating config for topic")?;
    let described = output_of(bench, CONFIGS, &format!("{entity} --describe"))?;
    says(&described, "cleanup.policy=compact")?;
    says(&described, "segment.bytes=2097152")?;
    let all = output_of(bench, CONFIGS, &format!("{entity} --describe --all"))?;
    says(&all, "min.insync.replicas=")?;
    says(&all, "max.message.bytes=")?;
    output_of(bench, CONFIGS, &format!("{entity} --alter --delete-config cleanup.policy"))?;
    let left = output_of(bench, CONFIGS, &format!("{entity} --describe"))?;
    same("cleanup.policy is still set", &left.contains("cleanup.policy"), &false)?;
    for refused in ["no.such.config=1", "retention.ms=soon", "cleanup.policy=shred"] {
        let alter = format!("{entity} --alter --add-config {refused}");
        refuse(&mut tool(bench, CONFIGS, &alter), "InvalidConfigurationException")?;
    }
    Ok(())
}

/// Configs of a group, which need not exist.
fn group_configs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let group = bench.name("tools-group-configs");
    let entity = format!("--entity-type groups --entity-name {group}");
    let set = "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000";
    let add = format!("{entity} --alter --add-config {set}");
    says(&output_of(bench, CONFIGS, &add)?, "Completed updating config for group")?;
    let described = output_of(bench, CONFIGS, &format!("{entity} --describe"))?;
    says(&described, "consumer.session.timeout.ms=50000")?;
    says(&described, "consumer.heartbeat.interval.ms=6000")?;
    says(&output_of(bench, CONFIGS, "--entity-type groups --describe")?, &group)?;
    output_of(bench, CONFIGS, &format!("{entity} --alter --delete-config consumer.session.timeout.ms"))?;
    let left = output_of(bench, CONFIGS, &format!("{entity} --describe"))?;
    same("the session is still set", &left.contains("consumer.session.timeout.ms=50000"), &false)?;
    says(&left, "consumer.heartbeat.interval.ms=6000")?;
    for refused in
        ["no.such.config=1", "consumer.session.timeout.ms=1", "consumer.heartbeat.interval.ms=soon"]
    {
        let alter = format!("{entity} --alter --add-config {refused}");
        refuse(&mut tool(bench, CONFIGS, &alter), "InvalidConfigurationException")?;
    }
    Ok(())
}

/// The broker's own settings, under the node id that the broker reports.
fn broker_configs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let versions = output_of(bench, "org.apache.kafka.tools.BrokerApiVersionsCommand", "")?;
    let id = versions.split("(id: ").nth(1).and_then(|rest| rest.split(' ').next()).context("no node id")?;
    let entity = format!("--entity-type brokers --entity-name {id} --describe --all");
    let described = output_of(bench, CONFIGS, &entity)?;
    for name in
        ["log.segment.bytes=", "log.retention.ms=", "num.partitions=", "group.initial.rebalance.delay.ms=0"]
    {
        says(&described, name)?;
    }
    Ok(())
}

fn console(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-console");
    create(bench, &topic, 1)?;
    produce(bench, &topic, &lines(200))?;
    let arguments = format!(
        "--topic {topic} --from-beginning --max-messages 200 --timeout-ms 20000 \
         --formatter-property print.key=true --formatter-property key.separator=:"
    );
    same("what was consumed", &output_of(bench, CONSUMER, &arguments)?, &lines(200))?;
    let one = format!(
        "--topic {topic} --partition 0 --offset 150 --max-messages 1 --timeout-ms 20000 \
         --formatter-property print.offset=true --formatter-property print.partition=true"
    );
    same(
        "the record at 150",
        &output_of(bench, CONSUMER, &one)?.trim(),
        &"Partition:0\tOffset:150\tvalue-150",
    )
}

fn offsets(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-offsets");
    create(bench, &topic, 2)?;
    produce(bench, &topic, "a:1\na:2\na:3\n")?;
    let at = |time: &str| {
        let printed = output_of(bench, OFFSETS, &format!("--topic {topic} --time {time}"))?;
        let offsets = printed.lines().filter_map(|line| line.strip_prefix(&format!("{topic}:")));
        Ok::<_, anyhow::Error>(offsets.map(str::to_owned).collect::<Vec<_>>())
    };
    // Key `a` belongs to partition 0 of 2 under the Java client's murmur2 partitioner.
    same("latest", &at("latest")?, &vec!["0:3".to_owned(), "1:0".to_owned()])?;
    same("earliest", &at("earliest")?, &vec!["0:0".to_owned(), "1:0".to_owned()])?;
    same("from 1970 on", &at("1")?.first(), &Some(&"0:0".to_owned()))?;
    same("of the largest timestamp", &at("max-timestamp")?.len().min(1), &1)
}

fn delete_records(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-delete");
    create(bench, &topic, 1)?;
    produce(bench, &topic, &lines(10))?;
    let request = format!(r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"offset":4}}]}}"#);
    let file = bench.write_file("delete-records.json", &request)?;
    let class = "org.apache.kafka.tools.DeleteRecordsCommand";
    says(&output_of(bench, class, &format!("--offset-json-file {file}"))?, "low_watermark: 4")?;
    let earliest = output_of(bench, OFFSETS, &format!("--topic {topic} --time earliest"))?;
    same("the first offset left", &earliest.trim(), &format!("{topic}:0:4").as_str())
}

fn log_dirs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-dirs");
    create(bench, &topic, 1)?;
    produce(bench, &topic, &lines(10))?;
    let arguments = format!("--describe --topic-list {topic}");
    let printed = output_of(bench, "org.apache.kafka.tools.LogDirsCommand", &arguments)?;
    let json = printed.lines().find(|line| line.starts_with('{')).context("no JSON in the output")?;
    let described: Value = serde_json::from_str(json)?;
    let dir = &described["brokers"][0]["logDirs"][0];
    same("the directory's error", &dir["error"], &Value::Null)?;
    same("the partition", &dir["partitions"][0]["partition"], &Value::from(format!("{topic}-0")))?;
    let size = dir["partitions"][0]["size"].as_u64();
    same(&format!("a size above zero ({size:?})"), &size.is_some_and(|bytes| bytes > 0), &true)
}

/// A group that has read everything, then each way to move it that needs no clock, then its deletion.
fn groups_and_reset(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (bench.name("tools-reset"), bench.name("tools-group"));
    create(bench, &topic, 1)?;
    produce(bench, &topic, &lines(10))?;
    let read =
        format!("--topic {topic} --group {group} --from-beginning --max-messages 10 --timeout-ms 20000");
    output_of(bench, CONSUMER, &read)?;
    says(&output_of(bench, GROUPS, "--list")?, &group)?;
    let state = output_of(bench, GROUPS, &format!("--describe --group {group} --state"))?;
    says(&state, "Empty")?;
    let described = output_of(bench, GROUPS, &format!("--describe --group {group}"))?;
    has_row(&described, &[&group, &topic, "0", "10", "10", "0"])?;
    let target = format!("--reset-offsets --group {group} --topic {topic} --execute");
    let resets = [
        ("--to-earliest", "0"),
        ("--shift-by 7", "7"),
        ("--to-offset 3", "3"),
        ("--to-latest", "10"),
        ("--to-datetime 2001-01-01T00:00:00.000", "0"),
    ];
    for (how, expected) in resets {
        has_row(&output_of(bench, GROUPS, &format!("{target} {how}"))?, &[&group, &topic, "0", expected])?;
    }
    let lag = output_of(bench, GROUPS, &format!("--describe --group {group}"))?;
    has_row(&lag, &[&group, &topic, "0", "0", "10", "10"])?;
    output_of(bench, GROUPS, &format!("--delete-offsets --group {group} --topic {topic}"))?;
    output_of(bench, GROUPS, &format!("--delete --group {group}")).or_else(|error| {
        // A group without offsets and members may have been removed already: then the tool refuses by this name.
        says(&error.to_string(), "GroupIdNotFoundException").map(|()| String::new())
    })?;
    let left = output_of(bench, GROUPS, "--list")?;
    same("the group is still listed", &left.contains(&group), &false)
}

/// An ordinary consumer with Kafka's formatter reads the commits of groups.
fn offsets_topic(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (bench.name("tools-commits"), bench.name("tools-committer"));
    create(bench, &topic, 1)?;
    produce(bench, &topic, &lines(5))?;
    let read =
        format!("--topic {topic} --group {group} --from-beginning --max-messages 5 --timeout-ms 20000");
    output_of(bench, CONSUMER, &read)?;
    let arguments = "--topic __consumer_offsets --from-beginning --timeout-ms 4000 \
                     --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter";
    let printed = output_of(bench, CONSUMER, arguments)?;
    // The formatter prints nothing between one record and the next.
    let records = serde_json::Deserializer::from_str(&printed).into_iter::<Value>().map_while(Result::ok);
    let ours = records.filter(|record| record["key"]["data"]["group"] == group.as_str());
    let commit = ours.last().with_context(|| format!("no commit of our group in:\n{printed}"))?;
    same("the topic", &commit["key"]["data"]["topic"], &Value::from(topic))?;
    same("the offset", &commit["value"]["data"]["offset"], &Value::from(5))
}

fn perf(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-perf");
    create(bench, &topic, 3)?;
    let produced = output_of(
        bench,
        "org.apache.kafka.tools.ProducerPerformance",
        &format!(
            "--topic {topic} --num-records 50000 --record-size 512 --throughput -1 --command-property acks=all"
        ),
    )?;
    says(&produced, "50000 records sent")?;
    let class = "org.apache.kafka.tools.ConsumerPerformance";
    let consumed = output_of(bench, class, &format!("--topic {topic} --num-records 50000 --timeout 20000"))?;
    let row = consumed.lines().last().context("nothing printed")?;
    let count = row.split(", ").nth(4).context("no fifth column")?;
    same("records consumed", &count, &"50000")
}

fn cluster_and_election(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("tools-election");
    create(bench, &topic, 1)?;
    let mut cluster = bench.tool("org.apache.kafka.tools.ClusterTool");
    cluster.args(["cluster-id", "--bootstrap-server", &bench.bootstrap()]);
    says(&succeed(&mut cluster)?.stdout, "Cluster ID: ")?;
    let elect = format!("--election-type preferred --topic {topic} --partition 0");
    let elected = output_of(bench, "org.apache.kafka.tools.LeaderElectionCommand", &elect)?;
    says(&elected, "Valid replica already elected for partitions")
}
