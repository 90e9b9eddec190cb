//! What the registry hands on because nothing is stored for it: reviews of tokens and of access, logs, connections into
//! containers. Each file answers one kind of request.

mod access_review;
mod connector;
mod logs;
mod rules_review;
mod token_request;
mod user_review;

pub use connector::Connections;
pub use token_request::{TokenRequest, add_token_subresource};
