//! Several authorizers in order: the first that allows decides.

use std::sync::Arc;

use super::{Attributes, Authorizer, Decision, Grant};
use crate::apiserver::authn::user::SYSTEM_PRIVILEGED_GROUP;

/// Asks each in turn. Upstream v1.36.2: apiserver/pkg/authorization/union/union.go.
#[derive(Debug, Default)]
pub struct Union(Vec<Arc<dyn Authorizer>>);

impl Union {
    /// The union of `authorizers`, asked in this order.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Union(authorizers)
    }
}

impl Authorizer for Union {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes) {
                Decision::NoOpinion { reason } if reason.is_empty() => {}
                Decision::NoOpinion { reason } => reasons.push(reason),
                allowed @ Decision::Allow(_) => return allowed,
            }
        }
        Decision::no_opinion(reasons.join("\n"))
    }
}

/// Allows members of `system:masters` everything, so that a broken role cannot lock its owner out.
#[derive(Clone, Copy, Debug)]
pub struct PrivilegedGroups;

impl Authorizer for PrivilegedGroups {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            Decision::Allow(Grant::Privileged)
        } else {
            Decision::no_opinion("")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authn::UserInfo;

    #[derive(Debug)]
    struct Says(&'static str);

    impl Authorizer for Says {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            Decision::no_opinion(self.0)
        }
    }

    #[test]
    fn one_that_allows_is_enough_and_reasons_add_up() {
        let union =
            Union::new(vec![Arc::new(Says("a")), Arc::new(Says("")), Arc::new(PrivilegedGroups), Arc::new(Says("b"))]);
        let admin = UserInfo::admin("root");
        assert!(union.authorize(&Attributes::path(&admin, "get", "/")).is_allowed());
        let jane = UserInfo::authenticated("jane", [""; 0]);
        let Decision::NoOpinion { reason } = union.authorize(&Attributes::path(&jane, "get", "/")) else {
            panic!("jane is not privileged")
        };
        assert_eq!(reason, "a\nb");
    }
}
