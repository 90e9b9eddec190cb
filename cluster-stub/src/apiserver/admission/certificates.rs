//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who may approve and sign requests of which signer, and
//! whom nobody becomes by a certificate.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/certificates/`, `pkg/registry/certificates` authorization.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster_stub_base::certificate::distinguished_name;
use futures::future::BoxFuture;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use x509_cert::der::Decode as _;
use x509_cert::request::CertReq;

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::authz::{Attributes, Authorizer};
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// The checks of CertificateSigningRequests.
#[derive(Debug)]
pub(super) struct Certificates {
    authorizer: Arc<dyn Authorizer>,
}

impl Certificates {
    /// Checks that ask `authorizer` about signers.
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Certificates { authorizer }
    }

    fn check(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !request.is_resource(GROUP, "certificatesigningrequests") {
            return Ok(());
        }
        let old = request.old_object.unwrap_or(&Value::Null);
        let signer = old.at("spec").text("signerName");
        match (request.operation, request.subresource) {
            (Operation::Update, "approval") if !self.may(request, "approve", signer) => {
                Err(request.forbidden(format!("user not permitted to approve requests with signerName {signer:?}")))
            }
            (Operation::Update, "status") => {
                let (new, old) = (request.object.at("status"), old.at("status"));
                let signs = new.at("certificate") != old.at("certificate")
                    || new.items("conditions") != old.items("conditions");
                if signs && !self.may(request, "sign", signer) {
                    return Err(
                        request.forbidden(format!("user not permitted to sign requests with signerName {signer:?}"))
                    );
                }
                Ok(())
            }
            (Operation::Create, "") => check_subject(request),
            _ => Ok(()),
        }
    }

    /// Whether the user may do this for the signer, or for all signers of its domain.
    fn may(&self, request: &AdmissionRequest<'_>, verb: &str, signer: &str) -> bool {
        let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
        [signer, &domain].into_iter().any(|name| {
            let question = Attributes { name, ..Attributes::resource(request.user, verb, GROUP, "*", "signers") };
            self.authorizer.authorize(&question).is_allowed()
        })
    }
}

fn check_subject(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let spec = request.object.at("spec");
    if spec.text("signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let groups =
        organizations(spec.text("request")).map_err(|why| request.forbidden(format!("failed to parse CSR: {why}")))?;
    if groups.iter().any(|group| group == MASTERS) {
        return Err(request.forbidden(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")));
    }
    Ok(())
}

/// The organizations in the subject of an encoded request.
fn organizations(encoded: &str) -> Result<Vec<String>, String> {
    let not_pem = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
    let pem = STANDARD.decode(encoded).map_err(|_| not_pem())?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).map_err(|_| not_pem())?;
    let request = CertReq::from_der(&der).map_err(|error| error.to_string())?;
    Ok(distinguished_name::organizations(&request.info.subject))
}

impl AdmissionPlugin for Certificates {
    fn name(&self) -> &'static str {
        "CertificateApproval, CertificateSigning, CertificateSubjectRestriction"
    }

    fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        request.resource.group != GROUP
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(self.check(request)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl req -new -subj /O=system:masters`
    const REQUEST: &str = "
-----BEGIN CERTIFICATE REQUEST-----
MIGYMEwCAQAwGTEXMBUGA1UECgwOc3lzdGVtOm1hc3RlcnMwKjAFBgMrZXADIQAg
K1q7jqQXfT3vRyjfXHFyLiIxShu6xe0cq02RMmk9taAAMAUGAytlcANBANSbhOKh
4S95C3OD9oPh0g/IkTyasLcF5e1z4SCX87FCc4teV3KArMn4nYoQSFLjb55M6HYS
7a9gkj7a6kxK7g4=
-----END CERTIFICATE REQUEST-----
";

    #[test]
    fn groups_are_read_from_the_subject() {
        assert_eq!(organizations(&STANDARD.encode(REQUEST)), Ok(vec![MASTERS.to_owned()]));
        assert!(organizations("").is_err());
        assert!(organizations(&STANDARD.encode("nothing")).is_err());
    }
}
