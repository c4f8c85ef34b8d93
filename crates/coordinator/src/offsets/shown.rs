//! Committed offsets for views of lag: one slice at a time, so that no request waits for long.

use std::ops::Bound;
use std::sync::Arc;

use riverrun_types::Offset;

use crate::shard::Shard;

/// Groups and offsets together that one slice examines: less than a tenth of a millisecond of work.
const SLICE_STEPS: usize = 1_000;

/// Offsets of one group and topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The group.
    pub group_id: Arc<str>,
    /// The topic.
    pub topic: Box<str>,
    /// Partitions and offsets.
    pub offsets: Vec<(i32, Offset)>,
}

/// The place at which the next slice goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedPlace {
    group_id: Arc<str>,
    /// Its last offset that was shown; `None` if all were.
    shown: Option<(Box<str>, i32)>,
}

/// A slice of the committed offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommittedSlice {
    /// The offsets, in order.
    pub committed: Vec<Committed>,
    /// The lent groups in this slice: their committed offsets are missing, at least in part.
    pub lent: Vec<Arc<str>>,
    /// The place at which the next slice goes on; `None` after the last one.
    pub next: Option<CommittedPlace>,
}

impl CommittedSlice {
    fn add(&mut self, group_id: &Arc<str>, topic: &str, partition: i32, offset: Offset) {
        let last = self.committed.last_mut();
        match last.filter(|last| last.group_id == *group_id && *last.topic == *topic) {
            Some(last) => last.offsets.push((partition, offset)),
            None => self.committed.push(Committed {
                group_id: Arc::clone(group_id),
                topic: topic.into(),
                offsets: vec![(partition, offset)],
            }),
        }
    }
}

impl Shard {
    /// The committed offsets behind a place, or from the first group on, up to a bound of work.
    pub fn committed_slice(&self, place: Option<&CommittedPlace>) -> CommittedSlice {
        let mut slice = CommittedSlice::default();
        let mut steps = 0;
        let from = place.map_or(Bound::Unbounded, |place| match place.shown {
            Some(_) => Bound::Included(&*place.group_id),
            None => Bound::Excluded(&*place.group_id),
        });
        'groups: for (group_id, entry) in self.groups.range::<str, _>((from, Bound::Unbounded)) {
            let shown =
                place.filter(|place| place.group_id == *group_id).and_then(|place| place.shown.as_ref());
            for (topic, partition, offset) in entry.offsets.behind(shown) {
                slice.add(group_id, topic, partition, offset.offset);
                steps += 1;
                if steps >= SLICE_STEPS {
                    let shown = Some((topic.into(), partition));
                    slice.next = Some(CommittedPlace { group_id: Arc::clone(group_id), shown });
                    break 'groups;
                }
            }
            steps += 1;
            if steps >= SLICE_STEPS {
                slice.next = Some(CommittedPlace { group_id: Arc::clone(group_id), shown: None });
                break;
            }
        }
        let upto = slice.next.as_ref().map_or(Bound::Unbounded, |next| Bound::Included(&*next.group_id));
        let lent = self.lent_groups.range::<str, _>((from, upto)).filter(|(_, entry)| entry.listed.is_some());
        slice.lent = lent.map(|(group_id, _)| Arc::clone(group_id)).collect();
        slice
    }
}
