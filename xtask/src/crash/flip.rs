//! Changes the level of the load's topic all the time: each change is a barrier, and a crash in the middle of one must
//! lose, repeat or reorder nothing either.
//!
//! If the level decides what a crash may take, each change is recorded before it is made, and the topic's sync level
//! once all its partitions are found at it, which is later than the answer to the change.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use riverrun_client::{Admin, ConfigChange, ConfigResource, ErrorKind};
use tokio::task::JoinHandle;

use super::Level;
use super::event::Event;
use super::load::{Shared, cluster_options};
use super::random::Rng;

/// Longest pause between two changes.
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// Longest wait for a level to be reached; then another one is set.
const REACH_LIMIT: Duration = Duration::from_secs(2);

/// Pause between two looks at whether it is reached.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The level that all partitions of a topic have, if it is the same.
const REACHED: &str = "durability.reached";

/// The task, which ends when this is dropped.
pub(super) struct Flips(JoinHandle<anyhow::Result<Infallible>>);

impl Drop for Flips {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Flips {
    /// Begins to change the topic's level. `watched`: records the changes, too.
    pub(super) async fn start(shared: &Shared, topic: &str, rng: Rng, watched: bool) -> anyhow::Result<Self> {
        let resource = ConfigResource::Topic(topic.to_owned());
        let flipping = Flipping { shared: shared.clone(), resource, rng, watched };
        // The level before the first change is unknown.
        flipping.write_down(Event::Changing).await?;
        Ok(Self(tokio::spawn(flipping.run())))
    }

    /// Fails if the task has ended, which it does not by itself.
    pub(super) async fn must_run(&mut self) -> anyhow::Result<()> {
        if !self.0.is_finished() {
            return Ok(());
        }
        let ended = (&mut self.0).await.context("the task that changes the level has panicked")?;
        ended.context("the task that changes the level has ended").map(|never| match never {})
    }
}

struct Flipping {
    shared: Shared,
    resource: ConfigResource,
    rng: Rng,
    watched: bool,
}

impl Flipping {
    async fn run(mut self) -> anyhow::Result<Infallible> {
        loop {
            tokio::time::sleep(self.rng.up_to(PAUSE_MAX)).await;
            // A server that is down is tried again later, perhaps with another level.
            let Ok(admin) = Admin::new(cluster_options(&self.shared.bootstrap)).await else { continue };
            let level = [1, 2, 3, 4].map(Level)[usize::try_from(self.rng.below(4))?];
            self.write_down(Event::Changing).await?;
            if !self.change(&admin, level).await? || !self.watched || !level.syncs() {
                continue;
            }
            if let Some(crashes) = self.reached(&admin, level).await {
                self.write_down(Event::Syncs(crashes)).await?;
            }
        }
    }

    async fn write_down(&self, event: Event) -> anyhow::Result<()> {
        if self.watched { self.shared.recorder.record(&[event]).await } else { Ok(()) }
    }

    /// Whether the server accepted the change. Fails if it refuses it for good while its power is not being cut.
    async fn change(&self, admin: &Admin, level: Level) -> anyhow::Result<bool> {
        let change = ConfigChange::set("durability", level.to_string());
        let changes = BTreeMap::from([(self.resource.clone(), vec![change])]);
        let crashes = self.shared.progress.crashes();
        let results = admin.alter_configs(&changes, false).await;
        let is_undisturbed = crashes.is_some() && self.shared.progress.crashes() == crashes;
        for error in results.iter().filter_map(|(_, result)| result.as_ref().err()) {
            if is_undisturbed && error.kind() != ErrorKind::Retry {
                bail!("level {level} is refused: {error}");
            }
        }
        let is_changed = results.iter().all(|(_, result)| result.is_ok());
        self.shared.progress.note_flip(is_changed);
        Ok(is_changed)
    }

    /// Waits until all partitions have the level; returns the number of crashes after which they were found to have it.
    async fn reached(&self, admin: &Admin, level: Level) -> Option<u64> {
        let deadline = Instant::now() + REACH_LIMIT;
        while Instant::now() < deadline {
            let crashes = self.shared.progress.crashes();
            let entries = admin.describe_configs_named(&self.resource, &[REACHED]).await.unwrap_or_default();
            let is_reached = entries
                .iter()
                .any(|entry| entry.name == REACHED && entry.value.as_deref() == Some(&*level.to_string()));
            // A file system may report a successful sync while the power is being cut.
            if is_reached && crashes.is_some() && self.shared.progress.crashes() == crashes {
                return crashes;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        None
    }
}
