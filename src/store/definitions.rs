//! Definitions and their schedules: apply, fire, pause, resume.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::row::{PgResult, column, rows, timestamp};
use super::statement::query;
use super::transaction::Transaction;
use super::{Cause, Error, Kind, Result, Store};
use crate::exit::Exit;
use crate::job::definition_keys::Overlap;
use crate::job::due::{self, DueSchedule, FirePlan, Scheduled};
use crate::job::graph::{self, Graph};
use crate::job::stored_definition;

/// What becomes of definitions that are missing from the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unlisted {
    Disable,
    Remove,
}

/// The terms of an `apply`.
#[derive(Clone, Debug)]
pub(crate) struct ApplyTerms {
    /// The name of the file; empty for none.
    pub(crate) file: String,
    /// What becomes of definitions that belong to this file and are missing from it.
    pub(crate) unlisted: Unlisted,
    /// Whether the file may take over definitions that belong to another file.
    pub(crate) takes_over: bool,
    pub(crate) mode: ApplyMode,
}

/// Whether `apply` changes definitions or only shows the changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ApplyMode {
    /// Changes definitions.
    Change,
    /// Changes definitions, unless a person must agree first. The person has agreed to the end of
    /// the definitions in the list.
    ChangeIfAgreed(Vec<String>),
    /// Only shows the changes.
    DryRun,
}

impl ApplyMode {
    /// Returns whether a person must first agree to the end of these definitions: if some of them
    /// have a schedule or waiting runs, or if they are more than the `staying` ones, and if the
    /// person has not agreed already.
    fn must_ask(&self, ended: &[EndedDefinition], staying: usize) -> bool {
        let Self::ChangeIfAgreed(agreed) = self else { return false };
        let stops_work = ended.iter().any(|ended| ended.is_scheduled || ended.waiting > 0);
        let are_most = ended.len() > staying;
        let has_agreed = ended.iter().all(|ended| agreed.contains(&ended.name));
        (stops_work || are_most) && !has_agreed
    }
}

/// The changes of `apply`.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) changed: Vec<ChangedDefinition>,
    /// The disabled or removed definitions.
    pub(crate) ended: Vec<EndedDefinition>,
    /// Whether nothing was changed, because a person must agree first.
    pub(crate) must_ask: bool,
    /// What becomes of the due times of schedules.
    pub(crate) due: Vec<DueTimes>,
    /// Hooks that are not possible. Nothing was changed if there are any.
    pub(crate) wrong_hooks: Vec<WrongHook>,
    /// The jobs that follow others. Nothing was changed if this graph has mistakes.
    pub(crate) graph: Graph,
    /// Roles that `enqueuers` name, but that do not exist.
    pub(crate) unknown_enqueuers: Vec<UnknownEnqueuer>,
    /// Definitions of other files, and the names of these files. Nothing was changed if there are
    /// any, unless the terms allow to take them over.
    pub(crate) foreign: Vec<(String, String)>,
}

/// A definition that `apply` added or changed. Its keys are JSON in the words of the file.
#[derive(Debug)]
pub(crate) struct ChangedDefinition {
    pub(crate) name: String,
    /// The keys before; `None`: the definition was added.
    pub(crate) before: Option<Value>,
    pub(crate) after: Value,
}

/// The due times of a schedule, after its definition changed.
#[derive(Debug)]
pub(crate) struct DueTimes {
    pub(crate) job: String,
    /// The first due time.
    pub(crate) since: DateTime<Utc>,
    /// How many runs the next tick queues for these times, unless an earlier run is not finished.
    /// 0: the times are dropped.
    pub(crate) runs: usize,
}

rows! {
    /// A key that names a job which can't be the hook of this one, or that it can't follow, see
    /// operate/wrong_hooks.sql.
    pub(crate) struct WrongHook {
        pub(crate) job: String,
        pub(crate) key: String,
        pub(crate) hook: String,
        pub(crate) served: Option<String>,
    }

    /// A role that does not exist, but that `enqueuers` name, see operate/unknown_enqueuers.sql.
    pub(crate) struct UnknownEnqueuer {
        pub(crate) role: String,
        /// One of the definitions that name the role.
        pub(crate) job: String,
        /// How many definitions name the role.
        pub(crate) jobs: i64,
    }

    /// A definition that the file no longer has.
    pub(crate) struct EndedDefinition {
        pub(crate) name: String,
        /// Whether it had a schedule that was enabled.
        pub(crate) is_scheduled: bool,
        /// How many waiting runs a claim will end as dead, because the definition was removed.
        pub(crate) waiting: i64,
        /// Whether these runs lose hooks that the definition had.
        pub(crate) has_hooks: bool,
    }

    /// A definition whose schedule was paused.
    pub(crate) struct PausedDefinition {
        /// Whether it has a schedule, follows other jobs, or has schedules of applications.
        /// Otherwise the pause has no effect yet.
        pub(crate) has_schedule: bool,
    }

    /// A definition whose schedule was resumed.
    pub(crate) struct ResumedDefinition {
        /// `None`: the definition is disabled, or has no schedule.
        pub(crate) next_run_at: Option<DateTime<Utc>>,
    }
}

rows! {
    /// A definition, and why its schedule does not fire.
    pub(crate) struct StoredDefinition {
        pub(crate) job_type: String,
        /// JSON in the words of the file, including secrets.
        #[serde(skip)]
        pub(crate) keys: String,
        /// `fires`, `broken`, `paused` or `disabled`; `None`: no schedule, and not disabled.
        pub(crate) state: Option<String>,
        /// The start of the pause, or the time when the definition was disabled if it is known.
        pub(crate) since_at: Option<DateTime<Utc>> as "timestamp",
        /// The user that paused or disabled it.
        pub(crate) changed_by: Option<String>,
        pub(crate) reason: Option<String>,
        #[serde(skip)]
        pub(crate) next_run_at: Option<DateTime<Utc>>,
        pub(crate) skipped_fires: i64,
        /// The number of schedules that applications made; 0 in a list of several definitions.
        pub(crate) application_schedules: i64,
        /// The logins that made them.
        pub(crate) schedule_owners: Vec<String>,
        /// By the database's clock.
        #[serde(skip)]
        pub(crate) now: DateTime<Utc>,
    }
}

/// The longest wait for another `apply`, well within the limit of a transaction.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How many schedules of applications are shown for each job.
pub(crate) const SHOWN_APPLICATION_SCHEDULES: i64 = 5;
/// How many due schedules are looked up at a time.
pub(crate) const FIRED_AT_ONCE: i64 = 500;

impl Store {
    /// Makes the definitions equal to the rows that `rows` returns, in one transaction. Concurrent
    /// `apply`s run one at a time. Fires nothing: the next tick fires the schedules that are
    /// due by the new definitions.
    ///
    /// - `names`: the names of the definitions in the file.
    /// - `rows` gets the database's time, from which it calculates the next time of each schedule.
    ///   It is called only when this `apply` has its turn, because another one may take long.
    pub(crate) fn apply(
        &self,
        names: Vec<String>,
        rows: impl Fn(DateTime<Utc>) -> Value,
        terms: ApplyTerms,
        cause: Cause,
    ) -> Result<Applied> {
        let applied = self.transact("apply definitions", |transaction| {
            let Cause { host_user, reason, .. } = &cause;
            if !lock_definitions(transaction)? {
                return Ok(None);
            }
            let ApplyTerms { file, unlisted, takes_over, mode } = &terms;

            // Write, and remember which times were due before.
            let now = transaction.one(query!("look/now"))?;
            let due_before = due_own_schedules(transaction)?;
            let changed = write_definitions(transaction, &rows(now))?;
            note_changes(transaction, &changed, &cause)?;
            let removes = *unlisted == Unlisted::Remove;
            let ended: Vec<EndedDefinition> = transaction
                .list(query!("operate/end_others"; names, file, removes, host_user, reason))?;

            // Read what follows from the changes.
            let due = due_times(due_before, due_own_schedules(transaction)?, &changed);
            let wrong_hooks: Vec<WrongHook> = transaction.list(query!("operate/wrong_hooks"))?;
            let graph = graph::read(&transaction.list(query!("operate/job_graph"))?, now);
            let unknown_enqueuers = transaction.list(query!("operate/unknown_enqueuers"; names))?;
            let foreign = if *takes_over { Vec::new() } else { of_other_files(&changed, file) };

            // Undo everything if it may not stay.
            let added = changed.iter().filter(|one| one.before.is_none()).count();
            let must_ask = mode.must_ask(&ended, names.len() - added);
            let is_refused =
                !wrong_hooks.is_empty() || !graph.mistakes.is_empty() || !foreign.is_empty();
            if must_ask || *mode == ApplyMode::DryRun || is_refused {
                transaction.undo()?;
            }
            Ok(Some(Applied {
                changed,
                ended,
                must_ask,
                due,
                wrong_hooks,
                graph,
                unknown_enqueuers,
                foreign,
            }))
        })?;
        let busy = "cannot apply definitions: another apply is running; try again";
        applied.ok_or_else(|| Error::new(Kind::Busy, Exit::Unavailable, busy))
    }

    /// Returns the time of the database's clock.
    pub(crate) fn now(&self) -> Result<DateTime<Utc>> {
        self.query("read the clock", Transaction::one, query!("look/now"))
    }

    /// Returns due schedules, the oldest first, at most `FIRED_AT_ONCE`.
    pub(crate) fn due_schedules(&self) -> Result<Vec<DueSchedule>> {
        let statement =
            query!("tick/due_schedules"; limit = FIRED_AT_ONCE, with_applications = true);
        self.query("look for due schedules", Transaction::list, statement)
    }

    /// Fires schedules. Returns the place of each fired schedule in `fires`, and the runs that it
    /// queued. Leaves out schedules that another tick fired first, and schedules that have changed
    /// since they were read.
    pub(crate) fn fire(&self, fires: Vec<FirePlan>) -> Result<Vec<(usize, Vec<i64>)>> {
        self.transact("fire schedules", |transaction| {
            // All times to fire, each with the place of its schedule, from 1.
            let (mut places, mut nominal) = (Vec::new(), Vec::new());
            for (place, fire) in (1_i64..).zip(&fires) {
                for time in &fire.times {
                    places.push(place);
                    nominal.push(*time);
                }
            }
            let fired: Vec<(i64, Option<Vec<i64>>)> = transaction.list(query!(
                "tick/fire";
                ids = column(&fires, |fire| fire.due.id),
                seen = column(&fires, |fire| fire.due.seen),
                next = column(&fires, |fire| fire.next),
                delays = column(&fires, |fire| fire.delay),
                missed = column(&fires, |fire| fire.missed),
                put_off_until = column(&fires, |fire| fire.put_off_until),
                schedules = column(&fires, |fire| fire.due.schedule.as_str()),
                time_zones = column(&fires, |fire| fire.due.time_zone.as_str()),
                schedule_ids = column(&fires, |fire| fire.due.schedule_id),
                places,
                nominal,
            ))?;
            // NULL instead of runs: the schedule was not fired.
            Ok(fired
                .into_iter()
                .filter_map(|(place, runs)| Some((usize::try_from(place - 1).ok()?, runs?)))
                .collect())
        })
    }

    /// Returns all definitions, in the order of their names, or only the definition of this name.
    /// For each job, also returns the next schedules of applications, at most `applications`.
    pub(crate) fn list_schedules(
        &self,
        name: Option<String>,
        applications: i64,
    ) -> Result<Vec<Scheduled>> {
        self.query(
            "read definitions",
            Transaction::list,
            query!("look/list_schedules"; name, with_figures = true, applications),
        )
    }

    /// Returns all definitions, in the order of their names, or only the definition of this name.
    pub(crate) fn list_definitions(&self, name: Option<String>) -> Result<Vec<StoredDefinition>> {
        self.transact("read definitions", |transaction| {
            let mut definitions: Vec<StoredDefinition> =
                transaction.list(query!("look/list_definitions"; name))?;
            let scheduled: Vec<_> = transaction.list(query!(
                "look/list_schedules";
                name,
                with_figures = false,
                applications = 0_i64,
            ))?;
            for job in &mut definitions {
                let StoredDefinition { job_type, state, next_run_at, .. } = job;
                due::mark_broken(&scheduled, job_type, state, next_run_at);
            }
            Ok(definitions)
        })
    }

    /// Pauses the schedule of a definition. Returns `None` if there is no such definition.
    pub(crate) fn pause(&self, name: String, cause: Cause) -> Result<Option<PausedDefinition>> {
        let Cause { host_user, reason, .. } = cause;
        let statement = query!("operate/pause"; name, host_user, reason);
        self.query("pause a schedule", Transaction::first, statement)
    }

    /// Resumes the schedule of a definition that was read as `scheduled`. If the schedule was
    /// paused, `next` becomes its next nominal time. Returns `None` and changes nothing if the
    /// definition has another schedule now, so that `next` may be wrong.
    pub(crate) fn resume(
        &self,
        scheduled: Scheduled,
        next: Option<DateTime<Utc>>,
        cause: &Cause,
    ) -> Result<Option<ResumedDefinition>> {
        let Cause { host_user, reason, .. } = cause;
        let Scheduled { name, schedule, time_zone, .. } = scheduled;
        self.query(
            "resume a schedule",
            Transaction::first,
            query!("operate/resume"; name, next, schedule, time_zone, host_user, reason),
        )
    }
}

/// Locks the definitions for this `apply`. Waits for another `apply` that has locked them, and
/// returns `false` if that does not end in time.
fn lock_definitions(transaction: &mut Transaction<'_>) -> PgResult<bool> {
    let began = Instant::now();
    while !transaction.one::<bool>(query!("operate/lock_definitions"))? {
        if began.elapsed() > LOCK_TIMEOUT {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(rand::random_range(20..80)));
    }
    Ok(true)
}

/// Returns the due schedules of definitions, without those of applications.
fn due_own_schedules(transaction: &mut Transaction) -> PgResult<Vec<DueSchedule>> {
    transaction.list(query!("tick/due_schedules"; limit = i64::MAX, with_applications = false))
}

/// Makes the definitions equal to `rows`. Returns those that changed.
fn write_definitions(
    transaction: &mut Transaction,
    rows: &Value,
) -> PgResult<Vec<ChangedDefinition>> {
    let written: Vec<(String, Option<String>, Option<String>)> =
        transaction.list(query!("operate/apply"; definitions = rows))?;
    transaction.execute(query!("operate/require_applied"; definitions = rows))?;
    // Text that is not valid JSON counts as missing.
    let json = |text: Option<String>| serde_json::from_str(&text?).ok();
    let changed = written.into_iter().map(|(name, before, after)| ChangedDefinition {
        name,
        before: json(before),
        after: json(after).unwrap_or_default(),
    });
    Ok(changed.collect())
}

/// Returns the changed definitions that belonged to other files than `file`, and these files.
fn of_other_files(changed: &[ChangedDefinition], file: &str) -> Vec<(String, String)> {
    let mut foreign = Vec::new();
    for ChangedDefinition { name, before, .. } in changed {
        let Some(before) = before else { continue };
        let other = before["file"].as_str().unwrap_or_default();
        if other != file {
            foreign.push((name.clone(), other.to_owned()));
        }
    }
    foreign
}

/// Writes the changes to the trail.
fn note_changes(
    transaction: &mut Transaction,
    changed: &[ChangedDefinition],
    Cause { host_user, reason, .. }: &Cause,
) -> PgResult<()> {
    let (mut actions, mut jobs, mut details) = (Vec::new(), Vec::new(), Vec::new());
    for ChangedDefinition { name, before, after } in changed {
        let Some((action, detail)) = stored_definition::event(before.as_ref(), after) else {
            continue;
        };
        actions.push(action);
        jobs.push(name.as_str());
        details.push(detail);
    }
    let statement = query!("operate/note_changes"; host_user, reason, actions, jobs, details);
    transaction.execute(statement).map(drop)
}

/// Returns what becomes of the due times of the schedules that were due `before` the changes, or
/// are due `now`.
fn due_times(
    before: Vec<DueSchedule>,
    now: Vec<DueSchedule>,
    changed: &[ChangedDefinition],
) -> Vec<DueTimes> {
    // With this overlap, a tick fires only the newest time.
    let is_skip = |keys: &Value| keys["overlap"] == Overlap::Skip.as_str();
    let skips = |job: &str| changed.iter().any(|one| one.name == job && is_skip(&one.after));
    let mut of_job = BTreeMap::new();
    // A schedule that is not due any more keeps 0 runs. `seen` is its first due time, if it has
    // one.
    for schedule in before {
        if let Some(since) = schedule.seen {
            of_job.insert(schedule.name, (since, 0));
        }
    }
    let (plans, _) = due::plan_fires(now);
    for FirePlan { due: schedule, times, .. } in plans {
        let runs = if skips(&schedule.name) { times.len().min(1) } else { times.len() };
        if let Some(since) = schedule.seen {
            of_job.insert(schedule.name, (since, runs));
        }
    }
    of_job.into_iter().map(|(job, (since, runs))| DueTimes { job, since, runs }).collect()
}
