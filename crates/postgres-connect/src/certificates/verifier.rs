//! Decides which server certificates are accepted. As OpenSSL does, it accepts some that rustls
//! alone rejects: a certificate that is itself trusted, one without alternative names, and one of
//! X.509 version 1.

use std::net::IpAddr;
use std::sync::Arc;
use std::{fmt, str};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_cert::certificate::{Certificate, Version};
use x509_cert::crl::CertificateList;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5280::ID_KP_SERVER_AUTH;
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::ext::pkix::{ExtendedKeyUsage, KeyUsage};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::algorithms::unsupported_key;
use super::problem::CertificateProblem;
use super::provider;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");

/// What a server's certificate must prove.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Checks {
    /// A trusted authority signed it: libpq's `verify-ca`.
    Authority,
    /// It is also for the server's name: libpq's `verify-full`.
    AuthorityAndName,
}

/// The certificates that are trusted, and those that are revoked.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The trusted certificates. A server may also send one of them as its own.
    pub roots: Vec<CertificateDer<'static>>,
    /// Lists of revoked certificates. If there are any, each certificate needs a list of its
    /// authority, and an expired list is an error.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// Why no certificate can be checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TrustError {
    /// No trusted certificate can be read.
    NoRoot,
    /// A revocation list is damaged, or of a kind that is not supported.
    RevocationList,
}

impl fmt::Display for TrustError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoRoot => "no certificate in it can be read",
            Self::RevocationList => "it is not a supported revocation list",
        })
    }
}

impl std::error::Error for TrustError {}

/// Accepts or rejects the certificate of a server, during the handshake. The remedy for each of its
/// errors is in a [`Problem`](super::Problem).
#[derive(Debug)]
pub struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// `None`: any certificate is accepted.
    rules: Option<Rules>,
}

/// What a certificate must fulfil to be accepted. A pinned certificate is one of the roots in
/// `trust` that a server sends as its own.
#[derive(Debug)]
struct Rules {
    checks: Checks,
    trust: Trust,
    /// Verifies chains that lead to one of the `anchors`; `None`: there are no anchors.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The roots that may sign certificates.
    anchors: Arc<RootCertStore>,
}

impl Verifier {
    /// Returns a verifier that accepts the certificates that pass `checks`.
    ///
    /// # Errors
    /// No certificate in `trust` can be read, or one of its revocation lists can't.
    pub fn new(checks: Checks, trust: Trust) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        let (readable_roots, _) = roots.add_parsable_certificates(trust.roots.iter().cloned());
        if readable_roots == 0 {
            return Err(TrustError::NoRoot);
        }
        // Some roots may only be pinned, because they may not sign others.
        let mut anchors = RootCertStore::empty();
        anchors.add_parsable_certificates(trust.roots.iter().filter(|it| may_sign(it)).cloned());
        let (provider, anchors) = (provider(), Arc::new(anchors));
        let algorithms = provider.signature_verification_algorithms;
        let build = || {
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&anchors), provider)
                .with_crls(trust.revoked.clone())
                .enforce_revocation_expiration()
                .build()
        };
        let chain = (!anchors.is_empty()).then(build).transpose();
        let chain = chain.map_err(|_| TrustError::RevocationList)?;
        Ok(Self { algorithms, rules: Some(Rules { checks, trust, chain, anchors }) })
    }

    /// Returns a verifier that accepts any certificate whose key signed the handshake. Without that
    /// signature, a man in the middle could send the server's own certificate, and channel binding
    /// would not detect him.
    pub(crate) fn accepting_any() -> Self {
        Self { algorithms: provider().signature_verification_algorithms, rules: None }
    }
}

impl Rules {
    /// Fails if the certificate must be for the server's name, but is not.
    fn check_name(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> Result<(), Error> {
        if self.checks != Checks::AuthorityAndName {
            return Ok(());
        }
        match parsed(end_entity) {
            // libpq also takes the common name if no alternative name is of the kind of the
            // server's name, for example if all are addresses. RFC 6125 does not allow that.
            Some(certificate) if !has_extension(&certificate, ALTERNATIVE_NAMES) => {
                self.check_common_name(&certificate, intermediates, name)
            }
            _ => verify_server_name(&ParsedCertificate::try_from(end_entity)?, name),
        }
    }

    /// Fails if the common name of a certificate without alternative names is not the server's.
    fn check_common_name(
        &self,
        certificate: &Certificate,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> Result<(), Error> {
        let common = common_name(certificate);
        if !common.as_ref().is_some_and(|common| matches(common, &name.to_str())) {
            let (expected, presented) = (name.to_owned(), common.into_iter().collect());
            return Err(CertificateError::NotValidForNameContext { expected, presented }.into());
        }
        // Reject the name if an authority is limited to some names: rustls checks these limits only
        // for alternative names.
        if self.is_constrained(certificate, intermediates) {
            return Err(CertificateProblem::ConstrainedAuthority.into());
        }
        Ok(())
    }

    /// Returns whether an authority in the chain of `certificate` is limited to some names.
    fn is_constrained(&self, certificate: &Certificate, others: &[CertificateDer<'_>]) -> bool {
        let others: Vec<Certificate> = others.iter().filter_map(parsed).collect();
        if others.iter().any(|one| has_extension(one, NAME_CONSTRAINTS)) {
            return true;
        }
        let chain = others.iter().chain([certificate]);
        let issuers: Vec<Vec<u8>> =
            chain.filter_map(|one| one.tbs_certificate.issuer.to_der().ok()).collect();
        let mut roots = self.anchors.roots.iter().filter(|root| root.name_constraints.is_some());
        // Compare the ends, because a root's subject is stored without its DER header.
        roots.any(|root| issuers.iter().any(|issuer| issuer.ends_with(&root.subject)))
    }

    /// Returns the problem of an authority that explains the error, if there is one: its key is not
    /// supported, or may not sign.
    fn authority_problem(
        &self,
        invalid: &CertificateError,
        end_entity: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Option<CertificateProblem> {
        use CertificateError::{
            BadSignature, UnknownIssuer, UnsupportedSignatureAlgorithmContext as Algorithm,
            UnsupportedSignatureAlgorithmForPublicKeyContext as AlgorithmForKey,
        };
        let signed: Vec<_> = others.iter().chain([end_entity]).filter_map(parsed).collect();
        let issues = |one: &&CertificateDer<'_>| {
            let subject = parsed(one).map(|one| one.tbs_certificate.subject);
            signed
                .iter()
                .any(|certificate| Some(&certificate.tbs_certificate.issuer) == subject.as_ref())
        };
        let mut authorities = others.iter().chain(&self.trust.roots).filter(issues);
        match invalid {
            BadSignature | Algorithm { .. } | AlgorithmForKey { .. } => {
                let mut keys = authorities.filter_map(|one| public_key(one).ok());
                keys.find_map(|key| unsupported_key(&key)).map(CertificateProblem::AuthorityKey)
            }
            UnknownIssuer if authorities.any(|one| !may_sign(one)) => {
                Some(CertificateProblem::AuthorityUsage)
            }
            _ => None,
        }
    }

    /// Checks the dates, the purpose and the revocation of a pinned certificate. It needs no
    /// signature of an authority.
    fn check_pinned(
        &self,
        end_entity: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let certificate = parsed(end_entity).ok_or(CertificateError::BadEncoding)?.tbs_certificate;
        if now.as_secs() < certificate.validity.not_before.to_unix_duration().as_secs() {
            return Err(CertificateError::NotValidYet);
        }
        if now.as_secs() > certificate.validity.not_after.to_unix_duration().as_secs() {
            return Err(CertificateError::Expired);
        }
        let purposes = certificate.get::<ExtendedKeyUsage>().ok().flatten();
        if purposes.is_some_and(|(_, purposes)| !purposes.0.contains(&ID_KP_SERVER_AUTH)) {
            return Err(CertificateError::InvalidPurpose);
        }
        let lists =
            self.trust.revoked.iter().filter_map(|list| CertificateList::from_der(list).ok());
        let lists = lists.map(|list| list.tbs_cert_list);
        let lists: Vec<_> = lists.filter(|list| list.issuer == certificate.issuer).collect();
        if !self.trust.revoked.is_empty() && lists.is_empty() {
            return Err(CertificateError::UnknownRevocationStatus);
        }
        for list in lists {
            if list.next_update.is_some_and(|at| at.to_unix_duration().as_secs() < now.as_secs()) {
                return Err(CertificateError::ExpiredRevocationList);
            }
            let mut revoked = list.revoked_certificates.iter().flatten();
            if revoked.any(|one| one.serial_number == certificate.serial_number) {
                return Err(CertificateError::Revoked);
            }
        }
        Ok(())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        if let Some(kind) = public_key(end_entity).ok().as_ref().and_then(unsupported_key) {
            return Err(CertificateProblem::Key(kind).into());
        }
        let Some(rules) = &self.rules else { return Ok(ServerCertVerified::assertion()) };
        let allows_tls = |usage: KeyUsage| {
            usage.digital_signature() || usage.key_encipherment() || usage.key_agreement()
        };
        if !key_usage(end_entity).is_none_or(allows_tls) {
            return Err(CertificateProblem::Usage.into());
        }
        if rules.trust.roots.iter().any(|root| root == end_entity) {
            rules.check_pinned(end_entity, now)?;
        } else if is_old(end_entity) {
            return Err(CertificateProblem::OldVersion.into());
        } else {
            // Leave out authorities that may not sign, because webpki does not check keyUsage.
            let signing = intermediates.iter().filter(|certificate| may_sign(certificate)).cloned();
            let signing: Vec<_> = signing.collect();
            let unknown = || Err(CertificateError::UnknownIssuer.into());
            let verified = rules.chain.as_ref().map_or_else(unknown, |chain| {
                chain.verify_server_cert(end_entity, &signing, name, ocsp, now)
            });
            match verified {
                // Only the name is left to check, by `check_name`: rustls checks it last.
                Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                }
                Err(Error::InvalidCertificate(_)) if is_self_signed(end_entity) => {
                    return Err(CertificateProblem::SelfSigned.into());
                }
                Err(Error::InvalidCertificate(invalid)) => {
                    let problem = rules.authority_problem(&invalid, end_entity, intermediates);
                    return Err(problem.map_or_else(|| invalid.into(), Error::from));
                }
                result => return result,
            }
        }
        rules.check_name(end_entity, intermediates, name).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        end_entity: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_old(end_entity) {
            return verify_tls12_signature(message, end_entity, signed, &self.algorithms);
        }
        // Check the signature as rustls does, which can't parse such a certificate.
        let key = public_key(end_entity)?;
        let kind = key.algorithm.to_der().map_err(|_| CertificateError::BadEncoding)?;
        let key = key.subject_public_key.raw_bytes();
        let schemes = self.algorithms.mapping.iter();
        schemes
            .filter(|(scheme, _)| *scheme == signed.scheme)
            .flat_map(|(_, algorithms)| algorithms.iter())
            .filter(|algorithm| kind.ends_with(algorithm.public_key_alg_id().as_ref()))
            .find(|algorithm| algorithm.verify_signature(key, message, signed.signature()).is_ok())
            .map(|_| HandshakeSignatureValid::assertion())
            .ok_or(CertificateError::BadSignature.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        end_entity: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !is_old(end_entity) {
            return verify_tls13_signature(message, end_entity, signed, &self.algorithms);
        }
        // Do not let rustls parse such a certificate, as in `verify_tls12_signature`.
        let key = public_key(end_entity)?.to_der().map_err(|_| CertificateError::BadEncoding)?;
        let key = SubjectPublicKeyInfoDer::from(key);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the parsed certificate, if it can be parsed.
fn parsed(certificate: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::from_der(certificate).ok()
}

/// Returns the key of a certificate.
fn public_key(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoOwned, Error> {
    let certificate = parsed(certificate).ok_or(CertificateError::BadEncoding)?;
    Ok(certificate.tbs_certificate.subject_public_key_info)
}

/// Returns whether the certificate is of X.509 version 1 or 2.
fn is_old(certificate: &CertificateDer<'_>) -> bool {
    parsed(certificate).is_some_and(|parsed| parsed.tbs_certificate.version != Version::V3)
}

/// Returns what the key of a certificate may do; `None`: anything.
fn key_usage(certificate: &CertificateDer<'_>) -> Option<KeyUsage> {
    let usage = parsed(certificate)?.tbs_certificate.get::<KeyUsage>().ok()?;
    usage.map(|(_, usage)| usage)
}

/// Returns whether the key of a certificate may sign certificates.
fn may_sign(certificate: &CertificateDer<'_>) -> bool {
    key_usage(certificate).is_none_or(|usage| usage.key_cert_sign())
}

/// Returns whether a certificate names itself as its issuer.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    parsed(certificate)
        .is_some_and(|parsed| parsed.tbs_certificate.issuer == parsed.tbs_certificate.subject)
}

fn has_extension(certificate: &Certificate, id: ObjectIdentifier) -> bool {
    let extensions = certificate.tbs_certificate.extensions.as_deref().unwrap_or_default();
    extensions.iter().any(|extension| extension.extn_id == id)
}

/// Returns the last common name, which is the most specific.
fn common_name(certificate: &Certificate) -> Option<String> {
    let mut parts = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let value = &parts.rfind(|attribute| attribute.oid == COMMON_NAME)?.value;
    let is_text = matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String);
    str::from_utf8(value.value()).ok().filter(|_| is_text).map(str::to_owned)
}

/// Returns whether a common name is that of the server, by libpq's rule: the whole name is equal,
/// or `*.` stands for exactly one label of it. An address must be equal as a whole.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.").filter(|_| name.parse::<IpAddr>().is_err()) {
        Some(domain) => {
            let parts = name.split_once('.').filter(|(label, _)| !label.is_empty());
            parts.is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
        }
        None => pattern.eq_ignore_ascii_case(name),
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
    fn a_wildcard_matches_exactly_one_label() {
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

    /// A certificate authority.
    struct Authority {
        issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
        own: CertificateDer<'static>,
    }

    fn parameters(common_name: &str, alternatives: &[&str]) -> rcgen::CertificateParams {
        let alternatives: Vec<String> =
            alternatives.iter().map(|name| (*name).to_owned()).collect();
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

    /// Checks the errors of `verify-ca` and `verify-full` with `root`, if the server
    /// `db.example.com` sends `end_entity`.
    #[track_caller]
    fn assert_errors(
        root: &CertificateDer<'static>,
        end_entity: &CertificateDer<'_>,
        expected: [Option<Error>; 2],
    ) {
        assert_errors_with(root, &[], end_entity, &[], expected);
    }

    /// Like `assert_errors`, with revocation lists and the intermediate certificates of the server.
    #[track_caller]
    fn assert_errors_with(
        root: &CertificateDer<'static>,
        revoked: &[CertificateRevocationListDer<'static>],
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        expected: [Option<Error>; 2],
    ) {
        let name = ServerName::try_from("db.example.com").expect("a name");
        let errors = [Checks::Authority, Checks::AuthorityAndName].map(|checks| {
            let trust = Trust { roots: vec![root.clone()], revoked: revoked.to_vec() };
            let verifier = Verifier::new(checks, trust).expect("a root and lists");
            // A time within the default validity of the certificates.
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW));
            verifier.verify_server_cert(end_entity, intermediates, &name, &[], now).err()
        });
        // Errors of other crates never compare equal.
        assert_eq!(format!("{errors:?}"), format!("{expected:?}"));
    }

    #[test]
    fn a_trusted_authority_proves_the_names_in_the_certificate() {
        let authority = Authority::new("One");
        let end_entity = authority.sign(&parameters("x", &["db.example.com"]));
        assert_errors(&authority.own, &end_entity, [None, None]);
        let unknown = || Some(CertificateError::UnknownIssuer.into());
        assert_errors(&Authority::new("Other").own, &end_entity, [unknown(), unknown()]);
    }

    #[test]
    fn the_common_name_is_checked_only_without_alternative_names() {
        let authority = Authority::new("One");
        assert_errors(
            &authority.own,
            &authority.sign(&parameters("db.example.com", &[])),
            [None, None],
        );
        let end_entity = authority.sign(&parameters("db.example.com", &["other.example.com"]));
        let name = ServerName::try_from("db.example.com").expect("a name");
        let wrong = ParsedCertificate::try_from(&end_entity)
            .and_then(|end_entity| verify_server_name(&end_entity, &name));
        assert_errors(&authority.own, &end_entity, [None, wrong.err()]);
        let end_entity = authority.sign(&parameters("other.example.com", &[]));
        assert_errors(
            &authority.own,
            &end_entity,
            [
                None,
                Some(
                    CertificateError::NotValidForNameContext {
                        expected: name.to_owned(),
                        presented: vec!["other.example.com".to_owned()],
                    }
                    .into(),
                ),
            ],
        );
    }

    #[test]
    fn a_self_signed_certificate_is_accepted_only_as_the_root_itself() {
        let mut parameters = parameters("db.example.com", &[]);
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let sign = |parameters: &rcgen::CertificateParams| {
            let key = rcgen::KeyPair::generate().expect("a key");
            parameters.self_signed(&key).expect("a certificate").der().clone()
        };
        let (end_entity, other) = (sign(&parameters), sign(&parameters));
        assert_errors(&end_entity, &end_entity, [None, None]);
        let self_signed = || Some(CertificateProblem::SelfSigned.into());
        assert_errors(&other, &end_entity, [self_signed(), self_signed()]);
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let expired = sign(&parameters);
        let expired_error = || Some(CertificateError::Expired.into());
        assert_errors(&expired, &expired, [expired_error(), expired_error()]);
    }

    #[test]
    fn a_revocation_list_binds_pinned_certificates_until_it_expires() {
        let authority = Authority::new("One");
        let mut leaf = parameters("x", &["db.example.com"]);
        leaf.serial_number = Some(rcgen::SerialNumber::from_slice(&[7]));
        let signed = authority.sign(&leaf);
        let expired = [
            CertificateError::ExpiredRevocationListContext {
                time: UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW)),
                next_update: UnixTime::since_unix_epoch(std::time::Duration::from_secs(
                    1_577_836_800,
                )),
            },
            CertificateError::ExpiredRevocationList,
        ];
        // Trusts first the authority, then the certificate itself.
        for (root, expired) in [&authority.own, &signed].into_iter().zip(expired) {
            let with = |list, expected: Option<CertificateError>| {
                let expected = [expected.clone(), expected].map(|error| error.map(Error::from));
                assert_errors_with(root, &[list], &signed, &[], expected);
            };
            with(authority.revoke(8, 2100), None);
            with(authority.revoke(7, 2100), Some(CertificateError::Revoked));
            with(authority.revoke(8, 2020), Some(expired));
            with(
                Authority::new("Other").revoke(8, 2100),
                Some(CertificateError::UnknownRevocationStatus),
            );
        }
    }

    #[test]
    fn an_authority_with_name_constraints_proves_no_common_name() {
        let mut constrained = parameters("One", &[]);
        constrained.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        constrained.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("other.example".to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let forbidden = || Some(CertificateProblem::ConstrainedAuthority.into());
        let leaf = parameters("db.example.com", &[]);
        let one = Authority::of(constrained.clone());
        assert_errors(&one.own, &one.sign(&leaf), [None, forbidden()]);
        // The errors are the same if another authority signed the constrained authority.
        let root = Authority::new("Root");
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = constrained.signed_by(&key, &root.issuer).expect("a certificate").der().clone();
        let middle = Authority { issuer: rcgen::Issuer::new(constrained, key), own };
        assert_errors_with(
            &root.own,
            &[],
            &middle.sign(&leaf),
            std::slice::from_ref(&middle.own),
            [None, forbidden()],
        );
    }
}
