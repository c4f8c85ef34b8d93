//! Heartbeats that a group does not accept, or that have no coordinator.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{ClientError, Consumer, ConsumerOptions, ErrorCode, GroupProtocol};
use riverrun_protocol::find_coordinator_response::Coordinator;
use riverrun_protocol::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, FindCoordinatorResponse,
    HeartbeatResponse,
};

use crate::consumer::{Told, member_options, options, server, tell, wait_for};
use crate::groups::{classic_group, server_side_group};
use crate::server::{Call, Reply, ScriptedServer};

async fn member(server: &ScriptedServer, group_protocol: GroupProtocol, interval: Duration) -> Consumer {
    let mut options = member_options(server, group_protocol);
    if group_protocol == GroupProtocol::Classic {
        options.heartbeat_interval = interval;
    }
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    consumer
}

/// The session continues meanwhile.
#[tokio::test]
async fn refused_heartbeat_is_repeated_early() {
    const INTERVAL: Duration = Duration::from_secs(2);
    let beats = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&beats);
    let server = server(move |call| match call.key {
        ApiKey::Heartbeat => {
            noted.lock().unwrap().push(Instant::now());
            let code = if call.nth == 0 { ErrorCode::NOT_COORDINATOR } else { ErrorCode::NONE };
            Some(call.answer(&HeartbeatResponse { error_code: code.0, ..HeartbeatResponse::default() }))
        }
        _ => classic_group(call, &Told::default(), &Arc::default()),
    })
    .await;
    let mut consumer = member(&server, GroupProtocol::Classic, INTERVAL).await;
    wait_for(&mut consumer, "three signs of life", |_| beats.lock().unwrap().len() >= 3).await;
    let beats = beats.lock().unwrap();
    let (again, next) = (beats[1] - beats[0], beats[2] - beats[1]);
    assert!(again < INTERVAL / 2 && next > INTERVAL / 2, "{again:?}, and then {next:?}");
}

/// As from a coordinator that hangs: otherwise the member would look for another only long after the session has
/// ended.
#[tokio::test]
async fn heartbeat_answer_is_awaited_up_to_the_session_timeout() {
    let beats = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&beats);
    let server = server(move |call| match call.key {
        ApiKey::Heartbeat => {
            *counted.lock().unwrap() += 1;
            Some(if call.nth == 0 { Reply::Stall } else { call.answer(&HeartbeatResponse::default()) })
        }
        _ => classic_group(call, &Told::default(), &Arc::default()),
    })
    .await;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    options.heartbeat_interval = Duration::from_millis(50);
    options.session_timeout = Duration::from_millis(500);
    options.cluster.request_timeout = Duration::from_hours(1);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(&mut consumer, "it is told why not", |consumer| consumer.trouble().is_some()).await;
    let error = consumer.trouble().unwrap().error;
    let after = Duration::from_millis(500);
    assert!(matches!(error, ClientError::Timeout { after: told, .. } if told == after), "{error}");
    wait_for(&mut consumer, "another sign of life", |_| *beats.lock().unwrap() > 1).await;
    wait_for(&mut consumer, "all is well", |consumer| consumer.trouble().is_none()).await;
}

/// An application that asks for trouble gets it long before the retries end.
#[tokio::test]
async fn missing_coordinator_is_trouble_at_once() {
    for group_protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        let server = server(move |call| {
            (call.key == ApiKey::FindCoordinator).then(|| {
                let found = Coordinator { key: "g".into(), error_code: code.0, ..Coordinator::default() };
                call.answer(&FindCoordinatorResponse { coordinators: vec![found], ..Default::default() })
            })
        })
        .await;
        let mut patient = ConsumerOptions { group_protocol, ..options(&server) };
        patient.group = Some("g".to_owned());
        patient.cluster.retry_timeout = Duration::from_hours(1);
        let mut consumer = Consumer::new(patient).await.unwrap();
        consumer.subscribe(&["t"]).await.unwrap();
        wait_for(&mut consumer, "it is told", |consumer| consumer.trouble().is_some()).await;
        assert_eq!(consumer.trouble().unwrap().error.code(), Some(code), "{group_protocol:?}");
    }
}

fn no_such_group(call: &Call<'_>) -> Reply {
    let error_code = ErrorCode::GROUP_ID_NOT_FOUND.0;
    call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..ConsumerGroupHeartbeatResponse::default() })
}

/// As after a sleep of the machine, in which the group was empty.
#[tokio::test]
async fn a_member_of_a_group_that_was_deleted_joins_it_anew() {
    let (told, deleted) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, is_deleted) = (Arc::clone(&told), Arc::clone(&deleted));
    let server = server(move |call| {
        if call.key == ApiKey::ConsumerGroupHeartbeat {
            let epoch = call.decode::<ConsumerGroupHeartbeatRequest<'_>>().member_epoch;
            if epoch > 0 && std::mem::take(&mut *is_deleted.lock().unwrap()) {
                return Some(no_such_group(call));
            }
            if epoch == 0 {
                tell(&heard, "join");
            }
        }
        server_side_group(call, &Told::default(), &Arc::default())
    })
    .await;
    let mut consumer = member(&server, GroupProtocol::Consumer, Duration::from_secs(1)).await;
    wait_for(&mut consumer, "it is a member", |consumer| consumer.assignment().len() == 2).await;
    *deleted.lock().unwrap() = true;
    wait_for(&mut consumer, "it joins again", |_| told.lock().unwrap().len() == 2).await;
    wait_for(&mut consumer, "it is a member again", |consumer| consumer.assignment().len() == 2).await;
}

/// The group's members would have to leave first, which may take long.
#[tokio::test]
async fn group_of_the_other_protocol_is_an_error() {
    let server = server(|call| match call.key {
        ApiKey::ConsumerGroupHeartbeat => Some(no_such_group(call)),
        _ => server_side_group(call, &Told::default(), &Arc::default()),
    })
    .await;
    let mut consumer = member(&server, GroupProtocol::Consumer, Duration::from_secs(1)).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    let error = loop {
        assert!(Instant::now() < deadline, "no error in time");
        if let Err(error) = consumer.poll(Duration::from_millis(50)).await {
            break error;
        }
    };
    assert_eq!(error.code(), Some(ErrorCode::GROUP_ID_NOT_FOUND), "{error}");
}
