use riverrun_env::sim::SimEnv;
use riverrun_types::PartitionId;

use super::*;
use crate::metadata::records::Head;
use crate::metadata::testing::image;
use crate::topic_names::OFFSETS_TOPIC;

fn new(name: &str, partition_count: i32) -> NewTopic {
    NewTopic { name: name.into(), partition_count, configs: TopicOverrides::new() }
}

#[test]
fn a_topic_is_found_by_name_and_id_until_it_is_deleted() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    let topic = draft.create_topic(new("flights", 3)).expect("made");
    assert_eq!(topic.partition_count(), 3);
    let log_dir = |index| draft.image().node.log_dir(PartitionId { topic: topic.id, index });
    assert_eq!((log_dir(2), log_dir(3), log_dir(-1)), (Some(0), None, None));
    assert_eq!(draft.image().cluster.topic("flights"), Some(&topic));
    assert_eq!(draft.image().cluster.topic_by_id(topic.id), Some(&topic));
    assert_eq!(draft.image().cluster.partition_count(), 3);
    assert_eq!(draft.delete_topic(topic.id), Ok(topic.clone()));
    assert_eq!(draft.delete_topic(topic.id), Err(TopicError::Unknown));
    assert_eq!(
        (draft.image().cluster.topic("flights"), draft.image().cluster.topic_by_id(topic.id)),
        (None, None)
    );
    assert_eq!(draft.image().cluster.partition_count(), 0);
}

#[test]
fn a_name_that_differs_only_in_dots_and_underscores_is_refused() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    let topic = draft.create_topic(new("a.b", 1)).expect("made");
    let error = draft.create_topic(new("a_b", 1)).expect_err("collides");
    assert_eq!(error.to_string(), "Topic 'a_b' collides with existing topic: a.b");
    assert_eq!(draft.create_topic(new("a.b", 1)), Err(TopicError::Exists("a.b".into())));
    draft.delete_topic(topic.id).expect("deleted");
    assert!(draft.create_topic(new("a_b", 1)).is_ok());
}

#[test]
fn offsets_topic_is_made_beside_a_similar_name() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    for like_it in ["__consumer.offsets", "._consumer_offsets"] {
        let refused = draft.create_topic(new(like_it, 1));
        assert!(matches!(refused, Err(TopicError::Collides { .. })), "{like_it}: {refused:?}");
    }
    let id = draft.random_topic_id();
    let (name, configs) = ("__consumer.offsets".to_owned(), TopicOverrides::new());
    draft.record(Record::TopicCreated { id, name, dirs: vec![0], configs, starts: 0 });
    draft.create_topic(new(OFFSETS_TOPIC, 1)).expect("made though an older server took the other one");
    draft.delete_topic(id).expect("deleted");
    assert_eq!(draft.create_topic(new(OFFSETS_TOPIC, 1)), Err(TopicError::Exists(OFFSETS_TOPIC.into())));
}

#[test]
fn impossible_partition_counts_leave_nothing_behind() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    for count in [0, -1, i32::MIN, TOPIC_PARTITIONS_MAX + 1, i32::MAX] {
        let result = draft.create_topic(new("t", count));
        assert!(matches!(result, Err(TopicError::InvalidPartitions(_))), "{count}");
    }
    assert_eq!(draft.image().cluster.topics().count(), 0);
    assert!(draft.into_parts().1.is_empty());
}

#[test]
fn the_server_takes_a_bounded_number_of_partitions() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    for index in 0..10 {
        draft.create_topic(new(&format!("t{index}"), TOPIC_PARTITIONS_MAX)).expect("within the bound");
    }
    assert!(matches!(draft.create_topic(new("more", 1)), Err(TopicError::TooManyPartitions(_))));
    assert!(matches!(draft.grow_topic("t0", i32::MAX), Err(TopicError::InvalidPartitions(_))));
}

#[test]
fn new_partitions_are_placed_where_the_fewest_are() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(3), &*env.random);
    draft.create_topic(new("a", 4)).expect("made");
    draft.create_topic(new("b", 1)).expect("made");
    let grown = draft.grow_topic("b", 4).expect("grown");
    assert_eq!(draft.image().node.placement(grown.id), [1, 2, 0, 1]);
    let counts: Vec<_> = draft.image().node.log_dirs().iter().map(|dir| dir.partition_count).collect();
    assert_eq!(counts, [3, 3, 2]);
}

#[test]
fn a_topic_only_grows() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    draft.create_topic(new("a", 4)).expect("made");
    for total in [4, 3, 0, -1] {
        assert!(matches!(draft.grow_topic("a", total), Err(TopicError::InvalidPartitions(_))), "{total}");
    }
    assert_eq!(draft.grow_topic("b", 4), Err(TopicError::Unknown));
    assert_eq!(draft.grow_topic("a", 5).map(|topic| topic.partition_count()), Ok(5));
}

#[test]
fn a_deleted_topic_is_remembered_until_its_files_are_gone() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(2), &*env.random);
    let id = draft.create_topic(new("a", 3)).expect("made").id;
    draft.forget_topics(&[id]);
    draft.delete_topic(id).expect("deleted");
    assert_eq!(draft.image().node.doomed().get(&id).map(|dirs| dirs.to_vec()), Some(vec![0, 1, 0]));
    draft.forget_topics(&[id, TopicId([9; 16])]);
    assert!(draft.image().node.doomed().is_empty());
    assert_eq!(draft.into_parts().1.len(), 3);
}

#[test]
fn configs_that_stay_the_same_cost_no_record() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    let id = draft.create_topic(new("a", 1)).expect("made").id;
    let configs: TopicOverrides = [("retention.ms".to_owned(), "1".to_owned())].into();
    draft.set_topic_configs(id, configs.clone()).expect("set");
    draft.set_topic_configs(id, configs.clone()).expect("set");
    assert_eq!(*draft.image().cluster.topic("a").expect("there").configs, configs);
    assert_eq!(draft.into_parts().1.len(), 2);
}

/// Configs of a group with this interval.
fn own_configs(heartbeat_interval_ms: &str) -> GroupOverrides {
    [("consumer.heartbeat.interval.ms".to_owned(), heartbeat_interval_ms.to_owned())].into()
}

#[test]
fn configs_of_a_group_cost_a_record_only_where_they_change() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(1), &*env.random);
    for configs in [GroupOverrides::new(), own_configs("6000"), own_configs("6000"), GroupOverrides::new()] {
        draft.set_group_configs("g", configs).expect("set");
    }
    assert_eq!(draft.image().cluster.group_configs("g"), None);
    assert_eq!(draft.into_parts().1.len(), 2);
}

#[test]
fn a_bounded_number_of_groups_sets_configs_for_itself() {
    let env = SimEnv::new(1).env();
    let mut image = image(1);
    for index in 0..CONFIGURED_GROUPS_MAX {
        let (group, configs) = (format!("g{index}"), own_configs("6000"));
        image.apply(Record::GroupConfigsSet { group, configs }).expect("fits");
    }
    let mut draft = Draft::new(&image, &*env.random);
    draft.set_group_configs("more", own_configs("6000")).expect_err("too many");
    draft.set_group_configs("g0", own_configs("7000")).expect("it is there");
    draft.set_group_configs("g0", GroupOverrides::new()).expect("one less");
    draft.set_group_configs("more", own_configs("6000")).expect("there is room");
}

#[test]
fn an_image_is_rebuilt_from_its_own_records() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(2), &*env.random);
    draft.start_node();
    draft.create_topic(new("a.b", 3)).expect("made");
    draft.create_topic(new("c", 2)).expect("made");
    draft.set_group_configs("g", own_configs("6000")).expect("set");
    draft.set_group_configs("empty", own_configs("6000")).expect("set");
    draft.set_group_configs("empty", GroupOverrides::new()).expect("set");
    let gone = draft.create_topic(new("gone", 2)).expect("made").id;
    draft.delete_topic(gone).expect("deleted");
    assert_eq!((draft.reserve_producer_ids(1000), draft.reserve_producer_ids(1000)), (0, 1000));
    let (first, _) = draft.into_parts();
    let head = Head { cluster_id: "c".into(), node_id: 1, generation: 0, frames: 0, is_last: false };
    let mut second = Image::new(&head);
    for record in first.to_records() {
        second.apply(record).expect("fits");
    }
    let (cluster, node) = (&second.cluster, &second.node);
    assert_eq!(first.cluster.topics_sorted(), cluster.topics_sorted());
    for topic in cluster.topics() {
        assert_eq!(first.node.placement(topic.id), node.placement(topic.id));
        assert_eq!(node.placed(topic.id).count(), usize::try_from(topic.partition_count()).expect("few"));
    }
    assert_eq!(first.cluster.partition_count(), cluster.partition_count());
    assert_eq!(first.node.log_dirs(), node.log_dirs());
    assert_eq!(first.node.doomed(), node.doomed());
    assert_eq!(cluster.group_configs("g"), Some(&own_configs("6000")));
    assert_eq!(cluster.configured_groups().count(), 1);
    assert!(node.doomed().contains_key(&gone));
    assert_eq!(cluster.starts(), 1);
    assert_eq!(cluster.producer_ids_end(), 2000);
    assert!(cluster.colliding_topic("a_b").is_some());
}

#[test]
fn random_ids_are_never_kafkas_sentinels_nor_begin_with_a_dash() {
    let env = SimEnv::new(3).env();
    for _ in 0..2000 {
        let id = random_id(&*env.random);
        assert!(!id.is_zero() && !id.to_string().starts_with('-'));
        assert_eq!((id.0[6] >> 4, id.0[8] >> 6), (4, 2));
    }
}

#[test]
fn closed_dirs_get_no_partitions_even_if_all_are_closed() {
    let env = SimEnv::new(1).env();
    let mut draft = Draft::new(&image(3), &*env.random);
    draft.avoid([0, 2].into());
    let topic = draft.create_topic(new("t", 4)).expect("one dir is left");
    assert!(draft.image().node.placement(topic.id).iter().all(|dir| *dir == 1));
    let mut draft = Draft::new(&image(3), &*env.random);
    draft.avoid([0, 1, 2].into());
    assert_eq!(draft.create_topic(new("t", 1)).expect_err("nowhere to go"), TopicError::NoLogDir);
    assert!(draft.into_parts().1.is_empty());
}
