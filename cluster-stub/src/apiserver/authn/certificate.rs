//! Client certificates: verification against an authority, common name to user, organizations to groups.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};

use super::UserInfo;

/// Extra key with the id of the credential. Upstream v1.36.2: apiserver/pkg/authentication/user/user.go.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Accepts certificates that one authority signed for client authentication.
#[derive(Debug)]
pub struct CertificateVerifier(Arc<dyn ClientCertVerifier>);

impl CertificateVerifier {
    /// A verifier that trusts `authority`. The error says why that certificate cannot be an authority.
    pub fn new(authority: &CertificateDer<'static>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|e| e.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| e.to_string())?;
        Ok(CertificateVerifier(verifier))
    }

    /// The subject of the first certificate of `chain`, if it is good at `now`; otherwise why not.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Subject, String> {
        let [leaf, intermediates @ ..] = chain else { return Err("no certificate".into()) };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.0.verify_client_cert(leaf, intermediates, now).map_err(|e| e.to_string())?;
        Subject::read(leaf)
    }
}

/// What a certificate says about its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Common name.
    pub common_name: String,
    /// Organizations in their order.
    pub organizations: Vec<String>,
    fingerprint: String,
}

impl Subject {
    fn read(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|e| e.to_string())?;
        let texts = |attributes: &mut dyn Iterator<Item = &x509_parser::x509::AttributeTypeAndValue<'_>>| {
            attributes.filter_map(|a| a.as_str().ok().map(str::to_owned)).collect::<Vec<_>>()
        };
        let subject = parsed.subject();
        Ok(Subject {
            common_name: texts(&mut subject.iter_common_name()).pop().unwrap_or_default(),
            organizations: texts(&mut subject.iter_organization()),
            fingerprint: Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// The user of this subject, `None` without a common name. Upstream v1.36.2:
    /// apiserver/pkg/authentication/request/x509/x509.go CommonNameUserConversion.
    pub(super) fn user(self) -> Option<UserInfo> {
        if self.common_name.is_empty() {
            return None;
        }
        let credential = vec![format!("X509SHA256={}", self.fingerprint)];
        Some(UserInfo {
            name: self.common_name,
            groups: self.organizations,
            extra: [(CREDENTIAL_ID.to_owned(), credential)].into(),
            ..UserInfo::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::apiserver::tls::{CertificateAuthority, Validity};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn good_certificates_name_user_and_group_others_are_refused() {
        let now = at("2026-05-01T00:00:00Z");
        let authority = CertificateAuthority::generate("kubernetes", now).unwrap();
        let stranger = CertificateAuthority::generate("kubernetes", now).unwrap();
        let verifier = CertificateVerifier::new(authority.certificate()).unwrap();
        let client = |authority: &CertificateAuthority, from, to| {
            der(&authority
                .issue_client_for("jane", "dev", Validity::between(at(from), at(to)))
                .unwrap()
                .certificate_pem)
        };
        let (past, soon, later) = ("2026-04-01T00:00:00Z", "2026-04-30T00:00:00Z", "2027-01-01T00:00:00Z");
        let user = verifier.verify(&[client(&authority, past, later)], now).unwrap().user().unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("jane", ["dev".to_owned()].as_slice()));
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert!(verifier.verify(&[client(&authority, past, soon)], now).is_err(), "expired");
        assert!(verifier.verify(&[client(&authority, later, "2028-01-01T00:00:00Z")], now).is_err(), "not yet good");
        assert!(verifier.verify(&[client(&stranger, past, later)], now).is_err(), "another authority");
        let serving = authority.issue_server("jane", &["localhost".into()], now).unwrap();
        assert!(verifier.verify(&[der(&serving.certificate_pem)], now).is_err(), "a serving certificate");
        assert!(verifier.verify(&[], now).is_err(), "nothing");
    }
}
