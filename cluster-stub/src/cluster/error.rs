//! Why a cluster does not start.

use crate::apiserver::authn::TokenFileError;
use crate::apiserver::bootstrap::BootstrapError;
use crate::apiserver::cache::FeedError;
use crate::apiserver::server::BindError;
use crate::apiserver::tls::{PkiError, ServerConfigError};
use crate::store::recovery::OpenError;

/// Why a cluster does not start. Nothing runs afterwards.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(#[from] OpenError),
    /// Keys and certificates cannot be made, read or written.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A certificate authority of the cluster is not accepted by the TLS library.
    #[error("cannot verify client certificates: {0}")]
    Verifier(String),
    /// The serving certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] ServerConfigError),
    /// The token file is not good.
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    /// The range of Service addresses is not good.
    #[error("service range {range:?}: want a CIDR with room for addresses, like 10.96.0.0/16")]
    ServiceRange {
        /// What was given.
        range: String,
    },
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The store cannot be read.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The objects that every cluster has cannot be written.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

impl StartError {
    /// Whether the options were at fault, rather than the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, StartError::TokenFile(_) | StartError::ServiceRange { .. })
    }
}
