//! What one request may ask for: things that it names in a few bytes and that are answered in thousands.
//!
//! A thing is answered once, however often a request names it; so an answer is bounded by what the server holds. The
//! bounds here are for what every server holds, or for answers of many kilobytes each.

use std::collections::HashSet;
use std::hash::Hash;

use riverrun_protocol::ErrorCode;

/// Resources that one `DescribeConfigs` describes at most: each is answered with some ten
/// kilobytes.
pub(super) const DESCRIBED_RESOURCES_MAX: usize = 5_000;
/// Topics that one `CreateTopics` makes at most, as in Kafka's batches of a controller: each is answered with its
/// configuration.
pub(super) const CREATED_TOPICS_MAX: usize = 10_000;
/// Groups that one request describes, or fetches the offsets of, at most.
pub(super) const GROUPS_MAX: usize = 100_000;

/// What each of the names is to be answered with, in their order: a name that was there before is left out, and one
/// beyond `count_max` refused.
pub(super) fn once<T: Copy, K: Hash + Eq>(
    named: impl IntoIterator<Item = T>,
    count_max: usize,
    key: impl Fn(T) -> K,
) -> impl Iterator<Item = (T, Result<(), ErrorCode>)> {
    let mut seen = HashSet::new();
    named.into_iter().filter_map(move |item| {
        let is_new = seen.insert(key(item));
        let is_allowed = seen.len() <= count_max;
        is_new.then_some((item, if is_allowed { Ok(()) } else { Err(ErrorCode::INVALID_REQUEST) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_answered_once_and_beyond_the_bound_refused() {
        let answers: Vec<_> = once(["a", "b", "a", "c", "c", "b", "d"], 2, |name| name).collect();
        let refused = Err(ErrorCode::INVALID_REQUEST);
        assert_eq!(answers, [("a", Ok(())), ("b", Ok(())), ("c", refused), ("d", refused)]);
    }
}
