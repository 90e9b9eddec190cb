//! Authentication: who sent a request. Turns certificates, tokens and headers into a `UserInfo`; decides nothing
//! about what that user may do (see `authz`).

pub mod user;

pub use user::UserInfo;
