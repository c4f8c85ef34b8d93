//! A disk that fills up: producers are refused with a retriable error, everything else goes on, and when there is room
//! again writing resumes, all in one life of the server. After that it is killed, and started once more.
//!
//! Owns the common steps. Servers begin in turn with room enough for their journal (`grown`), with a disk that is
//! nearly full before there is a journal (`young`), and with a full disk that has only the journal (`own_journal`).

mod grown;
mod own_journal;
mod turn;
mod young;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use riverrun_client::{Admin, ClientError, ErrorKind, NewTopic};
use riverrun_types::Offset;

use super::disk::Disk;
use super::event::{Commit, Event};
use super::load::{Load, Progress, Shape, Tally, cluster_options, is_unanswered};
use super::run::{Allowed, Run, create};
use super::verify::Tested;
use super::{Settings, topic_of};
use crate::clients::install::Toolbox;
use crate::clients::server::Server;
use turn::Turn;

/// The smallest disk that every file system takes; most of it is ballast.
const DISK_BYTES: u64 = 400 << 20;

/// The server checks retention often, its reserve suits the small disk, and it soon refuses commits for lack of room.
const SERVER_SETTINGS: &[&str] = &[
    "log.retention.check.interval.ms=500",
    "log.dir.reserve.bytes=16777216",
    "offsets.commit.timeout.ms=2000",
];

/// Two checks of retention.
const RETENTION_ENDS: Duration = Duration::from_secs(1);

/// Delay after which the file of a deleted segment is removed.
const DELETE_DELAY_MS: &str = "100";

/// Acked records, some of each stream, that show that writing has resumed.
const RESUMED_MIN: u64 = 100;

/// Limit after which producers give up, short enough for the refusal to be seen.
const DELIVERY_LIMIT: Duration = Duration::from_secs(1);

/// Longest time of filling, and of resuming.
const STEP_LIMIT: Duration = Duration::from_mins(1);

/// Longest time without any free space, unless every producer is to get an answer.
const BRIM_MAX: Duration = Duration::from_millis(300);

/// The group that commits while the disk is full, and its number of commits.
const GROUP: &str = "full";
const COMMITS: u32 = 20;

/// The load's topic, and the topic that is deleted.
const TOPIC: &str = "crash";
const BALLAST_TOPIC: &str = "ballast";

/// For this many fillings of the server with enough room there is one server with little room from the beginning, and
/// one whose journal's disk gets full.
const CYCLES_PER_LIFE: u64 = 3;

/// One in this many of these two kinds leaves its disk without free space until every producer got an answer.
const BRIM_ONE_IN: u64 = 2;

/// Runs the servers for the cycles of the settings.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let (mut slowest, mut tested) = (Duration::ZERO, Tested::default());
    for life in 0..settings.cycles.div_ceil(CYCLES_PER_LIFE) {
        let young = young::live(settings, toolbox, life).await;
        let young = young.with_context(|| format!("young server {}", life + 1))?;
        let own = own_journal::live(settings, toolbox, life).await;
        let own =
            own.with_context(|| format!("server {} with a full disk of its journal's own", life + 1))?;
        for lived in [young, own] {
            slowest = slowest.max(lived.slowest_resume);
            tested.add(lived.tested);
        }
    }
    tested.check()?;
    println!("writing resumed at the latest {:.1} s after room was made\n", slowest.as_secs_f64());
    grown::run(settings, toolbox).await?;
    fs::remove_dir_all(&settings.dir).context("the run's directory could not be removed")
}

/// Results of one server.
struct Lived {
    slowest_resume: Duration,
    tested: Tested,
}

fn shape(topic: &str) -> Shape {
    Shape { large_one_in: 2, large_bytes_max: 100_000, delivery_limit: DELIVERY_LIMIT, ..Shape::usual(topic) }
}

fn topic(name: &str) -> NewTopic {
    let mut topic = NewTopic { partitions: Some(shape(name).partitions), ..topic_of(name) };
    topic.configs.insert("file.delete.delay.ms".to_owned(), DELETE_DELAY_MS.to_owned());
    topic
}

/// A directory of one server, beside those of the others.
fn make_dir(settings: &Settings, name: &str) -> anyhow::Result<PathBuf> {
    let dir = settings.dir.join(name);
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// Another load, on the topic that will be deleted. Its records are not checked, but it must get answers as the first
/// load does.
struct Ballast {
    load: Load,
    progress: Arc<Progress>,
}

impl Ballast {
    /// Ends the load before its topic is deleted.
    async fn stop(self) -> anyhow::Result<()> {
        self.load.stop().await?;
        self.progress.check_refusals().with_context(|| format!("producing to {BALLAST_TOPIC}"))
    }
}

/// A server under load, and the disk that fills up.
///
/// Invariants: `commits` is the offset that the group last tried to commit in each partition.
struct Full<'a, 'r> {
    run: Run<'r>,
    server: Server,
    disk: &'a Disk,
    commits: i64,
    slowest_resume: Duration,
}

impl<'a, 'r> Full<'a, 'r> {
    /// Starts the server, and the load.
    async fn begin(mut run: Run<'r>, disk: &'a Disk) -> anyhow::Result<Self> {
        run.launch = run.launch.with_own_settings(SERVER_SETTINGS.iter().copied());
        let server = run.start().await?;
        run.begin_load(&shape(TOPIC), topic(TOPIC)).await?;
        Ok(Self { run, server, disk, commits: 0, slowest_resume: Duration::ZERO })
    }

    /// Kills the server, reads everything back from the next one, and judges.
    async fn end(mut self) -> anyhow::Result<(Run<'r>, Lived)> {
        self.server.must_run()?;
        // Retention that was stopped may be at work for as long.
        tokio::time::sleep(RETENTION_ENDS).await;
        self.run.note_beginnings().await.context("before the kill")?;
        self.server.kill()?;
        self.run.crashed().await?;
        self.server = self.run.start().await?;
        self.run.check().await?;
        let tested = self.run.judge().await?.tested;
        self.run.progress().check_refusals()?;
        self.server.stop()?;
        Ok((self.run, Lived { slowest_resume: self.slowest_resume, tested }))
    }

    async fn load_ballast(&mut self, cycle: u64) -> anyhow::Result<Ballast> {
        let shared = self.run.beside(&format!("ballast-{cycle}.log"))?;
        create(&shared, topic(BALLAST_TOPIC), STEP_LIMIT).await?;
        let load = Load::start(&shared, &shape(BALLAST_TOPIC), 0, &mut self.run.rng).await?;
        Ok(Ballast { load, progress: shared.progress })
    }

    /// Deletes a topic, which must be possible while the disk has the server's reserve.
    async fn delete(&self, topic: &str) -> anyhow::Result<()> {
        match self.try_delete(topic).await? {
            None => Ok(()),
            Some(error) => Err(error).with_context(|| format!("deleting {topic}")),
        }
    }

    /// Deletes a topic; returns the server's refusal, if there is one.
    async fn try_delete(&self, topic: &str) -> anyhow::Result<Option<ClientError>> {
        match self.admin().await?.delete_topics(&[topic.to_owned()]).await.pop() {
            Some((_, Ok(()))) => Ok(None),
            Some((_, Err(error))) if is_refusal(&error) => Ok(Some(error)),
            Some((_, Err(error))) => Err(error).with_context(|| format!("deleting {topic}")),
            None => bail!("the server says nothing of the topic"),
        }
    }

    /// Checks that stored records can be read, and that groups can commit.
    async fn others_go_on(&mut self) -> anyhow::Result<()> {
        self.run.check().await.context("reading")?;
        for _ in 0..COMMITS {
            if let Some(error) = self.commit().await? {
                bail!("a commit was refused: {error}");
            }
        }
        self.committed_is_there().await?;
        self.server.must_run()
    }

    /// Commits in each partition; returns the server's refusal, if there is one.
    async fn commit(&mut self) -> anyhow::Result<Option<ClientError>> {
        self.commits += 1;
        let (mut commits, mut offsets) = (Vec::new(), BTreeMap::new());
        for partition in shape(TOPIC).partitions() {
            offsets.insert(partition.clone(), Offset(self.commits));
            commits.push(Commit { group: GROUP.to_owned(), partition, offset: self.commits });
        }
        let begun: Vec<_> = commits.iter().cloned().map(Event::Committing).collect();
        self.run.shared.recorder.record(&begun).await?;
        for (partition, result) in self.admin().await?.alter_group_offsets(GROUP, &offsets).await {
            match result {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => return Ok(Some(error)),
                Err(error) => {
                    return Err(error).with_context(|| format!("committing an offset of {partition}"));
                }
            }
        }
        let ended: Vec<_> = commits.into_iter().map(Event::Committed).collect();
        self.run.shared.recorder.record(&ended).await?;
        Ok(None)
    }

    /// Checks that offsets can be read, and are those that were committed last.
    async fn committed_is_there(&self) -> anyhow::Result<()> {
        let found = self.admin().await?.group_offsets(GROUP).await.context("reading offsets")?;
        for partition in shape(TOPIC).partitions() {
            let offset = found.get(&partition).map(|committed| committed.offset.0);
            let commits = self.commits;
            ensure!(
                offset == Some(commits),
                "{GROUP} in {partition} is at {offset:?}, committed was {commits}"
            );
        }
        Ok(())
    }

    /// Takes all free space for a moment, or until every producer got an answer. The server has to answer every
    /// request, and may refuse all but reads. Returns its refusal to delete `topic`, if there is one.
    async fn brim(&mut self, all_answered: bool, topic: &str) -> anyhow::Result<Option<ClientError>> {
        self.disk.fill()?;
        if all_answered {
            let before = self.run.progress().tally();
            self.until("every producer got an answer", Turn::Answered, &before).await?;
            if let Some(error) = self.commit().await? {
                println!("  without any room a commit is refused: {error}");
            }
        } else {
            tokio::time::sleep(self.run.rng.up_to(BRIM_MAX)).await;
        }
        self.run.check().await.context("reading")?;
        let refusal = self.try_delete(topic).await?;
        self.server.must_run()?;
        self.disk.relieve()?;
        Ok(refusal)
    }

    /// Waits, once there is room, until records of every stream are acked that were not in `before`.
    async fn resumes(&mut self, before: &Tally) -> anyhow::Result<()> {
        let begun = Instant::now();
        let acked: u64 = before.values().map(|outcomes| outcomes.acked).sum();
        self.until("writing resumes", Turn::Acked, before).await?;
        self.wait("writing goes on", |run| run.progress().acked() > acked + RESUMED_MIN).await?;
        self.slowest_resume = self.slowest_resume.max(begun.elapsed());
        self.run.progress().check_refusals()
    }

    async fn admin(&self) -> anyhow::Result<Admin> {
        Ok(Admin::new(cluster_options(&self.run.shared.bootstrap)).await?)
    }

    /// Waits until every stream has reached this state since `before`.
    async fn until(&mut self, what: &str, turn: Turn, before: &Tally) -> anyhow::Result<()> {
        let result = self.wait(what, |run| turn.missing(before, &run.progress().tally()).is_empty()).await;
        result.with_context(|| {
            format!("streams that wait: {:?}", turn.missing(before, &self.run.progress().tally()))
        })
    }

    async fn wait(&mut self, what: &str, done: impl Fn(&Run<'_>) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_LIMIT;
        while !done(&self.run) {
            self.server.must_run()?;
            if Instant::now() >= deadline {
                bail!(
                    "waited {} s until {what}; {:.1} MB are free; errors so far: {:?}",
                    STEP_LIMIT.as_secs(),
                    self.free_mb()?,
                    self.run.progress().errors()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn counts(&self) -> String {
        let progress = self.run.progress();
        format!("{} records acked, {} given up", progress.acked(), progress.failed())
    }

    fn free_mb(&self) -> anyhow::Result<f64> {
        Ok(self.disk.free_bytes()? as f64 / 1e6)
    }
}

/// Whether the server refuses for now. Silence is no answer.
fn is_refusal(error: &ClientError) -> bool {
    error.kind() == ErrorKind::Retry && !is_unanswered(error)
}

/// A run beside others, whose results are counted together.
fn prepare<'r>(
    settings: &'r Settings,
    toolbox: &'r Toolbox,
    dir: &Path,
    data: PathBuf,
) -> anyhow::Result<Run<'r>> {
    let allowed = Allowed { failures: true, ..Allowed::default() };
    Ok(Run::prepare(settings, toolbox, dir, data, allowed)?.without_summary())
}

#[cfg(test)]
mod tests {
    use riverrun_client::{ApiKey, ErrorCode};

    use super::*;

    #[tokio::test]
    async fn ballast_load_must_be_answered_too() {
        let after = Duration::from_secs(1);
        let timeout = || ClientError::Timeout { address: "a".to_owned(), api: ApiKey::Produce, after };
        let told = |code| ClientError::Server { code, message: None };
        let given_up = |last| ClientError::Undelivered {
            topic: BALLAST_TOPIC.into(),
            partition: 0,
            after,
            attempts: 1,
            server: None,
            last: Some(Arc::new(last)),
        };
        for (error, is_fault) in [
            (given_up(told(ErrorCode::KAFKA_STORAGE_ERROR)), false),
            (told(ErrorCode::INVALID_RECORD), true),
            (given_up(timeout()), true),
        ] {
            let progress = Arc::<Progress>::default();
            progress.note_failed(1, &error);
            let stopped = Ballast { load: Load::without_streams(), progress }.stop().await;
            assert_eq!(stopped.is_err(), is_fault, "{error}: {stopped:?}");
        }
    }

    #[test]
    fn silence_and_final_errors_are_no_refusals() {
        let told = |code| ClientError::Server { code, message: None };
        let after = Duration::from_secs(1);
        assert!(is_refusal(&told(ErrorCode::KAFKA_STORAGE_ERROR)));
        assert!(!is_refusal(&told(ErrorCode::INVALID_RECORD)));
        assert!(!is_refusal(&ClientError::Timeout {
            address: "a".to_owned(),
            api: ApiKey::DeleteTopics,
            after
        }));
    }
}
