//! What `doctor` makes of the facts: a verdict on each, and what to do about it. Pure.

mod grants;
mod server;
mod tables;
mod work;

use serde::Serialize;

use crate::{count, store};

pub(crate) use grants::grants;
pub(crate) use server::{Clock, Identity, Link, clock, connection, database, durability, pooler, role, writes};
pub(crate) use tables::{indexes, sequences, sizes, snapshots, vacuum};
pub(crate) use work::{dead, definitions, leases, queues, schedules, ticks, zones};

/// From best to worst.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// The role may not see it.
    Unknown,
    /// Worth knowing; nothing stands still.
    Warn,
    /// Needs a person.
    Bad,
}

impl Verdict {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One line of the answer; the fields are named as the columns are.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) check: &'static str,
    pub(crate) found: String,
    pub(crate) remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, check, found: found.into(), remedy: None }
    }

    fn unknown(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, check, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn warn(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, check, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn bad(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, check, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// A fact that the database would not tell.
pub(crate) fn untold(check: &'static str, error: &store::Error) -> Finding {
    let (found, remedy) = parts(error);
    Finding { verdict: Verdict::Unknown, check, found, remedy }
}

/// The schema, as the look for missing migrations found it: the names of those, or what is wrong.
pub(crate) fn schema(missing: Result<&[&str], &store::Error>) -> Finding {
    const CHECK: &str = "schema";
    match missing {
        Ok([]) => Finding::ok(CHECK, "as this program needs it"),
        Ok(missing) => Finding::bad(CHECK, format!("missing: {}", missing.join(", ")), "run `jobctl migrate`"),
        Err(error) => {
            let (found, remedy) = parts(error);
            Finding { verdict: Verdict::Bad, check: CHECK, found, remedy }
        }
    }
}

/// An error's cause and its remedy.
fn parts(error: &store::Error) -> (String, Option<String>) {
    let line = error.to_string();
    match line.rsplit_once("; ") {
        Some((cause, remedy)) => (cause.to_owned(), Some(remedy.to_owned())),
        None => (line, None),
    }
}

/// The first few names, and the number of the others.
fn some(names: &[impl AsRef<str>]) -> String {
    count::listed(names, 3)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::SessionFacts;

    /// What an ordinary server says.
    pub(super) fn session(pid: i32) -> SessionFacts {
        SessionFacts {
            pid,
            age: Duration::from_millis(5),
            server_version: "15.13 (Debian 15.13-0+deb12u1)".to_owned(),
            encrypted: Some(false),
            tls_version: None,
            role: "app".to_owned(),
            database: "app".to_owned(),
            encoding: "UTF8".to_owned(),
            time_zone: "UTC".to_owned(),
            standby: false,
            read_only: false,
            isolation: "read committed".to_owned(),
            synchronous_commit: "on".to_owned(),
            fsync: true,
            full_page_writes: true,
            autovacuum: true,
        }
    }

    #[test]
    fn verdicts_go_from_best_to_worst() {
        assert!(Verdict::Ok < Verdict::Unknown && Verdict::Unknown < Verdict::Warn && Verdict::Warn < Verdict::Bad);
    }
}
