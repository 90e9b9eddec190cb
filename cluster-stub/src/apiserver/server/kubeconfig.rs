//! The kubeconfig of a cluster's administrator, as text. Where it is stored is the caller's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::apiserver::tls::IssuedCertificate;

/// A kubeconfig for `server` (a URL) with one context, whose user has `client`'s certificate. JSON strings are YAML,
/// so any name is safe.
pub fn kubeconfig(name: &str, server: &str, authority_pem: &str, client: &IssuedCertificate) -> String {
    let name = serde_json::Value::from(name);
    let server = serde_json::Value::from(server);
    let authority = STANDARD.encode(authority_pem);
    let certificate = STANDARD.encode(&client.certificate_pem);
    let key = STANDARD.encode(&client.key_pem);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
         users:\n\
         - name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
         contexts:\n\
         - name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n\
         current-context: {name}\n"
    )
}
