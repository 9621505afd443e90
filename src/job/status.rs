//! The status of a run. Pure.

/// The words of the `status` column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Status {
    /// Waits for its first attempt, or for one after an interruption or a retry.
    Queued,
    /// Held by a tick until its lease ends.
    Running,
    Succeeded,
    /// Waits for its next attempt after a failure.
    Failed,
    /// Failed for good.
    Dead,
    Cancelled,
}

impl Status {
    pub(crate) const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Dead, Self::Cancelled];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn words(statuses: &[Self]) -> Vec<&'static str> {
        statuses.iter().map(|status| status.as_str()).collect()
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}
