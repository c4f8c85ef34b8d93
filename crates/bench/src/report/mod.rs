//! One self-contained page of results: no network, no other file, light and dark, wide and narrow.
//!
//! Owns the page. Results go into it as they are, as data; the page draws them. Guarantees that nothing in a result can
//! become part of the page's own text or code: data is written so that it cannot end its element, and the page puts it
//! in as text only. Refuses files that are no result of ours.

use serde_json::Value;

use crate::result::{FORMAT, OURS};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Results of one page: beyond this no browser draws them.
const RESULTS_MAX: usize = 2000;

/// Why a page cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file is no JSON.
    #[error("{file}: {source}")]
    Json {
        /// Which.
        file: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The file is JSON, but no result of `riverrun bench run`.
    #[error("{file} is no result of riverrun bench run, of format {FORMAT}")]
    NotOurs {
        /// Which.
        file: String,
    },
    /// There are more results than fit.
    #[error("more than {RESULTS_MAX} results are too many for one page")]
    TooMany,
    /// There is no result at all.
    #[error("there are no results")]
    Empty,
}

/// A page in the making.
#[derive(Debug)]
pub struct Report {
    title: String,
    results: Vec<Value>,
}

impl Report {
    /// A page without results.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), results: Vec::new() }
    }

    /// How many results it has.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Adds the results of a file: one, or a list of them as `bench run --json` prints it.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), ReportError> {
        let json = |source| ReportError::Json { file: file.to_owned(), source };
        let value: Value = serde_json::from_str(text).map_err(json)?;
        let results = match value {
            Value::Array(results) => results,
            one => vec![one],
        };
        for result in results {
            if result[OURS]["format"] != FORMAT {
                return Err(ReportError::NotOurs { file: file.to_owned() });
            }
            if self.results.len() == RESULTS_MAX {
                return Err(ReportError::TooMany);
            }
            self.results.push(slim(result));
        }
        Ok(())
    }

    /// The page.
    pub fn page(&self) -> Result<String, ReportError> {
        if self.is_empty() {
            return Err(ReportError::Empty);
        }
        let data = Value::from(self.results.clone()).to_string();
        let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
        let mut rest = PAGE;
        // One pass: what is put in is not looked at again, whatever is in it.
        while let Some((before, after)) = rest.split_once("{{") {
            page.push_str(before);
            let (name, after) = after.split_once("}}").unwrap_or((after, ""));
            match name {
                "title" => page.push_str(&escape_text(&self.title)),
                "style" => page.push_str(STYLE),
                "script" => page.push_str(SCRIPT),
                "data" => page.push_str(&escape_data(&data)),
                other => unreachable!("the page has no place {other}"),
            }
            rest = after;
        }
        page.push_str(rest);
        Ok(page)
    }
}

/// What the page does not draw is left out: the original's columns, which stand in the result's file.
fn slim(mut result: Value) -> Value {
    let (workload, ours) = (result["workload"].take(), result[OURS].take());
    serde_json::json!({ "workload": workload, OURS: ours })
}

/// Text between tags.
fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON within a script element: it must not end it, nor begin a comment. Within JSON these signs stand in strings only,
/// where they may be written as numbers.
fn escape_data(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod fixture;

#[cfg(test)]
mod tests {
    use super::*;

    fn result(workload: &str) -> String {
        serde_json::json!({ "workload": workload, "publishRate": [1.0], OURS: { "format": FORMAT, "server": "s" } })
            .to_string()
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let mut report = Report::new("Title & <more>");
        report.add("a.json", &result("w")).expect("a result");
        let page = report.page().expect("a page");
        assert!(page.contains("<title>Title &amp; &lt;more&gt;</title>"));
        for outside in ["http://", "https://", "src=", "@import", "url(", "fetch("] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside} is in the page");
        }
        assert!(!page.contains("{{title"), "every place is filled");
        assert!(!page.contains("\"publishRate\":["), "the original's columns are left out");
    }

    #[test]
    fn nothing_in_a_result_becomes_part_of_the_page() {
        let mut report = Report::new("t");
        report.add("a.json", &result("</script><script>alert(1)</script>{{title}}<!--")).expect("a result");
        let page = report.page().expect("a page");
        assert!(!page.contains("<script>alert") && !page.contains("<!--<") && !page.contains("{{title}}</"));
        assert_eq!(page.matches("</script>").count(), 2, "the page's own two");
        assert!(page.contains("\\u003c/script>"));
        assert!(!SCRIPT.contains("innerHTML"), "data goes into the page as text only");
    }

    #[test]
    fn no_series_is_so_long_that_it_is_too_many_arguments() {
        assert!(!SCRIPT.contains("Math.max(...") && !SCRIPT.contains("Math.min(..."));
    }

    #[test]
    fn only_results_of_ours_are_taken() {
        let mut report = Report::new("t");
        assert!(matches!(report.page(), Err(ReportError::Empty)));
        assert!(matches!(report.add("a", "{"), Err(ReportError::Json { .. })));
        assert!(matches!(report.add("a", "{\"workload\": \"w\"}"), Err(ReportError::NotOurs { .. })));
        let list = format!("[{}, {}]", result("a"), result("b"));
        report.add("list.json", &list).expect("two results");
        assert_eq!((report.len(), report.is_empty()), (2, false));
    }
}
