//! Metadata lookups of topics for senders that wait.
//!
//! Guarantees that a topic is requested by one lookup at a time, with pauses between, however many senders wait for
//! it, and few topics at once: lookups share the connections of the records, and would crowd them out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{Cluster, TopicInfo};
use crate::error::ClientError;
use crate::retry::{Backoff, Pauses};

/// Most topics looked up at once: fewer than the default limit of requests in flight to a server.
const LOOKS_MAX: usize = 4;
/// So many topics are remembered before unused ones are searched and forgotten.
const TOPICS_MIN: usize = 64;

type Answer = Result<Arc<TopicInfo>, ClientError>;

/// The result of a lookup.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) topic: Answer,
    /// True if the next lookup would come too late for the caller.
    pub(super) is_last: bool,
}

/// The lookups of one topic. The holder of its lock makes them.
#[derive(Debug)]
struct Inquiry {
    pauses: Pauses,
    /// When the next lookup may begin.
    next_at: Instant,
    /// When the last one ended, and its result.
    last: Option<(Instant, Answer)>,
}

impl Inquiry {
    /// Requests the topic after the pause that is due. Also returns when the next lookup may begin.
    async fn look(&mut self, cluster: &Cluster, room: &Semaphore, name: &str) -> (Answer, Instant) {
        sleep_until(self.next_at).await;
        if self.next_at.elapsed() >= cluster.options().retry_backoff_max {
            // There was no request for a while.
            self.pauses.succeed();
        }
        let _room = room.acquire().await;
        let topic = cluster.ask_topic(name, true).await;
        let now = Instant::now();
        self.next_at = now + self.pauses.fail();
        self.last = Some((now, topic.clone()));
        (topic, self.next_at)
    }
}

/// The topics that were looked up.
///
/// Invariants: a user of an inquiry has an `Arc` of it that was taken under this lock.
#[derive(Debug)]
struct Topics {
    inquiries: HashMap<String, Arc<tokio::sync::Mutex<Inquiry>>>,
    /// Number of topics at which unused ones are searched.
    tidy_at: usize,
}

impl Topics {
    /// Forgets topics that have no user and whose pause is over, if there may be many: no more topics are remembered
    /// than twice as many as are waited for or were looked up a moment ago.
    fn tidy(&mut self) {
        if self.inquiries.len() < self.tidy_at {
            return;
        }
        let now = Instant::now();
        self.inquiries.retain(|_, inquiry| {
            Arc::strong_count(inquiry) > 1 || inquiry.try_lock().is_ok_and(|unused| unused.next_at > now)
        });
        self.tidy_at = TOPICS_MIN.max(2 * self.inquiries.len());
    }
}

/// The lookups of one producer.
#[derive(Debug)]
pub(super) struct Looks {
    cluster: Arc<Cluster>,
    topics: Mutex<Topics>,
    room: Arc<Semaphore>,
}

impl Looks {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        let topics = Topics { inquiries: HashMap::new(), tidy_at: TOPICS_MIN };
        Self { cluster, topics: Mutex::new(topics), room: Arc::new(Semaphore::new(LOOKS_MAX)) }
    }

    /// Looks up a topic, after the pause that is due, or returns the result of another lookup that ends meanwhile. If
    /// there is no time for one until the `deadline`, returns the last result.
    pub(super) async fn look(&self, name: &str, deadline: Option<Instant>) -> Result<Looked, ClientError> {
        let asked_at = Instant::now();
        let is_late = |next_at: Instant| deadline.is_some_and(|deadline| next_at >= deadline);
        let mut inquiry = self.inquiry(name).lock_owned().await;
        let is_last = is_late(inquiry.next_at);
        if let Some((at, topic)) = &inquiry.last
            && (*at > asked_at || is_last)
        {
            return Ok(Looked { topic: topic.clone(), is_last });
        }
        // In a task of its own: the caller may stop waiting, and the result is useful to others.
        let (cluster, room, topic) = (Arc::clone(&self.cluster), Arc::clone(&self.room), name.to_owned());
        let looking = tokio::spawn(async move { inquiry.look(&cluster, &room, &topic).await });
        let (topic, next_at) = looking.await.map_err(|ended| ClientError::Disconnected {
            address: "the cluster".to_owned(),
            reason: format!("the lookup of {name} has ended: {ended}"),
        })?;
        Ok(Looked { topic, is_last: is_late(next_at) })
    }

    fn inquiry(&self, name: &str) -> Arc<tokio::sync::Mutex<Inquiry>> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = topics.inquiries.get(name) {
            return Arc::clone(known);
        }
        topics.tidy();
        let pauses = Pauses::new(Backoff::of_retries(self.cluster.options()));
        let new = Inquiry { pauses, next_at: Instant::now(), last: None };
        let new = Arc::new(tokio::sync::Mutex::new(new));
        topics.inquiries.insert(name.to_owned(), Arc::clone(&new));
        new
    }
}
