//! Names with ranges: `foo[1-3]` is `foo1`, `foo2` and `foo3`.

/// Most names that one spec may expand to.
const NAMES_MAX: usize = 100_000;

/// Every name that `pattern` stands for; the first range changes slowest. `None` if there are too many, or if a range
/// ends before it begins.
pub(super) fn expand(pattern: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, first, last, after)) = split_range(rest) {
        let count = usize::try_from(last.checked_sub(first)?).ok()?.saturating_add(1);
        if names.len().saturating_mul(count) > NAMES_MAX {
            return None;
        }
        let with_numbers = |name: String| (first..=last).map(move |number| format!("{name}{before}{number}"));
        names = names.into_iter().flat_map(with_numbers).collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Some(names)
}

/// The first `[a-b]` of a text: the text before it, its bounds, and the text after it.
fn split_range(text: &str) -> Option<(&str, u64, u64, &str)> {
    let number = |digits: &str| {
        (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().ok())
            .flatten()
    };
    text.match_indices('[').find_map(|(open, _)| {
        let (inside, after) = text[open + 1..].split_once(']')?;
        let (first, last) = inside.split_once('-')?;
        Some((&text[..open], number(first)?, number(last)?, after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_expand_to_every_name() {
        assert_eq!(expand("foo").unwrap(), ["foo"]);
        assert_eq!(expand("foo[1-3]").unwrap(), ["foo1", "foo2", "foo3"]);
        assert_eq!(expand("a[1-2]b[8-9]c").unwrap(), ["a1b8c", "a1b9c", "a2b8c", "a2b9c"]);
        assert_eq!(expand("a[x-2][5-5]").unwrap(), ["a[x-2]5"]);
    }

    #[test]
    fn oversized_and_reversed_ranges_are_refused() {
        assert_eq!(expand("a[1-99999999]"), None);
        assert_eq!(expand("a[1-1000][1-1000]"), None);
        assert_eq!(expand("a[3-1]"), None);
        assert_eq!(expand("a[0-18446744073709551615]"), None);
    }
}
