//! Why TLS failed, in sentences for a person: the cause, and the kind of its remedy.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error, OtherError, PeerIncompatible};

use super::algorithms::signature_name_of;

/// The keys that certificates may have.
pub(crate) const SUPPORTED_KEYS: &str =
    "use an RSA key of 2048 to 8192 bits, or a P-256, P-384 or Ed25519 key";
const SIGN_AGAIN: &str = "sign it with SHA-256 and an RSA, P-256 or P-384 key (RSA-PSS: with a \
    salt of 32 bytes), or trust this certificate itself";
const RENEW: Remedy = Remedy::Do("renew it on the server");
const REPLACE: Remedy = Remedy::Do("replace it on the server");
const CHECK_CLOCKS: Remedy = Remedy::Do("check the clocks of this host and of its authority's");
const CHECK_SERVER: Remedy = Remedy::Do("check the address, and the TLS settings of the server");
const SEE_LOG: Remedy = Remedy::Do("see the log of the server");

/// Why a TLS handshake failed, for a person.
///
/// Made from the error of rustls, which tokio-rustls puts into an [`io::Error`](std::io::Error):
///
/// ```
/// use postgres_connect::certificates::Problem;
///
/// let error = rustls::Error::from(rustls::CertificateError::Expired);
/// assert_eq!(
///     Problem::from(&error).to_string(),
///     "the server's certificate is not acceptable: it has expired"
/// );
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    cause: String,
    names: Vec<String>,
    remedy: Remedy,
}

/// What helps against a [`Problem`]. Only [`Do`](Self::Do) has a text. For the other kinds, a
/// program writes a text that names its own settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Remedy {
    /// Do what this text says, whatever the settings of the program are.
    Do(&'static str),
    /// Trust the server's certificate or its authority.
    Trust,
    /// Connect to a name in the server's certificate.
    Name,
    /// Renew the revocation list.
    RevocationList,
    /// Send another client certificate.
    ClientCertificate,
    /// Allow the version of the server.
    Versions,
}

impl Problem {
    pub(super) fn new(cause: impl Into<String>, remedy: Remedy) -> Self {
        Self { cause: cause.into(), names: Vec::new(), remedy }
    }

    /// Returns the cause, without names of servers.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns the names in the server's certificate if it lacks the expected one, or else none.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns what helps.
    pub fn remedy(&self) -> Remedy {
        self.remedy
    }
}

/// The cause, with the names in the certificate if it lacks the expected one.
impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.cause)?;
        match self.names.join(", ") {
            names if names.is_empty() => Ok(()),
            names => write!(formatter, ", only for {names}"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let (cause, remedy) = match error {
            Error::InvalidCertificate(invalid) => return Self::of_certificate(invalid),
            Error::AlertReceived(alert) => of_alert(*alert),
            Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig) => {
                ("the settings do not allow the server's version of TLS".into(), Remedy::Versions)
            }
            Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13) => {
                of_version()
            }
            Error::PeerIncompatible(_) => {
                ("the server supports none of the supported algorithms".into(), CHECK_SERVER)
            }
            Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
                ("the server's answer is not TLS".into(), CHECK_SERVER)
            }
            Error::PeerMisbehaved(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. } => {
                ("the server violates the rules of TLS".into(), CHECK_SERVER)
            }
            Error::NoCertificatesPresented => {
                ("the server sends no certificate".into(), CHECK_SERVER)
            }
            Error::DecryptError => {
                ("a message of the server was changed on its way".into(), CHECK_SERVER)
            }
            Error::InvalidCertRevocationList(_) => {
                ("the revocation list is not valid".into(), Remedy::RevocationList)
            }
            other => (format!("TLS failed: {other}"), CHECK_SERVER),
        };
        Self::new(cause, remedy)
    }
}

impl Problem {
    /// Returns the problem of a server's certificate that is not acceptable.
    fn of_certificate(invalid: &CertificateError) -> Self {
        use CertificateError as Invalid;
        let mut all_names = Vec::new();
        let (cause, remedy): (String, _) = match invalid {
            Invalid::UnknownIssuer => ("no trusted authority signed it".into(), Remedy::Trust),
            Invalid::BadSignature => ("its signature is wrong".into(), Remedy::Trust),
            Invalid::BadEncoding => ("it is damaged".into(), REPLACE),
            Invalid::NotValidForName => ("it is not for this host name".into(), Remedy::Name),
            Invalid::NotValidForNameContext { expected: ServerName::IpAddress(ip), presented }
                if presented.contains(&format!("DnsName(\"{}\")", IpAddr::from(*ip))) =>
            {
                let remedy = Remedy::Do("issue it with subjectAltName IP:ADDRESS");
                ("its subjectAltName has this address as DNS, not as IP".into(), remedy)
            }
            Invalid::NotValidForNameContext { presented, .. } => {
                all_names = presented.iter().map(|name| unwrap_name(name).to_owned()).collect();
                ("it is not for this host name".into(), Remedy::Name)
            }
            Invalid::Expired | Invalid::ExpiredContext { .. } => ("it has expired".into(), RENEW),
            Invalid::NotValidYet | Invalid::NotValidYetContext { .. } => {
                ("it is not valid yet".into(), CHECK_CLOCKS)
            }
            Invalid::Revoked => ("it is revoked".into(), RENEW),
            Invalid::ExpiredRevocationList | Invalid::ExpiredRevocationListContext { .. } => {
                let cause = "its authority's revocation list has expired";
                (cause.into(), Remedy::RevocationList)
            }
            Invalid::UnknownRevocationStatus => {
                ("no revocation list is of its authority".into(), Remedy::RevocationList)
            }
            Invalid::UnhandledCriticalExtension => {
                let remedy = Remedy::Do("issue it without that extension");
                ("it has a critical extension that is not supported".into(), remedy)
            }
            Invalid::InvalidPurpose | Invalid::InvalidPurposeContext { .. } => {
                let remedy = Remedy::Do("issue it with extendedKeyUsage serverAuth");
                ("its extendedKeyUsage does not allow servers".into(), remedy)
            }
            Invalid::UnsupportedSignatureAlgorithmContext { signature_algorithm_id, .. }
            | Invalid::UnsupportedSignatureAlgorithmForPublicKeyContext {
                signature_algorithm_id,
                ..
            } => {
                let name = signature_name_of(signature_algorithm_id);
                let cause = format!("its chain has a signature by {name}, which is not supported");
                (cause, Remedy::Do(SIGN_AGAIN))
            }
            Invalid::Other(other) => match other.0.downcast_ref::<CertificateProblem>() {
                Some(own) => (own.to_string(), own.remedy()),
                None => of_path(other.0.downcast_ref()),
            },
            _ => ("it breaks the rules of X.509".into(), REPLACE),
        };
        let cause = format!("the server's certificate is not acceptable: {cause}");
        Self { cause, names: all_names, remedy }
    }
}

/// Problems of a server's certificate for which rustls has no error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CertificateProblem {
    OldVersion,
    SelfSigned,
    ConstrainedAuthority,
    /// Its keyUsage does not allow TLS servers.
    Usage,
    /// The key of an authority in its chain may not sign certificates.
    AuthorityUsage,
    /// Its key is of this kind, which is not supported.
    Key(String),
    /// The key of an authority in its chain is of this kind.
    AuthorityKey(String),
}

impl CertificateProblem {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::SelfSigned => Remedy::Trust,
            Self::OldVersion | Self::ConstrainedAuthority => Remedy::Do(
                "issue it as version 3 with subjectAltName, or trust this certificate itself",
            ),
            Self::Usage => {
                Remedy::Do("issue it with keyUsage digitalSignature and keyEncipherment")
            }
            Self::AuthorityUsage => {
                Remedy::Do("issue the authority's certificate with keyUsage keyCertSign")
            }
            Self::Key(_) | Self::AuthorityKey(_) => Remedy::Do(SUPPORTED_KEYS),
        }
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OldVersion => "it is X.509 version 1",
            Self::SelfSigned => "it is self-signed",
            Self::ConstrainedAuthority => {
                "the host is only in its common name, and its authority has name constraints"
            }
            Self::Usage => "its keyUsage does not allow TLS servers",
            Self::AuthorityUsage => {
                "the keyUsage of its authority does not allow to sign certificates"
            }
            Self::Key(kind) => return write!(formatter, "it has {kind}"),
            Self::AuthorityKey(kind) => return write!(formatter, "its authority has {kind}"),
        })
    }
}

impl std::error::Error for CertificateProblem {}

impl From<CertificateProblem> for Error {
    fn from(problem: CertificateProblem) -> Self {
        CertificateError::Other(OtherError(Arc::new(problem))).into()
    }
}

/// Returns the cause and the remedy of an error about a chain of certificates, which rustls passes
/// on.
fn of_path(error: Option<&webpki::Error>) -> (String, Remedy) {
    use webpki::Error as Path;
    let (cause, remedy) = match error {
        Some(Path::CaUsedAsEndEntity) => {
            let cause = "it is the certificate of an authority, not of a server";
            (cause, Remedy::Do("issue it with CA:FALSE, or trust this certificate itself"))
        }
        Some(Path::EndEntityUsedAsCa) => {
            let cause = "its issuer is not an authority";
            (cause, Remedy::Do("issue the issuer's certificate with CA:TRUE"))
        }
        Some(Path::PathLenConstraintViolated) => {
            let cause = "the path length of an authority does not allow its chain";
            (cause, Remedy::Do("let an authority with a longer path length sign"))
        }
        Some(Path::NameConstraintViolation) => {
            let cause = "the name constraints of an authority do not allow its names";
            (cause, Remedy::Do("let another authority sign it"))
        }
        Some(
            Path::MaximumPathBuildCallsExceeded
            | Path::MaximumPathDepthExceeded
            | Path::MaximumSignatureChecksExceeded
            | Path::MaximumNameConstraintComparisonsExceeded,
        ) => ("its chain is too long", Remedy::Do("send fewer certificates from the server")),
        Some(Path::UnsupportedCertVersion) => {
            let cause = "an authority in its chain has a certificate of X.509 version 1";
            (cause, Remedy::Do("issue the authority's certificate as version 3"))
        }
        _ => ("it breaks the rules of X.509", REPLACE),
    };
    (cause.to_owned(), remedy)
}

/// Returns the cause and the remedy if the server supports only old versions of TLS.
fn of_version() -> (String, Remedy) {
    let remedy = Remedy::Do("allow TLS 1.2 or 1.3 on the server");
    ("the server supports only versions of TLS before 1.2".into(), remedy)
}

/// Returns the cause and the remedy of an alert, by which the server says why it ends TLS.
fn of_alert(alert: AlertDescription) -> (String, Remedy) {
    use AlertDescription as Alert;
    let of_client = |why: &str| {
        (format!("the server rejects the client certificate: {why}"), Remedy::ClientCertificate)
    };
    match alert {
        Alert::CertificateRequired => {
            ("the server demands a client certificate".into(), Remedy::ClientCertificate)
        }
        Alert::UnknownCA => of_client("it does not trust its authority"),
        Alert::CertificateExpired => of_client("it has expired"),
        Alert::CertificateRevoked => of_client("it is revoked"),
        Alert::UnsupportedCertificate => of_client("its kind is not supported"),
        Alert::BadCertificate | Alert::CertificateUnknown => of_client("it is not acceptable"),
        Alert::DecryptError => of_client("the signature of its key is wrong"),
        Alert::AccessDenied => of_client("it gives no access"),
        Alert::ProtocolVersion => of_version(),
        Alert::HandshakeFailure | Alert::InsufficientSecurity => {
            let cause = "the server rejects the handshake: its key or its cipher suites are not \
                         supported, or it demands a client certificate";
            (cause.into(), SEE_LOG)
        }
        Alert::UnrecognisedName => ("the server does not know this host name".into(), Remedy::Name),
        Alert::NoApplicationProtocol => {
            ("the server does not support this protocol in TLS".into(), CHECK_SERVER)
        }
        Alert::InternalError => ("the server has an internal error in TLS".into(), SEE_LOG),
        other => (format!("the server ended TLS with alert {}", u8::from(other)), SEE_LOG),
    }
}

/// Returns the name in rustls' `DnsName("db.example.com")` or `IpAddress(10.0.0.1)`.
fn unwrap_name(name: &str) -> &str {
    name.split(['(', '"', ')']).filter(|part| !part.is_empty()).nth(1).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_certificate_is_shown_without_its_type() {
        for (name, shown) in
            [("DnsName(\"a.b\")", "a.b"), ("IpAddress(::1)", "::1"), ("odd", "odd")]
        {
            assert_eq!(unwrap_name(name), shown);
        }
    }

    /// Rust's names of errors mean nothing to a person. A new one must get a sentence.
    #[test]
    fn no_error_shows_a_name_of_rust() {
        let alerts = (0..=u8::MAX).map(|code| Error::AlertReceived(code.into()));
        let invalid = [
            CertificateError::BadEncoding,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::InvalidPurpose,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
            CertificateError::NotValidYet,
        ];
        let others = [Error::NoCertificatesPresented, Error::DecryptError];
        for error in alerts.chain(invalid.into_iter().map(Error::from)).chain(others) {
            let Problem { cause, .. } = Problem::from(&error);
            let is_name = |word: &str| word.chars().skip(1).any(char::is_uppercase);
            let known = ["TLS", "X.509", "extendedKeyUsage", "keyUsage"];
            let odd = cause.split(' ').find(|word| is_name(word) && !known.contains(word));
            assert_eq!(odd, None, "{cause}");
        }
    }
}
