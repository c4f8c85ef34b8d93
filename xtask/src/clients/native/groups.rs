//! Groups whose members come and go, under both protocols and with each assignor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::bail;
use riverrun_client::{
    Consumer, ErrorCode, NewTopic, RebalanceListener, Revocation, StartAt, TopicPartition,
};

use super::super::rust_cases::{Bench, same};
use super::{
    PATIENCE, Properties, SHORT, admin_of, consumer_of, fails_with, numbered, produce_to, sorted, text,
    topic_of,
};

pub(super) const RANGE: [(&str, &str); 1] = [("partition.assignment.strategy", "range")];
pub(super) const ROUND_ROBIN: [(&str, &str); 1] = [("partition.assignment.strategy", "roundrobin")];
pub(super) const COOPERATIVE: [(&str, &str); 1] = [("partition.assignment.strategy", "cooperative-sticky")];
pub(super) const UNIFORM: [(&str, &str); 2] =
    [("group.protocol", "consumer"), ("group.remote.assignor", "uniform")];
pub(super) const SERVER_RANGE: [(&str, &str); 2] =
    [("group.protocol", "consumer"), ("group.remote.assignor", "range")];

/// Partitions of the topics here.
const PARTITIONS: i32 = 4;

/// A member of a group, which reads one topic.
async fn member(
    bench: &Bench<'_>,
    topic: &str,
    group: &str,
    more: &Properties<'_>,
) -> anyhow::Result<Consumer> {
    let mut consumer = consumer_of(bench, &quick(group, more)).await?;
    consumer.subscribe(&[topic.to_owned()]).await?;
    Ok(consumer)
}

/// Settings with which a member soon learns of changes. In the consumer protocol the server sets the interval of
/// heartbeats.
fn quick<'a>(group: &'a str, more: &Properties<'a>) -> Vec<(&'a str, &'a str)> {
    let mut all = [&[("group.id", group), ("metadata.max.age.ms", "500")], more].concat();
    if !more.contains(&("group.protocol", "consumer")) {
        all.push(("heartbeat.interval.ms", "200"));
    }
    all
}

/// Polls all members in turn and appends their records' values to `values`.
async fn poll_all(members: &mut [Consumer], values: &mut Vec<String>) -> anyhow::Result<()> {
    for member in members {
        let records = member.poll(SHORT).await?;
        values.extend(records.iter().map(|record| text(record.value.as_deref())));
    }
    Ok(())
}

/// Polls until this many partitions are assigned: each to one member, and some to each member.
async fn until_stable(members: &mut [Consumer], partitions: usize) -> anyhow::Result<()> {
    let (begun, mut values) = (Instant::now(), Vec::new());
    loop {
        poll_all(members, &mut values).await?;
        let shares: Vec<_> = members.iter().map(Consumer::assignment).collect();
        let all: Vec<_> = shares.iter().flatten().collect();
        let different: BTreeSet<_> = all.iter().collect();
        if all.len() == partitions
            && different.len() == partitions
            && shares.iter().all(|share| !share.is_empty())
        {
            break;
        }
        if begun.elapsed() > PATIENCE {
            bail!("the partitions are not shared out: {shares:?}");
        }
    }
    same("records before the group is stable", &values, &Vec::new())
}

async fn gather_all(members: &mut [Consumer], count: usize) -> anyhow::Result<Vec<String>> {
    let (begun, mut values) = (Instant::now(), Vec::new());
    while values.len() < count {
        poll_all(members, &mut values).await?;
        if begun.elapsed() > PATIENCE {
            let at = |member: &Consumer| {
                let places: Vec<_> =
                    member.assignment().into_iter().map(|one| (member.position(&one), one)).collect();
                (places, member.trouble())
            };
            let members: Vec<_> = members.iter().map(at).collect();
            bail!("only {} of {count} records came; the members are at {members:?}", values.len());
        }
    }
    Ok(sorted(values))
}

/// One, two, three and two members again: each record is read once, and a later member continues from the commits.
pub(super) async fn life(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "group", PARTITIONS).await?, bench.name("native-group"));
    let mut members = Vec::new();
    for (round, size) in [1, 2, 3, 2].into_iter().enumerate() {
        while members.len() < size {
            members.push(member(bench, &topic, &group, more).await?);
        }
        while members.len() > size {
            members.remove(0).close().await?;
        }
        until_stable(&mut members, 4).await?;
        let prefix = format!("{round}-");
        produce_to(bench, &topic, &prefix, 200, &[]).await?;
        let values = gather_all(&mut members, 200).await?;
        same(&format!("records of {size} members"), &values, &sorted(numbered(&prefix, 200)))?;
    }
    for member in members {
        member.close().await?;
    }
    produce_to(bench, &topic, "late-", 50, &[]).await?;
    let mut last = vec![member(bench, &topic, &group, more).await?];
    same("from the commits", &gather_all(&mut last, 50).await?, &sorted(numbered("late-", 50)))
}

fn shares(members: &[Consumer]) -> Vec<Vec<TopicPartition>> {
    members.iter().map(Consumer::assignment).collect()
}

/// A static member that returns gets its partitions again, and the other one keeps its own.
pub(super) async fn static_member(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "static", PARTITIONS).await?, bench.name("native-static"));
    let named = |name| [more, &[("group.instance.id", name)]].concat();
    let mut members = Vec::new();
    for name in ["one", "two"] {
        members.push(member(bench, &topic, &group, &named(name)).await?);
    }
    until_stable(&mut members, 4).await?;
    let before = shares(&members);
    members.remove(1).close().await?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        members[0].poll(SHORT).await?;
    }
    same("what the other has meanwhile", &members[0].assignment(), &before[0])?;
    members.push(member(bench, &topic, &group, &named("two")).await?);
    until_stable(&mut members, 4).await?;
    same("the shares", &shares(&members), &before)
}

/// Classic protocol: a second member with an instance id takes the first one's place, which is fenced.
pub(super) async fn fenced(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "fenced", PARTITIONS).await?, bench.name("native-fenced"));
    let named = [("group.instance.id", "one")];
    let mut first = vec![member(bench, &topic, &group, &named).await?];
    until_stable(&mut first, 4).await?;
    let mut second = vec![member(bench, &topic, &group, &named).await?];
    until_stable(&mut second, 4).await?;
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = first[0].poll(SHORT).await {
            break error;
        }
        second[0].poll(SHORT).await?;
        if begun.elapsed() > PATIENCE {
            bail!("the first of two members with one name goes on");
        }
    };
    fails_with("the first", Err::<(), _>(error), ErrorCode::FENCED_INSTANCE_ID)
}

/// KIP-848: a second member with an instance id is refused while the first lives.
pub(super) async fn refused(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "refused", PARTITIONS).await?, bench.name("native-refused"));
    let named = [&UNIFORM[..], &[("group.instance.id", "one")]].concat();
    let mut first = vec![member(bench, &topic, &group, &named).await?];
    until_stable(&mut first, 4).await?;
    let mut second = member(bench, &topic, &group, &named).await?;
    fails_with("the second", second.poll(PATIENCE).await, ErrorCode::UNRELEASED_INSTANCE_ID)?;
    until_stable(&mut first, 4).await
}

/// Added partitions are assigned.
pub(super) async fn new_partitions(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "grows", 2).await?, bench.name("native-grows"));
    let mut members = vec![member(bench, &topic, &group, more).await?];
    until_stable(&mut members, 2).await?;
    let totals = BTreeMap::from([(topic.clone(), 5)]);
    super::only(admin_of(bench).await?.create_partitions(&totals, false).await)?;
    until_stable(&mut members, 5).await
}

/// A pattern matches topics, also later ones, and no others.
pub(super) async fn pattern(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<()> {
    let (first, group) = (topic_of(bench, "matches", 2).await?, bench.name("native-pattern"));
    let begin = format!("{first}-");
    topic_of(bench, "does-not-match", 2).await?;
    let properties = quick(&group, more);
    let mut members = vec![consumer_of(bench, &properties).await?];
    members[0].subscribe_pattern(&format!("{first}(-[a-z]+)?")).await?;
    until_stable(&mut members, 2).await?;
    let topic = NewTopic { partitions: Some(3), ..NewTopic::named(format!("{begin}later")) };
    super::only(admin_of(bench).await?.create_topics(vec![topic], false).await)?;
    let topic = NewTopic { partitions: Some(1), ..NewTopic::named(format!("{begin}9")) };
    super::only(admin_of(bench).await?.create_topics(vec![topic], false).await)?;
    until_stable(&mut members, 5).await?;
    members[0].subscribe(std::slice::from_ref(&first)).await?;
    until_stable(&mut members, 2).await?;
    members.remove(0).close().await?;
    let mut refused = consumer_of(bench, &properties).await?;
    let subscribed = refused.subscribe_pattern("(").await;
    let found = match subscribed {
        Ok(()) => refused.poll(PATIENCE).await.map(drop),
        refused => refused,
    };
    same("a pattern that cannot be read", &found.is_err(), &true)
}

/// Events of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    owned: BTreeSet<TopicPartition>,
    revoked: usize,
    lost: usize,
}

/// Commits offsets of its own, with a note, and keeps account of assigned and revoked partitions.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Heard>>);

impl Keeper {
    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl RebalanceListener for Keeper {
    fn assigned(&mut self, partitions: &mut BTreeMap<TopicPartition, StartAt>) {
        let mut heard = self.heard();
        for partition in partitions.keys() {
            assert!(heard.owned.insert(partition.clone()), "{partition} was given twice");
        }
    }

    fn revoked(&mut self, revocation: &mut Revocation) {
        let mut heard = self.heard();
        for partition in &revocation.partitions {
            assert!(heard.owned.remove(partition), "{partition} was taken and had not been given");
        }
        heard.revoked += revocation.partitions.len();
        revocation.commit = std::mem::take(&mut revocation.positions);
        for committed in revocation.commit.values_mut() {
            "by the listener".clone_into(&mut committed.metadata);
        }
    }

    fn lost(&mut self, partitions: &[TopicPartition]) {
        let mut heard = self.heard();
        for partition in partitions {
            assert!(heard.owned.remove(partition), "{partition} was lost and had not been given");
        }
        heard.lost += partitions.len();
    }
}

/// A listener learns of assigned and revoked partitions, and its commits are done before others read on.
pub(super) async fn listener(bench: &Bench<'_>, more: &Properties<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "listener", PARTITIONS).await?, bench.name("native-listener"));
    let by_hand = [more, &[("enable.auto.commit", "false")]].concat();
    let keepers = [Keeper::default(), Keeper::default()];
    let mut members = Vec::new();
    for (round, keeper) in keepers.iter().enumerate() {
        let mut joins = member(bench, &topic, &group, &by_hand).await?;
        joins.set_listener(keeper.clone());
        members.push(joins);
        until_stable(&mut members, 4).await?;
        let prefix = format!("{round}-");
        produce_to(bench, &topic, &prefix, 200, &[]).await?;
        let values = gather_all(&mut members, 200).await?;
        same("each record once", &values, &sorted(numbered(&prefix, 200)))?;
        for (member, keeper) in members.iter().zip(&keepers) {
            let owned: Vec<_> = keeper.heard().owned.iter().cloned().collect();
            same("what it was told", &owned, &member.assignment())?;
        }
    }
    for member in members {
        member.close().await?;
    }
    let heard: Vec<_> = keepers.iter().map(|keeper| keeper.heard().clone()).collect();
    same("nothing is left", &heard.iter().all(|heard| heard.owned.is_empty() && heard.lost == 0), &true)?;
    same("something was taken", &heard.iter().all(|heard| heard.revoked >= 2), &true)?;
    let committed = admin_of(bench).await?.group_offsets(&group).await?;
    same("records committed", &committed.values().map(|one| one.offset.0).sum(), &400)?;
    same("by whom", &committed.values().all(|one| one.metadata == "by the listener"), &true)
}
