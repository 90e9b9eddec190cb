//! Creates and deletes the pods of a controller, with the events that tell of it.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DeleteParams;

use super::api::{ApiClient, Object, SyncError};
use super::controller_ref::new_controller_ref;
use super::key::ObjectKey;
use super::recorder::{EventRecorder, NORMAL, WARNING};

/// Pod control of one controller. Upstream: controller_utils.go v1.36.2 `RealPodControl`.
#[derive(Clone, Debug)]
pub(crate) struct PodControl {
    /// Where pods are written.
    pub(crate) api: ApiClient,
    /// Where events go.
    pub(crate) recorder: EventRecorder,
}

impl PodControl {
    /// Creates `pod` for `owner` and reports it. Nothing is reported when the namespace is going away.
    pub(crate) async fn create<O: Object>(&self, pod: &Pod, owner: &O) -> Result<Pod, SyncError> {
        match self.api.create(pod).await {
            Ok(created) => {
                let name = created.metadata.name.as_deref().unwrap_or_default();
                self.recorder.event(owner, NORMAL, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(created)
            }
            Err(error) => {
                if !error.is_namespace_terminating() {
                    let message = format!("Error creating: {}", error.message());
                    self.recorder.event(owner, WARNING, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    /// Deletes the pod at `key` for `owner` and reports it. One that is gone already is an error that
    /// [`SyncError::is_not_found`] recognises, and not reported.
    pub(crate) async fn delete<O: Object>(&self, key: &ObjectKey, owner: &O) -> Result<(), SyncError> {
        match self.api.delete::<Pod>(key, &DeleteParams::default()).await {
            Ok(()) => {
                self.recorder.event(owner, NORMAL, "SuccessfulDelete", format!("Deleted pod: {}", key.name));
                Ok(())
            }
            Err(error) => {
                if !error.is_not_found() {
                    let message = format!("Error deleting: {}", error.message());
                    self.recorder.event(owner, WARNING, "FailedDelete", message);
                }
                Err(error)
            }
        }
    }
}

/// A pod made from `template` for `owner`, named by the server after its owner.
/// Upstream: controller_utils.go v1.36.2 `GetPodFromTemplate`.
pub(crate) fn pod_from_template<O: Object>(template: &PodTemplateSpec, owner: &O) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: owner.meta().namespace.clone(),
            generate_name: Some(format!("{}-", owner.meta().name.as_deref().unwrap_or_default())),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![new_controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
