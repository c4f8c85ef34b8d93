//! Bounds of requests: the one table of the lists of all requests, how long they may be, and why.
//!
//! - A request of few elements is worked on where it arrives.
//! - One with more elements, or with a large answer, is worked on aside, in its turn, and the memory of its elements is
//!   charged.
//! - One beyond its bound closes its connection, as one that does not decode does: its client library has gone wrong.
//!
//! A name is answered once, however often a request repeats it; so the topics, partitions and groups that the server
//! holds bound an answer.

use std::collections::HashSet;
use std::hash::Hash;

use riverrun_protocol::{ApiKey, ErrorCode};

use crate::broker::Broker;

/// Topics that one `CreateTopics`, or one request that makes topics by naming them, makes at most, as in Kafka's batches of
/// a controller: each is answered with its configuration.
pub(super) const CREATED_TOPICS_MAX: usize = 10_000;
/// Groups that one request describes, or fetches the offsets of, at most.
pub(super) const GROUPS_MAX: usize = 100_000;

/// Elements, over all lists, of a request that is worked on at once: some microsecond each at the most.
pub(crate) const SMALL_ELEMENTS_MAX: usize = 200;
/// Bytes of such a request: its names are checked byte by byte. Records are not.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an answer that is made at once.
pub(crate) const SMALL_ANSWER_BYTES_MAX: usize = 128 * 1024;

/// Elements that name partitions: a hundred thousand, each with one thing more, and their topics.
const PARTITIONS: usize = 250_000;
/// Elements that name topics, groups, or members of a group.
const NAMES: usize = 100_000;
/// Elements of a list of a few words.
const WORDS: usize = 1_000;
/// A request without lists: only fields that a newer client adds count.
const NONE: usize = 100;

/// The place where a request with little to do is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the thread that read the request.
    Here,
    /// Aside: the request is rare, or waits for others that do much.
    Aside,
}

/// The bound of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) key: ApiKey,
    /// Its lists by their names, in the order of the schema.
    lists: &'static [&'static str],
    /// Elements of all lists together at most.
    pub(crate) elements_max: usize,
    /// The place of a request with little to do.
    pub(crate) place: Place,
    /// Memory of one element, decoded, and for the most part its answer. Where an element's answer is large, the handler has
    /// an `answer_bytes`.
    pub(crate) element_bytes: usize,
    reason: &'static str,
}

const fn bound(
    key: ApiKey,
    lists: &'static [&'static str],
    elements_max: usize,
    place: Place,
    element_bytes: usize,
    reason: &'static str,
) -> Bound {
    Bound { key, lists, elements_max, place, element_bytes, reason }
}

const A_HUNDRED_THOUSAND: &str = "100,000 partitions, each in a topic of its own";
const EACH_GROUP: &str = "as many groups as a server holds";
const NO_LIST: &str = "fields that this server does not know: it has no list";

/// All requests that are served, by their keys.
#[rustfmt::skip]
const BOUNDS: &[Bound] = &[
    bound(ApiKey::Produce, &["topic_data", "partition_data"], PARTITIONS, Place::Here, 500, A_HUNDRED_THOUSAND),
    bound(ApiKey::Fetch, &["topics", "partitions", "forgotten_topics_data", "partitions"], PARTITIONS, Place::Here, 600, A_HUNDRED_THOUSAND),
    bound(ApiKey::ListOffsets, &["topics", "partitions"], PARTITIONS, Place::Aside, 200, A_HUNDRED_THOUSAND),
    bound(ApiKey::Metadata, &["topics"], NAMES, Place::Here, 300, "as many topics as a server holds in use"),
    bound(ApiKey::OffsetCommit, &["topics", "partitions"], PARTITIONS, Place::Here, 500, A_HUNDRED_THOUSAND),
    bound(ApiKey::OffsetFetch, &["topics", "partition_indexes", "groups", "topics", "partition_indexes"], PARTITIONS, Place::Here, 250, A_HUNDRED_THOUSAND),
    bound(ApiKey::FindCoordinator, &["coordinator_keys"], NAMES, Place::Here, 250, EACH_GROUP),
    bound(ApiKey::JoinGroup, &["protocols"], WORDS, Place::Here, 200, "assignors that a client knows: ten are many"),
    bound(ApiKey::Heartbeat, &[], NONE, Place::Here, 50, NO_LIST),
    bound(ApiKey::LeaveGroup, &["members"], NAMES, Place::Here, 250, "all members of a group that an admin empties"),
    bound(ApiKey::SyncGroup, &["assignments"], NAMES, Place::Here, 150, "all members of a group"),
    bound(ApiKey::DescribeGroups, &["groups"], NAMES, Place::Aside, 300, EACH_GROUP),
    bound(ApiKey::ListGroups, &["states_filter", "types_filter"], WORDS, Place::Aside, 50, "states and types of groups: there are ten"),
    bound(ApiKey::ApiVersions, &[], NONE, Place::Here, 50, NO_LIST),
    bound(ApiKey::CreateTopics, &["topics", "assignments", "broker_ids", "configs"], PARTITIONS, Place::Aside, 150, "a topic of 100,000 partitions, each assigned by hand; at most 10,000 topics are made"),
    bound(ApiKey::DeleteTopics, &["topics", "topic_names"], NAMES, Place::Aside, 250, "as many topics as a server holds in use"),
    bound(ApiKey::DeleteRecords, &["topics", "partitions"], PARTITIONS, Place::Aside, 150, A_HUNDRED_THOUSAND),
    bound(ApiKey::InitProducerId, &[], NONE, Place::Here, 50, NO_LIST),
    bound(ApiKey::OffsetForLeaderEpoch, &["topics", "partitions"], PARTITIONS, Place::Here, 150, A_HUNDRED_THOUSAND),
    bound(ApiKey::DescribeAcls, &[], NONE, Place::Here, 50, NO_LIST),
    bound(ApiKey::CreateAcls, &["creations"], NAMES, Place::Aside, 150, "one for each of as many topics as a server holds"),
    bound(ApiKey::DeleteAcls, &["filters"], NAMES, Place::Aside, 150, "one for each of as many topics as a server holds"),
    bound(ApiKey::DescribeConfigs, &["resources", "configuration_keys"], PARTITIONS, Place::Aside, 150, "all topics, each with two options that are asked for"),
    bound(ApiKey::AlterConfigs, &["resources", "configs"], PARTITIONS, Place::Aside, 300, "all topics, each with two options"),
    bound(ApiKey::DescribeLogDirs, &["topics", "partitions"], PARTITIONS, Place::Aside, 200, A_HUNDRED_THOUSAND),
    bound(ApiKey::CreatePartitions, &["topics", "assignments", "broker_ids"], PARTITIONS, Place::Aside, 200, "100,000 new partitions, each assigned by hand"),
    bound(ApiKey::DeleteGroups, &["groups_names"], NAMES, Place::Aside, 200, EACH_GROUP),
    bound(ApiKey::ElectLeaders, &["topic_partitions", "partitions"], PARTITIONS, Place::Aside, 200, A_HUNDRED_THOUSAND),
    bound(ApiKey::IncrementalAlterConfigs, &["resources", "configs"], PARTITIONS, Place::Aside, 300, "all topics, each with two options"),
    bound(ApiKey::OffsetDelete, &["topics", "partitions"], PARTITIONS, Place::Aside, 150, A_HUNDRED_THOUSAND),
    bound(ApiKey::DescribeCluster, &[], NONE, Place::Here, 50, NO_LIST),
    bound(ApiKey::DescribeProducers, &["topics", "partition_indexes"], PARTITIONS, Place::Aside, 300, A_HUNDRED_THOUSAND),
    bound(ApiKey::ConsumerGroupHeartbeat, &["subscribed_topic_names", "topic_partitions", "partitions"], PARTITIONS, Place::Here, 150, A_HUNDRED_THOUSAND),
    bound(ApiKey::ConsumerGroupDescribe, &["group_ids"], NAMES, Place::Aside, 300, EACH_GROUP),
    bound(ApiKey::GetTelemetrySubscriptions, &[], NONE, Place::Here, 50, NO_LIST),
    bound(ApiKey::ListConfigResources, &["resource_types"], WORDS, Place::Aside, 50, "types of resources: there are five"),
    bound(ApiKey::DescribeTopicPartitions, &["topics"], NAMES, Place::Aside, 200, "as many topics as a server holds in use"),
];

/// The bound of a request whose key has no row: nothing is decoded. The router serves none.
const UNSERVED: Bound = bound(ApiKey::ApiVersions, &[], 0, Place::Here, 0, "it is not served");

impl Bound {
    /// The bound of the requests of this key.
    pub(crate) fn of(key: ApiKey) -> &'static Self {
        BOUNDS.iter().find(|bound| bound.key == key).unwrap_or(&UNSERVED)
    }

    /// The log's text about a request beyond this bound.
    pub(crate) fn refusal(&self) -> String {
        let Self { key, lists, elements_max, reason, .. } = self;
        format!("{key}: more than {elements_max} elements ({}), which is room for {reason}", lists.join(", "))
    }
}

/// The table as a page of the documents.
#[cfg(test)]
fn page() -> String {
    use std::fmt::Write as _;

    use crate::shard_host::line::{FEW, LINE_MAX};

    let mut page = HEAD.replace("{LINE_MAX}", &LINE_MAX.to_string()).replace("{FEW}", &FEW.to_string());
    for bound in BOUNDS {
        let lists = if bound.lists.is_empty() { "-".to_owned() } else { bound.lists.join(", ") };
        let place = match bound.place {
            Place::Here => "at once",
            Place::Aside => "aside",
        };
        let (key, most, reason) = (bound.key.name(), bound.elements_max, bound.reason);
        writeln!(page, "| {key} | {lists} | {most} | {place} | {reason} |")
            .expect("a String takes every text");
    }
    page
}

#[cfg(test)]
const HEAD: &str = "# Bounds of requests

This page is made from the table of `crates/broker/src/handlers/bounds.rs`; a test keeps it current.

Every list of every request has a bound. It counts the elements of all lists of one request together, and is beyond what
a client has a use for. A request above it closes its connection, and the log says so: a large one as soon as its beginning
tells how long its list is, without being received. Two more bounds hold for a
request: the bytes of its frame (`socket.request.max.bytes`), and the memory of all requests (`queued.max.request.bytes`).

A request that has little to do (200 elements and 64 KiB at most) is worked on at once, or aside without waiting for others;
one that has more waits for its turn among those of its kind. Meanwhile its connection starts nothing that came after it, and
the others go on.

Requests for a group that is worked on at length (more than 512 KiB of it are looked at or changed) wait in that group's line.
The addresses in it take turns, and so do the connections of an address. {LINE_MAX} requests wait for one group at most; an
address has no more of them than it leaves free, and {FEW} in any case. Any other is answered COORDINATOR_NOT_AVAILABLE, and
clients ask again a little later. A request that waits stays charged for its frame.

A connection has 16 fetches that wait for records at most (`riverrun_fetches_waiting_for_records` of the metrics): later
requests begin as these are answered. A client has one on each connection, and Kafka begins nothing behind that. The
partitions that each of them remembers count as memory of requests, of which a source has a share, and 4 KiB for each but the
first of a connection. While more than half of that memory is held, a fetch that would hold 4 KiB or more does not wait:
it is answered after 100 ms with the records that there are.

The memory of all groups together is bounded (`groups.memory.max.bytes`). Seven eighths are for all: a group,
and all that an address has made grow, may be no larger than a third of what is left of them. The last eighth is for addresses that hold
no more than a 1024th of the whole (16 KiB at least): so a newcomer gets in unless more than a hundred addresses have taken it.
A refused request is answered COORDINATOR_LOAD_IN_PROGRESS, after which clients ask again.

Requests that change topics or configs do so one after the other, and their sources in turns; those that wait
(`riverrun_requests_waiting_to_change_metadata`) keep nobody else from being worked on.

| request | lists | elements at most | little to do | room for |
|---|---|---|---|---|
";

/// Memory of an answer about all partitions, each of which takes `partition_bytes`.
pub(super) fn partitions_bytes(broker: &Broker, partition_bytes: usize) -> usize {
    usize::try_from(broker.catalog.cluster().partition_count())
        .unwrap_or(usize::MAX)
        .saturating_mul(partition_bytes)
}

/// Each name once, in the order of the first, and whether it is served: beyond `count_max` names it is refused.
pub(super) fn once<T: Copy, K: Hash + Eq>(
    named: impl IntoIterator<Item = T>,
    count_max: usize,
    key: impl Fn(T) -> K,
) -> impl Iterator<Item = (T, Result<(), ErrorCode>)> {
    let mut seen = HashSet::new();
    named.into_iter().filter_map(move |item| {
        let is_new = seen.insert(key(item));
        let is_allowed = seen.len() <= count_max;
        is_new.then_some((item, if is_allowed { Ok(()) } else { Err(ErrorCode::INVALID_REQUEST) }))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::handlers::router::served_keys;

    /// Set to rewrite the page instead of comparing it.
    const REWRITE_VARIABLE: &str = "UPDATE_DOCS";

    #[test]
    fn every_request_that_is_served_has_a_bound() {
        let keys: Vec<ApiKey> = BOUNDS.iter().map(|bound| bound.key).collect();
        assert_eq!(keys, served_keys().collect::<Vec<_>>());
    }

    /// The lists of a request by its schema.
    fn lists(schema: &str) -> Vec<&str> {
        let request = schema.lines().skip_while(|line| !line.starts_with("request"));
        let fields = request.skip(1).take_while(|line| line.is_empty() || line.starts_with(' '));
        let words = fields.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        });
        words.filter(|(_, kind)| kind.starts_with("[]")).map(|(name, _)| name).collect()
    }

    #[test]
    fn every_list_of_a_request_is_named_in_the_table() {
        let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/schema");
        let mut seen = 0;
        for entry in std::fs::read_dir(schemas).expect("schemas") {
            let schema = std::fs::read_to_string(entry.expect("a file").path()).expect("text");
            let mut head = schema.lines().find_map(|line| line.strip_prefix("api ")).unwrap_or("").split(' ');
            let key = head.nth(1).and_then(|key| ApiKey::from_i16(key.parse().ok()?));
            let Some(bound) = BOUNDS.iter().find(|bound| Some(bound.key) == key) else { continue };
            assert_eq!(bound.lists, lists(&schema), "{}", bound.key);
            seen += 1;
        }
        assert_eq!(seen, BOUNDS.len());
    }

    #[test]
    fn the_page_of_bounds_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bounds.md");
        if std::env::var_os(REWRITE_VARIABLE).is_some() {
            std::fs::write(&path, page()).expect("the page is writable");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page(), "docs/bounds.md is not current; run the tests with {REWRITE_VARIABLE}=1");
    }

    #[test]
    fn a_name_is_answered_once_and_beyond_the_bound_refused() {
        let answers: Vec<_> = once(["a", "b", "a", "c", "c", "b", "d"], 2, |name| name).collect();
        let refused = Err(ErrorCode::INVALID_REQUEST);
        assert_eq!(answers, [("a", Ok(())), ("b", Ok(())), ("c", refused), ("d", refused)]);
    }
}
