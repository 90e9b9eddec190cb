//! What a kubelet does besides running containers: it waits for ConfigMaps and Secrets, and starts ephemeral containers.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Event, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::flow::{phase, pod, running};
use super::process::{Up, eventually};

fn waiting(pod: &Pod) -> Option<(String, String)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.iter().find_map(|status| status.state.as_ref()?.waiting.clone())?;
    Some((waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()))
}

async fn event(client: &Client, reason: &str) -> Result<String> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    eventually(&format!("an event {reason}"), || async {
        let found = events.list(&ListParams::default()).await?.items;
        Ok(found.into_iter().find(|event| event.reason.as_deref() == Some(reason)).and_then(|event| event.message))
    })
    .await
}

fn with_volume(volume: &Value) -> Value {
    json!({"containers": [{"name": "main", "image": "busybox"}], "volumes": [volume]})
}

#[tokio::test]
async fn pods_wait_for_their_config_maps_and_secrets() -> Result<()> {
    let up = Up::start(&[])?;
    let client = up.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    let from = json!([{"configMapRef": {"name": "settings"}}]);
    let env = json!({"containers": [{"name": "main", "image": "busybox", "envFrom": from}]});
    pods.create(&create, &pod("env", env)?).await?;
    pods.create(&create, &pod("volume", with_volume(&json!({"name": "v", "secret": {"secretName": "s"}})))?).await?;
    let optional = json!({"name": "v", "secret": {"secretName": "s", "optional": true}});
    pods.create(&create, &pod("optional", with_volume(&optional))?).await?;
    running(&pods, "optional").await?;
    let says = eventually("the container waits", || async {
        Ok(waiting(&pods.get("env").await?).filter(|(reason, _)| reason == "CreateContainerConfigError"))
    })
    .await?;
    ensure!(says.1 == "configmap \"settings\" not found", "{says:?}");
    ensure!(event(&client, "Failed").await? == "Error: configmap \"settings\" not found");
    let mount = event(&client, "FailedMount").await?;
    ensure!(mount == "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found", "{mount}");
    ensure!(phase(&pods.get("volume").await?) == "Pending");
    let named = |name: &str| json!({"metadata": {"name": name}});
    let settings: ConfigMap = serde_json::from_value(named("settings"))?;
    Api::default_namespaced(client.clone()).create(&create, &settings).await?;
    let secret: Secret = serde_json::from_value(named("s"))?;
    Api::default_namespaced(client.clone()).create(&create, &secret).await?;
    running(&pods, "env").await?;
    running(&pods, "volume").await?;
    Ok(())
}

/// A Job that makes a certificate does not run for real, so that its Secret never comes.
#[tokio::test]
async fn what_a_container_could_have_made_is_not_waited_for() -> Result<()> {
    let up = Up::start(&[])?;
    let client = up.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "maker"}}))?;
    Api::default_namespaced(client.clone()).create(&create, &account).await?;
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]});
    let role: Role = serde_json::from_value(json!({"metadata": {"name": "maker"}, "rules": [rule]}))?;
    Api::default_namespaced(client.clone()).create(&create, &role).await?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "maker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maker"},
        "subjects": [{"kind": "ServiceAccount", "name": "maker", "namespace": "default"}],
    }))?;
    Api::default_namespaced(client.clone()).create(&create, &binding).await?;
    let maker = json!({"serviceAccountName": "maker", "containers": [{"name": "main", "image": "busybox"}]});
    pods.create(&create, &pod("maker", maker)?).await?;
    running(&pods, "maker").await?;
    pods.create(&create, &pod("user", with_volume(&json!({"name": "v", "secret": {"secretName": "s"}})))?).await?;
    running(&pods, "user").await?;
    Ok(())
}

#[tokio::test]
async fn an_ephemeral_container_starts_in_a_running_pod() -> Result<()> {
    let up = Up::start(&[])?;
    let client = up.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("p", json!({}))?).await?;
    running(&pods, "p").await?;
    let debugger = json!([{"name": "debugger", "image": "busybox", "command": ["sh", "-c", "exit 3"]}]);
    let patch = json!({"spec": {"ephemeralContainers": debugger}});
    pods.patch_subresource("ephemeralcontainers", "p", &PatchParams::default(), &Patch::Strategic(&patch)).await?;
    let ended = eventually("the ephemeral container ends", || async {
        let statuses = pods.get("p").await?.status.and_then(|status| status.ephemeral_container_statuses);
        let code = |status: ContainerStatus| Some(status.state?.terminated?.exit_code);
        Ok(statuses.into_iter().flatten().next().and_then(code))
    })
    .await?;
    ensure!(ended == 3, "exit code {ended}");
    let pod = pods.get("p").await?;
    let ready = pod.status.context("a status")?.conditions.unwrap_or_default();
    ensure!(ready.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"), "{ready:?}");
    Ok(())
}
