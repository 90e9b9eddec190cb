//! `authorizer.…` in CEL: a question put together step by step, asked at the end. Who may do what is decided elsewhere.
//!
//! Upstream: apiserver v1.36.2 `pkg/cel/library/authz.go`.

use std::fmt;
use std::sync::Arc;

use crate::apiserver::authn::UserInfo;
use crate::apiserver::authz::{Attributes, Authorizer, Decision};

/// A question to the authorizer, as far as it is put.
#[derive(Clone)]
pub struct Check {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<UserInfo>,
    pub(super) path: Option<String>,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) field_selector: String,
    /// The question whether the user may do what the request does, for `authorizer.requestResource`.
    request: Option<Arc<Check>>,
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it is allowed.
    pub(super) allowed: bool,
    /// Why, or why not.
    pub(super) reason: String,
}

impl Check {
    /// Nothing asked yet, on behalf of `user`.
    pub fn new(authorizer: Arc<dyn Authorizer>, user: Arc<UserInfo>) -> Check {
        let empty = String::new;
        Check {
            authorizer,
            user,
            path: None,
            group: empty(),
            resource: empty(),
            subresource: empty(),
            namespace: empty(),
            name: empty(),
            field_selector: empty(),
            request: None,
        }
    }

    /// Says what the request is about: group, resource, subresource, namespace, name.
    #[must_use]
    pub fn about([group, resource, subresource, namespace, name]: [&str; 5], check: Check) -> Check {
        let request = Check {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..check.clone()
        };
        Check { request: Some(Arc::new(request)), ..check }
    }

    /// `authorizer.requestResource`.
    pub(super) fn of_request(&self) -> Option<Arc<Check>> {
        self.request.clone()
    }

    /// The same question about a service account.
    pub(super) fn for_service_account(&self, namespace: &str, name: &str) -> Check {
        Check { user: Arc::new(UserInfo::service_account(namespace, name)), ..self.clone() }
    }

    /// Asks whether the verb is allowed.
    pub(super) fn ask(&self, verb: &str) -> Answer {
        let question = match &self.path {
            Some(path) => Attributes::path(&self.user, verb, path),
            None => Attributes {
                subresource: &self.subresource,
                namespace: &self.namespace,
                name: &self.name,
                field_selector: &self.field_selector,
                ..Attributes::resource(&self.user, verb, &self.group, "*", &self.resource)
            },
        };
        match self.authorizer.authorize(&question) {
            Decision::Allow(grant) => Answer { allowed: true, reason: grant.to_string() },
            Decision::NoOpinion { reason } => Answer { allowed: false, reason },
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("user", &self.user.name).finish_non_exhaustive()
    }
}
