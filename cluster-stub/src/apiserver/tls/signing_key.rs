//! The RSA key that signs ServiceAccount tokens. Finding the primes takes a while, so a new key is made in the
//! background and waited for by the first token only.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{DecodingKey, EncodingKey};
use rsa::pkcs1::EncodeRsaPrivateKey as _;
use rsa::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, EncodePublicKey as _, LineEnding};
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, RsaPublicKey};
use sha2::{Digest as _, Sha256};

const KEY_BITS: usize = 2048;

/// Why the signing key could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// No key of the wanted size came out.
    #[error("cannot make the key that signs ServiceAccount tokens")]
    Generate(#[source] rsa::Error),
    /// The stored key is not a PKCS#8 RSA key.
    #[error("cannot read the key that signs ServiceAccount tokens: want a PKCS#8 RSA private key in PEM")]
    Read(#[source] rsa::pkcs8::Error),
    /// The key cannot be encoded.
    #[error("cannot encode the key that signs ServiceAccount tokens")]
    Encode(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// An RSA key with what tokens and the key set document need of it.
#[derive(Clone)]
pub struct SigningKey(Arc<Parts>);

struct Parts {
    private_pem: String,
    encoding: EncodingKey,
    decoding: DecodingKey,
    key_id: String,
    modulus: String,
    exponent: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("key_id", &self.0.key_id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A new key. Takes CPU time, so call it where blocking is allowed.
    pub fn generate() -> Result<Self, SigningKeyError> {
        let key = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, KEY_BITS).map_err(SigningKeyError::Generate)?;
        SigningKey::new(&key)
    }

    /// The key in a PKCS#8 PEM text.
    pub fn from_pem(pem: &str) -> Result<Self, SigningKeyError> {
        SigningKey::new(&RsaPrivateKey::from_pkcs8_pem(pem).map_err(SigningKeyError::Read)?)
    }

    fn new(key: &RsaPrivateKey) -> Result<Self, SigningKeyError> {
        let encode = |e: Box<dyn std::error::Error + Send + Sync>| SigningKeyError::Encode(e);
        let public = RsaPublicKey::from(key);
        let public_der = public.to_public_key_der().map_err(|e| encode(e.into()))?;
        let modulus = URL_SAFE_NO_PAD.encode(public.n().to_bytes_be());
        let exponent = URL_SAFE_NO_PAD.encode(public.e().to_bytes_be());
        let private_der = key.to_pkcs1_der().map_err(|e| encode(e.into()))?;
        Ok(SigningKey(Arc::new(Parts {
            private_pem: key.to_pkcs8_pem(LineEnding::LF).map_err(|e| encode(e.into()))?.to_string(),
            encoding: EncodingKey::from_rsa_der(private_der.as_bytes()),
            decoding: DecodingKey::from_rsa_components(&modulus, &exponent).map_err(|e| encode(e.into()))?,
            // Upstream v1.36.2 pkg/serviceaccount/jwt.go keyIDFromPublicKey: SHA-256 of the public key's DER.
            key_id: URL_SAFE_NO_PAD.encode(Sha256::digest(public_der.as_bytes())),
            modulus,
            exponent,
        })))
    }

    /// The private key, PKCS#8 in PEM.
    pub fn private_pem(&self) -> &str {
        &self.0.private_pem
    }

    /// What signs tokens.
    pub fn encoding(&self) -> &EncodingKey {
        &self.0.encoding
    }

    /// What checks signatures.
    pub fn decoding(&self) -> &DecodingKey {
        &self.0.decoding
    }

    /// The `kid` of tokens and of the key set.
    pub fn key_id(&self) -> &str {
        &self.0.key_id
    }

    /// The modulus in base64url, as a JSON Web Key has it.
    pub fn modulus(&self) -> &str {
        &self.0.modulus
    }

    /// The public exponent in base64url.
    pub fn exponent(&self) -> &str {
        &self.0.exponent
    }
}
