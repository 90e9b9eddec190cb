//! What was decided for volumes and claims and is not yet seen in the API. Two pods must not be promised one volume.
//! Upstream v1.36.2: volumebinding/passive_assume_cache.go.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bind::Plan;
use crate::cache::Objects;
use crate::model::{ANNOTATION_SELECTED_NODE, Labels, ObjectRef, PersistentVolume, PersistentVolumeClaim};

/// A decision about an object as it was at one resource version; any newer version of the object ends it.
#[derive(Debug)]
struct Assumption<T> {
    resource_version: Arc<str>,
    decided: T,
}

/// Decisions in force.
#[derive(Debug, Default)]
pub(super) struct Assumptions {
    /// Volume name → the claim that it is reserved for.
    volumes: FxHashMap<Arc<str>, Assumption<ObjectRef>>,
    /// Namespace and name of a claim → the node for which a volume is to be made.
    claims: FxHashMap<(Arc<str>, Arc<str>), Assumption<Arc<str>>>,
    /// How many there may be before the outdated ones are looked for. They have no say in anything: only memory is at stake.
    n_tolerated: usize,
}

impl Assumptions {
    /// Forgets what the API has caught up with, now and then: a decision costs no look at all others.
    pub(super) fn expire(&mut self, objects: &Objects) {
        if self.volumes.len() + self.claims.len() <= self.n_tolerated {
            return;
        }
        self.volumes.retain(|name, assumption| {
            objects.persistent_volume(name).is_some_and(|v| v.resource_version == assumption.resource_version)
        });
        self.claims.retain(|(namespace, name), assumption| {
            objects.claim(namespace, name).is_some_and(|c| c.resource_version == assumption.resource_version)
        });
        self.n_tolerated = 64.max(2 * (self.volumes.len() + self.claims.len()));
    }

    /// The volume as it will be.
    pub(super) fn volume(&self, volume: &Arc<PersistentVolume>) -> Arc<PersistentVolume> {
        match self.volumes.get(&volume.name) {
            Some(assumption) if assumption.resource_version == volume.resource_version => {
                let claim_ref = Some(assumption.decided.clone());
                Arc::new(PersistentVolume { claim_ref, ..(**volume).clone() })
            }
            _ => Arc::clone(volume),
        }
    }

    /// The claim as it will be.
    pub(super) fn claim(&self, claim: &Arc<PersistentVolumeClaim>) -> Arc<PersistentVolumeClaim> {
        let key = (Arc::clone(&claim.namespace), Arc::clone(&claim.name));
        match self.claims.get(&key) {
            Some(assumption) if assumption.resource_version == claim.resource_version => {
                let selected = (Arc::from(ANNOTATION_SELECTED_NODE), Arc::clone(&assumption.decided));
                let others = claim.annotations.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
                let annotations: Labels = others.chain([selected]).collect();
                Arc::new(PersistentVolumeClaim { annotations, ..(**claim).clone() })
            }
            _ => Arc::clone(claim),
        }
    }

    /// Puts the decisions of a plan in force.
    pub(super) fn assume(&mut self, plan: &Plan) {
        for item in &plan.items {
            let resource_version = Arc::clone(&item.resource_version);
            let claim = &item.claim;
            match &item.volume {
                Some(volume) => {
                    let assumption = Assumption { resource_version, decided: claim.clone() };
                    self.volumes.insert(Arc::clone(&volume.name), assumption);
                }
                None => {
                    let assumption = Assumption { resource_version, decided: Arc::clone(&plan.node_name) };
                    self.claims.insert((Arc::clone(&claim.namespace), Arc::clone(&claim.name)), assumption);
                }
            }
        }
    }

    /// Takes the decisions of a plan back.
    pub(super) fn revert(&mut self, plan: &Plan) {
        for item in &plan.items {
            match &item.volume {
                Some(volume) => {
                    if self.volumes.get(&volume.name).is_some_and(|a| a.decided.uid == item.claim.uid) {
                        self.volumes.remove(&volume.name);
                    }
                }
                None => {
                    self.claims.remove(&(Arc::clone(&item.claim.namespace), Arc::clone(&item.claim.name)));
                }
            }
        }
    }
}
