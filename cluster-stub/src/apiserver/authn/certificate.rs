//! Client certificates: verification against an authority, common name to user, organizations to groups.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster_stub_base::certificate::{distinguished_name, issuer};
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::UserInfo;
use super::user::with_authenticated_group;

/// Extra key with the id of the credential. Upstream v1.36.2: apiserver/pkg/authentication/user/user.go.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Certificates that are remembered; when they are as many, all are forgotten.
const MAX_KNOWN: usize = 1024;

/// Accepts certificates that one authority signed for client authentication. Remembers those that were good: a client
/// shows the same one with every request, and a signature takes longer to verify than most requests take.
#[derive(Debug)]
pub struct CertificateVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    known: Mutex<BTreeMap<Box<[u8]>, Known>>,
}

/// A certificate that was good.
#[derive(Debug)]
struct Known {
    subject: Subject,
    user: Option<Arc<UserInfo>>,
    verified: Timestamp,
    not_after: Timestamp,
}

impl CertificateVerifier {
    /// A verifier that trusts `authority`. The error says why that certificate cannot be an authority.
    pub fn new(authority: &CertificateDer<'static>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|e| e.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| e.to_string())?;
        Ok(CertificateVerifier { verifier, known: Mutex::default() })
    }

    /// The user of the first certificate of `chain`, in the group of all who are authenticated, if it is good at `now`;
    /// otherwise why not. `None` when it has no common name.
    pub fn user(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Option<Arc<UserInfo>>, String> {
        if let [leaf] = chain
            && let Some(user) = self.remembered(leaf, now, |known| known.user.clone())
        {
            return Ok(user);
        }
        Ok(self.verify(chain, now)?.user().map(Arc::new))
    }

    /// The subject of the first certificate of `chain`, if it is good at `now`; otherwise why not.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Subject, String> {
        let [leaf, intermediates @ ..] = chain else { return Err("no certificate".into()) };
        if intermediates.is_empty()
            && let Some(subject) = self.remembered(leaf, now, |known| known.subject.clone())
        {
            return Ok(subject);
        }
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let unix = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.verifier.verify_client_cert(leaf, intermediates, unix).map_err(|e| e.to_string())?;
        let (subject, not_after) = Subject::read(leaf)?;
        if intermediates.is_empty() {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            let user = subject.clone().user().map(Arc::new);
            known.insert(leaf.as_ref().into(), Known { subject: subject.clone(), user, verified: now, not_after });
        }
        Ok(subject)
    }

    /// Something about a certificate that was good before, if it cannot have become bad.
    fn remembered<T>(&self, leaf: &CertificateDer<'_>, now: Timestamp, of: impl FnOnce(&Known) -> T) -> Option<T> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(leaf.as_ref())?;
        (known.verified <= now && now <= known.not_after).then(|| of(known))
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
    /// Subject and end of a certificate.
    fn read(certificate: &CertificateDer<'_>) -> Result<(Self, Timestamp), String> {
        let certified = Certificate::from_der(certificate).map_err(|e| e.to_string())?.tbs_certificate;
        let subject = Subject {
            common_name: distinguished_name::common_names(&certified.subject).pop().unwrap_or_default(),
            organizations: distinguished_name::organizations(&certified.subject),
            fingerprint: Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        Ok((subject, issuer::timestamp(certified.validity.not_after)))
    }

    /// The user of this subject, in the group of all who are authenticated; `None` without a common name. Upstream v1.36.2:
    /// apiserver/pkg/authentication/request/x509/x509.go CommonNameUserConversion.
    pub(super) fn user(self) -> Option<UserInfo> {
        if self.common_name.is_empty() {
            return None;
        }
        let credential = vec![format!("X509SHA256={}", self.fingerprint)];
        Some(with_authenticated_group(UserInfo {
            name: self.common_name,
            groups: self.organizations,
            extra: [(CREDENTIAL_ID.to_owned(), credential)].into(),
            ..UserInfo::default()
        }))
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
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("jane", ["dev".to_owned(), "system:authenticated".to_owned()].as_slice())
        );
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert!(verifier.verify(&[client(&authority, past, soon)], now).is_err(), "expired");
        assert!(verifier.verify(&[client(&authority, later, "2028-01-01T00:00:00Z")], now).is_err(), "not yet good");
        assert!(verifier.verify(&[client(&stranger, past, later)], now).is_err(), "another authority");
        let short = [client(&authority, past, "2026-05-01T00:01:00Z")];
        for (time, is_good) in [
            ("2026-05-01T00:00:00Z", true),
            ("2026-05-01T00:00:59Z", true),
            ("2026-05-01T00:01:01Z", false),
            ("2026-03-01T00:00:00Z", false),
        ] {
            assert_eq!(verifier.verify(&short, at(time)).is_ok(), is_good, "remembered, at {time}");
            let fresh = CertificateVerifier::new(authority.certificate()).unwrap().user(&short, at(time));
            assert_eq!(verifier.user(&short, at(time)).ok(), fresh.ok(), "the user, at {time}");
        }
        let serving = authority.issue_server("jane", &["localhost".into()], now).unwrap();
        assert!(verifier.verify(&[der(&serving.certificate_pem)], now).is_err(), "a serving certificate");
        assert!(verifier.verify(&[], now).is_err(), "nothing");
    }
}
