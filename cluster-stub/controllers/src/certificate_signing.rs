//! The certificate signing controllers: sign what was approved, with the cluster's CA. Approving is for people.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rcgen::{
    CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::options::SigningCa;
use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

/// Longest life of a certificate. Upstream: `--cluster-signing-duration`, one year.
const MAX_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// A certificate is good a little before it is made, for clocks that are behind. Upstream: authority/policies.go v1.36.2.
const BACKDATE: Duration = Duration::from_secs(5 * 60);

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
    authority: Issuer<'static, KeyPair>,
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

fn authority(ca: &SigningCa) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
    Issuer::from_ca_cert_pem(&ca.certificate_pem, KeyPair::from_pem(&ca.key_pem)?)
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
fn sign(
    spec: &CertificateSigningRequestSpec,
    authority: &Issuer<'static, KeyPair>,
    now: Timestamp,
) -> Result<String, String> {
    let text = std::str::from_utf8(&spec.request.0).map_err(|_| "the request is no text".to_owned())?;
    let mut request = CertificateSigningRequestParams::from_pem(text).map_err(|error| error.to_string())?;
    let asked = spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let life = asked.map_or(MAX_LIFE, |asked| asked.min(MAX_LIFE));
    let params = &mut request.params;
    params.distinguished_name = ordered(&params.distinguished_name);
    params.is_ca = IsCa::ExplicitNoCa;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(seconds.saturating_sub(BACKDATE.as_secs()));
    params.not_after = epoch + Duration::from_secs(seconds) + life;
    let usages = spec.usages.as_deref().unwrap_or_default();
    params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
    params.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
    request.signed_by(authority).map(|certificate| certificate.pem()).map_err(|error| error.to_string())
}

/// The parts of a name in the order in which Go writes them.
fn ordered(name: &DistinguishedName) -> DistinguishedName {
    let mut sorted = DistinguishedName::new();
    let order = [
        DnType::CountryName,
        DnType::OrganizationName,
        DnType::OrganizationalUnitName,
        DnType::LocalityName,
        DnType::StateOrProvinceName,
        DnType::CommonName,
    ];
    for kind in order {
        if let Some(value) = name.get(&kind) {
            sorted.push(kind, value.clone());
        }
    }
    sorted
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        _ => return None,
    })
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

    #[test]
    fn what_is_no_request_is_not_signed() {
        let key = KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::default();
        let authority = Issuer::new(params, key);
        let mut request = spec("kubernetes.io/kube-apiserver-client", &["client auth"]);
        request.request = ByteString(b"foo".to_vec());
        assert!(sign(&request, &authority, Timestamp::UNIX_EPOCH).is_err());
        let mut subject = rcgen::CertificateParams::default();
        subject.distinguished_name.push(DnType::CommonName, "dev-user");
        let own = KeyPair::generate().expect("a key");
        let pem = subject.serialize_request(&own).and_then(|request| request.pem()).expect("a request");
        request.request = ByteString(pem.into_bytes());
        let signed = sign(&request, &authority, Timestamp::now()).expect("signed");
        assert!(signed.starts_with("-----BEGIN CERTIFICATE-----"), "{signed}");
    }
}
