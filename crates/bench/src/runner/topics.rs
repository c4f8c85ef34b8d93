//! The topics of a run: made before it, and gone after it.

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

/// Topics of one request.
const TOPICS_PER_REQUEST: usize = 500;
/// Partitions of one request: Kafka refuses requests that make more than 10,000 records of metadata.
const PARTITIONS_PER_REQUEST: u32 = 5000;
/// Making and deleting many partitions takes its time.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(2);
/// A server that is there answers sooner.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Our own server's config for what acked records survive.
const DURABILITY: &str = "durability";

/// Time between two looks at whether all topics are known.
const KNOWN_LOOK_EVERY: Duration = Duration::from_millis(50);

/// A server's log directory, and what lies there of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogDirFigures {
    /// Its path on the server.
    pub path: String,
    /// Partitions of the run's topics.
    pub partitions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How many partitions topics have.
pub(super) type Sizes = BTreeMap<String, u64>;

fn size_of(topic: &TopicInfo) -> u64 {
    topic.partitions.len() as u64
}

/// The topics of one run on one server.
pub(super) struct Topics {
    admin: Admin,
    /// What asks this server for the plan's durability.
    durability: Vec<(&'static str, String)>,
    made: Made,
}

/// What became of the requests that make topics.
///
/// Invariants: `names` holds what was made by requests that were answered; `asked` is one that may not be.
#[derive(Default)]
struct Made {
    names: Vec<String>,
    asked: Option<BoxFuture<'static, Answers>>,
}

/// What the server says of each topic that is to be made.
type Answers = Vec<(String, Result<(), ClientError>)>;

impl Made {
    /// Waits for the answer to what was asked last, if it is not there yet. Whoever calls may be dropped meanwhile: then
    /// the next caller goes on waiting, and no topic that was made is lost sight of.
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
    /// Connects to the server; nothing is made yet. Refuses more replicas than there are servers.
    pub(super) async fn connect(bootstrap: &str, plan: &Plan) -> Result<Self, RunError> {
        let (admin, durability) = connect(bootstrap, plan, CHANGE_TIMEOUT).await?;
        Ok(Self { admin, durability, made: Made::default() })
    }

    /// Makes the topics of a plan. Those that are there already are taken as they are, and stay; with too few partitions
    /// they are refused. However it ends, and if it is dropped, [`Self::delete`] deletes what was made. Answers how many
    /// partitions each topic has of those that are made, and of those that are only read.
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

    /// Finds out whether the server is there and would make the topics of a plan, and makes none. Of those that differ in
    /// nothing but their names one is asked for; of those that are there already each is looked at, and added to `sent_to` if the
    /// plan sends to it. What is in there holds records of the runs before by then.
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

    /// Gives a topic the partitions that one request could not make, unless it was there before.
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

    /// Waits until nobody would be told that there is no such topic.
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

    /// How the partitions of the topics lie in the servers' log directories, by path; empty where the server does not
    /// say.
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

    /// How durable acked records are, as the server says of one topic.
    pub(super) async fn durability(&self, plan: &Plan) -> Result<Option<TopicDurability>, RunError> {
        match plan.asked_topic() {
            Some(topic) => Ok(Some(TopicDurability::of(&self.admin, topic).await?)),
            None => Ok(None),
        }
    }

    /// Deletes what was made, also what was asked for and not answered yet. What cannot be deleted is logged: the figures
    /// are right all the same.
    pub(super) async fn delete(mut self) {
        self.delete_unless(|_| false).await;
    }

    /// The same, but for topics that are to stay for now. Whoever calls may be dropped meanwhile, and call again.
    pub(super) async fn delete_unless(&mut self, stays: impl Fn(&str) -> bool) {
        // What could not be made was told before, or nobody wants to know any more.
        drop(self.made.answer().await);
        let gone: Vec<_> = self.made.names.iter().filter(|name| !stays(name)).cloned().collect();
        for chunk in gone.chunks(TOPICS_PER_REQUEST) {
            for (topic, result) in self.admin.delete_topics(chunk).await {
                match result {
                    // As after an earlier call whose answer nobody waited for.
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

/// Those of these topics that are there.
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

/// Refuses topics that were there before and hold records, where what is sent is read back: the old records would count
/// as the run's, and be timed as if it had sent them.
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

/// Refuses consumers that would have more partitions together than their processes can keep. What a plan makes was counted
/// when its file was read. Answers the sizes of the topics that it does not make.
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

/// Connects to a server that has enough of itself for a plan and what it only reads, and learns how it is asked for durability.
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
        // The others come after it: see `grow`.
        partitions: Some(topic.partitions.min(PARTITIONS_PER_REQUEST).cast_signed()),
        replication: Some(topic.replication),
        ..NewTopic::named(&topic.name)
    };
    let durability = durability.iter().map(|(key, value)| (*key, value.as_str()));
    let own = topic.configs.iter().chain(durability);
    new.configs.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    new
}

/// The first of all topics that differ in nothing but their names.
fn of_each_shape(topics: &[TopicPlan]) -> Vec<TopicPlan> {
    let mut seen = HashSet::new();
    let shape = |topic: &TopicPlan| {
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        (topic.partitions, topic.replication, topic.configs.iter().map(own).collect::<Vec<_>>())
    };
    topics.iter().filter(|topic| seen.insert(shape(topic))).cloned().collect()
}

/// Topics in as few requests as may be.
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

/// Whether the server has our config. Asked for a topic that is not made.
async fn knows_durability(admin: &Admin) -> Result<bool, ClientError> {
    let mut topic = NewTopic { partitions: Some(1), ..NewTopic::named("riverrun-bench-durability") };
    topic.configs.insert(DURABILITY.to_owned(), "4".to_owned());
    match admin.create_topics(vec![topic], true).await.pop() {
        Some((_, Err(ClientError::Server { code: ErrorCode::INVALID_CONFIG, .. }))) | None => Ok(false),
        Some((_, Err(error))) => Err(error),
        Some((_, Ok(_))) => Ok(true),
    }
}

/// What asks for it: our server has levels, Kafka a count of records after which it syncs.
fn configs(durability: Durability, knows_levels: bool) -> Vec<(&'static str, String)> {
    let level = durability.level();
    match (knows_levels, level.syncs_locally()) {
        (true, _) => vec![(DURABILITY, level.to_string())],
        (false, true) => vec![("flush.messages", "1".to_owned()), ("flush.ms", "0".to_owned())],
        (false, false) => Vec::new(),
    }
}

/// Refuses a topic that was there before and has too few partitions: it is not for a run to change it.
fn check_size(topic: &TopicPlan, found: &TopicInfo) -> Result<(), RunError> {
    let (wanted, found) = (topic.partitions, found.partitions.len());
    if found < wanted as usize {
        return Err(RunError::Partitions { topic: topic.name.clone(), wanted, found });
    }
    Ok(())
}

/// Refuses a plan that reads what is neither there nor made for it: it would wait for records that nobody sends until its
/// time is over, and count none.
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

/// Whether the server knows the topic with all its partitions, and who leads them. A server of several threads answers
/// that a topic is made before all of them have heard of it.
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
    async fn what_was_made_after_somebody_stopped_waiting_is_known() {
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
    fn topics_that_differ_in_more_than_their_names_are_all_checked() {
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
    fn no_request_makes_more_than_a_server_takes() {
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
    fn a_topic_is_there_when_all_its_partitions_have_a_leader() {
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
        assert_eq!(error.to_string(), "topic t is there with 1 partition(s), and the run wants 2");
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
