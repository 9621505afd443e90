//! The TLS handshake with a server, and the checks that libpq makes afterwards.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::config::SslNegotiation;
use tokio_rustls::TlsConnector;
use x509_cert::der::Decode;
use x509_cert::der::oid::db::rfc5912;

use super::failure::{Failure, NOT_POSTGRESQL, Remedy};
use super::stream::Socket;
use super::tls::OwnCertificate;

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The protocol's name in TLS (ALPN).
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// Whether a connection is encrypted, and whether a server without TLS is accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Encryption {
    Off,
    Preferred,
    Demanded,
}

/// The settings of a handshake.
pub(super) struct Handshake {
    pub(super) certificates: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    pub(super) server: String,
    pub(super) negotiation: SslNegotiation,
    pub(super) own_certificate: OwnCertificate,
}

/// A stream, and the data for channel binding.
type Secured = (Box<dyn Socket>, Option<Vec<u8>>);

impl Handshake {
    pub(super) async fn shake(&self, mut socket: Box<dyn Socket>, encryption: Encryption) -> Result<Secured, Failure> {
        let lost = |error: io::Error| Failure::from(&error);
        if encryption == Encryption::Off {
            return Ok((socket, None));
        }
        if self.negotiation == SslNegotiation::Postgres {
            socket.write_all(&SSL_REQUEST).await.map_err(lost)?;
            match (socket.read_u8().await.map_err(lost)?, encryption) {
                (b'S', _) => {}
                (b'N', Encryption::Demanded) => {
                    return Err(Failure::new("the server does not support TLS", Remedy::Encryption));
                }
                (b'N', _) => return Ok((socket, None)),
                _ => return Err(Failure::new(NOT_POSTGRESQL, Remedy::Reach)),
            }
        }
        let name = ServerName::try_from(self.server.clone())
            .map_err(|_| Failure::new("no certificate can contain its name", Remedy::HostName))?;
        let mut certificates = ClientConfig::clone(&self.certificates);
        let witness = Arc::new(Witness::of(&certificates));
        certificates.client_auth_cert_resolver = Arc::<Witness>::clone(&witness);
        let socket = TlsConnector::from(Arc::new(certificates)).connect(name, socket).await.map_err(lost)?;
        let session = socket.get_ref().1;
        // A server of another protocol does not confirm PostgreSQL's protocol.
        if self.negotiation == SslNegotiation::Direct && session.alpn_protocol() != Some(PROTOCOL) {
            return Err(Failure::new("the server has not confirmed PostgreSQL's protocol in TLS", Remedy::Encryption));
        }
        if self.own_certificate == OwnCertificate::Demanded && !witness.showed.load(Ordering::Relaxed) {
            let why = "sslcertmode=require demands a client certificate, but the server asked for none, or none is set";
            return Err(Failure::new(why, Remedy::ClientCertificate));
        }
        let binding = session.peer_certificates().and_then(<[_]>::first).and_then(endpoint);
        Ok((Box::new(socket), binding))
    }
}

/// Records whether the client's certificate was sent.
#[derive(Debug)]
struct Witness {
    certificate: Arc<dyn ResolvesClientCert>,
    showed: AtomicBool,
}

impl Witness {
    fn of(certificates: &ClientConfig) -> Self {
        let certificate = Arc::clone(&certificates.client_auth_cert_resolver);
        Self { certificate, showed: AtomicBool::new(false) }
    }
}

impl ResolvesClientCert for Witness {
    fn resolve(&self, authorities: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let chosen = self.certificate.resolve(authorities, schemes);
        self.showed.store(chosen.is_some(), Ordering::Relaxed);
        chosen
    }

    fn has_certs(&self) -> bool {
        self.certificate.has_certs()
    }
}

/// The data for channel binding (`tls-server-end-point`, RFC 5929): a hash of the server's
/// certificate. The hash algorithm is that of the certificate's signature, but at least SHA-256.
/// `None` if that algorithm has no hash, such as Ed25519.
fn endpoint(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(match parsed.signature_algorithm.oid {
        rfc5912::SHA_1_WITH_RSA_ENCRYPTION | rfc5912::SHA_256_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_256 => {
            Sha256::digest(certificate).to_vec()
        }
        rfc5912::SHA_384_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_384 => Sha384::digest(certificate).to_vec(),
        rfc5912::SHA_512_WITH_RSA_ENCRYPTION => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
}
