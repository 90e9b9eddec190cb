//! Roles and bindings of every cluster, read from the table `rbac.txt`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::apiserver::authz::PolicyRule;

const TABLE: &str = include_str!("rbac.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
const CONTROLLER_PREFIX: &str = "system:controller:";

#[derive(Debug, Default)]
struct Role {
    namespace: String,
    name: String,
    labels: Vec<String>,
    aggregates: Option<String>,
    rules: Vec<PolicyRule>,
}

#[derive(Debug)]
struct Binding {
    namespace: String,
    name: String,
    role: String,
    subjects: Vec<Value>,
}

/// All ClusterRoles, Roles, ClusterRoleBindings and RoleBindings, aggregated rules filled in.
pub(super) fn objects() -> Vec<Value> {
    let (roles, bindings) = parse(TABLE);
    let aggregated: Vec<(usize, Vec<PolicyRule>)> = roles
        .iter()
        .enumerate()
        .filter(|(_, role)| role.aggregates.is_some())
        .map(|(i, r)| (i, rules(r, &roles)))
        .collect();
    let mut objects = Vec::new();
    for (i, role) in roles.iter().enumerate() {
        let rules = aggregated.iter().find(|(at, _)| *at == i).map_or(&role.rules, |(_, rules)| rules);
        objects.push(role_object(role, rules));
    }
    for role in roles.iter().filter(|role| role.name.starts_with(CONTROLLER_PREFIX) && role.namespace.is_empty()) {
        let account = &role.name[CONTROLLER_PREFIX.len()..];
        objects.push(binding_object(&Binding {
            namespace: String::new(),
            name: role.name.clone(),
            role: role.name.clone(),
            subjects: vec![subject("ServiceAccount", &format!("kube-system/{account}"))],
        }));
    }
    objects.extend(bindings.iter().map(binding_object));
    objects
}

/// The rules of the ClusterRole `system:node`, which the node authorizer holds for all kubelets.
pub fn node_rules() -> Vec<PolicyRule> {
    let (roles, _) = parse(TABLE);
    roles.into_iter().find(|role| role.name == "system:node").map(|role| role.rules).unwrap_or_default()
}

/// A role's own rules, or those of all roles that it aggregates, in the order of their names, each once.
fn rules(role: &Role, all: &[Role]) -> Vec<PolicyRule> {
    let Some(label) = &role.aggregates else { return role.rules.clone() };
    let mut parts: Vec<&Role> = all.iter().filter(|part| part.labels.contains(label)).collect();
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    let mut collected: Vec<PolicyRule> = Vec::new();
    for rule in parts.into_iter().flat_map(|part| rules(part, all)) {
        if !collected.contains(&rule) {
            collected.push(rule);
        }
    }
    collected
}

fn parse(table: &str) -> (Vec<Role>, Vec<Binding>) {
    let (mut roles, mut bindings): (Vec<Role>, Vec<Binding>) = Default::default();
    let mut in_role = true;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(1).copied().unwrap_or_default();
        match words.first().copied().unwrap_or_default() {
            _ if line.starts_with(' ') => {
                if in_role {
                    if let Some(role) = roles.last_mut() {
                        role.rules.push(rule(&words));
                    }
                } else if let Some(binding) = bindings.last_mut() {
                    binding.subjects.push(subject(words[0], name));
                }
            }
            kind @ ("clusterrole" | "role") => {
                let after = |key: &str| -> Vec<String> {
                    let pairs = words.windows(2).filter(|pair| pair[0] == key);
                    pairs.map(|pair| pair[1].to_owned()).collect()
                };
                let (namespace, name) = split(name, kind == "role");
                let (labels, aggregates) = (after("label"), after("aggregates").pop());
                roles.push(Role { namespace, name, labels, aggregates, rules: Vec::new() });
                in_role = true;
            }
            kind @ ("clusterrolebinding" | "rolebinding") => {
                let (namespace, name) = split(name, kind == "rolebinding");
                let role = words.get(3).copied().unwrap_or_default().to_owned();
                bindings.push(Binding { namespace, name, role, subjects: Vec::new() });
                in_role = false;
            }
            _ => {}
        }
    }
    (roles, bindings)
}

fn split(name: &str, namespaced: bool) -> (String, String) {
    match name.split_once('/') {
        Some((namespace, name)) if namespaced => (namespace.to_owned(), name.to_owned()),
        _ => (String::new(), name.to_owned()),
    }
}

fn rule(words: &[&str]) -> PolicyRule {
    let list = |at: usize| -> Vec<String> {
        let texts = words.get(at).into_iter().flat_map(|word| word.split(','));
        texts.map(|text| if text == "core" { String::new() } else { text.to_owned() }).collect()
    };
    if words.get(1) == Some(&"paths") {
        return PolicyRule { verbs: list(0), non_resource_urls: list(2), ..PolicyRule::default() };
    }
    PolicyRule {
        verbs: list(0),
        api_groups: list(1),
        resources: list(2),
        resource_names: list(4),
        ..PolicyRule::default()
    }
}

fn subject(kind: &str, name: &str) -> Value {
    match name.split_once('/') {
        Some((namespace, name)) if kind == "ServiceAccount" => {
            json!({"kind": kind, "name": name, "namespace": namespace})
        }
        _ => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
    }
}

fn metadata(namespace: &str, name: &str, labels: &[String]) -> Value {
    let mut all: BTreeMap<String, &str> = labels.iter().map(|label| (format!("{GROUP}/{label}"), "true")).collect();
    all.insert("kubernetes.io/bootstrapping".into(), "rbac-defaults");
    let mut metadata = json!({
        "name": name,
        "labels": all,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn role_object(role: &Role, rules: &[PolicyRule]) -> Value {
    let kind = if role.namespace.is_empty() { "ClusterRole" } else { "Role" };
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": metadata(&role.namespace, &role.name, &role.labels),
        "rules": rules,
    });
    if let Some(label) = &role.aggregates {
        let selector = BTreeMap::from([(format!("{GROUP}/{label}"), "true")]);
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": selector}]});
    }
    object
}

fn binding_object(binding: &Binding) -> Value {
    let (kind, role) =
        if binding.namespace.is_empty() { ("ClusterRoleBinding", "ClusterRole") } else { ("RoleBinding", "Role") };
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": metadata(&binding.namespace, &binding.name, &[]),
        "roleRef": {"apiGroup": GROUP, "kind": role, "name": binding.role},
    });
    if !binding.subjects.is_empty() {
        object["subjects"] = json!(binding.subjects);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
        objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).unwrap()
    }

    fn count(objects: &[Value], kind: &str) -> usize {
        objects.iter().filter(|object| object["kind"] == kind).count()
    }

    #[test]
    fn there_are_as_many_as_in_a_fresh_cluster() {
        let objects = objects();
        assert_eq!(count(&objects, "ClusterRole"), 69);
        assert_eq!(count(&objects, "ClusterRoleBinding"), 50);
        assert_eq!(count(&objects, "Role"), 7);
        assert_eq!(count(&objects, "RoleBinding"), 7);
    }

    #[test]
    fn aggregated_roles_hold_the_rules_of_their_parts() {
        let objects = objects();
        for (name, rules) in [("view", 12), ("edit", 27), ("admin", 29)] {
            let role = find(&objects, "ClusterRole", name);
            assert_eq!(role["rules"].as_array().unwrap().len(), rules, "{name}");
            assert!(role["aggregationRule"].is_object(), "{name}");
        }
        let edit = find(&objects, "ClusterRole", "edit");
        assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
    }

    #[test]
    fn rules_and_subjects_are_read_whole() {
        let objects = objects();
        let admin = find(&objects, "ClusterRole", "cluster-admin");
        assert_eq!(
            admin["rules"],
            json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]}
            ])
        );
        let scheduler = find(&objects, "ClusterRole", "system:kube-scheduler");
        assert_eq!(scheduler["rules"][2]["resourceNames"], json!(["kube-scheduler"]));
        let binding = find(&objects, "ClusterRoleBinding", "system:controller:job-controller");
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "job-controller", "namespace": "kube-system"}])
        );
        assert_eq!(find(&objects, "ClusterRoleBinding", "system:node").get("subjects"), None);
        assert!(node_rules().len() > 20);
    }
}
