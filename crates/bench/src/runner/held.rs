//! Topics that outlive the run that sends to them, because later runs of the same command read them.
//!
//! Owns them from before the first of these runs, which therefore finds and leaves them, until no run reads them any
//! more. Does not know the order of runs: the caller says which topics stay.

use std::collections::BTreeMap;

use super::error::RunError;
use super::topics::Topics;
use crate::plan::Plan;

/// The topics of a command that stay between its runs.
///
/// Invariants: `made` holds those that were created here and not deleted yet, by server; none that existed before.
#[derive(Default)]
pub struct HeldTopics {
    made: BTreeMap<String, Vec<Topics>>,
}

impl HeldTopics {
    /// Creates those topics of a plan that are to stay after its run, and returns their number. Topics that were
    /// created are held also if this fails or is dropped.
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

    /// Deletes the topics of a server that need not stay any longer. May be dropped meanwhile, and called again.
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

    /// Whether no topic is held.
    pub fn is_empty(&self) -> bool {
        self.made.values().flatten().all(Topics::is_empty)
    }
}
