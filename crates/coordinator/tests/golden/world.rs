//! The world of a script: a shard, a clock, topics, and the log that the shard's records went to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use riverrun_coordinator::{
    GroupConfig, GroupMemory, Now, OffsetsRecord, ReplyToken, RequestContext, Shard, Step, TopicMetadata as _,
};
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::leave_group_request::MemberIdentity;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use riverrun_protocol::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, SyncGroupRequest,
    consumer_protocol, consumer_protocol_assignment, consumer_protocol_subscription,
};
use riverrun_types::TopicId;

use crate::consumer;
use crate::show;
use crate::topics::Topics;

/// The part of a member id between the client's name and its number, in a script's shard.
const UUID_STEM: &str = "-00000000-0000-4000-8000-";

/// The state that a script acts on.
pub(crate) struct World {
    pub(crate) shard: Shard,
    pub(crate) config: GroupConfig,
    pub(crate) topics: Topics,
    /// Deleted topics that the shard was not told of yet.
    unheard: Vec<(String, TopicId)>,
    pub(crate) log: Vec<OffsetsRecord>,
    memory: Arc<GroupMemory>,
    pub(crate) now: i64,
    requests: u64,
}

/// The arguments of one command: `name=value` pairs, and those without a `=` or with a `:` before it.
pub(crate) struct Args<'a> {
    named: BTreeMap<&'a str, &'a str>,
    pub(crate) plain: Vec<&'a str>,
}

impl<'a> Args<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Self {
        let mut args = Self { named: BTreeMap::new(), plain: Vec::new() };
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if !name.contains(':') => {
                    args.named.insert(name, value);
                }
                _ => args.plain.push(word),
            }
        }
        args
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.named.get(name).copied()
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).map_or(default, |text| text.parse().ok().unwrap_or_else(|| panic!("{name}={text}")))
    }

    pub(crate) fn member(&self) -> String {
        self.text("member").map(long_id).unwrap_or_default()
    }

    pub(crate) fn instance(&self) -> Option<String> {
        self.text("instance").map(str::to_owned)
    }
}

/// `client#3` is the third id that the shard was offered, given to that client.
fn long_id(short: &str) -> String {
    match short.split_once('#') {
        Some((client, number)) => format!("{client}{UUID_STEM}{number:0>12}"),
        None => short.to_owned(),
    }
}

/// Member ids as scripts write them.
pub(crate) fn shorten(mut text: String) -> String {
    while let Some(at) = text.find(UUID_STEM) {
        let number_at = at + UUID_STEM.len();
        let number = text[number_at..number_at + 12].trim_start_matches('0').to_owned();
        text.replace_range(at..number_at + 12, &format!("#{number}"));
    }
    text
}

/// `topic:partition`, and the rest after the second colon or the equals sign.
fn place(text: &str) -> (String, i32, &str) {
    let (topic, rest) = text.split_once(':').unwrap();
    let end = rest.find('=').unwrap_or(rest.len());
    (topic.to_owned(), rest[..end].parse().unwrap(), rest[end..].trim_start_matches('='))
}

/// `topic/partition+topic/partition`, the partitions that a classic consumer claims to own.
fn owned(text: &str) -> Vec<consumer_protocol_subscription::TopicPartition<'_>> {
    let place = |text: &'_ str| -> (String, i32) {
        let (topic, partition) = text.split_once('/').unwrap();
        (topic.to_owned(), partition.parse().unwrap())
    };
    let places = text.split('+').map(place);
    places
        .map(|(topic, partition)| consumer_protocol_subscription::TopicPartition {
            topic: topic.into(),
            partitions: vec![partition],
        })
        .collect()
}

/// A leader's assignment: `topic/partition+topic/partition` for a consumer's leader, with `!` behind it if the
/// assignor adds data of its own; any other text as it is.
fn assignment_bytes(text: &str) -> Vec<u8> {
    if !text.contains('/') {
        return text.as_bytes().to_vec();
    }
    let (places, data) =
        text.split_once('!').map_or((text, None), |(places, _)| (places, Some(&b"data"[..])));
    let partitions = owned(places).into_iter();
    let assigned_partitions = partitions.map(|place| consumer_protocol_assignment::TopicPartition {
        topic: place.topic,
        partitions: place.partitions,
    });
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: assigned_partitions.collect(),
        user_data: data.map(Into::into),
    };
    consumer_protocol::encode_assignment(&assignment, 1).unwrap()
}

/// Long texts as scripts write them: in a word that ends with `x*9`, the `x` is there nine times.
fn repeated(command: &str) -> String {
    let word = |word: &str| -> Option<String> {
        let (text, times) = word.rsplit_once('*')?;
        let times = times.parse().ok()?;
        let (at, _) = text.char_indices().last()?;
        Some(text[..at].to_owned() + &text[at..].repeat(times))
    };
    let words = command.split_whitespace().map(|text| word(text).unwrap_or_else(|| text.to_owned()));
    words.collect::<Vec<_>>().join(" ")
}

impl World {
    pub(crate) fn new() -> Self {
        let config = GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
        let memory = GroupMemory::unbounded();
        let mut world = Self {
            shard: Shard::new(config.clone(), Arc::clone(&memory)),
            memory,
            config,
            topics: Topics::default(),
            unheard: Vec::new(),
            log: Vec::new(),
            now: 0,
            requests: 0,
        };
        assert_eq!(world.shard.on_loaded(Now::simulated(0)), Step::default());
        world
    }

    /// Runs one command and returns what it prints; `x*9` at the end of a word is nine `x`. Requests are numbered; a reply bears the number of its request.
    ///
    /// - `config option=value...`, `topic NAME PARTITIONS`, `drop-topic NAME`; with `late` the shard hears of it at `hear`
    /// - `advance MS`: lets time pass, acting on each deadline as it comes; `deadline`: when the next one is
    /// - `join GROUP as=CLIENT member= instance= type= protocols=a:topic+topic,b:topic owned=topic/partition+... session=
    ///   rebalance= v=`
    /// - `sync GROUP member= gen= assign=MEMBER:TEXT,MEMBER:topic/partition+... instance= type= protocol=`
    /// - `heartbeat GROUP member= gen= instance=`, `leave GROUP member= instance= v=`
    /// - `commit GROUP topic:partition=offset... member= gen= instance= metadata= retention= v=`
    /// - `fetch GROUP topic:partition... member= gen= v=`, `delete-offsets GROUP topic:partition...`
    /// - `describe GROUP v=`, `list states= types=`, `delete GROUP`
    /// - `consumer GROUP as=CLIENT member= epoch= topics= regex= owned=topic:partition+... assignor= instance= rack=
    ///   timeout= full= v=`: a KIP-848 heartbeat; `describe-consumer GROUP`
    /// - `reload`: a new shard that has only what the log holds; `memory BYTES`: the same with so much memory for all
    ///   groups; `used`: how many tenths of it are taken
    pub(crate) fn run(&mut self, command: &str) -> String {
        let command = repeated(command);
        let mut words = command.split_whitespace();
        let name = words.next().unwrap();
        let args = Args::parse(words);
        let printed = match name {
            "config" => self.configure(&args),
            "topic" => self.put_topic(&args),
            "drop-topic" => self.drop_topic(&args),
            "hear" => self.hear(),
            "advance" => self.advance(args.plain[0].parse().unwrap()),
            "deadline" => format!("{:?}\n", self.shard.next_deadline().map(|at| at.0)),
            "reload" => self.reload(),
            "memory" => {
                self.memory = GroupMemory::new(args.plain[0].parse().unwrap());
                self.reload()
            }
            "used" => format!("{} of 10\n", 10 * self.memory.held_bytes() / self.memory.max_bytes()),
            "describe" => show::described(&self.shard.describe_group(args.plain[0], args.number("v", 5))),
            "describe-consumer" => {
                consumer::described(&self.shard.consumer_group_describe(args.plain[0], &self.topics))
            }
            "list" => self.list(&args),
            "delete" => self.delete(args.plain[0]),
            "fetch" => self.fetch(&args),
            _ => self.request(name, &args),
        };
        shorten(printed)
    }

    fn configure(&mut self, args: &Args<'_>) -> String {
        let config = &mut self.config;
        for name in args.named.keys() {
            match *name {
                "delay" => config.initial_rebalance_delay_ms = args.number(name, 0),
                "max-size" => config.max_size = args.number(name, 0),
                "groups-max" => config.groups_max = args.number(name, 0),
                "offsets-max" => config.group_offsets_max = args.number(name, 0),
                "metadata-max" => config.offset_metadata_max_bytes = args.number(name, 0),
                "consumer-max-size" => config.consumer_max_size = args.number(name, 0),
                "policy" => config.consumer_migration_policy = args.text(name).unwrap().parse().unwrap(),
                "assignment-interval" => config.consumer_assignment_interval_ms = args.number(name, 0),
                "group-bytes" => config.group_metadata_max_bytes = args.number(name, 0),
                "retention" => config.offsets_retention_ms = args.number(name, 0),
                "check" => config.offsets_retention_check_interval_ms = args.number(name, 0),
                other => panic!("no option {other}"),
            }
        }
        self.shard.set_config(config.clone());
        String::new()
    }

    fn put_topic(&mut self, args: &Args<'_>) -> String {
        self.topics.put(args.plain[0], args.plain[1].parse().unwrap());
        String::new()
    }

    fn drop_topic(&mut self, args: &Args<'_>) -> String {
        let name = args.plain[0];
        self.unheard.push((name.to_owned(), self.topics.topic_id(name).unwrap()));
        self.topics.remove(name);
        if args.plain.contains(&"late") { String::new() } else { self.hear() }
    }

    fn hear(&mut self) -> String {
        let unheard = std::mem::take(&mut self.unheard);
        let deleted: Vec<_> = unheard.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let step = self.shard.on_topics_deleted(&deleted, None).step;
        self.took(step)
    }

    /// Lets time pass.
    fn advance(&mut self, ms: i64) -> String {
        let until = self.now + ms;
        let mut printed = String::new();
        while let Some(at) = self.shard.next_deadline()
            && at.0 <= until
        {
            self.now = self.now.max(at.0);
            let step = self.shard.expire(Now::simulated(self.now), &self.topics);
            let shown = self.took(step);
            if !shown.is_empty() {
                write!(printed, "at {}\n{shown}", self.now).unwrap();
            }
        }
        self.now = until;
        printed
    }

    fn reload(&mut self) -> String {
        self.shard = Shard::new(self.config.clone(), Arc::clone(&self.memory));
        for record in &self.log {
            self.shard.replay(&record.key, record.value.as_deref()).unwrap();
        }
        let step = self.shard.on_loaded(Now::simulated(self.now));
        self.took(step)
    }

    fn list(&self, args: &Args<'_>) -> String {
        let names =
            |name| args.text(name).into_iter().flat_map(|text| text.split(',')).map(Into::into).collect();
        let request = ListGroupsRequest { states_filter: names("states"), types_filter: names("types") };
        self.shard.list_groups(&request, None).0.iter().map(show::listed).collect()
    }

    fn delete(&mut self, group: &str) -> String {
        let (result, records) = self.shard.delete_group(group);
        let shown = self.took(Step { records, replies: Vec::new() });
        format!("{shown}delete {group}: {}\n", show::error(result.error_code))
    }

    fn fetch(&self, args: &Args<'_>) -> String {
        let v: i16 = args.number("v", 9);
        let topic = |text: &&str| {
            let (name, partition, _) = place(text);
            OffsetFetchRequestTopics {
                topic_id: self.id_of(&name, v),
                name: name.into(),
                partition_indexes: vec![partition],
            }
        };
        let topics: Vec<_> = args.plain[1..].iter().map(topic).collect();
        let request = OffsetFetchRequestGroup {
            group_id: args.plain[0].into(),
            member_id: args.text("member").map(|id| long_id(id).into()),
            member_epoch: args.number("gen", -1),
            topics: (!topics.is_empty()).then_some(topics),
        };
        show::fetched(&self.shard.offset_fetch(&request, v, &self.topics))
    }

    /// The id by which a request of this version names a topic. `nowhere` has one that no topic has.
    fn id_of(&self, name: &str, v: i16) -> TopicId {
        if v < 10 { TopicId::ZERO } else { self.topics.topic_id(name).unwrap_or(TopicId([0xee; 16])) }
    }

    /// Sends a request that may change something.
    fn request(&mut self, name: &str, args: &Args<'_>) -> String {
        self.requests += 1;
        // The id's last digits are hexadecimal: these read as the request's number.
        let digits = u64::from_str_radix(&self.requests.to_string(), 16).unwrap();
        let mut random = [0; 16];
        random[8..].copy_from_slice(&digits.to_be_bytes());
        let default_version = match name {
            "join" | "commit" => 9,
            "leave" => 5,
            "heartbeat" | "sync" => 4,
            _ => 0,
        };
        let context = RequestContext {
            now: Now::simulated(self.now),
            token: ReplyToken(self.requests),
            client_id: args.text("as").unwrap_or("client"),
            client_host: "/127.0.0.1",
            api_version: args.number("v", default_version),
            random,
        };
        let step = match name {
            "join" => self.join(&context, args),
            "sync" => self.sync(&context, args),
            "heartbeat" => self.heartbeat(&context, args),
            "leave" => self.leave(&context, args),
            "commit" => self.commit(&context, args),
            "delete-offsets" => self.delete_offsets(&context, args),
            "consumer" => self.consumer(&context, args),
            other => panic!("no command {other}"),
        };
        let answered = step.replies.iter().any(|reply| reply.token == context.token);
        let mut shown = self.took(step);
        if !answered {
            writeln!(shown, "{}: parked", self.requests).unwrap();
        }
        shown
    }

    fn join(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let protocol = |text: &str| {
            let (name, topics) = text.split_once(':').unwrap_or((text, ""));
            let topics = topics.split('+').filter(|topic| !topic.is_empty()).map(Into::into).collect();
            let owned_partitions = args.text("owned").map(owned).unwrap_or_default();
            let subscription =
                ConsumerProtocolSubscription { topics, owned_partitions, ..Default::default() };
            let metadata = consumer_protocol::encode_subscription(&subscription, 1).unwrap();
            JoinGroupRequestProtocol { name: name.to_owned().into(), metadata: metadata.into() }
        };
        let protocols = args.text("protocols").unwrap_or("range:t");
        let request = JoinGroupRequest {
            group_id: args.plain.first().copied().unwrap_or_default().into(),
            session_timeout_ms: args.number("session", 10_000),
            rebalance_timeout_ms: args.number("rebalance", 60_000),
            member_id: args.member().into(),
            group_instance_id: args.instance().map(Into::into),
            protocol_type: args.text("type").unwrap_or("consumer").into(),
            protocols: protocols.split(',').filter(|text| *text != "none").map(protocol).collect(),
            reason: None,
        };
        self.shard.join_group(context, &request, &self.topics)
    }

    fn sync(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let assignment = |text: &str| {
            let (member, assignment) = text.split_once(':').unwrap();
            SyncGroupRequestAssignment {
                member_id: long_id(member).into(),
                assignment: assignment_bytes(assignment).into(),
            }
        };
        let request = SyncGroupRequest {
            group_id: args.plain.first().copied().unwrap_or_default().into(),
            generation_id: args.number("gen", 1),
            member_id: args.member().into(),
            group_instance_id: args.instance().map(Into::into),
            protocol_type: args.text("type").map(Into::into),
            protocol_name: args.text("protocol").map(Into::into),
            assignments: args
                .text("assign")
                .into_iter()
                .flat_map(|text| text.split(','))
                .map(assignment)
                .collect(),
        };
        self.shard.sync_group(context, &request, &self.topics)
    }

    fn heartbeat(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let request = HeartbeatRequest {
            group_id: args.plain.first().copied().unwrap_or_default().into(),
            generation_id: args.number("gen", 1),
            member_id: args.member().into(),
            group_instance_id: args.instance().map(Into::into),
        };
        self.shard.heartbeat(context, &request, &self.topics, true)
    }

    fn leave(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let identity = |member: &str| MemberIdentity {
            member_id: long_id(member).into(),
            group_instance_id: args.instance().map(Into::into),
            reason: None,
        };
        let members = args.text("member").unwrap_or_default();
        let request = LeaveGroupRequest {
            group_id: args.plain.first().copied().unwrap_or_default().into(),
            member_id: long_id(members).into(),
            members: members.split(',').map(identity).collect(),
        };
        self.shard.leave_group(context, &request, &self.topics)
    }

    fn commit(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let topic = |text: &&str| {
            let (name, partition, offset) = place(text);
            OffsetCommitRequestTopic {
                topic_id: self.id_of(&name, context.api_version),
                name: name.into(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: partition,
                    committed_offset: offset.parse().unwrap(),
                    committed_leader_epoch: args.number("epoch", -1),
                    committed_metadata: args.text("metadata").map(Into::into),
                }],
            }
        };
        let request = OffsetCommitRequest {
            group_id: args.plain[0].into(),
            generation_id_or_member_epoch: args.number("gen", -1),
            member_id: args.member().into(),
            group_instance_id: args.instance().map(Into::into),
            retention_time_ms: args.number("retention", -1),
            topics: args.plain[1..].iter().map(topic).collect(),
        };
        self.shard.offset_commit(context, &request, &self.topics)
    }

    fn delete_offsets(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let topic = |text: &&str| {
            let (name, partition_index, _) = place(text);
            OffsetDeleteRequestTopic {
                name: name.into(),
                partitions: vec![OffsetDeleteRequestPartition { partition_index }],
            }
        };
        let request = OffsetDeleteRequest {
            group_id: args.plain[0].into(),
            topics: args.plain[1..].iter().map(topic).collect(),
        };
        self.shard.offset_delete(context, &request, &self.topics)
    }

    fn consumer(&mut self, context: &RequestContext<'_>, args: &Args<'_>) -> Step {
        let request = consumer::request(args, &self.topics);
        self.shard.consumer_group_heartbeat(context, &request, &self.topics)
    }

    /// Appends a step's records and shows the output.
    fn took(&mut self, step: Step) -> String {
        let mut shown = String::new();
        for record in &step.records {
            writeln!(shown, "log {}", show::record(record)).unwrap();
        }
        for reply in &step.replies {
            writeln!(shown, "{}: {}", reply.token.0, show::reply(&reply.body)).unwrap();
        }
        self.log.extend(step.records);
        shown
    }
}
