//! Instructions of the group that the consumer has not taken yet.
//!
//! Guarantees that queuing an event never waits: a member sends heartbeats whether or not the application polls. The
//! queue is bounded all the same, by the invariants of its events.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::GroupEvent;

/// Events that the consumer has not taken, shared with the membership task.
#[derive(Clone, Debug, Default)]
pub(super) struct Events(Arc<Waiting>);

/// Invariants: nothing stands before a `Lost`, and no `Assign` follows another. Only a `Lost` and the end of
/// membership follow a `Revoke`, because the membership task waits for its answer. So there are four events at most.
#[derive(Debug, Default)]
struct Waiting {
    events: Mutex<VecDeque<GroupEvent>>,
    came: Notify,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<GroupEvent>> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an event, merged with those that the consumer has not taken yet.
    pub(super) fn put(&self, event: GroupEvent) {
        let mut events = self.lock();
        if matches!(event, GroupEvent::Lost { .. }) {
            // Earlier events end with their membership.
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

    /// The next event, if there is one.
    pub(super) fn take(&self) -> Option<GroupEvent> {
        self.lock().pop_front()
    }

    /// Waits for the next event.
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
    async fn assignments_merge_and_a_loss_discards_them() {
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
    async fn waiting_handles_are_woken() {
        let events = Events::default();
        let (told, ()) = tokio::join!(events.next(), async { events.put(assign(0)) });
        assert_eq!(indexes(Some(told)), [0]);
    }
}
