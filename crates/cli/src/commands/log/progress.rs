//! Progress of a verification, on stderr, if that is a terminal.

use indicatif::ProgressBar;
use riverrun_log::VerifyStep;
use riverrun_measure::text::number;
use riverrun_tools::progress;

/// A line that says which partition is read, and how far it is.
pub(super) struct Progress {
    bar: ProgressBar,
    partition: usize,
    partitions: usize,
}

impl Progress {
    /// Begins before the first of so many partitions.
    pub(super) fn start(partitions: usize) -> Self {
        Self { bar: progress::bar(None, progress::WITHOUT_END), partition: 0, partitions }
    }

    pub(super) fn begin_partition(&mut self) {
        self.partition += 1;
    }

    pub(super) fn show(&self, step: &VerifyStep) {
        if !self.bar.is_hidden() {
            self.bar.set_message(message(self.partition, self.partitions, step));
            self.bar.tick();
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn message(partition: usize, partitions: usize, step: &VerifyStep) -> String {
    let VerifyStep { segment, segments, bytes, bytes_total } = step;
    format!(
        "partition {partition} of {partitions}, segment {segment} of {segments}: {} of {}",
        number::bytes(*bytes),
        number::bytes(*bytes_total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_which_partition_and_segment_is_read() {
        let step = VerifyStep { segment: 3, segments: 15, bytes: 2_500_000_000, bytes_total: 15_000_000_000 };
        assert_eq!(message(2, 7, &step), "partition 2 of 7, segment 3 of 15: 2.5 GB of 15.0 GB");
    }
}
