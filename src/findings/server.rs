//! The connection, the server's settings, the role and the clocks.

use std::time::Duration;

use chrono::TimeDelta;

use super::Finding;
use crate::duration;
use crate::store::{RoleFacts, SessionFacts};

/// Between two clocks that are kept by NTP there is less.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::seconds(2);
/// A server process is not older than its connection; measured by two machines.
const PROCESS_TOLERANCE: Duration = Duration::from_secs(1);

/// How the identity of the server is verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Identity {
    /// The server is on this host.
    Local,
    /// The server's certificate is checked.
    Verified,
    Unverified,
}

/// How the database was reached.
#[derive(Debug)]
pub(crate) struct Link {
    /// Without a password.
    pub(crate) address: String,
    pub(crate) identity: Identity,
    /// What the connection saw, first and last.
    pub(crate) sessions: [SessionFacts; 2],
    /// From before it was opened to after it was first asked.
    pub(crate) open_for: Duration,
    /// What another connection saw, which was open at the same time; `None`: it could not be opened.
    pub(crate) other: Option<SessionFacts>,
}

/// The host's clock against the database's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// How far the host's is ahead.
    pub(crate) ahead: TimeDelta,
    /// How long it took to ask: the difference is known to half of that.
    pub(crate) took: Duration,
}

pub(crate) fn connection(link: &Link, clock: Clock) -> Finding {
    const CHECK: &str = "connection";
    let [session, _] = &link.sessions;
    let through = match (&session.tls_version, session.encrypted) {
        _ if is_pooled(link) => "through a pooler".to_owned(),
        (Some(version), Some(true)) => version.clone(),
        _ if link.identity == Identity::Local => "on this host".to_owned(),
        _ => "not encrypted".to_owned(),
    };
    let verified = if link.identity == Identity::Unverified { ", not verified" } else { "" };
    let found = format!(
        "PostgreSQL {} at {}, {through}{verified}, {} a transaction",
        session.server_version.split(' ').next().unwrap_or_default(),
        link.address,
        // Whoever has it in less asks on the same host.
        duration::show(clock.took.max(Duration::from_millis(1)))
    );
    if through == "not encrypted" || link.identity == Identity::Unverified {
        let remedy = "set sslmode=verify-full: otherwise a false server can decide what this host runs";
        return Finding::warn(CHECK, found, remedy);
    }
    Finding::ok(CHECK, found)
}

/// A pooler shows by handing one server process to two connections, another one to each transaction,
/// or one that is older than the connection.
fn is_pooled(link: &Link) -> bool {
    let [first, last] = &link.sessions;
    let is_shared = link.other.as_ref().is_some_and(|other| other.pid == first.pid || other.pid == last.pid);
    is_shared || first.pid != last.pid || first.age > link.open_for + PROCESS_TOLERANCE
}

pub(crate) fn pooler(link: &Link) -> Finding {
    const CHECK: &str = "pooler";
    match (&link.other, is_pooled(link)) {
        (_, true) => Finding::ok(CHECK, "one hands out server processes; jobctl needs no session of its own"),
        (Some(_), false) => Finding::ok(CHECK, "none seen"),
        (None, false) => Finding::unknown(
            CHECK,
            "a second connection, which would tell, could not be opened",
            "see that max_connections leaves room",
        ),
    }
}

pub(crate) fn writes(session: &SessionFacts) -> Finding {
    const CHECK: &str = "writes";
    if session.standby {
        return Finding::bad(
            CHECK,
            "the server is a standby and takes none",
            "connect to the primary; with several hosts add target_session_attrs=read-write",
        );
    }
    if session.read_only {
        return Finding::bad(
            CHECK,
            format!("default_transaction_read_only is on for role {} in {}", session.role, session.database),
            "turn it off with ALTER ROLE or ALTER DATABASE",
        );
    }
    Finding::ok(CHECK, format!("read-write; default isolation {}, jobctl's own is read committed", session.isolation))
}

/// jobctl's promises are as good as the server's.
pub(crate) fn durability(session: &SessionFacts) -> Finding {
    const CHECK: &str = "durability";
    if !session.fsync || !session.full_page_writes {
        return Finding::warn(
            CHECK,
            "fsync or full_page_writes is off: a crash of the server's host can destroy the database",
            "turn both on, unless this is a test",
        );
    }
    if session.synchronous_commit == "off" {
        return Finding::warn(
            CHECK,
            "synchronous_commit is off: a crash of the server forgets what was acknowledged just before",
            "turn it on for this database or role, if that matters to your jobs",
        );
    }
    Finding::ok(CHECK, format!("synchronous_commit is {}", session.synchronous_commit))
}

pub(crate) fn database(session: &SessionFacts) -> Finding {
    const CHECK: &str = "database";
    let found = format!("{}, {}, time zone {}", session.database, session.encoding, session.time_zone);
    if session.encoding != "UTF8" {
        return Finding::bad(CHECK, found, "create one with `createdb --encoding UTF8 --template template0 NAME`");
    }
    Finding::ok(CHECK, found)
}

pub(crate) fn role(session: &SessionFacts, may: RoleFacts) -> Finding {
    const CHECK: &str = "role";
    let parts = [
        (may.enqueues, "enqueue"),
        (may.records_effects, "record effects"),
        (may.ticks, "tick"),
        (may.operates, "retry and cancel"),
        (may.prunes, "prune"),
        (may.views, "look"),
    ];
    let parts: Vec<_> = parts.iter().filter(|(may, _)| *may).map(|(_, what)| *what).collect();
    if !may.enters || parts.is_empty() {
        return Finding::bad(
            CHECK,
            format!("{} may do nothing", session.role),
            format!("as the schema's owner: jobctl grants --role {} --as worker | psql", session.role),
        );
    }
    Finding::ok(CHECK, format!("{} may {}", session.role, parts.join(", ")))
}

/// Nothing in jobctl depends on the host's clock, but cron and whoever writes `--run-at` do.
pub(crate) fn clock(clock: Clock) -> Finding {
    const CHECK: &str = "clock";
    let apart = clock.ahead.abs().to_std().unwrap_or_default();
    let known_to = clock.took / 2;
    if apart.saturating_sub(known_to) < CLOCK_TOLERANCE.to_std().unwrap_or_default() {
        return Finding::ok(CHECK, "this host and the database agree");
    }
    let side = if clock.ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
    Finding::warn(
        CHECK,
        format!("this host is {} {side} the database, whose clock decides what is due", duration::show(apart)),
        "run an NTP client on both",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Verdict;
    use crate::findings::tests::session;

    fn link(first: i32, last: i32, other: Option<i32>) -> Link {
        Link {
            address: "app@db:5432/app".to_owned(),
            identity: Identity::Local,
            sessions: [session(first), session(last)],
            open_for: Duration::from_millis(20),
            other: other.map(session),
        }
    }

    const CLOCK: Clock = Clock { ahead: TimeDelta::zero(), took: Duration::from_millis(3) };

    #[test]
    fn a_pooler_shows_by_its_server_processes() {
        let seen = |link: &Link| pooler(link).found != "none seen";
        assert!(!seen(&link(1, 1, Some(2))));
        assert!(seen(&link(1, 1, Some(1))));
        assert!(seen(&link(1, 2, Some(3))));
        assert!(seen(&link(1, 2, Some(2))));
        let mut old = link(1, 1, Some(2));
        old.sessions[0].age = Duration::from_secs(60);
        assert!(seen(&old));
        assert_eq!(pooler(&link(1, 1, None)).verdict, Verdict::Unknown);
    }

    #[test]
    fn a_server_that_could_be_another_one_is_told_where_it_is_not_on_the_host() {
        let mut link = link(1, 1, Some(2));
        let found = |link: &Link| connection(link, CLOCK);
        assert_eq!(found(&link).found, "PostgreSQL 15.13 at app@db:5432/app, on this host, 3ms a transaction");
        link.identity = Identity::Unverified;
        let clear = found(&link);
        assert_eq!((clear.verdict, clear.found.contains(", not encrypted, not verified, ")), (Verdict::Warn, true));
        link.sessions[0].encrypted = Some(true);
        link.sessions[0].tls_version = Some("TLSv1.3".to_owned());
        assert_eq!((found(&link).verdict, found(&link).found.contains("TLSv1.3, not verified")), (Verdict::Warn, true));
        link.identity = Identity::Verified;
        assert_eq!((found(&link).verdict, found(&link).found.contains(", TLSv1.3, ")), (Verdict::Ok, true));
    }

    #[test]
    fn what_keeps_the_server_from_its_promise_is_told() {
        let with = |change: fn(&mut SessionFacts)| {
            let mut session = session(1);
            change(&mut session);
            (writes(&session).verdict, durability(&session).verdict, database(&session).verdict)
        };
        assert_eq!(with(|_| {}), (Verdict::Ok, Verdict::Ok, Verdict::Ok));
        assert_eq!(with(|session| session.standby = true).0, Verdict::Bad);
        assert_eq!(with(|session| session.read_only = true).0, Verdict::Bad);
        assert_eq!(with(|session| session.fsync = false).1, Verdict::Warn);
        assert_eq!(with(|session| session.full_page_writes = false).1, Verdict::Warn);
        assert_eq!(with(|session| session.synchronous_commit = "off".to_owned()).1, Verdict::Warn);
        assert_eq!(with(|session| session.synchronous_commit = "local".to_owned()).1, Verdict::Ok);
        assert_eq!(with(|session| session.encoding = "SQL_ASCII".to_owned()).2, Verdict::Bad);
    }

    #[test]
    fn a_role_that_may_nothing_needs_a_person() {
        assert_eq!(role(&session(1), RoleFacts::default()).verdict, Verdict::Bad);
        let may = RoleFacts { enters: true, enqueues: true, views: true, ..RoleFacts::default() };
        assert_eq!(role(&session(1), may), Finding::ok("role", "app may enqueue, look"));
    }

    #[test]
    fn clocks_that_are_apart_are_told_unless_the_question_took_as_long() {
        let told = |ahead: i64, took: u64| {
            clock(Clock { ahead: TimeDelta::milliseconds(ahead), took: Duration::from_millis(took) }).found
        };
        let agree = "this host and the database agree";
        assert_eq!(told(1500, 3), agree);
        assert_eq!(told(-1500, 3), agree);
        assert_eq!(told(3000, 4000), agree);
        assert!(told(300_000, 3).starts_with("this host is 5m ahead of the database"));
        assert!(told(-7000, 3).starts_with("this host is 7s behind the database"));
    }
}
