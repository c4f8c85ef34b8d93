//! Expiry of offsets, and of groups of which nothing is left.
//!
//! Owns Kafka's rule (KIP-211): offsets expire `offsets.retention.minutes` after the group became empty, or after the
//! commit where there is no membership or no member reads the topic; topics that a live group reads never do. An
//! empty group without offsets is removed by the same sweep. A sweep goes over all offsets in slices, so that no
//! request waits for all of it, and rewrites times that a wrong clock has given. It begins at once when the clock was
//! set, because the next run reads the times that are in the log.

use std::ops::Bound;
use std::sync::Arc;

use riverrun_types::TimestampMs;

use super::CommittedOffset;
use crate::group::Group;
use crate::records;
use crate::shard::Shard;
use crate::step::{OffsetsRecord, Step};
use crate::time::{Ages, Moment, Now, Setting};

/// Groups, offsets and sets of names that are examined in one step: less than a millisecond, for which requests of
/// the shard's groups may wait.
const SLICE_LOOKS_MAX: usize = 2_000;

/// Time after which the next sweep begins if the last one has not seen all groups since the clock was set.
const AGAIN_MS: i64 = 2_000;

/// The progress of a sweep through the groups.
///
/// Invariants: `place` is unset between sweeps.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// When the last sweep ended, or the last slice of this one.
    at: Moment,
    /// The place at which this one goes on.
    place: Option<Place>,
    /// The setting of the wall clock when this one began.
    begun_by: Setting,
    /// Whether groups were lent during this one, which it may have missed.
    misses_some: bool,
    /// The setting of the wall clock when the last sweep began that has seen all groups: no time in the log is off by
    /// it.
    right_by: Setting,
    /// When the next one begins ahead of its time, because the wall clock was set.
    early_at: Option<Moment>,
}

/// The group, or the offset inside a group, behind which a sweep goes on.
#[derive(Debug)]
struct Place {
    group_id: Arc<str>,
    offset: Option<(Box<str>, i32)>,
    is_inside: bool,
}

impl Sweep {
    /// A sweep that has ended.
    pub(crate) fn ended(now: Now) -> Self {
        Self { at: now.moment, right_by: now.setting(), ..Self::default() }
    }

    /// When the next slice is due: at once, or in the next sweep.
    pub(crate) fn is_due_at(&self, interval_ms: i64) -> Moment {
        if self.place.is_some() {
            return self.at;
        }
        let next = self.at.after(interval_ms);
        self.early_at.map_or(next, |early_at| early_at.min(next))
    }

    /// If the wall clock was set, the next sweep begins at once, and a running one begins anew.
    fn note_setting(&mut self, now: Now) {
        let known = if self.place.is_some() { self.begun_by } else { self.right_by };
        if now.setting().is_other_than(known) && (self.place.is_some() || self.early_at.is_none()) {
            self.place = None;
            self.early_at = Some(now.moment);
        }
    }

    /// Continues or begins a sweep; returns the place.
    fn go_on(&mut self, now: Now, lends_some: bool) -> Option<Place> {
        let place = self.place.take();
        if place.is_none() {
            self.begun_by = now.setting();
            self.misses_some = false;
        }
        self.misses_some |= lends_some;
        place
    }

    /// Ends a slice: the sweep goes on from here, or it has seen everything.
    fn pause(&mut self, now: Now, place: Option<Place>) {
        self.at = now.moment;
        self.place = place;
        if self.place.is_none() {
            if !self.misses_some {
                self.right_by = self.begun_by;
            }
            let is_wrong = now.setting().is_other_than(self.right_by);
            self.early_at = is_wrong.then(|| now.moment.after(AGAIN_MS));
        }
    }
}

impl Shard {
    /// Tells the shard the clocks. If the wall clock was set, [`Shard::expire`] has work at once: it rewrites times
    /// that another run would read wrong. Returns whether some of that work is due now.
    pub fn note_clocks(&mut self, now: Now) -> bool {
        if self.loaded_at.is_none() || self.groups.is_empty() {
            return false;
        }
        self.sweep.note_setting(now);
        self.sweep.early_at.is_some_and(|early_at| early_at <= now.moment)
    }

    /// Examines the next offsets of the shard, and removes the expired ones.
    pub(crate) fn sweep(&mut self, now: Now) -> Step {
        let mut step = Step::default();
        let ages = Ages { now, loaded: self.loaded_at.unwrap_or(now) };
        let mut looks = 0;
        let mut place = self.sweep.go_on(now, !self.lent_groups.is_empty());
        while looks < SLICE_LOOKS_MAX
            && let Some(group_id) = self.group_at(place.as_ref())
        {
            let inside =
                place.take().filter(|place| place.group_id == group_id).and_then(|place| place.offset);
            let offset = self.sweep_group(&group_id, inside.as_ref(), &ages, &mut looks, &mut step.records);
            place = Some(Place { is_inside: offset.is_some(), group_id, offset });
        }
        let goes_on = self.group_at(place.as_ref()).is_some();
        self.sweep.pause(now, place.filter(|_| goes_on));
        step
    }

    /// The group that a sweep examines next.
    fn group_at(&self, place: Option<&Place>) -> Option<Arc<str>> {
        let from = match place {
            None => Bound::Unbounded,
            Some(place) if place.is_inside => Bound::Included(&*place.group_id),
            Some(place) => Bound::Excluded(&*place.group_id),
        };
        self.groups.range::<str, _>((from, Bound::Unbounded)).next().map(|(group_id, _)| Arc::clone(group_id))
    }

    /// Examines a group's offsets behind this one; if there are more, returns the last one examined.
    fn sweep_group(
        &mut self,
        group_id: &Arc<str>,
        inside: Option<&(Box<str>, i32)>,
        ages: &Ages,
        looks: &mut usize,
        records: &mut Vec<OffsetsRecord>,
    ) -> Option<(Box<str>, i32)> {
        let entry = self.groups.get_mut(group_id)?;
        *looks += 1;
        if inside.is_none() {
            records.extend(entry.group.correct_time(group_id, ages.now));
        }
        let mut found = Found::default();
        let mut is_topic_read: Option<(&str, bool)> = None;
        for (topic, partition, offset) in entry.offsets.behind(inside) {
            if *looks >= SLICE_LOOKS_MAX {
                found.goes_on = true;
                break;
            }
            *looks += 1;
            let is_read = match is_topic_read {
                Some((name, is_read)) if name == topic => is_read,
                _ => {
                    *looks += entry.group.names_sets();
                    entry.group.is_subscribed_to(topic)
                }
            };
            is_topic_read = Some((topic, is_read));
            found.last = Some((topic.into(), partition));
            let retention_ms = self.config.offsets_retention_ms;
            if !is_read && has_expired(&entry.group, offset, ages, retention_ms) {
                found.expired.push((topic.into(), partition));
            } else if let Some(corrected) = corrected(offset, ages.now) {
                found.corrected.push((topic.into(), partition, corrected));
            }
        }
        let Found { last, goes_on, expired, corrected } = found;
        for (topic, partition) in expired {
            entry.offsets.remove(&topic, partition);
            records.push(records::offset_tombstone(group_id, &topic, partition));
        }
        for (topic, partition, offset) in corrected {
            records.push(records::offset_commit(group_id, &topic, partition, &offset));
            entry.offsets.insert(&topic, partition, offset);
        }
        if entry.offsets.is_empty() && is_abandoned(&entry.group) {
            records.append(&mut entry.group.tombstones(group_id));
            self.forget(group_id);
        } else {
            self.finish(group_id);
        }
        last.filter(|_| goes_on)
    }
}

/// The findings of a slice in a group.
#[derive(Default)]
struct Found {
    last: Option<(Box<str>, i32)>,
    goes_on: bool,
    expired: Vec<(Box<str>, i32)>,
    corrected: Vec<(Box<str>, i32, CommittedOffset)>,
}

/// Whether the group has no members, and no id was given out.
fn is_abandoned(group: &Group) -> bool {
    match group {
        Group::Classic(classic) => classic.is_empty() && !classic.has_pending(),
        Group::Simple | Group::Consumer(_) => group.is_empty(),
    }
}

/// Whether this offset has expired. A group that keeps its offsets also keeps those with a retention of their own.
fn has_expired(group: &Group, offset: &CommittedOffset, ages: &Ages, retention_ms: i64) -> bool {
    let Some(unused_ms) = group.unused_ms(offset.committed_at, ages) else { return false };
    match offset.expires_at {
        Some(at) => ages.of(offset.committed_at) >= at.0.saturating_sub(offset.committed_at.wall.0),
        None => unused_ms >= retention_ms,
    }
}

/// The offset with the right commit time, if the clock was set since it was committed.
fn corrected(offset: &CommittedOffset, now: Now) -> Option<CommittedOffset> {
    let committed_at = offset.committed_at.corrected(now)?;
    let by_ms = committed_at.wall.0.saturating_sub(offset.committed_at.wall.0);
    let expires_at = offset.expires_at.map(|at| TimestampMs(at.0.saturating_add(by_ms)));
    Some(CommittedOffset { committed_at, expires_at, ..offset.clone() })
}

#[cfg(test)]
mod tests;
