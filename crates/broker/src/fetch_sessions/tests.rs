use super::*;

const NOW: Duration = Duration::from_secs(1_000);

fn partition(index: i32) -> PartitionRef {
    PartitionRef { topic: TopicRef::Name(Arc::from("t")), index }
}

fn wanted(index: i32, offset: i64) -> Wanted {
    Wanted {
        partition: partition(index),
        fetch_offset: Offset(offset),
        max_bytes: 1_000,
        current_leader_epoch: LeaderEpoch::UNKNOWN,
        last_fetched_epoch: LeaderEpoch::UNKNOWN,
        told: None,
    }
}

fn request(session_id: i32, session_epoch: i32, wanted: Vec<Wanted>) -> SessionRequest {
    SessionRequest { session_id, session_epoch, wanted, forgotten: Vec::new() }
}

/// Every partition exists.
fn exists(_: &PartitionRef) -> bool {
    true
}

fn indexes(plan: &Plan) -> Vec<i32> {
    plan.wanted().map(|wanted| wanted.partition.index).collect()
}

#[test]
fn a_session_remembers_what_a_client_fetches_and_takes_changes() {
    let cache = SessionCache::new(10);
    let full = cache.begin(request(0, 0, vec![wanted(0, 5), wanted(1, 7)]), false, NOW, 42, exists).unwrap();
    assert_eq!((full.session_id, full.incremental), (42, false));
    drop(full);
    let mut change = request(42, 1, vec![wanted(1, 9), wanted(2, 0)]);
    change.forgotten = vec![partition(0)];
    let plan = cache.begin(change, false, NOW, 0, exists).unwrap();
    assert!(plan.incremental);
    assert_eq!(indexes(&plan), [1, 2]);
    assert_eq!(plan.at(0).fetch_offset, Offset(9));
}

#[test]
fn a_wrong_epoch_or_id_is_refused_and_the_session_goes_on() {
    let cache = SessionCache::new(10);
    cache.begin(request(0, 0, vec![wanted(0, 0)]), false, NOW, 7, exists).unwrap();
    let refused =
        |id, epoch, by_id| cache.begin(request(id, epoch, vec![]), by_id, NOW, 0, exists).unwrap_err();
    assert_eq!(refused(8, 1, false), ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(refused(7, 2, false), ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(refused(7, 1, true), ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
    assert!(cache.begin(request(7, 1, vec![]), false, NOW, 0, exists).is_ok());
}

#[test]
fn the_final_epoch_ends_a_session() {
    let cache = SessionCache::new(10);
    cache.begin(request(0, 0, vec![wanted(0, 0)]), false, NOW, 7, exists).unwrap();
    let plan = cache.begin(request(7, -1, vec![wanted(0, 0)]), false, NOW, 0, exists).unwrap();
    assert_eq!((plan.session_id, plan.incremental, cache.len()), (NO_SESSION, false, 0));
}

#[test]
fn a_partition_with_records_goes_to_the_end_of_the_order() {
    let cache = SessionCache::new(10);
    let three = vec![wanted(0, 0), wanted(1, 0), wanted(2, 0)];
    let plan = cache.begin(request(0, 0, three), false, NOW, 7, exists).unwrap();
    let told = Told { high_watermark: Offset(3), log_start: Offset(0), records: true, error: false };
    plan.finish(&[told]);
    let plan = cache.begin(request(7, 1, vec![]), false, NOW, 0, exists).unwrap();
    assert_eq!(indexes(&plan), [1, 2, 0]);
    assert_eq!(plan.at(2).told, Some((Offset(3), Offset(0))));
    let quiet = Told { records: false, ..told };
    plan.finish(&[quiet, quiet, Told { error: true, ..quiet }]);
    let plan = cache.begin(request(7, 2, vec![]), false, NOW, 0, exists).unwrap();
    assert_eq!(plan.at(2).told, None, "after an error the client is told again");
}

#[test]
fn sessions_are_bounded_and_the_oldest_goes_first() {
    let cache = SessionCache::new(3);
    for (second, id) in [(0, 1), (1, 2), (2, 3)] {
        let at = NOW + Duration::from_secs(second);
        assert_eq!(
            cache.begin(request(0, 0, vec![wanted(0, 0)]), false, at, id, exists).unwrap().session_id,
            i32::try_from(id).unwrap()
        );
    }
    let soon = NOW + Duration::from_mins(1);
    let plan = cache.begin(request(0, 0, vec![wanted(0, 0)]), false, soon, 4, exists).unwrap();
    assert_eq!(plan.session_id, NO_SESSION, "all slots are in use");
    let later = NOW + EVICTION_AGE + Duration::from_millis(500);
    assert_eq!(
        cache.begin(request(0, 0, vec![wanted(0, 0)]), false, later, 5, exists).unwrap().session_id,
        5
    );
    let gone = cache.begin(request(1, 1, vec![]), false, later, 0, exists);
    assert_eq!(gone.err(), Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert!(cache.begin(request(2, 1, vec![]), false, later, 0, exists).is_ok());
    assert_eq!(cache.len(), 3);
}

#[test]
fn the_epoch_wraps_to_one() {
    let cache = SessionCache::new(3);
    cache.begin(request(0, 0, vec![wanted(0, 0)]), false, NOW, 7, exists).unwrap();
    cache.sessions.lock().by_id.get_mut(&7).unwrap().next_epoch = i32::MAX;
    assert!(cache.begin(request(7, i32::MAX, vec![]), false, NOW, 0, exists).is_ok());
    assert!(cache.begin(request(7, 1, vec![]), false, NOW, 0, exists).is_ok());
}

#[test]
fn partitions_of_all_sessions_are_bounded_together() {
    let cache = SessionCache::bounded(10, 3);
    let begin =
        |at, wanted, id| cache.begin(request(0, 0, wanted), false, at, id, exists).unwrap().session_id;
    assert_eq!(begin(NOW, vec![wanted(0, 0), wanted(1, 0)], 1), 1);
    assert_eq!(
        begin(NOW, vec![wanted(0, 0), wanted(1, 0)], 2),
        NO_SESSION,
        "two and two are more than three"
    );
    assert_eq!(begin(NOW, vec![wanted(0, 0)], 3), 3);
    // A change of a partition that the session has needs no room.
    assert!(cache.begin(request(1, 1, vec![wanted(0, 5)]), false, NOW, 0, exists).is_ok());
    let grown = cache.begin(request(1, 2, vec![wanted(2, 0)]), false, NOW, 0, exists);
    assert_eq!(
        grown.err(),
        Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
        "a session cannot grow past the bound"
    );
    assert_eq!(begin(NOW, vec![wanted(0, 0), wanted(1, 0)], 4), 4, "what ended has made room");
    let later = NOW + EVICTION_AGE + Duration::from_secs(1);
    let too_many = (0..4).map(|index| wanted(index, 0)).collect();
    assert_eq!(begin(later, too_many, 5), NO_SESSION);
    assert_eq!(cache.len(), 2, "nobody goes for what will not fit anyway");
    assert_eq!(begin(later, (0..3).map(|index| wanted(index, 0)).collect(), 6), 6);
    assert_eq!(cache.len(), 1, "as many go as it takes");
    cache.begin(request(6, -1, vec![]), false, later, 0, exists).unwrap();
    assert_eq!(cache.sessions.lock().partitions, 0);
}

#[test]
fn unknown_partition_is_answered_and_not_remembered() {
    let cache = SessionCache::new(10);
    let exists = |partition: &PartitionRef| partition.index < 2;
    let plan = cache.begin(request(0, 0, vec![wanted(0, 0), wanted(2, 0)]), false, NOW, 1, exists).unwrap();
    assert_eq!((plan.session_id, plan.len(), cache.len()), (NO_SESSION, 2, 0), "it is answered");
    let plan = cache.begin(request(0, 0, vec![wanted(0, 0)]), false, NOW, 2, exists).unwrap();
    assert_eq!(plan.session_id, 2);
    drop(plan);
    let grown = cache.begin(request(2, 1, vec![wanted(2, 0)]), false, NOW, 0, exists);
    assert_eq!(grown.err(), Some(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert_eq!((cache.len(), cache.sessions.lock().partitions), (0, 0));
}

#[test]
fn partition_named_twice_is_wanted_once_as_named_last() {
    let cache = SessionCache::new(10);
    for epoch in [EPOCH_INITIAL, EPOCH_FINAL] {
        let twice = vec![wanted(1, 5), wanted(0, 0), wanted(1, 7)];
        let plan = cache.begin(request(0, epoch, twice), false, NOW, 1, exists).unwrap();
        assert_eq!(indexes(&plan), [1, 0]);
        assert_eq!(plan.at(0).fetch_offset, Offset(7));
    }
}

#[test]
fn session_goes_on_after_a_given_up_request_and_serves_one() {
    let cache = SessionCache::new(10);
    cache.begin(request(0, 0, vec![wanted(0, 0)]), false, NOW, 7, exists).unwrap();
    let given_up = cache.begin(request(7, 1, vec![wanted(1, 3)]), false, NOW, 0, exists).unwrap();
    let second = cache.begin(request(7, 2, vec![]), false, NOW, 0, exists);
    assert_eq!(second.err(), Some(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
    drop(given_up);
    let plan = cache.begin(request(7, 2, vec![]), false, NOW, 0, exists).unwrap();
    assert_eq!(indexes(&plan), [0, 1]);
}

#[test]
fn a_place_that_was_given_up_is_taken_by_another_partition() {
    let cache = SessionCache::new(10);
    cache
        .begin(request(0, 0, (0..4).map(|index| wanted(index, 0)).collect()), false, NOW, 7, exists)
        .unwrap();
    let mut change = request(7, 1, vec![wanted(4, 0), wanted(1, 0), wanted(3, 8)]);
    change.forgotten = vec![partition(1), partition(2), partition(9)];
    let plan = cache.begin(change, false, NOW, 0, exists).unwrap();
    assert_eq!(indexes(&plan), [0, 3, 4, 1]);
    assert_eq!(plan.at(1).fetch_offset, Offset(8));
    assert_eq!((plan.len(), cache.partitions_of(7)), (4, 4));
}

#[test]
fn a_session_has_a_bound_of_its_own() {
    let cache = SessionCache::new(10);
    let many = |count: usize| (0..).take(count).map(|index| wanted(index, 0)).collect::<Vec<_>>();
    let plan = cache.begin(request(0, 0, many(SESSION_PARTITIONS_MAX + 1)), false, NOW, 7, exists).unwrap();
    assert_eq!((plan.session_id, plan.len()), (NO_SESSION, SESSION_PARTITIONS_MAX + 1));
    let plan = cache.begin(request(0, 0, many(SESSION_PARTITIONS_MAX)), false, NOW, 7, exists).unwrap();
    assert_eq!(plan.session_id, 7);
}
