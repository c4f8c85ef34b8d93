//! A producer's report of records that it gives up: the attempts, the server, and the obstacle.

use std::time::Duration;

use riverrun_client::{ClientError, ErrorCode, Producer, ProducerOptions, RecordRef};
use riverrun_protocol::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use riverrun_protocol::{ApiKey, InitProducerIdResponse, ProduceRequest, ProduceResponse};

use super::{producer, send, server};
use crate::server::{Call, Reply, ScriptedServer};

/// The server's message about its disk.
const WHY: &str = "the journal waits for the disk";

/// Answers that the batch was not synced in time, with this message.
fn too_late(call: &Call<'_>) -> Reply {
    let request = call.decode::<ProduceRequest<'_>>();
    let topic = &request.topic_data[0];
    let partition = PartitionProduceResponse {
        index: topic.partition_data[0].index,
        error_code: ErrorCode::REQUEST_TIMED_OUT.0,
        error_message: Some(WHY.into()),
        base_offset: -1,
        ..PartitionProduceResponse::default()
    };
    let partition_responses = vec![partition];
    let topic = TopicProduceResponse { topic_id: topic.topic_id, partition_responses, ..Default::default() };
    call.answer(&ProduceResponse { responses: vec![topic], ..ProduceResponse::default() })
}

fn soon(options: &mut ProducerOptions) {
    options.delivery_timeout = Duration::from_millis(300);
    options.cluster.request_timeout = Duration::from_millis(200);
}

/// The outcome of a record that is sent to this server, as text.
async fn told(server: &ScriptedServer, producer: &Producer) -> String {
    let error = send(producer).await.await.expect_err("given up");
    let ClientError::Undelivered { server: Some(named), .. } = &error else { panic!("{error}") };
    assert_eq!(*named, format!("server 1 ({})", server.address()));
    error.to_string()
}

#[tokio::test]
async fn slow_server_is_named_with_reason_and_attempts() {
    let (server, _) = server(|call, _, _| Some(too_late(call))).await;
    let told = told(&server, &producer(&server, soon).await).await;
    for part in ["t-0: not delivered within 300ms; sent ", " times, last to server 1", "REQUEST_TIMED_OUT"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(told.ends_with(WHY), "{told}");
}

#[tokio::test]
async fn missing_producer_id_is_reported_as_never_sent() {
    let server = ScriptedServer::start(|call| match call.key {
        ApiKey::InitProducerId => {
            let error_code = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0;
            call.answer(&InitProducerIdResponse { error_code, ..InitProducerIdResponse::default() })
        }
        _ => Reply::Usual,
    })
    .await;
    let told = told(&server, &producer(&server, soon).await).await;
    for part in ["never sent to server 1", "last error: COORDINATOR_LOAD_IN_PROGRESS"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[tokio::test]
async fn sender_without_room_gets_the_obstacle_of_others() {
    let (server, _) = server(|call, _, _| Some(too_late(call))).await;
    let producer = producer(&server, |options| {
        (options.buffer_bytes, options.request_bytes_max) = (1000, 1000);
        options.block_max = Duration::from_millis(500);
        options.delivery_timeout = Duration::from_mins(10);
    })
    .await;
    let value = [0; 600];
    let record = RecordRef::new("t", &value).with_partition(0);
    drop(producer.send_ref(&record).await.expect("there is room"));
    let error = producer.send_ref(&record).await.expect_err("there is none");
    let told = error.to_string();
    assert!(matches!(error, ClientError::Blocked { last: Some(_), .. }), "{told}");
    assert!(told.contains("room in the buffer") && told.ends_with(WHY), "{told}");
}
