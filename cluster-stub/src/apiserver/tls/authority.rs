//! A certificate authority that signs serving and client certificates. Keeps its key in memory; files are `pki`'s.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use cluster_stub_base::certificate::distinguished_name;
use cluster_stub_base::certificate::issuer::{self, CertificateTemplate, IssueError, Issuer, IssuerError};
use cluster_stub_base::certificate::private_key::{PrivateKey, PrivateKeyError};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_cert::der::asn1::Ia5String;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5280::{ID_KP_CLIENT_AUTH, ID_KP_SERVER_AUTH};
use x509_cert::ext::pkix::KeyUsages;
use x509_cert::ext::pkix::name::GeneralName;

/// How long an authority's own certificate lasts, as kubeadm makes them.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long the certificates that it signs last, as kubeadm makes them.
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Certificates start this long ago, so that a client whose clock is behind accepts them.
const BACKDATE: Duration = Duration::from_secs(300);

/// Why a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The key could not be generated.
    #[error("cannot make the key of \"{subject}\"")]
    Key {
        /// Common name of the certificate.
        subject: String,
        /// What failed.
        #[source]
        source: PrivateKeyError,
    },
    /// The certificate could not be made.
    #[error("cannot make the certificate of \"{subject}\"")]
    Issue {
        /// Common name of the certificate.
        subject: String,
        /// What failed.
        #[source]
        source: IssueError,
    },
    /// Stored PEM is no private key.
    #[error("cannot read the certificate authority's key")]
    ReadKey(#[source] PrivateKeyError),
    /// Stored PEM is no certificate authority, or another's than the key.
    #[error("cannot read the certificate authority")]
    Read(#[source] IssuerError),
}

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Validity {
    /// From five minutes before `now` for `lifetime`.
    pub fn starting(now: Timestamp, lifetime: Duration) -> Self {
        let not_before = now.saturating_sub(BACKDATE).unwrap_or(now);
        Validity { not_before, not_after: now.saturating_add(lifetime).unwrap_or(Timestamp::MAX) }
    }

    /// Exactly from `not_before` to `not_after`.
    pub fn between(not_before: Timestamp, not_after: Timestamp) -> Self {
        Validity { not_before, not_after }
    }
}

/// A certificate with its private key, both PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate, `BEGIN CERTIFICATE`.
    pub certificate_pem: String,
    /// The PKCS#8 key, `BEGIN PRIVATE KEY`.
    pub key_pem: String,
}

impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedCertificate").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

/// An authority. The keys that it makes are ECDSA P-256; its own may be any that `PrivateKey` reads.
pub struct CertificateAuthority {
    issuer: Issuer,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// A new authority with a new key, named `common_name`.
    pub fn generate(common_name: &str, now: Timestamp) -> Result<Self, CertificateError> {
        let failed = |source| CertificateError::Issue { subject: common_name.to_owned(), source };
        let mut template = template(common_name, "", Validity::starting(now, AUTHORITY_LIFETIME))?;
        template.usages |= KeyUsages::KeyCertSign;
        let (issuer, certificate) = Issuer::self_signed(template, new_key(common_name)?).map_err(failed)?;
        let certificate_pem = issuer::to_pem(&certificate).map_err(failed)?;
        Ok(CertificateAuthority { issuer, certificate: certificate.into(), certificate_pem })
    }

    /// The authority that `certificate_pem` and `key_pem` describe, whoever made them.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let key = PrivateKey::from_pem(key_pem).map_err(CertificateError::ReadKey)?;
        let (issuer, certificate) = Issuer::from_pem(certificate_pem, key).map_err(CertificateError::Read)?;
        Ok(CertificateAuthority { issuer, certificate, certificate_pem: certificate_pem.to_owned() })
    }

    /// The authority's certificate in PEM, for trust bundles.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The authority's private key in PEM, for `pki` to store and for the controller that signs requests.
    pub fn key_pem(&self) -> &str {
        self.issuer.key().pem()
    }

    /// A new key with a serving certificate for `names`, each an IP address or a DNS name.
    pub fn issue_server(
        &self,
        common_name: &str,
        names: &[String],
        now: Timestamp,
    ) -> Result<IssuedCertificate, CertificateError> {
        let mut template = template(common_name, "", Validity::starting(now, LEAF_LIFETIME))?;
        for name in names {
            template.alternative_names.push(match name.parse::<IpAddr>() {
                Ok(address) => GeneralName::from(address),
                Err(_) => GeneralName::DnsName(Ia5String::new(name).map_err(encoding(common_name))?),
            });
        }
        self.issue(common_name, template, ID_KP_SERVER_AUTH)
    }

    /// A new key with a client certificate: `common_name` becomes the user name, `organization` the group.
    pub fn issue_client(
        &self,
        common_name: &str,
        organization: &str,
        now: Timestamp,
    ) -> Result<IssuedCertificate, CertificateError> {
        self.issue_client_for(common_name, organization, Validity::starting(now, LEAF_LIFETIME))
    }

    /// As `issue_client`, good for `validity`.
    pub fn issue_client_for(
        &self,
        common_name: &str,
        organization: &str,
        validity: Validity,
    ) -> Result<IssuedCertificate, CertificateError> {
        self.issue(common_name, template(common_name, organization, validity)?, ID_KP_CLIENT_AUTH)
    }

    fn issue(
        &self,
        common_name: &str,
        mut template: CertificateTemplate,
        purpose: ObjectIdentifier,
    ) -> Result<IssuedCertificate, CertificateError> {
        let failed = |source| CertificateError::Issue { subject: common_name.to_owned(), source };
        template.extended_usages.push(purpose);
        let key = new_key(common_name)?;
        let certificate = self.issuer.sign(template, key.public_key().clone()).map_err(failed)?;
        let certificate_pem = issuer::to_pem(&certificate).map_err(failed)?;
        Ok(IssuedCertificate { certificate_pem, key_pem: key.pem().to_owned() })
    }
}

fn new_key(common_name: &str) -> Result<PrivateKey, CertificateError> {
    PrivateKey::generate().map_err(|source| CertificateError::Key { subject: common_name.to_owned(), source })
}

fn template(
    common_name: &str,
    organization: &str,
    validity: Validity,
) -> Result<CertificateTemplate, CertificateError> {
    let organizations = (!organization.is_empty()).then_some(organization);
    Ok(CertificateTemplate {
        subject: distinguished_name::new(organizations, common_name).map_err(encoding(common_name))?,
        not_before: validity.not_before,
        not_after: validity.not_after,
        usages: KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment,
        extended_usages: Vec::new(),
        alternative_names: Vec::new(),
    })
}

fn encoding(common_name: &str) -> impl Fn(x509_cert::der::Error) -> CertificateError {
    move |error| CertificateError::Issue { subject: common_name.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use x509_cert::Certificate;
    use x509_cert::der::DecodePem as _;
    use x509_cert::ext::pkix::SubjectAltName;

    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T12:34:56Z".parse().unwrap()
    }

    #[test]
    fn an_authority_survives_its_pem_files() {
        let made = CertificateAuthority::generate("kubernetes", now()).unwrap();
        let read = CertificateAuthority::from_pem(made.certificate_pem(), made.key_pem()).unwrap();
        assert_eq!(read.certificate(), made.certificate());
    }

    #[test]
    fn a_key_of_another_authority_is_refused() {
        let one = CertificateAuthority::generate("a", now()).unwrap();
        let two = CertificateAuthority::generate("b", now()).unwrap();
        let error = CertificateAuthority::from_pem(one.certificate_pem(), two.key_pem()).unwrap_err();
        assert!(matches!(error, CertificateError::Read(IssuerError::Key)), "{error:?}");
    }

    #[test]
    fn certificates_carry_subject_and_exact_times() {
        let authority = CertificateAuthority::generate("kubernetes", now()).unwrap();
        let end: Timestamp = "2027-05-06T07:08:09Z".parse().unwrap();
        let issued = authority.issue_client_for("jane", "dev", Validity::between(now(), end)).unwrap();
        let certificate = Certificate::from_pem(&issued.certificate_pem).unwrap().tbs_certificate;
        assert_eq!(issuer::timestamp(certificate.validity.not_before), now());
        assert_eq!(issuer::timestamp(certificate.validity.not_after), end);
        assert_eq!(distinguished_name::common_names(&certificate.subject), ["jane"]);
        assert_eq!(distinguished_name::organizations(&certificate.subject), ["dev"]);
    }

    #[test]
    fn serving_names_are_addresses_or_dns_names() {
        let authority = CertificateAuthority::generate("kubernetes", now()).unwrap();
        let issued = authority.issue_server("kube-apiserver", &["localhost".into(), "::1".into()], now()).unwrap();
        let certificate = Certificate::from_pem(&issued.certificate_pem).unwrap().tbs_certificate;
        let names = certificate.get::<SubjectAltName>().unwrap().unwrap().1.0;
        let address: IpAddr = "::1".parse().unwrap();
        assert_eq!(names, [GeneralName::DnsName(Ia5String::new("localhost").unwrap()), address.into()]);
        let error = authority.issue_server("kube-apiserver", &["münchen".into()], now()).unwrap_err();
        assert_eq!(error.to_string(), "cannot make the certificate of \"kube-apiserver\"");
    }
}
