//! Why there is no connection, in words for a person: the cause and the remedy.

use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio_postgres::error::SqlState;

use crate::certificates::{Problem, Remedy};
use crate::stream::Rejection;

const NOT_POSTGRESQL: &str = "it is not a PostgreSQL server";
const CHECK_ADDRESS: &str = "is PostgreSQL running there? correct the URL or the PG* variables";
const CHECK_POOLER: &str = "is PostgreSQL running there, or a pooler whose pool is exhausted or \
    paused? correct the URL or the PG* variables";
const TRY_AGAIN: &str = "try again in a moment";
const CHECK_LIMITS: &str = "try again in a moment: if the error remains, raise max_connections, or \
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
const CREATE_ROLE: &str = "create this role, or name another in the URL or PGUSER";
const GRANT_CONNECT: &str = "grant the user CONNECT on the database";
const GRANT_ROLE: &str = "GRANT this role to the login, or name another in `options`";
const CHECK_RULES: &str = "check user, database and sslmode against pg_hba.conf on the server";
const GIVE_LOGIN: &str = "let it with ALTER ROLE ... LOGIN, or name another role";
/// Parts of PostgreSQL's messages.
const SET_ROLE: &str = "permission denied to set role";
const NO_LOGIN: &str = "is not permitted to log in";
const NO_CERTIFICATE: &str = "requires a valid client certificate";
const HOT_STANDBY_OFF: &str = "is not accepting connections";
pub(crate) const CHECK_TLS: &str = "check sslmode and the TLS settings of the server";
pub(crate) const SET_CLIENT_CERTIFICATE: &str = "set sslcert and sslkey";
const CHECK_CLIENT_CERTIFICATE: &str = "check sslcert and sslkey";

/// Why there is no connection, for a person: the cause, then a semicolon and a remedy, in one line.
///
/// An error about a connection names every host and why it failed. An error about a setting names
/// the setting and its origin: a variable, a file, or the name that the program gave the address.
/// No text contains a password or the value of an unknown setting, but user, hosts and database.
/// A [`source`](std::error::Error::source) is never set, because the text has all causes.
/// `Debug` shows the same text, so that it can be read if `main` returns the error.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    pub(crate) cause: String,
    remedy: String,
    sql_state: Option<SqlState>,
}

/// What failed. If several hosts failed, the most specific failure counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting, or a file that a setting names, can't be used. Nothing was sent.
    Setting,
    /// No address is known for the name of a host.
    UnknownHost,
    /// A host can't be reached, has closed the connection, or does not run PostgreSQL.
    Network,
    /// A host did not answer within `connect_timeout`, or the caller's [`Wait`](crate::Wait) has
    /// ended.
    Timeout,
    /// The caller interrupted the wait.
    Interrupted,
    /// No host has the wanted `target_session_attrs` now.
    SessionAttrs,
    /// The server, its pooler or this host is short of something, or the server starts or stops.
    Unavailable,
    /// The server does not fit the settings: it is too old or the console of PgBouncer, or it lacks
    /// what `require_auth` or `channel_binding` demand.
    Unsupported,
    /// The server does not support TLS, or the handshake failed.
    Tls,
    /// pg_hba.conf on the server has no rule for this user, database, address and encryption.
    Rules,
    /// The password is wrong or missing, or the user is unknown to a server that does not say so.
    Password,
    /// The role does not exist.
    UnknownRole,
    /// The database does not exist.
    UnknownDatabase,
    /// The login failed for another reason, such as a missing privilege or a wrong parameter.
    Login,
}

impl ErrorKind {
    /// Returns whether the same connection may succeed later, or to another host, although nothing
    /// was changed. Otherwise a person must act, for example correct a setting, or has interrupted
    /// the wait.
    ///
    /// Limit the number of retries: a misspelt host is [`UnknownHost`](Self::UnknownHost), as is
    /// every host while the DNS is down.
    pub fn is_temporary(self) -> bool {
        use ErrorKind::{Network, SessionAttrs, Timeout, Unavailable, UnknownHost};
        matches!(self, UnknownHost | Network | Timeout | SessionAttrs | Unavailable)
    }

    /// Returns how specific an error is. Of several errors, the most specific one is shown with its
    /// remedy.
    fn rank(self) -> u8 {
        match self {
            Self::UnknownHost | Self::Network | Self::Timeout | Self::Interrupted => 0,
            Self::SessionAttrs => 1,
            Self::Unavailable => 2,
            Self::Setting | Self::Unsupported => 3,
            Self::Tls => 4,
            Self::Rules => 5,
            Self::Password | Self::UnknownRole | Self::UnknownDatabase | Self::Login => 6,
        }
    }
}

impl Error {
    fn new(kind: ErrorKind, cause: impl Into<String>, remedy: &str) -> Self {
        // A server's message may have several lines, but an error is printed in one line.
        let cause = cause.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, cause, remedy: remedy.to_owned(), sql_state: None }
    }

    /// Returns what failed.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the text before the remedy.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns what a person can do. A program may show another remedy of its own instead, chosen
    /// by the [`kind`](Self::kind).
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Returns the code of the server, if a server has rejected the login.
    pub fn sql_state(&self) -> Option<&SqlState> {
        self.sql_state.as_ref()
    }

    /// The error about a setting that can't be used. `reason` is the cause and, after a semicolon,
    /// the remedy.
    pub(crate) fn of_setting(origin: impl Display, reason: impl Display) -> Self {
        let reason = reason.to_string();
        let (cause, remedy) = reason.split_once("; ").unwrap_or((&reason, ""));
        Self {
            kind: ErrorKind::Setting,
            cause: format!("cannot use {origin}: {cause}"),
            remedy: remedy.to_owned(),
            sql_state: None,
        }
    }

    /// The error about a host that can't be reached, or is not PostgreSQL.
    pub(crate) fn of_network(cause: impl Into<String>) -> Self {
        Self::new(ErrorKind::Network, cause, CHECK_ADDRESS)
    }

    /// The error about a server that did not answer in time.
    pub(crate) fn of_silence(limit: Duration) -> Self {
        Self::new(ErrorKind::Timeout, silence(limit), CHECK_POOLER)
    }

    /// The error if the caller interrupted the wait, and no answer came within `limit` from then
    /// on.
    pub(crate) fn of_interruption(limit: Duration) -> Self {
        let cause = format!("the wait was interrupted, then {}", silence(limit));
        Self::new(ErrorKind::Interrupted, cause, "")
    }

    /// The error about a host's name without an address.
    pub(crate) fn of_unknown_host() -> Self {
        let remedy = "correct it in the URL or PGHOST, or check the DNS";
        Self::new(ErrorKind::UnknownHost, "cannot resolve the host name", remedy)
    }

    /// The error if another program than PostgreSQL answers.
    pub(crate) fn not_postgresql() -> Self {
        Self::of_network(NOT_POSTGRESQL)
    }

    /// The error about a server older than the `oldest` major version that the program accepts.
    pub(crate) fn of_version(version: &str, program: &str, oldest: u32) -> Self {
        let cause =
            format!("its version is {version}, but {program} needs PostgreSQL {oldest} or newer");
        Self::new(ErrorKind::Unsupported, cause, "upgrade the server, or use another")
    }

    /// The error about PgBouncer's own database, which has commands for its administrator.
    pub(crate) fn of_console() -> Self {
        let remedy = "name a database in the URL or PGDATABASE";
        Self::new(ErrorKind::Unsupported, "it is the console of PgBouncer", remedy)
    }

    /// The error about a session without the wanted attributes.
    pub(crate) fn of_session(cause: &str) -> Self {
        let remedy = "wait for a failover, or correct the hosts or target_session_attrs";
        Self::new(ErrorKind::SessionAttrs, cause, remedy)
    }

    /// The error if this host is short of something.
    pub(crate) fn of_resources(cause: &str) -> Self {
        Self::new(ErrorKind::Unavailable, cause, TRY_AGAIN)
    }

    /// The error if TLS failed.
    pub(crate) fn of_encryption(cause: impl Into<String>, remedy: &str) -> Self {
        Self::new(ErrorKind::Tls, cause, remedy)
    }

    /// The error if channel binding is required, but the server's certificate has no hash for it.
    pub(crate) fn of_binding(algorithm: &str, program: &str) -> Self {
        let cause = format!(
            "channel_binding=require needs the hash of the server's certificate, and its signature \
             algorithm ({algorithm}) defines no hash that {program} knows"
        );
        Self::new(ErrorKind::Unsupported, cause, CHECK_HASH)
    }

    /// Puts the server before the cause.
    pub(crate) fn at(mut self, server: impl Display) -> Self {
        self.cause = format!("{server}: {}", self.cause);
        self
    }

    /// Joins the causes of two errors, and keeps the kind and the remedy of the more specific one.
    pub(crate) fn and(self, other: Self, separator: &str) -> Self {
        let cause = format!("{}{separator}{}", self.cause, other.cause);
        let more_specific = if other.kind.rank() > self.kind.rank() { other } else { self };
        Self { cause, ..more_specific }
    }

    /// Puts "cannot connect to the database" and a preposition before the cause.
    pub(crate) fn in_connection(mut self, preposition: &str) -> Self {
        self.cause = format!("cannot connect to the database{preposition} {}", self.cause);
        self
    }

    /// Returns whether another host may succeed. It can't with wrong settings, and a rejected
    /// password should not be sent to more hosts.
    pub(crate) fn may_differ_elsewhere(&self) -> bool {
        self.kind.is_temporary()
    }

    /// Returns whether the login may succeed with or without encryption instead. Then libpq tries
    /// that, too, if `sslmode` allows both.
    pub(crate) fn may_depend_on_encryption(&self) -> bool {
        matches!(self.kind, ErrorKind::Tls | ErrorKind::Rules)
    }

    /// Returns whether the server's rules allowed the login before it failed.
    pub(crate) fn is_past_the_rules(&self) -> bool {
        [ErrorKind::Unavailable.rank(), ErrorKind::Login.rank()].contains(&self.kind.rank())
    }

    /// Returns the error for an error of the server, by its code and by parts of its message.
    fn of_server(state: &SqlState, message: &str) -> Self {
        use ErrorKind::{Login, Password, Rules, Unavailable, UnknownDatabase, UnknownRole};
        let (kind, remedy) = match (state, state.code().get(..2)) {
            (&SqlState::INVALID_PASSWORD, _) => (Password, CHECK_PASSWORD),
            (&SqlState::INVALID_CATALOG_NAME, _) => (UnknownDatabase, CREATE_DATABASE),
            (&SqlState::INSUFFICIENT_PRIVILEGE, _) if message.contains(SET_ROLE) => {
                (Login, GRANT_ROLE)
            }
            (&SqlState::UNDEFINED_FILE, _) => (Login, CHECK_LIBRARIES),
            _ if is_of_library(message) => (Login, CHECK_LIBRARIES),
            (&SqlState::INSUFFICIENT_PRIVILEGE, _) => (Login, GRANT_CONNECT),
            (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, _) if is_unknown_role(message) => {
                (UnknownRole, CREATE_ROLE)
            }
            (_, Some("28")) if message.contains(NO_LOGIN) => (Login, GIVE_LOGIN),
            (_, Some("28")) if message.contains(NO_CERTIFICATE) => (Rules, SET_CLIENT_CERTIFICATE),
            (_, Some("28")) => (Rules, CHECK_RULES),
            (_, Some("08" | "XX")) => of_pooler(&message.to_ascii_lowercase()),
            (&SqlState::TOO_MANY_CONNECTIONS, _) => (Unavailable, CHECK_LIMITS),
            (&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, _) => (Login, ALLOW_CONNECTIONS),
            (&SqlState::CANNOT_CONNECT_NOW, _) if message.ends_with(HOT_STANDBY_OFF) => {
                (Unavailable, "connect to the primary, or set hot_standby = on on this standby")
            }
            // The classes of errors about resources, operators and the system.
            (_, Some("53" | "55" | "57" | "58")) => (Unavailable, TRY_AGAIN),
            _ => (Login, "check options and the other parameters of the connection"),
        };
        Self { sql_state: Some(state.clone()), ..Self::new(kind, message, remedy) }
    }
}

impl Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.cause)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(formatter, "; {}", self.remedy) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {}

/// Returns words about a missing answer. The limit is that of libpq's `connect_timeout`, which is
/// in seconds, or a part of it.
fn silence(limit: Duration) -> String {
    if limit < Duration::from_secs(1) {
        return format!("no answer within {}ms", limit.as_millis());
    }
    format!("no answer within {}s", (limit.as_secs_f64() * 10.0).round() / 10.0)
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let remedy = match problem.remedy() {
            Remedy::Do(remedy) => remedy,
            Remedy::Trust => {
                "set sslrootcert to a file with its authority's certificate or this one"
            }
            Remedy::Name => "use the name in the certificate, or sslmode=verify-ca",
            Remedy::RevocationList => "renew the revocation list, sslcrl",
            Remedy::ClientCertificate => CHECK_CLIENT_CERTIFICATE,
            Remedy::Versions => "check ssl_min_protocol_version and ssl_max_protocol_version",
        };
        Self::of_encryption(problem.to_string(), remedy)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref();
        if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Problem::from(tls).into();
        }
        match (
            inner.and_then(|inner| inner.downcast_ref::<Rejection>()),
            Errno::from_io_error(&error),
        ) {
            (Some(rejection), _) if rejection.is_of_auth_method() => {
                let remedy = "check the address, and pg_hba.conf on the server";
                Self::new(ErrorKind::Unsupported, rejection.to_string(), remedy)
            }
            (Some(_), _) => Self::not_postgresql(),
            (None, Some(Errno::MFILE | Errno::NFILE)) => {
                Self::of_resources("out of file descriptors (ulimit -n)")
            }
            (None, _) => Self::of_network(io_text(&error)),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(server) = error.as_db_error() {
            return Self::of_server(server.code(), server.message());
        }
        if error.is_closed() {
            return Self::of_network("the server closed the connection");
        }
        let text = error.to_string();
        let Some(source) = error.into_source() else { return Self::of_network(text) };
        match source.downcast::<io::Error>() {
            Ok(error) => Self::from(*error),
            // An error of the driver itself: there is no password, or no channel binding.
            Err(other) => {
                let cause = other.to_string();
                let is_binding = cause.contains("channel binding");
                let remedy = if is_binding { CHECK_BINDING } else { CHECK_PASSWORD };
                let is_password = cause == "password missing";
                let kind = if is_password { ErrorKind::Password } else { ErrorKind::Unsupported };
                Self::new(kind, cause, remedy)
            }
        }
    }
}

/// Returns whether a message says that a preloaded library is missing, unfit or not allowed. The
/// code of such an error may also have other causes.
fn is_of_library(message: &str) -> bool {
    let parts =
        ["could not access file", "could not load library", "incompatible library", "to library"];
    parts.iter().any(|part| message.contains(part))
}

/// Returns whether a message says that the role of the login does not exist.
fn is_unknown_role(message: &str) -> bool {
    message.starts_with("role \"") && message.ends_with("does not exist")
}

/// Returns whether this message of a pooler, such as PgBouncer, says that it gets no connection to
/// its server. A pooler can send it at the login and, with the code `08P01`, for a later statement.
pub fn is_behind_pooler(message: &str) -> bool {
    ["query_wait_timeout", "server login"].iter().any(|part| message.contains(part))
}

/// Returns what failed, and the remedy, by the message of a pooler in lower case. The code does not
/// help: poolers use one for every error, even of the server, PgBouncer 08P01 and hosted ones
/// XX000.
fn of_pooler(message: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::{Login, Password, Rules, Unavailable, UnknownDatabase, UnknownRole};
    const BEHIND_POOLER: &str = "try again: the server behind the pooler may be down, or the pool \
                                 exhausted or paused";
    const UNCERTAIN: &str = "try again in a moment: if the error remains, check the user, the \
                             password, the database and the settings of the pooler";
    const POOLER_LOGIN: &str = "the server rejects the pooler's login: correct its settings, or \
                                wait until the server works";
    const REMOVE: &str = "remove it from the URL, the PG* variables and the service file, or add \
                          it to ignore_startup_parameters";
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match message {
        // The pooler's own login, which may get its password from this client. It tries again.
        _ if is_behind_pooler(message) && has(&["cached error"]) => (Unavailable, POOLER_LOGIN),
        _ if is_behind_pooler(message) => (Unavailable, BEHIND_POOLER),
        _ if is_unknown_role(message) => (UnknownRole, CREATE_ROLE),
        _ if has(&[SET_ROLE]) => (Login, GRANT_ROLE),
        _ if has(&["permission denied for database"]) => (Login, GRANT_CONNECT),
        _ if has(&[NO_LOGIN]) => (Login, GIVE_LOGIN),
        _ if has(&["pg_hba.conf"]) => (Rules, CHECK_RULES),
        _ if has(&["too many connections for"]) => (Unavailable, CHECK_LIMITS),
        _ if has(&["not currently accepting connections"]) => (Login, ALLOW_CONNECTIONS),
        _ if has(&["no such database"]) || has(&["database"]) && has(&["does not exist"]) => {
            (UnknownDatabase, CREATE_DATABASE)
        }
        _ if has(&["authentication failed", "auth failed", "no such user", "user not found"]) => {
            (Password, CHECK_PASSWORD)
        }
        _ if has(&["startup parameter"]) => (Login, REMOVE),
        _ if has(&["ssl required", "tls connection required"]) => (Rules, "set sslmode=require"),
        _ => (Unavailable, UNCERTAIN),
    }
}

/// Returns the words for an error of the socket, without the system's error number.
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
        // The driver has this error if the stream ends within a message.
        _ if error.to_string() == "bytes remaining on stream" => NOT_POSTGRESQL.to_owned(),
        // Show the error's kind, because its text ends with a number: `(os error 111)`.
        kind if of_system => kind.to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_code(code: &str) -> Error {
        Error::of_server(&SqlState::from_code(code), "")
    }

    #[test]
    fn the_sqlstate_decides_whether_an_error_is_temporary() {
        for code in ["28P01", "28000", "3D000", "42501", "42704", "22023", "0A000"] {
            assert!(!of_code(code).kind().is_temporary(), "{code}");
        }
        for code in ["57P03", "53300", "08006", "08P01", "XX000"] {
            assert!(of_code(code).kind().is_temporary(), "{code}");
        }
        let error = of_code("28P01");
        assert_eq!(
            (error.kind(), error.sql_state()),
            (ErrorKind::Password, Some(&SqlState::INVALID_PASSWORD))
        );
    }

    #[test]
    fn a_standby_that_takes_no_connections_is_not_temporary() {
        for (message, part) in [
            ("the database system is not yet accepting connections", TRY_AGAIN),
            ("the database system is not accepting connections", "connect to the primary, or set"),
        ] {
            let error = Error::of_server(&SqlState::CANNOT_CONNECT_NOW, message);
            assert!(error.remedy.starts_with(part), "{message}: {}", error.remedy);
        }
    }

    #[test]
    fn the_message_of_a_pooler_decides_where_its_code_does_not() {
        let remedy = |message: &str| {
            let [bouncer, hosted] = ["08P01", "XX000"].map(|code| {
                let error = Error::of_server(&SqlState::from_code(code), message);
                (error.kind, error.remedy)
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
            let (kind, remedy) = remedy(message);
            assert!(!kind.is_temporary(), "{message}");
            assert!(remedy.starts_with(part), "{message}: {remedy}");
        }
        for message in
            ["no more connections allowed (max_client_conn)", "Max client connections reached"]
        {
            let (kind, remedy) = remedy(message);
            assert_eq!(kind, ErrorKind::Unavailable, "{message}");
            assert!(remedy.contains("if the error remains, check the user"), "{remedy}");
        }
        for (message, part) in [
            ("query_wait_timeout", "try again: the server behind the pooler"),
            ("server login has been failing, try again later", "try again: the server behind"),
            (
                "server login has been failing, cached error: password authentication failed",
                "the server rejects the pooler's login",
            ),
        ] {
            let (kind, remedy) = remedy(message);
            assert_eq!(kind, ErrorKind::Unavailable, "{message}");
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
    fn the_most_specific_of_several_errors_decides() {
        let error = Error::of_network("connection refused").at("a:1").and(of_code("28P01"), ", ");
        let error = error.and(Error::of_silence(Duration::from_millis(3333)), ", ");
        assert_eq!(error.kind(), ErrorKind::Password);
        assert_eq!(error.remedy(), CHECK_PASSWORD);
        assert_eq!(error.cause(), "a:1: connection refused, , no answer within 3.3s");
    }

    #[test]
    fn an_error_about_a_setting_has_its_remedy_apart() {
        let error = Error::of_setting("PGPORT", "it is odd; write it, too; or not");
        assert_eq!(error.cause(), "cannot use PGPORT: it is odd");
        assert_eq!(error.to_string(), "cannot use PGPORT: it is odd; write it, too; or not");
    }

    #[test]
    fn an_interruption_is_not_temporary_and_says_what_happened() {
        let error = Error::of_interruption(Duration::from_millis(100));
        assert!(!error.kind().is_temporary());
        let text = "the wait was interrupted, then no answer within 100ms";
        assert_eq!((error.to_string(), format!("{error:?}")), (text.to_owned(), text.to_owned()));
    }

    #[test]
    fn a_demanded_client_certificate_must_be_set() {
        let message = "connection requires a valid client certificate";
        let state = SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
        assert_eq!(Error::of_server(&state, message).remedy, SET_CLIENT_CERTIFICATE);
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(Error::of_network("a\n  b ").cause, "a b");
    }
}
