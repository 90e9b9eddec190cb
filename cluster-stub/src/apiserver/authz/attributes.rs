//! What an authorizer is asked and what it answers. The texts of refusals stand in `forbidden`.

use std::fmt::Debug;

use crate::apiserver::authn::UserInfo;

/// One question to an authorizer: may `user` do `verb` there. Borrowed from the request, so asking allocates nothing.
/// Upstream v1.36.2: apiserver/pkg/authorization/authorizer/interfaces.go Attributes.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a UserInfo,
    /// Lower-case verb: `get`, `list`, `create`, …; for a path outside the API the lower-case HTTP method.
    pub verb: &'a str,
    /// API group, empty for the core group. Only for resources.
    pub group: &'a str,
    /// API version. Only for resources.
    pub version: &'a str,
    /// Plural resource name. Only for resources.
    pub resource: &'a str,
    /// Subresource such as `status`, or empty. Only for resources.
    pub subresource: &'a str,
    /// Namespace of the request, empty at cluster scope. Only for resources.
    pub namespace: &'a str,
    /// Name of the object, empty for collections. Only for resources.
    pub name: &'a str,
    /// Whether the question is about an API resource; otherwise about `path`.
    pub is_resource: bool,
    /// The URL path.
    pub path: &'a str,
}

impl<'a> Attributes<'a> {
    /// A question about a resource at cluster scope without a name; adjust the other fields with struct update syntax.
    pub fn resource(user: &'a UserInfo, verb: &'a str, group: &'a str, version: &'a str, resource: &'a str) -> Self {
        Attributes {
            user,
            verb,
            group,
            version,
            resource,
            subresource: "",
            namespace: "",
            name: "",
            is_resource: true,
            path: "",
        }
    }

    /// A question about a path that is no API resource, such as `/metrics`.
    pub fn path(user: &'a UserInfo, verb: &'a str, path: &'a str) -> Self {
        Attributes { is_resource: false, path, ..Attributes::resource(user, verb, "", "", "") }
    }
}

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on. The reason says which rule said so.
    Allow {
        /// E.g. `RBAC: allowed by RoleBinding "a/b" of Role "c" to User "d"`.
        reason: String,
    },
    /// This authorizer does not know a reason to allow; the next one may.
    NoOpinion {
        /// Why not, or empty. Shown to the client after the refusal.
        reason: String,
    },
    /// Refused, whatever other authorizers say.
    Deny {
        /// Why, or empty.
        reason: String,
    },
}

impl Decision {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }
}

/// Answers whether a user may do something, from memory and at once.
pub trait Authorizer: Debug + Send + Sync {
    /// Decides about one request.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}
