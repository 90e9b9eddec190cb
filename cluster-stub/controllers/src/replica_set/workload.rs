//! What ReplicaSets and ReplicationControllers have in common, so that one controller serves both.

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};

use crate::runtime::api::Object;
use crate::runtime::informer::Informer;
use crate::runtime::informers::Informers;
use crate::runtime::selector::Selector;

/// A kind that keeps a number of equal pods. The status is that of a ReplicaSet; a kind stores what it has of it.
pub(super) trait Workload: Object {
    /// Name of its controller's service account and events.
    const CONTROLLER: &'static str;
    /// Its kind.
    const KIND: &'static str;
    /// Component of its events.
    const COMPONENT: &'static str;
    /// Whether its status counts pods that are going.
    const COUNTS_TERMINATING: bool;

    /// Its informer.
    fn informer(informers: &Informers) -> &Informer<Self>;
    /// Pods it wants.
    fn replicas(&self) -> i32;
    /// Seconds that a pod must be ready to be available.
    fn min_ready_seconds(&self) -> i32;
    /// Which pods are its own; `None` if the selector cannot be understood.
    fn selector(&self) -> Option<Selector>;
    /// What its pods look like.
    fn template(&self) -> PodTemplateSpec;
    /// Its status.
    fn status(&self) -> ReplicaSetStatus;
    /// Replaces its status.
    fn set_status(&mut self, status: ReplicaSetStatus);
}

impl Workload for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const KIND: &'static str = "ReplicaSet";
    const COMPONENT: &'static str = "replicaset-controller";
    const COUNTS_TERMINATING: bool = true;

    fn informer(informers: &Informers) -> &Informer<Self> {
        &informers.replica_sets
    }

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn selector(&self) -> Option<Selector> {
        Selector::from_label_selector(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn template(&self) -> PodTemplateSpec {
        self.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(status);
    }
}

impl Workload for ReplicationController {
    const CONTROLLER: &'static str = "replication-controller";
    const KIND: &'static str = "ReplicationController";
    const COMPONENT: &'static str = "replication-controller";
    const COUNTS_TERMINATING: bool = false;

    fn informer(informers: &Informers) -> &Informer<Self> {
        &informers.replication_controllers
    }

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        // Unlike a label selector, an empty map selects nothing here.
        Some(if labels.is_none_or(|labels| labels.is_empty()) {
            Selector::from_label_selector(None)?
        } else {
            Selector::from_labels(labels)
        })
    }

    fn template(&self) -> PodTemplateSpec {
        self.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            terminating_replicas: None,
            conditions: status.conditions.map(|conditions| {
                let convert = |condition: ReplicationControllerCondition| ReplicaSetCondition {
                    type_: condition.type_,
                    status: condition.status,
                    reason: condition.reason,
                    message: condition.message,
                    last_transition_time: condition.last_transition_time,
                };
                conditions.into_iter().map(convert).collect()
            }),
        }
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|conditions| {
                let convert = |condition: ReplicaSetCondition| ReplicationControllerCondition {
                    type_: condition.type_,
                    status: condition.status,
                    reason: condition.reason,
                    message: condition.message,
                    last_transition_time: condition.last_transition_time,
                };
                conditions.into_iter().map(convert).collect()
            }),
        });
    }
}
