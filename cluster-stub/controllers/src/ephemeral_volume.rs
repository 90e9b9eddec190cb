//! The ephemeral-volume controller: makes the claims that pods carry as templates in their volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::controller_ref::{is_controlled_by, new_controller_ref};
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::pod;
use super::runtime::recorder::{EventRecorder, WARNING};
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

const NAME: &str = "ephemeral-volume-controller";

struct EphemeralVolume {
    api: ApiClient,
    informers: Arc<Informers>,
    recorder: EventRecorder,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the ephemeral-volume controller.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let controller = Arc::new(EphemeralVolume {
        recorder: context.recorder(&api, "ephemeral_volume"),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.pods.on_change(move |delta| {
        let pod = delta.object();
        if !delta.is_deleted() && pod.metadata.deletion_timestamp.is_none() && !claims_of(pod).is_empty() {
            queue.add(ObjectKey::of(pod.as_ref()));
        }
    });
    context.run(&controller, 5);
}

impl EphemeralVolume {
    /// Makes a claim unless the pod has it; one of that name that is somebody else's is an error.
    async fn provide(&self, pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), SyncError> {
        let Some(known) = self.informers.persistent_volume_claims.get(&ObjectKey::of(claim)) else {
            return match self.api.create(claim).await {
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(()),
            };
        };
        if is_controlled_by(&known.metadata, pod) {
            return Ok(());
        }
        let (claim, pod) = (ObjectKey::of(known.as_ref()), ObjectKey::of(pod));
        Err(SyncError::Unready(format!("PVC {claim} was not created for pod {pod} (pod is not owner)")))
    }
}

/// The claims that a pod's volumes describe. Upstream: component-helpers `storage/ephemeral` VolumeClaimName.
fn claims_of(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| {
            let template = volume.ephemeral.as_ref()?.volume_claim_template.clone()?;
            let meta = template.metadata.unwrap_or_default();
            Some(PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(format!("{}-{}", pod.metadata.name.as_deref()?, volume.name)),
                    namespace: pod.metadata.namespace.clone(),
                    labels: meta.labels,
                    annotations: meta.annotations,
                    owner_references: Some(vec![new_controller_ref(pod)]),
                    ..ObjectMeta::default()
                },
                spec: Some(template.spec),
                ..PersistentVolumeClaim::default()
            })
        })
        .collect()
}

impl Reconcile for EphemeralVolume {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "Pod"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: pkg/controller/volume/ephemeral/controller.go v1.36.2 `syncHandler`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(pod) = self.informers.pods.get(key) else { return Ok(()) };
        if pod.metadata.deletion_timestamp.is_some() || pod::is_terminal(&pod) {
            return Ok(());
        }
        for claim in claims_of(&pod) {
            if let Err(error) = self.provide(&pod, &claim).await {
                let prefix = format!("{}-", key.name);
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let volume = name.strip_prefix(&prefix).unwrap_or(name);
                let why = format!("ephemeral volume {volume}: {}", error.message());
                self.recorder.event(pod.as_ref(), WARNING, "FailedBinding", why);
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_named_after_pod_and_volume_and_owned_by_the_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "plain", "emptyDir": {}},
                {"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}}},
            ]},
        }))
        .expect("a pod");
        let claims = claims_of(&pod);
        assert_eq!(claims.len(), 1);
        let meta = &claims[0].metadata;
        assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("p-v"), Some("n")));
        assert!(is_controlled_by(meta, &pod));
        assert!(claims_of(&Pod::default()).is_empty());
    }
}
