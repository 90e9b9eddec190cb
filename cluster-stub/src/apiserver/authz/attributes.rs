//! What an authorizer is asked and what it answers. The texts of refusals stand in `forbidden`.

use std::fmt::{self, Debug};
use std::sync::Arc;

use super::rbac::Binding;
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
    /// The field selector of a list, watch or deletecollection as the client wrote it, or empty.
    pub field_selector: &'a str,
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
            field_selector: "",
            is_resource: true,
            path: "",
        }
    }

    /// A question about a path that is no API resource, such as `/metrics`.
    pub fn path(user: &'a UserInfo, verb: &'a str, path: &'a str) -> Self {
        Attributes { is_resource: false, path, ..Attributes::resource(user, verb, "", "", "") }
    }
}

/// What allowed a request. `Display` gives the reason that access reviews show.
#[derive(Clone, Debug)]
pub enum Grant {
    /// The user is in a group that may do everything.
    Privileged,
    /// The static rules of kubelets.
    Node,
    /// A role binding names the user.
    Rbac {
        /// The binding.
        binding: Arc<Binding>,
        /// Which of its subjects is the user.
        subject: usize,
    },
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grant::Privileged | Grant::Node => Ok(()),
            Grant::Rbac { binding, subject } => binding.describe(*subject, f),
        }
    }
}

/// An authorizer's answer.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The request may go on.
    Allow(Grant),
    /// This authorizer does not know a reason to allow; the next one may.
    NoOpinion {
        /// Why not, or empty. Shown to the client after the refusal.
        reason: String,
    },
}

impl Decision {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// No opinion, for this reason.
    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Decision::NoOpinion { reason: reason.into() }
    }
}

/// Answers whether a user may do something, from memory and at once.
pub trait Authorizer: Debug + Send + Sync {
    /// Decides about one request.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}
