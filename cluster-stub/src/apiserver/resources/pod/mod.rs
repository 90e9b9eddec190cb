//! Pods: the strategy, its subresources and columns. Validation, defaults and update rules have files of their own.
//!
//! Upstream: v1.36.2 `pkg/registry/core/pod/strategy.go`.

pub(super) mod affinity;
mod annotations;
mod binding;
mod columns;
mod container;
mod defaults;
mod env;
mod eviction;
pub(super) mod probe;
pub(in crate::apiserver) mod resources;
mod security;
mod spec;
mod subresource;
pub(super) mod template;
mod update;
pub(super) mod volume_source;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::core::persistent_volume::timestamp;
use super::kind::{Kind, SPEC, dedup, same};
use super::resource::{Resource, Verbs};
use super::strategy::{GracefulDelete, Strategy, WriteContext};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::{validate_object_meta, validate_object_meta_update};
use crate::apiserver::validation::names::{dns_label, name_is_dns_subdomain};
use crate::apiserver::validation::{FieldError, Path};

/// Pod, with all its subresources.
pub(super) fn resource() -> Resource {
    let connect = Verbs::CREATE.and(Verbs::GET);
    let proxy = Verbs::ALL.without(Verbs::LIST).without(Verbs::WATCH).without(Verbs::DELETE_COLLECTION);
    Kind::new("", "v1", "pods", "Pod")
        .short_names(&["po"])
        .categories(&["all"])
        .columns(columns::COLUMNS, columns::cells)
        .build()
        .with_strategy(Pod)
        .with_part("status", Verbs::SUBOBJECT, subresource::Status)
        .with_part("ephemeralcontainers", Verbs::SUBOBJECT, subresource::EphemeralContainers)
        .with_part("resize", Verbs::SUBOBJECT, subresource::Resize)
        .with_action("binding", ("", "v1", "Binding"), binding::BindPod)
        .with_action("eviction", ("policy", "v1", "Eviction"), eviction::EvictPod)
        .with_connection("attach", "PodAttachOptions", connect)
        .with_connection("exec", "PodExecOptions", connect)
        .with_connection("portforward", "PodPortForwardOptions", connect)
        .with_connection("proxy", "PodProxyOptions", proxy)
        .with_connection("log", "Pod", Verbs::GET)
}

/// Binding: the older way to bind, without the pod in the path.
pub(super) fn bindings() -> Resource {
    let mut resource = Kind::new("", "v1", "bindings", "Binding").verbs(Verbs::CREATE).build();
    resource.action = Some(Arc::new(binding::BindPod));
    resource
}

struct Pod;

impl Strategy for Pod {
    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn apply_defaults(&self, pod: &mut Value) {
        defaults::apply_pod(pod);
        super::shape::fill("io.k8s.api.core.v1.Pod", pod);
    }

    fn has_replicas(&self) -> bool {
        true
    }

    fn is_alike_under_any_name(&self, pod: &Value) -> bool {
        let spec = pod.at("spec");
        // The claim of an ephemeral volume is named after the pod, and a gated pod has a condition with its time.
        spec.items("schedulingGates").is_empty() && !spec.items("volumes").iter().any(|volume| volume.has("ephemeral"))
    }

    fn prepare_for_create(&self, context: &WriteContext<'_>, pod: &mut Value) {
        pod.object_mut("metadata").put("generation", json!(1));
        let class = resources::qos_class(pod.at("spec"));
        pod.put("status", json!({"phase": "Pending", "qosClass": class}));
        if !pod.at("spec").items("schedulingGates").is_empty() {
            let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates"});
            set_condition(pod, gated, context.now);
        }
        affinity::merge_label_keys(pod);
    }

    fn prepare_for_update(&self, _context: &WriteContext<'_>, pod: &mut Value, old: &Value) {
        pod.put("status", old.at("status").clone());
        bump_generation(pod, old);
    }

    fn validate(&self, pod: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta_and_spec(pod, false);
        if !pod.at("spec").items("ephemeralContainers").is_empty() {
            errors.push(FieldError::forbidden(&SPEC.child("ephemeralContainers"), "cannot be set on create"));
        }
        if !pod.at("spec").text("nodeName").is_empty() && !pod.at("spec").items("schedulingGates").is_empty() {
            let why = "cannot be set until all schedulingGates have been cleared";
            errors.push(FieldError::forbidden(&SPEC.child("nodeName"), why));
        }
        errors
    }

    fn validate_update(&self, pod: &Value, old: &Value) -> Vec<FieldError> {
        dedup(update::validate_update(pod, old))
    }

    fn warnings(&self, pod: &Value, old: Option<&Value>) -> Vec<String> {
        let name = pod.at("metadata").text("name");
        let faults = dns_label(name);
        if old.is_some() || faults.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        )]
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }

    fn text_fields(&self) -> &[&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.nominatedNodeName",
        ]
    }

    fn field_values(&self, pod: &Value) -> Vec<String> {
        let (spec, status) = (pod.at("spec"), pod.at("status"));
        let address = status.items("podIPs").first().map_or("", |item| item.text("ip"));
        let network = spec.flag("hostNetwork").to_string();
        [
            spec.text("nodeName"),
            spec.text("restartPolicy"),
            spec.text("schedulerName"),
            spec.text("serviceAccountName"),
            &network,
            status.text("phase"),
            address,
            address,
            status.text("nominatedNodeName"),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn graceful_delete(&self, pod: &Value, requested: Option<i64>) -> GracefulDelete {
        let mut seconds = requested.or_else(|| pod.at("spec").int("terminationGracePeriodSeconds")).unwrap_or(0);
        let over = matches!(pod.at("status").text("phase"), "Failed" | "Succeeded");
        if pod.at("spec").text("nodeName").is_empty() || over {
            seconds = 0;
        }
        GracefulDelete::After(if seconds < 0 { 1 } else { seconds })
    }
}

/// Faults of metadata and spec that hold on create and on every update.
fn validate_meta_and_spec(pod: &Value, _gated: bool) -> Vec<FieldError> {
    let mut errors = validate_object_meta(pod, true, name_is_dns_subdomain);
    let (metadata, pod_spec) = (pod.at("metadata"), pod.at("spec"));
    let path = Path::root("metadata");
    annotations::validate(metadata.at("annotations"), &path.child("annotations"), &mut errors);
    spec::validate(pod_spec, Some(metadata.text("name")), true, &SPEC, &mut errors);
    for list in ["containers", "initContainers"] {
        let path = SPEC.child(list);
        for (index, one) in pod_spec.items(list).iter().enumerate() {
            container::validate_image_whitespace(one, &path.index(index), &mut errors);
        }
    }
    errors
}

/// The generation counts changes of the spec.
fn bump_generation(pod: &mut Value, old: &Value) {
    let generation = old.at("metadata").int("generation").unwrap_or(0);
    let changed = !same(pod.at("spec"), old.at("spec"));
    pod.object_mut("metadata").put("generation", json!(generation + i64::from(changed)));
}

/// Sets a condition; the transition time moves only when the status does.
fn set_condition(pod: &mut Value, mut condition: Value, now: Timestamp) {
    let status = pod.object_mut("status");
    let mut conditions = status.items("conditions").to_vec();
    condition.put("lastTransitionTime", json!(timestamp(now)));
    match conditions.iter_mut().find(|other| other.text("type") == condition.text("type")) {
        Some(other) => {
            if other.text("status") == condition.text("status") {
                let time = other.at("lastTransitionTime").clone();
                condition.put("lastTransitionTime", time);
            }
            *other = condition;
        }
        None => conditions.push(condition),
    }
    status.put("conditions", Value::Array(conditions));
}

/// What the metadata of a change through a subresource may differ in.
fn validate_meta_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_object_meta(pod, true, name_is_dns_subdomain);
    errors.extend(validate_object_meta_update(pod, old));
    errors
}
