use proptest::prelude::*;

use super::*;

fn cache(entries: &[(i32, i64)]) -> EpochCache {
    let mut cache = EpochCache::new();
    for (epoch, start) in entries {
        assert!(cache.assign(LeaderEpoch(*epoch), Offset(*start)), "({epoch}, {start}) is news");
    }
    cache
}

fn list(cache: &EpochCache) -> Vec<(i32, i64)> {
    cache.entries().iter().map(|entry| (entry.epoch.0, entry.start_offset.0)).collect()
}

#[test]
fn the_end_of_an_epoch_is_the_start_of_the_next_one() {
    let cache = cache(&[(2, 10), (4, 20), (7, 35)]);
    let cases = [
        (-1, (-1, -1)),
        (-5, (-1, -1)),
        // Older than all: go on at the begin of the oldest known one.
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 20)),
        // Never seen here: the one before it, and the begin of the one after it.
        (3, (2, 20)),
        (4, (4, 35)),
        (6, (4, 35)),
        // The latest ends at the log's end.
        (7, (7, 50)),
        // Newer than all: unknown.
        (8, (-1, -1)),
        (i32::MAX, (-1, -1)),
    ];
    for (requested, (epoch, end)) in cases {
        let found = cache.end_offset_for(LeaderEpoch(requested), LeaderEpoch(7), Offset(50));
        assert_eq!(found, (LeaderEpoch(epoch), Offset(end)), "epoch {requested}");
    }
}

#[test]
fn an_epoch_without_records_begins_at_the_log_end() {
    let ends = |entries: &[(i32, i64)], requested: i32| {
        let found = cache(entries).end_offset_for(LeaderEpoch(requested), LeaderEpoch(5), Offset(9));
        (found.0.0, found.1.0)
    };
    for (requested, expected) in [(2, (2, 9)), (5, (5, 9)), (6, (-1, -1)), (-1, (-1, -1))] {
        assert_eq!(ends(&[], requested), expected, "no records, epoch {requested}");
    }
    for (requested, expected) in [(1, (1, 0)), (2, (2, 9)), (4, (2, 9)), (5, (5, 9)), (6, (-1, -1))] {
        assert_eq!(ends(&[(2, 0)], requested), expected, "records of epoch 2, epoch {requested}");
    }
}

#[test]
fn an_entry_that_contradicts_what_is_appended_goes() {
    let mut cache = cache(&[(1, 0), (2, 10), (3, 20)]);
    assert!(!cache.assign(LeaderEpoch(3), Offset(20)), "known");
    assert!(!cache.assign(LeaderEpoch(3), Offset(25)), "the same epoch goes on");
    assert!(!cache.assign(LeaderEpoch(-1), Offset(30)), "no epoch");
    assert!(!cache.assign(LeaderEpoch(4), Offset(-1)), "no offset");
    assert_eq!(list(&cache), [(1, 0), (2, 10), (3, 20)]);
    assert!(cache.assign(LeaderEpoch(5), Offset(10)), "offsets 10 and up are written over");
    assert_eq!(list(&cache), [(1, 0), (5, 10)]);
    assert!(cache.assign(LeaderEpoch(5), Offset(8)), "the epoch began earlier than was known");
    assert_eq!(list(&cache), [(1, 0), (5, 8)]);
}

#[test]
fn truncation_keeps_what_the_log_still_holds() {
    let whole = [(1, 0), (2, 10), (4, 20)];
    let ends =
        [(0, vec![]), (1, vec![(1, 0)]), (10, vec![(1, 0)]), (20, whole[..2].to_vec()), (21, whole.to_vec())];
    for (end, expected) in ends {
        let mut cut = cache(&whole);
        cut.truncate_end(Offset(end));
        assert_eq!(list(&cut), expected, "end {end}");
    }
    let starts = [
        (0, whole.to_vec()),
        (5, vec![(1, 5), (2, 10), (4, 20)]),
        (10, vec![(2, 10), (4, 20)]),
        (99, vec![(4, 99)]),
    ];
    for (start, expected) in starts {
        let mut cut = cache(&whole);
        cut.truncate_start(Offset(start));
        assert_eq!(list(&cut), expected, "start {start}");
    }
    let mut late = cache(&[(3, 7)]);
    late.truncate_start(Offset(2));
    assert_eq!(list(&late), [(3, 7)], "nothing ends before the start");
}

#[test]
fn a_record_belongs_to_the_epoch_that_began_last_before_it() {
    let cache = cache(&[(1, 5), (3, 9)]);
    let found: Vec<_> = [4, 5, 8, 9, 100].map(|offset| cache.epoch_of(Offset(offset))).into();
    assert_eq!(
        found,
        [None, Some(LeaderEpoch(1)), Some(LeaderEpoch(1)), Some(LeaderEpoch(3)), Some(LeaderEpoch(3))]
    );
}

#[test]
fn a_list_that_breaks_the_invariants_is_not_decoded() {
    for pair in [[(2, 5), (2, 6)], [(2, 5), (3, 5)], [(3, 5), (2, 6)], [(-1, 0), (1, 1)], [(0, -1), (1, 1)]] {
        let mut bytes = vec![];
        put_count(&mut bytes, 2);
        for (epoch, start) in pair {
            bytes.extend_from_slice(&i32::to_be_bytes(epoch));
            bytes.extend_from_slice(&i64::to_be_bytes(start));
        }
        let decoded = EpochCache::decode(&mut FieldReader::new(&bytes));
        assert_eq!(decoded, Err(DecodeError::Invalid("leader epoch")), "{pair:?}");
    }
}

proptest! {
    #[test]
    fn any_history_keeps_the_order_and_survives_encoding(
        steps in prop::collection::vec((0..3_u8, -1..20_i32, -1..200_i64), 0..40),
    ) {
        let mut cache = EpochCache::new();
        for (kind, epoch, offset) in steps {
            match kind {
                0 => { cache.assign(LeaderEpoch(epoch), Offset(offset)); }
                1 => cache.truncate_end(Offset(offset)),
                _ => cache.truncate_start(Offset(offset.max(0))),
            }
            let rises = cache.entries().windows(2).all(|pair| {
                pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
            });
            prop_assert!(rises, "{:?}", cache);
        }
        let mut bytes = vec![];
        cache.encode(&mut bytes);
        let mut reader = FieldReader::new(&bytes);
        prop_assert_eq!(EpochCache::decode(&mut reader), Ok(cache));
        prop_assert_eq!(reader.finish("end"), Ok(()));
    }
}
