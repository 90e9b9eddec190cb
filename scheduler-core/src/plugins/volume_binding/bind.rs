//! From the decision to bound claims: what is asked of the API, and how its progress is judged.
//! Upstream v1.36.2: volumebinding/binder.go bindAPIUpdate, checkBindings.

use std::sync::Arc;

use super::find::PodVolumes;
use crate::framework::{
    ActionType, ClusterView, EffectError, EffectKind, EventFilter, EventResource, PluginError, Result, Step,
};
use crate::model::{ANNOTATION_SELECTED_NODE, ObjectRef, PersistentVolume, PersistentVolumeClaim, Timestamp};

/// One claim to bind.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) claim: ObjectRef,
    /// The volume that it gets; `None` if one is to be made.
    pub(super) volume: Option<ObjectRef>,
    /// Of the volume, or of the claim for which one is to be made, when this was decided.
    pub(super) resource_version: Arc<str>,
}

/// How far a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Decided,
    Asked,
    Waiting { deadline: Timestamp },
}

/// What was decided at Reserve, and how far it is.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) node_name: Arc<str>,
    pub(super) items: Vec<Item>,
    progress: Progress,
}

impl Plan {
    pub(super) fn new(node_name: &Arc<str>, volumes: &PodVolumes) -> Self {
        let bindings = volumes.bindings.iter().map(|binding| Item {
            claim: claim_ref(&binding.claim),
            volume: Some(volume_ref(&binding.volume)),
            resource_version: Arc::clone(&binding.volume.resource_version),
        });
        let provisions = volumes.provisions.iter().map(|claim| Item {
            claim: claim_ref(claim),
            volume: None,
            resource_version: Arc::clone(&claim.resource_version),
        });
        let items = bindings.chain(provisions).collect();
        Self { node_name: Arc::clone(node_name), items, progress: Progress::Decided }
    }

    /// The next step. `results` are those of the effects that were asked for.
    pub(super) fn advance(
        &mut self,
        results: &[std::result::Result<(), EffectError>],
        timeout: std::time::Duration,
        world: ClusterView<'_>,
    ) -> Result<Step> {
        if self.progress == Progress::Decided {
            self.progress = Progress::Asked;
            return Ok(Step::Do(self.effects()));
        }
        if self.progress == Progress::Asked {
            if let Some(Err(error)) = results.iter().find(|result| result.is_err()) {
                return Err(PluginError::new(error.message.clone()));
            }
            self.progress = Progress::Waiting { deadline: world.now.after(timeout) };
        }
        if self.is_bound(world)? {
            return Ok(Step::Done);
        }
        match self.progress {
            Progress::Waiting { deadline } if world.now < deadline => Ok(Step::Wait {
                events: [EventResource::PersistentVolumeClaim, EventResource::PersistentVolume]
                    .map(|resource| {
                        EventFilter::new(resource, ActionType::ADD | ActionType::UPDATE | ActionType::DELETE)
                    })
                    .to_vec(),
                until: deadline,
            }),
            _ => Err(PluginError::new("binding volumes: context deadline exceeded")),
        }
    }

    fn effects(&self) -> Vec<EffectKind> {
        let effect = |item: &Item| EffectKind::BindVolume {
            claim: item.claim.clone(),
            volume: item.volume.clone(),
            node: Arc::clone(&self.node_name),
        };
        self.items.iter().map(effect).collect()
    }

    /// Whether every claim is bound. An error means that it will not come to that, and the pod must be placed anew.
    fn is_bound(&self, world: ClusterView<'_>) -> Result<bool> {
        for item in &self.items {
            let claim = world
                .objects
                .claim(&item.claim.namespace, &item.claim.name)
                .ok_or_else(|| PluginError::new(format!("failed to check binding: claim {} not found", item.claim)))?;
            let is_bound = match &item.volume {
                Some(volume) => self.is_reserved(item, volume, claim, world)?,
                None => self.is_provisioned(item, claim, world)?,
            };
            if !is_bound || !claim.is_fully_bound() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_reserved(
        &self,
        item: &Item,
        volume: &ObjectRef,
        claim: &PersistentVolumeClaim,
        world: ClusterView<'_>,
    ) -> Result<bool> {
        let volume = world
            .objects
            .persistent_volume(&volume.name)
            .ok_or_else(|| PluginError::new(format!("failed to check binding: volume {volume} not found")))?;
        let is_reserved = volume.claim_ref.as_ref().is_some_and(|reference| reference.uid == claim.uid);
        if volume.resource_version == item.resource_version && !is_reserved {
            return Ok(false); // What was written has not come back yet.
        }
        self.check_reachable(volume, world)?;
        if volume.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_empty()) {
            return Err(PluginError::new(format!("ClaimRef got reset for pv {:?}", volume.name)));
        }
        Ok(true)
    }

    fn is_provisioned(&self, item: &Item, claim: &PersistentVolumeClaim, world: ClusterView<'_>) -> Result<bool> {
        if claim.annotations.get(ANNOTATION_SELECTED_NODE) != Some(&self.node_name) {
            if claim.resource_version == item.resource_version {
                return Ok(false); // What was written has not come back yet.
            }
            // A provisioner that fails takes the annotation away.
            return Err(PluginError::new(format!("provisioning failed for PVC {:?}", claim.name)));
        }
        if claim.volume_name.is_empty() {
            return Ok(false);
        }
        let Some(volume) = world.objects.persistent_volume(&claim.volume_name) else { return Ok(false) };
        self.check_reachable(volume, world)?;
        Ok(true)
    }

    fn check_reachable(&self, volume: &PersistentVolume, world: ClusterView<'_>) -> Result<()> {
        let (volume_name, node_name) = (&volume.name, &self.node_name);
        let node = world.snapshot.find(node_name).ok_or_else(|| {
            PluginError::new(format!("failed to get node {node_name:?}: node {node_name:?} not found"))
        })?;
        let csi_node = world.objects.csi_node(node_name).map(|node| &**node);
        if volume.is_reachable_with(&world.snapshot.node(node).labels, csi_node) {
            return Ok(());
        }
        let text =
            format!("pv {volume_name:?} node affinity doesn't match node {node_name:?}: no matching NodeSelectorTerms");
        Err(PluginError::new(text))
    }
}

fn claim_ref(claim: &PersistentVolumeClaim) -> ObjectRef {
    ObjectRef {
        namespace: Arc::clone(&claim.namespace),
        name: Arc::clone(&claim.name),
        uid: Arc::clone(&claim.uid),
        resource_version: Arc::clone(&claim.resource_version),
    }
}

fn volume_ref(volume: &PersistentVolume) -> ObjectRef {
    ObjectRef {
        namespace: "".into(),
        name: Arc::clone(&volume.name),
        uid: Arc::clone(&volume.uid),
        resource_version: Arc::clone(&volume.resource_version),
    }
}
