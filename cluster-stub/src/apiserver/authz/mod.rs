//! Authorization: may this user do this. Reads roles and bindings; never looks at a request's body.

mod attributes;
mod cover;
mod escalation;
mod follow;
mod forbidden;
mod node;
mod policy;
mod rbac;
mod union;

pub use attributes::{Attributes, Authorizer, Decision, Grant};
pub use escalation::{confirm_no_escalation, full_authority};
pub use follow::follow;
pub use forbidden::forbidden;
pub use node::{NodeAuthorizer, NodeGraph, Reference};
pub use policy::{PolicyRule, RoleRef, Subject};
pub use rbac::{Rbac, RbacKind};
pub use union::{PrivilegedGroups, Union};
