use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn options(slots: usize, keys_max: u64) -> OffsetMapOptions {
    OffsetMapOptions { buffer_bytes: slots * SLOT_BYTES, load_factor: 0.9, keys_max, seed: [3, 5] }
}

#[test]
fn a_full_map_takes_no_new_key_but_still_updates_known_ones() {
    let mut map = OffsetMap::new(options(11, 1000));
    assert_eq!(map.capacity(), 9);
    for key in 0..9_u8 {
        assert!(map.put(&[key], Offset(i64::from(key))));
    }
    assert!(!map.put(&[99], Offset(50)), "full");
    assert_eq!(map.get(&[99]), None);
    assert!(map.put(&[3], Offset(51)), "known");
    assert_eq!(map.get(&[3]), Some(Offset(51)));
    assert_eq!(map.len(), 9);
}

#[test]
fn map_is_no_larger_than_its_keys_or_its_budget() {
    for (slots, keys_max, load_factor) in
        [(1_000_000, 100, 0.9), (1_000_000, 100, 0.1), (1_000_000, 0, 0.9), (64, 1_000_000, 0.9), (0, 0, 2.0)]
    {
        let map = OffsetMap::new(OffsetMapOptions { load_factor, ..options(slots, keys_max) });
        assert!(map.slots.len() <= slots.max(2), "{slots} {keys_max}: {}", map.slots.len());
        assert!(map.capacity() < map.slots.len());
        let is_cut_by_budget = map.slots.len() == slots.max(2);
        assert!(is_cut_by_budget || map.capacity() as u64 >= keys_max, "{slots} {keys_max} {load_factor}");
        assert!(map.slots.len() as u64 <= (keys_max + 2) * 20, "{slots} {keys_max} {load_factor}");
    }
}

#[test]
fn the_highest_offset_of_a_key_wins_in_any_order() {
    let mut map = OffsetMap::new(options(16, 10));
    for offset in [5, 9, 2] {
        assert!(map.put(b"key", Offset(offset)));
    }
    assert_eq!(map.get(b"key"), Some(Offset(9)));
    assert!(map.put(b"", Offset(0)), "an empty key is a key");
    assert_eq!(map.get(b""), Some(Offset(0)));
}

proptest! {
    #[test]
    fn it_answers_as_an_ordinary_map(
        puts in prop::collection::vec((prop::collection::vec(0..3_u8, 0..4), 0..1000_i64), 0..200),
        seed in any::<[u64; 2]>(),
    ) {
        let mut model: HashMap<Vec<u8>, i64> = HashMap::new();
        let mut map = OffsetMap::new(OffsetMapOptions { seed, ..options(200, 200) });
        for (key, offset) in puts {
            prop_assert!(map.put(&key, Offset(offset)));
            let known = model.entry(key).or_insert(offset);
            *known = (*known).max(offset);
        }
        prop_assert_eq!(map.len(), model.len());
        for (key, offset) in &model {
            prop_assert_eq!(map.get(key), Some(Offset(*offset)));
        }
        prop_assert_eq!(map.get(b"never put"), None);
    }
}
