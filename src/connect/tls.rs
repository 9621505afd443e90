//! Encryption: its settings, and the TLS handshake with the checks that libpq makes after it. The
//! rules about certificates are in `verify`.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SignatureScheme, SupportedProtocolVersion};
use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use x509_cert::der::Decode;
use x509_cert::der::oid::db::rfc5912;

use super::error::{CHECK_CLIENT_CERTIFICATE, CHECK_TLS, ConnectError, USE_CERTIFICATE_NAME};
use super::settings::Settings;
use super::stream::Socket;
use super::verify::Verifier;
use super::{files, setting_fault};
use crate::files::roots_variable;

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The protocol's name in TLS (ALPN).
const PROTOCOL: &[u8] = b"postgresql";

/// libpq's `sslmode`, from the weakest to the strongest.
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

/// Whether a connection is encrypted, and whether a server without TLS is accepted.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Encryption {
    Off,
    Preferred,
    Required,
}

#[derive(Clone)]
pub(super) struct TlsSettings {
    pub(super) mode: SslMode,
    /// The handshake begins without PostgreSQL's request for it (`sslnegotiation=direct`).
    is_direct: bool,
    /// `None`: the certificates that this system trusts.
    root_file: Option<PathBuf>,
    revocation_list: Option<PathBuf>,
    /// The client's certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    /// A server that does not ask for the client's certificate is rejected.
    must_send_certificate: bool,
    versions: Vec<&'static SupportedProtocolVersion>,
    sends_server_name: bool,
}

impl TlsSettings {
    pub(super) fn read(settings: &Settings<'_>) -> anyhow::Result<Self> {
        let in_home = |name: &str| {
            settings.in_home(".postgresql").map(|d| d.join(name)).filter(|path| path.is_file())
        };
        let path = |key: &str| settings.text(key).map(PathBuf::from);
        let mut mode = settings.choice("sslmode", SslMode::Prefer, MODES)?;
        let mut root_file = path("sslrootcert");
        if settings.text("sslrootcert") == Some("system") {
            // Any server can have a certificate from a public authority, so check the name.
            if settings.text("sslmode").is_some() && mode < SslMode::VerifyFull {
                let cause = "is too weak for sslrootcert=system";
                return Err(settings.invalid("sslmode", cause, "use verify-full"));
            }
            (mode, root_file) = (SslMode::VerifyFull, None);
        } else if mode >= SslMode::Require {
            root_file = root_file.or_else(|| in_home("root.crt"));
        }
        // As in libpq, `require` checks the certificate if there is a root certificate file.
        if mode == SslMode::Require && root_file.is_some() {
            mode = SslMode::VerifyCa;
        }
        let negotiations = [("postgres", false), ("direct", true)];
        let is_direct = settings.choice("sslnegotiation", false, &negotiations)?;
        if is_direct && mode < SslMode::Require {
            let cause = "is direct, but TLS is optional";
            return Err(settings.invalid("sslnegotiation", cause, "use sslmode=require"));
        }
        let cert_modes = ["disable", "allow", "require"].map(|mode| (mode, mode));
        let cert_mode = settings.choice("sslcertmode", "allow", &cert_modes)?;
        let must_send_certificate = cert_mode == "require";
        if must_send_certificate && mode < SslMode::Require {
            let cause = "is require, but TLS is optional";
            return Err(settings.invalid("sslcertmode", cause, "use sslmode=verify-full"));
        }
        let certificate = path("sslcert").or_else(|| in_home("postgresql.crt"));
        let key = path("sslkey").or_else(|| settings.in_home(".postgresql/postgresql.key"));
        Ok(Self {
            mode,
            is_direct,
            root_file,
            revocation_list: path("sslcrl")
                .or_else(|| (mode >= SslMode::VerifyCa).then(|| in_home("root.crl"))?),
            identity: certificate.zip(key).filter(|_| cert_mode != "disable"),
            must_send_certificate,
            versions: versions(settings)?,
            sends_server_name: settings.number("sslsni")? != Some(0),
        })
    }

    /// Returns whether the server must prove its identity. A certificate from a public authority
    /// proves nothing unless its name is checked.
    pub(super) fn verifies(&self) -> bool {
        match self.mode {
            SslMode::VerifyFull => true,
            SslMode::VerifyCa => self.root_file.is_some(),
            _ => false,
        }
    }

    /// Reads the files that the mode needs. An error names the file.
    pub(super) fn client_config(&self) -> anyhow::Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = if self.mode < SslMode::VerifyCa {
            Verifier::lenient(&provider)
        } else {
            let pinned = read_pem_file(self.root_file.as_deref(), "sslrootcert")?;
            let revoked = read_pem_file(self.revocation_list.as_deref(), "sslcrl")?;
            let trusted = match self.root_file {
                Some(_) => pinned.clone(),
                None => rustls_native_certs::load_native_certs().certs,
            };
            let mut roots = RootCertStore::empty();
            if roots.add_parsable_certificates(trusted).0 == 0 {
                let cause = "set sslrootcert to the authority's";
                let cause = match roots_variable().filter(|_| self.root_file.is_none()) {
                    Some(name) => format!("{name} leads to none; correct it, or {cause}"),
                    None => format!("this system trusts no certificate; {cause}"),
                };
                return Err(setting_fault("the root certificates", cause));
            }
            Verifier::strict(&provider, self.mode, roots, pinned, revoked)
                .map_err(|error| setting_fault("sslcrl", format!("{error}; correct it")))?
        };
        let builder = ClientConfig::builder_with_details(provider, Arc::new(HostTime))
            .with_protocol_versions(&self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = read_pem_file(Some(certificate), "sslcert")?;
                let config = builder.with_client_auth_cert(chain, read_private_key(key)?);
                config.map_err(|error| {
                    let cause = match error {
                        rustls::Error::InconsistentKeys(_) => {
                            "it is not the key of sslcert; use that key".to_owned()
                        }
                        error => format!("{error}; use an RSA, ECDSA or Ed25519 key"),
                    };
                    file_fault("sslkey", key, cause)
                })?
            }
        };
        config.enable_sni = self.sends_server_name;
        if self.is_direct {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
        }
        Ok(config)
    }

    /// Encrypts `socket`, and returns it with the data for channel binding. `name` is the one that
    /// the server's certificate must contain.
    pub(super) async fn handshake(
        &self,
        config: &ClientConfig,
        mut socket: Box<dyn Socket>,
        name: &str,
        encryption: Encryption,
    ) -> Result<(Box<dyn Socket>, Option<Vec<u8>>), ConnectError> {
        if encryption == Encryption::Off {
            return Ok((socket, None));
        }
        if !self.is_direct {
            socket.write_all(&SSL_REQUEST).await?;
            match (socket.read_u8().await?, encryption) {
                (b'S', _) => {}
                (b'N', Encryption::Preferred) => return Ok((socket, None)),
                (b'N', _) => {
                    let cause = "the server does not support TLS";
                    return Err(ConnectError::of_encryption(cause, CHECK_TLS));
                }
                _ => return Err(ConnectError::not_postgresql()),
            }
        }
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            let cause = "no certificate can contain this host name";
            ConnectError::of_encryption(cause, USE_CERTIFICATE_NAME)
        })?;
        let mut config = config.clone();
        let resolver = Arc::new(RecordingResolver {
            inner: config.client_auth_cert_resolver,
            has_sent: AtomicBool::new(false),
        });
        config.client_auth_cert_resolver = resolver.clone();
        let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        let session = socket.get_ref().1;
        // If the server does not confirm the protocol, it is not PostgreSQL.
        if self.is_direct && session.alpn_protocol() != Some(PROTOCOL) {
            let cause = "the server has not confirmed PostgreSQL's protocol in TLS";
            return Err(ConnectError::of_encryption(cause, CHECK_TLS));
        }
        if self.must_send_certificate && !resolver.has_sent.load(Ordering::Relaxed) {
            let cause = "sslcertmode is require, but the server asked for no client certificate, \
                         or none is set";
            return Err(ConnectError::of_encryption(cause, CHECK_CLIENT_CERTIFICATE));
        }
        let binding = session.peer_certificates().and_then(<[_]>::first).and_then(channel_binding);
        Ok((Box::new(socket), binding))
    }
}

fn versions(settings: &Settings<'_>) -> anyhow::Result<Vec<&'static SupportedProtocolVersion>> {
    const VERSIONS: &[(&str, u8)] = &[("TLSv1", 0), ("TLSv1.1", 1), ("TLSv1.2", 2), ("TLSv1.3", 3)];
    let least = settings.choice("ssl_min_protocol_version", 2, VERSIONS)?;
    let most = settings.choice("ssl_max_protocol_version", 3, VERSIONS)?;
    let known = [(3, &TLS13), (2, &TLS12)].into_iter();
    let chosen: Vec<_> =
        known.filter(|(n, _)| (least..=most).contains(n)).map(|(_, version)| version).collect();
    if chosen.is_empty() {
        let (cause, remedy) = ("leaves no version", "allow TLSv1.2 or TLSv1.3");
        return Err(settings.invalid("ssl_max_protocol_version", cause, remedy));
    }
    Ok(chosen)
}

fn file_fault(key: &str, path: &Path, cause: impl Display) -> anyhow::Error {
    setting_fault(format!("{key} {}", path.display()), cause)
}

/// Reads all PEM items of one kind, at least one; without a path none.
fn read_pem_file<T: PemObject>(path: Option<&Path>, key: &str) -> anyhow::Result<Vec<T>> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let fault = |cause: &dyn Display| file_fault(key, path, format!("{cause}; correct {key}"));
    let text = files::open(path).and_then(files::certificates).map_err(|why| fault(&why))?;
    let items: Vec<T> =
        T::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|error| fault(&error))?;
    if items.is_empty() { Err(fault(&"it has no such item in PEM form")) } else { Ok(items) }
}

fn read_private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let fault = |cause: &str| file_fault("sslkey", path, cause);
    let unreadable = |why: String| fault(&format!("{why}; correct sslkey"));
    let file = files::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(|error| unreadable(files::reason(&error)))?;
    if !crate::files::is_private(&metadata) {
        return Err(fault("other users can read it; run `chmod 600`"));
    }
    PrivateKeyDer::from_pem_slice(&files::certificates(file).map_err(unreadable)?)
        .map_err(|_| fault("it has no private key in plain PEM form; decrypt an encrypted key"))
}

/// Returns the data for channel binding (`tls-server-end-point`, RFC 5929): a hash of the server's
/// certificate. The hash algorithm is that of the certificate's signature, but at least SHA-256.
/// `None` if that algorithm has no hash, such as Ed25519.
fn channel_binding(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(match parsed.signature_algorithm.oid {
        rfc5912::SHA_1_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_256_WITH_RSA_ENCRYPTION
        | rfc5912::ECDSA_WITH_SHA_256 => Sha256::digest(certificate).to_vec(),
        rfc5912::SHA_384_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_384 => {
            Sha384::digest(certificate).to_vec()
        }
        rfc5912::SHA_512_WITH_RSA_ENCRYPTION => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
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

/// Records whether the client's certificate was sent.
#[derive(Debug)]
struct RecordingResolver {
    inner: Arc<dyn ResolvesClientCert>,
    has_sent: AtomicBool,
}

impl ResolvesClientCert for RecordingResolver {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let chosen = self.inner.resolve(authorities, schemes);
        self.has_sent.store(chosen.is_some(), Ordering::Relaxed);
        chosen
    }

    fn has_certs(&self) -> bool {
        self.inner.has_certs()
    }
}
