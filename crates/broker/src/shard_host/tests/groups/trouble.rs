//! Group answers carry a text beside their error code while the log of group offsets takes nothing.

use riverrun_protocol::Str;

use super::*;

/// The texts that stand beside the codes of answers about the group `g`.
async fn told(broker: &Arc<Broker>) -> [(ErrorCode, Option<String>); 3] {
    let text = |code: i16, text: Option<Str<'_>>| (ErrorCode(code), text.map(|text| text.to_string()));
    let beat = ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        member_epoch: 1,
        ..Default::default()
    };
    let beat = handlers::consumer_group_heartbeat::handle(broker, &context(), beat, 1).await;
    let newer = ConsumerGroupDescribeRequest { group_ids: vec!["g".into()], ..Default::default() };
    let mut newer = handlers::consumer_group_describe::handle(broker, &context(), newer, 1).await;
    let newer = newer.groups.remove(0);
    let mut classic = Vec::new();
    for version in [5, 6] {
        let request = DescribeGroupsRequest { groups: vec!["g".into()], ..Default::default() };
        let mut described = handlers::describe_groups::handle(broker, &context(), request, version).await;
        classic.push(described.groups.remove(0));
    }
    assert_eq!(classic.remove(0).error_message, None, "version 5 has no place for it");
    let classic = classic.remove(0);
    [
        text(beat.error_code, beat.error_message),
        text(newer.error_code, newer.error_message),
        text(classic.error_code, classic.error_message),
    ]
}

#[tokio::test]
async fn who_asks_for_a_group_while_the_disk_is_full_is_told_so() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_at(&sim, "4").await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    sim.fs.set_space(Some(0));
    assert_eq!(commit(&broker, 8).await, ErrorCode::NOT_COORDINATOR);
    for (code, text) in told(&broker).await {
        assert_eq!(code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
        assert!(text.as_ref().is_some_and(|text| text.contains(NO_SPACE)), "{text:?}");
    }
    let health = broker.health().troubles().join("\n");
    assert!(health.contains("cannot be loaded or changed: ") && health.contains(NO_SPACE), "{health}");
    sim.fs.set_space(None);
    sim.clock.advance(REST);
    assert_eq!(commit(&broker, 9).await, ErrorCode::NONE);
    assert!(told(&broker).await.iter().all(|(_, text)| text.as_ref().is_none_or(|t| !t.contains(NO_SPACE))));
}
