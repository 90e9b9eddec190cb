//! Who signs certificates: a name with a key, made new or read from an authority's certificate of any origin.

use std::time::Duration;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::der::asn1::{BitString, GeneralizedTime, OctetString, UtcTime};
use x509_cert::der::flagset::FlagSet;
use x509_cert::der::oid::{AssociatedOid, ObjectIdentifier};
use x509_cert::der::pem::{self, LineEnding};
use x509_cert::der::{self, DateTime, Decode as _, Encode};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralNames;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::{Time, Validity};

use super::private_key::PrivateKey;

/// Random bytes in a serial number. Upstream v1.36.2: pkg/controller/certificates/authority/authority.go.
const SERIAL_BYTES: usize = 16;
/// Bytes in a key identifier (RFC 7093, method 1).
const KEY_IDENTIFIER_BYTES: usize = 20;

/// Why a certificate could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The system gave no randomness.
    #[error("cannot make a serial number: the system's source of randomness failed")]
    Serial,
    /// A value does not fit into a certificate.
    #[error("cannot encode the certificate")]
    Encode(#[from] der::Error),
    /// The key did not sign.
    #[error("cannot sign the certificate")]
    Sign(#[from] rustls::Error),
}

/// Why a certificate and a key make no issuer.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// No certificate in the text.
    #[error("want a PEM certificate")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The certificate is broken.
    #[error("want an X.509 certificate")]
    Parse(#[from] der::Error),
    /// The key is another's.
    #[error("the private key belongs to another certificate")]
    Key,
    /// The certificate says that it may not sign.
    #[error("want a certificate authority: {0}")]
    NoAuthority(&'static str),
}

/// What a certificate says, without issuer, serial number and key.
#[derive(Clone, Debug)]
pub struct CertificateTemplate {
    /// The owner.
    pub subject: Name,
    /// First moment, whole seconds.
    pub not_before: Timestamp,
    /// Last moment, whole seconds.
    pub not_after: Timestamp,
    /// What the key may be used for. None set: the extension is left out.
    pub usages: FlagSet<KeyUsages>,
    /// Purposes, as object identifiers. Empty: the extension is left out.
    pub extended_usages: Vec<ObjectIdentifier>,
    /// Further names of the owner. Empty: the extension is left out.
    pub alternative_names: GeneralNames,
}

/// A name and a key that sign certificates.
#[derive(Clone, Debug)]
pub struct Issuer {
    name: Name,
    key_identifier: Option<OctetString>,
    not_after: Timestamp,
    key: PrivateKey,
}

impl Issuer {
    /// A new authority that signs its own certificate; the certificate is DER. `template` has no alternative names of use.
    pub fn self_signed(template: CertificateTemplate, key: PrivateKey) -> Result<(Self, Vec<u8>), IssueError> {
        let public_key = key.public_key().clone();
        let key_identifier = OctetString::new(
            &digest(&SHA256, public_key.subject_public_key.raw_bytes()).as_ref()[..KEY_IDENTIFIER_BYTES],
        )?;
        let issuer =
            Issuer { name: template.subject.clone(), key_identifier: None, not_after: template.not_after, key };
        let authority = Some(SubjectKeyIdentifier(key_identifier.clone()));
        let certificate = issuer.encode(template, public_key, authority)?;
        Ok((Issuer { key_identifier: Some(key_identifier), ..issuer }, certificate))
    }

    /// The authority whose certificate is the first in `certificate_pem`. Its name and key identifier are kept byte by byte,
    /// so that clients of an authority that openssl or kubeadm made find it as the issuer of what is signed here.
    pub fn from_pem(certificate_pem: &str, key: PrivateKey) -> Result<(Self, CertificateDer<'static>), IssuerError> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(IssuerError::Pem)?;
        let certificate = Certificate::from_der(&der)?.tbs_certificate;
        if certificate.subject_public_key_info.subject_public_key != key.public_key().subject_public_key {
            return Err(IssuerError::Key);
        }
        if certificate.get::<BasicConstraints>()?.is_some_and(|(_, constraints)| !constraints.ca) {
            return Err(IssuerError::NoAuthority("its basic constraints say that it is none"));
        }
        if certificate.get::<KeyUsage>()?.is_some_and(|(_, usage)| !usage.key_cert_sign()) {
            return Err(IssuerError::NoAuthority("its key usage lacks certificate signing"));
        }
        let issuer = Issuer {
            key_identifier: certificate.get::<SubjectKeyIdentifier>()?.map(|(_, identifier)| identifier.0),
            not_after: timestamp(certificate.validity.not_after),
            name: certificate.subject,
            key,
        };
        Ok((issuer, der))
    }

    /// When the issuer's own certificate ends.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// The issuer's key.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// A certificate in DER for the owner of `public_key`, who is no authority.
    ///
    /// Extensions and their order are those of Go 1.26 crypto/x509 `CreateCertificate`.
    pub fn sign(
        &self,
        template: CertificateTemplate,
        public_key: SubjectPublicKeyInfoOwned,
    ) -> Result<Vec<u8>, IssueError> {
        self.encode(template, public_key, None)
    }

    /// An authority's certificate if `authority` is its key identifier.
    fn encode(
        &self,
        template: CertificateTemplate,
        public_key: SubjectPublicKeyInfoOwned,
        authority: Option<SubjectKeyIdentifier>,
    ) -> Result<Vec<u8>, IssueError> {
        let mut extensions = Vec::new();
        if !template.usages.is_empty() {
            extensions.push(extension(true, &KeyUsage(template.usages))?);
        }
        if !template.extended_usages.is_empty() {
            extensions.push(extension(false, &ExtendedKeyUsage(template.extended_usages))?);
        }
        let constraints = BasicConstraints { ca: authority.is_some(), path_len_constraint: None };
        extensions.push(extension(true, &constraints)?);
        if let Some(identifier) = authority {
            extensions.push(extension(false, &identifier)?);
        }
        if let Some(identifier) = &self.key_identifier {
            let key_identifier = Some(identifier.clone());
            extensions.push(extension(false, &AuthorityKeyIdentifier { key_identifier, ..Default::default() })?);
        }
        if !template.alternative_names.is_empty() {
            extensions.push(extension(template.subject.is_empty(), &SubjectAltName(template.alternative_names))?);
        }
        let certificate = TbsCertificate {
            version: Version::V3,
            serial_number: serial_number()?,
            signature: self.key.signature_algorithm().clone(),
            issuer: self.name.clone(),
            validity: Validity { not_before: time(template.not_before)?, not_after: time(template.not_after)? },
            subject: template.subject,
            subject_public_key_info: public_key,
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(extensions),
        };
        let signature = BitString::from_bytes(&self.key.sign(&certificate.to_der()?)?)?;
        let signature_algorithm = certificate.signature.clone();
        Ok(Certificate { tbs_certificate: certificate, signature_algorithm, signature }.to_der()?)
    }
}

/// A certificate in DER as PEM.
///
/// # Errors
/// If it is too long for PEM.
pub fn to_pem(certificate: &[u8]) -> Result<String, IssueError> {
    pem::encode_string("CERTIFICATE", LineEnding::LF, certificate).map_err(|error| IssueError::Encode(error.into()))
}

/// A time in a certificate; times after the year 9999 count as its end.
pub fn timestamp(time: Time) -> Timestamp {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

fn extension<T: AssociatedOid + Encode>(critical: bool, value: &T) -> der::Result<Extension> {
    Ok(Extension { extn_id: T::OID, critical, extn_value: OctetString::new(value.to_der()?)? })
}

fn serial_number() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0; SERIAL_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| IssueError::Serial)?;
    Ok(SerialNumber::new(&bytes)?)
}

/// UTCTime up to 2049, GeneralizedTime after that (RFC 5280 §4.1.2.5); times before 1970 count as its begin.
fn time(at: Timestamp) -> der::Result<Time> {
    let at = DateTime::from_unix_duration(Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default()))?;
    Ok(UtcTime::from_date_time(at).map_or_else(|_| GeneralizedTime::from_date_time(at).into(), Time::from))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::RootCertStore;
    use rustls::pki_types::UnixTime;
    use rustls::server::WebPkiClientVerifier;
    use x509_cert::der::oid::db::rfc5280::ID_KP_CLIENT_AUTH;
    use x509_cert::ext::pkix::name::GeneralName;

    use super::*;
    use crate::certificate::distinguished_name;

    const EC_CERTIFICATE: &str = include_str!("testdata/ca-ec.crt");
    const EC_KEY: &str = include_str!("testdata/ca-ec.key");
    const RSA_CERTIFICATE: &str = include_str!("testdata/ca-rsa.crt");
    const RSA_KEY: &str = include_str!("testdata/ca-rsa.key");

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn template(common_name: &str) -> CertificateTemplate {
        CertificateTemplate {
            subject: distinguished_name::new(["dev"], common_name).unwrap(),
            not_before: at("2030-01-01T00:00:00Z"),
            not_after: at("2060-01-01T00:00:00Z"),
            usages: KeyUsages::DigitalSignature.into(),
            extended_usages: vec![ID_KP_CLIENT_AUTH],
            alternative_names: Vec::new(),
        }
    }

    fn key(pem: &str) -> PrivateKey {
        PrivateKey::from_pem(pem).unwrap()
    }

    #[test]
    fn what_an_authority_signs_is_trusted_by_who_trusts_it() {
        let mut authorities = vec![
            ("openssl ECDSA", Issuer::from_pem(EC_CERTIFICATE, key(EC_KEY)).unwrap()),
            ("openssl RSA, two units", Issuer::from_pem(RSA_CERTIFICATE, key(RSA_KEY)).unwrap()),
        ];
        let mut own = template("kubernetes");
        own.usages = KeyUsages::KeyCertSign.into();
        own.extended_usages.clear();
        for name in [include_str!("testdata/ed25519.key"), include_str!("testdata/p384.key")] {
            let (issuer, certificate) = Issuer::self_signed(own.clone(), key(name)).unwrap();
            authorities.push(("its own", (issuer, certificate.into())));
        }
        for (name, (issuer, certificate)) in authorities {
            let mut roots = RootCertStore::empty();
            roots.add(certificate.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            let leaf = issuer.sign(template("jane"), PrivateKey::generate().unwrap().public_key().clone()).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(2_000_000_000));
            verifier
                .verify_client_cert(&leaf.clone().into(), &[], now)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let (authority, leaf) =
                (Certificate::from_der(&certificate).unwrap(), Certificate::from_der(&leaf).unwrap());
            assert_eq!(leaf.tbs_certificate.issuer, authority.tbs_certificate.subject, "{name}");
            let identifier = authority.tbs_certificate.get::<SubjectKeyIdentifier>().unwrap().unwrap().1.0;
            let named = leaf.tbs_certificate.get::<AuthorityKeyIdentifier>().unwrap().unwrap().1;
            assert_eq!(named.key_identifier, Some(identifier), "{name}");
            assert_eq!(issuer.not_after(), timestamp(authority.tbs_certificate.validity.not_after), "{name}");
        }
    }

    #[test]
    fn a_certificate_says_what_its_template_says() {
        let (issuer, _) = Issuer::from_pem(EC_CERTIFICATE, key(EC_KEY)).unwrap();
        let owner = PrivateKey::generate().unwrap();
        let names = vec![GeneralName::IpAddress(OctetString::new([10, 0, 0, 1]).unwrap())];
        let full = CertificateTemplate { alternative_names: names.clone(), ..template("jane") };
        let signed = issuer.sign(full, owner.public_key().clone()).unwrap();
        let certificate = Certificate::from_der(&signed).unwrap().tbs_certificate;
        assert_eq!(distinguished_name::common_names(&certificate.subject), ["jane"]);
        assert_eq!(certificate.subject_public_key_info, *owner.public_key());
        assert!(matches!(certificate.validity.not_before, Time::UtcTime(_)), "up to 2049");
        assert!(matches!(certificate.validity.not_after, Time::GeneralTime(_)), "from 2050");
        assert_eq!(timestamp(certificate.validity.not_after), at("2060-01-01T00:00:00Z"));
        let usage = certificate.get::<KeyUsage>().unwrap().unwrap();
        assert!(usage.0 && usage.1.digital_signature() && !usage.1.key_cert_sign());
        assert_eq!(
            certificate.get::<ExtendedKeyUsage>().unwrap().unwrap(),
            (false, ExtendedKeyUsage(vec![ID_KP_CLIENT_AUTH]))
        );
        assert!(!certificate.get::<BasicConstraints>().unwrap().unwrap().1.ca);
        assert_eq!(certificate.get::<SubjectAltName>().unwrap().unwrap(), (false, SubjectAltName(names.clone())));

        let bare = CertificateTemplate {
            subject: Name::default(),
            usages: FlagSet::default(),
            extended_usages: Vec::new(),
            alternative_names: names,
            ..template("")
        };
        let signed = issuer.sign(bare, owner.public_key().clone()).unwrap();
        let certificate = Certificate::from_der(&signed).unwrap().tbs_certificate;
        assert!(certificate.get::<KeyUsage>().unwrap().is_none());
        assert!(certificate.get::<ExtendedKeyUsage>().unwrap().is_none());
        assert!(certificate.get::<SubjectAltName>().unwrap().unwrap().0, "critical without a subject");
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        let (issuer, _) = Issuer::from_pem(EC_CERTIFICATE, key(EC_KEY)).unwrap();
        let owner = PrivateKey::generate().unwrap();
        let leaf = to_pem(&issuer.sign(template("jane"), owner.public_key().clone()).unwrap()).unwrap();
        let (_, idle) = Issuer::self_signed(template("idle"), owner.clone()).unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        for (pem, key, want) in [
            ("", &owner, "want a PEM certificate"),
            (broken, &owner, "want an X.509 certificate"),
            (EC_CERTIFICATE, &owner, "the private key belongs to another certificate"),
            (&leaf, &owner, "want a certificate authority: its basic constraints say that it is none"),
            (&to_pem(&idle).unwrap(), &owner, "want a certificate authority: its key usage lacks certificate signing"),
        ] {
            assert_eq!(Issuer::from_pem(pem, key.clone()).unwrap_err().to_string(), want);
        }
    }
}
