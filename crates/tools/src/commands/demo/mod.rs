//! `riverrun demo`: the whole way of a record, shown and checked with real data.
//!
//! Has a server started, sends flights through Kafka's protocol over TCP to a topic keyed by carrier, reads them with a
//! group of three consumers at the same time, and checks that each row arrived once, unchanged and in order. The caller
//! owns the server; here it is an address. Rates are of the first part, which goes as fast as it can; latencies are of
//! the second, which goes at a fixed pace, measured from the time at which a row was *due*, so that a stall is not hidden
//! by waiting for it.

mod checks;
mod flights;
mod receiving;
mod report;
mod sending;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use riverrun_client::{Admin, ClusterOptions, Isolation, NewTopic, OffsetSpec, TopicPartition};
use riverrun_types::{DurabilityLevel, Offset};

use self::checks::{Check, Seen};
use self::flights::Flights;
use self::receiving::Readers;
use self::report::{Facts, Report};
use self::sending::DueTimes;
use crate::exit::{Exit, Failure};
use crate::runtime::block_on;
use crate::signals::StopSignals;
use crate::text::output::OutputArgs;

pub(super) const TOPIC: &str = "flights";
pub(super) const GROUP: &str = "demo";
/// Members of the group.
pub(super) const MEMBERS: usize = 3;
/// Rows in the excerpt that lies in the program.
const ROWS_MAX: u32 = 60_000;
/// Time that the group may take to come together, and to read on once everything was sent.
const PATIENCE: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  riverrun demo
  riverrun demo --rows 20000 --partitions 12
  riverrun demo --keep        leaves the data, for `riverrun log verify` and `riverrun serve --data`

Exit code 5 if a check fails.";

/// Flags of `demo`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// How many flights to send
    #[arg(long, value_name = "N", default_value_t = ROWS_MAX, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
    rows: u32,
    /// How many partitions the topic has
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: i32,
    /// Leave the server's data when it is over, and say where
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The server that the demo has for itself.
pub struct DemoServer {
    /// The server's address.
    pub bootstrap: String,
    /// The level at which it acks.
    pub durability: DurabilityLevel,
    /// The data directory, if it stays.
    pub kept: Option<PathBuf>,
    /// Stops it in order.
    pub stop: Box<dyn FnOnce() -> Result<(), Failure>>,
}

/// Does what the command line says, with the server that `start` starts. `start` is told whether its data is to stay.
pub fn run(args: &DemoArgs, start: impl FnOnce(bool) -> Result<DemoServer, Failure>) -> Result<(), Failure> {
    let flights = Arc::new(Flights::load(args.rows as usize)?);
    let begun = Instant::now();
    let server = start(args.keep)?;
    let facts = Facts {
        bootstrap: server.bootstrap,
        started_in: begun.elapsed(),
        durability: server.durability,
        kept: server.kept,
        partitions: args.partitions,
    };
    let mut report = Report::begin(args.output.json, facts)?;
    let outcome = block_on(Box::pin(async {
        let mut stop = StopSignals::new()?;
        tokio::select! {
            outcome = show(&mut report, &flights, args.partitions) => outcome,
            () = stop.next() => Err(Failure::new(Exit::Interrupted, "interrupted")),
        }
    }));
    let stopped = (server.stop)();
    outcome.and(stopped)?;
    report.end()
}

async fn show(report: &mut Report, flights: &Arc<Flights>, partitions: i32) -> Result<(), Failure> {
    let cluster = ClusterOptions::new(&report.facts().bootstrap);
    let admin = Admin::new(cluster.clone()).await?;
    create_topic(&admin, partitions).await?;
    let due_times = Arc::new(DueTimes::new(flights.len()));
    let readers = Readers::start(&cluster, flights, &due_times, partitions).await?;
    let sent = sending::send(&cluster, flights, &due_times, report).await?;
    let seen = readers.finish().await?;
    report.received(&sent, &seen)?;
    report.checks(checks(&admin, flights, &seen, sent.acked, partitions).await?)
}

async fn create_topic(admin: &Admin, partitions: i32) -> Result<(), Failure> {
    let topic = NewTopic { partitions: Some(partitions), ..NewTopic::named(TOPIC) };
    for (_, result) in admin.create_topics(vec![topic], false).await {
        result?;
    }
    Ok(())
}

async fn checks(
    admin: &Admin,
    flights: &Flights,
    seen: &[Seen],
    acked: usize,
    partitions: i32,
) -> Result<Vec<Check>, Failure> {
    let all: Vec<_> = (0..partitions).map(|index| TopicPartition::new(TOPIC, index)).collect();
    let wanted = all.iter().map(|partition| (partition.clone(), OffsetSpec::Latest)).collect();
    let mut ends = Vec::new();
    for (partition, found) in admin.list_offsets(wanted, Isolation::ReadUncommitted).await {
        ends.push((partition, found?.map_or(Offset::ZERO, |found| found.offset)));
    }
    let committed = admin.group_offsets(GROUP).await?;
    let lag: i64 = ends
        .iter()
        .map(|(partition, end)| end.0 - committed.get(partition).map_or(0, |committed| committed.offset.0))
        .sum();
    let held: i64 = ends.iter().map(|(_, end)| end.0).sum();
    let mut checks = vec![checks::acknowledged(flights.len(), acked), checks::held(flights.len(), held)];
    checks.extend(checks::arrivals(flights, seen));
    checks.push(checks::committed(lag));
    Ok(checks)
}
