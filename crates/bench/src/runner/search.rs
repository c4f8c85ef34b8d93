//! The search for the highest rate that lasts.
//!
//! Pure: takes the records sent and read once in a period, and returns the rate of the next. The rule is that of
//! `OpenMessaging` Benchmark (`RateController` of its main line; variants of it aim at a latency). While producers and
//! consumers keep up, the rate grows by a factor that is doubled before each growth and halved with each failure. When
//! one of them falls behind, the next rate is the rate that was achieved, or the wanted one less the records that are
//! left, whichever is less.

use std::time::Duration;

use serde::Serialize;

/// Smallest bound of the records that may be left, if the environment sets none.
const BACKLOG_RECORDS_MIN: u64 = 1000;
/// The same bound as a share of the records of a second. At high rates so many are always under way, between a
/// producer's buffer and the end of a consumer's poll, however well the server keeps up.
const BACKLOG_SHARE: f64 = 0.1;

/// Options of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// The first rate.
    pub start_rate: f64,
    /// Time between two changes.
    pub period: Duration,
    /// Most unsent records of a period; `None` for a bound by the rate.
    pub publish_backlog: Option<u64>,
    /// Most unread records of a period; `None` for a bound by the rate.
    pub receive_backlog: Option<u64>,
    /// Least growth.
    pub ramp_min: f64,
    /// Greatest growth, and the first.
    pub ramp_max: f64,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            start_rate: 10_000.0,
            period: Duration::from_secs(3),
            publish_backlog: None,
            receive_backlog: None,
            ramp_min: 0.01,
            ramp_max: 1.0,
        }
    }
}

impl SearchOptions {
    /// The defaults, overridden by the environment variables of the original. Values that are no numbers are ignored.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let count = |name| variable(name)?.trim().parse::<u64>().ok();
        let factor = |name| variable(name)?.trim().parse::<f64>().ok().filter(|value| *value > 0.0);
        let defaults = Self::default();
        Self {
            publish_backlog: count("PUBLISH_BACKLOG_LIMIT"),
            receive_backlog: count("RECEIVE_BACKLOG_LIMIT"),
            ramp_min: factor("MIN_RAMPING_FACTOR").unwrap_or(defaults.ramp_min),
            ramp_max: factor("MAX_RAMPING_FACTOR").unwrap_or(defaults.ramp_max),
            ..defaults
        }
    }
}

/// Result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundRate {
    /// Records per second: the highest rate that was kept up for one period, as wanted or as acked, whichever is less;
    /// 0 if none was.
    pub kept_up: f64,
    /// The lowest rate above that which was not kept up; `None` if the search ended before it met one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<f64>,
    /// Length of a period.
    pub period_s: f64,
}

impl FoundRate {
    /// Whether a longer search would hardly find a higher rate.
    pub fn is_conclusive(&self) -> bool {
        self.refused.is_some()
    }
}

/// A search.
///
/// Invariants: `ramp` lies between the options' bounds; the rate is above 0.
#[derive(Clone, Debug)]
pub struct RateSearch {
    options: SearchOptions,
    rate: f64,
    ramp: f64,
    sent_before: u64,
    received_before: u64,
    kept_up: f64,
    /// Every rate that was not kept up.
    refused: Vec<f64>,
}

impl RateSearch {
    /// Begins.
    pub fn new(options: SearchOptions) -> Self {
        let (rate, ramp) = (options.start_rate, options.ramp_max);
        Self { options, rate, ramp, sent_before: 0, received_before: 0, kept_up: 0.0, refused: Vec::new() }
    }

    /// The result so far, the warm-up included; `None` before the first period is over.
    pub fn found(&self) -> Option<FoundRate> {
        let Self { kept_up, ref refused, .. } = *self;
        let above = refused.iter().copied().filter(|rate| *rate > kept_up);
        let (refused, period_s) = (above.min_by(f64::total_cmp), self.options.period.as_secs_f64());
        (kept_up > 0.0 || refused.is_some()).then_some(FoundRate { kept_up, refused, period_s })
    }

    /// The rate now.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The rate of the next period, after one of `elapsed`. `acked` and `received` count from the beginning. `received`
    /// has the reads and the number of groups; `None` without readers.
    pub fn next(&mut self, elapsed: Duration, acked: u64, received: Option<(u64, u64)>) -> f64 {
        let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let expected = self.rate * seconds;
        let sent = acked.saturating_sub(self.sent_before) as f64;
        self.sent_before = acked;
        let behind = received.map(|(received, readers)| self.reading(acked, received, readers));
        if let Some((left, read)) = behind
            && left > self.limit(self.options.receive_backlog)
        {
            return self.slow_down(seconds, expected, left, read);
        }
        let left = expected - sent;
        if left > self.limit(self.options.publish_backlog) {
            return self.slow_down(seconds, expected, left, sent);
        }
        self.kept_up = self.kept_up.max(self.rate.min(sent / seconds));
        self.ramp = (self.ramp * 2.0).min(self.options.ramp_max);
        self.rate += self.rate * self.ramp;
        self.rate
    }

    /// Unread records, and records read in this period, per group on average.
    fn reading(&mut self, acked: u64, received: u64, readers: u64) -> (f64, f64) {
        let readers = readers.max(1) as f64;
        let read = received.saturating_sub(self.received_before) as f64 / readers;
        self.received_before = received;
        ((acked as f64 - received as f64 / readers).max(0.0), read)
    }

    fn limit(&self, given: Option<u64>) -> f64 {
        let by_rate = (self.rate * BACKLOG_SHARE).max(BACKLOG_RECORDS_MIN as f64);
        given.map_or(by_rate, |limit| limit as f64)
    }

    fn slow_down(&mut self, seconds: f64, expected: f64, left: f64, done: f64) -> f64 {
        /// Lowest rate, from which a search that found nothing goes on.
        const RATE_MIN: f64 = 1.0;
        self.refused.push(self.rate);
        self.ramp = (self.ramp / 2.0).max(self.options.ramp_min);
        let next = (expected - left).min(done).max(0.0);
        self.rate = (next / seconds).max(RATE_MIN);
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends and delivers at most `capacity` records a second, and loses none.
    struct Server {
        capacity: f64,
        waiting: f64,
        acked: f64,
    }

    impl Server {
        #[expect(clippy::cast_possible_truncation, reason = "counts of a test")]
        fn work(&mut self, rate: f64, seconds: f64) -> u64 {
            self.waiting += rate * seconds;
            let done = self.waiting.min(self.capacity * seconds);
            self.waiting -= done;
            self.acked += done;
            self.acked.round() as u64
        }
    }

    fn rates(capacity: f64, readers: Option<u64>, periods: usize) -> Vec<f64> {
        let mut server = Server { capacity, waiting: 0.0, acked: 0.0 };
        let mut search = RateSearch::new(SearchOptions::default());
        let period = SearchOptions::default().period;
        (0..periods)
            .map(|_| {
                // Records that were not sent in time are not sent later: a new rate begins a new schedule.
                server.waiting = 0.0;
                let acked = server.work(search.rate(), period.as_secs_f64());
                let read = readers.map(|readers| (acked * readers, readers));
                search.next(period, acked, read)
            })
            .collect()
    }

    #[test]
    fn rate_approaches_the_capacity_and_stays_there() {
        for capacity in [500.0, 40_000.0, 2_000_000.0] {
            for readers in [None, Some(1), Some(3)] {
                let rates = rates(capacity, readers, 60);
                let mean = rates[20..].iter().sum::<f64>() / 40.0;
                // Every other period tries twice as much; the others are at the capacity.
                assert!((0.85..2.0).contains(&(mean / capacity)), "{capacity}: {mean}, {rates:?}");
            }
        }
    }

    #[test]
    fn result_is_the_highest_rate_kept_up_and_the_next_refused() {
        let second = Duration::from_secs(1);
        let mut search = RateSearch::new(SearchOptions { period: second, ..SearchOptions::default() });
        assert_eq!(search.found(), None);
        let found = |search: &RateSearch| search.found().map(|found| (found.kept_up, found.refused)).unwrap();
        let is_conclusive = |search: &RateSearch| search.found().unwrap().is_conclusive();
        search.next(second, 10_000, None);
        assert_eq!(found(&search), (10_000.0, None), "no other rate was tried");
        // 18,500 of 20,000, which is near enough to count as kept up.
        search.next(second, 28_500, None);
        assert_eq!((found(&search), is_conclusive(&search)), ((18_500.0, None), false));
        assert!((search.rate() - 40_000.0).abs() < 1e-6);
        search.next(second, 53_500, None);
        assert_eq!((found(&search), is_conclusive(&search)), ((18_500.0, Some(40_000.0)), true));
        // 25,000 of them were done.
        search.next(second, 78_500, None);
        assert_eq!(found(&search), (25_000.0, Some(40_000.0)));
        let rate = search.rate();
        search.next(second, 78_500, None);
        assert_eq!(found(&search), (25_000.0, Some(rate.min(40_000.0))), "the least of those above");
    }

    #[test]
    fn rate_refused_by_chance_hides_no_higher_one() {
        let mut search = RateSearch::new(SearchOptions::default());
        search.kept_up = 25_000.0;
        search.refused = vec![40_000.0, 20_000.0, 60_000.0];
        assert_eq!(search.found().and_then(|found| found.refused), Some(40_000.0));
    }

    #[test]
    fn rates_are_those_of_the_original_test() {
        // Totals of records that were acked and read after each of two seconds, and the rates that follow.
        let cases = [
            ("reading falls behind", [(10_000, 10_000), (20_000, 15_000)], [20_000.0, 5000.0]),
            ("sending falls behind", [(10_000, 10_000), (15_000, 20_000)], [20_000.0, 5000.0]),
            ("growth after one failure", [(10_000, 5000), (20_000, 20_000)], [5000.0, 10_000.0]),
        ];
        for (case, totals, expected) in cases {
            let mut search = RateSearch::new(SearchOptions::default());
            for ((acked, read), expected) in totals.into_iter().zip(expected) {
                let rate = search.next(Duration::from_secs(1), acked, Some((read, 1)));
                assert!((rate - expected).abs() < 1e-6, "{case}: {rate}, and not {expected}");
            }
        }
    }

    #[test]
    fn late_consumers_slow_producers_down() {
        let mut search = RateSearch::new(SearchOptions::default());
        let period = Duration::from_secs(3);
        let grown = search.next(period, 30_000, Some((30_000, 1)));
        assert!((grown - 20_000.0).abs() < 1.0, "{grown}");
        let slowed = search.next(period, 90_000, Some((60_000, 1)));
        assert!((slowed - 10_000.0).abs() < 1.0, "30,000 were read in 3 s: {slowed}");
    }

    #[test]
    fn environment_variables_are_those_of_the_original() {
        let variable = |name: &str| {
            let value = match name {
                "PUBLISH_BACKLOG_LIMIT" => "5",
                "MAX_RAMPING_FACTOR" => "0.5",
                "MIN_RAMPING_FACTOR" => "none",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let options = SearchOptions::from_variables(variable);
        let expected = SearchOptions { publish_backlog: Some(5), ramp_max: 0.5, ..SearchOptions::default() };
        assert_eq!(options, expected);
    }
}
