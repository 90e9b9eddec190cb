//! X.509: private keys, names, certificate requests, and who signs them. The encoding is x509-cert's and the
//! cryptography ring's, through rustls; no rule about who may ask for what stands here.

pub mod distinguished_name;
pub mod issuer;
pub mod private_key;
pub mod request;
