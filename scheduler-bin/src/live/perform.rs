//! Carries out one effect over the API: binding, status patch, eviction of a victim, volume selection, event.
//! Tries again where that is safe; what an effect means is decided in the engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use scheduler_core::convert::binding;
use scheduler_core::framework::{Effect, EffectError, EffectKind, NominatedNode, PodCondition};
use scheduler_core::model::ObjectRef;
use scheduler_transport::Sender;
use serde_json::{Value, json};

use super::conditions::KnownConditions;
use super::failure::{self, Verdict};
use super::recorder::{Happening, Identity, Recorder};
use super::request;
use crate::extender::ConfiguredExtender;

/// Tries for one request, with pauses of 50 ms, 100 ms, … between them. A pod whose binding fails for longer is queued again.
const MAX_TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A request that takes longer counts as lost.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Performs effects; cheap to clone.
#[derive(Clone)]
pub(crate) struct Performer {
    /// The client, with the scheduler's identity.
    pub(crate) client: Client,
    /// The shorter way, for bindings.
    pub(crate) sender: Sender,
    /// Where events go.
    pub(crate) recorder: Recorder,
    /// Shared with the pod watch.
    pub(crate) conditions: KnownConditions,
    /// Those who may bind, in the order of the engine's.
    pub(crate) extenders: Arc<[Arc<ConfiguredExtender>]>,
}

impl Performer {
    /// Performs `effect`. What few pods need has a box of its own: the future of a binding is not to carry room for it.
    ///
    /// # Errors
    /// The API server refused, or did not answer in spite of all tries.
    pub(crate) async fn perform(&self, effect: &Effect) -> Result<(), EffectError> {
        match &effect.kind {
            EffectKind::Bind { pod, node } => self.bind(pod, node).await,
            EffectKind::BindByExtender { pod, node, extender } => {
                Box::pin(self.bind_by_extender(pod, node, *extender)).await
            }
            EffectKind::PatchPodStatus { pod, condition, nominated } => {
                let patch = self.status_patch(pod, condition.as_ref(), nominated);
                let result = Box::pin(self.patch_status(pod, &patch)).await;
                if let (Ok(()), Some(condition)) = (&result, condition)
                    && condition.condition_type == "PodScheduled"
                {
                    self.conditions.note(&pod.uid, !condition.status);
                }
                result
            }
            EffectKind::DeleteVictim { preemptor, victim, node, condition } => {
                if Box::pin(self.evict(victim, condition)).await? {
                    let identity = Identity {
                        regarding: victim.clone(),
                        related: Some(preemptor.clone()),
                        event_type: "Normal",
                        reason: "Preempted",
                        action: "Preempting",
                        reporting_controller: Arc::clone(&effect.scheduler_name),
                    };
                    let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
                    self.recorder.record(Happening { identity, note, at: Timestamp::now() });
                }
                Ok(())
            }
            EffectKind::RecordEvent { regarding, related, event_type, reason, action, note } => {
                let identity = Identity {
                    regarding: regarding.clone(),
                    related: related.clone(),
                    event_type: event_type.as_str(),
                    reason,
                    action,
                    reporting_controller: Arc::clone(&effect.scheduler_name),
                };
                self.recorder.record(Happening { identity, note: note.clone(), at: Timestamp::now() });
                Ok(())
            }
            EffectKind::BindVolume { claim, volume, node } => {
                Box::pin(self.bind_volume(claim, volume.as_ref(), node)).await
            }
            EffectKind::Custom(custom) => {
                Err(EffectError { message: format!("no handler for the custom effect {custom:?}"), not_found: false })
            }
        }
    }

    fn pods(&self, pod: &ObjectRef) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }

    /// Creates the binding. The server refuses a second one, so a lost answer is followed by a look at the pod.
    async fn bind(&self, pod: &ObjectRef, node: &str) -> Result<(), EffectError> {
        let body = Bytes::from(binding(pod, node));
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
        let mut tries = Tries::default();
        loop {
            let error = match timed(request::post(&self.sender, &path, body.clone())).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if matches!(failure::verdict(&error), Verdict::TryAgain(_) | Verdict::Conflict)
                && Box::pin(self.is_bound(pod, node, &error)).await?
            {
                return Ok(());
            }
            tries.again(&error).await?;
        }
    }

    /// Has the extender bind the pod, once: it may have done so although its answer was lost, and then the watch tells it.
    async fn bind_by_extender(&self, pod: &ObjectRef, node: &str, position: usize) -> Result<(), EffectError> {
        let failed = |message| EffectError { message, not_found: false };
        let extender = self.extenders.get(position);
        let extender = extender.ok_or_else(|| failed(format!("there is no extender at position {position}")))?;
        extender.bind_pod(pod, node).await.map_err(failed)
    }

    /// Whether the pod is bound to the node although `error` was the answer.
    async fn is_bound(&self, pod: &ObjectRef, node: &str, error: &kube::Error) -> Result<bool, EffectError> {
        match timed(self.pods(pod).get(&pod.name)).await {
            Ok(found) if found.metadata.uid.as_deref() != Some(&*pod.uid) => {
                Err(EffectError { message: format!("pod {pod} was deleted and made again"), not_found: true })
            }
            Ok(found) => match found.spec.and_then(|spec| spec.node_name).filter(|name| !name.is_empty()) {
                Some(bound) if bound == node => Ok(true),
                Some(_) => Err(effect_error(error)),
                None => Ok(false),
            },
            Err(gone) if failure::verdict(&gone) == Verdict::NotFound => Err(effect_error(&gone)),
            Err(_) => Ok(false),
        }
    }

    fn status_patch(&self, pod: &ObjectRef, condition: Option<&PodCondition>, nominated: &NominatedNode) -> Value {
        let mut status = json!({});
        if let Some(condition) = condition {
            let unchanged =
                condition.condition_type == "PodScheduled" && !condition.status && self.conditions.is_false(&pod.uid);
            status["conditions"] = json!([to_api(condition, (!unchanged).then(Timestamp::now))]);
        }
        match nominated {
            NominatedNode::Keep => {}
            NominatedNode::Clear => status["nominatedNodeName"] = Value::Null,
            NominatedNode::Set(node) => status["nominatedNodeName"] = json!(**node),
        }
        json!({ "metadata": { "uid": *pod.uid }, "status": status })
    }

    async fn patch_status(&self, pod: &ObjectRef, patch: &Value) -> Result<(), EffectError> {
        let pods = self.pods(pod);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let mut tries = Tries::default();
        loop {
            match timed(pods.patch_status(&pod.name, &params, &patch)).await {
                Ok(_) => return Ok(()),
                Err(error) => tries.again(&error).await?,
            }
        }
    }

    /// Upstream v1.36.2: framework/preemption executor.go: the condition first, then deletion; a victim that is gone is a success.
    /// The answer says whether it was still there.
    async fn evict(&self, victim: &ObjectRef, condition: &PodCondition) -> Result<bool, EffectError> {
        let patch = json!({ "metadata": { "uid": *victim.uid }, "status": { "conditions": [to_api(condition, Some(Timestamp::now()))] } });
        match self.patch_status(victim, &patch).await {
            Err(error) if error.not_found => return Ok(false),
            answer => answer?,
        }
        let pods = self.pods(victim);
        let preconditions = Preconditions { uid: Some(victim.uid.to_string()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let mut tries = Tries::default();
        loop {
            match timed(pods.delete(&victim.name, &params)).await {
                Ok(_) => return Ok(true),
                // Another pod has the name now: the victim is gone.
                Err(error) if matches!(failure::verdict(&error), Verdict::NotFound | Verdict::Conflict) => {
                    return Ok(false);
                }
                Err(error) => tries.again(&error).await?,
            }
        }
    }

    /// Upstream v1.36.2: volumebinding binder.go bindAPIUpdate: a claimRef on the volume, or the selected node on the claim.
    async fn bind_volume(&self, claim: &ObjectRef, volume: Option<&ObjectRef>, node: &str) -> Result<(), EffectError> {
        let mut tries = Tries::default();
        loop {
            let answer = match volume {
                Some(volume) => {
                    let patch = json!({
                        "metadata": { "uid": *volume.uid, "annotations": { "pv.kubernetes.io/bound-by-controller": "yes" } },
                        "spec": { "claimRef": {
                            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": *claim.namespace,
                            "name": *claim.name, "uid": *claim.uid, "resourceVersion": *claim.resource_version,
                        } },
                    });
                    let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
                    timed(volumes.patch(&volume.name, &PatchParams::default(), &Patch::Strategic(patch)))
                        .await
                        .map(drop)
                }
                None => {
                    let patch = json!({
                        "metadata": { "uid": *claim.uid, "annotations": { "volume.kubernetes.io/selected-node": node } },
                    });
                    let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
                    timed(claims.patch(&claim.name, &PatchParams::default(), &Patch::Strategic(patch))).await.map(drop)
                }
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(error) => tries.again(&error).await?,
            }
        }
    }
}

/// Counts tries and pauses between them.
#[derive(Default)]
struct Tries {
    made: u32,
}

impl Tries {
    /// Returns after a pause if another try can help.
    async fn again(&mut self, error: &kube::Error) -> Result<(), EffectError> {
        self.made += 1;
        match failure::verdict(error) {
            Verdict::TryAgain(after) if self.made < MAX_TRIES => {
                tokio::time::sleep(after.unwrap_or(FIRST_PAUSE * 2_u32.pow(self.made - 1))).await;
                Ok(())
            }
            _ => Err(effect_error(error)),
        }
    }
}

async fn timed<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

fn effect_error(error: &kube::Error) -> EffectError {
    EffectError { message: failure::describe(error), not_found: failure::verdict(error) == Verdict::NotFound }
}

fn to_api(condition: &PodCondition, transition: Option<Timestamp>) -> Value {
    let mut value = json!({
        "type": condition.condition_type,
        "status": if condition.status { "True" } else { "False" },
        "reason": condition.reason,
        "message": condition.message,
    });
    if let Some(generation) = condition.observed_generation {
        value["observedGeneration"] = json!(generation);
    }
    if let Some(at) = transition {
        // The API's type has whole seconds.
        value["lastTransitionTime"] = json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    value
}
