//! The lines that scripts read, as Kafka's tools print them, and ours in microseconds beside them.
//!
//! Guarantees that none of our own lines can be taken for one of theirs: they hold neither the words nor the columns
//! by which scripts find those.

use std::time::Duration;

use riverrun_bench::load::figures::Figures;
use riverrun_measure::histogram::Latencies;
use riverrun_measure::text::number;

/// Kafka's tools count megabytes of 2^20 bytes.
const MIB: f64 = 1_048_576.0;
const US_PER_MS: f64 = 1000.0;

/// Bytes in the tools' megabytes.
pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

fn ms(us: u64) -> f64 {
    us as f64 / US_PER_MS
}

/// Milliseconds without a fraction. Kafka's producer tool subtracts times of a clock of milliseconds: that is as often
/// above as below.
fn rounded_ms(us: u64) -> u64 {
    (us + 500) / 1000
}

/// Milliseconds without a fraction, as Kafka's tool prints percentiles from send to read: it cuts the rest off.
pub(super) fn cut_ms(us: u64) -> u64 {
    us / 1000
}

/// The records sent since the last such line; latencies also of those that failed.
pub(super) fn sent_lately(figures: &Figures, time: Duration) -> String {
    let latency = figures.latency();
    format!(
        "{} records sent, {:.1} records/sec ({:.2} MB/sec), {:.1} ms avg latency, {:.1} ms max latency.",
        figures.records,
        number::rate(figures.records as f64, time),
        number::rate(mib(figures.bytes), time),
        latency.mean_us() / US_PER_MS,
        ms(latency.max_us()),
    )
}

/// All records sent; with a warm-up, `what` tells the records after it from all.
pub(super) fn sent_in_all(figures: &Figures, time: Duration, what: &str) -> String {
    let latency = figures.latency();
    let percentile = |percentile| rounded_ms(latency.percentile_us(percentile));
    format!(
        "{} {what} sent, {:.6} records/sec ({:.2} MB/sec), {:.2} ms avg latency, {:.2} ms max latency, \
         {} ms 50th, {} ms 95th, {} ms 99th, {} ms 99.9th.",
        figures.records,
        number::rate(figures.records as f64, time),
        number::rate(mib(figures.bytes), time),
        latency.mean_us() / US_PER_MS,
        ms(latency.max_us()),
        percentile(50.0),
        percentile(95.0),
        percentile(99.0),
        percentile(99.9),
    )
}

/// A distribution in microseconds, for people.
pub(super) fn microseconds(what: &str, latencies: &Latencies) -> String {
    let percentiles =
        [(50.0, "p50"), (90.0, "p90"), (95.0, "p95"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99")];
    let values: Vec<_> = percentiles
        .iter()
        .map(|(percentile, name)| format!("{name} {}", latencies.percentile_us(*percentile)))
        .collect();
    format!("{what}, us: mean {:.1} {} max {}", latencies.mean_us(), values.join(" "), latencies.max_us())
}

/// Records and bytes that were read, in all or lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadFigures {
    /// Bytes in all.
    pub(super) bytes: u64,
    /// Records in all.
    pub(super) records: u64,
    /// Bytes in `time`.
    pub(super) bytes_lately: u64,
    /// Records in `time`.
    pub(super) records_lately: u64,
    /// The subject of the rates.
    pub(super) time: Duration,
    /// The part of it in which there were no partitions to read.
    pub(super) joining: Duration,
}

impl ReadFigures {
    /// The time less that of joining; zero if less than a millisecond is left, whose rate would be thousands of millions.
    pub(super) fn fetching(&self) -> Duration {
        let fetching = self.time.saturating_sub(self.joining);
        if fetching < Duration::from_millis(1) { Duration::ZERO } else { fetching }
    }

    /// The columns after the first two: sizes and rates by all of the time, then by what joining has left of it.
    pub(super) fn columns(&self) -> String {
        // The tools count in whole milliseconds, and so the columns agree with each other. For 0 ms their total has a rate of
        // `Infinity` and their intervals have 0, which parsers of columns read as a number.
        let (time_ms, joining_ms) = (self.time.as_millis(), self.joining.as_millis());
        let fetching_ms = time_ms.saturating_sub(joining_ms);
        let fetching = if fetching_ms == 0 { Duration::ZERO } else { self.fetching() };
        let (size, count) = (mib(self.bytes_lately), self.records_lately as f64);
        format!(
            "{:.4}, {:.4}, {}, {:.4}, {joining_ms}, {fetching_ms}, {:.4}, {:.4}",
            mib(self.bytes),
            number::rate(size, self.time),
            self.records,
            number::rate(count, self.time),
            number::rate(size, fetching),
            number::rate(count, fetching),
        )
    }
}

/// The names of the columns.
pub(super) fn read_header(detailed: bool) -> String {
    let first = if detailed { "time, threadId" } else { "start.time, end.time" };
    format!(
        "{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
         fetch.MB.sec, fetch.nMsg.sec"
    )
}

/// Figures of the client by the names that Kafka's clients have for them.
pub(super) fn metrics(client_id: &str, values: &[(&str, f64)]) -> String {
    let names: Vec<_> = values.iter().map(|(name, _)| format!("{name}:{{client-id={client_id}}}")).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut text = format!("\n{:width$}   Value\n", "Metric Name");
    for (name, (_, value)) in names.iter().zip(values) {
        text.extend([format!("{name:width$}"), format!(" : {value:.3}\n")]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms of the numbers in a line, everything else as it is: what a script can rely on.
    fn form(line: &str) -> String {
        let mut form = String::new();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            if digits == 0 {
                form.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            rest = &rest[digits..];
            let fraction = rest.strip_prefix('.').map_or(0, |after| {
                after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len())
            });
            if fraction > 0 {
                rest = &rest[1 + fraction..];
                form.extend(["<".to_owned(), fraction.to_string(), ">".to_owned()]);
            } else {
                form.push_str("<n>");
            }
        }
        form
    }

    fn figures() -> Figures {
        let mut figures = Figures::default();
        for number in 1..=2000 {
            figures.record(100, Some(Duration::from_micros(number * 700)), Duration::from_micros(number));
        }
        figures
    }

    /// Lines of Kafka 4.3.1.
    #[test]
    fn a_producer_s_lines_have_the_form_of_kafka_s() {
        let kafka = "2702 records sent, 2691.2 records/sec (0.26 MB/sec), 655.7 ms avg latency, 848.0 ms max latency.";
        assert_eq!(form(&sent_lately(&figures(), Duration::from_millis(1003))), form(kafka));
        let kafka = "8000 records sent, 1923.076923 records/sec (0.18 MB/sec), 673.38 ms avg latency, 2861.00 ms \
                     max latency, 625 ms 50th, 924 ms 95th, 959 ms 99th, 994 ms 99.9th.";
        assert_eq!(form(&sent_in_all(&figures(), Duration::from_secs(3), "records")), form(kafka));
        let kafka = "6000 steady state records sent, 4651.162791 records/sec (0.44 MB/sec), 613.81 ms avg latency, \
                     848.00 ms max latency, 613 ms 50th, 806 ms 95th, 848 ms 99th, 848 ms 99.9th.";
        assert_eq!(
            form(&sent_in_all(&figures(), Duration::from_secs(3), "steady state records")),
            form(kafka)
        );
    }

    #[test]
    fn figures_count_from_the_time_at_which_records_were_due() {
        let line = sent_in_all(&figures(), Duration::from_secs(4), "records");
        assert!(
            line.starts_with("2000 records sent, 500.000000 records/sec (0.05 MB/sec), 700.35 ms avg"),
            "{line}"
        );
        assert!(line.contains("1400.00 ms max latency, 700 ms 50th, 1330 ms 95th, 1386 ms 99th"), "{line}");
    }

    #[test]
    fn nothing_sent_is_zero_and_no_division_by_it() {
        let line = sent_in_all(&Figures::default(), Duration::ZERO, "records");
        assert!(
            line.starts_with("0 records sent, 0.000000 records/sec (0.00 MB/sec), 0.00 ms avg"),
            "{line}"
        );
    }

    #[test]
    fn a_consumer_s_row_and_header_have_the_form_of_kafka_s() {
        let figures = ReadFigures {
            bytes: 1_000_100,
            records: 10_001,
            bytes_lately: 1_000_100,
            records_lately: 10_001,
            time: Duration::from_millis(3278),
            joining: Duration::from_millis(2658),
        };
        let kafka = "0.9538, 0.2910, 10001, 3050.9457, 2658, 620, 1.5383, 16130.6452";
        assert_eq!(figures.columns(), kafka);
        let kafka = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
                     rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";
        assert_eq!(read_header(false), kafka);
        let kafka = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
                     rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";
        assert_eq!(read_header(true), kafka);
    }

    #[test]
    fn a_fetch_of_less_than_a_millisecond_has_no_rate() {
        let fetched_in = |us| {
            let joining = Duration::from_micros(2_000_300);
            let time = joining + Duration::from_micros(us);
            let (bytes, records) = (1_048_576, 500);
            let (bytes_lately, records_lately) = (bytes, records);
            let figures = ReadFigures { bytes, records, bytes_lately, records_lately, time, joining };
            let columns = figures.columns();
            columns.split(", ").skip(5).map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fetched_in(0), "0 0.0000 0.0000");
        assert_eq!(fetched_in(600), "0 0.0000 0.0000");
        assert_eq!(fetched_in(900), "1 0.0000 0.0000", "two clock ticks apart, and less than one");
        assert_eq!(fetched_in(2000), "2 500.0000 250000.0000");
    }

    #[test]
    fn our_own_lines_are_not_taken_for_kafka_s() {
        let line = microseconds("latency from the time due", figures().latency());
        assert!(line.starts_with("latency from the time due, us: mean 700350.0 p50 70"), "{line}");
        assert!(line.ends_with(" max 1400000"), "{line}");
        for words in ["records sent", "latency.", "50th", " ms ", ", 0"] {
            assert!(!line.contains(words), "{words:?} in {line}");
        }
        assert!(line.matches(", ").count() < 7, "as many columns as a row of theirs");
    }

    #[test]
    fn milliseconds_are_rounded_or_cut_off_as_kafka_s_tool_does() {
        assert_eq!([0, 499, 500, 1499, 1500].map(rounded_ms), [0, 0, 1, 1, 2]);
        assert_eq!([0, 525, 999, 1000, 1999].map(cut_ms), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn metrics_stand_in_columns() {
        let text = metrics("me", &[("a:b", 1.0), ("longer:name", 2.5)]);
        let expected = "\nMetric Name                  Value\na:b:{client-id=me}         : 1.000\n\
                        longer:name:{client-id=me} : 2.500\n";
        assert_eq!(text, expected);
    }
}
