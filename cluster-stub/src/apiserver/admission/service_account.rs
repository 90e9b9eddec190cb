//! ServiceAccount: every pod runs as a service account that exists, and finds its token mounted.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/serviceaccount/admission.go`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rand::Rng as _;
use serde_json::{Value, json};

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const SERVICE_ACCOUNTS: GroupResource = GroupResource::of("", "serviceaccounts");
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const TOKEN_SECONDS: i64 = 3607;
const DEFAULT_ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);
const MIRROR: &str = "kubernetes.io/config.mirror";

/// See the module.
pub(super) struct ServiceAccount;

impl AdmissionPlugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if !request.is("", "pods") || request.operation != Operation::Create {
                return Ok(());
            }
            if request.object.at("metadata").at("annotations").has(MIRROR) {
                return check_mirror(request);
            }
            let spec = request.object.object_mut("spec");
            if spec.text("serviceAccountName").is_empty() {
                spec.put("serviceAccountName", json!("default"));
            }
            let name = spec.text("serviceAccountName").to_owned();
            spec.put("serviceAccount", json!(name));
            let account = find(request, &name).await?;
            let spec = request.object.object_mut("spec");
            let wants = |holder: &Value| holder.at("automountServiceAccountToken").as_bool();
            if wants(spec).or_else(|| wants(&account)).unwrap_or(true) {
                let name = format!("{VOLUME_PREFIX}{}", random_suffix());
                if mount_token(spec, &name) {
                    request.drawn = Some(name);
                }
            }
            let spec = request.object.object_mut("spec");
            if spec.items("imagePullSecrets").is_empty() && !account.items("imagePullSecrets").is_empty() {
                spec.put("imagePullSecrets", account.at("imagePullSecrets").clone());
            }
            check_secrets(request, &account)
        })
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if !request.is("", "pods") || request.operation != Operation::Create {
                return Ok(());
            }
            if request.object.at("metadata").at("annotations").has(MIRROR) {
                return check_mirror(request);
            }
            let name = request.object.at("spec").text("serviceAccountName").to_owned();
            find(request, &name).await.map(|_| ())
        })
    }
}

/// A pod that only mirrors a file on a node has no part in the cluster's secrets.
fn check_mirror(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let spec = request.object.at("spec");
    if !spec.text("serviceAccountName").is_empty() {
        return Err(request.forbidden("a mirror pod may not reference service accounts"));
    }
    if spec.items("volumes").iter().any(|volume| volume.has("secret")) {
        return Err(request.forbidden("a mirror pod may not reference secrets"));
    }
    let projects_token =
        |volume: &Value| volume.at("projected").items("sources").iter().any(|one| one.has("serviceAccountToken"));
    if spec.items("volumes").iter().any(projects_token) {
        return Err(request.forbidden("a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

/// The account; the default one may still be on its way.
async fn find(request: &AdmissionRequest<'_>, name: &str) -> Result<Arc<Value>, ApiError> {
    let namespace = request.namespace;
    if let Some(account) = request.objects.get(&SERVICE_ACCOUNTS, namespace, name) {
        return Ok(account);
    }
    let attempts = if name == "default" { DEFAULT_ATTEMPTS } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(account) = request.objects.read(&SERVICE_ACCOUNTS, namespace, name).await? {
            return Ok(Arc::new(account));
        }
    }
    let why = format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
    Err(request.forbidden(why))
}

/// Five characters as generated names end in.
fn random_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rand::rng();
    (0..5).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}

/// Mounts a token, in a volume of that name if there is none for it; whether the name was used.
fn mount_token(spec: &mut Value, new_name: &str) -> bool {
    let existing =
        spec.items("volumes").iter().map(|volume| volume.text("name")).find(|name| name.starts_with(VOLUME_PREFIX));
    let has_volume = existing.is_some();
    let name = existing.unwrap_or(new_name).to_owned();
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.items_mut(list) {
            let mut mounts = container.items("volumeMounts").to_vec();
            if mounts.iter().any(|mount| mount.text("mountPath") == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container.put("volumeMounts", Value::Array(mounts));
            needed = true;
        }
    }
    if needed && !has_volume {
        let mut volumes = spec.items("volumes").to_vec();
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
        spec.put("volumes", Value::Array(volumes));
    }
    needed && !has_volume
}

/// An account may be annotated so that its pods see only its own secrets.
fn check_secrets(request: &AdmissionRequest<'_>, account: &Value) -> Result<(), ApiError> {
    let metadata = account.at("metadata");
    if metadata.at("annotations").text("kubernetes.io/enforce-mountable-secrets") != "true" {
        return Ok(());
    }
    let name = metadata.text("name");
    let own: Vec<&str> = account.items("secrets").iter().map(|secret| secret.text("name")).collect();
    let spec = request.object.at("spec");
    for volume in spec.items("volumes") {
        let secret = volume.at("secret").text("secretName");
        if volume.has("secret") && !own.contains(&secret) {
            return Err(request.forbidden(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            )));
        }
    }
    for (list, word) in [("initContainers", "init container"), ("containers", "container")] {
        for container in spec.items(list) {
            let container_name = container.text("name");
            for variable in container.items("env") {
                let secret = variable.at("valueFrom").at("secretKeyRef");
                if !secret.is_null() && !own.contains(&secret.text("name")) {
                    return Err(request.forbidden(format!(
                        "{word} {container_name} with envVar {} referencing secret.secretName=\"{}\" is not allowed because service account {name} does not reference that secret",
                        variable.text("name"),
                        secret.text("name")
                    )));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_gets_the_token_once() {
        let mut spec = json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT_PATH}]}]});
        assert!(mount_token(&mut spec, "kube-api-access-abcde"));
        assert_eq!(
            spec["containers"][0]["volumeMounts"],
            json!([{"name": "kube-api-access-abcde", "readOnly": true, "mountPath": MOUNT_PATH}])
        );
        assert_eq!(spec["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
        assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        let once = spec.clone();
        assert!(!mount_token(&mut spec, "other"));
        assert_eq!(spec, once);
    }
}
