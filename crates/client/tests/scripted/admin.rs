//! The admin client against a server whose answers leave out some requested items.

use std::fmt::Display;
use std::time::Duration;

use riverrun_client::{Admin, ClientError, ConfigResource, NewTopic, TopicPartition};
use riverrun_protocol::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use riverrun_protocol::delete_topics_response::DeletableTopicResult;
use riverrun_protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use riverrun_protocol::{
    ApiKey, CreatePartitionsResponse, CreateTopicsResponse, DeleteRecordsResponse, DeleteTopicsResponse,
    OffsetDeleteResponse,
};
use riverrun_types::{NodeId, Offset};

use crate::consumer::partition;
use crate::server::{Call, Reply, ScriptedServer};

/// Names at most one of the requested items.
fn answer(call: &Call<'_>) -> Reply {
    match call.key {
        ApiKey::DeleteRecords => {
            let low = DeleteRecordsPartitionResult { low_watermark: 7, ..Default::default() };
            let topic = DeleteRecordsTopicResult { name: "t".into(), partitions: vec![low] };
            call.answer(&DeleteRecordsResponse { topics: vec![topic], ..Default::default() })
        }
        ApiKey::OffsetDelete => {
            let partitions = vec![OffsetDeleteResponsePartition::default()];
            let topic = OffsetDeleteResponseTopic { name: "t".into(), partitions };
            call.answer(&OffsetDeleteResponse { topics: vec![topic], ..Default::default() })
        }
        ApiKey::CreateTopics => call.answer(&CreateTopicsResponse::default()),
        ApiKey::CreatePartitions => call.answer(&CreatePartitionsResponse::default()),
        ApiKey::DeleteTopics => {
            let deleted = DeletableTopicResult { name: Some("t".into()), ..Default::default() };
            call.answer(&DeleteTopicsResponse { responses: vec![deleted], ..Default::default() })
        }
        _ => Reply::Usual,
    }
}

async fn admin() -> (ScriptedServer, Admin) {
    let server = ScriptedServer::start(answer).await;
    let admin = Admin::new(server.options()).await.unwrap();
    (server, admin)
}

/// The items with their results, and with a word for those left out.
fn told<K: Display, T>(results: Vec<(K, Result<T, ClientError>)>) -> Vec<(String, Result<T, &'static str>)> {
    let told = |(item, result): (K, Result<T, ClientError>)| {
        let name = item.to_string();
        let word = |error: ClientError| match error {
            ClientError::Incomplete { missing, .. } if missing == name => "left out",
            other => panic!("{name}: {other}"),
        };
        (name.clone(), result.map_err(word))
    };
    results.into_iter().map(told).collect()
}

#[tokio::test]
async fn partition_left_out_of_an_answer_gets_an_error() {
    let (_server, admin) = admin().await;
    let before = [0, 1].map(|index| (partition(index), Offset(7)));
    let expected = [("t-0".to_owned(), Ok(Offset(7))), ("t-1".to_owned(), Err("left out"))];
    assert_eq!(told(admin.delete_records(&before.into()).await), expected);
    let forgotten: [TopicPartition; 2] = [1, 0].map(partition);
    let expected = [("t-0".to_owned(), Ok(())), ("t-1".to_owned(), Err("left out"))];
    assert_eq!(told(admin.delete_group_offsets("g", &forgotten).await), expected);
}

#[tokio::test]
async fn so_has_a_topic() {
    let (_server, admin) = admin().await;
    let created = told(admin.create_topics(vec![NewTopic::named("t")], false).await);
    assert_eq!(created, [("t".to_owned(), Err("left out"))]);
    let grown = told(admin.create_partitions(&[("t".to_owned(), 3)].into(), false).await);
    assert_eq!(grown, [("t".to_owned(), Err("left out"))]);
    let deleted = told(admin.delete_topics(&["u".to_owned(), "t".to_owned()]).await);
    assert_eq!(deleted, [("t".to_owned(), Ok(())), ("u".to_owned(), Err("left out"))]);
}

#[tokio::test]
async fn a_server_that_the_cluster_does_not_have_is_not_waited_for() {
    let server = ScriptedServer::start(answer).await;
    let mut options = server.options();
    options.retry_timeout = Duration::from_mins(2);
    let admin = Admin::new(options).await.unwrap();
    let resource = ConfigResource::Broker(NodeId(77));
    let asked = async {
        let described = admin.describe_configs(&resource).await.unwrap_err();
        let changes = [(resource.clone(), Vec::new())].into();
        let (_, altered) = admin.alter_configs(&changes, true).await.remove(0);
        [described, altered.unwrap_err()]
    };
    for error in tokio::time::timeout(Duration::from_mins(1), asked).await.expect("in less than its patience")
    {
        assert!(matches!(error, ClientError::UnknownNode(NodeId(77))), "{error}");
    }
}
