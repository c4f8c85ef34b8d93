//! Topics that outlive the run that sends to them, because later runs of the same command read them.
//!
//! Owns them from before the first of these runs, which finds them there and so leaves them, until nobody reads them any more.
//! Knows nothing of the order of runs: whoever does says which topics stay.

use std::collections::BTreeMap;

use super::error::RunError;
use super::topics::Topics;
use crate::plan::Plan;

/// The topics of a command that stay between its runs.
///
/// Invariants: `made` holds those that were made here and not deleted yet, by server; none that was there before.
#[derive(Default)]
pub struct HeldTopics {
    made: BTreeMap<String, Vec<Topics>>,
}

impl HeldTopics {
    /// Makes those topics of a plan that are to stay after its run, and answers how many these are. However it ends, and if
    /// it is dropped, what was made is held.
    pub async fn make(
        &mut self,
        bootstrap: &str,
        plan: &Plan,
        stays: impl Fn(&str) -> bool,
    ) -> Result<usize, RunError> {
        let topics: Vec<_> = plan.topics.iter().filter(|topic| stays(&topic.name)).cloned().collect();
        let count = topics.len();
        if count > 0 {
            // Nothing is sent or read yet.
            let plan = Plan { topics, producers: Vec::new(), consumers: Vec::new(), ..plan.clone() };
            let all = self.made.entry(bootstrap.to_owned()).or_default();
            all.push(Topics::connect(bootstrap, &plan).await?);
            if let Some(made) = all.last_mut() {
                made.make(&plan).await?;
            }
        }
        Ok(count)
    }

    /// Deletes those on a server that are not to stay any longer. Whoever calls may be dropped meanwhile, and call again.
    pub async fn release(&mut self, bootstrap: &str, stays: impl Fn(&str) -> bool) {
        if let Some(all) = self.made.get_mut(bootstrap) {
            for made in &mut *all {
                made.delete_unless(&stays).await;
            }
            all.retain(|made| !made.is_empty());
        }
    }

    /// Deletes all of them.
    pub async fn release_all(&mut self) {
        for made in self.made.values_mut().flatten() {
            made.delete_unless(|_| false).await;
        }
        self.made.clear();
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.made.values().flatten().all(Topics::is_empty)
    }
}
