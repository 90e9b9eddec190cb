//! Whether one set of rules grants at least what another does, and the rest in few words.
//! Upstream v1.36.2: component-helpers/auth/rbac/validation/policy_comparator.go.

use super::policy::{PolicyRule, has, has_or_all};
use crate::apiserver::validation::field::quote;

/// The parts of `wanted`, broken down to single verbs and resources, that no rule of `held` covers.
pub(super) fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    wanted.iter().flat_map(break_down).filter(|part| !held.iter().any(|rule| covers(rule, part))).collect()
}

/// Rules that differ only by verb become one. Upstream v1.36.2: pkg/registry/rbac/validation/policy_compact.go.
pub(super) fn compact(parts: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut compacted: Vec<PolicyRule> = Vec::new();
    for part in parts {
        let same = compacted.iter_mut().find(|rule| {
            part.non_resource_urls.is_empty()
                && rule.non_resource_urls.is_empty()
                && rule.api_groups == part.api_groups
                && rule.resources == part.resources
                && rule.resource_names == part.resource_names
        });
        match same {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => compacted.push(part),
        }
    }
    compacted
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`; empty members are left out.
/// Upstream v1.36.2: pkg/apis/rbac/v1/helpers.go CompactString.
pub(super) fn describe(rule: &PolicyRule) -> String {
    let members = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts: Vec<String> = members
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:{}", quoted_list(values)))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

/// `["a" "b"]`, as Go prints a slice with `%q`.
pub(super) fn quoted_list(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| quote(value)).collect();
    format!("[{}]", quoted.join(" "))
}

fn break_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    let named = rule.resource_names.iter();
                    parts.extend(named.map(|name| PolicyRule { resource_names: vec![name.clone()], ..part.clone() }));
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            parts.push(PolicyRule {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..PolicyRule::default()
            });
        }
    }
    parts
}

/// Whether `held` grants all of `part`, which has one verb and one resource or path.
fn covers(held: &PolicyRule, part: &PolicyRule) -> bool {
    part.verbs.iter().all(|verb| has_or_all(&held.verbs, verb))
        && part.api_groups.iter().all(|group| has_or_all(&held.api_groups, group))
        && part.resources.iter().all(|resource| resource_covered(&held.resources, resource))
        && part.non_resource_urls.iter().all(|url| held.non_resource_urls.iter().any(|own| url_covers(own, url)))
        && names_covered(&held.resource_names, &part.resource_names)
}

fn resource_covered(held: &[String], resource: &str) -> bool {
    has_or_all(held, resource) || resource.split_once('/').is_some_and(|(_, sub)| has(held, &format!("*/{sub}")))
}

fn url_covers(held: &str, url: &str) -> bool {
    held == url || (held.ends_with('*') && url.starts_with(held.trim_end_matches('*')))
}

fn names_covered(held: &[String], wanted: &[String]) -> bool {
    held.is_empty() || (!wanted.is_empty() && wanted.iter().all(|name| has(held, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> PolicyRule {
        let mut fields = text.split(' ').map(|field| -> Vec<String> {
            if field == "-" { vec![] } else { field.split(',').map(|v| v.trim_matches('\'').to_owned()).collect() }
        });
        let mut next = || fields.next().unwrap_or_default();
        PolicyRule {
            verbs: next(),
            api_groups: next(),
            resources: next(),
            resource_names: next(),
            non_resource_urls: next(),
        }
    }

    #[test]
    fn rules_cover_by_star_by_list_and_by_subresource_star() {
        let cases = [
            ("same", "get '' pods", "get '' pods", true),
            ("fewer verbs", "get,list '' pods", "get '' pods", true),
            ("more verbs", "get '' pods", "get,list '' pods", false),
            ("star does not shrink", "get '' pods", "* '' pods", false),
            ("all resources", "* * *", "get apps deployments/scale", true),
            ("subresource star", "get '' */scale", "get '' pods/scale", true),
            ("named is less than unnamed", "get '' pods a", "get '' pods", false),
            ("unnamed is more than named", "get '' pods", "get '' pods a", true),
            ("other name", "get '' pods a", "get '' pods b", false),
            ("path", "get - - - /api/*", "get - - - /api/v1", true),
            ("other path", "get - - - /api/*", "get - - - /apis", false),
            ("a resource rule covers no path", "* * *", "get - - - /metrics", false),
        ];
        for (name, held, wanted, want) in cases {
            assert_eq!(uncovered(&[rule(held)], &[rule(wanted)]).is_empty(), want, "{name}");
        }
    }

    #[test]
    fn the_rest_is_compacted_by_verb() {
        let rest = compact(uncovered(&[], &[rule("get,list '' pods"), rule("get - - - /x")]));
        let texts: Vec<String> = rest.iter().map(describe).collect();
        assert_eq!(
            texts,
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#
            ]
        );
    }
}
