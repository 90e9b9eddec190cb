//! Keeps claims that pods use, and volumes that are bound, from vanishing when they are deleted.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

use crate::runtime::api::{ApiClient, Object, SyncError};
use crate::runtime::context::Context;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

struct ClaimProtection {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

struct VolumeProtection {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts both protections.
pub(super) fn start(context: &Context) {
    let claims = Arc::new(ClaimProtection {
        api: context.api("pvc-protection-controller"),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = claims.queue.clone();
    context.informers.persistent_volume_claims.on_change(move |delta| {
        if !delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    let queue = claims.queue.clone();
    context.informers.pods.on_change(move |delta| {
        if !delta.is_deleted() && !pod::is_terminal(delta.object()) {
            return;
        }
        for claim in claims_of(delta.object()) {
            queue.add(ObjectKey::new(delta.object().metadata.namespace.clone().unwrap_or_default(), claim));
        }
    });
    context.run(&claims, 1);
    let volumes = Arc::new(VolumeProtection {
        api: context.api("pv-protection-controller"),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = volumes.queue.clone();
    context.informers.persistent_volumes.on_change(move |delta| {
        if !delta.is_deleted() {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    context.run(&volumes, 1);
}

/// Names of the claims that `pod` mounts.
fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let pod_name = pod.metadata.name.clone().unwrap_or_default();
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
            (None, None) => None,
        })
        .collect()
}

/// Whether `pod` mounts the claim `name`.
pub(super) fn uses(pod: &Pod, name: &str) -> bool {
    claims_of(pod).iter().any(|claim| claim == name)
}

async fn protect<K: Object>(api: &ApiClient, object: &K, finalizer: &str, in_use: bool) -> Result<(), SyncError> {
    let meta = object.meta();
    let protected = meta.finalizers.iter().flatten().any(|own| own == finalizer);
    let mut changed = object.clone();
    match (meta.deletion_timestamp.is_some(), protected) {
        (true, true) if !in_use => {
            if let Some(finalizers) = changed.meta_mut().finalizers.as_mut() {
                finalizers.retain(|own| own != finalizer);
            }
        }
        (false, false) => changed.meta_mut().finalizers.get_or_insert_default().push(finalizer.to_owned()),
        _ => return Ok(()),
    }
    match api.update(&changed).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

impl Reconcile for ClaimProtection {
    fn name(&self) -> &'static str {
        "pvc-protection-controller"
    }

    fn kind(&self) -> &'static str {
        "PersistentVolumeClaim"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: pvc_protection_controller.go v1.36.2 `processPVC`: a pod without a node does not use its claims yet.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(claim) = self.informers.persistent_volume_claims.get(key) else { return Ok(()) };
        let pods = self.informers.pods.list_namespace(&key.namespace);
        let in_use = pods.iter().any(|pod| !pod::node_name(pod).is_empty() && uses(pod, &key.name));
        protect::<PersistentVolumeClaim>(&self.api, &claim, CLAIM_FINALIZER, in_use).await
    }
}

impl Reconcile for VolumeProtection {
    fn name(&self) -> &'static str {
        "pv-protection-controller"
    }

    fn kind(&self) -> &'static str {
        "PersistentVolume"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: pv_protection_controller.go v1.36.2 `processPV`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(volume) = self.informers.persistent_volumes.get(key) else { return Ok(()) };
        let in_use = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        protect::<PersistentVolume>(&self.api, &volume, VOLUME_FINALIZER, in_use).await
    }
}
