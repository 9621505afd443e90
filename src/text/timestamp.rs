//! Times in JSON and TSV: RFC 3339 in UTC with six digits of a second, as PostgreSQL stores them.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(
    at: &(impl Copy + Into<Option<DateTime<Utc>>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let at: Option<DateTime<Utc>> = (*at).into();
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true)).serialize(serializer)
}
