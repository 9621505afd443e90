//! Why a connection failed, in words for a person: what happened, whose matter it is and what to do.
//! Nothing here connects to anything.

use std::error::Error as _;
use std::io;

use postgres::error::SqlState;
use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError};

use super::stream::Refused;
use super::verify::Unverifiable;
use crate::exit::Exit;

pub(super) const NOT_POSTGRESQL: &str = "it does not answer like PostgreSQL";

/// Why one host was not taken.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: String,
    pub(super) remedy: Remedy,
}

/// What to do about a failure, from what says least about the cause to what says most: of several
/// hosts' failures the greatest one is worth a hint.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Remedy {
    Reach,
    Fit,
    Wait,
    Settings,
    Parameters,
    Encryption,
    Authority,
    HostName,
    Renew,
    Reissue,
    RevocationList,
    ClientCertificate,
    Methods,
    Rules,
    Grant,
    Database,
    Login,
}

impl Remedy {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Reach => "is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* variables",
            Self::Fit => "is a fail-over under way? else correct the hosts or target_session_attrs",
            Self::Wait => "try again in a moment",
            Self::Settings => "check the password (URL, PGPASSWORD or pass file), sslmode and channel_binding",
            Self::Parameters => "check options and the other parameters of the connection",
            Self::Encryption => "check sslmode and the TLS settings of the server",
            Self::Authority => "give the certificate of its authority, or its own, with sslrootcert",
            Self::HostName => "use the name in the certificate, or sslmode=verify-ca",
            Self::Renew => "renew it on the server",
            Self::Reissue => "renew it as version 3 with subjectAltName, or give it itself as sslrootcert",
            Self::RevocationList => "renew the revocation list, sslcrl",
            Self::Methods => "check pg_hba.conf on the server, and that the address is right",
            Self::ClientCertificate => "check sslcert and sslkey",
            Self::Rules => "check user, database and sslmode against pg_hba.conf on the server",
            Self::Grant => "grant the user CONNECT on the database",
            Self::Database => "create it, or name another in the URL or PGDATABASE",
            Self::Login => "check the user and the password (URL, PGPASSWORD or pass file)",
        }
    }

    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Reach | Self::Fit | Self::Wait => Exit::Unavailable,
            _ => Exit::Configuration,
        }
    }
}

impl Failure {
    pub(super) fn new(why: impl Into<String>, remedy: Remedy) -> Self {
        // A server's message may have several lines; an error has one.
        let why: String = why.into();
        Self { why: why.split_whitespace().collect::<Vec<_>>().join(" "), remedy }
    }

    /// Whether other hosts are still worth trying; what is wrong with the settings is wrong with
    /// them all, and a password should not be shown around.
    pub(super) fn is_the_hosts_own(&self) -> bool {
        self.remedy.exit() == Exit::Unavailable
    }

    /// Returns whether the server's rules reject this combination of user, database and encryption.
    pub(super) fn is_refusal(&self) -> bool {
        self.remedy == Remedy::Rules
    }

    /// Returns whether the encryption failed.
    pub(super) fn is_of_tls(&self) -> bool {
        (Remedy::Encryption..=Remedy::ClientCertificate).contains(&self.remedy)
    }

    /// Returns whether the server checked the login itself, beyond its rules.
    pub(super) fn is_of_the_server(&self) -> bool {
        matches!(self.remedy, Remedy::Wait | Remedy::Parameters | Remedy::Grant | Remedy::Database | Remedy::Login)
    }
}

impl From<&postgres::Error> for Failure {
    fn from(error: &postgres::Error) -> Self {
        if let Some(server) = error.as_db_error() {
            return Self::new(server.message(), by_state(server.code()));
        }
        if error.is_closed() {
            return Self::new("the server closed the connection", Remedy::Reach);
        }
        match error.source() {
            Some(source) => match source.downcast_ref::<io::Error>() {
                Some(error) => Self::from(error),
                // Errors of the driver itself: no password, no channel binding.
                None => Self::new(source.to_string(), Remedy::Settings),
            },
            None => Self::new(error.to_string(), Remedy::Reach),
        }
    }
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        let inner = error.get_ref();
        if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return by_tls(tls);
        }
        match inner.and_then(|inner| inner.downcast_ref::<Refused>()) {
            Some(refused @ Refused::Login(_)) => return Self::new(refused.to_string(), Remedy::Methods),
            Some(Refused::Message | Refused::Answer) => return Self::new(NOT_POSTGRESQL, Remedy::Reach),
            None => {}
        }
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => Self::new("out of file descriptors (ulimit -n)", Remedy::Wait),
            _ => Self::new(io_text(error), Remedy::Reach),
        }
    }
}

fn by_state(state: &SqlState) -> Remedy {
    match (state, state.code().get(..2)) {
        (&SqlState::INVALID_PASSWORD, _) => Remedy::Login,
        (&SqlState::INVALID_CATALOG_NAME, _) => Remedy::Database,
        (&SqlState::INSUFFICIENT_PRIVILEGE, _) => Remedy::Grant,
        (_, Some("28")) => Remedy::Rules,
        // Connection, resources, operator, system, internal. A pooler uses 08 for all it has to say.
        (_, Some("08" | "53" | "55" | "57" | "58" | "XX")) => Remedy::Wait,
        _ => Remedy::Parameters,
    }
}

fn by_tls(error: &rustls::Error) -> Failure {
    use CertificateError as Bad;
    let rustls::Error::InvalidCertificate(bad) = error else {
        return match error {
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::UnsupportedCertificate,
            ) => Failure::new(
                format!("the server does not accept the client's certificate ({error})"),
                Remedy::ClientCertificate,
            ),
            _ => Failure::new(format!("TLS failed: {error}"), Remedy::Encryption),
        };
    };
    let (why, remedy) = match bad {
        Bad::UnknownIssuer => ("no known authority signed it".to_owned(), Remedy::Authority),
        Bad::BadSignature => ("its signature is wrong".to_owned(), Remedy::Authority),
        Bad::NotValidForName => ("it is not for this host name".to_owned(), Remedy::HostName),
        Bad::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            (format!("it is not for this host name but for {}", names.join(", ")), Remedy::HostName)
        }
        Bad::Expired | Bad::ExpiredContext { .. } => ("it has expired".to_owned(), Remedy::Renew),
        Bad::Revoked => ("it is revoked".to_owned(), Remedy::Renew),
        Bad::ExpiredRevocationList | Bad::ExpiredRevocationListContext { .. } => {
            ("its authority's revocation list has expired".to_owned(), Remedy::RevocationList)
        }
        Bad::UnknownRevocationStatus => {
            ("no revocation list of its authority is given".to_owned(), Remedy::RevocationList)
        }
        Bad::Other(other) => match other.0.downcast_ref::<Unverifiable>() {
            Some(why @ (Unverifiable::OldVersion | Unverifiable::ConstrainedAuthority)) => {
                (why.to_string(), Remedy::Reissue)
            }
            Some(why @ Unverifiable::SelfSigned) => (why.to_string(), Remedy::Authority),
            None => (other.0.to_string(), Remedy::Renew),
        },
        other => (other.to_string(), Remedy::Renew),
    };
    Failure::new(format!("the server's certificate is not acceptable: {why}"), remedy)
}

/// `DnsName("db.example.com")` and `IpAddress(10.0.0.1)` are how rustls tells names.
fn bare(name: &str) -> &str {
    name.split(['(', '"', ')']).filter(|part| !part.is_empty()).nth(1).unwrap_or(name)
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the server closed the connection".to_owned()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if error.raw_os_error().is_none() => {
            format!("{NOT_POSTGRESQL} ({error})")
        }
        // The framing of the driver's, when the stream ends within what it took for a message.
        _ if error.to_string() == "bytes remaining on stream" => NOT_POSTGRESQL.to_owned(),
        // An error of the system is told by its kind: its text ends in a number in parentheses.
        kind if error.raw_os_error().is_some() => kind.to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn state(code: &str, exit: Exit) {
        assert_eq!(by_state(&SqlState::from_code(code)).exit(), exit, "{code}");
    }

    #[test]
    fn the_state_says_whose_matter_it_is() {
        for code in ["28P01", "28000", "3D000", "42501", "42704", "22023", "0A000"] {
            state(code, Exit::Configuration);
        }
        for code in ["57P03", "53300", "08006", "08P01", "XX000"] {
            state(code, Exit::Unavailable);
        }
    }

    #[test]
    fn a_bad_certificate_is_explained() {
        let certificate = |bad: rustls::Error, why: &str, remedy| {
            let failure = by_tls(&bad);
            assert_eq!(failure.why, format!("the server's certificate is not acceptable: {why}"));
            assert_eq!(failure.remedy, remedy);
        };
        certificate(Unverifiable::SelfSigned.into(), "it is self-signed", Remedy::Authority);
        certificate(CertificateError::UnknownIssuer.into(), "no known authority signed it", Remedy::Authority);
        certificate(CertificateError::Expired.into(), "it has expired", Remedy::Renew);
        assert_eq!((bare("DnsName(\"a.b\")"), bare("IpAddress(::1)"), bare("odd")), ("a.b", "::1", "odd"));
    }

    #[test]
    fn an_error_of_the_system_has_no_number() {
        assert_eq!(io_text(&io::Error::from_raw_os_error(111)), "connection refused");
        assert_eq!(io_text(&io::Error::from_raw_os_error(113)), "host unreachable");
        assert_eq!(io_text(&io::Error::other("odd")), "odd");
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(Failure::new("a\n  b ", Remedy::Wait).why, "a b");
    }
}
