//! What the group wants of the consumer, until the consumer takes it.
//!
//! Guarantees that telling waits for nothing: a member gives signs of life whether or not anybody polls. It is bounded all
//! the same, by what there can be to say.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::GroupEvent;

/// Events that the consumer has not taken, shared with who tells them.
#[derive(Clone, Debug, Default)]
pub(super) struct Events(Arc<Waiting>);

/// Invariants: nothing is before a `Lost`, and no `Assign` follows another. Nothing but a `Lost` and the end of membership
/// follows a `Revoke`, for who tells that waits for its answer. So there are four at most.
#[derive(Debug, Default)]
struct Waiting {
    events: Mutex<VecDeque<GroupEvent>>,
    came: Notify,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<GroupEvent>> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the consumer, together with what it has not taken yet.
    pub(super) fn put(&self, event: GroupEvent) {
        let mut events = self.lock();
        if matches!(event, GroupEvent::Lost { .. }) {
            // All of it is over with the membership that it was said in.
            events.clear();
        }
        let event = match (event, events.pop_back()) {
            (GroupEvent::Assign(more), Some(GroupEvent::Assign(mut partitions))) => {
                partitions.extend(more);
                GroupEvent::Assign(partitions)
            }
            (event, last) => {
                events.extend(last);
                event
            }
        };
        events.push_back(event);
        drop(events);
        self.0.came.notify_one();
    }

    /// The next, if it has come already.
    pub(super) fn take(&self) -> Option<GroupEvent> {
        self.lock().pop_front()
    }

    /// The next, when it comes.
    pub(super) async fn next(&self) -> GroupEvent {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            self.0.came.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::topic_partition::TopicPartition;

    fn assign(index: i32) -> GroupEvent {
        GroupEvent::Assign(vec![TopicPartition::new("t", index)])
    }

    fn indexes(event: Option<GroupEvent>) -> Vec<i32> {
        match event {
            Some(GroupEvent::Assign(partitions)) => partitions.iter().map(|one| one.partition).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_assigned_bit_by_bit_is_taken_as_a_whole_and_what_is_lost_is_not_taken_at_all() {
        let events = Events::default();
        (0..3).for_each(|index| events.put(assign(index)));
        let (done, mut confirmed) = oneshot::channel();
        events.put(GroupEvent::Revoke { partitions: Vec::new(), done });
        events.put(assign(3));
        assert_eq!(indexes(events.take()), [0, 1, 2]);
        assert!(matches!(events.next().await, GroupEvent::Revoke { .. }));
        events.put(GroupEvent::Lost { memberships: 1 });
        events.put(assign(4));
        assert!(matches!(events.next().await, GroupEvent::Lost { memberships: 1 }));
        assert_eq!(indexes(events.take()), [4], "without what was assigned before");
        assert!(events.take().is_none() && confirmed.try_recv().is_err());
    }

    #[tokio::test]
    async fn who_waits_is_told() {
        let events = Events::default();
        let (told, ()) = tokio::join!(events.next(), async { events.put(assign(0)) });
        assert_eq!(indexes(Some(told)), [0]);
    }
}
