//! Administration: topics, configs, the cluster, offsets and groups.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, bail};
use riverrun_client::{
    ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ErrorCode, Isolation, NewTopic, Offset,
    OffsetSpec, StartAt, TopicPartition,
};

use super::super::rust_cases::{Bench, same};
use super::{
    PATIENCE, SHORT, admin_of, all_from, consumer_of, fails_with, gather, only, produce_to, topic_of,
};

pub(super) async fn topics(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    let name = bench.name("native-admin");
    let configs = BTreeMap::from([("retention.ms".to_owned(), "1234567".to_owned())]);
    let topic = NewTopic { partitions: Some(3), configs, ..NewTopic::named(&name) };
    only(admin.create_topics(vec![topic.clone()], true).await)?;
    let absent = only(admin.describe_topics(std::slice::from_ref(&name)).await);
    fails_with("only validated", absent, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    let created = only(admin.create_topics(vec![topic], false).await)?;
    same("created", &(created.partitions, created.replication), &(3, 1))?;
    // Kafka's broker learns of it on another thread.
    let describe = async || only(admin.describe_topics(std::slice::from_ref(&name)).await);
    let begun = Instant::now();
    while describe().await.is_err() && begun.elapsed() < PATIENCE {
        tokio::time::sleep(SHORT).await;
    }
    let described = describe().await?;
    same("its id", &described.id, &created.id)?;
    same("partitions", &described.partition_count(), &3)?;
    let listed = admin.list_topics().await?;
    same("listed", &listed.iter().filter(|topic| topic.name == name).count(), &1)?;
    only(admin.create_partitions(&BTreeMap::from([(name.clone(), 5)]), false).await)?;
    let count = async || describe().await.map(|topic| topic.partition_count());
    let begun = Instant::now();
    while count().await? != 5 && begun.elapsed() < PATIENCE {
        tokio::time::sleep(SHORT).await;
    }
    same("grown", &count().await?, &5)?;
    only(admin.delete_topics(std::slice::from_ref(&name)).await)?;
    while count().await.is_ok() && begun.elapsed() < PATIENCE {
        tokio::time::sleep(SHORT).await;
    }
    fails_with("deleted", count().await, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

pub(super) async fn topics_refused(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    let name = topic_of(bench, "refused", 2).await?;
    let create = async |topic: NewTopic| only(admin.create_topics(vec![topic], false).await);
    let named = |name: &str| NewTopic::named(name);
    fails_with("twice", create(named(&name)).await, ErrorCode::TOPIC_ALREADY_EXISTS)?;
    fails_with("a bad name", create(named("a b")).await, ErrorCode::INVALID_TOPIC_EXCEPTION)?;
    let other = bench.name("native-refused");
    let none = NewTopic { partitions: Some(0), ..named(&other) };
    fails_with("no partition", create(none).await, ErrorCode::INVALID_PARTITIONS)?;
    let replicas = NewTopic { partitions: Some(1), replication: Some(3), ..named(&other) };
    fails_with("three replicas", create(replicas).await, ErrorCode::INVALID_REPLICATION_FACTOR)?;
    let configs = BTreeMap::from([("retention.ms".to_owned(), "soon".to_owned())]);
    fails_with("a config", create(NewTopic { configs, ..named(&other) }).await, ErrorCode::INVALID_CONFIG)?;
    let fewer = only(admin.create_partitions(&BTreeMap::from([(name, 1)]), false).await);
    fails_with("fewer partitions", fewer, ErrorCode::INVALID_PARTITIONS)?;
    let gone = only(admin.delete_topics(&[other]).await);
    fails_with("not there", gone, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

pub(super) async fn configs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    let topic = ConfigResource::Topic(topic_of(bench, "configs", 1).await?);
    let value = async |name: &str| -> anyhow::Result<_> {
        let entries = admin.describe_configs_named(&topic, &[name]).await?;
        let entry = entries.into_iter().next().with_context(|| format!("{name} is not described"))?;
        Ok((entry.value.unwrap_or_default(), entry.source))
    };
    let change = async |change: ConfigChange| {
        only(admin.alter_configs(&BTreeMap::from([(topic.clone(), vec![change])]), false).await)
    };
    // Kafka's broker learns of it on another thread.
    let becomes = async |name: &str, wanted: &dyn Fn(&str, ConfigSource) -> bool| -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let (text, source) = value(name).await?;
            if wanted(&text, source) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                bail!("{name} stays {text:?} of the {source}");
            }
            tokio::time::sleep(SHORT).await;
        }
    };
    change(ConfigChange::set("max.message.bytes", "54321")).await?;
    becomes("max.message.bytes", &|text, source| text == "54321" && source == ConfigSource::Topic).await?;
    let operation = ConfigOperation::Append("compact".to_owned());
    change(ConfigChange { name: "cleanup.policy".to_owned(), operation }).await?;
    becomes("cleanup.policy", &|text, _| text.contains("compact")).await?;
    let operation = ConfigOperation::Delete;
    change(ConfigChange { name: "max.message.bytes".to_owned(), operation }).await?;
    becomes("max.message.bytes", &|_, source| source != ConfigSource::Topic).await?;
    let refused = change(ConfigChange::set("max.message.bytes", "many")).await;
    fails_with("no number", refused, ErrorCode::INVALID_CONFIG)?;
    let node = admin.describe_cluster().await?.nodes.first().context("no server")?.id;
    let all = admin.describe_configs(&ConfigResource::Broker(node)).await?;
    same("a server's", &all.iter().any(|entry| entry.name == "log.retention.ms"), &true)
}

pub(super) async fn cluster(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    let topic = topic_of(bench, "cluster", 2).await?;
    produce_to(bench, &topic, "v", 100, &[]).await?;
    let cluster = admin.describe_cluster().await?;
    same("servers", &cluster.nodes.len(), &1)?;
    let node = &cluster.nodes[0];
    same("address", &format!("{}:{}", node.host, node.port), &bench.bootstrap())?;
    same("an id", &cluster.cluster_id.is_empty(), &false)?;
    let mut stored = 0;
    for (_, dirs) in admin.describe_log_dirs(None).await? {
        let replicas = dirs?.into_iter().flat_map(|dir| dir.replicas);
        stored += replicas.filter(|replica| *replica.partition.topic == *topic).count();
    }
    same("replicas", &stored, &2)
}

pub(super) async fn offsets(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    let topic = topic_of(bench, "offsets", 1).await?;
    produce_to(bench, &topic, "v", 100, &[]).await?;
    let partition = TopicPartition::new(topic.as_str(), 0);
    let list = async |spec| -> anyhow::Result<_> {
        let found =
            only(admin.list_offsets(vec![(partition.clone(), spec)], Isolation::ReadUncommitted).await)?;
        Ok(found.map(|found| found.offset))
    };
    same("the end", &list(OffsetSpec::Latest).await?, &Some(Offset(100)))?;
    same("the largest time", &list(OffsetSpec::MaxTimestamp).await?.is_some(), &true)?;
    let before = BTreeMap::from([(partition.clone(), Offset(40))]);
    same("deleted up to", &only(admin.delete_records(&before).await)?, &Offset(40))?;
    same("the beginning", &list(OffsetSpec::Earliest).await?, &Some(Offset(40)))?;
    let beyond = BTreeMap::from([(partition.clone(), Offset(101))]);
    fails_with("beyond the end", only(admin.delete_records(&beyond).await), ErrorCode::OFFSET_OUT_OF_RANGE)
}

pub(super) async fn producers(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "producers", 1).await?;
    produce_to(bench, &topic, "v", 30, &[]).await?;
    let partition = TopicPartition::new(topic.as_str(), 0);
    let found = only(admin_of(bench).await?.describe_producers(&[partition]).await)?;
    same("producers", &found.len(), &1)?;
    same("the last sequence number", &found[0].last_sequence, &29)
}

pub(super) async fn groups(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    for (protocol, kind) in [("classic", "classic"), ("consumer", "consumer")] {
        let (topic, group) = (topic_of(bench, "groups", 2).await?, bench.name("native-groups"));
        produce_to(bench, &topic, "v", 20, &[]).await?;
        let mut member = consumer_of(bench, &[("group.id", &group), ("group.protocol", protocol)]).await?;
        member.subscribe(std::slice::from_ref(&topic)).await?;
        gather(&mut member, 20).await?;
        member.commit().await?;
        let described = only(admin.describe_groups(std::slice::from_ref(&group)).await)?;
        same(
            "kind and state",
            &(described.group_type.as_str(), described.state.as_str()),
            &(kind, "Stable"),
        )?;
        same("members", &described.members.len(), &1)?;
        same("what it reads", &described.members[0].assignment, &member.assignment())?;
        let listed = admin.list_groups().await?;
        same("listed", &listed.iter().filter(|listing| listing.group == group).count(), &1)?;
        let refused = only(admin.delete_groups(std::slice::from_ref(&group)).await);
        fails_with("with a member", refused, ErrorCode::NON_EMPTY_GROUP)?;
        member.close().await?;
        only(admin.delete_groups(std::slice::from_ref(&group)).await)?;
        let gone = only(admin.delete_groups(&[group]).await);
        fails_with("not there", gone, ErrorCode::GROUP_ID_NOT_FOUND)?;
    }
    Ok(())
}

pub(super) async fn group_offsets(bench: &Bench<'_>) -> anyhow::Result<()> {
    let admin = admin_of(bench).await?;
    let (topic, group) = (topic_of(bench, "group-offsets", 1).await?, bench.name("native-group-offsets"));
    let partition = TopicPartition::new(topic.as_str(), 0);
    produce_to(bench, &topic, "v", 50, &[]).await?;
    only(admin.alter_group_offsets(&group, &BTreeMap::from([(partition.clone(), Offset(45))])).await)?;
    let offsets = admin.group_offsets(&group).await?;
    same("set", &offsets.get(&partition).map(|one| one.offset), &Some(Offset(45)))?;
    let mut consumer = consumer_of(bench, &[("group.id", &group), ("enable.auto.commit", "false")]).await?;
    consumer.assign(all_from(&topic, 1, StartAt::Committed)).await?;
    gather(&mut consumer, 5).await?;
    only(admin.delete_group_offsets(&group, std::slice::from_ref(&partition)).await)?;
    same("remembered", &admin.group_offsets(&group).await?.contains_key(&partition), &false)
}
