//! Leave requests that a group does not get, or not at first.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt as _, join_all};
use riverrun_client::{ClientError, Consumer, ConsumerOptions, ErrorCode, GroupProtocol};
use riverrun_protocol::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, JoinGroupRequest,
    LeaveGroupRequest, LeaveGroupResponse,
};

use crate::commits::refused;
use crate::consumer::{Told, committed, options, records, server, tell, wait_for};
use crate::groups::{classic_group, server_side_group};
use crate::server::{Call, Reply, ScriptedServer};

const PROTOCOLS: [GroupProtocol; 2] = [GroupProtocol::Classic, GroupProtocol::Consumer];

/// A group of either protocol that ignores the first `deaf` leave requests. It records joins and leaves.
fn answer(call: &Call<'_>, told: &Told, deaf: &Mutex<usize>) -> Option<Reply> {
    let usual = || {
        let (told, ready) = (Told::default(), Arc::default());
        classic_group(call, &told, &ready).or_else(|| server_side_group(call, &told, &ready))
    };
    let (what, member) = match call.key {
        ApiKey::JoinGroup => ("join", call.decode::<JoinGroupRequest<'_>>().member_id.to_string()),
        ApiKey::LeaveGroup => {
            ("leave", call.decode::<LeaveGroupRequest<'_>>().members[0].member_id.to_string())
        }
        ApiKey::ConsumerGroupHeartbeat => {
            let request = call.decode::<ConsumerGroupHeartbeatRequest<'_>>();
            match request.member_epoch {
                0 => ("join", request.member_id.to_string()),
                -1 => ("leave", request.member_id.to_string()),
                _ => return usual(),
            }
        }
        _ => return usual(),
    };
    let mut deaf = deaf.lock().unwrap();
    if what == "leave" && *deaf > 0 {
        *deaf -= 1;
        let error_code = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0;
        return Some(match call.key {
            ApiKey::LeaveGroup => {
                call.answer(&LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() })
            }
            _ => call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..Default::default() }),
        });
    }
    tell(told, format!("{what} {member}"));
    usual()
}

/// A member of such a group, and the requests that the group got.
async fn member(group_protocol: GroupProtocol, deaf: &Arc<Mutex<usize>>) -> (ScriptedServer, Consumer, Told) {
    let told = Told::default();
    let (heard, deaf) = (Arc::clone(&told), Arc::clone(deaf));
    let server = server(move |call| answer(call, &heard, &deaf)).await;
    let mut options = ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol,
        auto_commit: false,
        ..options(&server)
    };
    options.cluster.request_timeout = Duration::from_secs(1);
    let mut consumer = Consumer::new(options).await.unwrap();
    subscribed(&mut consumer).await;
    (server, consumer, told)
}

async fn subscribed(consumer: &mut Consumer) {
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(consumer, "it is a member", |consumer| !consumer.assignment().is_empty()).await;
}

/// As [`Consumer::subscribe`] to nothing.
async fn unsubscribe(consumer: &mut Consumer) -> Result<(), Option<ErrorCode>> {
    consumer.subscribe::<&str>(&[]).await.map_err(|error| error.code())
}

fn heard(told: &Told, what: &str) -> Vec<String> {
    let told = told.lock().unwrap();
    told.iter().filter_map(|one| one.strip_prefix(what)).map(|who| who.trim().to_owned()).collect()
}

#[tokio::test]
async fn a_goodbye_that_is_not_taken_in_at_first_is_said_again() {
    for protocol in PROTOCOLS {
        let deaf = Arc::new(Mutex::new(2));
        let (_server, mut consumer, told) = member(protocol, &deaf).await;
        assert_eq!(unsubscribe(&mut consumer).await, Ok(()), "{protocol:?}");
        assert_eq!(heard(&told, "leave").len(), 1, "{protocol:?}");
        consumer.close().await.unwrap();
        assert_eq!(heard(&told, "leave").len(), 1, "{protocol:?}: once is enough");
    }
}

/// Servers before Kafka 2.4 accept one member at a time.
#[tokio::test]
async fn old_server_gets_a_leave_request_of_one_member() {
    let told = Told::default();
    let noted = Arc::clone(&told);
    let server = server(move |call| match call.key {
        ApiKey::ApiVersions => Some(call.versions_but(ApiKey::LeaveGroup, 2)),
        ApiKey::LeaveGroup => {
            tell(&noted, call.decode::<LeaveGroupRequest<'_>>().member_id.to_string());
            Some(call.answer(&LeaveGroupResponse::default()))
        }
        _ => classic_group(call, &Told::default(), &Arc::default()),
    })
    .await;
    let grouped = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    let mut consumer = Consumer::new(grouped).await.unwrap();
    subscribed(&mut consumer).await;
    consumer.close().await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["me"]);
}

/// The group does not wait for a member that could not commit.
#[tokio::test]
async fn a_member_that_cannot_commit_leaves_in_the_time_that_it_has() {
    for protocol in PROTOCOLS {
        let told = Told::default();
        let noted = Arc::clone(&told);
        let server = server(move |call| match call.key {
            ApiKey::OffsetCommit => Some(refused(call, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)),
            _ => answer(call, &noted, &Mutex::default()),
        })
        .await;
        let mut options =
            ConsumerOptions { group: Some("g".to_owned()), group_protocol: protocol, ..options(&server) };
        options.cluster.retry_timeout = Duration::from_mins(10);
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.subscribe(&["t"]).await.unwrap();
        records(&mut consumer).await.unwrap();
        let closed =
            tokio::time::timeout(Duration::from_secs(30), consumer.close_within(Duration::from_secs(6)));
        let error = closed.await.expect("an end").unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{protocol:?}: {error}");
        assert_eq!(heard(&told, "leave").len(), 1, "{protocol:?}");
    }
}

/// Closes a member within this time, while the answer to its last commit takes so much of it, and checks the group's
/// requests. If it `hangs`, nothing else runs in that time, either.
async fn close_in(protocol: GroupProtocol, limit: Duration, commit_takes: Duration, hangs: bool) {
    let told = Told::default();
    let noted = Arc::clone(&told);
    let server = server(move |call| match call.key {
        ApiKey::OffsetCommit => {
            tell(&noted, "commit");
            let reply = committed(call, &Told::default());
            if hangs {
                std::thread::sleep(commit_takes);
                return Some(reply);
            }
            Some(reply.after(commit_takes))
        }
        _ => answer(call, &noted, &Mutex::default()),
    })
    .await;
    let mut options =
        ConsumerOptions { group: Some("g".to_owned()), group_protocol: protocol, ..options(&server) };
    options.auto_commit_interval = Some(Duration::from_hours(1));
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    records(&mut consumer).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(30), consumer.close_within(limit)).await;
    ended_in_order(protocol, &closed.expect("an end"), &told).await;
}

/// Checks that the group gets the commit and then the leave request, once each.
async fn ended_in_order(protocol: GroupProtocol, closed: &Result<(), ClientError>, told: &Told) {
    assert!(matches!(closed, Ok(()) | Err(ClientError::Timeout { .. })), "{protocol:?}: {closed:?}");
    // Without time left, it is sent without waiting for an answer.
    let deadline = Instant::now() + Duration::from_mins(1);
    while heard(told, "leave").is_empty() {
        assert!(Instant::now() < deadline, "{protocol:?}, {closed:?}: {told:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let told = told.lock().unwrap();
    let said = told.iter().filter_map(|what| what.split(' ').next()).filter(|what| *what != "join");
    let mut said: Vec<&str> = said.collect();
    if protocol == GroupProtocol::Consumer {
        // Over two connections.
        said.sort_unstable();
    }
    assert_eq!(said, ["commit", "leave"], "{protocol:?}, {closed:?}");
}

/// The future of closing is not polled between its commit and its time limit: the answer and the time-out come
/// together, and ending the membership takes longer.
async fn close_late(protocol: GroupProtocol) {
    const LIMIT: Duration = Duration::from_millis(1500);
    let told = Told::default();
    let noted = Arc::clone(&told);
    let server = server(move |call| match call.key {
        ApiKey::OffsetCommit => {
            tell(&noted, "commit");
            Some(committed(call, &Told::default()))
        }
        _ => answer(call, &noted, &Mutex::default()),
    })
    .await;
    let mut options =
        ConsumerOptions { group: Some("g".to_owned()), group_protocol: protocol, ..options(&server) };
    options.auto_commit_interval = Some(Duration::from_hours(1));
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    records(&mut consumer).await.unwrap();
    let mut closing = pin!(consumer.close_within(LIMIT));
    while heard(&told, "commit").is_empty() {
        assert!(closing.as_mut().now_or_never().is_none(), "{protocol:?}: it waits for its commit");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(LIMIT).await;
    let closed = tokio::time::timeout(Duration::from_secs(30), closing).await;
    ended_in_order(protocol, &closed.expect("an end"), &told).await;
}

#[tokio::test]
async fn member_leaves_after_a_commit_that_timed_out() {
    join_all(PROTOCOLS.map(close_late)).await;
}

/// Whichever comes first, the group gets both, once and in their order.
#[tokio::test]
async fn member_leaves_when_time_ends_with_its_commit() {
    const LIMIT: Duration = Duration::from_millis(900);
    // Two thirds of it are for the commit.
    let around = |step: u64| Duration::from_millis(580 + 4 * step);
    let cases = PROTOCOLS.into_iter().flat_map(|protocol| (0..10).map(move |step| (protocol, around(step))));
    join_all(cases.map(|(protocol, takes)| close_in(protocol, LIMIT, takes, false))).await;
}

#[tokio::test]
async fn member_leaves_without_time_left_after_its_commit() {
    const LIMIT: Duration = Duration::from_millis(60);
    for protocol in PROTOCOLS {
        close_in(protocol, LIMIT, LIMIT * 2, true).await;
        for _ in 0..10 {
            close_in(protocol, Duration::ZERO, Duration::ZERO, false).await;
        }
    }
}

/// Otherwise the group would wait for the member, although the application does what it can to leave.
#[tokio::test]
async fn lost_leave_is_reported_and_repeated() {
    for (protocol, closes) in PROTOCOLS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let deaf = Arc::new(Mutex::new(usize::MAX));
        let (_server, mut consumer, told) = member(protocol, &deaf).await;
        let unheard = Err(Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
        assert_eq!(unsubscribe(&mut consumer).await, unheard, "{protocol:?}");
        assert!(consumer.assignment().is_empty(), "it reads no more all the same");
        *deaf.lock().unwrap() = 0;
        if closes {
            consumer.close().await.unwrap();
        } else {
            assert_eq!(unsubscribe(&mut consumer).await, Ok(()), "{protocol:?}");
        }
        assert_eq!(heard(&told, "leave").len(), 1, "{protocol:?}, {closes}");
    }
}

/// As another member it would have to wait until the group removes the old one.
#[tokio::test]
async fn member_returns_with_its_id_after_a_lost_leave() {
    for protocol in PROTOCOLS {
        let deaf = Arc::new(Mutex::new(usize::MAX));
        let (_server, mut consumer, told) = member(protocol, &deaf).await;
        unsubscribe(&mut consumer).await.unwrap_err();
        subscribed(&mut consumer).await;
        let joined = heard(&told, "join");
        let id = match protocol {
            // The group names its members.
            GroupProtocol::Classic => "me",
            GroupProtocol::Consumer => &joined[0],
        };
        assert!(joined.len() == 2 && joined[1] == id && !id.is_empty(), "{protocol:?}: {joined:?}");
        assert_eq!(heard(&told, "leave"), [""; 0]);
    }
}
