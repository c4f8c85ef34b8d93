//! Owns who has been heard from: the sessions of brokers at the member that leads the quorum.
//!
//! Not agreed upon: a member that begins to lead gives every broker a whole session from then on. A broker takes its own session for
//! over earlier than the controller does, because it counts from when it sent what was answered, and by a little less
//! ([`lease`]). Times are those of one monotonic clock.

use std::collections::BTreeMap;
use std::time::Duration;

use riverrun_types::NodeId;

use super::image::Image;

/// The part of a session that a broker counts on, so that clocks may differ in speed by a tenth.
pub fn lease(session: Duration) -> Duration {
    session / 10 * 9
}

/// The sessions of brokers, while a member leads.
#[derive(Debug)]
pub(crate) struct Sessions {
    timeout: Duration,
    /// When this member began to lead.
    since: Duration,
    heard: BTreeMap<NodeId, (u64, Duration)>,
}

impl Sessions {
    pub(crate) fn new(timeout: Duration, now: Duration) -> Self {
        Self { timeout, since: now, heard: BTreeMap::new() }
    }

    /// A broker was heard from, in a life of its process. A life that is not registered, because another one has taken its place,
    /// has no session.
    pub(crate) fn hear(&mut self, image: &Image, node: NodeId, incarnation: u64, now: Duration) {
        if image.broker(node).is_some_and(|broker| broker.incarnation == incarnation) {
            self.heard.insert(node, (incarnation, now));
        }
    }

    /// Whether the session of the registered life of a broker lasts.
    pub(crate) fn lasts(&self, image: &Image, node: NodeId, now: Duration) -> bool {
        let Some(broker) = image.broker(node) else { return false };
        let heard = self.heard.get(&node).filter(|(incarnation, _)| *incarnation == broker.incarnation);
        let last = heard.map_or(self.since, |(_, at)| *at);
        now.saturating_sub(last) < self.timeout
    }

    /// Brokers that are not fenced, and whose sessions are over.
    pub(crate) fn over(&self, image: &Image, now: Duration) -> Vec<NodeId> {
        let unfenced = image.brokers().filter(|(_, broker)| !broker.is_fenced).map(|(node, _)| node);
        unfenced.filter(|node| !self.lasts(image, *node, now)).collect()
    }

    /// Forgets brokers that have left.
    pub(crate) fn keep(&mut self, image: &Image) {
        self.heard.retain(|node, _| image.broker(*node).is_some());
    }
}
