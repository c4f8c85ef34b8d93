//! Requests that wait for something to come, and may wait long: what they hold meanwhile, and how long others wait for that.

use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::fetch_request::ForgottenTopic;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::{ApiVersionsRequest, FetchRequest, JoinGroupRequest};

use crate::alone;
use crate::support::{
    Client, assert_serves, create_topic, fetch_request, find_coordinator, only, server_with,
};

/// The least memory for requests that a server may be given.
const LITTLE: (&str, &str) = ("queued.max.request.bytes", "1048576");
/// Longer than anything takes that nobody holds up.
const AT_ONCE: Duration = Duration::from_secs(8);

/// A fetch that waits as long as it may for more than there will be.
fn patient(topic: &str) -> FetchRequest<'_> {
    FetchRequest {
        max_wait_ms: i32::MAX,
        min_bytes: i32::MAX,
        max_bytes: i32::MAX,
        ..fetch_request(topic, 0, 0)
    }
}

#[track_caller]
fn assert_answers_at_once(server: &Server) {
    for _ in 0..10 {
        let mut honest = Client::new(server);
        honest.set_timeout(AT_ONCE);
        let since = Instant::now();
        assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
        assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
    }
}

#[test]
fn fetches_that_wait_do_not_keep_the_memory_of_their_requests() {
    let _alone = alone();
    let server = server_with(&[LITTLE]);
    let mut rude = Client::new(&server);
    create_topic(&mut rude, "t", 1, &[]);
    // As long as a request may be without being large, for the sake of what it does not need.
    let padding = "x".repeat(30_000);
    let forgotten = ForgottenTopic { topic: padding.as_str().into(), ..Default::default() };
    let padded = FetchRequest { forgotten_topics_data: vec![forgotten.clone(), forgotten], ..patient("t") };
    for _ in 0..300 {
        rude.send(&padded, 12);
    }
    assert_answers_at_once(&server);
    assert!(
        rude.is_quiet_for(Duration::from_millis(1_500)),
        "they wait, since nobody else needs their memory"
    );
}

#[test]
fn a_fetch_that_needs_much_memory_while_it_waits_is_answered_when_others_wait_for_that() {
    let _alone = alone();
    let server = server_with(&[LITTLE]);
    let mut large = Client::new(&server);
    create_topic(&mut large, "t", 1, &[]);
    let mut request = patient("t");
    let topic = &mut request.topics[0];
    topic.partitions = vec![topic.partitions[0].clone(); 8_000];
    for _ in 0..3 {
        large.send(&request, 12);
        assert!(large.is_quiet_for(Duration::from_millis(500)), "it waits");
        assert_answers_at_once(&server);
        let (_, answer) = large.receive::<FetchRequest<'_>>(12);
        assert_eq!((answer.error_code, answer.responses[0].partitions.len()), (0, 8_000));
    }
    assert_serves(&server);
}

#[test]
fn a_fetch_waits_for_half_of_the_time_in_which_its_connection_would_be_idle() {
    let _alone = alone();
    let server = server_with(&[("connections.max.idle.ms", "1500")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for _ in 0..3 {
        let since = Instant::now();
        assert!(
            only(client.call(&patient("t"), 12))
                .records
                .is_none_or(|records| records.as_bytes().is_none_or(<[u8]>::is_empty))
        );
        assert!(since.elapsed() >= Duration::from_millis(750), "{:?}", since.elapsed());
    }
}

#[test]
fn a_connection_is_idle_also_while_it_waits_for_an_answer() {
    let _alone = alone();
    let options = [("connections.max.idle.ms", "1000"), ("group.initial.rebalance.delay.ms", "600000")];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    find_coordinator(&mut client, "g");
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    let join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 600_000,
        rebalance_timeout_ms: i32::MAX,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    client.send(&join, 3);
    client.expect_closed("a connection on which nothing happens");
}
