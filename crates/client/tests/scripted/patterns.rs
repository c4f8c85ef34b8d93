//! Subscriptions by pattern, resolved by the server or by the client.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{ClientError, Consumer, ConsumerOptions, GroupProtocol};
use riverrun_protocol::consumer_protocol::decode_subscription;
use riverrun_protocol::metadata_response::MetadataResponseTopic;
use riverrun_protocol::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, MetadataRequest,
};
use riverrun_types::TopicId;

use crate::consumer::{options, server, wait_for};
use crate::server::{Call, Reply, ScriptedServer};

/// Subscriptions that members have sent: names, and the pattern.
type Said = Arc<Mutex<Vec<(Vec<String>, Option<String>)>>>;

/// All versions, with the heartbeat's up to this one.
pub(crate) fn versions(call: &Call<'_>, heartbeat_max: i16) -> Reply {
    call.versions_but(ApiKey::ConsumerGroupHeartbeat, heartbeat_max)
}

/// Records a heartbeat's subscription.
fn said_to_group(call: &Call<'_>, heard: &Said) -> Reply {
    let request = call.decode::<ConsumerGroupHeartbeatRequest<'_>>();
    if let Some(names) = &request.subscribed_topic_names {
        let names = names.iter().map(ToString::to_string).collect();
        let pattern = request.subscribed_topic_regex.as_ref().map(ToString::to_string);
        heard.lock().unwrap().push((names, pattern));
    }
    call.answer(&ConsumerGroupHeartbeatResponse {
        member_id: Some("me".into()),
        member_epoch: 1,
        heartbeat_interval_ms: 10_000,
        ..ConsumerGroupHeartbeatResponse::default()
    })
}

/// The subscription of a joining member without a pattern.
async fn named(instance_id: Option<&str>, heartbeat_max: i16) -> Vec<(Vec<String>, Option<String>)> {
    let (server, said) = group(heartbeat_max).await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol: GroupProtocol::Consumer,
        instance_id: instance_id.map(str::to_owned),
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    consumer.poll(Duration::from_millis(200)).await.unwrap();
    let said = said.lock().unwrap();
    said.clone()
}

/// The server keeps the state of the static member's former process, except for fields in the request.
#[tokio::test]
async fn a_static_member_takes_back_the_pattern_of_its_predecessor() {
    let topics = vec!["t".to_owned()];
    assert_eq!(named(Some("i"), 1).await, [(topics.clone(), Some(String::new()))]);
    assert_eq!(named(Some("i"), 0).await, [(topics.clone(), None)], "no pattern is known there");
    assert_eq!(named(None, 1).await, [(topics, None)]);
}

#[tokio::test]
async fn unanswered_pattern_is_cancelled() {
    let said = Said::default();
    let heard = Arc::clone(&said);
    let server = server(move |call| {
        (call.key == ApiKey::ConsumerGroupHeartbeat).then(|| match said_to_group(call, &heard) {
            _ if call.nth == 0 => Reply::Silence,
            reply => reply,
        })
    })
    .await;
    let group_protocol = GroupProtocol::Consumer;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    options.cluster.request_timeout = Duration::from_millis(500);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe_pattern("[a-z]+").await.unwrap();
    wait_for(&mut consumer, "the pattern is said", |_| said.lock().unwrap().len() == 1).await;
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(&mut consumer, "the topic is said", |_| said.lock().unwrap().len() == 2).await;
    assert_eq!(said.lock().unwrap()[1], (vec!["t".to_owned()], Some(String::new())));
}

/// A group that records subscriptions and assigns nothing.
async fn group(heartbeat_max: i16) -> (ScriptedServer, Said) {
    let said = Said::default();
    let heard = Arc::clone(&said);
    let server = server(move |call| match call.key {
        ApiKey::ApiVersions => Some(versions(call, heartbeat_max)),
        ApiKey::ConsumerGroupHeartbeat => Some(said_to_group(call, &heard)),
        ApiKey::JoinGroup => {
            let request = call.decode::<JoinGroupRequest<'_>>();
            let subscription = decode_subscription(&request.protocols[0].metadata).unwrap();
            let names = subscription.topics.iter().map(ToString::to_string).collect();
            heard.lock().unwrap().push((names, None));
            let leader = "another".into();
            Some(call.answer(&JoinGroupResponse { leader, member_id: "me".into(), ..Default::default() }))
        }
        ApiKey::SyncGroup => Some(Reply::Silence),
        _ => None,
    })
    .await;
    (server, said)
}

async fn subscribed(group_protocol: GroupProtocol, heartbeat_max: i16) -> Vec<(Vec<String>, Option<String>)> {
    let (server, said) = group(heartbeat_max).await;
    let options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe_pattern("[a-z]+").await.unwrap();
    consumer.poll(Duration::from_millis(200)).await.unwrap();
    let said = said.lock().unwrap();
    said.clone()
}

#[tokio::test]
async fn a_server_that_takes_patterns_is_given_the_pattern() {
    let said = subscribed(GroupProtocol::Consumer, 1).await;
    assert_eq!(said, [(vec![], Some("[a-z]+".to_owned()))]);
}

#[tokio::test]
async fn one_that_does_not_is_given_the_topics_that_match() {
    for protocol in [GroupProtocol::Consumer, GroupProtocol::Classic] {
        assert_eq!(subscribed(protocol, 0).await, [(vec!["t".to_owned()], None)], "{protocol:?}");
    }
}

#[tokio::test]
async fn topics_that_came_later_are_said_without_another_look() {
    let said = Said::default();
    let heard = Arc::clone(&said);
    let mut looks = 0;
    let server = server(move |call| match call.key {
        ApiKey::ApiVersions => Some(versions(call, 0)),
        ApiKey::Metadata if call.decode::<MetadataRequest<'_>>().topics.is_none() => {
            looks += 1;
            let mut metadata = call.metadata_of_epoch(0);
            let later = MetadataResponseTopic {
                name: Some("u".into()),
                topic_id: TopicId([8; 16]),
                ..metadata.topics[0].clone()
            };
            metadata.topics.push(later);
            metadata.topics.truncate(looks);
            // No third lookup is needed before the group gets the topics.
            Some(if looks < 3 { call.answer(&metadata) } else { Reply::Silence })
        }
        ApiKey::ConsumerGroupHeartbeat => Some(said_to_group(call, &heard)),
        _ => None,
    })
    .await;
    let group_protocol = GroupProtocol::Consumer;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    options.cluster.metadata_max_age = Duration::from_millis(100);
    options.cluster.request_timeout = Duration::from_mins(1);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe_pattern("[a-z]+").await.unwrap();
    let begun = Instant::now();
    while said.lock().unwrap().len() < 2 {
        assert!(begun.elapsed() < Duration::from_mins(1), "{said:?}");
        consumer.poll(Duration::from_millis(20)).await.unwrap();
    }
    let named = |names: &[&str]| (names.iter().map(ToString::to_string).collect::<Vec<_>>(), None);
    assert_eq!(*said.lock().unwrap(), [named(&["t"]), named(&["t", "u"])]);
}

/// It is a member already, and stays one meanwhile.
#[tokio::test]
async fn member_retries_resolving_a_new_pattern() {
    let (said, fails) = (Said::default(), Arc::new(Mutex::new(true)));
    let (heard, is_failing) = (Arc::clone(&said), Arc::clone(&fails));
    let server = server(move |call| match call.key {
        ApiKey::ApiVersions => Some(versions(call, 0)),
        ApiKey::Metadata if call.decode::<MetadataRequest<'_>>().topics.is_none() => {
            is_failing.lock().unwrap().then_some(Reply::Close)
        }
        ApiKey::ConsumerGroupHeartbeat => Some(said_to_group(call, &heard)),
        _ => None,
    })
    .await;
    let group_protocol = GroupProtocol::Consumer;
    let options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["u"]).await.unwrap();
    wait_for(&mut consumer, "it is a member", |_| said.lock().unwrap().len() == 1).await;
    consumer.subscribe_pattern("[a-z]+").await.unwrap();
    wait_for(&mut consumer, "it tells why not", |consumer| consumer.trouble().is_some()).await;
    *fails.lock().unwrap() = false;
    wait_for(&mut consumer, "it has found them", |_| said.lock().unwrap().len() == 2).await;
    let named = |name: &str| (vec![name.to_owned()], None);
    assert_eq!(*said.lock().unwrap(), [named("u"), named("t")]);
    wait_for(&mut consumer, "all is well", |consumer| consumer.trouble().is_none()).await;
}

/// A member cannot continue with a former subscription.
#[tokio::test]
async fn pattern_that_neither_side_can_read_ends_membership() {
    let (server, said) = group(0).await;
    let group_protocol = GroupProtocol::Consumer;
    let options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(&mut consumer, "it is a member", |_| said.lock().unwrap().len() == 1).await;
    consumer.subscribe_pattern("(").await.unwrap();
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < Duration::from_mins(1), "no error in time");
        if let Err(error) = consumer.poll(Duration::from_millis(20)).await {
            break error;
        }
    };
    assert!(matches!(error, ClientError::Invalid(_)), "{error}");
}

#[tokio::test]
async fn invalid_pattern_is_refused_if_the_client_resolves_it() {
    let (server, _) = group(1).await;
    let options = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    let mut consumer = Consumer::new(options).await.unwrap();
    assert!(matches!(consumer.subscribe_pattern("(").await, Err(ClientError::Invalid(_))));
}
