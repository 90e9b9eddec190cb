//! The persistent volume binder: binds claims to volumes and follows both to their end.

mod matching;
mod protection;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeStatus, Pod,
};

use crate::runtime::api::{ApiClient, SyncError};
use crate::runtime::context::Context;
use crate::runtime::informers::Informers;
use crate::runtime::key::ObjectKey;
use crate::runtime::pod;
use crate::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use crate::runtime::worker::Reconcile;
use crate::runtime::workqueue::WorkQueue;

use matching::{BIND_COMPLETED, BOUND_BY_CONTROLLER, claim_class, claim_ref, is_reserved_for};

const NAME: &str = "persistentvolume-controller";
/// Annotation of the scheduler with the node that a claim's pod goes to.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotations that name who is to make a volume.
const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

struct Binder {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    claims: WorkQueue<ObjectKey>,
    volumes: WorkQueue<ObjectKey>,
}

/// Reconciles claims.
struct Claims(Arc<Binder>);
/// Reconciles volumes.
struct Volumes(Arc<Binder>);

/// Starts the binder and the protection of claims and volumes that are in use.
pub(super) fn start(context: &Context) {
    let api = context.api("persistent-volume-binder");
    let binder = Arc::new(Binder {
        recorder: context.recorder(&api, NAME),
        api,
        informers: Arc::clone(&context.informers),
        claims: WorkQueue::default(),
        volumes: WorkQueue::default(),
    });
    let watcher = Arc::clone(&binder);
    context.informers.persistent_volume_claims.on_change(move |delta| {
        let claim = delta.object();
        if !delta.is_deleted() {
            watcher.claims.add(ObjectKey::of(claim.as_ref()));
        }
        if let Some(volume) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) {
            watcher.volumes.add(ObjectKey::new("", volume));
        }
    });
    let watcher = Arc::clone(&binder);
    context.informers.persistent_volumes.on_change(move |delta| {
        watcher.volumes.add(ObjectKey::of(delta.object().as_ref()));
        watcher.enqueue_unbound();
    });
    let watcher = Arc::clone(&binder);
    context.informers.storage_classes.on_change(move |_| watcher.enqueue_unbound());
    context.run(&Arc::new(Claims(Arc::clone(&binder))), 1);
    context.run(&Arc::new(Volumes(binder)), 1);
    protection::start(context);
}

fn annotated<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a String> {
    claim.metadata.annotations.as_ref()?.get(key)
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

impl Binder {
    fn enqueue_unbound(&self) {
        for claim in self.informers.persistent_volume_claims.list() {
            if annotated(&claim, BIND_COMPLETED).is_none() || claim_phase(&claim) != "Bound" {
                self.claims.add(ObjectKey::of(claim.as_ref()));
            }
        }
    }

    /// Upstream: pv_controller.go v1.36.2 `syncUnboundClaim`.
    async fn sync_unbound(&self, claim: &PersistentVolumeClaim) -> Result<(), SyncError> {
        let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
        let Some(wanted) = wanted else {
            let delayed = self.is_delayed(claim);
            let volumes = self.informers.persistent_volumes.list();
            return match matching::find(claim, &volumes, delayed) {
                Some(volume) => self.bind(claim, &volume).await,
                None => self.sync_without_volume(claim, delayed).await,
            };
        };
        match self.informers.persistent_volumes.get(&ObjectKey::new("", wanted)) {
            Some(volume) if claim_ref(&volume).is_none() => match matching::satisfies(&volume, claim) {
                Ok(()) => self.bind(claim, &volume).await,
                Err(why) => {
                    let message = format!("Cannot bind to requested volume {wanted:?}: {why}");
                    self.recorder.event(claim, WARNING, "VolumeMismatch", message);
                    self.set_pending(claim).await
                }
            },
            Some(volume) if is_reserved_for(&volume, claim) => self.bind(claim, &volume).await,
            Some(volume) => {
                let owner = claim_ref(&volume).cloned().unwrap_or_default();
                let name = |text: Option<String>| text.unwrap_or_default();
                let message = format!("volume {wanted:?} already bound to a different claim.");
                tracing::debug!(namespace = name(owner.namespace), claim = name(owner.name), "volume is taken");
                self.recorder.event(claim, WARNING, "FailedBinding", message);
                self.set_pending(claim).await
            }
            None => self.set_pending(claim).await,
        }
    }

    /// Whether binding waits for the scheduler to choose a node.
    /// Upstream: component-helpers v1.36.2 `IsDelayBindingMode`.
    fn is_delayed(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim_class(claim);
        let waits = self
            .informers
            .storage_classes
            .get(&ObjectKey::new("", class))
            .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        waits && annotated(claim, SELECTED_NODE).is_none()
    }

    async fn sync_without_volume(&self, claim: &PersistentVolumeClaim, delayed: bool) -> Result<(), SyncError> {
        let class = claim_class(claim);
        if delayed {
            let (reason, message) = match self.waiting_pod(claim) {
                Some(pod) => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
                None => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            };
            self.recorder.event(claim, NORMAL, reason, message);
        } else if class.is_empty() {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            self.recorder.event(claim, NORMAL, "FailedBinding", message);
        } else {
            self.provision(claim, &class).await?;
        }
        self.set_pending(claim).await
    }

    /// Asks whoever makes volumes of this class for one. Upstream: pv_controller.go v1.36.2 `provisionClaim`.
    async fn provision(&self, claim: &PersistentVolumeClaim, class: &str) -> Result<(), SyncError> {
        let Some(class) = self.informers.storage_classes.get(&ObjectKey::new("", class)) else {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            self.recorder.event(claim, WARNING, "ProvisioningFailed", message);
            return Ok(());
        };
        let provisioner = class.provisioner.clone();
        if provisioner.starts_with("kubernetes.io/") {
            let message = format!("no volume plugin matched name: {provisioner}");
            self.recorder.event(claim, WARNING, "ProvisioningFailed", message);
            return Ok(());
        }
        if PROVISIONER.iter().any(|key| annotated(claim, key) != Some(&provisioner)) {
            let mut changed = claim.clone();
            let annotations = changed.metadata.annotations.get_or_insert_default();
            annotations.extend(PROVISIONER.map(|key| (key.to_owned(), provisioner.clone())));
            self.api.update(&changed).await?;
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
             administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        );
        self.recorder.event(claim, NORMAL, "ExternalProvisioning", message);
        Ok(())
    }

    /// A pod that uses `claim` and has no node yet.
    fn waiting_pod(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let pods = self.informers.pods.list_namespace(claim.metadata.namespace.as_deref().unwrap_or_default());
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let waits =
            |pod: &&Arc<Pod>| pod::node_name(pod).is_empty() && protection::uses(pod, name) && !pod::is_terminal(pod);
        pods.iter().find(waits).and_then(|pod| pod.metadata.name.clone())
    }

    async fn set_pending(&self, claim: &PersistentVolumeClaim) -> Result<(), SyncError> {
        if claim_phase(claim) == "Pending" {
            return Ok(());
        }
        let mut changed = match self.api.get::<PersistentVolumeClaim>(&ObjectKey::of(claim)).await? {
            Some(fresh) => fresh,
            None => return Ok(()),
        };
        if claim_phase(&changed) == "Pending" {
            return Ok(());
        }
        changed.status.get_or_insert_default().phase = Some("Pending".to_owned());
        self.api.update_status(&changed).await.map(|_| ())
    }

    /// Points both at each other: first the volume, then the claim, so that a crash in between leaves a reserved volume.
    /// Upstream: pv_controller.go v1.36.2 `bind`.
    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), SyncError> {
        let mut volume = volume.clone();
        let by_us = claim_ref(&volume).is_none();
        let complete = claim_ref(&volume).is_some_and(|reference| reference.uid == claim.metadata.uid);
        if !complete {
            volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: claim.metadata.name.clone(),
                namespace: claim.metadata.namespace.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                ..ObjectReference::default()
            });
            if by_us {
                volume
                    .metadata
                    .annotations
                    .get_or_insert_default()
                    .insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
            }
            volume = self.api.update(&volume).await?;
        }
        let volume = self.set_volume_phase(&volume, "Bound", None).await?;
        let name = volume.metadata.name.clone();
        let mut claim = claim.clone();
        let before = claim.clone();
        let spec = claim.spec.get_or_insert_default();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        if spec.volume_name != name {
            spec.volume_name.clone_from(&name);
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
        if claim != before {
            claim = self.api.update(&claim).await?;
        }
        self.set_bound(&claim, &volume).await
    }

    async fn set_bound(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), SyncError> {
        let spec = volume.spec.clone().unwrap_or_default();
        let mut changed = claim.clone();
        let status: &mut PersistentVolumeClaimStatus = changed.status.get_or_insert_default();
        status.phase = Some("Bound".to_owned());
        status.access_modes = spec.access_modes;
        // Once bound, a capacity that was resized is the business of whoever resizes it.
        if claim_phase(claim) != "Bound" || status.capacity.is_none() {
            let storage = spec.capacity.unwrap_or_default().remove_entry("storage");
            status.capacity = Some(storage.into_iter().collect());
        }
        if changed.status == claim.status {
            return Ok(());
        }
        self.api.update_status(&changed).await.map(|_| ())
    }

    async fn set_volume_phase(
        &self,
        volume: &PersistentVolume,
        phase: &str,
        message: Option<String>,
    ) -> Result<PersistentVolume, SyncError> {
        let status = volume.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some(phase) && status.message == message {
            return Ok(volume.clone());
        }
        let mut changed = volume.clone();
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
        let since = if status.phase.as_deref() == Some(phase) { status.last_phase_transition_time } else { Some(now) };
        changed.status = Some(PersistentVolumeStatus {
            phase: Some(phase.to_owned()),
            message,
            reason: None,
            last_phase_transition_time: since,
        });
        self.api.update_status(&changed).await
    }

    /// Upstream: pv_controller.go v1.36.2 `syncBoundClaim`.
    async fn sync_bound(&self, claim: &PersistentVolumeClaim) -> Result<(), SyncError> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volume = self.informers.persistent_volumes.get(&ObjectKey::new("", name.clone()));
        let lost = match &volume {
            None if name.is_empty() => {
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
            }
            None => "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
            Some(volume) if claim_ref(volume).is_none() => return self.bind(claim, volume).await,
            Some(volume) if claim_ref(volume).is_some_and(|reference| reference.uid == claim.metadata.uid) => {
                return self.bind(claim, volume).await;
            }
            Some(_) => "Two claims are bound to the same volume, this one is bound incorrectly",
        };
        if claim_phase(claim) == "Lost" {
            return Ok(());
        }
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        *status =
            PersistentVolumeClaimStatus { phase: Some("Lost".to_owned()), ..PersistentVolumeClaimStatus::default() };
        self.api.update_status(&changed).await?;
        let reason = if volume.is_some() { "ClaimMisbound" } else { "ClaimLost" };
        self.recorder.event(claim, WARNING, reason, lost.to_owned());
        Ok(())
    }

    /// Upstream: pv_controller.go v1.36.2 `syncVolume`.
    async fn sync_volume(&self, volume: &PersistentVolume) -> Result<(), SyncError> {
        let Some(reference) = claim_ref(volume).cloned() else {
            return self.set_volume_phase(volume, "Available", None).await.map(|_| ());
        };
        let key = ObjectKey::new(reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default());
        let Some(uid) = reference.uid.filter(|uid| !uid.is_empty()) else {
            self.claims.add(key);
            return self.set_volume_phase(volume, "Available", None).await.map(|_| ());
        };
        let mut claim = self.informers.persistent_volume_claims.get(&key);
        if claim.is_none() {
            // Nothing is released on the cache's word alone.
            claim = self.api.get(&key).await?.map(Arc::new);
        }
        match claim.filter(|claim| claim.metadata.uid.as_ref() == Some(&uid)) {
            Some(claim) => {
                let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) == volume.metadata.name;
                self.claims.add(key);
                if bound { self.set_volume_phase(volume, "Bound", None).await.map(|_| ()) } else { Ok(()) }
            }
            None => {
                let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
                if phase == "Failed" {
                    return Ok(());
                }
                let released = self.set_volume_phase(volume, "Released", None).await?;
                if policy.as_deref() == Some("Delete") && volume.spec.as_ref().is_some_and(|spec| spec.csi.is_none()) {
                    let name = volume.metadata.name.as_deref().unwrap_or_default();
                    let message = format!(
                        "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
                    );
                    self.set_volume_phase(&released, "Failed", Some(message.clone())).await?;
                    self.recorder.event(volume, WARNING, "VolumeFailedDelete", message);
                }
                Ok(())
            }
        }
    }
}

impl Reconcile for Claims {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "PersistentVolumeClaim"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.0.claims
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        match self.0.informers.persistent_volume_claims.get(key) {
            None => Ok(()),
            Some(claim) if annotated(&claim, BIND_COMPLETED).is_some() => self.0.sync_bound(&claim).await,
            Some(claim) => self.0.sync_unbound(&claim).await,
        }
    }
}

impl Reconcile for Volumes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "PersistentVolume"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.0.volumes
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        match self.0.informers.persistent_volumes.get(key) {
            None => Ok(()),
            Some(volume) => self.0.sync_volume(&volume).await,
        }
    }
}
