//! Why a connection failed, in words for a person: the cause and the remedy.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use postgres::error::SqlState;
use rustix::io::Errno;

use super::stream::Rejection;
use crate::exit::{Exit, Fault};
use crate::text::duration;
use crate::tls::{Remedy, TlsProblem};

/// The oldest major version of PostgreSQL that jobctl supports.
pub(super) const OLDEST_SERVER: u32 = 14;
const NOT_POSTGRESQL: &str = "it is not a PostgreSQL server";
const TRY_AGAIN: &str = "try again in a moment";
const CHECK_LIMITS: &str = "try again in a moment; if the error remains, raise max_connections, or \
    the CONNECTION LIMIT of the role or the database";
const ALLOW_CONNECTIONS: &str = "let it with ALTER DATABASE ... ALLOW_CONNECTIONS true, or name \
    another in the URL or PGDATABASE";
const CHECK_LIBRARIES: &str = "correct session_preload_libraries or local_preload_libraries of the \
    role or the database, or install the library on the server";
const CHECK_PASSWORD: &str = "check the user and the password (URL, PGPASSWORD or pass file)";
const CHECK_HASH: &str =
    "let an authority sign it with RSA or ECDSA, or use channel_binding=prefer";
const CHECK_BINDING: &str = "channel_binding=require needs TLS and a password that the server \
    checks by SCRAM; poolers do not offer it, so use prefer";
const CREATE_DATABASE: &str = "create it, or name another in the URL or PGDATABASE";
const CREATE_ROLE: &str =
    "create this role, or name another in --database-url, DATABASE_URL or PGUSER";
const GRANT_CONNECT: &str = "grant the user CONNECT on the database";
const GRANT_ROLE: &str = "GRANT this role to the login, or name another in `options`";
const CHECK_RULES: &str = "check user, database and sslmode against pg_hba.conf on the server";
const GIVE_LOGIN: &str = "let it with ALTER ROLE ... LOGIN, or name another role";
/// Parts of PostgreSQL's messages.
const SET_ROLE: &str = "permission denied to set role";
const NO_LOGIN: &str = "is not permitted to log in";
const HOT_STANDBY_OFF: &str = "is not accepting connections";
pub(super) const CHECK_TLS: &str = "check sslmode and the TLS settings of the server";
const CHECK_CLIENT_CERTIFICATE: &str = "check sslcert and sslkey";

/// Why a host, or one of its addresses, gave no connection.
#[derive(Debug)]
pub(super) struct ConnectError {
    kind: FailureKind,
    pub(super) cause: String,
    remedy: &'static str,
}

/// What failed, from the least to the most specific. Of several errors, the remedy of the most
/// specific one is shown.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum FailureKind {
    Network,
    SessionAttrs,
    Resources,
    Settings,
    Encryption,
    /// The server's rules reject this combination of user, database and encryption.
    Rules,
    Login,
}

impl ConnectError {
    fn new(kind: FailureKind, cause: impl Into<String>, remedy: &'static str) -> Self {
        // A server's message may have several lines, but an error is printed in one line.
        let cause = cause.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, cause, remedy }
    }

    pub(super) fn of_network(cause: impl Into<String>) -> Self {
        let remedy =
            "is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* variables";
        Self::new(FailureKind::Network, cause, remedy)
    }

    pub(super) fn of_silence(limit: Duration) -> Self {
        let cause = format!("no answer within {}", duration::show(limit));
        let remedy = "is PostgreSQL running there, or a pooler whose pool is exhausted or paused? \
                      set --database-url, DATABASE_URL or the PG* variables";
        Self::new(FailureKind::Network, cause, remedy)
    }

    pub(super) fn of_unknown_host() -> Self {
        let remedy = "correct it in --database-url, DATABASE_URL or PGHOST, or check the DNS";
        Self::new(FailureKind::Network, "cannot resolve the host name", remedy)
    }

    pub(super) fn not_postgresql() -> Self {
        Self::of_network(NOT_POSTGRESQL)
    }

    /// The server is older than `OLDEST_SERVER`.
    pub(super) fn of_version(version: &str) -> Self {
        let cause = format!(
            "its version is {version}, but jobctl needs PostgreSQL {OLDEST_SERVER} or newer"
        );
        Self::new(FailureKind::Settings, cause, "upgrade the server, or use another")
    }

    /// The database is PgBouncer's own one, with commands for its administrator.
    pub(super) fn of_console() -> Self {
        let remedy = "name a database in the URL or PGDATABASE";
        Self::new(FailureKind::Settings, "it is the console of PgBouncer", remedy)
    }

    /// The session lacks the wanted attributes.
    pub(super) fn of_session(cause: &str) -> Self {
        let remedy = "wait for a failover, or correct the hosts or target_session_attrs";
        Self::new(FailureKind::SessionAttrs, cause, remedy)
    }

    pub(super) fn of_resources(cause: &str) -> Self {
        Self::new(FailureKind::Resources, cause, TRY_AGAIN)
    }

    pub(super) fn of_encryption(cause: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(FailureKind::Encryption, cause, remedy)
    }

    /// Channel binding is required, but the server's certificate has no hash for it.
    pub(super) fn of_binding(algorithm: &str) -> Self {
        let cause = format!(
            "channel_binding=require needs the hash of the server's certificate, and its signature \
             algorithm ({algorithm}) defines no hash that jobctl knows"
        );
        Self::new(FailureKind::Settings, cause, CHECK_HASH)
    }

    /// Replaces the remedy if no setting named the user and the database.
    pub(super) fn of_defaults(mut self) -> Self {
        self.remedy = match self.kind {
            FailureKind::Rules | FailureKind::Login => {
                "name the database: set --database-url, DATABASE_URL or the PG* variables, or \
                 write it into a file by `jobctl init --env-file`"
            }
            FailureKind::Network => {
                "is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* \
                 variables, or write the address into a file by `jobctl init --env-file`"
            }
            _ => self.remedy,
        };
        self
    }

    pub(super) fn at(mut self, server: impl Display) -> Self {
        self.cause = format!("{server}: {}", self.cause);
        self
    }

    /// Joins the causes, and keeps the remedy of the more specific error.
    pub(super) fn and(self, other: Self, separator: &str) -> Self {
        let cause = format!("{}{separator}{}", self.cause, other.cause);
        Self { cause, ..if other.kind > self.kind { other } else { self } }
    }

    pub(super) fn into_fault(self, preposition: &str) -> anyhow::Error {
        let Self { cause, remedy, .. } = &self;
        let line = format!("cannot connect to the database{preposition} {cause}; {remedy}");
        Fault::new(self.exit(), line).into()
    }

    fn exit(&self) -> Exit {
        if self.kind <= FailureKind::Resources { Exit::Unavailable } else { Exit::Configuration }
    }

    /// Returns whether another host may succeed. Wrong settings are wrong for every host, and a
    /// rejected password should not be sent to more of them.
    pub(super) fn may_differ_elsewhere(&self) -> bool {
        self.exit() == Exit::Unavailable
    }

    /// Returns whether libpq tries the other kind of encryption, if `sslmode` allows both.
    pub(super) fn may_depend_on_encryption(&self) -> bool {
        matches!(self.kind, FailureKind::Encryption | FailureKind::Rules)
    }

    /// Returns whether the server's rules allowed the login before it failed.
    pub(super) fn is_past_the_rules(&self) -> bool {
        matches!(self.kind, FailureKind::Resources | FailureKind::Login)
    }

    fn of_server(state: &SqlState, message: &str) -> Self {
        use FailureKind::{Login, Resources, Rules};
        let (kind, remedy) = match (state, state.code().get(..2)) {
            (&SqlState::INVALID_PASSWORD, _) => (Login, CHECK_PASSWORD),
            (&SqlState::INVALID_CATALOG_NAME, _) => (Login, CREATE_DATABASE),
            (&SqlState::INSUFFICIENT_PRIVILEGE, _) if message.contains(SET_ROLE) => {
                (Login, GRANT_ROLE)
            }
            (&SqlState::UNDEFINED_FILE, _) => (Login, CHECK_LIBRARIES),
            _ if is_of_library(message) => (Login, CHECK_LIBRARIES),
            (&SqlState::INSUFFICIENT_PRIVILEGE, _) => (Login, GRANT_CONNECT),
            (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, _) if is_unknown_role(message) => {
                (Login, CREATE_ROLE)
            }
            (_, Some("28")) if message.contains(NO_LOGIN) => (Login, GIVE_LOGIN),
            (_, Some("28")) => (Rules, CHECK_RULES),
            (_, Some("08" | "XX")) => of_pooler(&message.to_ascii_lowercase()),
            (&SqlState::TOO_MANY_CONNECTIONS, _) => (Resources, CHECK_LIMITS),
            (&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, _) => (Login, ALLOW_CONNECTIONS),
            (&SqlState::CANNOT_CONNECT_NOW, _) if message.ends_with(HOT_STANDBY_OFF) => {
                (Resources, "connect to the primary, or set hot_standby = on on this standby")
            }
            // Resources, operator, system.
            (_, Some("53" | "55" | "57" | "58")) => (Resources, TRY_AGAIN),
            _ => (Login, "check options and the other parameters of the connection"),
        };
        Self::new(kind, message, remedy)
    }
}

impl From<TlsProblem> for ConnectError {
    fn from(problem: TlsProblem) -> Self {
        let remedy = match problem.remedy {
            Remedy::Do(remedy) => remedy,
            Remedy::Trust => {
                "set sslrootcert to a file with its authority's certificate or this one"
            }
            Remedy::Name => "use the name in the certificate, or sslmode=verify-ca",
            Remedy::RevocationList => "renew the revocation list, sslcrl",
            Remedy::ClientCertificate => CHECK_CLIENT_CERTIFICATE,
            Remedy::Versions => "check ssl_min_protocol_version and ssl_max_protocol_version",
        };
        Self::of_encryption(problem.cause_with_names(), remedy)
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref();
        if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return TlsProblem::from(tls).into();
        }
        match (inner.and_then(|inner| inner.downcast_ref()), Errno::from_io_error(&error)) {
            (Some(rejection @ Rejection::AuthMethod(_)), _) => {
                let remedy = "check the address, and pg_hba.conf on the server";
                Self::new(FailureKind::Settings, rejection.to_string(), remedy)
            }
            (Some(_), _) => Self::not_postgresql(),
            (None, Some(Errno::MFILE | Errno::NFILE)) => {
                Self::of_resources("out of file descriptors (ulimit -n)")
            }
            (None, _) => Self::of_network(io_text(&error)),
        }
    }
}

impl From<postgres::Error> for ConnectError {
    fn from(error: postgres::Error) -> Self {
        if let Some(server) = error.as_db_error() {
            return Self::of_server(server.code(), server.message());
        }
        if error.is_closed() {
            return Self::of_network("the server closed the connection");
        }
        let text = error.to_string();
        let Some(source) = error.into_source() else { return Self::of_network(text) };
        // Errors of the driver itself: no password, no channel binding.
        source.downcast::<io::Error>().map_or_else(
            |other| {
                let cause = other.to_string();
                let is_binding = cause.contains("channel binding");
                let remedy = if is_binding { CHECK_BINDING } else { CHECK_PASSWORD };
                Self::new(FailureKind::Settings, cause, remedy)
            },
            |error| Self::from(*error),
        )
    }
}

/// Returns whether a preloaded library is missing, unfit or not allowed. Some of these errors have
/// a code of many causes.
fn is_of_library(message: &str) -> bool {
    let parts =
        ["could not access file", "could not load library", "incompatible library", "to library"];
    parts.iter().any(|part| message.contains(part))
}

fn is_unknown_role(message: &str) -> bool {
    message.starts_with("role \"") && message.ends_with("does not exist")
}

/// The remedy if a pooler gets no connection to the server.
pub(crate) const BEHIND_POOLER: &str = "try again; the server behind the pooler may be \
    down, or the pool exhausted or paused";

/// Returns whether a pooler says that it gets no connection to the server.
pub(crate) fn is_behind_pooler(message: &str) -> bool {
    ["query_wait_timeout", "server login"].iter().any(|part| message.contains(part))
}

/// Returns what failed, and the remedy. Poolers use these codes for every error, also for those of
/// the server: PgBouncer 08P01, hosted ones XX000. The message is in lower case.
fn of_pooler(message: &str) -> (FailureKind, &'static str) {
    use FailureKind::{Login, Resources, Rules};
    const UNCERTAIN: &str = "try again in a moment; if the error remains, check the user, the \
                             password, the database and the settings of the pooler";
    const POOLER_LOGIN: &str = "the server rejects the pooler's login: correct its settings, or \
                                wait until the server works";
    const REMOVE: &str = "remove it from the URL, the PG* variables and the service file, or add \
                          it to ignore_startup_parameters";
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match message {
        // The pooler's own login, which may get its password from this client. It tries again.
        _ if is_behind_pooler(message) && has(&["cached error"]) => (Resources, POOLER_LOGIN),
        _ if is_behind_pooler(message) => (Resources, BEHIND_POOLER),
        _ if is_unknown_role(message) => (Login, CREATE_ROLE),
        _ if has(&[SET_ROLE]) => (Login, GRANT_ROLE),
        _ if has(&["permission denied for database"]) => (Login, GRANT_CONNECT),
        _ if has(&[NO_LOGIN]) => (Login, GIVE_LOGIN),
        _ if has(&["pg_hba.conf"]) => (Rules, CHECK_RULES),
        _ if has(&["too many connections for"]) => (Resources, CHECK_LIMITS),
        _ if has(&["not currently accepting connections"]) => (Login, ALLOW_CONNECTIONS),
        _ if has(&["no such database"]) || has(&["database"]) && has(&["does not exist"]) => {
            (Login, CREATE_DATABASE)
        }
        _ if has(&["authentication failed", "auth failed", "no such user", "user not found"]) => {
            (Login, CHECK_PASSWORD)
        }
        _ if has(&["startup parameter"]) => (Login, REMOVE),
        _ if has(&["ssl required", "tls connection required"]) => (Rules, "set sslmode=require"),
        _ => (Resources, UNCERTAIN),
    }
}

fn io_text(error: &io::Error) -> String {
    let of_system = error.raw_os_error().is_some();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NotFound => "the socket does not exist".to_owned(),
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => "the server closed the connection".to_owned(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if !of_system => {
            format!("{NOT_POSTGRESQL} ({error})")
        }
        // The driver's error if the stream ends within a message.
        _ if error.to_string() == "bytes remaining on stream" => NOT_POSTGRESQL.to_owned(),
        // Show the error's kind, because its text ends with a number: `(os error 111)`.
        kind if of_system => kind.to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn exits(code: &str, exit: Exit) {
        assert_eq!(ConnectError::of_server(&SqlState::from_code(code), "").exit(), exit, "{code}");
    }

    #[test]
    fn the_sqlstate_decides_between_exits_5_and_7() {
        for code in ["28P01", "28000", "3D000", "42501", "42704", "22023", "0A000"] {
            exits(code, Exit::Configuration);
        }
        for code in ["57P03", "53300", "08006", "08P01", "XX000"] {
            exits(code, Exit::Unavailable);
        }
    }

    #[test]
    fn a_standby_that_takes_no_connections_is_not_temporary() {
        for (message, part) in [
            ("the database system is not yet accepting connections", TRY_AGAIN),
            ("the database system is not accepting connections", "connect to the primary, or set"),
        ] {
            let error = ConnectError::of_server(&SqlState::CANNOT_CONNECT_NOW, message);
            assert!(error.remedy.starts_with(part), "{message}: {}", error.remedy);
        }
    }

    #[test]
    fn the_message_of_a_pooler_decides_where_its_code_does_not() {
        let remedy = |message: &str| {
            let [bouncer, hosted] = ["08P01", "XX000"].map(|code| {
                let error = ConnectError::of_server(&SqlState::from_code(code), message);
                (error.exit(), error.remedy)
            });
            assert_eq!(bouncer, hosted);
            bouncer
        };
        for (message, part) in [
            ("password authentication failed", "check the user and the password"),
            ("SASL authentication failed", "check the user and the password"),
            ("no such user: ana", "check the user and the password"),
            ("Tenant or user not found", "check the user and the password"),
            ("no such database: shop", "create it"),
            ("database \"shop\" does not exist", "create it"),
            ("unsupported startup parameter: options", "remove it"),
            ("SSL required", "set sslmode=require"),
            // A pooler passes on what the server says.
            ("role \"ana\" does not exist", "create this role"),
            ("role \"ana\" is not permitted to log in", "let it with ALTER ROLE"),
            ("permission denied for database \"shop\"", "grant the user CONNECT"),
            ("permission denied to set role \"ana\"", "GRANT this role"),
            ("pg_hba.conf rejects connection for host \"a\"", "check user, database and sslmode"),
            ("database \"a\" is not currently accepting connections", "let it with ALTER DATABASE"),
            ("incompatible library \"/a.so\": missing magic block", "correct session_preload"),
        ] {
            let (exit, remedy) = remedy(message);
            assert_eq!(exit, Exit::Configuration, "{message}");
            assert!(remedy.starts_with(part), "{message}: {remedy}");
        }
        for message in
            ["no more connections allowed (max_client_conn)", "Max client connections reached"]
        {
            let (exit, remedy) = remedy(message);
            assert_eq!(exit, Exit::Unavailable, "{message}");
            assert!(remedy.contains("if the error remains, check the user"), "{remedy}");
        }
        for (message, part) in [
            ("query_wait_timeout", "try again; the server behind the pooler"),
            ("server login has been failing, try again later", "try again; the server behind"),
            (
                "server login has been failing, cached error: password authentication failed",
                "the server rejects the pooler's login",
            ),
        ] {
            let (exit, remedy) = remedy(message);
            assert_eq!(exit, Exit::Unavailable, "{message}");
            assert!(remedy.starts_with(part), "{message}: {remedy}");
        }
    }

    #[test]
    fn a_system_error_is_shown_without_its_number() {
        assert_eq!(io_text(&io::Error::from_raw_os_error(111)), "connection refused");
        assert_eq!(io_text(&io::Error::from_raw_os_error(113)), "host unreachable");
        assert_eq!(io_text(&io::Error::other("odd")), "odd");
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(ConnectError::of_network("a\n  b ").cause, "a b");
    }
}
