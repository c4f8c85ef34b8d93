//! The send time that a record carries from its sender to its reader.
//!
//! Guarantees that within one process these times never step: they are the wall clock as of the making of
//! [`StampClock`], advanced by the monotonic clock. Between machines they differ by as much as the machines' clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a time in a value.
pub(crate) const STAMP_BYTES: usize = size_of::<u64>();

/// Turns instants into nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StampClock {
    instant: Instant,
    since_epoch: Duration,
}

impl StampClock {
    pub(crate) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), since_epoch }
    }

    /// The time of an instant, which may lie before this clock was made.
    pub(crate) fn at(&self, instant: Instant) -> Duration {
        match instant.checked_duration_since(self.instant) {
            Some(later) => self.since_epoch + later,
            None => self.since_epoch.saturating_sub(self.instant.duration_since(instant)),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.at(Instant::now())
    }
}

/// Writes a time over the first bytes of a value, if it is long enough.
pub(crate) fn write_stamp(value: &mut [u8], time: Duration) {
    if let Some(place) = value.first_chunk_mut::<STAMP_BYTES>() {
        *place = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_be_bytes();
    }
}

/// The time in the first bytes of a value; none if it is too short to hold one.
pub(crate) fn read_stamp(value: &[u8]) -> Option<Duration> {
    value.first_chunk::<STAMP_BYTES>().map(|place| Duration::from_nanos(u64::from_be_bytes(*place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_a_value_is_read_as_it_was_written() {
        let mut value = [7; 12];
        let time = Duration::from_nanos(1_700_000_000_123_456_789);
        write_stamp(&mut value, time);
        assert_eq!(read_stamp(&value), Some(time));
        assert_eq!(value[8..], [7; 4]);
        let mut short = [7; 7];
        write_stamp(&mut short, time);
        assert_eq!((short, read_stamp(&short)), ([7; 7], None));
    }

    #[test]
    fn times_are_as_far_apart_as_their_instants() {
        let clock = StampClock::new();
        let now = Instant::now();
        let step = Duration::from_millis(1500);
        assert_eq!(clock.at(now + step), clock.at(now) + step);
        let before = clock.instant.checked_sub(step).expect("it runs longer than that");
        assert_eq!(clock.at(clock.instant), clock.at(before) + step);
    }
}
