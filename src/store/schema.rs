//! The schema's version, and the migrations that bring it up to date.

use std::thread;
use std::time::{Duration, Instant};

use postgres::types::Type;
use postgres::{Client, SimpleQueryMessage};

use super::{Error, Kind, Limits, Result, Store, query};
use crate::exit::Exit;

/// A step of the schema's history, embedded in the program.
#[derive(Debug)]
pub(crate) struct Migration {
    version: i32,
    pub(crate) name: &'static str,
    sql: &'static str,
}

/// All steps, in order; the last one's version is the program's.
static MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "0001_initial", sql: include_str!("../../sql/migrations/0001_initial.sql") }];

const VERSION_TABLE: &str = include_str!("../../sql/migrations/0000_version_table.sql");

/// A migration may rewrite a big table; it waits for no lock longer than running ticks can bear.
const LIMITS: Limits = Limits { statement: Duration::from_secs(3600), ..Limits::USUAL };
/// How long a migrator keeps asking for the lock, or for tables that others hold.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one look at the schema found, or did.
enum Look {
    /// Another migrator is at work.
    Locked,
    Encoding(String),
    /// The schema has this in it and was never migrated.
    NotOurs(String),
    Modified(i32),
    Newer(i32),
    /// These are missing, and the first was applied if that was wanted.
    Missing(&'static [Migration]),
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Look,
    Apply,
}

impl Store {
    /// The migrations that are missing; changes nothing.
    ///
    /// # Errors
    /// As `migrate`.
    pub(crate) fn missing_migrations(&self) -> Result<&'static [Migration]> {
        self.look(Mode::Look)
    }

    /// Applies what is missing, one transaction a step, and returns it. Any number of migrators may
    /// run at once: one works, the others find its work done.
    ///
    /// # Errors
    /// A schema that is newer than the program, was modified or is somebody else's, an encoding other
    /// than UTF-8, a missing privilege, tables that stay locked.
    pub(crate) fn migrate(&self) -> Result<Vec<&'static str>> {
        let mut applied = Vec::new();
        while let Some(step) = self.look(Mode::Apply)?.first() {
            applied.push(step.name);
        }
        Ok(applied)
    }

    fn look(&self, mode: Mode) -> Result<&'static [Migration]> {
        let started = Instant::now();
        loop {
            let looked = self.session.transact("migrate", LIMITS, move |client| look(client, mode));
            let busy = match looked {
                Ok(Look::Missing(missing)) => return Ok(missing),
                Ok(Look::Newer(version)) => return Err(too_new(version)),
                Ok(Look::Modified(version)) => {
                    return Err(schema_fault(format!(
                        "migration {version} was applied with another text than this program's; use the program that applied it"
                    )));
                }
                Ok(Look::Encoding(encoding)) => {
                    let message =
                        format!("the database's encoding is {encoding}; use one that was created with ENCODING 'UTF8'");
                    return Err(Error::new(Kind::Fatal, Exit::Configuration, message));
                }
                Ok(Look::NotOurs(stranger)) => {
                    return Err(schema_fault(format!(
                        "the schema `jobctl` is not jobctl's: it has {stranger} in it; remove or rename that schema"
                    )));
                }
                Ok(Look::Locked) => {
                    Error::new(Kind::Busy, Exit::Unavailable, "cannot migrate: another migrator is at work; try again")
                }
                Err(error) if error.kind == Kind::Busy => error,
                Err(error) => return Err(error),
            };
            if started.elapsed() > PATIENCE {
                return Err(busy);
            }
            thread::sleep(Duration::from_millis(rand::random_range(20..80)));
        }
    }
}

fn look(client: &mut Client, mode: Mode) -> std::result::Result<Look, postgres::Error> {
    if mode == Mode::Apply && !client.query_typed(query!("lock_migrations"), &[])?[0].try_get::<_, bool>(0)? {
        return Ok(Look::Locked);
    }
    let ground = &client.query_typed(query!("migration_ground"), &[])?[0];
    let encoding: String = ground.try_get("encoding")?;
    if encoding != "UTF8" {
        return Ok(Look::Encoding(encoding));
    }
    let mut applied = 0;
    if ground.try_get("has_versions")? {
        let versions: Vec<_> = MIGRATIONS.iter().map(|step| step.version).collect();
        let texts: Vec<_> = MIGRATIONS.iter().map(|step| step.sql).collect();
        let parameters: &[super::Parameter<'_>] = &[(&versions, Type::INT4_ARRAY), (&texts, Type::TEXT_ARRAY)];
        for row in client.query_typed(query!("list_migrations"), parameters)? {
            applied = row.try_get("version")?;
            if !row.try_get::<_, bool>("unchanged")? {
                return Ok(Look::Modified(applied));
            }
        }
    } else if let Some(stranger) = ground.try_get("stranger")? {
        return Ok(Look::NotOurs(stranger));
    }
    if applied > newest() {
        return Ok(Look::Newer(applied));
    }
    let missing = &MIGRATIONS[MIGRATIONS.partition_point(|step| step.version <= applied)..];
    if let (Mode::Apply, Some(step)) = (mode, missing.first()) {
        if !ground.try_get::<_, bool>("has_schema")? {
            client.batch_execute("CREATE SCHEMA jobctl")?;
        }
        if !ground.try_get::<_, bool>("has_versions")? {
            client.batch_execute(VERSION_TABLE)?;
        }
        client.batch_execute(step.sql)?;
        let parameters: &[super::Parameter<'_>] =
            &[(&step.version, Type::INT4), (&step.name, Type::TEXT), (&step.sql, Type::TEXT)];
        client.execute_typed(query!("record_migration"), parameters)?;
    }
    Ok(Look::Missing(missing))
}

/// Makes sure that the version among the answers is this program's.
///
/// # Errors
/// `Exit::Schema`, with the remedy, when it is older or newer.
pub(super) fn check(answers: &[SimpleQueryMessage]) -> Result<()> {
    let found = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get("version")?.parse().ok(),
        _ => None,
    });
    match found.unwrap_or(0) {
        found if found < newest() => Err(schema_fault(format!(
            "the schema is at version {found} and this program needs {}; run `jobctl migrate`",
            newest()
        ))),
        found if found > newest() => Err(too_new(found)),
        _ => Ok(()),
    }
}

/// The program's schema version.
fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |step| step.version)
}

/// The indexes that the migrations create.
pub(super) fn indexes() -> Vec<&'static str> {
    let lines = MIGRATIONS.iter().flat_map(|step| step.sql.lines());
    let created = lines
        .filter_map(|line| line.strip_prefix("CREATE INDEX ").or_else(|| line.strip_prefix("CREATE UNIQUE INDEX ")));
    created.filter_map(|rest| rest.split(' ').next()).collect()
}

fn too_new(version: i32) -> Error {
    schema_fault(format!(
        "the schema is at version {version} and this program knows {}; install the jobctl that migrated it",
        newest()
    ))
}

fn schema_fault(message: String) -> Error {
    Error::new(Kind::Fatal, Exit::Schema, message)
}
