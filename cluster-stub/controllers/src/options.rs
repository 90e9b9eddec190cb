//! Settings of the controllers.

use std::time::Duration;

/// Settings of the controllers; the defaults are those of kube-controller-manager v1.36.2.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// The cluster's CA certificates as PEM, published to every namespace as ConfigMap `kube-root-ca.crt`. Without it
    /// nothing is published.
    pub root_ca_pem: Option<String>,
    /// The CA that signs approved CertificateSigningRequests. Without it none is signed.
    pub signing_ca: Option<SigningCa>,
    /// How long a node may be silent before its Ready condition becomes Unknown.
    pub node_monitor_grace_period: Duration,
    /// How often silent nodes are looked for.
    pub node_monitor_period: Duration,
    /// Ended pods that may stay before the pod garbage collector deletes the oldest.
    pub terminated_pod_gc_threshold: usize,
}

/// A CA that signs certificates.
#[derive(Clone)]
pub struct SigningCa {
    /// The CA's certificate as PEM.
    pub certificate_pem: String,
    /// Its private key as PEM: PKCS#8, SEC 1 or PKCS#1.
    pub key_pem: String,
}

impl std::fmt::Debug for SigningCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningCa").finish_non_exhaustive() // never the key
    }
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            root_ca_pem: None,
            signing_ca: None,
            node_monitor_grace_period: Duration::from_secs(50),
            node_monitor_period: Duration::from_secs(5),
            terminated_pod_gc_threshold: 12_500,
        }
    }
}
