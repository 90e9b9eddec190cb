//! Nobody may grant what he does not hold. Says so in upstream's words; which requests are asked is admission's.

use std::collections::BTreeSet;

use super::cover::{compact, describe, quoted_list, uncovered};
use super::policy::PolicyRule;
use super::rbac::Rbac;
use crate::apiserver::authn::UserInfo;
use crate::apiserver::validation::field::quote;

/// Whether `user` holds in `namespace` all that `rules` grant; the error is the text for a 403.
/// Upstream v1.36.2: pkg/registry/rbac/validation/rule.go ConfirmNoEscalation.
pub fn confirm_no_escalation(
    rbac: &Rbac,
    user: &UserInfo,
    namespace: &str,
    rules: &[PolicyRule],
) -> Result<(), String> {
    let (held, errors) = rbac.rules_for(user, namespace);
    let missing = uncovered(&held, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let descriptions: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let lines: Vec<String> = descriptions.into_iter().collect();
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        quoted_list(&user.groups),
        lines.join("\n")
    );
    if !errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", errors.join(" ")));
    }
    Err(message)
}

/// Everything: what one must hold to use an aggregation rule.
pub fn full_authority() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apiserver::authz::RbacKind;

    #[test]
    fn granting_needs_holding() {
        let rbac = Rbac::default();
        let role = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
        let binding =
            json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "eve"}]});
        rbac.set(RbacKind::ClusterRole, "", "r", Some(role.to_string().as_bytes()));
        rbac.set(RbacKind::RoleBinding, "ns", "b", Some(binding.to_string().as_bytes()));
        let eve = UserInfo::authenticated("eve", [""; 0]);
        let pods = |verbs: &[&str]| PolicyRule {
            verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
            api_groups: vec![String::new()],
            resources: vec!["pods".into()],
            ..PolicyRule::default()
        };
        assert_eq!(confirm_no_escalation(&rbac, &eve, "ns", &[pods(&["get"])]), Ok(()));
        let error = confirm_no_escalation(&rbac, &eve, "ns", &[pods(&["get", "delete", "watch"])]).unwrap_err();
        assert_eq!(
            error,
            "user \"eve\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}"
        );
        assert!(confirm_no_escalation(&rbac, &eve, "other", &[pods(&["get"])]).is_err());
    }
}
