//! ConfigMaps about authentication and the Lease with the server's identity.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::apiserver::authn::RequestHeaderConfig;

/// How extension API servers recognise this server's users. Upstream v1.36.2:
/// pkg/controlplane/controller/clusterauthenticationtrust.
pub(super) fn extension_authentication(client_ca: &str, front_proxy_ca: &str) -> Value {
    let headers = RequestHeaderConfig::default();
    let list = |names: &[&str]| json!(names).to_string();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": client_ca,
            "requestheader-allowed-names": list(headers.allowed_names),
            "requestheader-client-ca-file": front_proxy_ca,
            "requestheader-extra-headers-prefix": list(headers.extra_headers_prefix),
            "requestheader-group-headers": list(headers.group_headers),
            "requestheader-uid-headers": "[]",
            "requestheader-username-headers": list(headers.username_headers),
        },
    })
}

/// Since when uses of legacy tokens are tracked; `today` is `YYYY-MM-DD`.
pub(super) fn legacy_token_tracking(today: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"},
        "data": {"since": today},
    })
}

/// The Lease that says which API servers run. Upstream v1.36.2: pkg/controlplane/apiserver/server.go, the name is
/// made from the host's.
pub(super) fn identity_lease(host: &str, holder: &str, now: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": format!("apiserver-{}", base32(&Sha256::digest(host)[..16])),
            "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": host},
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now},
    })
}

/// Lower-case base32 without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut text, mut buffer, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(buffer >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(buffer << (5 - bits) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_have_26_characters() {
        let lease = identity_lease("host", "h", "2026-01-01T00:00:00.000000Z");
        let name = lease["metadata"]["name"].as_str().unwrap();
        assert_eq!(name.len(), "apiserver-".len() + 26);
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
    }
}
