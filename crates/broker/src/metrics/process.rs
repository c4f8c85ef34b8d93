//! The process's own figures, under the names that Prometheus client libraries agree on.

use std::fmt::{self, Write as _};

/// Ticks per second of `/proc/self/stat`: fixed at 100 on Linux's user interface.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

/// The kernel's figures of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessFigures {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) open_files: u64,
}

/// Reads the figures; a figure that cannot be read (no /proc) stays 0.
pub(super) fn figures() -> ProcessFigures {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    ProcessFigures {
        cpu_seconds: cpu_seconds(&stat).unwrap_or_default(),
        resident_bytes: resident_bytes(&statm).unwrap_or_default(),
        open_files,
    }
}

/// User and system time; the command's name may hold spaces, so fields count from its closing bracket.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / CLOCK_TICKS_PER_SECOND)
}

fn resident_bytes(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Appends the figures to an exposition.
pub(super) fn encode(text: &mut String) -> fmt::Result {
    let figures = figures();
    write!(
        text,
        "# HELP process_cpu_seconds User and system CPU time spent.\n\
         # TYPE process_cpu_seconds counter\n\
         # UNIT process_cpu_seconds seconds\n\
         process_cpu_seconds_total {}\n\
         # HELP process_resident_memory_bytes Resident memory.\n\
         # TYPE process_resident_memory_bytes gauge\n\
         # UNIT process_resident_memory_bytes bytes\n\
         process_resident_memory_bytes {}\n\
         # HELP process_open_fds Open file descriptors.\n\
         # TYPE process_open_fds gauge\n\
         process_open_fds {}\n",
        figures.cpu_seconds, figures.resident_bytes, figures.open_files
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_brackets_and_spaces() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(resident_bytes("100 3 1"), Some(3 * rustix::param::page_size() as u64));
    }

    #[test]
    fn this_process_has_figures() {
        let figures = figures();
        assert!(figures.resident_bytes > 1 << 20, "{figures:?}");
        assert!(figures.open_files > 0, "{figures:?}");
    }
}
