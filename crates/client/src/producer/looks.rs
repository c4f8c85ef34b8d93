//! Looks at the metadata of topics for those who wait to send.
//!
//! Guarantees that a topic is looked at by one request at a time, with pauses between, however many wait for it, and few
//! topics at once: looks go over the connections that records go over, and would crowd them out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{Cluster, TopicInfo};
use crate::error::ClientError;
use crate::retry::{Backoff, Pauses};

/// Topics that are looked at together at most: fewer than the requests that may by default be under way to a server.
const LOOKS_MAX: usize = 4;
/// So many topics are remembered before it is seen whether some of them can be forgotten.
const TOPICS_MIN: usize = 64;

type Answer = Result<Arc<TopicInfo>, ClientError>;

/// What a look has come to.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) topic: Answer,
    /// Whether the next would come too late for who has asked.
    pub(super) is_last: bool,
}

/// The looks at one topic. Who holds it looks.
#[derive(Debug)]
struct Inquiry {
    pauses: Pauses,
    /// When the next look may begin.
    next_at: Instant,
    /// When the last one ended, and what it came to.
    last: Option<(Instant, Answer)>,
}

impl Inquiry {
    /// Asks for the topic after the pause that is due. Answers when the next look may begin, too.
    async fn look(&mut self, cluster: &Cluster, room: &Semaphore, name: &str) -> (Answer, Instant) {
        sleep_until(self.next_at).await;
        if self.next_at.elapsed() >= cluster.options().retry_backoff_max {
            // Nobody has asked for a while.
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

/// The topics that were looked at.
///
/// Invariants: who uses an inquiry holds it by an `Arc` that was taken while these were locked.
#[derive(Debug)]
struct Topics {
    inquiries: HashMap<String, Arc<tokio::sync::Mutex<Inquiry>>>,
    /// How many there are when it is seen whether some of them can be forgotten.
    tidy_at: usize,
}

impl Topics {
    /// Forgets what nobody uses and may be looked at again, where that can be much: of no more topics is something remembered
    /// than twice as many as are waited for or were looked at a moment ago.
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

/// The looks of one producer.
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

    /// Looks at a topic, after the pause that is due, or has what another look says that ends meanwhile. Where there is no time
    /// for one until the `deadline`, it is what the last one has said.
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
        // In a task of its own: who began it may not wait until its end, and what it finds is of use to others.
        let (cluster, room, topic) = (Arc::clone(&self.cluster), Arc::clone(&self.room), name.to_owned());
        let looking = tokio::spawn(async move { inquiry.look(&cluster, &room, &topic).await });
        let (topic, next_at) = looking.await.map_err(|ended| ClientError::Disconnected {
            address: "the cluster".to_owned(),
            reason: format!("looking for {name} has ended: {ended}"),
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
