//! The TLS handshake of the server. Takes any client certificate: `authn` verifies it, so that a bad one is a 401
//! that the client can read instead of a broken connection.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use super::IssuedCertificate;

/// Why the TLS side of the server cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ServerConfigError {
    /// The serving certificate or its key is not PEM.
    #[error("cannot read the serving certificate")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The serving certificate and key do not fit together or with the protocol.
    #[error("cannot serve TLS with the serving certificate")]
    Tls(#[source] rustls::Error),
}

/// A configuration that serves `serving`, speaks HTTP/2 and HTTP/1.1, and asks clients for a certificate.
pub fn server_config(serving: &IssuedCertificate) -> Result<ServerConfig, ServerConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(serving.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(ServerConfigError::Pem)?;
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes()).map_err(ServerConfigError::Pem)?;
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(ServerConfigError::Tls)?
        .with_client_cert_verifier(Arc::new(RequestAnyCertificate(provider)))
        .with_single_cert(chain, key)
        .map_err(ServerConfigError::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Proves that the client holds the key of its certificate, and nothing else.
#[derive(Debug)]
struct RequestAnyCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for RequestAnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
