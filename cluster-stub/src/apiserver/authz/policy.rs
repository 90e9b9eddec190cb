//! The rules, subjects and role references of RBAC objects, and how one rule matches one request.

use serde::{Deserialize, Serialize};

use super::Attributes;

/// A rule of a Role or ClusterRole. Upstream v1.36.2: api/rbac/v1/types.go PolicyRule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Object names that the rule is limited to; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths outside the API; a trailing `*` matches any rest.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Whom a binding speaks of. Upstream v1.36.2: api/rbac/v1/types.go Subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// `rbac.authorization.k8s.io` for users and groups.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Name of the user, group or service account.
    pub name: String,
    /// Namespace of the service account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Which role a binding grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    /// `rbac.authorization.k8s.io`.
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
}

impl PolicyRule {
    /// Whether the rule allows the request. Upstream v1.36.2: plugin/pkg/auth/authorizer/rbac/rbac.go RuleAllows.
    pub fn allows(&self, request: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, request.verb) {
            return false;
        }
        if !request.is_resource {
            return self.non_resource_urls.iter().any(|url| url_matches(url, request.path));
        }
        has_or_all(&self.api_groups, request.group)
            && self.resources.iter().any(|r| resource_matches(r, request.resource, request.subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, request.name))
    }
}

pub(super) fn has(set: &[String], item: &str) -> bool {
    set.iter().any(|member| member == item)
}

pub(super) fn has_or_all(set: &[String], item: &str) -> bool {
    set.iter().any(|member| member == "*" || member == item)
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((of, sub)) => !subresource.is_empty() && sub == subresource && (of == "*" || of == resource),
    }
}

fn url_matches(rule: &str, path: &str) -> bool {
    rule == "*" || rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authn::UserInfo;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> PolicyRule {
        let list = |text: &str| -> Vec<String> {
            if text == "-" { vec![] } else { text.split(',').map(str::to_owned).collect() }
        };
        PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn resource_rules_match_verb_group_resource_subresource_and_name() {
        let user = UserInfo::authenticated("jane", [""; 0]);
        let cases = [
            ("exact", rule("get", "", "pods", "-"), ("get", "", "pods", "", "a"), true),
            ("other verb", rule("get", "", "pods", "-"), ("list", "", "pods", "", ""), false),
            ("any verb", rule("*", "", "pods", "-"), ("list", "", "pods", "", ""), true),
            ("other group", rule("get", "apps", "pods", "-"), ("get", "", "pods", "", "a"), false),
            ("any group", rule("get", "*", "pods", "-"), ("get", "", "pods", "", "a"), true),
            (
                "a resource does not cover its subresources",
                rule("get", "", "pods", "-"),
                ("get", "", "pods", "log", "a"),
                false,
            ),
            (
                "a subresource does not cover its resource",
                rule("get", "", "pods/log", "-"),
                ("get", "", "pods", "", "a"),
                false,
            ),
            ("subresource", rule("get", "", "pods/log", "-"), ("get", "", "pods", "log", "a"), true),
            ("subresource of anything", rule("get", "", "*/scale", "-"), ("get", "", "pods", "scale", "a"), true),
            (
                "another subresource of anything",
                rule("get", "", "*/scale", "-"),
                ("get", "", "pods", "log", "a"),
                false,
            ),
            ("all resources cover subresources", rule("get", "", "*", "-"), ("get", "", "pods", "log", "a"), true),
            ("named", rule("get", "", "pods", "a"), ("get", "", "pods", "", "a"), true),
            ("other name", rule("get", "", "pods", "a"), ("get", "", "pods", "", "b"), false),
            ("collections have no name", rule("list", "", "pods", "a"), ("list", "", "pods", "", ""), false),
            ("no verbs", rule("-", "", "pods", "-"), ("get", "", "pods", "", "a"), false),
        ];
        for (name, rule, (verb, group, resource, subresource, object), want) in cases {
            let request =
                Attributes { subresource, name: object, ..Attributes::resource(&user, verb, group, "v1", resource) };
            assert_eq!(rule.allows(&request), want, "{name}");
        }
    }

    #[test]
    fn paths_match_whole_or_by_trailing_star() {
        let user = UserInfo::anonymous();
        let cases = [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthz", false),
            ("*", "/anything", true),
            ("/api*", "/apis", true),
        ];
        for (url, path, want) in cases {
            let rule =
                PolicyRule { verbs: vec!["get".into()], non_resource_urls: vec![url.into()], ..PolicyRule::default() };
            assert_eq!(rule.allows(&Attributes::path(&user, "get", path)), want, "{url} {path}");
            assert!(!rule.allows(&Attributes::path(&user, "post", path)), "{url} {path}");
        }
    }
}
