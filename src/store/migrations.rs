//! The parts of the schema that this program makes, and its version.

use chrono::{DateTime, Utc};
use postgres::{SimpleQueryMessage, SimpleQueryRow};
use serde::Serialize;

use super::error::MIGRATE;
use super::{Error, Result};

/// A part of the schema: a migration, or the present text of a function or view.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Migration {
    /// `None` for a function or view, which is applied again when its text has changed.
    #[serde(skip)]
    pub(super) version: Option<i32>,
    pub(crate) name: &'static str,
    #[serde(skip)]
    pub(super) sql: &'static str,
}

/// Files in `sql`, without their endings.
macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(Migration {
            version: number_of($name),
            name: $name,
            sql: include_str!(concat!("../../sql/", $folder, $name, ".sql")),
        }),+]
    };
}

/// All migrations in order; the version of the last one is the version of the program.
pub(super) static MIGRATIONS: &[Migration] = files!["migrations/": "0001_initial"];

/// The functions and views, which the newest migration precedes.
pub(super) static OBJECTS: &[Migration] = files![
    "":
        "functions/application_schedule_is_due", "functions/attempt_texts", "functions/claim_runs",
        "functions/count_attempts", "functions/decide_followers", "functions/definition_keys",
        "functions/drop_oldest", "functions/effect_result", "functions/end_runs",
        "functions/enqueue", "functions/enqueue_following", "functions/enqueue_hooks",
        "functions/enqueue_refusal", "functions/enqueue_runs", "functions/exceeded_limit",
        "functions/failure_cause", "functions/fire", "functions/forget_history",
        "functions/hold_snoozed", "functions/is_backoff", "functions/is_hook",
        "functions/is_on_day", "functions/is_operator", "functions/is_own_effect",
        "functions/is_running", "functions/keep_effect", "functions/key_conflict",
        "functions/last_line", "functions/limited_runs", "functions/lock_schedule",
        "functions/lock_slot", "functions/mark_followers", "functions/may_settle",
        "functions/most_with_lock", "functions/name_incident", "functions/next_time",
        "functions/note_predecessors", "functions/read_json", "functions/record_alerts",
        "functions/record_effect", "functions/refuse_update", "functions/regular_workers",
        "functions/release_right", "functions/renew_leases", "functions/reopen_dependencies",
        "functions/replace_waiting", "functions/require_written", "functions/result",
        "functions/results", "functions/run_states", "functions/run_time_trend",
        "functions/schedule", "functions/schedule_error", "functions/serving",
        "functions/set_aside_unclaimable", "functions/stuck_predecessor",
        "functions/succeeded_attempt", "functions/try_enqueue", "functions/unschedule",
        "functions/usual_run_time", "functions/visible_runs", "functions/wait_for",
        "functions/waiting_runs", "functions/within_locks", "functions/wrong_value",
        "views/awaited_runs", "views/current_holds", "views/daily_figures", "views/dead_runs",
        "views/failing_jobs", "views/following_jobs", "views/leases", "views/long_running_runs",
        "views/pending_lock_runs", "views/pending_runs", "views/running_locks",
        "views/scheduling_jobs", "views/seen_workers", "views/unaccepted_restores",
];

// Checks that the versions are 1, 2, 3 and so on, without a gap. `migrate` relies on it: it applies
// the versions after the newest one of the database.
const _: () = {
    let mut place = 0;
    while place < MIGRATIONS.len() {
        let version = MIGRATIONS[place].version;
        place += 1;
        assert!(
            matches!(version, Some(version) if version as usize == place),
            "the names in MIGRATIONS begin with 0001, 0002, 0003, without a gap"
        );
    }
};

/// Returns the number that the name of a migration begins with; `None` for a function or view.
const fn number_of(name: &str) -> Option<i32> {
    let (mut number, mut place) = (0, 0);
    while place < 4 {
        let digit = name.as_bytes()[place];
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + (digit - b'0') as i32;
        place += 1;
    }
    Some(number)
}

/// The schema after all migrations, as `pg_dump` writes it; a test keeps the file current.
pub(super) const DEFINITIONS: &str = include_str!("../../docs/schema.sql");

/// Creates the table of the applied migrations.
pub(super) const VERSION_TABLE: &str = include_str!("../../sql/migrations/0000_version_table.sql");

/// Returns when the schema was created: the time of its first migration. `answers` are those to
/// schema_version.sql. Fails if the newest version there is not that of the program.
pub(super) fn created_at(answers: &[SimpleQueryMessage]) -> Result<DateTime<Utc>> {
    let broken = || Error::broken("read the schema's version");
    let (mut versions, mut applied_at) = (Vec::new(), Vec::new());
    let mut was_answered = false;
    for answer in answers {
        match answer {
            // It comes before the rows, even if there are none.
            SimpleQueryMessage::RowDescription(_) => was_answered = true,
            SimpleQueryMessage::Row(row) => {
                let (version, at) = migration(row).ok_or_else(broken)?;
                versions.push(version);
                applied_at.push(at);
            }
            _ => {}
        }
    }
    if !was_answered {
        return Err(broken());
    }
    match versions.into_iter().max().unwrap_or(0) {
        found if found < newest() => Err(Error::of_schema(
            format!("the schema is at version {found} and this program needs {}", newest()),
            MIGRATE,
        )),
        found if found > newest() => too_new(found),
        _ => Ok(applied_at.into_iter().min().unwrap_or_default()),
    }
}

/// Returns the version of an applied migration, and when it was applied; `None`: the row is not one
/// of schema_version.sql.
fn migration(row: &SimpleQueryRow) -> Option<(i32, DateTime<Utc>)> {
    let version = row.try_get("version").ok()??.parse().ok()?;
    let applied_at = row.try_get("applied_at").ok()??;
    Some((version, DateTime::parse_from_str(applied_at, "%F %T%.f%#z").ok()?.to_utc()))
}

/// The schema version of the program.
pub(super) fn newest() -> i32 {
    MIGRATIONS.last().and_then(|last| last.version).unwrap_or(0)
}

/// Returns the names of the indexes that the migrations create.
pub(super) fn indexes() -> Vec<&'static str> {
    let lines = MIGRATIONS.iter().flat_map(|step| step.sql.lines());
    let created = lines.filter_map(|line| {
        line.strip_prefix("CREATE INDEX ").or_else(|| line.strip_prefix("CREATE UNIQUE INDEX "))
    });
    created.filter_map(|rest| rest.split(' ').next()).collect()
}

/// Fails, because the schema has this newer version.
pub(super) fn too_new<T>(version: i32) -> Result<T> {
    Err(Error::of_schema(
        format!("the schema is at version {version} and this program knows {}", newest()),
        "install the jobctl that migrated it",
    ))
}
