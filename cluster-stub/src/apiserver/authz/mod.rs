//! Authorization: may this user do this. Reads roles and bindings; never looks at a request's body.

mod attributes;

pub use attributes::{Attributes, Authorizer, Decision};
