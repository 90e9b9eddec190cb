//! One reconcile of a Deployment as a function: objects and the time in, actions out. Sends nothing.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::runtime::controller_ref::new_controller_ref;
use crate::runtime::hash::template_hash;
use crate::runtime::pod;
use crate::runtime::recorder::{NORMAL, WARNING};

use super::revision::{self, DESIRED_REPLICAS, HASH_LABEL, REVISION, ROLLBACK_TO};
use super::rolling::{self, is_rolling, replicas, set_available, set_replicas};
use super::status::{self, PAUSED, PROGRESSING, TIMED_OUT};

/// Longest object name. Upstream: apimachinery v1.36.2 `DNS1123SubdomainMaxLength`.
const MAX_NAME: usize = 253;

/// Something to do, in order. A failure ends the plan; the next reconcile makes a new one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create a ReplicaSet; when it has replicas, tell of it.
    Create(Box<ReplicaSet>),
    /// Replace a ReplicaSet; `from` is its old size if the size changes.
    Update {
        /// As it shall be.
        set: Box<ReplicaSet>,
        /// Its old size.
        from: Option<i32>,
    },
    /// Delete a ReplicaSet that history no longer needs.
    Delete(Box<ReplicaSet>),
    /// Replace the Deployment's status and its revision annotation.
    UpdateStatus(Box<Deployment>),
    /// Replace the Deployment itself: a roll-back was asked for.
    UpdateDeployment(Box<Deployment>),
    /// Report an event about the Deployment.
    Event(&'static str, &'static str, String),
}

/// What one reconcile does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// In order.
    pub(super) actions: Vec<Action>,
    /// When to reconcile again even if nothing happens.
    pub(super) again_after: Option<Duration>,
}

/// Plans a reconcile of `deployment`, which controls `sets`; `pods` are the pods of those sets.
/// Upstream: deployment_controller.go v1.36.2 `syncDeployment`.
pub(super) fn plan(deployment: &Deployment, mut sets: Vec<ReplicaSet>, pods: &[&Pod], now: Timestamp) -> Plan {
    let selects_all = deployment.spec.as_ref().is_some_and(|spec| spec.selector == LabelSelector::default());
    sets.sort_by(revision::by_age);
    let mut planner = Planner { deployment: deployment.clone(), new: None, sets, now, plan: Plan::default() };
    if selects_all {
        let message = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        planner.plan.actions.push(Action::Event(WARNING, "SelectingAll", message));
        let mut changed = deployment.clone();
        changed.status.get_or_insert_default().observed_generation = deployment.metadata.generation;
        if changed != *deployment {
            planner.plan.actions.push(Action::UpdateStatus(Box::new(changed)));
        }
        return planner.plan;
    }
    planner.reconcile(deployment, pods);
    planner.plan
}

struct Planner {
    /// The Deployment as this plan leaves it.
    deployment: Deployment,
    /// Its ReplicaSets as this plan leaves them, oldest first.
    sets: Vec<ReplicaSet>,
    /// Which of them has the Deployment's template.
    new: Option<usize>,
    now: Timestamp,
    plan: Plan,
}

impl Planner {
    fn reconcile(&mut self, original: &Deployment, pods: &[&Pod]) {
        let deleting = original.metadata.deletion_timestamp.is_some();
        let paused = original.spec.as_ref().and_then(|spec| spec.paused).unwrap_or_default();
        if !deleting {
            self.note_pause(paused);
        }
        if !deleting && !paused && self.rollback_revision().is_some() {
            self.sync_new_set(true);
            return self.roll_back();
        }
        let status = if deleting {
            self.sync_new_set(false);
            self.plain_status()
        } else {
            self.sync_new_set(false);
            if paused || self.is_scaling() {
                self.scale();
                if paused && self.rollback_revision().is_none() {
                    self.clean_up();
                }
                self.plain_status()
            } else {
                if is_rolling(&self.deployment) {
                    self.roll(original)
                } else {
                    self.recreate(original, pods)
                }
                status::rollout(&self.deployment, &self.sets, self.new.map(|new| &self.sets[new]), self.now)
            }
        };
        self.deployment.status = Some(status);
        if self.deployment.status != original.status || self.deployment.metadata != original.metadata {
            self.plan.actions.push(Action::UpdateStatus(Box::new(self.deployment.clone())));
        }
        if let (Some(status), false) = (&self.deployment.status, paused || deleting) {
            self.plan.again_after = status::check_again_after(&self.deployment, status, self.now);
        }
    }

    fn plain_status(&self) -> k8s_openapi::api::apps::v1::DeploymentStatus {
        status::calculate(&self.deployment, &self.sets, self.new.map(|new| &self.sets[new]), self.now)
    }

    /// Upstream: deployment/sync.go v1.36.2 `checkPausedConditions`.
    fn note_pause(&mut self, paused: bool) {
        if status::progress_deadline(&self.deployment).is_none() {
            return;
        }
        let status = self.deployment.status.get_or_insert_default();
        let reason = status::condition(status, PROGRESSING).and_then(|condition| condition.reason.clone());
        if reason.as_deref() == Some(TIMED_OUT) {
            return;
        }
        let noted = reason.as_deref() == Some(PAUSED);
        let (reason, message) = match (paused, noted) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return,
        };
        let condition = status::new_condition(PROGRESSING, "Unknown", reason, message.to_owned(), self.now);
        status::set_condition(status, condition);
    }

    /// Finds the new ReplicaSet and brings its annotations and the Deployment's revision up to date; makes it if `create`.
    /// Upstream: deployment/sync.go v1.36.2 `getNewReplicaSet`.
    fn sync_new_set(&mut self, create: bool) {
        self.new = revision::find_new(&self.deployment, &self.sets);
        let new = self.new;
        let old_sets = self.sets.iter().enumerate().filter(|(i, _)| Some(*i) != new).map(|(_, set)| set);
        let next_revision = revision::max_revision(old_sets) + 1;
        let min_ready_seconds = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let message = if let Some(new) = self.new {
            let mut set = self.sets[new].clone();
            let mut changed = revision::annotate_new(&self.deployment, &mut set, next_revision);
            if let Some(spec) = set.spec.as_mut()
                && spec.min_ready_seconds.unwrap_or_default() != min_ready_seconds.unwrap_or_default()
            {
                spec.min_ready_seconds = min_ready_seconds;
                changed = true;
            }
            if changed {
                self.sets[new] = set.clone();
                self.plan.actions.push(Action::Update { set: Box::new(set), from: None });
            }
            ("FoundNewReplicaSet", "Found new replica set")
        } else if create {
            let set = self.make_set(next_revision);
            self.plan.actions.push(Action::Create(Box::new(set.clone())));
            self.sets.push(set);
            self.new = Some(self.sets.len() - 1);
            ("NewReplicaSetCreated", "Created new replica set")
        } else {
            return;
        };
        let Some(set) = self.new.map(|new| &self.sets[new]) else { return };
        let name = set.metadata.name.clone().unwrap_or_default();
        if let Some(revision) = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION)) {
            self.deployment.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision.clone());
        }
        if status::progress_deadline(&self.deployment).is_some() {
            let status = self.deployment.status.get_or_insert_default();
            if message.0 == "NewReplicaSetCreated" || status::condition(status, PROGRESSING).is_none() {
                let text = format!("{} {name:?}", message.1);
                let condition = status::new_condition(PROGRESSING, "True", message.0, text, self.now);
                status::set_condition(status, condition);
            }
        }
    }

    fn make_set(&self, revision: i64) -> ReplicaSet {
        let spec = self.deployment.spec.clone().unwrap_or_default();
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&spec.template, collisions);
        let mut template = spec.template;
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let mut selector = spec.selector;
        selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
        let all: i32 = self.sets.iter().map(set_replicas).sum();
        let size = rolling::new_set_size(&self.deployment, all, 0);
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(set_name(self.deployment.metadata.name.as_deref().unwrap_or_default(), &hash)),
                namespace: self.deployment.metadata.namespace.clone(),
                labels: template.metadata.as_ref().and_then(|meta| meta.labels.clone()),
                owner_references: Some(vec![new_controller_ref(&self.deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(size),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        revision::annotate_new(&self.deployment, &mut set, revision);
        let want = replicas(&self.deployment);
        revision::annotate_replicas(&mut set, want, want + rolling::max_surge(&self.deployment));
        set
    }

    /// Gives the set named `name` the size `size`. Upstream: deployment/sync.go v1.36.2 `scaleReplicaSet`.
    fn resize(&mut self, name: &str, size: i32) -> bool {
        let want = replicas(&self.deployment);
        let max = want + rolling::max_surge(&self.deployment);
        let Some(set) = self.sets.iter_mut().find(|set| set.metadata.name.as_deref() == Some(name)) else {
            return false;
        };
        let from = Some(set_replicas(set)).filter(|from| *from != size);
        let annotated = revision::annotate_replicas(set, want, max);
        if let Some(spec) = set.spec.as_mut() {
            spec.replicas = Some(size);
        }
        if from.is_some() || annotated {
            let set = Box::new(set.clone());
            // An update that was planned a moment ago carries the new size as well.
            match self.plan.actions.iter_mut().find(
                |action| matches!(action, Action::Update { set: planned, from: None } if planned.metadata.name == set.metadata.name),
            ) {
                Some(action) => *action = Action::Update { set, from },
                None => self.plan.actions.push(Action::Update { set, from }),
            }
        }
        from.is_some()
    }

    /// Whether an active set was last scaled for another number of replicas.
    /// Upstream: deployment/sync.go v1.36.2 `isScalingEvent`.
    fn is_scaling(&self) -> bool {
        let want = replicas(&self.deployment);
        self.sets
            .iter()
            .filter(|set| set_replicas(set) > 0)
            .any(|set| revision::replicas_annotation(set, DESIRED_REPLICAS).is_some_and(|desired| desired != want))
    }

    /// Upstream: deployment/sync.go v1.36.2 `scale`.
    fn scale(&mut self) {
        let want = replicas(&self.deployment);
        let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap_or_default();
        let active: Vec<&ReplicaSet> = self.sets.iter().filter(|set| set_replicas(set) > 0).collect();
        let new = self.new.map(|new| &self.sets[new]);
        let only = match active.as_slice() {
            [] => new.or(self.sets.last()),
            [one] => Some(*one),
            _ => None,
        };
        if let Some(only) = only {
            let name = name(only);
            if set_replicas(only) != want {
                self.resize(&name, want);
            }
            return;
        }
        let sizes = if new.is_some_and(|new| self.is_saturated(new)) {
            let new = new.map(name);
            active.iter().map(|set| name(set)).filter(|name| Some(name) != new.as_ref()).map(|name| (name, 0)).collect()
        } else if is_rolling(&self.deployment) {
            rolling::scale_proportionally(&self.deployment, &active)
        } else {
            Vec::new()
        };
        for (name, size) in sizes {
            self.resize(&name, size);
        }
    }

    /// Upstream: deployment_util.go v1.36.2 `IsSaturated`.
    fn is_saturated(&self, set: &ReplicaSet) -> bool {
        let want = replicas(&self.deployment);
        set_replicas(set) == want
            && revision::replicas_annotation(set, DESIRED_REPLICAS) == Some(want)
            && set_available(set) == want
    }

    /// Upstream: deployment/rolling.go v1.36.2 `rolloutRolling`.
    fn roll(&mut self, original: &Deployment) {
        if self.new.is_none() {
            self.sync_new_set(true);
        }
        let Some(new) = self.new else { return };
        let want = replicas(&self.deployment);
        let (name, size) = (self.sets[new].metadata.name.clone().unwrap_or_default(), set_replicas(&self.sets[new]));
        if size != want {
            let all: i32 = self.sets.iter().map(set_replicas).sum();
            let target = if size > want { want } else { rolling::new_set_size(&self.deployment, all, size) };
            if target != size && self.resize(&name, target) {
                return;
            }
        }
        let old: Vec<&ReplicaSet> = self
            .sets
            .iter()
            .enumerate()
            .filter(|(i, set)| *i != new && set_replicas(set) > 0)
            .map(|(_, set)| set)
            .collect();
        let sizes = rolling::shrink_old(&self.deployment, &old, &self.sets[new]);
        let mut shrank = false;
        for (name, size) in sizes {
            shrank |= self.resize(&name, size);
        }
        if !shrank && original.status.as_ref().is_some_and(|status| status::is_complete(original, status)) {
            self.clean_up();
        }
    }

    /// Upstream: deployment/recreate.go v1.36.2 `rolloutRecreate`.
    fn recreate(&mut self, original: &Deployment, pods: &[&Pod]) {
        let new_uid = self.new.and_then(|new| self.sets[new].metadata.uid.clone());
        let is_old = |i: usize| Some(i) != self.new;
        let active: Vec<String> = (0..self.sets.len())
            .filter(|i| is_old(*i) && set_replicas(&self.sets[*i]) > 0)
            .filter_map(|i| self.sets[i].metadata.name.clone())
            .collect();
        let old_pods_reported = (0..self.sets.len())
            .any(|i| is_old(i) && self.sets[i].status.as_ref().is_some_and(|status| status.replicas > 0));
        let mut shrank = false;
        for name in active {
            shrank |= self.resize(&name, 0);
        }
        let old_pod_runs = pods.iter().any(|pod| {
            let owner = crate::runtime::controller_ref::controller_of(&pod.metadata);
            owner.map(|owner| &owner.uid) != new_uid.as_ref() && !pod::is_terminal(pod)
        });
        if shrank || old_pods_reported || old_pod_runs {
            return;
        }
        if self.new.is_none() {
            self.sync_new_set(true);
        }
        if let Some(name) = self.new.and_then(|new| self.sets[new].metadata.name.clone()) {
            let want = replicas(&self.deployment);
            if self.new.is_some_and(|new| set_replicas(&self.sets[new]) != want) {
                self.resize(&name, want);
            }
        }
        if original.status.as_ref().is_some_and(|status| status::is_complete(original, status)) {
            self.clean_up();
        }
    }

    /// Deletes the oldest revisions beyond the history limit. Upstream: deployment/sync.go v1.36.2 `cleanupDeployment`.
    fn clean_up(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX).and_then(|limit| usize::try_from(limit).ok()) else {
            return;
        };
        let new = self.new;
        let mut old: Vec<&ReplicaSet> = self
            .sets
            .iter()
            .enumerate()
            .filter(|(i, set)| Some(*i) != new && set.metadata.deletion_timestamp.is_none())
            .map(|(_, set)| set)
            .collect();
        let surplus = old.len().saturating_sub(limit);
        old.sort_by(|a, b| revision::by_revision(a, b));
        for set in old.into_iter().take(surplus) {
            let status = set.status.clone().unwrap_or_default();
            let observed =
                set.metadata.generation.unwrap_or_default() <= status.observed_generation.unwrap_or_default();
            if status.replicas == 0 && set_replicas(set) == 0 && observed {
                self.plan.actions.push(Action::Delete(Box::new(set.clone())));
            }
        }
    }

    /// The revision that a client of an old API version asked for; 0 means the one before.
    fn rollback_revision(&self) -> Option<i64> {
        self.deployment.metadata.annotations.as_ref()?.get(ROLLBACK_TO)?.parse().ok()
    }

    /// Upstream: deployment/rollback.go v1.36.2 `rollback`.
    fn roll_back(&mut self) {
        let asked = self.rollback_revision().unwrap_or_default();
        let target = if asked == 0 { revision::last_revision(&self.sets) } else { asked };
        let found = self.sets.iter().find(|set| target != 0 && revision::revision(&set.metadata) == Some(target));
        let name = self.deployment.metadata.name.clone().unwrap_or_default();
        let template = self.deployment.spec.as_ref().map(|spec| spec.template.clone());
        let event = match found {
            None if target == 0 => {
                Action::Event(WARNING, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.".to_owned())
            }
            None => Action::Event(
                WARNING,
                "DeploymentRollbackRevisionNotFound",
                "Unable to find the revision to rollback to.".to_owned(),
            ),
            Some(set)
                if revision::same_template(
                    template.as_ref(),
                    set.spec.as_ref().and_then(|spec| spec.template.as_ref()),
                ) =>
            {
                let message =
                    format!("The rollback revision contains the same template as current deployment {name:?}");
                Action::Event(WARNING, "DeploymentRollbackTemplateUnchanged", message)
            }
            Some(set) => {
                let set = set.clone();
                revision::roll_back_to(&mut self.deployment, &set);
                let message = format!("Rolled back deployment {name:?} to revision {target}");
                Action::Event(NORMAL, "DeploymentRollback", message)
            }
        };
        if let Some(annotations) = self.deployment.metadata.annotations.as_mut() {
            annotations.remove(ROLLBACK_TO);
        }
        self.plan.actions.push(Action::UpdateDeployment(Box::new(self.deployment.clone())));
        self.plan.actions.push(event);
    }
}

/// Upstream: deployment/sync.go v1.36.2 `generateReplicaSetName`.
fn set_name(deployment: &str, hash: &str) -> String {
    let mut end = MAX_NAME - 1 - hash.len();
    end = end.min(deployment.len());
    while !deployment.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &deployment[..end])
}
