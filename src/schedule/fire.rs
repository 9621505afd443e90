//! A fire as it is shown to people: the instant, the clock's time, and what a change of the clock has
//! to do with it.

use std::fmt;

use chrono::{DateTime, FixedOffset, Utc};
use serde::{Serialize, Serializer};

use super::clock::Gap;

/// One upcoming nominal time.
#[derive(Debug, Serialize)]
pub(crate) struct Fire {
    pub(crate) at: DateTime<Utc>,
    /// The same by the schedule's clock.
    pub(crate) local: DateTime<FixedOffset>,
    pub(crate) mark: Option<Mark>,
}

#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Mark {
    /// The fire makes up for times that the clock leapt over.
    AfterGap(Gap),
    /// Times since the fire before are left out because the clock leapt over them.
    LeftOut(Gap),
    /// The clock shows this time twice; only the first counts.
    Once,
    /// The clock shows this time twice; both count.
    FirstPass,
    SecondPass,
}

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfterGap(gap) => write!(formatter, "right after a gap: {gap} does not exist"),
            Self::LeftOut(gap) => write!(formatter, "none in the gap before: {gap} does not exist"),
            Self::Once => formatter.write_str("repeated time: first pass only"),
            Self::FirstPass => formatter.write_str("repeated time: first pass"),
            Self::SecondPass => formatter.write_str("repeated time: second pass"),
        }
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
