//! Findings about holds, paused schedules and disabled jobs: what people stopped on purpose. Such a
//! stop is a fact, and becomes a problem when it seems forgotten. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Finding, Severity};
use crate::job::finding_code::Code;
use crate::store::{self, StoppedCounts, StoppedFacts};
use crate::text::duration::{DAY, show};
use crate::text::{plural, shell};

/// Returns the finding about a hold, a paused schedule or a disabled job.
pub(super) fn finding(fact: &StoppedFacts, now: DateTime<Utc>, operator: &str) -> Finding {
    let code = fact.code;
    let job = fact.job_type.as_deref().unwrap_or_default();
    // The database's clock was ahead when it was stopped. Ignore a small correction.
    let is_ahead = fact.since_at.is_some_and(|at| at > now + TimeDelta::minutes(1));
    let (found, remedy) = match code {
        Code::RunsHeld => {
            let (held, flag) = match (&fact.job_type, &fact.queue, &fact.worker) {
                (Some(job), ..) => (format!("job {job} is"), shell::option("job", job)),
                (_, Some(queue), _) => (format!("queue {queue} is"), shell::option("queue", queue)),
                (.., Some(name)) => (format!("worker {name} is"), shell::option("worker", name)),
                _ => ("all runs are".to_owned(), "--all".to_owned()),
            };
            let forget = match &fact.worker {
                Some(name) => format!(", or `jobctl forget {}`", shell::argument(name)),
                None => String::new(),
            };
            let found = match fact.run_id {
                Some(run) => {
                    format!("job {job} waits, because run {run} asked for a later attempt")
                }
                None => with_cause(format!("{held} held"), fact),
            };
            (found, format!("{operator}`jobctl release {flag}`{forget}"))
        }
        Code::SchedulePaused => (
            with_cause(format!("schedule {job} is paused"), fact),
            format!(
                "{operator}`jobctl resume {}`, or set `enabled = false` in its file",
                shell::argument(job)
            ),
        ),
        Code::JobDisabled => (
            format!(
                "{}, so its max_age of {} is not checked",
                with_cause(format!("job {job} is disabled"), fact),
                max_age(fact).unwrap_or_default()
            ),
            "enable it in its file, or remove its max_age there".to_owned(),
        ),
        // Not reached: look/stopped.sql has no other code.
        _ => (code.as_str().to_owned(), String::new()),
    };
    let is_old = fact.since_at.is_some_and(|at| (now - at).to_std().is_ok_and(|age| age > DAY));
    let has_end = fact.until_at.is_some() || code == Code::JobDisabled;
    let is_forgotten = !has_end && (is_old || fact.keeps_late) || is_ahead;
    Finding {
        severity: if is_forgotten { Severity::Bad } else { Severity::Info },
        job_type: fact.job_type.clone(),
        queue: fact.queue.clone(),
        worker: fact.worker.clone(),
        run_id: fact.run_id,
        since_at: fact.since_at,
        runs: Some(fact.runs),
        example: effects(fact, is_ahead),
        ..Finding::of(code, found, remedy)
    }
}

/// Adds the user that stopped something, and the reason, to the sentence about it: `all runs are
/// held by ana: deploy`.
fn with_cause(mut sentence: String, fact: &StoppedFacts) -> String {
    if let Some(by) = &fact.stopped_by {
        sentence += &format!(" by {by}");
    }
    if let Some(reason) = &fact.reason {
        sentence += &format!(": {reason}");
    }
    sentence
}

/// Returns what a hold or a pause stops, and for how long, if there is something to say.
/// `is_ahead`: the time of its beginning is in the future.
fn effects(fact: &StoppedFacts, is_ahead: bool) -> Option<String> {
    let mut effects = Vec::new();
    if fact.code == Code::RunsHeld {
        if fact.runs > 0 {
            let wait = if fact.runs == 1 { "waits" } else { "wait" };
            effects.push(format!("{} {wait}", plural::of(fact.runs, "due run")));
        }
        effects.extend(fact.until_at.map(|until| format!("until {}", super::minute(until))));
        if is_ahead {
            effects.push("the database's clock was ahead when it began".to_owned());
        }
    } else if fact.code == Code::SchedulePaused {
        effects.extend(max_age(fact).map(|age| format!("its max_age of {age} is not checked")));
    }
    if effects.is_empty() { None } else { Some(effects.join(", ")) }
}

/// Returns the `max_age` of a stopped job, as people see it.
fn max_age(fact: &StoppedFacts) -> Option<String> {
    fact.max_age.map(|seconds| show(store::seconds(seconds)))
}

/// Returns a sentence about the due runs and schedules that a tick leaves alone on purpose; empty
/// for none. Numbers above `most` are shown as "over `most`", because counting ended there.
pub(crate) fn left_alone(counts: &StoppedCounts, most: i64) -> String {
    let StoppedCounts { held, excluded, schedules } = *counts;
    let count = |number: i64, noun: &str, state: &str| {
        let is = if number == 1 { "is" } else { "are" };
        match number {
            0 => None,
            _ if number > most => Some(format!("over {most} {noun}s are {state}")),
            _ => Some(format!("{} {is} {state}", plural::of(number, noun))),
        }
    };
    let counted = [
        count(held, "due run", "held"),
        count(excluded, "due run", "excluded by --shell"),
        count(schedules, "due schedule", "paused"),
    ];
    counted.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
