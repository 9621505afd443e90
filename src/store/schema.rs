//! The schema's version, and the migrations that bring it up to date.

use std::thread;
use std::time::{Duration, Instant};

use postgres::types::Type;
use postgres::{Row, SimpleQueryMessage};

use super::{Error, Kind, Limits, Result, Store, error, query};
use crate::connect::Client;
use crate::count;
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
    /// This schema or database must not be migrated.
    Refused(Error),
    /// These are missing, and the first was applied if that was wanted.
    Missing(&'static [Migration]),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// Lists missing migrations, for any role.
    Inspect,
    /// Lists the migrations that `Apply` would run.
    Plan,
    Apply,
}

impl Store {
    /// Returns the missing migrations; changes nothing. Only `Plan` checks whether the current role
    /// may migrate.
    ///
    /// # Errors
    /// As `migrate`.
    pub(crate) fn missing_migrations(&self, mode: Mode) -> Result<&'static [Migration]> {
        self.look(mode)
    }

    /// Applies the missing migrations, one transaction each, and returns their names. If several
    /// migrators run at once, one works and the others find nothing to do.
    ///
    /// # Errors
    /// The schema is newer than the program or was modified. Another role owns or may change it.
    /// The encoding is not UTF-8. A privilege is missing. Tables stay locked.
    pub(crate) fn migrate(&self) -> Result<Vec<&'static str>> {
        let mut applied = Vec::new();
        while let Some(step) = self.look(Mode::Apply)?.first() {
            applied.push(step.name);
        }
        Ok(applied)
    }

    fn look(&self, mode: Mode) -> Result<&'static [Migration]> {
        let started = Instant::now();
        let limits = if mode == Mode::Apply { LIMITS } else { self.limits };
        loop {
            let looked = self.session.transact("migrate", limits, move |client| look(client, mode));
            let busy = match looked {
                Ok(Look::Missing(missing)) => return Ok(missing),
                Ok(Look::Refused(error)) => return Err(error),
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
    match inspect(client, mode) {
        // Objects that do not exist usually mean that a migration is missing; here that advice is
        // wrong.
        Err(error) if error::is_undefined(&error) => Ok(Look::Refused(schema_fault(format!(
            "cannot migrate: {}; use PostgreSQL 14 or newer, and a schema from `jobctl migrate`",
            error::cause(&error)
        )))),
        looked => looked,
    }
}

fn inspect(client: &mut Client, mode: Mode) -> std::result::Result<Look, postgres::Error> {
    if mode == Mode::Apply && !client.query_typed_one(query!("lock_migrations"), &[])?.try_get::<_, bool>(0)? {
        return Ok(Look::Locked);
    }
    let ground = &client.query_typed_one(query!("migration_ground"), &[])?;
    if let Some(error) = refusal(ground, mode)? {
        return Ok(Look::Refused(error));
    }
    let mut applied = 0;
    if ground.try_get("has_versions")? {
        let versions: Vec<_> = MIGRATIONS.iter().map(|step| step.version).collect();
        let texts: Vec<_> = MIGRATIONS.iter().map(|step| step.sql).collect();
        let parameters: &[super::Parameter<'_>] = &[(&versions, Type::INT4_ARRAY), (&texts, Type::TEXT_ARRAY)];
        for row in client.query_typed(query!("list_migrations"), parameters)? {
            applied = row.try_get("version")?;
            let missing: Vec<String> = row.try_get("missing")?;
            if !row.try_get::<_, bool>("unchanged")? {
                return Ok(Look::Refused(schema_fault(format!(
                    "migration {applied} was applied with a different text than this program's; \
                     use the program that applied it"
                ))));
            }
            if !missing.is_empty() {
                return Ok(Look::Refused(schema_fault(format!(
                    "the schema is at version {applied} but lacks {}; create it from sql/migrations, \
                     or restore a backup",
                    missing.join(", ")
                ))));
            }
        }
    }
    if applied > newest() {
        return Ok(Look::Refused(too_new(applied)));
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

/// Returns why this database or schema must not be migrated. Runs before any table is read: in a
/// schema that another role can change, reading a table may run that role's code.
fn refusal(ground: &Row, mode: Mode) -> std::result::Result<Option<Error>, postgres::Error> {
    let encoding: String = ground.try_get("encoding")?;
    if encoding != "UTF8" {
        return Ok(Some(privilege_fault(format!(
            "the database's encoding is {encoding}; \
             create one with `createdb --encoding UTF8 --template template0 NAME`"
        ))));
    }
    if mode != Mode::Inspect && !ground.try_get::<_, bool>("is_trusted")? {
        let (owner, role): (String, String) = (ground.try_get("owner")?, ground.try_get("role")?);
        return Ok(Some(privilege_fault(format!(
            "the schema `jobctl` belongs to role {owner}, not to {role}; migrate as {owner}, or rename the \
             schema if it is not jobctl's"
        ))));
    }
    let creators: Vec<String> = ground.try_get("creators")?;
    if !creators.is_empty() {
        let creators = creators.join(", ");
        return Ok(Some(privilege_fault(format!(
            "{creators} may create objects in the schema `jobctl`; run REVOKE CREATE ON SCHEMA jobctl FROM {creators}"
        ))));
    }
    let strangers: Vec<String> = ground.try_get("strangers")?;
    let Some(stranger) = strangers.first() else { return Ok(None) };
    if !ground.try_get::<_, bool>("has_versions")? {
        return Ok(Some(schema_fault(format!(
            "the schema `jobctl` is not jobctl's: it has {stranger} in it; remove or rename that schema"
        ))));
    }
    let strangers = count::listed(&strangers, 1);
    Ok(Some(privilege_fault(format!(
        "the schema `jobctl` has objects of other roles in it: {strangers}; drop those that are not jobctl's, \
         and give the others to the schema's owner with ALTER ... OWNER TO"
    ))))
}

/// Makes sure that the version among the answers is this program's.
///
/// # Errors
/// `Exit::Schema`, with the remedy, when it is older or newer.
pub(super) fn check(answers: &[SimpleQueryMessage]) -> Result<()> {
    let row = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.try_get("version").ok(),
        _ => None,
    });
    let version = row.ok_or_else(|| Error::broken("read the schema's version"))?;
    let found = version.and_then(|version| version.parse().ok());
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

fn privilege_fault(message: String) -> Error {
    Error::new(Kind::Fatal, Exit::Configuration, message)
}
