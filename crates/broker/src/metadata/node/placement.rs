//! Placement of new partitions: each goes to the log dir that has the fewest, the first of several such. Dirs that take no
//! new partitions are passed over.
//!
//! Pure: counts in, indexes out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Index of the log dir of each of `count` new partitions. `loads` has the number of partitions in each dir, or `None` for a
/// dir that takes none. `None`: no dir takes any.
///
/// Panics if there are more than 65,536 dirs, which the store refuses.
pub(crate) fn place(loads: &[Option<u64>], count: usize) -> Option<Vec<u16>> {
    let entry = |(index, load): (usize, &Option<u64>)| {
        Some(Reverse(((*load)?, u16::try_from(index).expect("the store refuses more log dirs"))))
    };
    let mut fewest: BinaryHeap<_> = loads.iter().enumerate().filter_map(entry).collect();
    let mut placed = Vec::with_capacity(count);
    for _ in 0..count {
        let mut top = fewest.peek_mut()?;
        placed.push(top.0.1);
        top.0.0 += 1;
    }
    Some(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_goes_where_the_fewest_are() {
        assert_eq!(place(&[Some(0)], 3), Some(vec![0, 0, 0]));
        assert_eq!(place(&[Some(0), Some(0), Some(0)], 5), Some(vec![0, 1, 2, 0, 1]));
        assert_eq!(place(&[Some(5), Some(2), Some(4)], 4), Some(vec![1, 1, 1, 2]));
        assert_eq!(place(&[Some(1), Some(0)], 0), Some(vec![]));
    }

    #[test]
    fn a_dir_that_takes_none_gets_none() {
        assert_eq!(place(&[None, Some(7), None, Some(6)], 3), Some(vec![3, 1, 3]));
        assert_eq!(place(&[None, None], 1), None);
    }

    #[test]
    fn dirs_end_up_even() {
        let mut loads = vec![17, 0, 3];
        let dirs = place(&loads.iter().copied().map(Some).collect::<Vec<_>>(), 1000);
        for dir in dirs.expect("all take partitions") {
            loads[usize::from(dir)] += 1;
        }
        assert!(
            loads.iter().max().zip(loads.iter().min()).is_some_and(|(most, least)| most - least <= 1),
            "{loads:?}"
        );
    }
}
