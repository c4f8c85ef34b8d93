//! Comments in JSON, which Trogdor's own parser allows.

/// The text with every comment replaced by blanks, so that lines and columns stay the same.
pub(super) fn blank_comments(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (length, keep) = match next {
            '"' => (string_length(rest), true),
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => (rest[2..].find("*/").map_or(rest.len(), |end| end + 4), false),
            other => (other.len_utf8(), true),
        };
        let (part, after) = rest.split_at(length);
        if keep {
            blanked.push_str(part);
        } else {
            blanked.extend(part.chars().map(|one| if one == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    blanked
}

/// Bytes of the string at the beginning of `text`, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, one) in text.char_indices().skip(1) {
        match one {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_blanks_and_strings_stay() {
        let text = "// head\n{ \"a\": \"http://x\", /* b\n c */ \"d\": \"\\\"//\" } // end";
        let expected = "       \n{ \"a\": \"http://x\",     \n      \"d\": \"\\\"//\" }       ";
        assert_eq!(blank_comments(text), expected);
        assert_eq!(blank_comments("/*/ a */ 1"), "         1", "its beginning is not its end");
    }

    #[test]
    fn unclosed_comment_or_string_ends_with_the_text() {
        assert_eq!(blank_comments("1 /* x"), "1     ");
        assert_eq!(blank_comments("\"a // b"), "\"a // b");
        assert_eq!(blank_comments("/ 2"), "/ 2");
    }
}
