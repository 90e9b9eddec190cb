//! The identity that a request runs under. Holds no credentials.

use std::collections::BTreeMap;

/// Name of a user without credentials. Upstream v1.36.2: apiserver/pkg/authentication/user/user.go.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of every user that proved an identity.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";
/// Group of the anonymous user.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything: authorization is not asked.
pub const SYSTEM_PRIVILEGED_GROUP: &str = "system:masters";
/// Group of kubelets; the node authorizer speaks for it.
pub const NODES_GROUP: &str = "system:nodes";
/// Prefix of a kubelet's user name, followed by the node's name.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// Prefix of a service account's user name, followed by `namespace:name`.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Group of all service accounts.
pub const ALL_SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

/// A user as authentication established it: name, uid, groups and extra attributes, all as the client sees them in a
/// `SelfSubjectReview`. Upstream v1.36.2: apiserver/pkg/authentication/user/user.go DefaultInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user name, e.g. `jane` or `system:serviceaccount:kube-system:deployment-controller`.
    pub name: String,
    /// Unique id of this user across time; empty when the credential carries none.
    pub uid: String,
    /// Groups in the order in which the authenticator found them.
    pub groups: Vec<String>,
    /// Attributes that authenticators add for authorizers and audit, by lower-case key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user that authenticated: `groups` plus `system:authenticated`.
    pub fn authenticated<G: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        let mut user =
            UserInfo { name: name.into(), groups: groups.into_iter().map(Into::into).collect(), ..UserInfo::default() };
        user.add_group(ALL_AUTHENTICATED);
        user
    }

    /// A member of `system:masters`, for which every request is allowed.
    pub fn admin(name: impl Into<String>) -> Self {
        UserInfo::authenticated(name, [SYSTEM_PRIVILEGED_GROUP])
    }

    /// The user of a service account. RBAC bindings with the subject kind ServiceAccount match this name.
    /// Upstream v1.36.2: pkg/serviceaccount/util.go UserInfo.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [ALL_SERVICE_ACCOUNTS_GROUP.to_owned(), format!("{ALL_SERVICE_ACCOUNTS_GROUP}:{namespace}")];
        UserInfo::authenticated(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"), groups)
    }

    /// The user of the kubelet of `node`.
    pub fn node(node: &str) -> Self {
        UserInfo::authenticated(format!("{NODE_USER_PREFIX}{node}"), [NODES_GROUP])
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        UserInfo { name: ANONYMOUS.into(), groups: vec![ALL_UNAUTHENTICATED.into()], ..UserInfo::default() }
    }

    /// Whether `group` is among the user's groups.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Appends `group` unless the user has it.
    pub fn add_group(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// Namespace and name of the service account that this user is, if it is one.
    pub fn as_service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// Name of the node whose kubelet this user is, if it is one: the name has the prefix and the group is there.
    /// Upstream v1.36.2: pkg/auth/nodeidentifier/default.go.
    pub fn as_node(&self) -> Option<&str> {
        let node = self.name.strip_prefix(NODE_USER_PREFIX)?;
        (!node.is_empty() && self.in_group(NODES_GROUP)).then_some(node)
    }
}

/// Upstream v1.36.2: apiserver/pkg/authentication/group/authenticated_group_adder.go.
pub(super) fn with_authenticated_group(mut user: UserInfo) -> UserInfo {
    if user.name != ANONYMOUS && !user.in_group(ALL_UNAUTHENTICATED) {
        user.add_group(ALL_AUTHENTICATED);
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authenticated_users_get_the_authenticated_group_once() {
        let user = UserInfo::authenticated("a", ["dev", ALL_AUTHENTICATED]);
        assert_eq!(user.groups, ["dev", ALL_AUTHENTICATED]);
    }

    #[test]
    fn service_account_names_are_recognised_only_when_whole() {
        let cases = [
            ("system:serviceaccount:ns:sa", Some(("ns", "sa"))),
            ("system:serviceaccount:ns", None),
            ("system:serviceaccount::sa", None),
            ("system:serviceaccount:ns:", None),
            ("system:serviceaccount:ns:a:b", None),
            ("jane", None),
        ];
        for (name, want) in cases {
            let user = UserInfo { name: name.into(), ..UserInfo::default() };
            assert_eq!(user.as_service_account(), want, "{name}");
        }
    }

    #[test]
    fn a_node_needs_both_the_prefix_and_the_group() {
        assert_eq!(UserInfo::node("n1").as_node(), Some("n1"));
        assert_eq!(UserInfo::authenticated("system:node:n1", ["dev"]).as_node(), None);
        assert_eq!(UserInfo::authenticated("n1", [NODES_GROUP]).as_node(), None);
        assert_eq!(UserInfo::node("").as_node(), None);
    }
}
