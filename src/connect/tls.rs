//! Transport encryption: its settings, and the rustls configuration from them. The rules about
//! certificates are in `verify`. Files are read only when a connection is about to be encrypted.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio_postgres::config::SslNegotiation;

use super::files;
use super::handshake::PROTOCOL;
use super::server::Server;
use super::settings::Settings;
use super::unusable;
use super::verify::{Demand, Known, Verifier};

/// libpq's `sslmode`, from careless to careful.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

const MODES: &[(&str, SslMode)] = &[
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const OWN_CERTIFICATE: &[(&str, OwnCertificate)] =
    &[("disable", OwnCertificate::Withheld), ("allow", OwnCertificate::Shown), ("require", OwnCertificate::Demanded)];

#[derive(Clone, Debug)]
pub(super) struct TlsSettings {
    pub(super) mode: SslMode,
    pub(super) negotiation: SslNegotiation,
    roots: Roots,
    revoked: Option<PathBuf>,
    /// The client's certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    pub(super) own_certificate: OwnCertificate,
    versions: Vec<&'static SupportedProtocolVersion>,
    server_name: ServerNameIndication,
}

/// libpq's `sslcertmode`: whether the client sends its certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OwnCertificate {
    Withheld,
    /// Sent if the server asks for it.
    Shown,
    /// A server that has not asked for it is rejected.
    Demanded,
}

#[derive(Debug, Clone)]
enum Roots {
    /// Those that this system trusts.
    System,
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ServerNameIndication {
    Sent,
    Withheld,
}

/// The host's time for checking the validity of certificates. A clock before 1970 counts as 1970;
/// rustls' own provider would panic.
#[derive(Debug)]
struct HostTime;

impl TimeProvider for HostTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or_default()))
    }
}

impl TlsSettings {
    pub(super) fn read(settings: &Settings<'_>, servers: &[Server]) -> anyhow::Result<Self> {
        let given = settings.choice("sslmode", MODES)?;
        let own = |name: &str| settings.in_home(".postgresql").map(|d| d.join(name)).filter(|path| path.is_file());
        let (mut mode, mut roots) = (given.unwrap_or(SslMode::Prefer), Roots::System);
        let mut negotiation = SslNegotiation::Postgres;
        match settings.text("sslrootcert") {
            // Anybody can have a certificate that some public authority signed: only the name counts.
            Some("system") if given.is_some_and(|mode| mode < SslMode::VerifyFull) => {
                return Err(settings.invalid("sslmode", "is too weak for sslrootcert=system", "use verify-full"));
            }
            Some("system") => mode = SslMode::VerifyFull,
            Some(path) => roots = Roots::File(PathBuf::from(path)),
            None if mode >= SslMode::Require => roots = own("root.crt").map_or(Roots::System, Roots::File),
            None => {}
        }
        // With a root certificate at hand, libpq has always checked it in this mode.
        if mode == SslMode::Require && matches!(roots, Roots::File(_)) {
            mode = SslMode::VerifyCa;
        }
        if let Some(true) = settings.choice("sslnegotiation", &[("postgres", false), ("direct", true)])? {
            if mode < SslMode::Require {
                return Err(settings.invalid(
                    "sslnegotiation",
                    "is direct, but TLS is optional",
                    "use sslmode=require",
                ));
            }
            negotiation = SslNegotiation::Direct;
        }
        let certificate = settings.text("sslcert").map(PathBuf::from);
        let revoked = settings.text("sslcrl").map(PathBuf::from);
        let encrypts = mode != SslMode::Disable && servers.iter().any(|server| !server.is_local());
        let own_certificate = settings.choice("sslcertmode", OWN_CERTIFICATE)?.unwrap_or(OwnCertificate::Shown);
        if own_certificate == OwnCertificate::Demanded && mode < SslMode::Require {
            return Err(settings.invalid("sslcertmode", "is require, but TLS is optional", "use sslmode=verify-full"));
        }
        let identity = if encrypts && own_certificate != OwnCertificate::Withheld {
            certificate.or_else(|| own("postgresql.crt")).and_then(|certificate| {
                let key = settings.text("sslkey").map(PathBuf::from);
                Some((certificate, key.or_else(|| settings.in_home(".postgresql/postgresql.key"))?))
            })
        } else {
            None
        };
        Ok(Self {
            mode,
            negotiation,
            roots,
            revoked: revoked.or_else(|| (mode >= SslMode::VerifyCa).then(|| own("root.crl")).flatten()),
            identity,
            own_certificate,
            versions: versions(settings)?,
            server_name: match settings.number::<i32>("sslsni")? {
                Some(0) => ServerNameIndication::Withheld,
                _ => ServerNameIndication::Sent,
            },
        })
    }

    /// Returns whether the server must prove its identity. A certificate from a public authority
    /// proves nothing unless its name is checked.
    pub(super) fn verifies(&self) -> bool {
        match self.mode {
            SslMode::VerifyFull => true,
            SslMode::VerifyCa => matches!(self.roots, Roots::File(_)),
            _ => false,
        }
    }

    /// Reads the certificates that the mode needs.
    ///
    /// # Errors
    /// A `Fault` of the configuration that names the file.
    pub(super) fn certificates(&self) -> anyhow::Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let verifier = match self.mode {
            SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require => Verifier::lenient(algorithms),
            SslMode::VerifyCa | SslMode::VerifyFull => {
                let (given, store) = self.roots()?;
                let revoked = self.revoked.as_deref().map(|path| read_all(path, "sslcrl")).transpose()?;
                let known = Known { store: Arc::new(store), given, revoked: revoked.unwrap_or_default() };
                let demand = if self.mode == SslMode::VerifyFull { Demand::Name } else { Demand::Authority };
                Verifier::strict(&provider, known, demand)
                    .map_err(|error| unusable(&"the root certificates", &format!("{error}; correct sslrootcert")))?
            }
        };
        let versions = ClientConfig::builder_with_details(provider, Arc::new(HostTime))
            .with_protocol_versions(&self.versions)
            .map_err(|error| unusable(&"ssl_min_protocol_version", &format!("{error}; correct it")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => versions.with_no_client_auth(),
            Some((certificate, key)) => versions
                .with_client_auth_cert(read_all::<CertificateDer<'_>>(certificate, "sslcert")?, private_key(key)?)
                .map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => "it is not the key of sslcert; give that one".to_owned(),
                    error => format!("{error}; use an RSA, ECDSA or Ed25519 key"),
                })
                .map_err(|why| unusable(&file("sslkey", key), &why))?,
        };
        config.enable_sni = self.server_name == ServerNameIndication::Sent;
        if self.negotiation == SslNegotiation::Direct {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
        }
        Ok(config)
    }

    /// The certificates that were given, to be accepted as they are too, and all to build chains on.
    fn roots(&self) -> anyhow::Result<(Vec<CertificateDer<'static>>, RootCertStore)> {
        let mut store = RootCertStore::empty();
        let (given, trusted) = match &self.roots {
            Roots::File(path) => {
                let certificates: Vec<CertificateDer<'static>> = read_all(path, "sslrootcert")?;
                (certificates.clone(), certificates)
            }
            Roots::System => (Vec::new(), rustls_native_certs::load_native_certs().certs),
        };
        if store.add_parsable_certificates(trusted).0 == 0 {
            let why = "this system trusts no certificate; give the server's authority with sslrootcert";
            return Err(unusable(&"the root certificates", why));
        }
        Ok((given, store))
    }
}

fn versions(settings: &Settings<'_>) -> anyhow::Result<Vec<&'static SupportedProtocolVersion>> {
    const VERSIONS: &[(&str, u8)] = &[("TLSv1", 0), ("TLSv1.1", 1), ("TLSv1.2", 2), ("TLSv1.3", 3)];
    let least = settings.choice("ssl_min_protocol_version", VERSIONS)?.unwrap_or(2);
    let most = settings.choice("ssl_max_protocol_version", VERSIONS)?.unwrap_or(3);
    let known = [(3, &TLS13), (2, &TLS12)].into_iter();
    let chosen: Vec<_> = known.filter(|(n, _)| (least..=most).contains(n)).map(|(_, version)| version).collect();
    if chosen.is_empty() {
        return Err(settings.invalid("ssl_max_protocol_version", "leaves no version", "allow TLSv1.2 or TLSv1.3"));
    }
    Ok(chosen)
}

fn file(key: &str, path: &Path) -> String {
    format!("{key} {}", path.display())
}

/// All PEM items of one kind in a file; at least one.
fn read_all<T: PemObject>(path: &Path, key: &str) -> anyhow::Result<Vec<T>> {
    let broken = |why: &dyn Display| unusable(&file(key, path), &format!("{why}; correct {key}"));
    let items = fs::read(path).map_err(|error| broken(&files::reason(&error)))?;
    let items: Result<Vec<T>, _> = T::pem_slice_iter(&items).collect();
    let items = items.map_err(|error| broken(&error))?;
    if items.is_empty() { Err(broken(&"it has nothing of the kind in PEM form")) } else { Ok(items) }
}

fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let broken = |why: &str| unusable(&file("sslkey", path), why);
    let metadata = fs::metadata(path).map_err(|error| broken(&format!("{}; correct sslkey", files::reason(&error))))?;
    // libpq's rule: the system may keep keys for a group that all services are in.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(broken("others can read it; chmod 600"));
    }
    PrivateKeyDer::from_pem_file(path)
        .map_err(|_| broken("it has no private key in plain PEM form; an encrypted one must be decrypted first"))
}
