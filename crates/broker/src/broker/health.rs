//! The findings of `/health`: all that keeps the server from its work.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riverrun_journal::Journal;
use riverrun_log::LogError;
use riverrun_types::PartitionId;

use super::Broker;
use crate::groups::BOUNDS;
use crate::health::{Code, Finding, Health, Object};
use crate::metadata::{ClusterImage, Topic};
use crate::topic_names::OFFSETS_TOPIC;
use crate::waits::{ToldWait, Wait};

/// Offline partitions that health names at most.
const OFFLINE_SHOWN_MAX: usize = 10;
/// A journal that is full for longer is a trouble; for shorter it is load.
const JOURNAL_FULL_MAX: Duration = Duration::from_secs(10);

impl Broker {
    /// Tries again to open partitions of a log dir that a shortage has kept closed: perhaps no client ever uses them again. A dir
    /// that is still short of something is left alone until the next time, because opening may mean to read much. The first
    /// partition is chosen by chance, so that one that is short for good does not keep the others of its log dir closed. Blocks
    /// for the disk.
    pub(crate) fn open_after_shortages(&self, dir: usize) {
        let image = self.catalog.cluster();
        let mut closed = self.replicas.open_failures.of_shortages();
        closed.retain(|id| {
            let lies_in = self.replicas.log_dir(*id);
            lies_in.is_none_or(|lies_in| lies_in == dir)
        });
        let first = self.env.random.next_u64() % (closed.len() as u64).max(1);
        closed.rotate_left(usize::try_from(first).unwrap_or(0));
        for id in closed {
            let topic = image.topic_by_id(id.topic);
            if topic.is_none_or(|topic| self.partition(topic, id.index).is_ok()) {
                self.replicas.open_failures.forget(id);
            } else if self.replicas.open_failures.is_of_shortage(id) {
                return;
            }
        }
    }

    /// Whether a partition is known to be offline. Clients get no leader for it then, so that they turn to other partitions.
    /// A log that could not be opened for a reason that may pass keeps its leader, because the next use tries again.
    pub(crate) fn is_offline(&self, topic: &Topic, index: i32) -> bool {
        let id = PartitionId { topic: topic.id, index };
        self.replicas.log_dir(id).is_some_and(|dir| self.logs.is_offline(id, dir))
    }

    /// Tells the supervisor of threads that journals have started and that have died.
    fn look_at_journal_threads(&self) {
        for journal in self.logs.journals() {
            let name = journal_thread(journal);
            match journal.dead_thread() {
                Some(thread) => self.supervisor.dead(&name, &format!("its thread {thread} panicked")),
                None => self.supervisor.lives(&name),
            }
        }
    }

    /// Why nothing can be written any more, if that is so, or a journal has vanished: records that are not settled are in memory
    /// only then, and stopping settles them. Waits for nothing.
    fn storage_failure(&self) -> Option<String> {
        if let Some(reason) = self.catalog.store().failure() {
            return Some(metadata_failed(&reason));
        }
        if let Some(vanished) = self.logs.journals().find_map(Journal::vanished) {
            return Some(vanished.to_string());
        }
        let dirs = 0..self.logs.dir_count();
        let failures: Option<Vec<_>> = dirs.map(|dir| self.logs.dir_failure(dir)).collect();
        let failures: Vec<String> = failures?.iter().map(LogError::to_string).collect();
        Some(format!("no log dir is left: {}", failures.join("; ")))
    }

    /// The server's health. Waits neither for changes to the metadata nor for the opening or closing of partitions.
    pub(crate) fn health(&self) -> Health {
        let dead = self.supervisor.troubles().into_iter();
        let mut found: Vec<Finding> = dead.map(|text| of_process(Code::ThreadDied, text)).collect();
        let failed = self.catalog.store().failure().map(|reason| metadata_failed(&reason));
        found.extend(failed.map(|text| of_process(Code::MetadataFailed, text)));
        self.look_at_storage(&mut found);
        found.extend(self.offline_partitions());
        found.extend(self.unwritable_partitions());
        found.extend(self.unreadable_partitions());
        found.extend(self.unknown_partitions().map(|text| of_process(Code::PartitionsUnknown, text)));
        found.extend(self.uncleanable_partitions());
        let copy = self.catalog.store().copy_trouble();
        found.extend(copy.map(|text| of_process(Code::MetadataCopyOld, text)));
        let copy = self.journals.copy_trouble();
        found.extend(copy.map(|text| of_process(Code::JournalListCopyOld, text)));
        found.extend(self.groups.failed_shard().map(groups_failed));
        found.extend(self.groups.cut_shard().map(groups_cut));
        found.extend(self.mounts.troubles());
        found.extend(self.cordoned_dirs());
        found.extend(self.waits.told().into_iter().map(|told| self.wait(told)));
        let warn = |code| move |text| Finding::warning(code, Object::Process, text);
        found.extend(topics_set_aside(self.catalog.store().set_aside()).map(warn(Code::TopicsSetAside)));
        let lost = self.log_account.get().and_then(|account| account.warning());
        found.extend(lost.map(warn(Code::LogLinesLost)));
        // Not critical: requests for little are served, and clients that do not read are sent away.
        found.extend(self.budgets.responses.trouble().map(warn(Code::ResponseMemoryShort)));
        // Not critical: the groups that are there go on, and sources that hold little find room.
        found.extend(self.groups.shortage().map(warn(Code::GroupMemoryShort)));
        Health::of(found)
    }

    /// Adds the findings about log dirs and journals.
    fn look_at_storage(&self, found: &mut Vec<Finding>) {
        let of_dirs = |code, trouble: &dyn Fn(usize) -> Option<String>| -> Vec<Finding> {
            let told = (0..self.logs.dir_count()).filter_map(|dir| Some((dir, trouble(dir)?)));
            let object = |dir| Object::log_dir(self.logs.dir_path(dir));
            told.map(|(dir, text)| Finding::critical(code, object(dir), text)).collect()
        };
        let of_journals = |code, trouble: &dyn Fn(&Journal) -> Option<String>| -> Vec<Finding> {
            let told = self.logs.journals().filter_map(|journal| Some((journal, trouble(journal)?)));
            told.map(|(journal, text)| Finding::critical(code, Object::journal(journal.dir()), text))
                .collect()
        };
        found.extend(of_dirs(Code::LogDirFailed, &|dir| Some(self.logs.dir_failure(dir)?.to_string())));
        found.extend(of_journals(Code::JournalFailed, &|journal| Some(journal.failure()?.to_string())));
        let waits = |journal: &Journal| Some(format!("a journal waits: {}", journal.shortage()?));
        found.extend(of_journals(Code::JournalShort, &waits));
        found.extend(of_journals(Code::JournalFull, &full_journal));
        found.extend(of_dirs(Code::LogDirShort, &|dir| Some(self.logs.dir_shortage(dir)?.to_string())));
        found.extend(self.logs.stuck_dirs().iter().map(|(dir, reason)| {
            Finding::critical(Code::LogDirStuck, Object::log_dir(dir), stuck_dir(dir, reason))
        }));
        found.extend(self.catalog.store().unanswered_mark().map(unanswered));
    }

    fn cordoned_dirs(&self) -> Vec<Finding> {
        let node = self.catalog.node();
        let dirs = node.log_dirs().iter().enumerate();
        let cordoned = dirs.filter(|(index, _)| node.is_cordoned(*index)).map(|(_, dir)| &dir.path);
        let finding = |path: &PathBuf| {
            let text = format!("log dir {} is cordoned: it gets no new partitions", path.display());
            Finding::known(Code::LogDirCordoned, Object::log_dir(path), text)
        };
        cordoned.map(finding).collect()
    }

    /// The finding for a wait that the watchdog tells of.
    fn wait(&self, ToldWait { wait, is_trouble, text }: ToldWait) -> Finding {
        let journal = |index| self.logs.journals().nth(index).map(|journal| Object::journal(journal.dir()));
        let (code, object) = match wait {
            Wait::WriteCache => (Code::WaitWriteCache, None),
            Wait::LogDir(dir) => (Code::WaitLogDir, Some(Object::log_dir(self.logs.dir_path(dir)))),
            Wait::Metadata => (Code::WaitMetadata, None),
            Wait::Journal(index) => (Code::WaitJournal, journal(index)),
            Wait::RequestMemory => (Code::WaitRequestMemory, None),
            Wait::AnyRequestMemory => (Code::WaitAnyRequestMemory, None),
            Wait::ResponseMemory => (Code::WaitResponseMemory, None),
            Wait::NetworkThreads => (Code::WaitNetworkThreads, None),
            Wait::Turns => (Code::WaitTurns, None),
        };
        let make = if is_trouble { Finding::critical } else { Finding::warning };
        make(code, object.unwrap_or(Object::Process), text)
    }

    /// The partitions in the journals that the metadata does not know, if there are any.
    pub(crate) fn unknown_partitions(&self) -> Option<String> {
        let unknown = self.logs.unknown_partitions();
        let first = unknown.first()?;
        let topics: BTreeSet<_> = unknown.iter().map(|id| id.topic).collect();
        let files: Vec<_> = self.logs.unknown_files().iter().map(|path| path.display().to_string()).collect();
        Some(format!(
            "the journal has records of {} partitions of {} topics that the metadata does not know, as {first}; they \
             are kept in {}: restore {} from a copy, or, to give these records up, stop the server in order and move \
             the files away",
            unknown.len(),
            topics.len(),
            files.join(", "),
            self.config.meta_dir().display(),
        ))
    }

    /// Partitions that take no records although their log dirs do; one line, however many they are.
    fn unwritable_partitions(&self) -> Option<Finding> {
        let unwritable = self.logs.unwritable();
        let (first, reason) = unwritable.iter().min_by_key(|(id, _)| *id)?;
        let name = name_of(&self.catalog.cluster(), *first);
        let others = and_others(unwritable.len() - 1);
        let text = format!("partition {name} takes no records: {reason}{others}");
        Some(Finding::critical(Code::PartitionUnwritable, Object::Partition(name), text))
    }

    /// Partitions that are served but for records that the disk does not give back; one line, however many they are.
    fn unreadable_partitions(&self) -> Option<Finding> {
        let closed = self.replicas.open_failures.all();
        let mut unreadable = self.logs.unreadable();
        unreadable.retain(|(id, _)| !closed.contains_key(id));
        let (first, place) = unreadable.iter().min_by_key(|(id, _)| *id)?;
        let name = name_of(&self.catalog.cluster(), *first);
        let others = and_others(unreadable.len() - 1);
        let text = format!("partition {name} is served in part: {place}{others}");
        Some(Finding::critical(Code::PartitionUnreadable, Object::Partition(name), text))
    }

    /// The logs that are well but cannot be compacted, and why; one line, however many they are.
    fn uncleanable_partitions(&self) -> Option<Finding> {
        let image = self.catalog.cluster();
        let damaged: BTreeSet<_> = self.logs.damaged().into_iter().map(|(id, _)| id).collect();
        let mut failed = self.compaction_failures.all();
        failed.retain(|failed| !damaged.contains(&failed.id));
        let first = failed.first()?;
        let name = name_of(&image, first.id);
        let others = and_others(failed.len() - 1);
        let text = format!("partition {name} cannot be compacted and grows: {}{others}", first.reason);
        Some(Finding::critical(Code::PartitionUncleanable, Object::Partition(name), text))
    }

    /// A line for each partition that is offline by itself and not with its log dir; the first of them, if they are many.
    fn offline_partitions(&self) -> Vec<Finding> {
        let image = self.catalog.cluster();
        let mut offline = self.replicas.open_failures.all();
        offline.extend(self.logs.damaged().into_iter().map(|(id, error)| (id, error.to_string())));
        offline.retain(|id, _| {
            let dir = self.replicas.log_dir(*id);
            dir.is_none_or(|dir| self.logs.dir_failure(dir).is_none())
        });
        let told = offline.iter().take(OFFLINE_SHOWN_MAX);
        let mut found: Vec<Finding> = told
            .map(|(id, reason)| {
                let name = name_of(&image, *id);
                let text = format!("partition {name} is offline: {reason}");
                Finding::critical(Code::PartitionOffline, Object::Partition(name), text)
            })
            .collect();
        if let Some(others @ 1..) = offline.len().checked_sub(OFFLINE_SHOWN_MAX) {
            found.push(of_process(Code::PartitionOffline, format!("{others} more partitions are offline")));
        }
        found
    }
}

fn of_process(code: Code, text: String) -> Finding {
    Finding::critical(code, Object::Process, text)
}

fn journal_thread(journal: &Journal) -> String {
    format!("journal {}", journal.dir().display())
}

/// How often a server looks whether it can write anything at all.
const STORAGE_CHECK: Duration = Duration::from_millis(200);

/// Ready with the reason when there is nothing left to write to: every log dir has failed, or the metadata has, and
/// only a restart on a disk that works helps. A server that stayed would keep its clients from noticing.
pub(crate) async fn nothing_to_write_to(broker: &Broker) -> String {
    loop {
        broker.look_at_journal_threads();
        if let Some(reason) = broker.storage_failure() {
            return reason;
        }
        tokio::time::sleep(STORAGE_CHECK).await;
    }
}

/// A journal that has been full for so long that settling cannot be keeping up.
fn full_journal(journal: &Journal) -> Option<String> {
    let full_for = journal.full_for().filter(|time| *time >= JOURNAL_FULL_MAX)?;
    Some(format!(
        "the journal in {} has been full for {} seconds: what it has does not get into the segments",
        journal.dir().display(),
        full_for.as_secs()
    ))
}

fn unanswered(mark: &Path) -> Finding {
    let text = format!("the disk of a log dir does not answer: {} has not been written", mark.display());
    Finding::critical(Code::LogDirUnanswered, Object::log_dir(mark.parent().unwrap_or(mark)), text)
}

/// A log dir for which the journals keep all that comes, until they are full.
fn stuck_dir(dir: &Path, reason: &str) -> String {
    format!("the journals keep what log dir {} cannot take: {reason}", dir.display())
}

/// The end of a line about one of several partitions.
fn and_others(others: usize) -> String {
    if others == 0 { String::new() } else { format!("; {others} more as well") }
}

/// The name of a partition for people.
fn name_of(image: &ClusterImage, id: PartitionId) -> String {
    match image.topic_by_id(id.topic) {
        Some(topic) => format!("{}-{}", topic.name, id.index),
        None => id.to_string(),
    }
}

fn metadata_failed(reason: &str) -> String {
    format!("metadata cannot change: {reason}")
}

/// The topics that were set aside because the metadata lost them, until they are cleared away.
fn topics_set_aside(paths: &[PathBuf]) -> Option<String> {
    let first = paths.first()?.display();
    Some(format!(
        "{} topics that the metadata has lost are set aside as {first} and so on: while they are there, no offsets of \
         groups are dropped because their topic is missing",
        paths.len()
    ))
}

fn groups_cut((shard, records): (usize, u64)) -> Finding {
    let text = format!(
        "{records} records in partition {shard} of {OFFSETS_TOPIC} are left out: groups would exceed their bounds \
         ({BOUNDS})"
    );
    Finding::critical(Code::GroupsCut, groups_of(shard), text)
}

fn groups_failed((shard, why): (usize, String)) -> Finding {
    let text =
        format!("the groups of partition {shard} of {OFFSETS_TOPIC} cannot be loaded or changed: {why}");
    Finding::critical(Code::GroupsFailed, groups_of(shard), text)
}

fn groups_of(shard: usize) -> Object {
    Object::Group(format!("{OFFSETS_TOPIC}-{shard}"))
}

#[cfg(test)]
mod tests {
    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;
    use riverrun_types::TimestampMs;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::metadata::NewTopic;
    use crate::start::open_broker;
    use crate::testing::record;

    #[test]
    fn unwritable_partitions_are_findings_until_they_can_be_written() {
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("journal.bytes", "33554432")]);
        let broker = open_broker(sim.env(), config.expect("valid")).expect("starts");
        let configs = [("segment.bytes".to_owned(), "1048576".to_owned())].into();
        let new = NewTopic { name: "t".to_owned(), partition_count: 2, configs };
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        let partitions = [0, 1].map(|index| broker.partition(&topic, index).expect("there"));
        // Enough for another segment, each time.
        let append = || {
            for partition in &partitions {
                let before = partition.log.log_end_offset().expect("open");
                for _ in 0..3 {
                    let batch = record(TimestampMs(0), &vec![7; 400_000]);
                    partition.log.append(batch, broker.append_options()).expect("taken");
                }
                while partition.log.log_end_offset().expect("open") < before.plus(3) {
                    std::thread::yield_now();
                }
            }
        };
        append();
        broker.logs.settle().expect("settled");
        assert_eq!(broker.health().troubles(), [""; 0]);
        append();
        let paths = [0, 1].map(|index: usize| partitions[index].log.path());
        let away = [Path::new("/data/away-0"), Path::new("/data/away-1")];
        (0..2).for_each(|index| sim.fs.rename(&paths[index], away[index]).expect("taken away"));
        broker.logs.settle().expect_err("there is no place for another segment");
        let troubles = broker.health().troubles();
        let [told] = &troubles[..] else { panic!("{troubles:?}") };
        let file = format!("partition t-0 takes no records: {}/", paths[0].display());
        assert!(told.starts_with(&file) && told.ends_with("; 1 more as well"), "{told}");
        assert_eq!(broker.logs.unwritable().len(), 2);
        (0..2).for_each(|index| sim.fs.rename(away[index], &paths[index]).expect("brought back"));
        broker.logs.settle().expect("settled");
        assert_eq!(broker.health().troubles(), [""; 0]);
    }
}
