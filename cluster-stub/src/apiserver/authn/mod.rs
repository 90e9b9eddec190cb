//! Authentication: who sent a request. Turns certificates, tokens and headers into a `UserInfo`; decides nothing
//! about what that user may do (see `authz`).

mod authenticator;
mod certificate;
mod impersonation;
mod request_header;
mod service_account;
mod token_file;
pub mod user;

pub use authenticator::{Authenticator, TokenIdentity};
pub use certificate::CertificateVerifier;
pub use impersonation::{impersonate, wanted_user};
pub use request_header::RequestHeaderConfig;
pub use service_account::{
    BoundObject, ISSUER, KubernetesClaim, LegacyClaims, ServiceAccountGetter, ServiceAccountTokens, TokenClaims,
};
pub use token_file::{TokenFile, TokenFileError};
pub use user::UserInfo;
