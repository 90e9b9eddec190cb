//! Roles and bindings of `rbac.authorization.k8s.io`. Who may do what is decided in authz, not here.
//!
//! Upstream: v1.36.2 `pkg/apis/rbac/validation/validation.go`, `pkg/apis/rbac/v1/defaults.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, Column};
use super::kind::Kind;
use super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::validate_label_selector;
use crate::apiserver::validation::names::path_segment;
use crate::apiserver::validation::{FieldError, Path};

const GROUP: &str = "rbac.authorization.k8s.io";
const BINDING_COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Role"),
    columns::AGE,
    Column::wide("Users"),
    Column::wide("Groups"),
    Column::wide("ServiceAccounts"),
];

/// Roles, ClusterRoles and their bindings.
pub(super) fn resources() -> Vec<Resource> {
    let role = |plural, kind| Kind::new(GROUP, "v1", plural, kind).name_rule(path_segment).create_on_update();
    let binding = |plural, kind| role(plural, kind).defaults(binding_defaults).columns(BINDING_COLUMNS, binding_cells);
    vec![
        role("roles", "Role").validate(|role, out| validate_rules(role, true, out)).build(),
        role("clusterroles", "ClusterRole").cluster_scoped().validate(validate_cluster_role).build(),
        binding("rolebindings", "RoleBinding")
            .validate(|binding, out| validate_binding(binding, true, out))
            .validate_update(validate_binding_update)
            .build(),
        binding("clusterrolebindings", "ClusterRoleBinding")
            .cluster_scoped()
            .validate(|binding, out| validate_binding(binding, false, out))
            .validate_update(validate_binding_update)
            .build(),
    ]
}

fn binding_defaults(binding: &mut Value) {
    binding.object_mut("roleRef");
    let role_ref = &mut binding["roleRef"];
    if role_ref.text("apiGroup").is_empty() {
        role_ref.put("apiGroup", json!(GROUP));
    }
    for subject in binding.items_mut("subjects") {
        if subject.text("apiGroup").is_empty() && matches!(subject.text("kind"), "User" | "Group") {
            subject.put("apiGroup", json!(GROUP));
        }
    }
}

fn validate_rules(role: &Value, namespaced: bool, out: &mut Vec<FieldError>) {
    let rules = Path::root("rules");
    for (index, rule) in role.items("rules").iter().enumerate() {
        validate_rule(rule, namespaced, &rules.index(index), out);
    }
}

fn validate_rule(rule: &Value, namespaced: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if rule.items("verbs").is_empty() {
        out.push(FieldError::required(&path.child("verbs"), "verbs must contain at least one value"));
    }
    let urls = rule.items("nonResourceURLs");
    if !urls.is_empty() {
        let field = path.child("nonResourceURLs");
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            out.push(FieldError::invalid(&field, rule.at("nonResourceURLs").clone(), why));
        }
        let mixed = ["apiGroups", "resources", "resourceNames"].iter().any(|key| !rule.items(key).is_empty());
        if mixed {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            out.push(FieldError::invalid(&field, rule.at("nonResourceURLs").clone(), why));
        }
        return;
    }
    if rule.items("apiGroups").is_empty() {
        out.push(FieldError::required(&path.child("apiGroups"), "resource rules must supply at least one api group"));
    }
    if rule.items("resources").is_empty() {
        out.push(FieldError::required(&path.child("resources"), "resource rules must supply at least one resource"));
    }
}

fn validate_cluster_role(role: &Value, out: &mut Vec<FieldError>) {
    validate_rules(role, false, out);
    if role.has("aggregationRule") {
        let path = Path::root("aggregationRule");
        let selectors = path.child("clusterRoleSelectors");
        let items = role.at("aggregationRule").items("clusterRoleSelectors");
        if items.is_empty() {
            let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            out.push(FieldError::required(&selectors, why));
        }
        for (index, selector) in items.iter().enumerate() {
            validate_label_selector(selector, &selectors.index(index), out);
        }
    }
}

fn validate_binding(binding: &Value, namespaced: bool, out: &mut Vec<FieldError>) {
    let path = Path::root("roleRef");
    let role_ref = binding.at("roleRef");
    let group = role_ref.text("apiGroup");
    if group != GROUP {
        out.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = role_ref.text("kind");
    if !kinds.contains(&kind) {
        out.push(FieldError::not_supported(&path.child("kind"), kind, kinds));
    }
    let name = role_ref.text("name");
    if name.is_empty() {
        out.push(FieldError::required(&path.child("name"), ""));
    } else {
        let field = path.child("name");
        out.extend(path_segment(name, false).into_iter().map(|error| FieldError::invalid(&field, name, error)));
    }
    let subjects = Path::root("subjects");
    for (index, subject) in binding.items("subjects").iter().enumerate() {
        validate_subject(subject, namespaced, &subjects.index(index), out);
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let name = subject.text("name");
    if name.is_empty() {
        out.push(FieldError::required(&path.child("name"), ""));
    }
    let group = subject.text("apiGroup");
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let field = path.child("name");
                let errors = crate::apiserver::validation::names::dns_subdomain(name);
                out.extend(errors.into_iter().map(|error| FieldError::invalid(&field, name, error)));
            }
            if !group.is_empty() {
                out.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
            }
            if !namespaced && subject.text("namespace").is_empty() {
                out.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                out.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP]));
            }
        }
        other => out.push(FieldError::not_supported(&path.child("kind"), other, &["ServiceAccount", "User", "Group"])),
    }
}

fn validate_binding_update(binding: &Value, old: &Value, out: &mut Vec<FieldError>) {
    if binding.at("roleRef") != old.at("roleRef") {
        out.push(FieldError::invalid(
            &Path::root("roleRef"),
            go_role_ref(binding.at("roleRef")),
            "cannot change roleRef",
        ));
    }
}

/// A roleRef as upstream prints its internal type, which has no JSON names.
fn go_role_ref(role_ref: &Value) -> Value {
    json!({"APIGroup": role_ref.text("apiGroup"), "Kind": role_ref.text("kind"), "Name": role_ref.text("name")})
}

fn binding_cells(binding: &Value, now: Timestamp) -> Vec<Value> {
    let role_ref = binding.at("roleRef");
    let named = |kind: &str| {
        let names: Vec<String> = binding
            .items("subjects")
            .iter()
            .filter(|subject| subject.text("kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
                _ => subject.text("name").to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    vec![
        columns::name(binding),
        json!(format!("{}/{}", role_ref.text("kind"), role_ref.text("name"))),
        columns::age(binding, now),
        named("User"),
        named("Group"),
        named("ServiceAccount"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rule: impl Fn(&mut Vec<FieldError>)) -> Vec<String> {
        let mut errors = Vec::new();
        rule(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn namespaced_rules_have_no_urls() {
        let role = json!({"rules": [{"verbs": [], "apiGroups": [""], "resources": ["pods"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert_eq!(
            texts(|out| validate_rules(&role, true, out)),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
            ]
        );
        let fits = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        assert_eq!(texts(|out| validate_rules(&fits, true, out)), Vec::<String>::new());
    }

    #[test]
    fn binding_names_a_known_kind_of_role_and_subject() {
        let mut binding =
            json!({"roleRef": {"kind": "Nope", "name": "r"}, "subjects": [{"kind": "Robot", "name": "x"}]});
        binding_defaults(&mut binding);
        assert_eq!(
            texts(|out| validate_binding(&binding, true, out)),
            [
                "roleRef.kind: Unsupported value: \"Nope\": supported values: \"Role\", \"ClusterRole\"",
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ]
        );
    }
}
