//! Encryption: its settings, the TLS handshake, and the checks that libpq makes after it. The
//! module `certificates` has the rules about certificates.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SignatureScheme, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use x509_cert::der::{Decode, Encode};

use crate::certificates::{
    self, Checks, SUPPORTED_KEYS, Trust, TrustError, Verifier, client_builder,
};
use crate::error::{CHECK_TLS, Error, SET_CLIENT_CERTIFICATE};
use crate::files;
use crate::settings::Settings;
use crate::stream::Socket;

/// PostgreSQL's request to begin a TLS handshake.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The data for channel binding, or the name of the signature algorithm that has no hash for it.
pub(crate) type Binding = Result<Vec<u8>, String>;
/// The name of PostgreSQL's protocol in TLS (ALPN).
const PROTOCOL: &[u8] = b"postgresql";

/// libpq's `sslmode`, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum SslMode {
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
pub(crate) enum Encryption {
    Off,
    Preferred,
    Required,
}

/// The settings of TLS.
#[derive(Clone)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    /// Whether the handshake begins without PostgreSQL's request for it (`sslnegotiation=direct`).
    is_direct: bool,
    /// `None`: the certificates that this system trusts.
    root_file: Option<PathBuf>,
    revocation_list: Option<PathBuf>,
    /// The client's certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    /// Whether the key is in libpq's default file, because no setting names another one.
    has_default_key: bool,
    /// Whether a server is rejected that does not ask for the client's certificate.
    must_send_certificate: bool,
    versions: Vec<&'static SupportedProtocolVersion>,
    sends_server_name: bool,
}

impl TlsSettings {
    /// Reads the settings of TLS, and refuses settings that contradict each other.
    pub(crate) fn read(settings: &Settings<'_>) -> Result<Self, Error> {
        let in_home = |name: &str| {
            settings.in_home(".postgresql").map(|d| d.join(name)).filter(|path| path.is_file())
        };
        let path = |key: &str| settings.text(key).map(PathBuf::from);
        let mut mode = settings.choice("sslmode", SslMode::Prefer, MODES)?;
        let mut root_file = path("sslrootcert");
        if settings.text("sslrootcert") == Some("system") {
            // The name must be checked: any server can have a certificate from a public authority.
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
        let is_direct = settings.word("sslnegotiation", ["postgres", "direct"])? == "direct";
        if is_direct && mode < SslMode::Require {
            let cause = "is direct, but TLS is optional";
            return Err(settings.invalid("sslnegotiation", cause, "use sslmode=require"));
        }
        let cert_modes = ["disable", "allow", "require"].map(|mode| (mode, mode));
        let cert_mode = settings.choice("sslcertmode", "allow", &cert_modes)?;
        let must_send_certificate = cert_mode == "require";
        if must_send_certificate && mode < SslMode::Require {
            let cause = "is require, but TLS is optional";
            return Err(settings.invalid("sslcertmode", cause, "use sslmode=require"));
        }
        let certificate = path("sslcert").or_else(|| in_home("postgresql.crt"));
        let key = path("sslkey").or_else(|| settings.in_home(".postgresql/postgresql.key"));
        let usual_revocation_list =
            || if mode >= SslMode::VerifyCa { in_home("root.crl") } else { None };
        Ok(Self {
            mode,
            is_direct,
            root_file,
            revocation_list: path("sslcrl").or_else(usual_revocation_list),
            has_default_key: settings.text("sslkey").is_none(),
            identity: certificate.zip(key).filter(|_| cert_mode != "disable"),
            must_send_certificate,
            versions: versions(settings)?,
            sends_server_name: settings.number("sslsni")? != Some(0),
        })
    }

    /// Returns whether the server must prove its identity. A certificate from a public authority
    /// proves nothing unless its name is checked.
    pub(crate) fn verifies(&self) -> bool {
        match self.mode {
            SslMode::VerifyFull => true,
            SslMode::VerifyCa => self.root_file.is_some(),
            _ => false,
        }
    }

    /// Returns the configuration of TLS. Reads the files that the mode needs; an error names the
    /// file.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        let checks = match self.mode {
            SslMode::VerifyCa => Some(Checks::Authority),
            SslMode::VerifyFull => Some(Checks::AuthorityAndName),
            _ => None,
        };
        let verifier = match checks {
            Some(checks) => self.verifier(checks)?,
            None => Verifier::accepting_any(),
        };
        let builder = client_builder(verifier, &self.versions);
        let builder = builder.expect("a version is chosen, and `ring` has suites for each");
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let identity = read_identity(certificate, key, self.has_default_key)?;
                let identity = SingleCertAndKey::from(identity);
                builder.with_client_cert_resolver(Arc::new(identity))
            }
        };
        config.enable_sni = self.sends_server_name;
        if self.is_direct {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
        }
        Ok(config)
    }

    /// Reads the trusted certificates and the revocation list. An error names the file.
    fn verifier(&self, checks: Checks) -> Result<Verifier, Error> {
        let roots = match &self.root_file {
            Some(file) => read_pem_file(file, "sslrootcert", "certificate")?,
            None => certificates::system_roots().map_err(|cause| {
                let reason = format!("{cause}, or set sslrootcert to the authority's");
                Error::of_setting("the root certificates", reason)
            })?,
        };
        let list = self.revocation_list.as_deref();
        let revoked = list.map(|file| read_pem_file(file, "sslcrl", "revocation list"));
        let trust = Trust { roots, revoked: revoked.transpose()?.unwrap_or_default() };
        Verifier::new(checks, trust).map_err(|error| {
            let (key, file) = match error {
                TrustError::NoRoot => ("sslrootcert", self.root_file.as_deref()),
                TrustError::RevocationList => ("sslcrl", list),
            };
            let file = file.map(|file| format!("{key} {}", file.display()));
            let origin = file.unwrap_or_else(|| "the root certificates of this host".to_owned());
            Error::of_setting(origin, format!("{error}; correct {key}"))
        })
    }

    /// Encrypts `socket`, and returns it with the data for channel binding. Without encryption,
    /// returns it as it is. `name` is the name that the server's certificate must contain.
    pub(crate) async fn handshake(
        &self,
        config: &ClientConfig,
        mut socket: Box<dyn Socket>,
        name: &str,
        encryption: Encryption,
    ) -> Result<(Box<dyn Socket>, Option<Binding>), Error> {
        if encryption == Encryption::Off {
            return Ok((socket, None));
        }
        // PostgreSQL answers the request with one byte: `S` for TLS, `N` for no TLS.
        if !self.is_direct {
            socket.write_all(&SSL_REQUEST).await?;
            match (socket.read_u8().await?, encryption) {
                (b'S', _) => {}
                (b'N', Encryption::Preferred) => return Ok((socket, None)),
                (b'N', _) => {
                    let cause = "the server does not support TLS";
                    return Err(Error::of_encryption(cause, CHECK_TLS));
                }
                _ => return Err(Error::not_postgresql()),
            }
        }
        let name = certificates::server_name(name)?;
        let mut config = config.clone();
        let resolver = Arc::new(RecordingResolver {
            inner: config.client_auth_cert_resolver,
            has_sent: AtomicBool::new(false),
        });
        config.client_auth_cert_resolver = resolver.clone();
        let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        let session = socket.get_ref().1;
        // A server that does not confirm the protocol is not PostgreSQL.
        if self.is_direct && session.alpn_protocol() != Some(PROTOCOL) {
            let cause = "the server has not confirmed PostgreSQL's protocol in TLS";
            return Err(Error::of_encryption(cause, CHECK_TLS));
        }
        if self.must_send_certificate && !resolver.has_sent.load(Ordering::Relaxed) {
            let (cause, remedy) = if self.identity.is_none() {
                ("sslcertmode is require, but no client certificate is set", SET_CLIENT_CERTIFICATE)
            } else {
                (
                    "sslcertmode is require, but the server does not ask for a client certificate",
                    "set ssl_ca_file on the server, or use sslcertmode=allow",
                )
            };
            return Err(Error::of_encryption(cause, remedy));
        }
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let binding = certificate.map(certificates::end_point_hash);
        Ok((Box::new(socket), binding))
    }
}

/// Returns the allowed versions of TLS.
fn versions(settings: &Settings<'_>) -> Result<Vec<&'static SupportedProtocolVersion>, Error> {
    // Their names in settings, and N of the version 1.N.
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

/// The error about a file that a setting names.
fn file_fault(key: &str, path: &Path, cause: impl Display) -> Error {
    Error::of_setting(format!("{key} {}", path.display()), cause)
}

/// The header of a certificate in a form of OpenSSL, which rustls can't read: purposes follow the
/// certificate.
const TRUSTED: &[u8] = b"-----BEGIN TRUSTED CERTIFICATE-----";

/// Reads all items of one kind in a PEM file. Fails if there are none.
fn read_pem_file<T: PemObject>(path: &Path, key: &str, item: &str) -> Result<Vec<T>, Error> {
    let fault = |cause: &str| file_fault(key, path, format!("{cause}; correct {key}"));
    let text = files::open(path).and_then(files::certificates).map_err(|why| fault(&why))?;
    let items: Vec<T> = T::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|_| fault("its text in PEM form is damaged"))?;
    if !items.is_empty() {
        return Ok(items);
    }
    let is_trusted = text.windows(TRUSTED.len()).any(|part| part == TRUSTED);
    // Say why the file has no such item. A file in DER form begins with the byte `0`.
    Err(fault(&if is_trusted && key != "sslcrl" {
        "it has a TRUSTED CERTIFICATE; convert it with `openssl x509 -in FILE -out NEW`".to_owned()
    } else if text.first() == Some(&b'0') {
        let tool = if key == "sslcrl" { "crl" } else { "x509" };
        format!("it is in DER form; convert it with `openssl {tool} -inform der`")
    } else {
        format!("it has no {item} in PEM form")
    }))
}

/// Reads the client's certificates and their key. Does not let rustls check them, because it
/// rejects certificates of X.509 version 1: only the server must accept them.
///
/// `has_default_key`: no setting names the file of the key, which an error must say.
fn read_identity(
    certificate: &Path,
    key: &Path,
    has_default_key: bool,
) -> Result<CertifiedKey, Error> {
    let (name, remedy) = if has_default_key {
        ("the default sslkey", "set sslkey")
    } else {
        ("sslkey", "correct sslkey")
    };
    let fault = |cause: &str| file_fault(name, key, cause);
    let chain: Vec<CertificateDer<'static>> = read_pem_file(certificate, "sslcert", "certificate")?;
    let parsed = x509_cert::Certificate::from_der(&chain[0]).map_err(|_| {
        file_fault("sslcert", certificate, "its certificate is damaged; correct sslcert")
    })?;
    let public = parsed.tbs_certificate.subject_public_key_info;
    if let Some(kind) = certificates::unsupported_key(&public) {
        let cause = format!("it has {kind}; {SUPPORTED_KEYS}");
        return Err(file_fault("sslcert", certificate, cause));
    }
    let private = read_private_key(key, name, remedy)?;
    let signing = certificates::provider().key_provider.load_private_key(private);
    let signing =
        signing.map_err(|_| fault(&format!("it is not a valid key; {SUPPORTED_KEYS}")))?;
    let of_key = signing.public_key();
    if of_key.is_some_and(|of_key| public.to_der().is_ok_and(|public| public != of_key.as_ref())) {
        return Err(fault("it is not the key of sslcert; use that key"));
    }
    Ok(CertifiedKey::new(chain, signing))
}

/// Reads a key in PEM form or, as libpq does, in DER form. Errors call the file by this name, and
/// have this remedy, unless there is a better one.
fn read_private_key(
    path: &Path,
    name: &str,
    remedy: &str,
) -> Result<PrivateKeyDer<'static>, Error> {
    let fault = |cause: &str| file_fault(name, path, cause);
    let unreadable = |why: String| fault(&format!("{why}; {remedy}"));
    let file = files::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(|error| unreadable(files::reason(&error)))?;
    if !files::is_private(&metadata) {
        return Err(fault("other users can read it; run `chmod 600`"));
    }
    let bytes = files::certificates(file).map_err(unreadable)?;
    if bytes.windows(9).any(|word| word == b"ENCRYPTED") {
        return Err(fault("it is encrypted; decrypt it with `openssl pkey -in FILE -out NEW`"));
    }
    PrivateKeyDer::from_pem_slice(&bytes)
        .or_else(|_| PrivateKeyDer::try_from(bytes))
        .map_err(|_| unreadable("it has no private key".to_owned()))
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
