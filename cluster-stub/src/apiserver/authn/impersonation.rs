//! Acting as somebody else with `Impersonate-*` headers: reads them and asks whether the requestor may.

use http::HeaderMap;

use super::UserInfo;
use super::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, NODE_USER_PREFIX, NODES_GROUP};
use super::user::{ALL_SERVICE_ACCOUNTS_GROUP, SYSTEM_PRIVILEGED_GROUP};
use crate::apiserver::authz::{Attributes, Authorizer, Decision, forbidden};
use crate::apiserver::request::percent_decode;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::field::quote;

const GROUP: &str = "authentication.k8s.io";
const NODE_NAME_KEY: &str = "authentication.kubernetes.io/node-name";
/// From this many groups or extra values on, one check for all of them comes first.
const MANY: usize = 4;

/// The user that the headers ask for; the headers are removed so that nothing later sees them.
/// Upstream v1.36.2: apiserver/pkg/endpoints/filters/impersonation processImpersonationHeaders.
pub fn wanted_user(headers: &mut HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let texts = |headers: &HeaderMap, name: &str| -> Vec<String> {
        headers.get_all(name).into_iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(headers, name).into_iter().next().unwrap_or_default();
    let mut wanted = UserInfo {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts(headers, "impersonate-group"),
        ..UserInfo::default()
    };
    let extra: Vec<_> = headers.keys().filter(|k| k.as_str().starts_with("impersonate-extra-")).cloned().collect();
    for header in &extra {
        let key = percent_decode(&header.as_str()["impersonate-extra-".len()..]);
        wanted.extra.entry(key).or_default().extend(texts(headers, header.as_str()));
    }
    if wanted.name.is_empty() {
        if wanted.uid.is_empty() && wanted.groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(ApiError::bad_request(format!(
            "requested user with uid {}, groups [{}], extra keys [{}] without impersonating a user name",
            quote(&wanted.uid),
            wanted.groups.join(" "),
            wanted.extra.keys().cloned().collect::<Vec<_>>().join(" ")
        )));
    }
    for header in ["impersonate-user", "impersonate-uid", "impersonate-group"] {
        headers.remove(header);
    }
    for header in extra {
        headers.remove(header);
    }
    Ok(Some(wanted))
}

/// The user that `request.user` becomes for this request, or the refusal. Each mode of constrained impersonation is
/// tried, then the old way; the first refusal is the one told.
/// Upstream v1.36.2: apiserver/pkg/endpoints/filters/impersonation/mode.go allImpersonationModes.
pub fn impersonate(
    wanted: &UserInfo,
    request: &Attributes<'_>,
    authorizer: &dyn Authorizer,
) -> Result<UserInfo, ApiError> {
    let mut first_refusal = None;
    for mode in Mode::ALL {
        if !mode.applies(wanted, request.user) {
            continue;
        }
        match mode.check(wanted, request, authorizer) {
            Ok(user) => return Ok(user),
            Err(error) => drop(first_refusal.get_or_insert(error)),
        }
    }
    Err(first_refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    const ALL: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    fn verb(self) -> String {
        if self == Mode::Legacy { "impersonate".into() } else { format!("impersonate:{}", self.name()) }
    }

    fn applies(self, wanted: &UserInfo, requestor: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME_KEY).map(Vec::as_slice);
                only_name
                    && requestor.as_service_account().is_some()
                    && node.is_some_and(|node| matches!(own, Some([one]) if one == node))
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && wanted.as_service_account().is_some(),
            Mode::UserInfo => node.is_none() && wanted.as_service_account().is_none(),
            Mode::Legacy => true,
        }
    }

    fn check(
        self,
        wanted: &UserInfo,
        request: &Attributes<'_>,
        authorizer: &dyn Authorizer,
    ) -> Result<UserInfo, ApiError> {
        let constrained = self != Mode::Legacy;
        if constrained {
            let verb = format!("impersonate-on:{}:{}", self.name(), request.verb);
            ask(authorizer, &Attributes { verb: &verb, ..*request })?;
        }
        let verb = self.verb();
        let group = if constrained { GROUP } else { "" };
        let ask_for = |group: &str, resource: &str, namespace: &str, subresource: &str, name: &str| {
            let question = Attributes {
                namespace,
                subresource,
                name,
                ..Attributes::resource(request.user, &verb, group, "v1", resource)
            };
            ask(authorizer, &question)
        };
        let mut user = wanted.clone();
        match (node_name(&wanted.name), wanted.as_service_account()) {
            (Some(node), _) if constrained => {
                user.groups = vec![NODES_GROUP.to_owned()];
                let shown = if self == Mode::AssociatedNode { "*" } else { node };
                ask_for(group, "nodes", "", "", shown)?;
            }
            (_, Some((namespace, name))) => {
                if wanted.groups.is_empty() {
                    user.groups = vec![
                        ALL_SERVICE_ACCOUNTS_GROUP.to_owned(),
                        format!("{ALL_SERVICE_ACCOUNTS_GROUP}:{namespace}"),
                    ];
                }
                ask_for(group, "serviceaccounts", namespace, "", name)?;
            }
            _ => ask_for(group, "users", "", "", &wanted.name)?,
        }
        if !wanted.uid.is_empty() {
            ask_for(GROUP, "uids", "", "", &wanted.uid)?;
        }
        let refuse = |resource: &str, name: &str, why: &str| {
            let question = Attributes { name, ..Attributes::resource(request.user, &verb, GROUP, "v1", resource) };
            Err(forbidden(&question, why))
        };
        if constrained && wanted.groups.iter().any(String::is_empty) {
            return refuse("groups", "", "impersonating the empty string group is not allowed");
        }
        if constrained && wanted.in_group(SYSTEM_PRIVILEGED_GROUP) {
            let why = "impersonating the system:masters group is not allowed";
            return refuse("groups", SYSTEM_PRIVILEGED_GROUP, why);
        }
        let all = constrained && wanted.groups.len() >= MANY && ask_for(group, "groups", "", "", "*").is_ok();
        for name in wanted.groups.iter().filter(|_| !all) {
            ask_for(group, "groups", "", "", name)?;
        }
        let values: usize = wanted.extra.values().map(Vec::len).sum();
        let all = constrained && values >= MANY && ask_for(GROUP, "userextras", "", "*", "*").is_ok();
        for (key, values) in wanted.extra.iter().filter(|_| !all) {
            for value in values {
                if constrained && (key.is_empty() || value.is_empty()) {
                    return refuse("userextras", "", "impersonating the empty string value in extra is not allowed");
                }
                ask_for(GROUP, "userextras", "", key, value)?;
            }
        }
        if user.name == ANONYMOUS {
            user.add_group(ALL_UNAUTHENTICATED);
        } else if !user.in_group(ALL_UNAUTHENTICATED) {
            user.add_group(ALL_AUTHENTICATED);
        }
        Ok(user)
    }
}

fn ask(authorizer: &dyn Authorizer, question: &Attributes<'_>) -> Result<(), ApiError> {
    match authorizer.authorize(question) {
        Decision::Allow(_) => Ok(()),
        Decision::NoOpinion { reason } => Err(forbidden(question, &reason)),
    }
}

fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE_USER_PREFIX)?;
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    (!name.is_empty() && name.len() <= 253 && name.bytes().all(fits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apiserver::authz::{PrivilegedGroups, Rbac, RbacKind, Union};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn headers_name_the_wanted_user_and_are_taken_away() {
        let mut all = headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "ops"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-a%2fb", "c"),
            ("accept", "x"),
        ]);
        let user = wanted_user(&mut all).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups.join(",").as_str()), ("jane", "7", "dev,ops"));
        assert_eq!(user.extra["a/b"], ["c"]);
        assert_eq!(all.len(), 1);
        assert_eq!(wanted_user(&mut all).unwrap(), None);
        let error = wanted_user(&mut headers(&[("impersonate-group", "dev")])).unwrap_err();
        assert_eq!(error.code(), 400);
    }

    fn authorizer(rules: serde_json::Value) -> Union {
        let rbac = Rbac::default();
        let role = serde_json::Value::from_iter([("rules", rules)]);
        rbac.set(RbacKind::ClusterRole, "", "r", Some(role.to_string().as_bytes()));
        let binding =
            json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "eve"}]});
        rbac.set(RbacKind::ClusterRoleBinding, "", "b", Some(binding.to_string().as_bytes()));
        Union::new(vec![std::sync::Arc::new(PrivilegedGroups), std::sync::Arc::new(rbac)])
    }

    fn act(requestor: &UserInfo, wanted: &UserInfo, rules: serde_json::Value) -> Result<String, String> {
        let request = Attributes::resource(requestor, "list", "", "v1", "pods");
        let user = impersonate(wanted, &request, &authorizer(rules)).map_err(|e| e.message().to_owned())?;
        Ok(format!("{}[{}]", user.name, user.groups.join(",")))
    }

    fn jane(groups: &[&str]) -> UserInfo {
        UserInfo {
            name: "jane".into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    #[test]
    fn an_admin_may_be_anybody() {
        let admin = UserInfo::admin("root");
        assert_eq!(act(&admin, &jane(&[]), json!([])).unwrap(), "jane[system:authenticated]");
        assert_eq!(act(&admin, &jane(&["dev"]), json!([])).unwrap(), "jane[dev,system:authenticated]");
        let masters = jane(&["system:masters"]);
        assert_eq!(act(&admin, &masters, json!([])).unwrap(), "jane[system:masters,system:authenticated]");
        let robot = UserInfo { name: "system:serviceaccount:ns:a".into(), ..UserInfo::default() };
        assert_eq!(
            act(&admin, &robot, json!([])).unwrap(),
            "system:serviceaccount:ns:a[system:serviceaccounts,system:serviceaccounts:ns,system:authenticated]"
        );
        let anonymous = UserInfo { name: ANONYMOUS.into(), ..UserInfo::default() };
        assert_eq!(act(&admin, &anonymous, json!([])).unwrap(), "system:anonymous[system:unauthenticated]");
    }

    #[test]
    fn others_need_a_rule_and_are_told_the_first_that_is_missing() {
        let eve = UserInfo::authenticated("eve", [""; 0]);
        assert_eq!(
            act(&eve, &jane(&[]), json!([])).unwrap_err(),
            r#"pods is forbidden: User "eve" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope"#
        );
        let robot = UserInfo { name: "system:serviceaccount:ns:a".into(), ..UserInfo::default() };
        assert_eq!(
            act(&eve, &robot, json!([])).unwrap_err(),
            r#"pods is forbidden: User "eve" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" at the cluster scope"#
        );
        let on = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]});
        let user =
            json!({"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]});
        assert_eq!(act(&eve, &jane(&[]), json!([on, user])).unwrap(), "jane[system:authenticated]");
        assert!(act(&eve, &jane(&["dev"]), json!([on, user])).is_err(), "groups need their own rule");
        let old = json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]});
        assert_eq!(act(&eve, &jane(&[]), json!([old])).unwrap(), "jane[system:authenticated]");
        assert!(act(&eve, &jane(&["system:masters"]), json!([old])).is_err());
    }
}
