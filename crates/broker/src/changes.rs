//! Log lines about changes that clients make: one for each request that changed topics, configs or groups, with the
//! names, the client and its address; and one for what groups have become by that, or by time.

use std::sync::Arc;

use riverrun_coordinator::ProtocolChange;

use crate::context::RequestContext;
use crate::log_limit::Change;

/// Names in one line at most; the others are counted.
const NAMES_SHOWN_MAX: usize = 10;

impl Change {
    fn message(self) -> &'static str {
        match self {
            Self::TopicsCreated => "topics created",
            Self::TopicsDeleted => "topics deleted",
            Self::PartitionsAdded => "partitions added",
            Self::ConfigsAltered => "configs altered",
            Self::GroupsCreated => "groups created",
            Self::GroupsDeleted => "groups deleted",
            Self::GroupsEmptied => "groups emptied: their last members left, or were silent for too long",
            Self::GroupsExpired => "groups expired: nobody was in them, and their offsets grew too old",
            Self::GroupProtocol => "a group has changed its protocol",
        }
    }
}

/// Tells of what a request has changed, if it changed something.
pub(crate) fn tell<'n>(context: &RequestContext, change: Change, names: impl IntoIterator<Item = &'n str>) {
    let Some((count, names)) = listed(names) else { return };
    let (peer, client) = (context.connection.peer, &*context.client_id);
    change.limit().warn_of(peer.ip(), |suppressed| {
        tracing::info!(count, names, %peer, client, suppressed, "{}", change.message());
    });
}

/// Tells of groups of a shard that went by themselves.
pub(crate) fn tell_expired(shard: usize, count: usize) {
    let change = Change::GroupsExpired;
    if count > 0 {
        change.limit().warn(|suppressed| tracing::info!(count, shard, suppressed, "{}", change.message()));
    }
}

/// Tells of groups whose last members are gone.
pub(crate) fn tell_emptied(groups: &[Arc<str>]) {
    let Some((count, names)) = listed(groups.iter().map(|group| &**group)) else { return };
    let change = Change::GroupsEmptied;
    change.limit().warn(|suppressed| tracing::info!(count, names, suppressed, "{}", change.message()));
}

/// Tells of groups that speak another protocol now.
pub(crate) fn tell_protocols(changes: &[ProtocolChange]) {
    let change = Change::GroupProtocol;
    for ProtocolChange { group_id, from, to, why } in changes {
        change.limit().warn(|suppressed| {
            tracing::info!(group = %group_id, from, to, why, suppressed, "{}", change.message());
        });
    }
}

/// How many there are, and the first of them.
fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<(usize, String)> {
    let mut names = names.into_iter();
    let shown: Vec<&str> = names.by_ref().take(NAMES_SHOWN_MAX).collect();
    let more = names.count();
    let and_more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!shown.is_empty()).then(|| (shown.len() + more, shown.join(", ") + &and_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_few_and_counts_the_others() {
        assert_eq!(listed([]), None);
        assert_eq!(listed(["a", "b"]), Some((2, "a, b".to_owned())));
        let many: Vec<String> = (0..1000).map(|index| index.to_string()).collect();
        let (count, names) = listed(many.iter().map(String::as_str)).expect("some");
        assert_eq!((count, names.as_str()), (1000, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more"));
    }
}
