//! The way of appends to a log.

/// The destination of a log's appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// To the segments, when [`PartitionLog::write_staged`](crate::PartitionLog::write_staged) is called.
    Segment,
    /// To the journal, at once.
    Journal,
    /// Nowhere yet: the level is being changed, and appends went to the segments before.
    LeavingSegment,
    /// Nowhere yet: the level is being changed, and appends went to the journal before.
    LeavingJournal,
}

impl Mode {
    /// The same log while its level is being changed.
    pub(crate) fn leaving(self) -> Self {
        match self {
            Self::Segment | Self::LeavingSegment => Self::LeavingSegment,
            Self::Journal | Self::LeavingJournal => Self::LeavingJournal,
        }
    }

    /// Whether the level is being changed.
    pub(crate) fn is_leaving(self) -> bool {
        self == self.leaving()
    }

    /// Whether the journal may have entries of the log that no checkpoint covers.
    pub(crate) fn has_journal(self) -> bool {
        self.leaving() == Self::LeavingJournal
    }
}
