//! Private keys, made new or read from PEM, and the signatures that they make. Where a key is kept is the caller's affair.

use std::fmt;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use x509_cert::der::asn1::Any;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5912::{ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, SHA_256_WITH_RSA_ENCRYPTION};
use x509_cert::der::oid::db::rfc8410::ID_ED_25519;
use x509_cert::der::pem::{self, LineEnding};
use x509_cert::der::{self, Decode as _};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

/// What a key signs with, its name in certificates, and whether that name has a NULL parameter (RFC 4055, 5758, 8410).
/// Go's crypto/x509 takes the same for these keys.
const SCHEMES: [(SignatureScheme, ObjectIdentifier, bool); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, ECDSA_WITH_SHA_256, false),
    (SignatureScheme::ECDSA_NISTP384_SHA384, ECDSA_WITH_SHA_384, false),
    (SignatureScheme::ED25519, ID_ED_25519, false),
    (SignatureScheme::RSA_PKCS1_SHA256, SHA_256_WITH_RSA_ENCRYPTION, true),
];

/// Why there is no private key.
#[derive(Debug, thiserror::Error)]
pub enum PrivateKeyError {
    /// The system gave no randomness.
    #[error("cannot make an ECDSA P-256 key: the system's source of randomness failed")]
    Generate,
    /// No private key in the text.
    #[error("want a private key in PEM: PKCS#8, SEC 1 or PKCS#1")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The key is broken or of a kind that is not known.
    #[error("want a private key for ECDSA P-256 or P-384, Ed25519, or RSA of 2048 bits or more")]
    Kind(#[source] rustls::Error),
    /// The public half cannot be encoded.
    #[error("cannot read the public half of the private key")]
    Public(#[source] der::Error),
}

/// A key for ECDSA P-256 or P-384, Ed25519 or RSA.
#[derive(Clone)]
pub struct PrivateKey {
    pem: String,
    signing: Arc<dyn SigningKey>,
    public: SubjectPublicKeyInfoOwned,
    scheme: SignatureScheme,
    algorithm: AlgorithmIdentifierOwned,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("scheme", &self.scheme).finish_non_exhaustive() // never the key
    }
}

impl PrivateKey {
    /// A new key for ECDSA P-256.
    pub fn generate() -> Result<Self, PrivateKeyError> {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
            .map_err(|_| PrivateKeyError::Generate)?;
        let pem = pem::encode_string("PRIVATE KEY", LineEnding::LF, pkcs8.as_ref())
            .map_err(|error| PrivateKeyError::Public(error.into()))?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pkcs8.as_ref()));
        PrivateKey::new(pem, &key)
    }

    /// The first private key in `pem`: PKCS#8, SEC 1 (`EC PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`), as openssl and
    /// kubeadm write them.
    pub fn from_pem(pem: &str) -> Result<Self, PrivateKeyError> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(PrivateKeyError::Pem)?;
        PrivateKey::new(pem.to_owned(), &key)
    }

    fn new(pem: String, key: &PrivateKeyDer<'_>) -> Result<Self, PrivateKeyError> {
        let signing = any_supported_type(key).map_err(PrivateKeyError::Kind)?;
        let unknown = || PrivateKeyError::Kind(rustls::Error::General("the key has no known signature".to_owned()));
        let (scheme, oid, null) =
            SCHEMES.into_iter().find(|(scheme, ..)| signing.choose_scheme(&[*scheme]).is_some()).ok_or_else(unknown)?;
        let public = signing.public_key().ok_or_else(unknown)?;
        let public = SubjectPublicKeyInfoOwned::from_der(&public).map_err(PrivateKeyError::Public)?;
        let algorithm = AlgorithmIdentifierOwned { oid, parameters: null.then(Any::null) };
        Ok(PrivateKey { pem, signing, public, scheme, algorithm })
    }

    /// The key as PEM: PKCS#8 if it was made here, else the text that it was read from.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The public half.
    pub fn public_key(&self) -> &SubjectPublicKeyInfoOwned {
        &self.public
    }

    /// What [`sign`](Self::sign) makes: SHA-256 with RSA or P-256, SHA-384 with P-384, or Ed25519.
    pub fn signature_algorithm(&self) -> &AlgorithmIdentifierOwned {
        &self.algorithm
    }

    /// The signature of `message`. Errors if the system gave no randomness.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signer = self.signing.choose_scheme(&[self.scheme]).expect("the scheme was taken from this key");
        signer.sign(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_openssl_are_read_in_every_form() {
        for (name, pem, want) in [
            ("SEC 1 after its parameters", include_str!("testdata/ca-ec.key"), ECDSA_WITH_SHA_256),
            ("PKCS#1", include_str!("testdata/ca-rsa.key"), SHA_256_WITH_RSA_ENCRYPTION),
            ("PKCS#8 P-384", include_str!("testdata/p384.key"), ECDSA_WITH_SHA_384),
            ("PKCS#8 Ed25519", include_str!("testdata/ed25519.key"), ID_ED_25519),
        ] {
            let key = PrivateKey::from_pem(pem).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(key.signature_algorithm().oid, want, "{name}");
            assert!(!key.sign(b"message").unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_new_key_survives_its_pem() {
        let made = PrivateKey::generate().unwrap();
        assert!(made.pem().starts_with("-----BEGIN PRIVATE KEY-----\n"));
        assert_eq!(PrivateKey::from_pem(made.pem()).unwrap().public_key(), made.public_key());
    }

    #[test]
    fn what_is_no_private_key_is_refused_with_what_was_wanted() {
        for (text, want) in [
            ("", "want a private key in PEM"),
            (include_str!("testdata/ca-ec.crt"), "want a private key in PEM"),
            ("-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n", "want a private key for ECDSA"),
        ] {
            let error = PrivateKey::from_pem(text).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
