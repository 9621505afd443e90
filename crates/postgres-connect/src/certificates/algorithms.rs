//! The algorithms in certificates: their names, the keys that are supported, and the hash of each
//! signature for channel binding.

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use x509_cert::certificate::Certificate;
use x509_cert::der::asn1::{Any, ContextSpecific, Uint};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::{rfc5912, rfc8410};
use x509_cert::der::{Decode, Reader, SliceReader, TagNumber};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

type Hash = fn(&[u8]) -> Vec<u8>;

const SHA_224: Hash = |bytes| Sha224::digest(bytes).to_vec();
const SHA_256: Hash = |bytes| Sha256::digest(bytes).to_vec();
const SHA_384: Hash = |bytes| Sha384::digest(bytes).to_vec();
const SHA_512: Hash = |bytes| Sha512::digest(bytes).to_vec();
const SHA_512_224: Hash = |bytes| Sha512_224::digest(bytes).to_vec();
const SHA_512_256: Hash = |bytes| Sha512_256::digest(bytes).to_vec();

/// Returns the identifier in these numbers.
const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

/// The signature algorithms of certificates, with the hash of each for channel binding. For MD5 and
/// SHA-1, RFC 5929 demands SHA-256. RSA-PSS has no hash here, because its parameters name one.
const SIGNATURES: [(ObjectIdentifier, &str, Option<Hash>); 16] = [
    (rfc5912::MD_5_WITH_RSA_ENCRYPTION, "MD5 with RSA", Some(SHA_256)),
    (rfc5912::SHA_1_WITH_RSA_ENCRYPTION, "SHA-1 with RSA", Some(SHA_256)),
    (rfc5912::SHA_224_WITH_RSA_ENCRYPTION, "SHA-224 with RSA", Some(SHA_224)),
    (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, "SHA-256 with RSA", Some(SHA_256)),
    (rfc5912::SHA_384_WITH_RSA_ENCRYPTION, "SHA-384 with RSA", Some(SHA_384)),
    (rfc5912::SHA_512_WITH_RSA_ENCRYPTION, "SHA-512 with RSA", Some(SHA_512)),
    (oid("1.2.840.113549.1.1.15"), "SHA-512/224 with RSA", Some(SHA_512_224)),
    (oid("1.2.840.113549.1.1.16"), "SHA-512/256 with RSA", Some(SHA_512_256)),
    (rfc5912::ID_RSASSA_PSS, "RSA-PSS", None),
    (oid("1.2.840.10045.4.1"), "SHA-1 with ECDSA", Some(SHA_256)),
    (rfc5912::ECDSA_WITH_SHA_224, "SHA-224 with ECDSA", Some(SHA_224)),
    (rfc5912::ECDSA_WITH_SHA_256, "SHA-256 with ECDSA", Some(SHA_256)),
    (rfc5912::ECDSA_WITH_SHA_384, "SHA-384 with ECDSA", Some(SHA_384)),
    (rfc5912::ECDSA_WITH_SHA_512, "SHA-512 with ECDSA", Some(SHA_512)),
    (rfc8410::ID_ED_25519, "Ed25519", None),
    (rfc8410::ID_ED_448, "Ed448", None),
];

/// The hashes that the parameters of RSA-PSS may name, with the hash for channel binding.
const HASHES: [(ObjectIdentifier, Hash); 7] = [
    (rfc5912::ID_SHA_1, SHA_256),
    (rfc5912::ID_SHA_224, SHA_224),
    (rfc5912::ID_SHA_256, SHA_256),
    (rfc5912::ID_SHA_384, SHA_384),
    (rfc5912::ID_SHA_512, SHA_512),
    (oid("2.16.840.1.101.3.4.2.5"), SHA_512_224),
    (oid("2.16.840.1.101.3.4.2.6"), SHA_512_256),
];

/// The names of keys that `ring` does not support.
const UNSUPPORTED_KEYS: [(ObjectIdentifier, &str); 5] = [
    (rfc5912::ID_RSASSA_PSS, "a key for RSA-PSS only"),
    (rfc5912::SECP_521_R_1, "a P-521 key"),
    (rfc5912::SECP_224_R_1, "a P-224 key"),
    (rfc8410::ID_ED_448, "an Ed448 key"),
    (rfc5912::ID_DSA, "a DSA key"),
];

/// The lengths in bits of the RSA keys that `ring` supports, rounded up to whole bytes.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Returns the data for channel binding (`tls-server-end-point`, RFC 5929): a hash of the server's
/// certificate, by the algorithm of its signature. Fails with the name of an algorithm that has no
/// hash, such as Ed25519.
pub(crate) fn end_point_hash(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, String> {
    let parsed = Certificate::from_der(certificate).map_err(|_| "unknown".to_owned())?;
    let algorithm = parsed.signature_algorithm;
    let hash = hash(&algorithm).ok_or_else(|| signature_name(&algorithm.oid))?;
    Ok(hash(certificate))
}

/// Returns the hash of a signature algorithm for channel binding, if it has one.
fn hash(signature: &AlgorithmIdentifierOwned) -> Option<Hash> {
    if signature.oid == rfc5912::ID_RSASSA_PSS {
        return pss_hash(signature.parameters.as_ref());
    }
    SIGNATURES.iter().find(|(id, ..)| *id == signature.oid)?.2
}

/// Returns the hash that the parameters of RSA-PSS name; SHA-1 is their default.
fn pss_hash(parameters: Option<&Any>) -> Option<Hash> {
    let mut reader = SliceReader::new(parameters.map(Any::value).unwrap_or_default()).ok()?;
    let field =
        ContextSpecific::<AlgorithmIdentifierOwned>::decode_explicit(&mut reader, TagNumber::N0);
    let named_hash = field.ok()?.map_or(rfc5912::ID_SHA_1, |field| field.value.oid);
    HASHES.iter().find(|(id, _)| *id == named_hash).map(|(_, hash)| *hash)
}

/// Returns the name of a signature algorithm, or else its identifier.
fn signature_name(oid: &ObjectIdentifier) -> String {
    let known = SIGNATURES.iter().find(|(id, ..)| id == oid);
    known.map_or_else(|| oid.to_string(), |(_, name, _)| (*name).to_owned())
}

/// Returns the name of the algorithm whose identifier begins with these DER bytes.
pub(super) fn signature_name_of(identifier: &[u8]) -> String {
    let oid =
        SliceReader::new(identifier).and_then(|mut reader| ObjectIdentifier::decode(&mut reader));
    oid.map_or_else(|_| "unknown".to_owned(), |oid| signature_name(&oid))
}

/// Returns the kind of a key that `ring` does not support, such as `an RSA key of 1024 bits`;
/// `None`: it supports the key.
pub(crate) fn unsupported_key(key: &SubjectPublicKeyInfoOwned) -> Option<String> {
    let curve = || key.algorithm.parameters.as_ref()?.decode_as::<ObjectIdentifier>().ok();
    let kind = match key.algorithm.oid {
        rfc8410::ID_ED_25519 => return None,
        rfc5912::RSA_ENCRYPTION => {
            let bits = modulus_bits(key.subject_public_key.raw_bytes())?;
            if RSA_BITS.contains(&bits.next_multiple_of(8)) {
                return None;
            }
            return Some(format!("an RSA key of {bits} bits"));
        }
        rfc5912::ID_EC_PUBLIC_KEY => curve().unwrap_or(rfc5912::ID_EC_PUBLIC_KEY),
        kind => kind,
    };
    if [rfc5912::SECP_256_R_1, rfc5912::SECP_384_R_1].contains(&kind) {
        return None;
    }
    let known = UNSUPPORTED_KEYS.iter().find(|(id, _)| *id == kind);
    Some(known.map_or_else(|| format!("a key of the kind {kind}"), |(_, name)| (*name).to_owned()))
}

/// Returns the length in bits of an RSA key: a sequence of the modulus and the exponent.
fn modulus_bits(key: &[u8]) -> Option<usize> {
    let mut reader = SliceReader::new(key).ok()?;
    let modulus = reader.sequence(|numbers| {
        let modulus = Uint::decode(numbers)?;
        Uint::decode(numbers)?;
        Ok(modulus)
    });
    let modulus = modulus.ok()?;
    let bytes = modulus.as_bytes();
    Some(bytes.len() * 8 - bytes.first()?.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_binding_replaces_md5_and_sha_1_by_sha_256() {
        // RSA-PSS without parameters uses SHA-1.
        for oid in [
            rfc5912::MD_5_WITH_RSA_ENCRYPTION,
            rfc5912::SHA_1_WITH_RSA_ENCRYPTION,
            rfc5912::ID_RSASSA_PSS,
        ] {
            let hash = hash(&AlgorithmIdentifierOwned { oid, parameters: None }).expect("a hash");
            assert_eq!(hash(b"x"), SHA_256(b"x"), "{oid}");
        }
    }
}
