//! A set of topic names in one piece of memory.
//!
//! Owns the set of topics that consumers are known to read. Members may send millions of short names, and a tree of
//! them would take thirty times as much memory; here a name takes four bytes more than itself.

use std::borrow::Cow;

/// The names.
///
/// Invariants: `ends` holds the end in `text` of each name; the names are sorted and distinct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopicNames {
    text: Box<str>,
    ends: Box<[u32]>,
}

impl TopicNames {
    /// The set of these names, which are sorted and distinct, and together no longer than a request can be.
    pub(super) fn new(names: &[Cow<'_, str>]) -> Self {
        let mut text = String::with_capacity(names.iter().map(|name| name.len()).sum());
        let ends = names.iter().map(|name| {
            text.push_str(name);
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        });
        let ends = ends.collect();
        Self { text: text.into(), ends }
    }

    /// Whether the name is one of them.
    pub(super) fn contains(&self, name: &str) -> bool {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// The name at this index.
    fn name(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.text.get(start as usize..self.ends[index] as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_nothing_else() {
        let all: Vec<String> = ["", "a", "ab", "b", "z", "\u{e9}t\u{e9}"].map(str::to_owned).into();
        for left_out in 0..=all.len() {
            let is_kept = |index: &usize| *index != left_out;
            let kept: Vec<Cow<'_, str>> =
                (0..all.len()).filter(is_kept).map(|index| all[index].as_str().into()).collect();
            let names = TopicNames::new(&kept);
            for (index, name) in all.iter().enumerate() {
                assert_eq!(names.contains(name), index != left_out, "{name:?} in {kept:?}");
            }
            assert!(!names.contains("aa") && !names.contains("zz"));
        }
        assert!(!TopicNames::default().contains(""));
    }
}
