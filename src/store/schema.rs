//! Brings the schema of a database up to date.

use std::thread;
use std::time::{Duration, Instant};

use super::doctor::ObjectFacts;
use super::error::utf8_database;
use super::migrations::{
    DEFINITIONS, MIGRATIONS, Migration, OBJECTS, VERSION_TABLE, newest, too_new,
};
use super::row::{PgResult, column, rows};
use super::statement::query;
use super::transaction::Transaction;
use super::{Error, Kind, Result, Store, Timeouts, error};
use crate::exit::Exit;
use crate::text::plural;

/// The timeouts of a migration. It may work on a big table for long. It waits for a lock only
/// briefly, because enqueues wait behind it meanwhile, and then tries again.
const LIMITS: Timeouts = Timeouts {
    statement: Duration::from_secs(3600),
    lock: Duration::from_millis(500),
    ..Timeouts::USUAL
};
/// How long a migrator tries to get the lock of all migrators, and the locks of tables.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

rows! {
    /// The state of the schema before a migration, see schema/migration_ground.sql.
    struct Ground {
        has_schema: bool,
        /// Whether the schema has the table of the applied migrations.
        has_versions: bool,
        /// The role of this session.
        role: String,
        /// The owner of the schema.
        owner: Option<String>,
        /// Whether this role may migrate the schema, because it has the rights of its owner.
        is_trusted: bool,
        /// Roles that may create objects in the schema, but lack the rights of its owner.
        creators: Vec<String>,
        /// Objects in the schema that belong to roles without the rights of its owner. Before the
        /// first migration, all objects in it.
        strangers: Vec<String>,
        /// The encoding of the database.
        encoding: String,
        /// The statement that lets this role create the schema, if it may not.
        missing_grant: Option<String>,
    }
}

rows! {
    /// A part of the schema that is applied, see schema/list_migrations.sql.
    struct AppliedPart {
        /// `None` for a function or view.
        version: Option<i32>,
        name: String,
        /// Whether it was applied with this program's text, or this program does not have it.
        unchanged: bool,
        /// Its objects that the database lacks, or that were altered.
        missing: Vec<String>,
    }
}

/// What to do with the missing parts of the schema.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// List missing parts, for any role.
    Inspect,
    /// List the parts that `Apply` would apply, for a role that may migrate.
    Plan,
    /// Apply the first missing migration; with the last one, or if none is missing, also functions
    /// and views.
    Apply,
}

impl Store {
    /// Applies the missing migrations, one transaction each, and changed functions and views with
    /// the last of them. Returns the applied parts. If several migrators run at once, one works and
    /// the others find nothing to do.
    ///
    /// # Errors
    /// The schema is newer than the program or was modified. Another role owns or may change it.
    /// The encoding is not UTF-8. A privilege is missing. Tables stay locked.
    pub(crate) fn migrate(&self) -> Result<Vec<Migration>> {
        let mut applied = Vec::new();
        loop {
            let parts = self.missing_migrations(Mode::Apply)?;
            // Functions and views come last. Do not look for missing parts again: some may still
            // seem altered, as with another function of the same name, and would be applied again
            // and again.
            let is_last = parts.last().is_none_or(|part| part.version.is_none());
            applied.extend(parts);
            if is_last {
                return Ok(applied);
            }
        }
    }

    /// Returns the missing parts. With `Mode::Apply`, applies and returns only the next ones. For a
    /// new schema, the returned parts do not contain functions and views. Waits for locks.
    pub(crate) fn missing_migrations(&self, mode: Mode) -> Result<Vec<Migration>> {
        let started = Instant::now();
        let timeouts = if mode == Mode::Apply { LIMITS } else { self.timeouts };
        let doing = if mode == Mode::Inspect { "inspect the schema" } else { "migrate" };
        loop {
            let transacted = self.transact_within(timeouts, doing, |transaction| {
                match list_or_apply(transaction, mode) {
                    // Elsewhere, the remedy for an undefined object is `jobctl migrate`. Here, that
                    // advice would be wrong.
                    Err(error) if error::is_undefined(&error) => Ok(schema_fault(
                        format!("cannot {doing}: {}", error::cause(&error)),
                        "use PostgreSQL 14 or newer, and a schema from `jobctl migrate`",
                    )),
                    listed => listed,
                }
            });
            let listed = transacted.and_then(|listed| {
                listed.map_err(|error| error.in_database(self.client.borrow().target()))
            });
            match listed {
                // Something is locked: try again after a moment.
                Err(error) if error.kind == Kind::Busy && started.elapsed() <= LOCK_TIMEOUT => {}
                listed => return listed,
            }
            thread::sleep(Duration::from_millis(rand::random_range(20..80)));
        }
    }
}

/// Lists the missing parts. With `Mode::Apply`, first locks out other migrators, then applies and
/// returns the next parts. The outer error is one of PostgreSQL. The inner error is about the state
/// of the schema.
fn list_or_apply(transaction: &mut Transaction, mode: Mode) -> PgResult<Result<Vec<Migration>>> {
    if mode == Mode::Apply && !transaction.one::<bool>(query!("schema/lock_migrations"))? {
        let busy = "cannot migrate: another migrator is running; try again";
        return Ok(Err(Error::new(Kind::Busy, Exit::Unavailable, busy)));
    }
    transaction.execute(query!("schema/plain_texts"))?;
    let ground: Ground = transaction.one(query!("schema/migration_ground"))?;
    let (has_schema, has_versions) = (ground.has_schema, ground.has_versions);
    if let Err(error) = check_ground(ground, mode) {
        return Ok(Err(error));
    }
    let applied = if has_versions { list_applied(transaction, mode)? } else { Vec::new() };
    let mut listed = match missing_parts(&applied) {
        Ok(missing) => missing,
        Err(error) => return Ok(Err(error)),
    };
    if mode == Mode::Apply && !listed.is_empty() {
        // Apply only the first migration, or if it is the last one, the functions and views with
        // it. So if there is a second migration, cut the list before it.
        if let Some(second) = listed.iter().skip(1).position(|part| part.version.is_some()) {
            listed.truncate(second + 1);
        }
        apply(transaction, has_schema, has_versions, &listed)?;
    }
    // A person need not see that a new schema also gets its functions and views.
    let has_objects = applied.iter().any(|part| part.version.is_none());
    listed.retain(|part| has_objects || part.version.is_some());
    Ok(Ok(listed))
}

/// Returns the applied parts, and which of their objects are missing or were altered. Does not look
/// for altered objects with `Mode::Inspect`, because `doctor` reports them by a check of their own.
fn list_applied(transaction: &mut Transaction, mode: Mode) -> PgResult<Vec<AppliedPart>> {
    let deviations: Vec<ObjectFacts> = match mode {
        Mode::Inspect => Vec::new(),
        Mode::Plan | Mode::Apply => {
            transaction.list(query!("doctor/objects"; definitions = DEFINITIONS))?
        }
    };
    let changed = deviations.iter().filter(|object| object.kind == "changed");
    // Leave out the table of a trigger, as in `trigger t on job_runs`.
    let altered: Vec<_> = changed.filter_map(|one| one.object.split(" on ").next()).collect();
    let known: Vec<_> = MIGRATIONS.iter().chain(OBJECTS).collect();
    transaction.list(query!(
        "schema/list_migrations";
        versions = column(&known, |part| part.version),
        names = column(&known, |part| part.name),
        texts = column(&known, |part| part.sql),
        altered,
    ))
}

/// Returns the parts to apply, in their order: missing migrations, then missing or changed
/// functions and views. Fails if an applied migration differs from this program's, or if the
/// database has a later one.
fn missing_parts(applied: &[AppliedPart]) -> Result<Vec<Migration>> {
    let mut newest_applied = 0;
    for AppliedPart { version, unchanged, missing, .. } in applied {
        let Some(version) = *version else { continue };
        newest_applied = version;
        if !unchanged {
            return schema_fault(
                format!(
                    "migration {version} was applied with a different text than this program's"
                ),
                "use the program that applied it",
            );
        } else if !missing.is_empty() {
            return schema_fault(
                format!("the schema is at version {version} but lacks {}", missing.join(", ")),
                "create it from sql/migrations, or restore a backup",
            );
        }
    }
    if newest_applied > newest() {
        return too_new(newest_applied);
    }
    let is_current = |object: &Migration| {
        applied.iter().any(|part| {
            let is_same = part.version.is_none() && part.name == object.name;
            is_same && part.unchanged && part.missing.is_empty()
        })
    };
    let migrations = MIGRATIONS.iter().filter(|migration| migration.version > Some(newest_applied));
    let objects = OBJECTS.iter().filter(|object| !is_current(object));
    Ok(migrations.chain(objects).copied().collect())
}

/// Applies these parts of the schema, and corrects the privileges of new objects, see
/// privileges.sql. First creates the schema and the table of applied migrations, unless they exist
/// (`has_schema` and `has_versions`).
fn apply(
    transaction: &mut Transaction,
    has_schema: bool,
    has_versions: bool,
    parts: &[Migration],
) -> PgResult<()> {
    let old_objects: Vec<i64> =
        if has_versions { transaction.list(query!("schema/list_objects"))? } else { Vec::new() };
    // A function may call one that is created after it. By default, a server may create another
    // kind of table, which may not support updates.
    transaction.batch_execute(
        "SET LOCAL check_function_bodies = off; SET LOCAL default_table_access_method = heap",
    )?;
    if !has_schema {
        transaction.batch_execute("CREATE SCHEMA jobctl")?;
    }
    if !has_versions {
        transaction.batch_execute(VERSION_TABLE)?;
    }
    for part in parts {
        transaction.batch_execute(part.sql)?;
    }
    let corrections: Vec<String> =
        transaction.list(query!("schema/privileges"; before = old_objects))?;
    transaction.batch_execute(&corrections.join(";\n"))?;
    transaction.execute(query!(
        "schema/record_migration";
        versions = column(parts, |part| part.version),
        names = column(parts, |part| part.name),
        texts = column(parts, |part| part.sql),
    ))?;
    Ok(())
}

/// Fails if this database or schema must not be migrated. Runs before any table is read: in a
/// schema that another role can change, reading a table may run that role's code.
fn check_ground(ground: Ground, mode: Mode) -> Result<()> {
    let Ground { role, creators, strangers, encoding, .. } = ground;
    let owner = ground.owner.unwrap_or_default();
    if encoding != "UTF8" {
        let remedy = utf8_database(&role);
        privilege_fault(format!("the database's encoding is {encoding}; {remedy}"))
    } else if mode != Mode::Inspect
        && let Some(grant) = ground.missing_grant
    {
        privilege_fault(format!(
            "cannot create the schema `jobctl`: {role} may not create schemas in this database; \
             migrate as the role that shall own jobctl's schema, or as the database's owner, run \
             {grant}"
        ))
    } else if mode != Mode::Inspect && !ground.is_trusted {
        privilege_fault(format!(
            "the schema `jobctl` belongs to role {owner}, not to {role}; migrate as {owner}, \
             or rename the schema if it is not jobctl's"
        ))
    } else if !creators.is_empty() {
        let creators = creators.join(", ");
        privilege_fault(format!(
            "{creators} may create objects in the schema `jobctl`; \
             run REVOKE CREATE ON SCHEMA jobctl FROM {creators}"
        ))
    } else if ground.has_versions && !strangers.is_empty() {
        let strangers = plural::listed(&strangers, 1);
        privilege_fault(format!(
            "the schema `jobctl` has objects of other roles in it: {strangers}; drop those that \
             are not jobctl's, and give the others to the schema's owner with ALTER ... OWNER TO"
        ))
    } else if let Some(stranger) = strangers.first() {
        schema_fault(
            format!("the schema `jobctl` is not jobctl's: it has {stranger} in it"),
            "remove or rename that schema",
        )
    } else {
        Ok(())
    }
}

/// Fails because of the state of the schema.
fn schema_fault<T>(cause: String, remedy: &'static str) -> Result<T> {
    Err(Error::of_schema(cause, remedy))
}

/// Fails because of the settings of the database or of its roles.
fn privilege_fault<T>(message: String) -> Result<T> {
    Err(Error::new(Kind::Fatal, Exit::Configuration, message))
}
