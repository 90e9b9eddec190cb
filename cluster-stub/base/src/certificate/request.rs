//! Certificate requests (PKCS#10), read and checked. Who may have what is the signer's affair.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::asn1::Any;
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::der::{self, Decode as _, Reader as _, SliceReader};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::{GeneralName, GeneralNames};
use x509_cert::name::Name;
use x509_cert::request::{CertReq, ExtensionReq};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

/// Why a request cannot be used. Texts of upstream v1.36.2: pkg/apis/certificates/v1/helpers.go and
/// pkg/controller/certificates/authority/authority.go.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no request in the text.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The request is broken.
    #[error("unable to parse certificate request: {0}")]
    Parse(der::Error),
    /// An alternative name is no IP address.
    #[error("unable to parse certificate request: an IP address of {0} bytes, want 4 or 16")]
    Address(usize),
    /// The kind of key or signature is unknown.
    #[error(
        "unable to verify certificate request signature: want ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits with SHA-256, SHA-384 or SHA-512"
    )]
    Algorithm,
    /// The signature was not made with the key of the request.
    #[error("unable to verify certificate request signature: it was not made with the key of the request")]
    Signature,
}

impl From<der::Error> for RequestError {
    fn from(error: der::Error) -> Self {
        RequestError::Parse(error)
    }
}

/// What a request asks for, its signature checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The owner, as written.
    pub subject: Name,
    /// DNS names, email addresses, IP addresses and URIs, in this order; other kinds are left out, as Go does.
    pub alternative_names: GeneralNames,
    /// The key of the owner.
    pub public_key: SubjectPublicKeyInfoOwned,
}

impl CertificateRequest {
    /// The first request in `pem`.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RequestError> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(RequestError::Pem)?;
        let request = CertReq::from_der(&der)?;
        verify(&der, &request)?;
        Ok(CertificateRequest {
            alternative_names: alternative_names(&request)?,
            subject: request.info.subject,
            public_key: request.info.public_key,
        })
    }
}

/// The signature is over the bytes as they came, not over what they would be encoded to.
fn verify(der: &[u8], request: &CertReq) -> Result<(), RequestError> {
    let signed = SliceReader::new(der)?.sequence(|reader| {
        let info = reader.tlv_bytes()?;
        reader.tlv_bytes()?;
        reader.tlv_bytes()?;
        Ok(info)
    })?;
    let key = &request.info.public_key;
    let (key_algorithm, signature_algorithm) = (identifier(&key.algorithm)?, identifier(&request.algorithm)?);
    let algorithms = default_provider().signature_verification_algorithms;
    let algorithm = algorithms
        .all
        .iter()
        .find(|known| {
            known.public_key_alg_id().as_ref() == key_algorithm
                && known.signature_alg_id().as_ref() == signature_algorithm
        })
        .ok_or(RequestError::Algorithm)?;
    algorithm
        .verify_signature(key.subject_public_key.raw_bytes(), signed, request.signature.raw_bytes())
        .map_err(|_| RequestError::Signature)
}

/// The inside of an algorithm's identifier, as rustls keeps it.
fn identifier(algorithm: &AlgorithmIdentifierOwned) -> der::Result<Vec<u8>> {
    Ok(Any::encode_from(algorithm)?.value().to_vec())
}

/// In the order in which Go 1.26 crypto/x509 `CreateCertificate` writes them.
fn alternative_names(request: &CertReq) -> Result<GeneralNames, RequestError> {
    let mut names = Vec::new();
    for attribute in request.info.attributes.iter().filter(|attribute| attribute.oid == ExtensionReq::OID) {
        for value in attribute.values.iter() {
            for extension in value.decode_as::<ExtensionReq>()?.0 {
                if extension.extn_id == SubjectAltName::OID {
                    names.extend(SubjectAltName::from_der(extension.extn_value.as_bytes())?.0);
                }
            }
        }
    }
    for name in &names {
        if let GeneralName::IpAddress(address) = name
            && !matches!(address.as_bytes().len(), 4 | 16)
        {
            return Err(RequestError::Address(address.as_bytes().len()));
        }
    }
    names.retain(|name| place(name).is_some());
    names.sort_by_key(place);
    Ok(names)
}

fn place(name: &GeneralName) -> Option<u8> {
    match name {
        GeneralName::DnsName(_) => Some(0),
        GeneralName::Rfc822Name(_) => Some(1),
        GeneralName::IpAddress(_) => Some(2),
        GeneralName::UniformResourceIdentifier(_) => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use x509_cert::der::Encode as _;
    use x509_cert::der::pem::{LineEnding, encode_string};

    use super::*;
    use crate::certificate::distinguished_name;

    /// Made by openssl, all with the same subject and names; `PLAIN` has a common name only.
    const REQUESTS: [(&str, &str); 5] = [
        ("ECDSA P-256", include_str!("testdata/p256.csr")),
        ("ECDSA P-384, SHA-256", include_str!("testdata/p384.csr")),
        ("Ed25519", include_str!("testdata/ed25519.csr")),
        ("RSA, SHA-256", include_str!("testdata/rsa.csr")),
        ("RSA, SHA-512", include_str!("testdata/rsa-sha512.csr")),
    ];
    const PLAIN: &str = include_str!("testdata/plain.csr");

    fn texts(names: &GeneralNames) -> Vec<String> {
        let text = |name: &GeneralName| match name {
            GeneralName::DnsName(text) => format!("DNS:{text}"),
            GeneralName::Rfc822Name(text) => format!("email:{text}"),
            GeneralName::UniformResourceIdentifier(text) => format!("URI:{text}"),
            GeneralName::IpAddress(bytes) => format!("IP:{:?}", bytes.as_bytes()),
            other => format!("{other:?}"),
        };
        names.iter().map(text).collect()
    }

    #[test]
    fn requests_of_every_kind_of_key_are_read() {
        for (name, pem) in REQUESTS {
            let request =
                CertificateRequest::from_pem(pem.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(distinguished_name::common_names(&request.subject), ["jane"], "{name}");
            assert_eq!(distinguished_name::organizations(&request.subject), ["ops", "dev"], "{name}");
            let want = [
                "DNS:jane.example.com",
                "email:jane@example.com",
                "IP:[10, 0, 0, 1]",
                "IP:[253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]",
                "URI:spiffe://example.com/jane",
            ];
            assert_eq!(texts(&request.alternative_names), want, "{name}");
        }
        let plain = CertificateRequest::from_pem(PLAIN.as_bytes()).unwrap();
        assert_eq!(distinguished_name::common_names(&plain.subject), ["plain"]);
        assert!(plain.alternative_names.is_empty());
    }

    #[test]
    fn a_changed_request_is_refused() {
        for (name, pem) in REQUESTS {
            let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
            let at = der.windows(4).position(|bytes| bytes == b"jane").unwrap();
            let mut changed = der.clone();
            changed[at] = b'J';
            let mut resigned = der;
            *resigned.last_mut().unwrap() ^= 1;
            for bytes in [changed, resigned] {
                let pem = encode_string("CERTIFICATE REQUEST", LineEnding::LF, &bytes).unwrap();
                let error = CertificateRequest::from_pem(pem.as_bytes()).unwrap_err();
                assert!(matches!(error, RequestError::Signature), "{name}: {error}");
            }
        }
    }

    #[test]
    fn a_signature_of_another_kind_is_refused() {
        let der = CertificateSigningRequestDer::from_pem_slice(REQUESTS[0].1.as_bytes()).unwrap();
        let other = CertificateSigningRequestDer::from_pem_slice(REQUESTS[2].1.as_bytes()).unwrap();
        let mut request = CertReq::from_der(&der).unwrap();
        request.algorithm = CertReq::from_der(&other).unwrap().algorithm;
        let pem = encode_string("CERTIFICATE REQUEST", LineEnding::LF, &request.to_der().unwrap()).unwrap();
        assert!(matches!(CertificateRequest::from_pem(pem.as_bytes()).unwrap_err(), RequestError::Algorithm));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (text, want) in [
            ("foo", "PEM block type must be CERTIFICATE REQUEST"),
            (include_str!("testdata/ca-ec.crt"), "PEM block type must be CERTIFICATE REQUEST"),
            (
                "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n",
                "unable to parse certificate request: ",
            ),
        ] {
            let error = CertificateRequest::from_pem(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
