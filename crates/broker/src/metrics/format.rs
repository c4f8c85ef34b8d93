//! The two text formats in which a scrape is answered, and the choice between them.
//!
//! The registry writes `OpenMetrics`. The older text format of Prometheus is made of that: the lines of samples are the
//! same in both, and the lines that describe them differ. Guarantees that only a client that names `OpenMetrics` gets it.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus's text format 0.0.4, which every scraper reads.
    Classic,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The value of the response's `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header asks for: `OpenMetrics` if it is named and plain text is not preferred.
    pub(crate) fn accepted(accept: &str) -> Self {
        let quality =
            |name: &str| accept.split(',').filter_map(|range| quality_of(range, name)).fold(0.0, f32::max);
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Self::OpenMetrics } else { Self::Classic }
    }
}

/// The weight of a media range of this name, 0 to 1.
fn quality_of(range: &str, name: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(name) {
        return None;
    }
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    Some(weight.map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0)))
}

/// The classic form of an `OpenMetrics` exposition: counters are described under the names of their samples; units
/// and the end marker are left out.
pub(super) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            // A family's type stands below its help.
            let is_counter = lines.peek().is_some_and(|next| counter(next).is_some());
            let (name, rest) = help.split_once(' ').unwrap_or((help, ""));
            let suffix = if is_counter { "_total" } else { "" };
            text.extend(["# HELP ", name, suffix, " ", rest, "\n"]);
        } else if let Some(name) = counter(line) {
            text.extend(["# TYPE ", name, "_total counter\n"]);
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// The family that a line declares a counter.
fn counter(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_given_only_on_request() {
        let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", Format::Classic),
            ("*/*", Format::Classic),
            ("text/html, text/plain;q=0.5", Format::Classic),
            ("text/plain;version=0.0.4", Format::Classic),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0", Format::OpenMetrics),
            (scraper, Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Classic),
            ("application/openmetrics-text; q=0.1, text/plain", Format::Classic),
            ("application/openmetrics-text;q=much", Format::Classic),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn classic_form_names_counters_as_samples_and_has_no_units() {
        let open = "\
# HELP a_bytes Bytes.
# TYPE a_bytes counter
# UNIT a_bytes bytes
a_bytes_total{x=\"# UNIT\"} 1
# HELP b Open now.
# TYPE b gauge
b 2
# HELP c_seconds Time.
# TYPE c_seconds histogram
# UNIT c_seconds seconds
c_seconds_sum 0.5
c_seconds_count 1
c_seconds_bucket{le=\"+Inf\"} 1
# EOF
";
        let expected = "\
# HELP a_bytes_total Bytes.
# TYPE a_bytes_total counter
a_bytes_total{x=\"# UNIT\"} 1
# HELP b Open now.
# TYPE b gauge
b 2
# HELP c_seconds Time.
# TYPE c_seconds histogram
c_seconds_sum 0.5
c_seconds_count 1
c_seconds_bucket{le=\"+Inf\"} 1
";
        assert_eq!(classic(open), expected);
    }
}
