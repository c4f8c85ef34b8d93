//! The topics of a run: created before it, and deleted after it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use riverrun_client::{
    Admin, ClientError, ClusterOptions, ErrorCode, Isolation, LogDir, NewTopic, OffsetSpec, TopicInfo,
    TopicPartition,
};
use riverrun_types::{ErrorKind, Offset};
use serde::Serialize;

use super::error::RunError;
use crate::environment::TopicDurability;
use crate::plan::{Durability, PLACES_MAX, Plan, TopicPlan};

/// Most topics of one request.
const TOPICS_PER_REQUEST: usize = 500;
/// Most partitions of one request: Kafka refuses requests that make more than 10,000 records of metadata.
const PARTITIONS_PER_REQUEST: u32 = 5000;
/// Time for creating or deleting many partitions.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(2);
/// A server that lives answers sooner.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Config of our own server for the durability level of a topic.
const DURABILITY: &str = "durability";

/// Time between two looks at whether all topics are known.
const KNOWN_LOOK_EVERY: Duration = Duration::from_millis(50);

/// A server's log directory, and a run's share of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogDirFigures {
    /// Its path on the server.
    pub path: String,
    /// Partitions of the run's topics.
    pub partitions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Number of partitions of each topic.
pub(super) type Sizes = BTreeMap<String, u64>;

fn size_of(topic: &TopicInfo) -> u64 {
    topic.partitions.len() as u64
}

/// The topics of one run on one server.
pub(super) struct Topics {
    admin: Admin,
    /// Configs that ask this server for the plan's durability.
    durability: Vec<(&'static str, String)>,
    made: Made,
}

/// Topics created by this run.
///
/// Invariants: `names` has the topics of requests that were answered; `asked` is a request that may not be answered
/// yet.
#[derive(Default)]
struct Made {
    names: Vec<String>,
    asked: Option<BoxFuture<'static, Answers>>,
}

/// The server's answer for each topic to create.
type Answers = Vec<(String, Result<(), ClientError>)>;

impl Made {
    /// Waits for the answer to the last request, if it is missing. May be dropped meanwhile: then the next call goes on
    /// waiting, and no created topic is lost sight of.
    async fn answer(&mut self) -> Result<(), RunError> {
        let Some(asked) = &mut self.asked else { return Ok(()) };
        let answers = asked.await;
        self.asked = None;
        let mut first = None;
        for (name, result) in answers {
            match result {
                Ok(()) => self.names.push(name),
                Err(error) if is_already_there(&error) => {}
                Err(error) => drop(first.get_or_insert((name, error))),
            }
        }
        match first {
            Some((topic, error)) => Err(RunError::Topic { topic, error }),
            None => Ok(()),
        }
    }
}

impl Topics {
    /// Connects to the server; creates nothing yet. Refuses more replicas than there are servers.
    pub(super) async fn connect(bootstrap: &str, plan: &Plan) -> Result<Self, RunError> {
        let (admin, durability) = connect(bootstrap, plan, CHANGE_TIMEOUT).await?;
        Ok(Self { admin, durability, made: Made::default() })
    }

    /// Creates the topics of a plan. Topics that exist already are used unchanged, and stay; too few partitions are an
    /// error. [`Self::delete`] deletes the created ones, also if this fails or is dropped. Returns the number of
    /// partitions of the topics that are created or only read.
    pub(super) async fn make(&mut self, plan: &Plan) -> Result<Sizes, RunError> {
        let mut sizes = check_assigned(&self.admin, plan).await?;
        for chunk in requests(&plan.topics) {
            let topics: Vec<_> = chunk.iter().map(|topic| new_topic(topic, &self.durability)).collect();
            let admin = self.admin.clone();
            let create = async move {
                let answers = admin.create_topics(topics, false).await;
                answers.into_iter().map(|(name, result)| (name, result.map(drop))).collect::<Vec<_>>()
            };
            self.made.asked = Some(create.boxed());
            self.made.answer().await?;
        }
        for topic in &plan.topics {
            self.grow(topic).await?;
        }
        self.wait_until_known(plan).await?;
        let own: HashSet<_> = self.made.names.iter().map(String::as_str).collect();
        let old = find(&self.admin, names_of(&plan.topics).filter(|name| !own.contains(name))).await?;
        check_empty(&self.admin, plan, &old).await?;
        let size = |topic: &TopicPlan| old.get(&topic.name).map_or(topic.partitions.into(), size_of);
        sizes.extend(plan.topics.iter().map(|topic| (topic.name.clone(), size(topic))));
        Ok(sizes)
    }

    /// Checks that the server lives and would create the topics of a plan, and creates none. Of topics that differ only
    /// in their names one is checked. Each topic that exists already is looked at, and added to `sent_to` if the plan
    /// sends to it: from then on it holds records of this run.
    pub(super) async fn check(
        bootstrap: &str,
        plan: &Plan,
        sent_to: &mut BTreeSet<String>,
    ) -> Result<(), RunError> {
        let (admin, durability) = connect(bootstrap, plan, CHECK_TIMEOUT).await?;
        check_assigned(&admin, plan).await?;
        for chunk in requests(&of_each_shape(&plan.topics)) {
            let topics = chunk.iter().map(|topic| new_topic(topic, &durability)).collect();
            for (topic, result) in admin.create_topics(topics, true).await {
                match result {
                    Err(error) if !is_already_there(&error) => return Err(RunError::Topic { topic, error }),
                    _ => {}
                }
            }
        }
        let old = find(&admin, names_of(&plan.topics)).await?;
        for topic in &plan.topics {
            old.get(&topic.name).map_or(Ok(()), |found| check_size(topic, found))?;
        }
        check_empty(&admin, plan, &old).await?;
        if let Some(topic) = old.keys().find(|name| plan.reads_back() && sent_to.contains(*name)) {
            return Err(RunError::SentToBefore { topic: topic.clone() });
        }
        let sent = plan.sent_to();
        sent_to.extend(old.into_keys().filter(|name| sent.contains(name.as_str())));
        Ok(())
    }

    /// Gives a created topic the partitions that did not fit into one request. A topic that existed before stays as it
    /// is.
    async fn grow(&self, topic: &TopicPlan) -> Result<(), RunError> {
        let mut count = PARTITIONS_PER_REQUEST;
        while count < topic.partitions && self.made.names.contains(&topic.name) {
            count = count.saturating_add(PARTITIONS_PER_REQUEST).min(topic.partitions);
            let totals = [(topic.name.clone(), count.cast_signed())].into();
            for (topic, result) in self.admin.create_partitions(&totals, false).await {
                result.map_err(|error| RunError::Topic { topic, error })?;
            }
        }
        Ok(())
    }

    /// Waits until every server knows the topics.
    async fn wait_until_known(&self, plan: &Plan) -> Result<(), RunError> {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        let own: HashSet<_> = self.made.names.iter().collect();
        for chunk in plan.topics.chunks(TOPICS_PER_REQUEST) {
            let names: Vec<_> = chunk.iter().map(|topic| topic.name.clone()).collect();
            loop {
                let mut missing = None;
                let found = self.admin.describe_topics(&names).await;
                for ((name, found), topic) in found.into_iter().zip(chunk) {
                    if let Ok(found) = &found
                        && !own.contains(&name)
                    {
                        check_size(topic, found)?;
                    }
                    if !is_there(found, topic.partitions)? {
                        missing = Some(name);
                    }
                }
                let Some(topic) = missing else { break };
                if Instant::now() >= deadline {
                    let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                    return Err(RunError::Topic {
                        topic,
                        error: ClientError::Server { code, message: None },
                    });
                }
                tokio::time::sleep(KNOWN_LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// Distribution of the topics' partitions over the servers' log directories, by path; empty if the server does not
    /// tell.
    pub(super) async fn log_dirs(&self, plan: &Plan) -> Vec<LogDirFigures> {
        let ours: HashSet<_> = plan.topics.iter().map(|topic| topic.name.as_str()).collect();
        let dirs = self.admin.describe_log_dirs(None).await.unwrap_or_default();
        let figures = |dir: LogDir| {
            let replicas = dir.replicas.iter().filter(|one| ours.contains(&*one.partition.topic));
            let sizes: Vec<_> = replicas.map(|replica| replica.size_bytes.cast_unsigned()).collect();
            LogDirFigures { path: dir.path, partitions: sizes.len() as u64, bytes: sizes.iter().sum() }
        };
        let mut all: Vec<_> =
            dirs.into_iter().flat_map(|(_, dirs)| dirs.unwrap_or_default()).map(figures).collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
    }

    /// Durability of acked records, as the server describes one topic.
    pub(super) async fn durability(&self, plan: &Plan) -> Result<Option<TopicDurability>, RunError> {
        match plan.asked_topic() {
            Some(topic) => Ok(Some(TopicDurability::of(&self.admin, topic).await?)),
            None => Ok(None),
        }
    }

    /// Deletes the topics that were created, those of an unanswered request included. A failure is logged only: the
    /// figures are right all the same.
    pub(super) async fn delete(mut self) {
        self.delete_unless(|_| false).await;
    }

    /// Deletes the topics for which `stays` is false. May be dropped meanwhile, and called again.
    pub(super) async fn delete_unless(&mut self, stays: impl Fn(&str) -> bool) {
        // An error of the creation was reported before, or its caller was dropped.
        drop(self.made.answer().await);
        let gone: Vec<_> = self.made.names.iter().filter(|name| !stays(name)).cloned().collect();
        for chunk in gone.chunks(TOPICS_PER_REQUEST) {
            for (topic, result) in self.admin.delete_topics(chunk).await {
                match result {
                    // Deleted by an earlier call whose answer was not awaited.
                    Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {}
                    Err(error) => tracing::warn!(%error, topic, "a topic of the run stays behind"),
                    Ok(()) => {}
                }
            }
            self.made.names.retain(|name| !chunk.contains(name));
        }
    }

    /// Whether there is nothing to delete.
    pub(super) fn is_empty(&self) -> bool {
        self.made.names.is_empty() && self.made.asked.is_none()
    }
}

fn is_already_there(error: &ClientError) -> bool {
    error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS)
}

fn names_of(topics: &[TopicPlan]) -> impl Iterator<Item = &str> {
    topics.iter().map(|topic| topic.name.as_str())
}

/// Those of these topics that exist.
async fn find<'a>(
    admin: &Admin,
    names: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<String, TopicInfo>, RunError> {
    let names: Vec<_> = names.map(str::to_owned).collect();
    let mut there = BTreeMap::new();
    for chunk in names.chunks(TOPICS_PER_REQUEST) {
        for (topic, found) in admin.describe_topics(chunk).await {
            match found {
                Ok(found) => drop(there.insert(topic, found)),
                Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {}
                Err(error) => return Err(RunError::Topic { topic, error }),
            }
        }
    }
    Ok(there)
}

/// Refuses topics that existed before and hold records, if the run reads what it sends: the old records would count as
/// the run's, with latencies as if it had sent them.
async fn check_empty(admin: &Admin, plan: &Plan, old: &BTreeMap<String, TopicInfo>) -> Result<(), RunError> {
    if !plan.reads_back() {
        return Ok(());
    }
    let of_topic = |(name, topic): (&String, &TopicInfo)| {
        let partition = |index| TopicPartition::new(name.as_str(), index);
        topic.partitions.iter().map(|one| partition(one.index)).collect::<Vec<_>>()
    };
    let partitions: Vec<_> = old.iter().flat_map(of_topic).collect();
    let begin = offsets(admin, &partitions, OffsetSpec::Earliest).await?;
    let end = offsets(admin, &partitions, OffsetSpec::Latest).await?;
    match partitions.iter().find(|partition| begin.get(*partition) != end.get(*partition)) {
        Some(partition) => Err(RunError::NotEmpty { topic: partition.topic.to_string() }),
        None => Ok(()),
    }
}

async fn offsets(
    admin: &Admin,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> Result<HashMap<TopicPartition, Option<Offset>>, RunError> {
    let wanted = partitions.iter().map(|partition| (partition.clone(), spec)).collect();
    let answers = admin.list_offsets(wanted, Isolation::ReadUncommitted).await;
    let found = answers.into_iter().map(|(partition, answer)| match answer {
        Ok(found) => Ok((partition, found.map(|found| found.offset))),
        Err(error) => Err(RunError::Topic { topic: partition.topic.to_string(), error }),
    });
    found.collect()
}

/// Refuses consumers that together would have more partitions than their processes can keep. The partitions of the
/// plan's own topics were counted when its file was read. Returns the sizes of the other topics.
async fn check_assigned(admin: &Admin, plan: &Plan) -> Result<Sizes, RunError> {
    let found = find(admin, plan.found_topics().into_iter()).await?;
    let found: Sizes = found.into_iter().map(|(name, topic)| (name, size_of(&topic))).collect();
    if found.is_empty() {
        return Ok(found);
    }
    let made: HashMap<_, _> =
        plan.topics.iter().map(|topic| (topic.name.as_str(), u64::from(topic.partitions))).collect();
    let size = |name: &str| made.get(name).or_else(|| found.get(name)).copied().unwrap_or_default();
    let partitions = plan.assigned(size);
    if partitions > PLACES_MAX { Err(RunError::Assigned { partitions }) } else { Ok(found) }
}

/// Connects to a server that has enough replicas and all topics that are only read, and finds the configs that ask it
/// for durability.
async fn connect(
    bootstrap: &str,
    plan: &Plan,
    request_timeout: Duration,
) -> Result<(Admin, Vec<(&'static str, String)>), RunError> {
    let options = ClusterOptions { request_timeout, ..ClusterOptions::new(bootstrap) };
    let admin = Admin::new(options).await?;
    let (wanted, servers) = (plan.replication(), admin.cluster().nodes().len());
    if !plan.topics.is_empty() && usize::try_from(wanted).is_ok_and(|wanted| wanted > servers) {
        return Err(RunError::Replication { wanted, servers });
    }
    check_read(&admin, plan).await?;
    let durability = match plan.durability {
        Some(durability) => configs(durability, knows_durability(&admin).await?),
        None => Vec::new(),
    };
    Ok((admin, durability))
}

fn new_topic(topic: &TopicPlan, durability: &[(&'static str, String)]) -> NewTopic {
    let mut new = NewTopic {
        // `grow` adds the other partitions.
        partitions: Some(topic.partitions.min(PARTITIONS_PER_REQUEST).cast_signed()),
        replication: Some(topic.replication),
        ..NewTopic::named(&topic.name)
    };
    let durability = durability.iter().map(|(key, value)| (*key, value.as_str()));
    let own = topic.configs.iter().chain(durability);
    new.configs.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    new
}

/// The first topic of each set of topics that differ only in their names.
fn of_each_shape(topics: &[TopicPlan]) -> Vec<TopicPlan> {
    let mut seen = HashSet::new();
    let shape = |topic: &TopicPlan| {
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        (topic.partitions, topic.replication, topic.configs.iter().map(own).collect::<Vec<_>>())
    };
    topics.iter().filter(|topic| seen.insert(shape(topic))).cloned().collect()
}

/// Topics in as few requests as possible.
fn requests(topics: &[TopicPlan]) -> Vec<&[TopicPlan]> {
    let mut requests = Vec::new();
    let mut rest = topics;
    while !rest.is_empty() {
        let mut partitions = 0_u32;
        let fits = |topic: &&TopicPlan| {
            partitions = partitions.saturating_add(topic.partitions.min(PARTITIONS_PER_REQUEST));
            partitions <= PARTITIONS_PER_REQUEST
        };
        let count = rest.iter().take(TOPICS_PER_REQUEST).take_while(fits).count().max(1);
        let (request, later) = rest.split_at(count);
        requests.push(request);
        rest = later;
    }
    requests
}

/// Whether the server has our durability config. Asks with a topic that is not created.
async fn knows_durability(admin: &Admin) -> Result<bool, ClientError> {
    let mut topic = NewTopic { partitions: Some(1), ..NewTopic::named("riverrun-bench-durability") };
    topic.configs.insert(DURABILITY.to_owned(), "4".to_owned());
    match admin.create_topics(vec![topic], true).await.pop() {
        Some((_, Err(ClientError::Server { code: ErrorCode::INVALID_CONFIG, .. }))) | None => Ok(false),
        Some((_, Err(error))) => Err(error),
        Some((_, Ok(_))) => Ok(true),
    }
}

/// The configs of a durability: our server has levels, Kafka a count of records between two syncs.
fn configs(durability: Durability, knows_levels: bool) -> Vec<(&'static str, String)> {
    let level = durability.level();
    match (knows_levels, level.syncs_locally()) {
        (true, _) => vec![(DURABILITY, level.to_string())],
        (false, true) => vec![("flush.messages", "1".to_owned()), ("flush.ms", "0".to_owned())],
        (false, false) => Vec::new(),
    }
}

/// Refuses a topic that existed before and has too few partitions: a run does not change it.
fn check_size(topic: &TopicPlan, found: &TopicInfo) -> Result<(), RunError> {
    let (wanted, found) = (topic.partitions, found.partitions.len());
    if found < wanted as usize {
        return Err(RunError::Partitions { topic: topic.name.clone(), wanted, found });
    }
    Ok(())
}

/// Refuses a plan that reads topics that neither exist nor are created for it: it would wait until its end for records
/// that nobody sends, and count none.
async fn check_read(admin: &Admin, plan: &Plan) -> Result<(), RunError> {
    let made: HashMap<_, _> =
        plan.topics.iter().map(|topic| (topic.name.as_str(), topic.partitions as usize)).collect();
    let mut read = plan.read_topics();
    read.retain(|topic, wanted| made.get(topic).is_none_or(|count| count < wanted));
    let found = find(admin, read.keys().copied()).await?;
    let count =
        |topic: &str| found.get(topic).map(|found| found.partitions.len()).or(made.get(topic).copied());
    let is_missing = |topic: &&str| count(topic).is_none();
    let missing: Vec<_> = read.keys().copied().filter(is_missing).map(str::to_owned).collect();
    if !missing.is_empty() {
        return Err(RunError::Missing { topics: missing });
    }
    for (topic, wanted) in read {
        let found = count(topic).unwrap_or_default();
        if found < wanted {
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            return Err(RunError::Partitions { topic: topic.to_owned(), wanted, found });
        }
    }
    Ok(())
}

/// Whether the server knows the topic with all its partitions and their leaders. A server of several threads may
/// confirm a topic before all of them know it.
fn is_there(found: Result<TopicInfo, ClientError>, partitions: u32) -> Result<bool, ClientError> {
    match found {
        Ok(topic) => Ok(topic.partitions.len() >= partitions as usize
            && topic.partitions.iter().all(|partition| partition.leader.is_some())),
        Err(error) if error.kind() == ErrorKind::Retry => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use riverrun_client::{NodeId, PartitionInfo};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn topic_created_after_a_dropped_wait_is_known() {
        let refused = |code| Err(ClientError::Server { code, message: None });
        let answer = async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let answers = [
                ("made", Ok(())),
                ("there", refused(ErrorCode::TOPIC_ALREADY_EXISTS)),
                ("wrong", refused(ErrorCode::INVALID_CONFIG)),
            ];
            Vec::from(answers.map(|(name, result)| (name.to_owned(), result)))
        };
        let mut made = Made { asked: Some(answer.boxed()), ..Made::default() };
        let waited = tokio::time::timeout(Duration::from_secs(1), made.answer()).await;
        assert!(waited.is_err() && made.names.is_empty());
        let error = made.answer().await.expect_err("one of them is wrong");
        assert!(matches!(&error, RunError::Topic { topic, .. } if topic == "wrong"), "{error}");
        assert_eq!(made.names, ["made"], "the other is not ours to delete");
        made.answer().await.expect("nothing is left to be answered");
    }

    #[test]
    fn topics_that_differ_are_all_checked() {
        let topic = |name: &str, partitions, replication, configs: &str| TopicPlan {
            name: name.to_owned(),
            partitions,
            replication,
            configs: crate::properties::Properties::parse(configs),
        };
        let topics = [
            topic("a", 1, 1, "retention.ms=1"),
            topic("b", 1, 1, "retention.ms=1"),
            topic("c", 1, 1, "retention.ms=never"),
            topic("d", 2, 1, "retention.ms=1"),
            topic("e", 1, 2, "retention.ms=1"),
            topic("f", 1, 1, ""),
            topic("g", 1, 1, ""),
        ];
        let names: Vec<_> = of_each_shape(&topics).into_iter().map(|topic| topic.name).collect();
        assert_eq!(names, ["a", "c", "d", "e", "f"]);
    }

    #[test]
    fn requests_stay_below_the_server_s_limits() {
        let topic = |partitions| TopicPlan {
            name: String::new(),
            partitions,
            replication: 1,
            configs: crate::properties::Properties::default(),
        };
        let sizes = |counts: &[u32]| {
            let topics: Vec<_> = counts.iter().map(|count| topic(*count)).collect();
            requests(&topics).iter().map(|request| request.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[1; 1200]), [500, 500, 200]);
        assert_eq!(sizes(&[10_000, 2000, 3000, 1]), [1, 2, 1]);
        assert_eq!(sizes(&[]), [0; 0]);
    }

    #[test]
    fn topic_is_known_when_all_partitions_have_leaders() {
        let partition = |leader| PartitionInfo {
            index: 0,
            leader,
            leader_epoch: riverrun_types::LeaderEpoch(0),
            replicas: Vec::new(),
            in_sync: Vec::new(),
            unusable: Vec::new(),
        };
        let topic = |leaders: &[Option<NodeId>]| TopicInfo {
            name: "t".to_owned(),
            id: riverrun_types::TopicId([0; 16]),
            internal: false,
            partitions: leaders.iter().map(|leader| partition(*leader)).collect(),
        };
        let one = Some(NodeId(1));
        let unknown = |code| Err(ClientError::Server { code, message: None });
        let wanted = TopicPlan {
            name: "t".to_owned(),
            partitions: 2,
            replication: 1,
            configs: crate::properties::Properties::default(),
        };
        let error = check_size(&wanted, &topic(&[one])).expect_err("one is too few");
        assert_eq!(error.to_string(), "topic t has 1 partition(s), and the run needs 2");
        assert!(check_size(&wanted, &topic(&[one, one, one])).is_ok(), "more are used as far as wanted");
        for (found, expected) in [
            (Ok(topic(&[one, one])), true),
            (Ok(topic(&[one])), false),
            (Ok(topic(&[one, None])), false),
            (unknown(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), false),
        ] {
            assert_eq!(is_there(found, 2).expect("no error"), expected);
        }
        assert!(is_there(unknown(ErrorCode::TOPIC_AUTHORIZATION_FAILED), 2).is_err());
    }
}
