//! Lines of `/proc`, as the kernel writes them.
//!
//! Linux only, as the server is. Processor time comes in clock ticks, usually of 10 ms: fine for runs of seconds.

use std::time::Duration;

/// Fields of a `stat` after the name, from 0: state, user time, system time, both of children that were waited for, start.
const STATE_FIELD: usize = 0;
const USER_TIME_FIELD: usize = 11;
const SYSTEM_TIME_FIELD: usize = 12;
const CHILDREN_USER_TIME_FIELD: usize = 13;
const CHILDREN_SYSTEM_TIME_FIELD: usize = 14;
const START_FIELD: usize = 19;

/// The fields of the `stat` of a process or of a thread that are used here, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Whether it has ended, and stays only until its parent takes its exit status.
    pub(crate) has_ended: bool,
    /// User and system time.
    pub(crate) cpu_ticks: u64,
    /// User and system time of its children that have ended and were waited for.
    pub(crate) children_ticks: u64,
    /// The time of its start since the boot.
    pub(crate) start_ticks: u64,
}

/// The name and the other fields. A name may hold blanks and parentheses itself: it ends at the last one.
pub(crate) fn parse_stat(text: &str) -> Option<(&str, Stat)> {
    let (begin, end) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<_> = text.get(end + 1..)?.split_whitespace().collect();
    let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let stat = Stat {
        has_ended: matches!(*fields.get(STATE_FIELD)?, "Z" | "X"),
        cpu_ticks: field(USER_TIME_FIELD)? + field(SYSTEM_TIME_FIELD)?,
        children_ticks: field(CHILDREN_USER_TIME_FIELD)? + field(CHILDREN_SYSTEM_TIME_FIELD)?,
        start_ticks: field(START_FIELD)?,
    };
    Some((text.get(begin + 1..end)?, stat))
}

/// The bytes in a line of a `status`, such as `VmRSS:`.
pub(crate) fn bytes_of(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Time that a thread waited for a core: the second number of its `schedstat`, in nanoseconds.
pub(crate) fn parse_held_up(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

pub(crate) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_hides_no_field() {
        let text = "7 (a ) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 1 0 12345 1 2";
        let (name, stat) = parse_stat(text).expect("fields");
        assert_eq!((name, stat.has_ended), ("a ) b (c", false));
        assert_eq!((stat.cpu_ticks, stat.children_ticks, stat.start_ticks), (300, 15, 12345));
        assert!(parse_stat("7 (cut) S 1").is_none());
        assert!(parse_stat(&text.replace(" S ", " Z ")).is_some_and(|(_, stat)| stat.has_ended));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!((bytes_of(status, "VmRSS:"), bytes_of(status, "VmHWM:")), (Some(1 << 20), Some(2 << 20)));
        assert_eq!(bytes_of(status, "VmSwap:"), None);
    }

    #[test]
    fn the_time_without_a_core_is_read_in_nanoseconds() {
        assert_eq!(parse_held_up("1036238 28531736 11\n"), Some(Duration::from_nanos(28_531_736)));
        assert_eq!(parse_held_up(""), None);
    }
}
