//! The certificate signing controllers: sign what was approved, with the cluster's CA. Approving is for people.

use std::sync::Arc;
use std::time::Duration;

use cluster_stub_base::certificate::distinguished_name;
use cluster_stub_base::certificate::issuer::{self, CertificateTemplate, Issuer, IssuerError};
use cluster_stub_base::certificate::private_key::{PrivateKey, PrivateKeyError};
use cluster_stub_base::certificate::request::CertificateRequest;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use x509_cert::der::flagset::FlagSet;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::KeyUsages;

use super::options::SigningCa;
use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

/// Longest life of a certificate. Upstream: `--cluster-signing-duration`, one year.
const MAX_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Shortest life of a certificate. Upstream: certificates/signer/signer.go v1.36.2 `duration`.
const MIN_LIFE: Duration = Duration::from_secs(10 * 60);
/// A certificate is good a little before it is made, for clocks that are behind. Upstream: authority/policies.go v1.36.2.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// A life below this is not shortened by `BACKDATE`. Upstream: signer.go v1.36.2 `sign`.
const SHORT_LIFE: Duration = Duration::from_secs(8 * 3600);

/// Usages with their bit in the key usage. Upstream: authority/policies.go v1.36.2 `keyUsageDict`.
const USAGES: [(&str, KeyUsages); 10] = [
    ("signing", KeyUsages::DigitalSignature),
    ("digital signature", KeyUsages::DigitalSignature),
    ("content commitment", KeyUsages::NonRepudiation),
    ("key encipherment", KeyUsages::KeyEncipherment),
    ("key agreement", KeyUsages::KeyAgreement),
    ("data encipherment", KeyUsages::DataEncipherment),
    ("cert sign", KeyUsages::KeyCertSign),
    ("crl sign", KeyUsages::CRLSign),
    ("encipher only", KeyUsages::EncipherOnly),
    ("decipher only", KeyUsages::DecipherOnly),
];

/// Usages with their purpose in the extended key usage, in the order in which they are written.
/// Upstream: authority/policies.go v1.36.2 `extKeyUsageDict`, Go 1.26 crypto/x509 `ExtKeyUsage`.
const EXTENDED_USAGES: [(&str, ObjectIdentifier); 13] = [
    ("any", ObjectIdentifier::new_unwrap("2.5.29.37.0")),
    ("server auth", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1")),
    ("client auth", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2")),
    ("code signing", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.3")),
    ("email protection", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.4")),
    ("s/mime", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.4")),
    ("ipsec end system", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.5")),
    ("ipsec tunnel", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.6")),
    ("ipsec user", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.7")),
    ("timestamping", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.8")),
    ("ocsp signing", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9")),
    ("microsoft sgc", ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.10.3.3")),
    ("netscape sgc", ObjectIdentifier::new_unwrap("2.16.840.1.113730.4.1")),
];

/// What a signer allows: its name, the usages that it signs, and one that must be there.
/// Upstream: certificates/signer/signer.go v1.36.2 `getCSRVerificationFuncForSignerName`.
const SIGNERS: [(&str, &[&str], Option<&str>); 4] = [
    (
        "kubernetes.io/kube-apiserver-client",
        &["key encipherment", "digital signature", "client auth"],
        Some("client auth"),
    ),
    (
        "kubernetes.io/kube-apiserver-client-kubelet",
        &["key encipherment", "digital signature", "client auth"],
        Some("client auth"),
    ),
    ("kubernetes.io/kubelet-serving", &["key encipherment", "digital signature", "server auth"], Some("server auth")),
    ("kubernetes.io/legacy-unknown", &[], None),
];

struct Signer {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
    authority: Issuer,
}

/// Starts the signer, if there is a CA to sign with.
pub(super) fn start(context: &Context) {
    let Some(ca) = &context.options.signing_ca else { return };
    let authority = match authority(ca) {
        Ok(authority) => authority,
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the signing CA is unusable; nothing will be signed"
            );
            return;
        }
    };
    let signer = Arc::new(Signer {
        api: context.api("certificate-controller"),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
        authority,
    });
    let queue = signer.queue.clone();
    context.informers.certificate_signing_requests.on_change(move |delta| {
        if !delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    context.run(&signer, 2);
}

/// Why the signing CA is of no use.
#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error("the CA's private key")]
    Key(#[from] PrivateKeyError),
    #[error("the CA's certificate")]
    Certificate(#[from] IssuerError),
}

fn authority(ca: &SigningCa) -> Result<Issuer, AuthorityError> {
    Ok(Issuer::from_pem(&ca.certificate_pem, PrivateKey::from_pem(&ca.key_pem)?)?.0)
}

/// Why a request is not signed, if its signer is one of ours and refuses it; `None` if there is nothing against it.
fn refusal(spec: &CertificateSigningRequestSpec) -> Option<&'static str> {
    let (_, allowed, required) = SIGNERS.iter().find(|(name, ..)| *name == spec.signer_name)?;
    let usages = spec.usages.as_deref().unwrap_or_default();
    let outside = !allowed.is_empty() && usages.iter().any(|usage| !allowed.contains(&usage.as_str()));
    let missing = required.is_some_and(|required| !usages.iter().any(|usage| usage == required));
    (outside || missing).then_some("usages did not match the signer's")
}

/// Signs `spec`; the answer is PEM. Upstream: certificates/authority/authority.go v1.36.2 `Sign`.
fn sign(spec: &CertificateSigningRequestSpec, authority: &Issuer, now: Timestamp) -> Result<String, String> {
    let request = CertificateRequest::from_pem(&spec.request.0).map_err(|error| error.to_string())?;
    let usages = spec.usages.as_deref().unwrap_or_default();
    let (not_before, not_after) = validity(life(spec.expiration_seconds), authority.not_after(), now)?;
    let template = CertificateTemplate {
        subject: distinguished_name::as_go_writes(&request.subject).map_err(|error| error.to_string())?,
        not_before,
        not_after,
        usages: key_usages(usages)?,
        extended_usages: extended_usages(usages),
        alternative_names: request.alternative_names,
    };
    let signed = authority.sign(template, request.public_key).and_then(|certificate| issuer::to_pem(&certificate));
    signed.map_err(|error| format!("failed to sign certificate: {error}"))
}

/// How long a certificate lasts. Upstream: certificates/signer/signer.go v1.36.2 `duration`.
fn life(expiration_seconds: Option<i32>) -> Duration {
    let asked = |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).clamp(MIN_LIFE, MAX_LIFE);
    expiration_seconds.map_or(MAX_LIFE, asked)
}

/// From when to when a certificate is good: never longer than its authority, whose end is `authority_end`.
/// Upstream: authority/policies.go v1.36.2 `apply`.
fn validity(life: Duration, authority_end: Timestamp, now: Timestamp) -> Result<(Timestamp, Timestamp), String> {
    let out_of_range = |error: jiff::Error| error.to_string();
    let not_before = now.checked_sub(BACKDATE).map_err(out_of_range)?;
    let after_now = if life < SHORT_LIFE { life } else { life - BACKDATE };
    let not_after = now.checked_add(after_now).map_err(out_of_range)?.min(authority_end);
    let end = authority_end.strftime("%Y-%m-%d %H:%M:%S +0000 UTC"); // as Go prints a time
    if not_before >= authority_end {
        return Err(format!("the signer has expired: NotAfter={end}"));
    }
    if now >= authority_end {
        return Err(format!("refusing to sign a certificate that expired in the past: NotAfter={end}"));
    }
    Ok((not_before, not_after))
}

/// The bits of `usages`; an error if one is known neither here nor among the extended ones.
/// Upstream: authority/policies.go v1.36.2 `keyUsagesFromStrings`.
fn key_usages(usages: &[String]) -> Result<FlagSet<KeyUsages>, String> {
    let mut bits = FlagSet::default();
    let mut unrecognized = Vec::new();
    for usage in usages {
        if let Some((_, bit)) = USAGES.iter().find(|(name, _)| name == usage) {
            bits |= *bit;
        } else if !EXTENDED_USAGES.iter().any(|(name, _)| name == usage) {
            unrecognized.push(format!("{usage:?}"));
        }
    }
    if unrecognized.is_empty() {
        return Ok(bits);
    }
    Err(format!("unrecognized usage values: [{}]", unrecognized.join(" ")))
}

fn extended_usages(usages: &[String]) -> Vec<ObjectIdentifier> {
    let named = EXTENDED_USAGES.iter().filter(|(name, _)| usages.iter().any(|usage| usage == name));
    let mut purposes: Vec<_> = named.map(|(_, purpose)| *purpose).collect();
    purposes.dedup(); // the two names of email protection are neighbours
    purposes
}

impl Reconcile for Signer {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-signing-controller"
    }

    fn kind(&self) -> &'static str {
        "CertificateSigningRequest"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: certificates/signer/signer.go v1.36.2 `handle`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(request) = self.informers.certificate_signing_requests.get(key) else { return Ok(()) };
        let status = request.status.clone().unwrap_or_default();
        let has = |kind: &str| status.conditions.iter().flatten().any(|it| it.type_ == kind && it.status != "False");
        let ours = SIGNERS.iter().any(|(name, ..)| *name == request.spec.signer_name);
        if !ours || !has("Approved") || has("Denied") || has("Failed") || status.certificate.is_some() {
            return Ok(());
        }
        let now = Timestamp::now();
        let signed = match refusal(&request.spec) {
            Some(why) => Err(("SignerValidationFailure", why.to_owned())),
            None => sign(&request.spec, &self.authority, now).map_err(|why| ("SigningError", why)),
        };
        let mut changed = request.as_ref().clone();
        let status = changed.status.get_or_insert_default();
        match signed {
            Ok(certificate) => status.certificate = Some(ByteString(certificate.into_bytes())),
            Err((reason, why)) => status.conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
                type_: "Failed".to_owned(),
                status: "True".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(why),
                last_update_time: Some(Time(now)),
                last_transition_time: Some(Time(now)),
            }),
        }
        self.api.update_status::<CertificateSigningRequest>(&changed).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use x509_cert::Certificate;
    use x509_cert::der::DecodePem as _;
    use x509_cert::der::oid::db::rfc5280::{ID_KP_CLIENT_AUTH, ID_KP_EMAIL_PROTECTION, ID_KP_SERVER_AUTH};
    use x509_cert::ext::pkix::{ExtendedKeyUsage, KeyUsage, SubjectAltName};

    use super::*;

    fn spec(signer: &str, usages: &[&str]) -> CertificateSigningRequestSpec {
        CertificateSigningRequestSpec {
            signer_name: signer.to_owned(),
            usages: Some(usages.iter().map(|usage| (*usage).to_owned()).collect()),
            ..CertificateSigningRequestSpec::default()
        }
    }

    #[test]
    fn a_signer_insists_on_its_usages() {
        let client = "kubernetes.io/kube-apiserver-client";
        assert_eq!(refusal(&spec(client, &["client auth"])), None);
        assert!(refusal(&spec(client, &["client auth", "server auth"])).is_some());
        assert!(refusal(&spec(client, &[])).is_some());
        assert_eq!(refusal(&spec("kubernetes.io/legacy-unknown", &[])), None);
    }

    /// Made by openssl: common name jane, organizations ops and dev, and one alternative name of each kind.
    const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBZzCCAQ0CAQAwODENMAsGA1UEAwwEamFuZTEMMAoGA1UECgwDb3BzMQwwCgYD
VQQKDANkZXYxCzAJBgNVBAYTAkRFMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
awEzvvS7UQPyOYdxESPMBXhnYXkgIJxUswoGK4JeZtQCQ/IyfmmIHTH+Jiy9qMgn
Z08eEaGi3/MySQSMn4rcsqBzMHEGCSqGSIb3DQEJDjFkMGIwYAYDVR0RBFkwV4YZ
c3BpZmZlOi8vZXhhbXBsZS5jb20vamFuZYcECgAAAYcQ/QAAAAAAAAAAAAAAAAAA
AYEQamFuZUBleGFtcGxlLmNvbYIQamFuZS5leGFtcGxlLmNvbTAKBggqhkjOPQQD
AgNIADBFAiEAt1UJVEBF71NgxiH4bSddke55eQ8vQXvejihBwtSJoVYCIGS9pz9X
9QOdbCNk8dUJdwFZ0bPPj66nrbrh53KQwcxO
-----END CERTIFICATE REQUEST-----
";

    fn authority() -> Issuer {
        let template = CertificateTemplate {
            subject: distinguished_name::new([], "kubernetes").expect("a name"),
            not_before: at("2030-01-01T00:00:00Z"),
            not_after: at("2040-01-01T00:00:00Z"),
            usages: KeyUsages::KeyCertSign.into(),
            extended_usages: Vec::new(),
            alternative_names: Vec::new(),
        };
        Issuer::self_signed(template, PrivateKey::generate().expect("a key")).expect("an authority").0
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_certificate_has_subject_names_and_usages_of_its_request() {
        let usages = ["client auth", "digital signature", "key encipherment"];
        let mut request = spec("kubernetes.io/kube-apiserver-client", &usages);
        request.request = ByteString(REQUEST.as_bytes().to_vec());
        let signed = sign(&request, &authority(), at("2031-01-01T00:00:00Z")).expect("signed");
        let certificate = Certificate::from_pem(&signed).expect("a certificate").tbs_certificate;
        // Go sorts what it writes into one set, and so do all who write DER.
        assert_eq!(certificate.subject.to_string(), "CN=jane,O=dev+O=ops,C=DE");
        let usage = certificate.get::<KeyUsage>().expect("readable").expect("there").1;
        assert_eq!(usage.0, KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment);
        let purposes = certificate.get::<ExtendedKeyUsage>().expect("readable").expect("there").1;
        assert_eq!(purposes.0, [ID_KP_CLIENT_AUTH]);
        let names = certificate.get::<SubjectAltName>().expect("readable").expect("there").1;
        assert_eq!(names.0, CertificateRequest::from_pem(REQUEST.as_bytes()).expect("a request").alternative_names);
        assert_eq!(names.0.len(), 5);
        assert_eq!(issuer::timestamp(certificate.validity.not_before), at("2030-12-31T23:55:00Z"));
        assert_eq!(issuer::timestamp(certificate.validity.not_after), at("2031-12-31T23:55:00Z"));
    }

    #[test]
    fn what_is_no_request_or_a_changed_one_is_not_signed() {
        let mut request = spec("kubernetes.io/kube-apiserver-client", &["client auth"]);
        for (text, want) in [
            ("foo", "PEM block type must be CERTIFICATE REQUEST"),
            (&REQUEST.replace("xO\n", "xP\n"), "unable to verify certificate request signature: it was not made"),
        ] {
            request.request = ByteString(text.as_bytes().to_vec());
            let error = sign(&request, &authority(), at("2031-01-01T00:00:00Z")).expect_err(text);
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn a_certificate_lasts_as_long_as_asked_within_bounds() {
        let day = 86_400;
        for (asked, want) in [
            (None, 365 * day),
            (Some(2 * 365 * day), 365 * day),
            (Some(day), day),
            (Some(600), 600),
            (Some(599), 600),
            (Some(-1), 600),
        ] {
            assert_eq!(i64::try_from(life(asked).as_secs()), Ok(i64::from(want)), "{asked:?}");
        }
    }

    #[test]
    fn a_certificate_ends_with_its_authority() {
        let (now, hour) = (at("2031-01-01T12:00:00Z"), Duration::from_secs(3600));
        let begin = at("2031-01-01T11:55:00Z");
        let far = at("2040-01-01T00:00:00Z");
        assert_eq!(validity(hour, far, now), Ok((begin, at("2031-01-01T13:00:00Z"))), "short: not backdated");
        assert_eq!(validity(8 * hour, far, now), Ok((begin, at("2031-01-01T19:55:00Z"))), "long: backdated");
        assert_eq!(validity(hour, at("2031-01-01T12:30:00Z"), now), Ok((begin, at("2031-01-01T12:30:00Z"))));
        let error = validity(hour, now, now).expect_err("ended now");
        assert_eq!(
            error,
            "refusing to sign a certificate that expired in the past: NotAfter=2031-01-01 12:00:00 +0000 UTC"
        );
        let error = validity(hour, begin, now).expect_err("ended before");
        assert_eq!(error, "the signer has expired: NotAfter=2031-01-01 11:55:00 +0000 UTC");
    }

    #[test]
    fn usages_become_bits_and_purposes() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mixed =
            names(&["server auth", "signing", "digital signature", "s/mime", "client auth", "email protection"]);
        assert_eq!(key_usages(&mixed), Ok(KeyUsages::DigitalSignature.into()));
        assert_eq!(extended_usages(&mixed), [ID_KP_SERVER_AUTH, ID_KP_CLIENT_AUTH, ID_KP_EMAIL_PROTECTION]);
        assert_eq!(key_usages(&[]), Ok(FlagSet::default()));
        assert!(extended_usages(&[]).is_empty());
        let error = key_usages(&names(&["x", "any", "y"])).expect_err("unknown");
        assert_eq!(error, "unrecognized usage values: [\"x\" \"y\"]");
    }
}
