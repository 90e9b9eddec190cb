//! A certificate authority that signs serving and client certificates. Keeps its key in memory; files are `pki`'s.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// How long an authority's own certificate lasts, as kubeadm makes them.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long the certificates that it signs last, as kubeadm makes them.
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Certificates start this long ago, so that a client whose clock is behind accepts them.
const BACKDATE: Duration = Duration::from_secs(300);

/// Why a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The key or the certificate could not be generated.
    #[error("cannot make the certificate of \"{subject}\"")]
    Generate {
        /// Common name of the certificate.
        subject: String,
        /// What the generator said.
        #[source]
        source: rcgen::Error,
    },
    /// Stored PEM is no certificate authority.
    #[error("cannot read the certificate authority: {what}")]
    Read {
        /// What was expected and is not there.
        what: String,
    },
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

    fn set(self, params: &mut CertificateParams) {
        let at = |t: Timestamp| {
            let date = t.to_zoned(TimeZone::UTC).date();
            let midnight = date.at(0, 0, 0, 0).to_zoned(TimeZone::UTC).map(|z| z.timestamp()).unwrap_or(t);
            let since_midnight = Duration::from_secs(t.as_second().saturating_sub(midnight.as_second()).unsigned_abs());
            rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
                + since_midnight
        };
        params.not_before = at(self.not_before);
        params.not_after = at(self.not_after);
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

/// A self-signed authority. Keys are ECDSA P-256.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
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
        let failed = |source| CertificateError::Generate { subject: common_name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(common_name, "");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::KeyEncipherment];
        Validity::starting(now, AUTHORITY_LIFETIME).set(&mut params);
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(CertificateAuthority {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority that `certificate_pem` and `key_pem` describe.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let unreadable = |what: String| CertificateError::Read { what };
        let key = KeyPair::from_pem(key_pem).map_err(|e| unreadable(format!("want a PKCS#8 private key: {e}")))?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|e| unreadable(format!("want a PEM certificate: {e}")))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|e| unreadable(format!("want an X.509 certificate: {e}")))?;
        if parsed.public_key().subject_public_key.data != key.public_key_raw() {
            return Err(unreadable("the private key belongs to another certificate".into()));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|e| unreadable(format!("want a certificate authority: {e}")))?;
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
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A new key with a serving certificate for `names`, each an IP address or a DNS name.
    pub fn issue_server(
        &self,
        common_name: &str,
        names: &[String],
        now: Timestamp,
    ) -> Result<IssuedCertificate, CertificateError> {
        let failed = |source| CertificateError::Generate { subject: common_name.to_owned(), source };
        let mut params = leaf(common_name, "", ExtendedKeyUsagePurpose::ServerAuth);
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into().map_err(failed)?),
            });
        }
        self.issue(common_name, params, Validity::starting(now, LEAF_LIFETIME))
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
        self.issue(common_name, leaf(common_name, organization, ExtendedKeyUsagePurpose::ClientAuth), validity)
    }

    fn issue(
        &self,
        common_name: &str,
        mut params: CertificateParams,
        validity: Validity,
    ) -> Result<IssuedCertificate, CertificateError> {
        let failed = |source| CertificateError::Generate { subject: common_name.to_owned(), source };
        validity.set(&mut params);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(IssuedCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

fn leaf(common_name: &str, organization: &str, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(common_name, organization);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    params
}

fn subject(common_name: &str, organization: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if !organization.is_empty() {
        name.push(DnType::OrganizationName, DnValue::Utf8String(organization.to_owned()));
    }
    name.push(DnType::CommonName, DnValue::Utf8String(common_name.to_owned()));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T12:34:56Z".parse().unwrap()
    }

    #[test]
    fn an_authority_survives_its_pem_files() {
        let made = CertificateAuthority::generate("kubernetes", now()).unwrap();
        let read = CertificateAuthority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
        assert_eq!(read.certificate(), made.certificate());
    }

    #[test]
    fn a_key_of_another_authority_is_refused() {
        let one = CertificateAuthority::generate("a", now()).unwrap();
        let two = CertificateAuthority::generate("b", now()).unwrap();
        let error = CertificateAuthority::from_pem(one.certificate_pem(), &two.key_pem()).unwrap_err();
        assert!(error.to_string().contains("belongs to another certificate"), "{error}");
    }

    #[test]
    fn certificates_carry_subject_and_exact_times() {
        let authority = CertificateAuthority::generate("kubernetes", now()).unwrap();
        let end: Timestamp = "2027-05-06T07:08:09Z".parse().unwrap();
        let issued = authority.issue_client_for("jane", "dev", Validity::between(now(), end)).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(parsed.validity().not_before.timestamp(), now().as_second());
        assert_eq!(parsed.validity().not_after.timestamp(), end.as_second());
        let subject = parsed.subject();
        assert_eq!(subject.iter_common_name().next().unwrap().as_str().unwrap(), "jane");
        let groups: Vec<_> = subject.iter_organization().map(|o| o.as_str().unwrap()).collect();
        assert_eq!(groups, ["dev"]);
    }
}
