//! TLS for all connections: the versions, keys and certificates that are accepted, and why a
//! handshake failed, in sentences. It knows neither databases nor calls.

mod algorithms;
mod error;
mod verify;

use std::env;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::{ClientConfig, WantsClientCert};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ConfigBuilder, SupportedProtocolVersion};

pub(crate) use self::algorithms::{end_point_hash, unsupported_key};
pub(crate) use self::error::{Remedy, SUPPORTED_KEYS, TlsProblem};
pub(crate) use self::verify::{Checks, Trust, Verifier};

/// The implementation of all cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Begins a client's configuration.
pub(crate) fn client(
    verifier: Verifier,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(HostTime));
    let builder = builder.with_protocol_versions(versions)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Returns the certificates that this system trusts. The error ends in a remedy, to which the
/// caller may add another one.
pub(crate) fn system_roots() -> Result<Vec<CertificateDer<'static>>, String> {
    let roots = rustls_native_certs::load_native_certs().certs;
    if !roots.is_empty() {
        return Ok(roots);
    }
    let variable =
        ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().find(|it| env::var_os(it).is_some());
    Err(variable.map_or_else(
        || "this host trusts no certificate; install root certificates".to_owned(),
        |name| format!("{name} leads to no certificate; correct it or unset it"),
    ))
}

/// Returns the name that a server's certificate must contain. Names in certificates have no dot at
/// their end.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, TlsProblem> {
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned())
        .map_err(|_| TlsProblem::new("no certificate can contain this host name", Remedy::Name))
}

/// The host's time, for the validity of certificates. A clock before 1970 counts as 1970; rustls'
/// own provider would panic.
#[derive(Debug)]
struct HostTime;

impl TimeProvider for HostTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or_default()))
    }
}
