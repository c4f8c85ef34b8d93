//! Changes the level of the load's topic all the time: each change is a barrier, and a crash in the middle of one must
//! lose, repeat or reorder nothing either.

use std::collections::BTreeMap;
use std::time::Duration;

use riverrun_client::{Admin, ConfigChange, ConfigResource};
use tokio::task::JoinHandle;

use super::load::{Shared, cluster_options};
use super::random::Rng;

/// Between two changes at most.
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// The work, which ends when this is dropped.
pub(super) struct Flips(JoinHandle<()>);

impl Drop for Flips {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Flips {
    /// Begins to change the topic's level.
    pub(super) fn start(shared: &Shared, topic: &str, rng: Rng) -> Self {
        let (shared, topic) = (shared.clone(), topic.to_owned());
        Self(tokio::spawn(flip(shared, topic, rng)))
    }
}

async fn flip(shared: Shared, topic: String, mut rng: Rng) {
    loop {
        tokio::time::sleep(rng.up_to(PAUSE_MAX)).await;
        // A server that is down is asked again later, for another level perhaps.
        let Ok(admin) = Admin::new(cluster_options(&shared.bootstrap)).await else { continue };
        let change = ConfigChange::set("durability", (1 + rng.below(4)).to_string());
        let changes = BTreeMap::from([(ConfigResource::Topic(topic.clone()), vec![change])]);
        for (_, result) in admin.alter_configs(&changes, false).await {
            shared.progress.note_flip(result.is_ok());
        }
    }
}
