//! Which server certificates are accepted. rustls alone refuses some that PostgreSQL's manual tells
//! people to make and that libpq takes: self-signed, without alternative names, X.509 version 1.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_cert::certificate::{Certificate, Version};
use x509_cert::crl::CertificateList;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");

/// What a certificate must show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Demand {
    Nothing,
    /// That a known authority signed it (`verify-ca`).
    Authority,
    /// That, and the host's name (`verify-full`).
    Name,
}

#[derive(Debug)]
pub(super) struct Verifier {
    demand: Demand,
    algorithms: WebPkiSupportedAlgorithms,
    chain: Option<Arc<WebPkiServerVerifier>>,
    known: Known,
}

/// The trusted roots and revocation lists.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) store: Arc<RootCertStore>,
    /// A server may show one of these itself: the self-signed certificate.
    pub(super) given: Vec<CertificateDer<'static>>,
    pub(super) revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// What rustls has no word for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unverifiable {
    OldVersion,
    SelfSigned,
    ConstrainedAuthority,
}

impl fmt::Display for Unverifiable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OldVersion => "it is X.509 version 1, which no authority's signature makes good",
            Self::SelfSigned => "it is self-signed",
            Self::ConstrainedAuthority => "the host is only in its common name, and its authority has name constraints",
        })
    }
}

impl std::error::Error for Unverifiable {}

impl From<Unverifiable> for Error {
    fn from(why: Unverifiable) -> Self {
        CertificateError::Other(OtherError(Arc::new(why))).into()
    }
}

impl Verifier {
    /// Takes any certificate. Its key must still have signed the handshake: channel binding, which
    /// tells a man in the middle by his certificate, means nothing if he can show the server's own.
    pub(super) fn lenient(algorithms: WebPkiSupportedAlgorithms) -> Self {
        let known = Known { store: Arc::new(RootCertStore::empty()), given: Vec::new(), revoked: Vec::new() };
        Self { demand: Demand::Nothing, algorithms, chain: None, known }
    }

    /// # Errors
    /// A revocation list is unusable, or all roots are.
    pub(super) fn strict(
        provider: &Arc<CryptoProvider>,
        known: Known,
        demand: Demand,
    ) -> Result<Self, VerifierBuilderError> {
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::clone(&known.store), Arc::clone(provider))
            .with_crls(known.revoked.clone())
            .enforce_revocation_expiration()
            .build()?;
        Ok(Self { demand, algorithms: provider.signature_verification_algorithms, chain: Some(chain), known })
    }

    fn check_name(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> Result<(), Error> {
        if self.demand != Demand::Name {
            return Ok(());
        }
        match parsed(shown) {
            Some(certificate) if !has_extension(&certificate, ALTERNATIVE_NAMES) => {
                if !common_name(&certificate).is_some_and(|common| matches(&common, &name.to_str())) {
                    return Err(CertificateError::NotValidForName.into());
                }
                // rustls checks an authority's name constraints only against alternative names.
                let signers: Vec<Certificate> = intermediates.iter().filter_map(parsed).collect();
                if self.known.is_constrained(&certificate, &signers) {
                    return Err(Unverifiable::ConstrainedAuthority.into());
                }
                Ok(())
            }
            _ => verify_server_name(&ParsedCertificate::try_from(shown)?, name),
        }
    }
}

impl Known {
    /// Returns whether an authority in the chain of `shown` is limited to some names.
    fn is_constrained(&self, shown: &Certificate, intermediates: &[Certificate]) -> bool {
        let issuers = intermediates.iter().chain([shown]).filter_map(|one| one.tbs_certificate.issuer.to_der().ok());
        let issuers: Vec<Vec<u8>> = issuers.collect();
        let constrained = self.store.roots.iter().filter(|root| root.name_constraints.is_some());
        intermediates.iter().any(|one| has_extension(one, NAME_CONSTRAINTS))
            // A root's subject is stored without its DER header.
            || constrained.map(|root| &root.subject).any(|subject| issuers.iter().any(|name| name.ends_with(subject)))
    }

    /// A pinned certificate needs no signature, but it can still be revoked.
    fn check_revoked(&self, shown: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        if self.revoked.is_empty() {
            return Ok(());
        }
        let shown = parsed(shown).ok_or(CertificateError::BadEncoding)?.tbs_certificate;
        let lists = self.revoked.iter().filter_map(|list| CertificateList::from_der(list).ok());
        let lists: Vec<_> = lists.map(|list| list.tbs_cert_list).filter(|list| list.issuer == shown.issuer).collect();
        if lists.is_empty() {
            return Err(CertificateError::UnknownRevocationStatus.into());
        }
        for list in lists {
            if list.next_update.is_some_and(|next| next.to_unix_duration().as_secs() < now.as_secs()) {
                return Err(CertificateError::ExpiredRevocationList.into());
            }
            if list.revoked_certificates.iter().flatten().any(|one| one.serial_number == shown.serial_number) {
                return Err(CertificateError::Revoked.into());
            }
        }
        Ok(())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.known.given.iter().any(|given| given == shown) {
            check_dates(shown, now)?;
            self.known.check_revoked(shown, now)?;
        } else if is_old(shown) {
            return Err(Unverifiable::OldVersion.into());
        } else {
            // The name is the last thing checked, so everything else is in order when it fails.
            use CertificateError::{NotValidForName, NotValidForNameContext};
            match chain.verify_server_cert(shown, intermediates, name, ocsp, now) {
                Ok(_) => return Ok(ServerCertVerified::assertion()),
                Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {}
                Err(Error::InvalidCertificate(_)) if is_self_signed(shown) => {
                    return Err(Unverifiable::SelfSigned.into());
                }
                Err(error) => return Err(error),
            }
        }
        self.check_name(shown, intermediates, name).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_old(shown) {
            return verify_tls12_signature(message, shown, signed, &self.algorithms);
        }
        // What rustls does, for a certificate that it can't parse.
        let certificate = parsed(shown).ok_or(CertificateError::BadEncoding)?;
        let key = &certificate.tbs_certificate.subject_public_key_info;
        let kind = key.algorithm.to_der().map_err(|_| CertificateError::BadEncoding)?;
        let candidates = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let mut candidates = candidates.flat_map(|(_, algorithms)| algorithms.iter());
        let valid = candidates.any(|algorithm| {
            kind.ends_with(algorithm.public_key_alg_id().as_ref())
                && algorithm.verify_signature(key.subject_public_key.raw_bytes(), message, signed.signature()).is_ok()
        });
        if valid { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_old(shown) {
            return verify_tls13_signature(message, shown, signed, &self.algorithms);
        }
        let certificate = parsed(shown).ok_or(CertificateError::BadEncoding)?;
        let key = certificate.tbs_certificate.subject_public_key_info.to_der();
        let key = SubjectPublicKeyInfoDer::from(key.map_err(|_| CertificateError::BadEncoding)?);
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn parsed(shown: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::from_der(shown).ok()
}

fn is_old(shown: &CertificateDer<'_>) -> bool {
    parsed(shown).is_some_and(|certificate| certificate.tbs_certificate.version != Version::V3)
}

fn is_self_signed(shown: &CertificateDer<'_>) -> bool {
    parsed(shown).is_some_and(|certificate| certificate.tbs_certificate.issuer == certificate.tbs_certificate.subject)
}

fn check_dates(shown: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let certificate = parsed(shown).ok_or(CertificateError::BadEncoding)?;
    let validity = certificate.tbs_certificate.validity;
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

fn has_extension(certificate: &Certificate, id: ObjectIdentifier) -> bool {
    let extensions = certificate.tbs_certificate.extensions.as_deref().unwrap_or_default();
    extensions.iter().any(|extension| extension.extn_id == id)
}

/// The last one, which is the most specific.
fn common_name(certificate: &Certificate) -> Option<String> {
    let mut parts = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let value = &parts.rfind(|attribute| attribute.oid == COMMON_NAME)?.value;
    let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    let utf8 = utf8.or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()));
    utf8.or_else(|_| value.decode_as::<Ia5StringRef<'_>>().map(|text| text.as_str().to_owned())).ok()
}

/// libpq's rule: the whole name, or `*.` for exactly one label; an address only as a whole.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    match pattern.strip_prefix("*.").filter(|_| name.parse::<IpAddr>().is_err()) {
        Some(domain) => name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == domain),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn case(pattern: &str, name: &str, expected: bool) {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }

    #[test]
    fn a_common_name_covers_one_label_at_most() {
        case("db.example.com", "DB.example.com", true);
        case("*.example.com", "db.example.com", true);
        case("*.example.com", "a.db.example.com", false);
        case("*.example.com", "example.com", false);
        case("*.example.com", ".example.com", false);
        case("*", "db", false);
        case("d*.example.com", "db.example.com", false);
        case("127.0.0.1", "127.0.0.1", true);
        case("*.0.0.1", "127.0.0.1", false);
    }

    /// Seconds since 1970.
    const NOW: u64 = 1_800_000_000;

    /// An authority, and certificates that it signed or that signed themselves.
    struct Authority {
        issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
        own: CertificateDer<'static>,
    }

    fn parameters(common_name: &str, alternatives: &[&str]) -> rcgen::CertificateParams {
        let alternatives: Vec<String> = alternatives.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = rcgen::CertificateParams::new(alternatives).expect("valid names");
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        parameters
    }

    impl Authority {
        fn new(common_name: &str) -> Self {
            let mut parameters = parameters(common_name, &[]);
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            Self::of(parameters)
        }

        fn of(parameters: rcgen::CertificateParams) -> Self {
            let key = rcgen::KeyPair::generate().expect("a key");
            let own = parameters.self_signed(&key).expect("a certificate").der().clone();
            Self { issuer: rcgen::Issuer::new(parameters, key), own }
        }

        /// Revokes the certificate with this serial number, in a list that expires when the year
        /// `until` begins.
        fn revoke(&self, serial: u8, until: i32) -> CertificateRevocationListDer<'static> {
            let entry = rcgen::RevokedCertParams {
                serial_number: rcgen::SerialNumber::from_slice(&[serial]),
                revocation_time: rcgen::date_time_ymd(2019, 1, 1),
                reason_code: None,
                invalidity_date: None,
            };
            let list = rcgen::CertificateRevocationListParams {
                this_update: rcgen::date_time_ymd(2019, 1, 1),
                next_update: rcgen::date_time_ymd(until, 1, 1),
                crl_number: rcgen::SerialNumber::from_slice(&[1]),
                issuing_distribution_point: None,
                revoked_certs: vec![entry],
                key_identifier_method: rcgen::KeyIdMethod::Sha256,
            };
            list.signed_by(&self.issuer).expect("a revocation list").into()
        }

        fn sign(&self, parameters: &rcgen::CertificateParams) -> CertificateDer<'static> {
            let key = rcgen::KeyPair::generate().expect("a key");
            parameters.signed_by(&key, &self.issuer).expect("a certificate").der().clone()
        }
    }

    /// What a verifier that was given `root` says to `shown` from `db.example.com`, in both modes.
    #[track_caller]
    fn verdicts(root: &CertificateDer<'static>, shown: &CertificateDer<'_>, expected: [Option<Error>; 2]) {
        verdicts_with(root, &[], shown, &[], expected);
    }

    /// Like `verdicts`, with revocation lists and the intermediate certificates of the server.
    #[track_caller]
    fn verdicts_with(
        root: &CertificateDer<'static>,
        revoked: &[CertificateRevocationListDer<'static>],
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        expected: [Option<Error>; 2],
    ) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut store = RootCertStore::empty();
        store.add(root.clone()).expect("a root");
        let store = Arc::new(store);
        let name = ServerName::try_from("db.example.com").expect("a name");
        let verdicts = [Demand::Authority, Demand::Name].map(|demand| {
            let known = Known { store: Arc::clone(&store), given: vec![root.clone()], revoked: revoked.to_vec() };
            let verifier = Verifier::strict(&provider, known, demand).expect("a verifier");
            // Any time within the validity that the certificates have by default.
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW));
            verifier.verify_server_cert(shown, intermediates, &name, &[], now).err()
        });
        // Errors of other crates never compare equal.
        assert_eq!(format!("{verdicts:?}"), format!("{expected:?}"));
    }

    #[test]
    fn an_authority_vouches_for_the_names_in_the_certificate() {
        let authority = Authority::new("One");
        let shown = authority.sign(&parameters("x", &["db.example.com"]));
        verdicts(&authority.own, &shown, [None, None]);
        let unknown = || Some(CertificateError::UnknownIssuer.into());
        verdicts(&Authority::new("Other").own, &shown, [unknown(), unknown()]);
    }

    #[test]
    fn the_common_name_counts_only_without_alternative_names() {
        let authority = Authority::new("One");
        verdicts(&authority.own, &authority.sign(&parameters("db.example.com", &[])), [None, None]);
        let shown = authority.sign(&parameters("db.example.com", &["other.example.com"]));
        let name = ServerName::try_from("db.example.com").expect("a name");
        let wrong = ParsedCertificate::try_from(&shown).and_then(|shown| verify_server_name(&shown, &name));
        verdicts(&authority.own, &shown, [None, wrong.err()]);
        let shown = authority.sign(&parameters("other.example.com", &[]));
        verdicts(&authority.own, &shown, [None, Some(CertificateError::NotValidForName.into())]);
    }

    #[test]
    fn a_self_signed_certificate_is_its_own_root() {
        let mut parameters = parameters("db.example.com", &[]);
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let sign = |parameters: &rcgen::CertificateParams| {
            let key = rcgen::KeyPair::generate().expect("a key");
            parameters.self_signed(&key).expect("a certificate").der().clone()
        };
        let (shown, other) = (sign(&parameters), sign(&parameters));
        verdicts(&shown, &shown, [None, None]);
        let stranger = || Some(Unverifiable::SelfSigned.into());
        verdicts(&other, &shown, [stranger(), stranger()]);
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let expired = sign(&parameters);
        let refused = || Some(CertificateError::Expired.into());
        verdicts(&expired, &expired, [refused(), refused()]);
    }

    #[test]
    fn a_revocation_list_counts_until_it_expires_and_for_a_given_certificate_too() {
        let authority = Authority::new("One");
        let mut leaf = parameters("x", &["db.example.com"]);
        leaf.serial_number = Some(rcgen::SerialNumber::from_slice(&[7]));
        let signed = authority.sign(&leaf);
        let expired = [
            CertificateError::ExpiredRevocationListContext {
                time: UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW)),
                next_update: UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_577_836_800)),
            },
            CertificateError::ExpiredRevocationList,
        ];
        // Signed by the trusted authority, and trusted itself.
        for (root, expired) in [&authority.own, &signed].into_iter().zip(expired) {
            let with = |list, expected: Option<CertificateError>| {
                let expected = [expected.clone(), expected].map(|error| error.map(Error::from));
                verdicts_with(root, &[list], &signed, &[], expected);
            };
            with(authority.revoke(8, 2100), None);
            with(authority.revoke(7, 2100), Some(CertificateError::Revoked));
            with(authority.revoke(8, 2020), Some(expired));
            with(Authority::new("Other").revoke(8, 2100), Some(CertificateError::UnknownRevocationStatus));
        }
    }

    #[test]
    fn an_authority_for_some_names_vouches_for_no_common_name() {
        let mut constrained = parameters("One", &[]);
        constrained.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        constrained.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("other.example".to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let forbidden = || Some(Unverifiable::ConstrainedAuthority.into());
        let leaf = parameters("db.example.com", &[]);
        let one = Authority::of(constrained.clone());
        verdicts(&one.own, &one.sign(&leaf), [None, forbidden()]);
        // The same if another authority signed the constrained one.
        let root = Authority::new("Root");
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = constrained.signed_by(&key, &root.issuer).expect("a certificate").der().clone();
        let middle = Authority { issuer: rcgen::Issuer::new(constrained, key), own };
        verdicts_with(&root.own, &[], &middle.sign(&leaf), std::slice::from_ref(&middle.own), [None, forbidden()]);
    }
}
