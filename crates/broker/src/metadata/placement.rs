//! Which log dir a new partition goes to: the one that holds the fewest, the first of several such.
//!
//! Pure: counts in, indexes out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Index of the log dir of each of `count` new partitions, given how many each dir holds.
///
/// Panics if there is no dir or if there are more than 65,536, both of which the store refuses.
pub(crate) fn place(held: &[u64], count: usize) -> Vec<u16> {
    let entry = |(index, held): (usize, &u64)| {
        Reverse((*held, u16::try_from(index).expect("the store refuses more log dirs")))
    };
    let mut fewest: BinaryHeap<_> = held.iter().enumerate().map(entry).collect();
    let mut placed = Vec::with_capacity(count);
    for _ in 0..count {
        let mut top = fewest.peek_mut().expect("the store has one log dir at least");
        placed.push(top.0.1);
        top.0.0 += 1;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_goes_where_the_fewest_are() {
        assert_eq!(place(&[0], 3), [0, 0, 0]);
        assert_eq!(place(&[0, 0, 0], 5), [0, 1, 2, 0, 1]);
        assert_eq!(place(&[5, 2, 4], 4), [1, 1, 1, 2]);
        assert_eq!(place(&[1, 0], 0), [0_u16; 0]);
    }

    #[test]
    fn dirs_end_up_even() {
        let mut held = vec![17, 0, 3];
        for dir in place(&held, 1000) {
            held[usize::from(dir)] += 1;
        }
        assert!(
            held.iter().max().zip(held.iter().min()).is_some_and(|(most, least)| most - least <= 1),
            "{held:?}"
        );
    }
}
