//! The RBAC authorizer: roles and bindings in memory, indexed by subject. Fed from the watch cache, never reads storage.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Deserialize;

use super::policy::{PolicyRule, RoleRef, Subject};
use super::{Attributes, Authorizer, Decision, Grant};
use crate::apiserver::authn::UserInfo;
use crate::apiserver::authn::user::SERVICE_ACCOUNT_PREFIX;
use crate::apiserver::status::aggregate;

/// The four kinds of RBAC objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RbacKind {
    /// ClusterRole.
    ClusterRole,
    /// ClusterRoleBinding.
    ClusterRoleBinding,
    /// Role.
    Role,
    /// RoleBinding.
    RoleBinding,
}

impl RbacKind {
    /// All kinds.
    pub const ALL: [RbacKind; 4] =
        [RbacKind::ClusterRole, RbacKind::ClusterRoleBinding, RbacKind::Role, RbacKind::RoleBinding];

    /// Plural resource name in the group `rbac.authorization.k8s.io`.
    pub fn resource(self) -> &'static str {
        match self {
            RbacKind::ClusterRole => "clusterroles",
            RbacKind::ClusterRoleBinding => "clusterrolebindings",
            RbacKind::Role => "roles",
            RbacKind::RoleBinding => "rolebindings",
        }
    }
}

/// A ClusterRoleBinding (empty namespace) or RoleBinding as the authorizer keeps it.
#[derive(Debug)]
pub struct Binding {
    namespace: String,
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

impl Binding {
    /// `RBAC: allowed by …`, with the names in upstream's order (name before namespace).
    pub(super) fn describe(&self, subject: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { namespace, name, role, subjects } = self;
        f.write_str("RBAC: allowed by ")?;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding \"{name}\"")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\"")?;
        }
        write!(f, " of {} \"{}\" to ", role.kind, role.name)?;
        match subjects.get(subject) {
            Some(s) if s.kind == "ServiceAccount" => {
                write!(f, "{} \"{}/{}\"", s.kind, s.name, self.service_account_namespace(s))
            }
            Some(s) => write!(f, "{} \"{}\"", s.kind, s.name),
            None => Ok(()),
        }
    }

    fn service_account_namespace<'a>(&'a self, subject: &'a Subject) -> &'a str {
        if subject.namespace.is_empty() { &self.namespace } else { &subject.namespace }
    }
}

/// Bindings of one namespace, or the cluster's, by name and by whom they name.
#[derive(Debug, Default)]
struct Bindings {
    by_name: BTreeMap<String, Arc<Binding>>,
    by_user: HashMap<String, Vec<(Arc<Binding>, usize)>>,
    by_group: HashMap<String, Vec<(Arc<Binding>, usize)>>,
}

impl Bindings {
    fn set(&mut self, name: &str, binding: Option<Binding>) {
        if self.by_name.remove(name).is_some() {
            for index in [&mut self.by_user, &mut self.by_group] {
                index.retain(|_, entries| {
                    entries.retain(|(b, _)| b.name != name);
                    !entries.is_empty()
                });
            }
        }
        let Some(binding) = binding.map(Arc::new) else { return };
        for (i, subject) in binding.subjects.iter().enumerate() {
            let (index, key) = match subject.kind.as_str() {
                "User" => (&mut self.by_user, subject.name.clone()),
                "Group" => (&mut self.by_group, subject.name.clone()),
                "ServiceAccount" => {
                    let namespace = binding.service_account_namespace(subject);
                    (&mut self.by_user, format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{}", subject.name))
                }
                _ => continue,
            };
            index.entry(key).or_default().push((binding.clone(), i));
        }
        self.by_name.insert(name.to_owned(), binding);
    }

    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a (Arc<Binding>, usize)> {
        let by_group = user.groups.iter().filter_map(|group| self.by_group.get(group)).flatten();
        self.by_user.get(&user.name).into_iter().flatten().chain(by_group)
    }
}

#[derive(Debug, Default)]
struct Index {
    cluster_roles: HashMap<String, Vec<PolicyRule>>,
    roles: HashMap<String, HashMap<String, Vec<PolicyRule>>>,
    cluster_bindings: Bindings,
    bindings: HashMap<String, Bindings>,
}

impl Index {
    fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[PolicyRule], String> {
        let found = match role.kind.as_str() {
            "Role" => self.roles.get(namespace).and_then(|roles| roles.get(&role.name)),
            "ClusterRole" => self.cluster_roles.get(&role.name),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        let kind = role.kind.to_ascii_lowercase();
        found.map(Vec::as_slice).ok_or_else(|| format!("{kind}.rbac.authorization.k8s.io {:?} not found", role.name))
    }

    fn bindings_of<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &str,
    ) -> impl Iterator<Item = &'a (Arc<Binding>, usize)> {
        let local = (!namespace.is_empty()).then(|| self.bindings.get(namespace)).flatten();
        self.cluster_bindings.of(user).chain(local.into_iter().flat_map(move |bindings| bindings.of(user)))
    }
}

/// Decides by the Roles, ClusterRoles and their bindings that it was told of.
/// Upstream v1.36.2: plugin/pkg/auth/authorizer/rbac/rbac.go.
#[derive(Debug, Default)]
pub struct Rbac(RwLock<Index>);

#[derive(Deserialize)]
struct RoleObject {
    #[serde(default)]
    rules: Option<Vec<PolicyRule>>,
}

#[derive(Deserialize)]
struct BindingObject {
    #[serde(rename = "roleRef", default)]
    role: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

impl Rbac {
    /// Takes over the new state of one object: its JSON, or `None` when it was deleted. An object that cannot be read
    /// grants nothing.
    pub fn set(&self, kind: RbacKind, namespace: &str, name: &str, object: Option<&[u8]>) {
        let rules = || -> Option<Vec<PolicyRule>> {
            let role: RoleObject = serde_json::from_slice(object?).ok()?;
            Some(role.rules.unwrap_or_default())
        };
        let binding = || -> Option<Binding> {
            let read: BindingObject = serde_json::from_slice(object?).ok()?;
            Some(Binding {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                role: read.role,
                subjects: read.subjects.unwrap_or_default(),
            })
        };
        let mut index = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match kind {
            RbacKind::ClusterRole => put(&mut index.cluster_roles, name, rules()),
            RbacKind::Role => put(index.roles.entry(namespace.to_owned()).or_default(), name, rules()),
            RbacKind::ClusterRoleBinding => index.cluster_bindings.set(name, binding()),
            RbacKind::RoleBinding => index.bindings.entry(namespace.to_owned()).or_default().set(name, binding()),
        }
    }

    /// Namespace and name of every object of `kind` that is known.
    pub fn names(&self, kind: RbacKind) -> Vec<(String, String)> {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let cluster = |name: &String| (String::new(), name.clone());
        match kind {
            RbacKind::ClusterRole => index.cluster_roles.keys().map(cluster).collect(),
            RbacKind::ClusterRoleBinding => index.cluster_bindings.by_name.keys().map(cluster).collect(),
            RbacKind::Role => {
                let of = |(ns, roles): (&String, &HashMap<String, _>)| pairs(ns, roles.keys());
                index.roles.iter().flat_map(of).collect()
            }
            RbacKind::RoleBinding => {
                let of = |(ns, bindings): (&String, &Bindings)| pairs(ns, bindings.by_name.keys());
                index.bindings.iter().flat_map(of).collect()
            }
        }
    }

    /// All rules that hold for `user` in `namespace` (empty: at cluster scope), and what could not be resolved.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for (binding, _) in index.bindings_of(user, namespace) {
            match index.rules_of(&binding.role, &binding.namespace) {
                Ok(found) => rules.extend_from_slice(found),
                Err(error) => errors.push(error),
            }
        }
        (rules, errors)
    }

    /// The rules of the role that a binding in `namespace` refers to, or why there are none.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<Vec<PolicyRule>, String> {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        index.rules_of(role, namespace).map(<[PolicyRule]>::to_vec)
    }
}

fn pairs<'a>(namespace: &str, names: impl Iterator<Item = &'a String>) -> Vec<(String, String)> {
    names.map(|name| (namespace.to_owned(), name.clone())).collect()
}

fn put(roles: &mut HashMap<String, Vec<PolicyRule>>, name: &str, rules: Option<Vec<PolicyRule>>) {
    match rules {
        Some(rules) => drop(roles.insert(name.to_owned(), rules)),
        None => drop(roles.remove(name)),
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut errors = Vec::new();
        for (binding, subject) in index.bindings_of(attributes.user, attributes.namespace) {
            match index.rules_of(&binding.role, &binding.namespace) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allow(Grant::Rbac { binding: binding.clone(), subject: *subject });
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        Decision::no_opinion(if errors.is_empty() { String::new() } else { format!("RBAC: {}", aggregate(&errors)) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rbac(objects: &[(RbacKind, &str, &str, Value)]) -> Rbac {
        let rbac = Rbac::default();
        for (kind, namespace, name, object) in objects {
            rbac.set(*kind, namespace, name, Some(object.to_string().as_bytes()));
        }
        rbac
    }

    fn role(verb: &str) -> Value {
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
    }

    fn binding(role_kind: &str, subject: &Value) -> Value {
        json!({"roleRef": {"kind": role_kind, "name": "r"}, "subjects": [subject]})
    }

    fn decide(rbac: &Rbac, user: &UserInfo, namespace: &str) -> Decision {
        rbac.authorize(&Attributes { namespace, ..Attributes::resource(user, "get", "", "v1", "pods") })
    }

    #[test]
    fn a_binding_grants_its_role_where_it_stands() {
        let jane = UserInfo::authenticated("jane", ["devs"]);
        let robot = UserInfo::service_account("ns", "robot");
        let cases = [
            ("user", &jane, json!({"kind": "User", "name": "jane"}), true),
            ("group", &jane, json!({"kind": "Group", "name": "devs"}), true),
            ("other user", &jane, json!({"kind": "User", "name": "joe"}), false),
            ("a group is no user", &jane, json!({"kind": "User", "name": "devs"}), false),
            ("service account", &robot, json!({"kind": "ServiceAccount", "name": "robot", "namespace": "ns"}), true),
            ("of the binding's namespace", &robot, json!({"kind": "ServiceAccount", "name": "robot"}), true),
            (
                "of another namespace",
                &robot,
                json!({"kind": "ServiceAccount", "name": "robot", "namespace": "b"}),
                false,
            ),
        ];
        for (name, user, subject, want) in cases {
            let rbac = rbac(&[
                (RbacKind::Role, "ns", "r", role("get")),
                (RbacKind::RoleBinding, "ns", "b", binding("Role", &subject)),
            ]);
            assert_eq!(decide(&rbac, user, "ns").is_allowed(), want, "{name}");
            assert!(!decide(&rbac, user, "other").is_allowed(), "{name}: elsewhere");
            assert!(!decide(&rbac, user, "").is_allowed(), "{name}: at cluster scope");
        }
    }

    #[test]
    fn a_cluster_role_binding_grants_everywhere() {
        let jane = UserInfo::authenticated("jane", [""; 0]);
        let rbac = rbac(&[
            (RbacKind::ClusterRole, "", "r", role("get")),
            (RbacKind::ClusterRoleBinding, "", "b", binding("ClusterRole", &json!({"kind": "User", "name": "jane"}))),
        ]);
        assert!(decide(&rbac, &jane, "").is_allowed());
        let Decision::Allow(grant) = decide(&rbac, &jane, "ns") else { panic!("want allowed") };
        assert_eq!(grant.to_string(), r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "jane""#);
    }

    #[test]
    fn a_missing_role_is_named() {
        let jane = UserInfo::authenticated("jane", [""; 0]);
        let rbac = rbac(&[(
            RbacKind::ClusterRoleBinding,
            "",
            "b",
            binding("ClusterRole", &json!({"kind": "User", "name": "jane"})),
        )]);
        let Decision::NoOpinion { reason } = decide(&rbac, &jane, "") else { panic!("want no opinion") };
        assert_eq!(reason, r#"RBAC: clusterrole.rbac.authorization.k8s.io "r" not found"#);
    }

    #[test]
    fn changed_and_deleted_objects_no_longer_grant() {
        let jane = UserInfo::authenticated("jane", [""; 0]);
        let rbac = rbac(&[
            (RbacKind::Role, "ns", "r", role("get")),
            (RbacKind::RoleBinding, "ns", "b", binding("Role", &json!({"kind": "User", "name": "jane"}))),
        ]);
        rbac.set(RbacKind::Role, "ns", "r", Some(role("list").to_string().as_bytes()));
        assert!(!decide(&rbac, &jane, "ns").is_allowed(), "the role lost its verb");
        rbac.set(RbacKind::Role, "ns", "r", Some(role("get").to_string().as_bytes()));
        assert!(decide(&rbac, &jane, "ns").is_allowed());
        let joe = binding("Role", &json!({"kind": "User", "name": "joe"}));
        rbac.set(RbacKind::RoleBinding, "ns", "b", Some(joe.to_string().as_bytes()));
        assert!(!decide(&rbac, &jane, "ns").is_allowed(), "the binding lost its subject");
        rbac.set(RbacKind::RoleBinding, "ns", "b", None);
        assert!(!decide(&rbac, &UserInfo::authenticated("joe", [""; 0]), "ns").is_allowed(), "the binding is gone");
    }
}
