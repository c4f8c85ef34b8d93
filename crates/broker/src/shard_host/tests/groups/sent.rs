//! Requests of groups that are sent as a connection sends them, through the router: where they are worked on, and what they hold.

use super::*;

/// Sends a frame as a connection does.
fn send(router: &Router, frame: BytesMut) -> impl Future<Output = Outcome> + Send + use<> {
    let charge = MemoryBudget::new(usize::MAX).charge(frame.len()).now_or_never().expect("there is room");
    let mut task = Context::from_waker(Waker::noop());
    let staged = router.stage(&mut task, &context().connection, frame, charge);
    async move {
        match staged {
            Staged::Done(outcome) => outcome,
            Staged::Waits(response) => response.await,
            Staged::Records(_) => panic!("no records were sent"),
        }
    }
}

/// Sends a `JoinGroup` of a new member with so much metadata, as a connection does.
fn send_join(router: &Router, metadata_bytes: usize) -> impl Future<Output = Outcome> + Send + use<> {
    let metadata = vec![0; metadata_bytes].into();
    let request = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    send(router, encode_request(&request, 3, 1, None).expect("encodes").bytes.split_off(4))
}

#[tokio::test]
async fn a_large_join_waits_for_its_group_without_a_place_aside() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    assert_eq!(timeout(PATIENCE, join(&broker)).await, Ok(ErrorCode::NONE));
    let runtime = aside::runtime().expect("a runtime");
    let router = Router::new(Arc::clone(&broker), Aside::on(&runtime, 1));
    // More than have a place at once.
    let count = 2 * std::thread::available_parallelism().map_or(1, usize::from) + 1;
    let waiting: Vec<_> = (0..count).map(|_| tokio::spawn(send_join(&router, 100_000))).collect();
    let all_wait = async {
        while broker.groups.host.unanswered.lock().len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        timeout(PATIENCE, all_wait).await.is_ok(),
        "{} of {count} wait",
        broker.groups.host.unanswered.lock().len()
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    runtime.shutdown_background();
}

/// Commits so many offsets that it is done aside, as a connection does.
fn send_commit(router: &Router) -> impl Future<Output = Outcome> + Send + use<> {
    let partition = |partition_index| OffsetCommitRequestPartition { partition_index, ..Default::default() };
    let partitions = (0..2_000).map(partition).collect();
    let topics = vec![OffsetCommitRequestTopic { name: "t".into(), partitions, ..Default::default() }];
    let request = OffsetCommitRequest { group_id: "g".into(), topics, ..Default::default() };
    send(router, encode_request(&request, 8, 1, None).expect("encodes").bytes.split_off(4))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_for_the_disk_have_no_turn_aside() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "60000")).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let runtime = aside::runtime().expect("a runtime");
    let router = Router::new(Arc::clone(&broker), Aside::on(&runtime, usize::MAX));
    let standstill = DiskStandsStill::new(&sim);
    // More than have a turn at once, of all sources together.
    let count = 2 * std::thread::available_parallelism().map_or(1, usize::from) + 1;
    let commits: Vec<_> = (0..count).map(|_| tokio::spawn(send_commit(&router))).collect();
    let all_wait = async {
        while broker.groups.host.open_slots().expect("made")[0].held.replies() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(PATIENCE, all_wait).await.is_ok(), "some wait for a turn");
    drop(standstill);
    for commit in commits {
        let answered = timeout(PATIENCE, commit).await.expect("soon").expect("it ends");
        assert!(matches!(answered, Outcome::Respond(_)));
    }
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_join_with_a_large_body_is_handed_in_aside() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    let runtime = aside::runtime().expect("a runtime");
    let router = Router::new(Arc::clone(&broker), Aside::on(&runtime, 1));
    runtime.shutdown_background();
    let small = timeout(PATIENCE, send_join(&router, 1_000)).await.expect("soon");
    assert!(matches!(small, Outcome::Respond(_)));
    let large = timeout(PATIENCE, send_join(&router, 100_000)).await.expect("soon");
    assert!(matches!(large, Outcome::Close(_)), "nothing is done aside any more");
}

#[tokio::test]
async fn a_group_that_is_named_many_times_is_deleted_once() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit_of(&broker, "g", 1).await, ErrorCode::NONE);
    let request = DeleteGroupsRequest { groups_names: vec!["g".into(), "h".into(), "g".into()] };
    let response = handlers::delete_groups::handle(&broker, &context(), request, 2).await;
    let results = response.results.iter().map(|result| (&*result.group_id, ErrorCode(result.error_code)));
    let expected = [("g", ErrorCode::NONE), ("h", ErrorCode::GROUP_ID_NOT_FOUND)];
    assert_eq!(results.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn an_answer_about_groups_is_weighed_by_what_they_hold_once() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit_of(&broker, "g", 1).await, ErrorCode::NONE);
    let held = broker.groups.cost("g", |shard| shard.cost_of_all("g"));
    assert!(held > 0);
    let groups = vec!["g".into(), "h".into(), "g".into()];
    let described = DescribeGroupsRequest { groups: groups.clone(), ..Default::default() };
    assert_eq!(handlers::describe_groups::answer_bytes(&broker, &described, 5), held);
    let described = ConsumerGroupDescribeRequest { group_ids: groups, ..Default::default() };
    assert_eq!(handlers::consumer_group_describe::answer_bytes(&broker, &described, 0), held);
}
