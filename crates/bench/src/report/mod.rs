//! One self-contained page of results: no network, no other file, light and dark, wide and narrow.
//!
//! Owns the page. Results go into it unchanged, as data; the page draws them. Guarantees that nothing in a result can
//! become part of the page's own text or code: data is written so that it cannot end its element, and the page inserts
//! it as text only. Refuses files that are no result of ours.

use serde_json::Value;

use crate::result::{FORMAT, OURS};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Most results of one page: beyond this no browser draws them.
const RESULTS_MAX: usize = 2000;

/// The reason why a page cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file is no JSON.
    #[error("{file}: {source}")]
    Json {
        /// Name of the file.
        file: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The file is JSON, but no result of `riverrun bench run`.
    #[error("{file} is no result of riverrun bench run, of format {FORMAT}")]
    NotOurs {
        /// Name of the file.
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

    /// Number of results.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether there are no results.
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
        // One pass: text that was inserted is not searched for places again.
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

/// Leaves out the parts that the page does not draw: the original's columns, which stay in the result's file.
fn slim(mut result: Value) -> Value {
    let (workload, ours) = (result["workload"].take(), result[OURS].take());
    serde_json::json!({ "workload": workload, OURS: ours })
}

/// Escapes text between tags.
fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes JSON within a script element, so that it can neither end the element nor begin a comment. These characters
/// occur in JSON strings only, where they may be written as numbers.
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
    fn page_needs_no_other_file() {
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
    fn result_never_becomes_part_of_the_page() {
        let mut report = Report::new("t");
        report.add("a.json", &result("</script><script>alert(1)</script>{{title}}<!--")).expect("a result");
        let page = report.page().expect("a page");
        assert!(!page.contains("<script>alert") && !page.contains("<!--<") && !page.contains("{{title}}</"));
        assert_eq!(page.matches("</script>").count(), 2, "the page's own two");
        assert!(page.contains("\\u003c/script>"));
        assert!(!SCRIPT.contains("innerHTML"), "data goes into the page as text only");
    }

    #[test]
    fn script_passes_no_series_as_arguments() {
        assert!(!SCRIPT.contains("Math.max(...") && !SCRIPT.contains("Math.min(..."));
    }

    #[test]
    fn only_our_results_are_accepted() {
        let mut report = Report::new("t");
        assert!(matches!(report.page(), Err(ReportError::Empty)));
        assert!(matches!(report.add("a", "{"), Err(ReportError::Json { .. })));
        assert!(matches!(report.add("a", "{\"workload\": \"w\"}"), Err(ReportError::NotOurs { .. })));
        let list = format!("[{}, {}]", result("a"), result("b"));
        report.add("list.json", &list).expect("two results");
        assert_eq!((report.len(), report.is_empty()), (2, false));
    }
}
