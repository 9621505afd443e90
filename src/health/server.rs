//! Checks of the connection, the server's settings, the roles and the clocks.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use cron_zone::{Zone, ZoneData};

use super::{Finding, bad, first_three, names, ok, unknown, warn};
use crate::job::program_version::has_other_zones;
use crate::store::{self, GrantFacts, ObjectFacts, RoleFacts, SessionFacts, ZoneFacts};
use crate::text::{duration, shell};

/// Clocks may differ by this much. Those that NTP synchronizes differ by less.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);
/// The ages of a server process and of its connection may differ by this much, because two hosts
/// measure them.
const AGE_TOLERANCE: Duration = Duration::from_secs(1);

/// How the database was reached.
#[derive(Debug)]
pub(crate) struct ConnectionFacts {
    /// The address without the password.
    pub(crate) address: String,
    /// Whether the server is on this host.
    pub(crate) is_local: bool,
    /// Whether the server's certificate is verified.
    pub(crate) is_verified: bool,
    /// The sessions of the first and of the last transaction.
    pub(crate) sessions: [SessionFacts; 2],
    /// The age of the connection at the first answer.
    pub(crate) open_for: Duration,
    /// The session of a second connection, open at the same time; `None` if opening it failed.
    pub(crate) other: Option<SessionFacts>,
}

/// The host's clock compared to the database's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockFacts {
    /// How far the host's clock is ahead.
    pub(crate) ahead: TimeDelta,
    /// The duration of the query. The error of `ahead` is at most half of it.
    pub(crate) took: Duration,
}

/// Returns the finding with the address of the database and its `origin`: the flag, variables,
/// files.
pub(crate) fn address(address: &str, origin: &str) -> Finding {
    ok(format!("{address}, from {origin}"))
}

/// Judges how the database is reached: warns of a server that jobctl can't verify.
pub(crate) fn connection(facts: &ConnectionFacts, clock: ClockFacts) -> Finding {
    const NOT_ENCRYPTED: &str = "not encrypted";
    let [session, _] = &facts.sessions;
    let transport = match (&session.tls_version, session.encrypted) {
        // The server sees only the pooler's connection.
        _ if is_pooled(facts) => "through a pooler",
        (Some(version), Some(true)) => version,
        _ if facts.is_local => "on this host",
        _ => NOT_ENCRYPTED,
    };
    let is_unverified = !facts.is_local && !facts.is_verified;
    let found = format!(
        "PostgreSQL {} at {}, {transport}{}, {} per transaction",
        session.server_version.split(' ').next().unwrap_or_default(),
        facts.address,
        if is_unverified { ", not verified" } else { "" },
        duration::show(clock.took.max(Duration::from_millis(1)))
    );
    if transport == NOT_ENCRYPTED || is_unverified {
        let remedy =
            "set sslmode=verify-full: otherwise a false server can decide what this host runs";
        return warn(found, remedy);
    }
    ok(found)
}

/// Returns whether a pooler is between jobctl and the server. There is one if two connections share
/// a server process, if two transactions of a connection have different processes, or if the
/// process is older than the connection.
fn is_pooled(facts: &ConnectionFacts) -> bool {
    let [first, last] = &facts.sessions;
    let is_shared = |other: &SessionFacts| other.pid == first.pid || other.pid == last.pid;
    facts.other.as_ref().is_some_and(is_shared)
        || first.pid != last.pid
        || first.age > facts.open_for + AGE_TOLERANCE
}

/// Returns the finding whether a pooler shares the server processes.
pub(crate) fn pooler(facts: &ConnectionFacts) -> Finding {
    if is_pooled(facts) {
        ok("a pooler shares the server processes; jobctl keeps no session state")
    } else if facts.other.is_some() {
        ok("each connection has its own server process: no pooler, or one in session mode")
    } else {
        unknown(
            "this check needs a second connection, which could not be opened",
            "check that max_connections leaves room",
        )
    }
}

/// Judges whether this session can write, and whether triggers fire.
pub(crate) fn writes(session: &SessionFacts) -> Finding {
    if session.standby {
        return bad(
            "the server is a standby, which is read-only",
            "connect to the primary; with several hosts add target_session_attrs=read-write",
        );
    }
    if session.read_only {
        let (role, database) = (&session.role, &session.database);
        return bad(
            format!("default_transaction_read_only is on for role {role} in {database}"),
            store::WRITABLE,
        );
    }
    if session.replication_role != "origin" {
        let SessionFacts { role, database, replication_role, .. } = session;
        return bad(
            format!(
                "session_replication_role is {replication_role} for role {role} in {database}, so \
                 jobctl's triggers do not fire: pruned runs leave their history, and \
                 failed attempts have no common incident"
            ),
            "set it to origin with ALTER ROLE or ALTER DATABASE",
        );
    }
    ok(format!(
        "read-write; the default isolation is {}, jobctl uses read committed",
        session.isolation
    ))
}

/// Judges whether the server may lose a committed transaction: then jobctl can't keep its promises.
pub(crate) fn durability(session: &SessionFacts) -> Finding {
    if !session.fsync || !session.full_page_writes {
        return warn(
            "fsync or full_page_writes is off: \
             a crash of the server's host can destroy the database",
            "turn both on, unless this is a test",
        );
    }
    if session.synchronous_commit == "off" {
        return warn(
            "synchronous_commit is off: a crash of the server loses the latest commits",
            "turn it on for this database or role, unless your jobs tolerate the loss",
        );
    }
    ok(format!("synchronous_commit is {}", session.synchronous_commit))
}

/// Judges the encoding of the database.
pub(crate) fn database(session: &SessionFacts) -> Finding {
    let SessionFacts { database, encoding, role, time_zone, .. } = session;
    let found = format!("{database}, {encoding}, time zone {time_zone}");
    if encoding == "UTF8" {
        return ok(found);
    }
    bad(found, store::utf8_database(role))
}

/// Judges what the role may do in the schema.
pub(crate) fn role(session: &SessionFacts, may: RoleFacts) -> Finding {
    let role = &session.role;
    let actions = [
        (may.enqueues, "enqueue"),
        (may.records_effects, "record effects"),
        (may.ticks, "tick"),
        (may.operates, "retry and cancel"),
        (may.prunes, "prune"),
        (may.views, "view"),
    ];
    let allowed: Vec<_> =
        actions.into_iter().filter(|(may, _)| *may).map(|(_, action)| action).collect();
    if may.enters && !allowed.is_empty() {
        return ok(format!("{role} may {}", allowed.join(", ")));
    }
    bad(
        format!("{role} may do nothing in the schema `jobctl`"),
        format!(
            "as the schema's owner: jobctl grants --role {} --as worker | psql \"$DATABASE_URL\"",
            shell::word(role)
        ),
    )
}

/// Checks that roles have no more privileges than the role matrix of `jobctl grants` gives. Returns
/// a finding for each deviation.
pub(crate) fn grants(facts: &[GrantFacts]) -> Vec<Finding> {
    if facts.is_empty() {
        return vec![ok("no role has more privileges than `jobctl grants` gives")];
    }
    let finding = |GrantFacts { kind, name, has }: &GrantFacts| {
        let has = first_three(has);
        match kind.as_str() {
            "role" if name == "PUBLIC" => {
                bad(format!("PUBLIC, which means every role, has {has}"), "revoke it FROM PUBLIC")
            }
            "role" => bad(
                format!("{name} has {has}, beyond its sets of `jobctl grants`"),
                format!(
                    "as the schema's owner: jobctl grants --role {} --as WHAT \
                     | psql \"$DATABASE_URL\"; it revokes the rest",
                    shell::word(name)
                ),
            ),
            "member" => bad(
                format!("{name} is a member of {has}, which has access to every table"),
                format!("REVOKE {has} FROM {name}"),
            ),
            "attribute" => warn(
                format!("{name} has the attribute {has}, with which it can reach every table"),
                format!("unless you trust it: ALTER ROLE {name} NO{}", has.replace(", ", " NO")),
            ),
            _ => warn(
                format!("{has} may do everything as a member of {name}, which owns the schema"),
                format!("unless you trust it: REVOKE {name} FROM {has}"),
            ),
        }
    };
    facts.iter().map(finding).collect()
}

/// Checks that the schema is as `jobctl migrate` made it. Returns a finding for each deviation.
pub(crate) fn objects(facts: &[ObjectFacts]) -> Vec<Finding> {
    if facts.is_empty() {
        return vec![ok("all objects of the schema are as `jobctl migrate` made them")];
    }
    const RESTORE: &str = "as the schema's owner: `jobctl migrate` restores functions, views and \
                           triggers; for the rest, see docs/schema.sql of this version";
    let finding = |ObjectFacts { kind, object, statement }: &ObjectFacts| match kind.as_str() {
        "changed" => bad(format!("{object} is not as `jobctl migrate` made it"), RESTORE),
        "missing" => bad(format!("{object} is missing"), RESTORE),
        "hidden" => bad(
            format!(
                "row level security is on for {object}, so jobctl fails for the roles that it \
                 applies to"
            ),
            statement.as_str(),
        ),
        "event trigger" => warn(
            format!("event trigger {object} can run code with the rights of `jobctl migrate`"),
            format!("drop it unless you trust it: {statement}"),
        ),
        _ => bad(
            format!("{object} does not belong to jobctl and can change what runs"),
            format!("drop it unless you trust it: {statement}"),
        ),
    };
    facts.iter().map(finding).collect()
}

/// Compares the host's clock with the database's. jobctl does not depend on the host's clock, but
/// cron does, and so does a script that computes `--run-at`.
pub(crate) fn clock(facts: ClockFacts) -> Finding {
    let apart = facts.ahead.abs().to_std().unwrap_or_default();
    // The measurement may be wrong by half the duration of the query.
    if apart.saturating_sub(facts.took / 2) < CLOCK_TOLERANCE {
        return ok("the clocks of this host and of the database agree");
    }
    let side = if facts.ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
    warn(
        format!(
            "this host's clock is {} {side} the database's, which decides when runs are due",
            duration::show(apart)
        ),
        "run an NTP client on both",
    )
}

/// Checks that this host, the other workers and the database have the same rules for the zones in
/// use. With different rules, times are off by an hour.
pub(crate) fn zones(data: &ZoneData, facts: &ZoneFacts) -> Finding {
    const REMEDY: &str = "update the tzdata packages of all hosts, and PostgreSQL";
    let differs = |(zone, at, offset): &(String, DateTime<Utc>, Option<i32>)| {
        // A zone that this host does not know is reported as a broken schedule, not here.
        let own_offset = Zone::parse(zone).ok().map(|zone| zone.offset(*at).num_seconds());
        own_offset.is_some_and(|own| offset.map(i64::from) != Some(own))
    };
    let zones = names(&facts.offsets, differs, |(zone, ..)| zone);
    if !zones.is_empty() {
        let zones = first_three(&zones);
        return warn(format!("{data}; the database has different rules for {zones}"), REMEDY);
    }
    let workers = names(
        &facts.workers,
        |(_, version)| has_other_zones(version, data.version()),
        |(name, _)| name,
    );
    if !workers.is_empty() {
        return warn(format!("{data}; another version on {}", first_three(&workers)), REMEDY);
    }
    ok(data.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Severity;
    use crate::health::tests::session;

    fn link(first: i32, last: i32, other: Option<i32>) -> ConnectionFacts {
        ConnectionFacts {
            address: "app@db:5432/app".to_owned(),
            is_local: true,
            is_verified: false,
            sessions: [session(first), session(last)],
            open_for: Duration::from_millis(20),
            other: other.map(session),
        }
    }

    const CLOCK: ClockFacts =
        ClockFacts { ahead: TimeDelta::zero(), took: Duration::from_millis(3) };

    #[test]
    fn a_pooler_is_found_by_its_server_processes() {
        let seen = |link: &ConnectionFacts| !pooler(link).found.contains("no pooler");
        assert!(!seen(&link(1, 1, Some(2))));
        assert!(seen(&link(1, 1, Some(1))));
        assert!(seen(&link(1, 2, Some(3))));
        assert!(seen(&link(1, 2, Some(2))));
        let mut old = link(1, 1, Some(2));
        old.sessions[0].age = Duration::from_secs(60);
        assert!(seen(&old));
        assert_eq!(pooler(&link(1, 1, None)).severity, Severity::Unknown);
    }

    #[test]
    fn an_unverified_remote_server_is_a_warning() {
        let mut link = link(1, 1, Some(2));
        let found = |link: &ConnectionFacts| connection(link, CLOCK);
        assert_eq!(
            found(&link).found,
            "PostgreSQL 15.13 at app@db:5432/app, on this host, 3ms per transaction"
        );
        link.is_local = false;
        let clear = found(&link);
        assert_eq!(
            (clear.severity, clear.found.contains(", not encrypted, not verified, ")),
            (Severity::Warn, true)
        );
        link.sessions[0].encrypted = Some(true);
        link.sessions[0].tls_version = Some("TLSv1.3".to_owned());
        assert_eq!(
            (found(&link).severity, found(&link).found.contains("TLSv1.3, not verified")),
            (Severity::Warn, true)
        );
        link.is_verified = true;
        assert_eq!(
            (found(&link).severity, found(&link).found.contains(", TLSv1.3, ")),
            (Severity::Ok, true)
        );
    }

    #[test]
    fn settings_that_break_the_servers_promises_are_found() {
        let with = |change: fn(&mut SessionFacts)| {
            let mut session = session(1);
            change(&mut session);
            (writes(&session).severity, durability(&session).severity, database(&session).severity)
        };
        assert_eq!(with(|_| {}), (Severity::Ok, Severity::Ok, Severity::Ok));
        assert_eq!(with(|session| session.standby = true).0, Severity::Bad);
        assert_eq!(with(|session| session.read_only = true).0, Severity::Bad);
        assert_eq!(with(|session| session.fsync = false).1, Severity::Warn);
        assert_eq!(with(|session| session.full_page_writes = false).1, Severity::Warn);
        assert_eq!(with(|session| session.synchronous_commit = "off".to_owned()).1, Severity::Warn);
        assert_eq!(with(|session| session.synchronous_commit = "local".to_owned()).1, Severity::Ok);
        assert_eq!(with(|session| session.encoding = "SQL_ASCII".to_owned()).2, Severity::Bad);
    }

    #[test]
    fn a_role_without_privileges_is_bad() {
        assert_eq!(role(&session(1), RoleFacts::default()).severity, Severity::Bad);
        let may = RoleFacts { enters: true, enqueues: true, views: true, ..RoleFacts::default() };
        assert_eq!(role(&session(1), may), ok("app may enqueue, view"));
    }

    #[test]
    fn different_clocks_are_found_unless_the_query_took_as_long() {
        let found = |ahead: i64, took: u64| {
            clock(ClockFacts {
                ahead: TimeDelta::milliseconds(ahead),
                took: Duration::from_millis(took),
            })
            .found
        };
        let agree = "the clocks of this host and of the database agree";
        assert_eq!(found(1500, 3), agree);
        assert_eq!(found(-1500, 3), agree);
        assert_eq!(found(3000, 4000), agree);
        assert!(found(300_000, 3).starts_with("this host's clock is 5m ahead of the database's"));
        assert!(found(-7000, 3).starts_with("this host's clock is 7s behind the database's"));
    }
}
