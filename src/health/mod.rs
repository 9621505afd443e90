//! Judges facts once, for all commands: a finding has a severity, a sentence and a remedy. Pure.

mod findings;
mod server;
mod stopped;
mod tables;
pub(crate) mod why_waiting;

use std::collections::BTreeMap;
use std::fmt::Display;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::job::finding_code::Code;
use crate::store;
use crate::text::{plural, timestamp};

pub(crate) use findings::{SKIPPED_WITHOUT_TICKS, checks, idle, work};
pub(crate) use server::{
    ClockFacts, ConnectionFacts, address, clock, connection, database, durability, grants, objects,
    pooler, role, writes, zones,
};
pub(crate) use stopped::left_alone;
pub(crate) use tables::{indexes, sizes, snapshots, vacuum};

/// How bad a finding is, from best to worst.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    #[default]
    Ok,
    /// Stopped on purpose.
    Info,
    /// The role may not see the facts.
    Unknown,
    /// Worth knowing; the work goes on.
    Warn,
    /// A person must act.
    Bad,
}

/// A fact about the state of jobctl, or about one job, queue, worker or run, in words for a person.
/// The fields are named as in `check --json` and `doctor --json`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The check of `doctor` that finds it. Empty for a check outside of the work: `doctor` adds
    /// its name.
    pub(crate) check: &'static str,
    /// The problem in a sentence without an age.
    pub(crate) found: String,
    pub(crate) remedy: Option<String>,
    /// A run that shows the problem.
    pub(crate) example: Option<String>,
    /// A stable name of the problem; `None` for a check outside of the work, or if all is well.
    pub(crate) code: Option<Code>,
    pub(crate) job_type: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) run_id: Option<i64>,
    #[serde(with = "timestamp")]
    pub(crate) since_at: Option<DateTime<Utc>>,
    /// The jobs that a problem of a queue concerns.
    #[serde(skip)]
    pub(crate) jobs: Vec<String>,
    /// The number of runs that the finding concerns; `None`: it may concern all, as the cause of
    /// other problems.
    #[serde(skip)]
    pub(crate) runs: Option<i64>,
    /// When the problem last grew, if that was after `since_at`.
    #[serde(skip)]
    pub(crate) newest_at: Option<DateTime<Utc>>,
}

impl Finding {
    fn new(severity: Severity, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity, found: found.into(), remedy: Some(remedy.into()), ..Self::default() }
    }

    /// Returns a finding about the work, to which the caller adds the severity.
    fn of(code: Code, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (check, code) = (code.check().as_str(), Some(code));
        Self { check, code, ..Self::new(Severity::default(), found, remedy) }
    }

    /// Returns the sentence with its age and the example. `since` returns words for the age, such
    /// as `since 02:00` or `for 3h`.
    pub(crate) fn sentence(&self, since: impl FnOnce(DateTime<Utc>) -> String) -> String {
        match self.since_at {
            Some(at) => self.followed_by_example(format!("{}, {}", self.found, since(at))),
            None => self.with_example(),
        }
    }

    /// Returns the sentence with the example.
    pub(crate) fn with_example(&self) -> String {
        self.followed_by_example(self.found.clone())
    }

    /// Adds the example in brackets, if there is one.
    fn followed_by_example(&self, sentence: String) -> String {
        match &self.example {
            Some(example) => format!("{sentence} ({example})"),
            None => sentence,
        }
    }

    /// Returns the kind of problem, and the job, queue or worker that has it.
    pub(crate) fn scope(&self) -> String {
        let Self { code, job_type, queue, worker, .. } = self;
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let code = code.map_or("", Code::as_str);
        format!("{code} {} {} {}", name(job_type), name(queue), name(worker))
    }

    /// Returns a text that identifies the problem for `check --repeat`. It stays the same while the
    /// numbers in the sentence change, but another dead run or long run is another problem.
    pub(crate) fn subject(&self) -> String {
        let has_run = matches!(self.code, Some(Code::RunsDead | Code::RunLong));
        let run = self.run_id.filter(|_| has_run).unwrap_or_default();
        format!("{} {run}", self.scope())
    }

    /// Returns the sentence with the age of the problem at `now`.
    pub(crate) fn aged(&self, now: DateTime<Utc>) -> String {
        self.sentence(|at| format!("for {}", timestamp::age(at, now)))
    }
}

/// Returns the finding that all is well.
fn ok(found: impl Into<String>) -> Finding {
    Finding { found: found.into(), ..Finding::default() }
}

/// Returns the finding that a fact is unknown, as when it is hidden from this role.
fn unknown(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Severity::Unknown, found, remedy)
}

/// Returns a finding that is worth knowing.
fn warn(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Severity::Warn, found, remedy)
}

/// Returns a problem that a person must solve.
fn bad(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::new(Severity::Bad, found, remedy)
}

/// Returns a time to the minute. Unlike an age, it stays the same while time passes.
pub(crate) fn minute(at: DateTime<Utc>) -> impl Display {
    at.format("%Y-%m-%d %H:%M UTC")
}

/// Chooses `most` findings to show, and returns them in their order, with the number of the others.
/// Chooses one finding of each code, then a second one of each and so on, so that many findings
/// with one code do not hide those with another.
pub(crate) fn first<'a>(findings: &[&'a Finding], most: usize) -> (Vec<&'a Finding>, usize) {
    let mut found_with_code = BTreeMap::new();
    let mut turns = Vec::new();
    for (place, finding) in findings.iter().enumerate() {
        let turn = found_with_code.entry(finding.code).or_insert(0);
        turns.push((*turn, place));
        *turn += 1;
    }
    turns.sort_unstable();
    let mut chosen: Vec<_> = turns.iter().map(|(_, place)| *place).take(most).collect();
    chosen.sort_unstable();
    let others = findings.len() - chosen.len();
    (chosen.iter().map(|place| findings[*place]).collect(), others)
}

/// Returns the finding that the facts of a check can't be read.
pub(crate) fn unreadable(error: &store::Error) -> Finding {
    // A lock or an overload is a problem. Other errors may be intended, as a missing privilege.
    let is_problem = matches!(error.kind, store::Kind::Busy | store::Kind::Lost);
    from_error(if is_problem { Severity::Bad } else { Severity::Unknown }, error)
}

/// Judges the schema. `missing` has the names of missing migrations, functions and views, or why
/// the schema can't be used. `address` is that of the database.
pub(crate) fn schema(missing: Result<&[&str], &store::Error>, address: &str) -> Finding {
    match missing {
        Ok([]) => ok("up to date"),
        // Only the names of functions and views have a slash.
        Ok(missing) if missing.iter().all(|name| name.contains('/')) => bad(
            format!("another program applied its {}", first_three(missing)),
            "run `jobctl migrate` of the newest program, and install it on each host",
        ),
        Ok(missing) => bad(
            format!("missing migrations: {} (database {address})", missing.join(", ")),
            store::MIGRATE,
        ),
        Err(error) => from_error(Severity::Bad, error),
    }
}

/// Judges the `JOBCTL_*` variables that jobctl does not read, each with the similar variable that
/// was probably meant.
pub(crate) fn environment(unknown: &[(String, Option<String>)]) -> Finding {
    if unknown.is_empty() {
        return ok("all JOBCTL_ variables are known");
    }
    let names: Vec<_> = unknown.iter().map(|(name, _)| name).collect();
    let similar: Vec<_> = unknown.iter().filter_map(|(_, similar)| similar.as_ref()).collect();
    let remedy = if similar.is_empty() {
        "unset it, or see the flags of the command".to_owned()
    } else {
        format!("did you mean {}?", first_three(&similar))
    };
    warn(format!("jobctl does not read {}", first_three(&names)), remedy)
}

/// Judges the `variables` that name a proxy.
pub(crate) fn proxies(variables: &[&str]) -> Finding {
    warn(
        format!(
            "HTTP jobs do not use the proxy of {}; they call servers directly",
            first_three(variables)
        ),
        "allow direct connections, or call the server in a shell job, for example with curl",
    )
}

/// Returns the finding that cron does not mail the lines of `check`, and `why`.
pub(crate) fn mail(why: &str) -> Finding {
    warn(why, "install a mail program, or send the lines of `check` elsewhere, as to a webhook")
}

/// Returns the finding about an error, with its cause and its remedy.
fn from_error(severity: Severity, error: &store::Error) -> Finding {
    // Split the text, not the fields of the error: in some errors, `cause` ends with the remedy, or
    // `remedy` begins with a part of the cause.
    let line = error.to_string();
    let (cause, remedy) =
        line.rsplit_once("; ").map_or((&*line, None), |(cause, remedy)| (cause, Some(remedy)));
    let (found, remedy) = (cause.to_owned(), remedy.map(str::to_owned));
    Finding { severity, found, remedy, ..Finding::default() }
}

/// Returns the `name` of each fact that `matches`. A name that successive facts have is there once.
fn names<'a, T>(
    facts: &'a [T],
    matches: impl Fn(&T) -> bool,
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<&'a str> {
    let mut names: Vec<_> = facts.iter().filter(|fact| matches(fact)).map(name).collect();
    names.dedup();
    names
}

/// Returns the first three names, and the number of the others.
fn first_three(names: &[impl AsRef<str>]) -> String {
    plural::listed(names, 3)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::SessionFacts;

    /// The session of an ordinary server.
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
            replication_role: "origin".to_owned(),
            synchronous_commit: "on".to_owned(),
            fsync: true,
            full_page_writes: true,
            autovacuum: true,
        }
    }

    #[test]
    fn severities_are_ordered_from_best_to_worst() {
        assert!(
            Severity::Ok < Severity::Info
                && Severity::Info < Severity::Unknown
                && Severity::Unknown < Severity::Warn
                && Severity::Warn < Severity::Bad
        );
    }
}
