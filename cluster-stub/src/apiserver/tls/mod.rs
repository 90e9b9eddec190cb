//! Certificates and TLS: the cluster's own authorities, the serving certificate, client certificates, the handshake.
//! Says nothing about which user a certificate stands for (see `authn`).

mod acceptor;
mod authority;
mod pki;
mod signing_key;

pub use acceptor::{ServerConfigError, server_config};
pub use authority::{CertificateAuthority, CertificateError, IssuedCertificate, Validity};
pub use pki::{Pki, PkiError};
pub use signing_key::{SigningKey, SigningKeyError};
