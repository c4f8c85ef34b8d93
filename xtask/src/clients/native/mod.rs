//! Our own client against either server, with the same cases as the other clients.
//!
//! Runs inside xtask, which builds on the client anyway: nothing is installed. Each case has a runtime of its own, so
//! that none of its tasks outlives it.

mod admin;
mod consume;
mod groups;
mod produce;

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use riverrun_client::{
    Admin, ClientError, ClusterOptions, Consumer, ConsumerOptions, ConsumerRecord, ErrorCode, NewTopic,
    Producer, ProducerOptions, ProducerRecord, RecordMetadata, StartAt, TopicPartition,
};

use super::rust_cases::{Bench, Case};

/// Time limit of one case.
const CASE_LIMIT: Duration = Duration::from_mins(1);

/// Longest wait within a case.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time of one poll in a sequence of polls.
const SHORT: Duration = Duration::from_millis(20);

/// The suite.
pub(super) const CASES: &[Case] = &[
    Case { name: "acks", run: |bench| wait(produce::acks(bench)) },
    Case { name: "codecs", run: |bench| wait(produce::codecs(bench)) },
    Case { name: "idempotence", run: |bench| wait(produce::idempotence(bench)) },
    Case { name: "headers-and-nulls", run: |bench| wait(produce::headers_and_nulls(bench)) },
    Case { name: "keys", run: |bench| wait(produce::keys(bench)) },
    Case { name: "partitioners", run: |bench| wait(produce::partitioners(bench)) },
    Case { name: "callbacks", run: |bench| wait(produce::callbacks(bench)) },
    Case { name: "large-records", run: |bench| wait(produce::large_records(bench)) },
    Case { name: "too-large", run: |bench| wait(produce::too_large(bench)) },
    Case { name: "auto-create", run: |bench| wait(produce::auto_create(bench)) },
    Case { name: "assign", run: |bench| wait(consume::assign(bench)) },
    Case { name: "seek", run: |bench| wait(consume::seek(bench)) },
    Case { name: "pause-and-resume", run: |bench| wait(consume::pause_and_resume(bench)) },
    Case { name: "offsets-for-times", run: |bench| wait(consume::offsets_for_times(bench)) },
    Case { name: "reset", run: |bench| wait(consume::reset(bench)) },
    Case { name: "out-of-range", run: |bench| wait(consume::out_of_range(bench)) },
    Case { name: "commits", run: |bench| wait(consume::commits(bench)) },
    Case { name: "auto-commit", run: |bench| wait(consume::auto_commit(bench)) },
    Case { name: "long-poll", run: |bench| wait(consume::long_poll(bench)) },
    Case { name: "many-partitions", run: |bench| wait(consume::many_partitions(bench)) },
    Case { name: "small-budget", run: |bench| wait(consume::small_budget(bench)) },
    Case { name: "group-range", run: |bench| wait(groups::life(bench, &groups::RANGE)) },
    Case { name: "group-round-robin", run: |bench| wait(groups::life(bench, &groups::ROUND_ROBIN)) },
    Case { name: "group-cooperative", run: |bench| wait(groups::life(bench, &groups::COOPERATIVE)) },
    Case { name: "group-consumer-uniform", run: |bench| wait(groups::life(bench, &groups::UNIFORM)) },
    Case { name: "group-consumer-range", run: |bench| wait(groups::life(bench, &groups::SERVER_RANGE)) },
    Case { name: "group-static", run: |bench| wait(groups::static_member(bench, &groups::RANGE)) },
    Case { name: "group-consumer-static", run: |bench| wait(groups::static_member(bench, &groups::UNIFORM)) },
    Case { name: "group-static-fenced", run: |bench| wait(groups::fenced(bench)) },
    Case { name: "group-consumer-static-refused", run: |bench| wait(groups::refused(bench)) },
    Case { name: "group-new-partitions", run: |bench| wait(groups::new_partitions(bench, &groups::RANGE)) },
    Case {
        name: "group-consumer-new-partitions",
        run: |bench| wait(groups::new_partitions(bench, &groups::UNIFORM)),
    },
    Case { name: "group-pattern", run: |bench| wait(groups::pattern(bench, &groups::RANGE)) },
    Case { name: "group-consumer-pattern", run: |bench| wait(groups::pattern(bench, &groups::UNIFORM)) },
    Case { name: "group-listener", run: |bench| wait(groups::listener(bench, &groups::RANGE)) },
    Case {
        name: "group-cooperative-listener",
        run: |bench| wait(groups::listener(bench, &groups::COOPERATIVE)),
    },
    Case { name: "group-consumer-listener", run: |bench| wait(groups::listener(bench, &groups::UNIFORM)) },
    Case { name: "admin-topics", run: |bench| wait(admin::topics(bench)) },
    Case { name: "admin-topics-refused", run: |bench| wait(admin::topics_refused(bench)) },
    Case { name: "admin-configs", run: |bench| wait(admin::configs(bench)) },
    Case { name: "admin-cluster", run: |bench| wait(admin::cluster(bench)) },
    Case { name: "admin-offsets", run: |bench| wait(admin::offsets(bench)) },
    Case { name: "admin-producers", run: |bench| wait(admin::producers(bench)) },
    Case { name: "admin-groups", run: |bench| wait(admin::groups(bench)) },
    Case { name: "admin-group-offsets", run: |bench| wait(admin::group_offsets(bench)) },
];

/// Runs a case to its end, or to its time limit.
fn wait(case: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async { tokio::time::timeout(CASE_LIMIT, case).await });
    runtime.shutdown_background();
    ended.with_context(|| format!("the case did not end within {} s", CASE_LIMIT.as_secs()))?
}

/// Names and values of options.
type Properties<'a> = [(&'a str, &'a str)];

async fn admin_of(bench: &Bench<'_>) -> anyhow::Result<Admin> {
    Ok(Admin::new(ClusterOptions::new(&bench.bootstrap())).await?)
}

/// A topic of this case alone. Waits until Kafka's broker knows it, which learns of it on another thread.
async fn topic_of(bench: &Bench<'_>, what: &str, partitions: i32) -> anyhow::Result<String> {
    let (admin, name) = (admin_of(bench).await?, bench.name(&format!("native-{what}")));
    let topic = NewTopic { partitions: Some(partitions), ..NewTopic::named(&name) };
    only(admin.create_topics(vec![topic], false).await)?;
    let begun = Instant::now();
    while only(admin.describe_topics(std::slice::from_ref(&name)).await).is_err()
        && begun.elapsed() < PATIENCE
    {
        tokio::time::sleep(SHORT).await;
    }
    Ok(name)
}

async fn producer_of(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<Producer> {
    let bootstrap = bench.bootstrap();
    let properties = [("bootstrap.servers", bootstrap.as_str())].into_iter().chain(more.iter().copied());
    Ok(Producer::new(ProducerOptions::from_properties(properties)?).await?)
}

/// A consumer that begins with the first record by default.
async fn consumer_of(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<Consumer> {
    let bootstrap = bench.bootstrap();
    let own = [("bootstrap.servers", bootstrap.as_str()), ("auto.offset.reset", "earliest")];
    Ok(Consumer::new(ConsumerOptions::from_properties(own.into_iter().chain(more.iter().copied()))?).await?)
}

/// `count` values with their numbers.
fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

/// Sends `count` records, the n-th with the n-th of seven keys, and waits for all of them.
async fn produce_to(
    bench: &Bench<'_>,
    topic: &str,
    prefix: &str,
    count: usize,
    more: &Properties<'_>,
) -> anyhow::Result<Vec<RecordMetadata>> {
    let producer = producer_of(bench, more).await?;
    let mut deliveries = Vec::with_capacity(count);
    for (n, value) in numbered(prefix, count).into_iter().enumerate() {
        let record = ProducerRecord::new(topic, value).with_key(format!("key-{}", n % 7));
        deliveries.push(producer.send(record).await?);
    }
    let mut placed = Vec::with_capacity(count);
    for delivery in deliveries {
        placed.push(delivery.await?);
    }
    producer.close().await;
    Ok(placed)
}

/// All partitions of a topic, each from the same start.
fn all_from(topic: &str, partitions: i32, start: StartAt) -> Vec<(TopicPartition, StartAt)> {
    (0..partitions).map(|index| (TopicPartition::new(topic, index), start)).collect()
}

/// Polls until there are `count` records; more than that is an error.
async fn gather(consumer: &mut Consumer, count: usize) -> anyhow::Result<Vec<ConsumerRecord>> {
    let (begun, mut records) = (Instant::now(), Vec::new());
    while records.len() < count {
        records.extend(consumer.poll(Duration::from_millis(200)).await?);
        if begun.elapsed() > PATIENCE {
            bail!("only {} of {count} records came within {} s", records.len(), PATIENCE.as_secs());
        }
    }
    if records.len() > count {
        bail!("{} records came, and {count} were expected", records.len());
    }
    Ok(records)
}

/// Reads a topic from its beginning until there are `count` records.
async fn read_all(
    bench: &Bench<'_>,
    topic: &str,
    partitions: i32,
    count: usize,
    more: &Properties<'_>,
) -> anyhow::Result<Vec<ConsumerRecord>> {
    let mut consumer = consumer_of(bench, more).await?;
    consumer.assign(all_from(topic, partitions, StartAt::Earliest)).await?;
    let records = gather(&mut consumer, count).await?;
    let more = consumer.poll(Duration::from_millis(100)).await?;
    if !more.is_empty() {
        bail!("{} records more than {count} are there", more.len());
    }
    consumer.close().await?;
    Ok(records)
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn values(records: &[ConsumerRecord]) -> Vec<String> {
    records.iter().map(|record| text(record.value.as_deref())).collect()
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values
}

/// Checks that a call fails with this error of the server.
fn fails_with<T>(what: &str, result: Result<T, ClientError>, expected: ErrorCode) -> anyhow::Result<()> {
    match result {
        Err(error) if error.code() == Some(expected) => Ok(()),
        Err(error) => bail!("{what}: expected {expected}, found: {error}"),
        Ok(_) => bail!("{what}: expected {expected}, and it went well"),
    }
}

/// The one result of a call about one thing.
fn only<K, T>(results: Vec<(K, Result<T, ClientError>)>) -> Result<T, ClientError> {
    let Some((_, result)) = results.into_iter().next() else {
        return Err(ClientError::Invalid("the call has no result".to_owned()));
    };
    result
}
