//! TLS for any connection, not only for PostgreSQL: which certificates of servers are accepted, and
//! why a handshake failed, in sentences.
//!
//! The rules are those of libpq with OpenSSL, as far as [rustls](https://docs.rs/rustls) and `ring`
//! can follow them. Beyond rustls' own rules, a server may send a trusted certificate itself, the
//! common name counts if a certificate has no subjectAltName, and keyUsage is checked.
//!
//! ```no_run
//! use postgres_connect::certificates::{Checks, Trust, Verifier, client_builder, system_roots};
//! use postgres_connect::rustls::ALL_VERSIONS;
//!
//! let trust = Trust { roots: system_roots()?, revoked: Vec::new() };
//! let verifier = Verifier::new(Checks::AuthorityAndName, trust)?;
//! let config = client_builder(verifier, ALL_VERSIONS)?.with_no_client_auth();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod algorithms;
mod problem;
mod verifier;

use std::sync::Arc;
use std::time::SystemTime;
use std::{env, fmt};

use rustls::client::{ClientConfig, WantsClientCert};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ConfigBuilder, SupportedProtocolVersion};

pub(crate) use self::algorithms::{end_point_hash, unsupported_key};
pub(crate) use self::problem::SUPPORTED_KEYS;
pub use self::problem::{Problem, Remedy};
pub use self::verifier::{Checks, Trust, TrustError, Verifier};

/// The implementation of all cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Begins a client's configuration with `ring`, this verifier and this host's clock.
///
/// # Errors
/// `versions` is empty.
pub fn client_builder(
    verifier: Verifier,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(HostTime));
    let builder = builder.with_protocol_versions(versions)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Returns the certificates that this system trusts, or those of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`. Reads files.
///
/// # Errors
/// This system trusts no certificate.
pub fn system_roots() -> Result<Vec<CertificateDer<'static>>, NoSystemRoots> {
    let roots = rustls_native_certs::load_native_certs().certs;
    if !roots.is_empty() {
        return Ok(roots);
    }
    let variables = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    Err(NoSystemRoots(variables.into_iter().find(|variable| env::var_os(variable).is_some())))
}

/// This system trusts no certificate. The text ends in a remedy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoSystemRoots(
    /// The variable that replaces the system's certificates, if one is set.
    Option<&'static str>,
);

impl fmt::Display for NoSystemRoots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => {
                formatter.write_str("this host trusts no certificate; install root certificates")
            }
            Some(variable) => {
                write!(formatter, "{variable} leads to no certificate; correct it or unset it")
            }
        }
    }
}

impl std::error::Error for NoSystemRoots {}

/// Returns the name that a server's certificate must contain. A dot at the end of `host` is
/// dropped, because names in certificates have none.
///
/// # Errors
/// No certificate can contain this name.
pub fn server_name(host: &str) -> Result<ServerName<'static>, Problem> {
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned())
        .map_err(|_| Problem::new("no certificate can contain this host name", Remedy::Name))
}

/// The host's time, for the validity of certificates. A time before 1970 counts as 1970, while
/// rustls' own provider would panic.
#[derive(Debug)]
struct HostTime;

impl TimeProvider for HostTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or_default()))
    }
}
