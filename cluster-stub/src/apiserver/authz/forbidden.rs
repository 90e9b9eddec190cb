//! The text of a refusal. Upstream v1.36.2: apiserver/pkg/endpoints/handlers/responsewriters/errors.go.

use super::Attributes;
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::field::quote;

/// 403 for a request that no authorizer allowed; `reason` is what they said, possibly nothing.
pub fn forbidden(request: &Attributes<'_>, reason: &str) -> ApiError {
    let mut message = message(request).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    ApiError::forbidden(Qualified { group: request.group, name: request.resource }, request.name, message)
}

fn message(request: &Attributes<'_>) -> String {
    let user = quote(&request.user.name);
    let verb = request.verb;
    if !request.is_resource {
        return format!("User {user} cannot {verb} path {}", quote(request.path));
    }
    let resource = match request.subresource {
        "" => quote(request.resource),
        subresource => quote(&format!("{}/{subresource}", request.resource)),
    };
    let group = quote(request.group);
    match request.namespace {
        "" => format!("User {user} cannot {verb} resource {resource} in API group {group} at the cluster scope"),
        namespace => format!(
            "User {user} cannot {verb} resource {resource} in API group {group} in the namespace {}",
            quote(namespace)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authn::UserInfo;

    #[test]
    fn refusals_name_user_verb_resource_and_place() {
        let jane = UserInfo::authenticated("jane", [""; 0]);
        let pods = Attributes::resource(&jane, "list", "", "v1", "pods");
        let scale = Attributes {
            subresource: "scale",
            name: "d",
            namespace: "ns",
            ..Attributes::resource(&jane, "get", "apps", "v1", "deployments")
        };
        let cases = [
            (
                pods,
                "",
                r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope"#,
            ),
            (
                scale,
                "why",
                r#"deployments.apps "d" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" in the namespace "ns": why"#,
            ),
            (Attributes::path(&jane, "get", "/a<b"), "", r#"forbidden: User "jane" cannot get path "/a&lt;b""#),
        ];
        for (request, reason, want) in cases {
            assert_eq!(forbidden(&request, reason).message(), want);
        }
    }
}
