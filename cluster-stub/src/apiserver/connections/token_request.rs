//! POST to `serviceaccounts/NAME/token`: issues a token for a service account.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::apiserver::authn::{BoundObject, ISSUER, KubernetesClaim, ServiceAccountTokens, TokenClaims};
use crate::apiserver::registry::format_time;
use crate::apiserver::resources::{
    Action, ActionRequest, Behavior, GroupResource, Objects, Resource, Subresource, Verbs,
};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::field::{Path, quote};

const GROUP: &str = "authentication.k8s.io";
const KIND: Qualified<'static> = Qualified { group: GROUP, name: "TokenRequest" };
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
const DEFAULT_SECONDS: i64 = 3600;
/// What kubelets ask for a pod's token; such a token is good for a year, and its use after this time is only noted.
/// Upstream v1.36.2: pkg/serviceaccount/jwt.go WarnOnlyBoundTokenExpirationSeconds.
const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;
const SPEC: Path<'static> = Path::root("spec");

/// Adds the subresource to the ServiceAccount resource among `resources`, unless it is there.
pub fn add_token_subresource(resources: &mut [Arc<Resource>], tokens: &ServiceAccountTokens) {
    for resource in resources {
        let is_account = resource.group.is_empty() && resource.plural == "serviceaccounts";
        if !is_account || resource.subresource("token").is_some() {
            continue;
        }
        if let Some(resource) = Arc::get_mut(resource) {
            resource.subresources.push(Subresource {
                name: "token".into(),
                group: GROUP.into(),
                version: "v1".into(),
                kind: "TokenRequest".into(),
                type_name: "io.k8s.api.authentication.v1.TokenRequest".into(),
                verbs: Verbs::CREATE,
                behavior: Behavior::Action(Arc::new(TokenRequest { tokens: tokens.clone() })),
            });
        }
    }
}

/// Issues tokens. Upstream v1.36.2: pkg/registry/core/serviceaccount/storage/token.go.
#[derive(Debug)]
pub struct TokenRequest {
    tokens: ServiceAccountTokens,
}

impl Action for TokenRequest {
    fn apply_defaults(&self, body: &mut Value) {
        if body["spec"]["expirationSeconds"].is_null() {
            body["spec"]["expirationSeconds"] = json!(DEFAULT_SECONDS);
        }
    }

    fn run<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>> {
        self.issue(request).boxed()
    }
}

impl TokenRequest {
    async fn issue(&self, request: ActionRequest<'_>) -> Result<(u16, Value), ApiError> {
        let ActionRequest { namespace, name, mut body, context, objects, .. } = request;
        let now = context.now;
        matches_path(&body, "name", name, "must match the service account name if specified")?;
        matches_path(&body, "namespace", namespace, "must match the service account namespace if specified")?;
        let account = find(objects, "serviceaccounts", namespace, name).await?;
        let uid = text(&account["metadata"], "uid").to_owned();
        let asked = text(&body["metadata"], "uid");
        if !asked.is_empty() && asked != uid {
            let why =
                format!("the UID in the token request ({asked}) does not match the UID of the service account ({uid})");
            return Err(ApiError::conflict(KIND, name, why));
        }
        let mut audiences: Vec<String> = body["spec"]["audiences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|a| a.as_str().map(str::to_owned))
            .collect();
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
        check_expiration(seconds)?;

        let mut claim = KubernetesClaim {
            namespace: namespace.to_owned(),
            serviceaccount: BoundObject { name: name.to_owned(), uid: uid.clone() },
            ..KubernetesClaim::default()
        };
        if body["spec"]["boundObjectRef"].is_object() {
            bind(&mut claim, &body["spec"]["boundObjectRef"], name, objects).await?;
        }
        let extended =
            claim.pod.is_some() && seconds == WARN_ONLY_SECONDS && audiences.iter().all(|audience| audience == ISSUER);
        let start = now.as_second();
        claim.warnafter = extended.then_some(start + seconds);
        let claims = TokenClaims {
            aud: audiences.clone(),
            exp: start + if extended { EXTENDED_SECONDS } else { seconds },
            iat: start,
            iss: ISSUER.to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            kubernetes: claim,
            nbf: start,
            sub: format!("system:serviceaccount:{namespace}:{name}"),
        };
        let token = self.tokens.sign(&claims).await;
        let token = token.map_err(|error| ApiError::internal(format!("failed to generate token: {error}")))?;

        body["metadata"]["name"] = json!(name);
        body["metadata"]["namespace"] = json!(namespace);
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["creationTimestamp"] = json!(format_time(now));
        body["spec"]["audiences"] = json!(audiences);
        body["spec"]["expirationSeconds"] = json!(seconds);
        let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        body["status"] = json!({"token": token, "expirationTimestamp": format_time(end)});
        Ok((201, body))
    }
}

fn matches_path(body: &Value, member: &str, want: &str, why: &str) -> Result<(), ApiError> {
    let found = text(&body["metadata"], member);
    if found.is_empty() || found == want {
        return Ok(());
    }
    let metadata = Path::root("metadata");
    Err(ApiError::invalid(KIND, want, &[FieldError::invalid(&metadata.child(member), found, why)]))
}

/// Upstream v1.36.2: pkg/apis/authentication/validation/validation.go ValidateTokenRequest.
fn check_expiration(seconds: i64) -> Result<(), ApiError> {
    let why = if seconds < MIN_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MAX_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    Err(ApiError::invalid(KIND, "", &[FieldError::invalid(&SPEC.child("expirationSeconds"), seconds, why)]))
}

async fn bind(
    claim: &mut KubernetesClaim,
    reference: &Value,
    account: &str,
    objects: &dyn Objects,
) -> Result<(), ApiError> {
    let (api_version, kind, name) = (text(reference, "apiVersion"), text(reference, "kind"), text(reference, "name"));
    let resource = match (api_version, kind) {
        ("v1", "Pod") => "pods",
        ("v1", "Node") => "nodes",
        ("v1", "Secret") => "secrets",
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(message));
        }
    };
    let namespace = if resource == "nodes" { "" } else { claim.namespace.as_str() };
    let object = find(objects, resource, namespace, name).await?;
    if resource == "pods" && text(&object["spec"], "serviceAccountName") != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            quote(account)
        )));
    }
    let uid = text(&object["metadata"], "uid");
    let asked = text(reference, "uid");
    if !asked.is_empty() && asked != uid {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(Qualified { group: "", name: kind }, name, why));
    }
    let bound = BoundObject { name: name.to_owned(), uid: uid.to_owned() };
    match resource {
        "secrets" => claim.secret = Some(bound),
        "nodes" => claim.node = Some(bound),
        _ => {
            claim.pod = Some(bound);
            let node = text(&object["spec"], "nodeName");
            if !node.is_empty() {
                let found = objects.get(&GroupResource::of("", "nodes"), "", node);
                let uid = found.map(|node| text(&node["metadata"], "uid").to_owned()).unwrap_or_default();
                claim.node = Some(BoundObject { name: node.to_owned(), uid });
            }
        }
    }
    Ok(())
}

async fn find(objects: &dyn Objects, resource: &'static str, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let found = objects.read(&GroupResource::of("", resource), namespace, name).await?;
    found.ok_or_else(|| ApiError::not_found(Qualified { group: "", name: resource }, name))
}

fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_limited() {
        for (seconds, want) in [
            (599, Some("less than 10 minutes")),
            (600, None),
            (MAX_SECONDS, None),
            (MAX_SECONDS + 1, Some("larger than 2^32")),
        ] {
            let error = check_expiration(seconds).err().map(|error| error.message().to_owned());
            assert_eq!(error.is_some(), want.is_some(), "{seconds}");
            assert!(want.is_none_or(|want| error.is_some_and(|error| error.contains(want))), "{seconds}");
        }
        assert_eq!(
            check_expiration(1).unwrap_err().message(),
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes"
        );
    }
}
