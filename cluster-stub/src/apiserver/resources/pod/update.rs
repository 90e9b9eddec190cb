//! What may change in a pod, and through which subresource.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidatePodUpdate, ValidatePodStatusUpdate, ValidatePodResize,
//! ValidatePodEphemeralContainersUpdate.

use serde_json::{Value, json};

use super::super::kind::{SPEC, STATUS, same};
use super::{affinity, resources, validate_meta_and_spec};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_object_meta_update;
use crate::apiserver::validation::names::{dns_subdomain, inclusive_range, qualified_name};
use crate::apiserver::validation::{FieldError, Path, ip};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Faults of a change through the pod itself.
pub(super) fn validate_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_meta_and_spec(pod, old.at("spec").has("schedulingGates"));
    errors.extend(validate_object_meta_update(pod, old));
    validate_annotations(pod, old, &mut errors);
    let (spec, old_spec) = (pod.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        let path = SPEC.child(list);
        if spec.items(list).len() != old_spec.items(list).len() {
            errors.push(FieldError::forbidden(&path, "pod updates may not add or remove containers"));
            return errors;
        }
    }
    if !validate_deadline(spec, old_spec, &mut errors) {
        return errors;
    }
    validate_added_tolerations(spec, old_spec, &mut errors);
    validate_gates(spec, old_spec, &mut errors);
    if !same(&munged(spec, old_spec, &mut errors), old_spec) {
        errors
            .push(FieldError::forbidden(&SPEC, format!("pod updates may not change fields other than {CHANGEABLE}\n")));
    }
    errors
}

fn validate_annotations(pod: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let path = Path::root("metadata");
    let annotations = |pod: &Value| pod.at("metadata").at("annotations").clone();
    super::annotations::validate_update(&annotations(pod), &annotations(old), &path.child("annotations"), out);
}

/// The deadline may appear and shrink. False when checking ends here.
fn validate_deadline(spec: &Value, old: &Value, out: &mut Vec<FieldError>) -> bool {
    let field = SPEC.child("activeDeadlineSeconds");
    match (spec.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            out.push(FieldError::invalid(&field, seconds, inclusive_range(0, i64::from(i32::MAX))));
            false
        }
        (Some(seconds), Some(old)) if old < seconds => {
            out.push(FieldError::invalid(&field, seconds, "must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            out.push(FieldError::invalid(&field, Value::Null, "must not update from a positive integer to nil value"));
            true
        }
        _ => true,
    }
}

fn validate_added_tolerations(spec: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let path = SPEC.child("tolerations");
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.take_member("tolerationSeconds");
        toleration
    };
    let kept =
        |old: &Value| spec.items("tolerations").iter().any(|new| same(&without_seconds(new), &without_seconds(old)));
    if !old.items("tolerations").iter().all(kept) {
        out.push(FieldError::forbidden(&path, "existing toleration can not be modified except its tolerationSeconds"));
        return;
    }
    affinity::validate_tolerations(spec.items("tolerations"), &path, out);
}

fn validate_gates(spec: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let path = SPEC.child("schedulingGates");
    let known: Vec<&str> = old.items("schedulingGates").iter().map(|gate| gate.text("name")).collect();
    for (index, gate) in spec.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !known.contains(&name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            out.push(FieldError::forbidden(&path.index(index).child("name"), why));
        }
    }
}

/// The new spec with everything put back that may change.
fn munged(spec: &Value, old: &Value, out: &mut Vec<FieldError>) -> Value {
    let mut munged = spec.clone();
    for list in ["containers", "initContainers"] {
        for (container, old) in munged.items_mut(list).iter_mut().zip(old.items(list)) {
            container.put("image", old.at("image").clone());
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        munged.put(key, old.at(key).clone());
    }
    let grace = "terminationGracePeriodSeconds";
    if old.int(grace).is_some_and(|seconds| seconds < 0) && munged.int(grace) == Some(1) {
        munged.put(grace, old.at(grace).clone());
    }
    if !old.items("schedulingGates").is_empty() {
        munge_gated(&mut munged, old, out);
    }
    munged
}

/// A gated pod may still be made harder to place.
fn munge_gated(munged: &mut Value, old: &Value, out: &mut Vec<FieldError>) {
    let selector = munged.at("nodeSelector");
    if !same(selector, old.at("nodeSelector")) {
        let narrowed =
            old.entries("nodeSelector").into_iter().flatten().all(|(key, value)| selector.get(key) == Some(value));
        if !narrowed {
            let value = selector.clone();
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            out.push(FieldError::invalid(&SPEC.child("nodeSelector"), value, why));
        }
        munged.put("nodeSelector", old.at("nodeSelector").clone());
    }
    let of = |spec: &Value| spec.at("affinity").at("nodeAffinity").clone();
    let (new_affinity, old_affinity) = (of(munged), of(old));
    if same(&new_affinity, &old_affinity) {
        return;
    }
    validate_node_affinity_change(&new_affinity, &old_affinity, out);
    let affinity = munged.object_mut("affinity");
    affinity.put("nodeAffinity", old_affinity);
    if affinity.as_object().is_some_and(serde_json::Map::is_empty) {
        munged.put("affinity", old.at("affinity").clone());
    }
}

fn validate_node_affinity_change(new: &Value, old: &Value, out: &mut Vec<FieldError>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |affinity: &Value| affinity.at(REQUIRED).items("nodeSelectorTerms").to_vec();
    let (old_terms, new_terms) = (terms(old), terms(new));
    if old_terms.is_empty() {
        return;
    }
    let affinity = SPEC.child("affinity");
    let node = affinity.child("nodeAffinity");
    let required = node.child(REQUIRED);
    let field = required.child("nodeSelectorTerms");
    if old_terms.len() != new_terms.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        out.push(FieldError::invalid(&field, Value::Array(new_terms), why));
        return;
    }
    for (index, (new, old)) in new_terms.iter().zip(&old_terms).enumerate() {
        let only_added = ["matchExpressions", "matchFields"].iter().all(|key| {
            let (new, old) = (new.items(key), old.items(key));
            new.len() >= old.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        });
        if !only_added {
            out.push(FieldError::invalid(
                &field.index(index),
                new.clone(),
                "only additions are allowed (no mutations or deletions)",
            ));
        }
    }
}

/// Faults of a change through `status`.
pub(super) fn validate_status_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_object_meta_update(pod, old);
    validate_annotations(pod, old, &mut errors);
    let (status, old_status) = (pod.at("status"), old.at("status"));
    let conditions = STATUS.child("conditions");
    for (index, condition) in status.items("conditions").iter().enumerate() {
        let item = conditions.index(index);
        validate_generation(condition, &item, &mut errors);
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            let field = item.child("Type");
            errors.extend(qualified_name(kind).into_iter().map(|fault| FieldError::invalid(&field, kind, fault)));
        }
    }
    let nominated = status.text("nominatedNodeName");
    let field = STATUS.child("nominatedNodeName");
    if !nominated.is_empty() && nominated != old_status.text("nominatedNodeName") {
        errors.extend(dns_subdomain(nominated).into_iter().map(|fault| FieldError::invalid(&field, nominated, fault)));
        if !old.at("spec").text("nodeName").is_empty() {
            errors.push(FieldError::forbidden(&field, "may not be set on pods that are already bound to a node"));
        }
    }
    validate_generation(status, &STATUS, &mut errors);
    if status.text("qosClass") != old_status.text("qosClass") {
        errors.push(FieldError::invalid(&STATUS.child("qosClass"), status.text("qosClass"), "field is immutable"));
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        validate_transitions(list, status, old, &mut errors);
    }
    validate_addresses(status, old_status, &mut errors);
    errors
}

fn validate_generation(holder: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if let Some(generation) = holder.int("observedGeneration")
        && generation < 0
    {
        out.push(FieldError::invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer"));
    }
}

/// A container that ended for good may not come back.
fn validate_transitions(list: &str, status: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let path = STATUS.child(list);
    let spec = old.at("spec");
    let containers = if list == "initContainerStatuses" { "initContainers" } else { "containers" };
    for (index, before) in old.at("status").items(list).iter().enumerate() {
        let ended = before.at("state").at("terminated");
        if ended.is_null() {
            continue;
        }
        let name = before.text("name");
        let after = status.items(list).iter().find(|status| status.text("name") == name);
        if after.is_none_or(|after| after.at("state").has("terminated")) {
            continue;
        }
        let container = spec.items(containers).iter().find(|container| container.text("name") == name);
        let restarts = list != "ephemeralContainerStatuses"
            && container.is_some_and(|container| may_restart(container, spec, ended));
        if !restarts {
            out.push(FieldError::forbidden(
                &path.index(index).child("state"),
                "may not be transitioned to non-terminated state",
            ));
        }
    }
}

fn may_restart(container: &Value, spec: &Value, ended: &Value) -> bool {
    let code = ended.int("exitCode").unwrap_or(0);
    for rule in container.items("restartPolicyRules") {
        let codes = rule.at("exitCodes");
        let listed = codes.items("values").iter().any(|value| value.as_i64() == Some(code));
        if (codes.text("operator") == "In") == listed {
            return true;
        }
    }
    let policy =
        if container.has("restartPolicy") { container.text("restartPolicy") } else { spec.text("restartPolicy") };
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn validate_addresses(status: &Value, old: &Value, out: &mut Vec<FieldError>) {
    for key in ["podIPs", "hostIPs"] {
        let path = STATUS.child(key);
        let addresses = status.items(key);
        for (index, address) in addresses.iter().enumerate().filter(|(_, address)| !old.items(key).contains(address)) {
            ip::validate_ip(address.text("ip"), &path.index(index), out);
        }
        let families: std::collections::BTreeSet<bool> =
            addresses.iter().map(|address| address.text("ip").contains(':')).collect();
        if addresses.len() > 1 && (families.len() != 2 || addresses.len() > 2) {
            let why = "may specify no more than one IP for each IP family";
            out.push(FieldError::invalid(&path, Value::Array(addresses.to_vec()), why));
        }
    }
    let first = status.items("hostIPs").first().map(|item| item.text("ip"));
    if first.is_some_and(|first| first != status.text("hostIP")) {
        let path = STATUS.child("hostIPs");
        let field = path.index(0);
        out.push(FieldError::invalid(&field.child("ip"), json!(first), "must be equal to `hostIP`"));
    }
}

/// Faults of a change through `ephemeralcontainers`.
pub(super) fn validate_ephemeral_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_object_meta_update(pod, old);
    errors.extend(validate_meta_and_spec(pod, false));
    if old.at("metadata").at("annotations").has("kubernetes.io/config.mirror") {
        return vec![FieldError::forbidden(&Path::root(""), "static pods do not support ephemeral containers")];
    }
    let path = SPEC.child("ephemeralContainers");
    for container in old.at("spec").items("ephemeralContainers") {
        let name = container.text("name");
        let after = pod.at("spec").items("ephemeralContainers").iter().find(|container| container.text("name") == name);
        match after {
            None => {
                let why = format!("existing ephemeral containers \"{name}\" may not be removed\n");
                errors.push(FieldError::forbidden(&path, why));
            }
            Some(after) if !same(after, container) => {
                let why = format!("existing ephemeral containers \"{name}\" may not be changed\n");
                errors.push(FieldError::forbidden(&path, why));
            }
            Some(_) => {}
        }
    }
    errors
}

/// Faults of a change through `resize`.
pub(super) fn validate_resize(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_object_meta_update(pod, old);
    errors.extend(validate_meta_and_spec(pod, false));
    let old_class = match old.at("status").text("qosClass") {
        "" => resources::qos_class(old.at("spec")),
        class => class,
    };
    if old_class != resources::qos_class(pod.at("spec")) {
        let class = pod.at("status").text("qosClass");
        errors.push(FieldError::invalid(&SPEC, class, "Pod QOS Class may not change as a result of resizing"));
    }
    let running = old.at("status").items("containerStatuses").iter().find(|status| status.at("state").has("running"));
    if running.is_some_and(|status| !status.has("resources")) {
        errors.push(FieldError::forbidden(&SPEC, "Pod running on node without support for resize"));
    }
    for (list, noun) in [("containers", "containers"), ("initContainers", "initContainers")] {
        let (new_list, old_list) = (pod.at("spec").items(list), old.at("spec").items(list));
        let path = SPEC.child(list);
        if new_list.len() != old_list.len() {
            errors.push(FieldError::forbidden(&path, format!("{noun} may not be added or removed on resize")));
            return errors;
        }
        for (index, (new, old)) in new_list.iter().zip(old_list).enumerate() {
            let item = path.index(index);
            if new.text("name") != old.text("name") {
                errors.push(FieldError::forbidden(&path, format!("{noun} may not be renamed or reordered on resize")));
                return errors;
            }
            validate_container_resize(new, old, &item, &mut errors);
        }
    }
    errors
}

fn validate_container_resize(new: &Value, old: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let field = path.child("resources");
    for key in ["requests", "limits"] {
        let removed = old
            .at("resources")
            .entries(key)
            .into_iter()
            .flatten()
            .any(|(name, _)| !new.at("resources").at(key).has(name));
        if removed {
            out.push(FieldError::forbidden(&field.child(key), format!("resource {key} cannot be removed")));
        }
    }
    let without = |container: &Value| {
        let mut container = container.clone();
        container.take_member("resizePolicy");
        for key in ["requests", "limits"] {
            for name in ["cpu", "memory"] {
                container.object_mut("resources").object_mut(key).take_member(name);
            }
        }
        container
    };
    if !same(&without(new), &without(old)) {
        out.push(FieldError::forbidden(&SPEC, "only cpu and memory resources are mutable"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "resourceVersion": "1"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        super::super::defaults::apply_pod(&mut pod);
        pod
    }

    fn faults(change: impl Fn(&mut Value)) -> Vec<String> {
        let old = pod();
        let mut new = old.clone();
        change(&mut new);
        validate_update(&new, &old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn image_deadline_and_added_tolerations_may_change() {
        assert_eq!(faults(|pod| pod["spec"]["containers"][0]["image"] = json!("i:2")), Vec::<String>::new());
        assert_eq!(faults(|pod| pod["spec"]["activeDeadlineSeconds"] = json!(5)), Vec::<String>::new());
        assert_eq!(
            faults(|pod| pod["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}])),
            Vec::<String>::new()
        );
    }

    #[test]
    fn other_members_may_not_change() {
        let texts = faults(|pod| pod["spec"]["nodeSelector"] = json!({"a": "b"}));
        assert_eq!(texts.len(), 1);
        assert!(
            texts[0].starts_with(
                "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
            )
        );
        let texts = faults(|pod| pod["spec"]["containers"] = json!([]));
        assert_eq!(
            texts.last().map(String::as_str),
            Some("spec.containers: Forbidden: pod updates may not add or remove containers")
        );
    }

    #[test]
    fn an_ended_container_stays_ended_unless_it_restarts() {
        let ended = json!({"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]});
        let running = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        for (policy, want) in [("Always", 0), ("Never", 1), ("OnFailure", 1)] {
            let mut old = pod();
            old["spec"]["restartPolicy"] = json!(policy);
            old["status"] = ended.clone();
            let mut new = old.clone();
            new["status"] = running.clone();
            assert_eq!(validate_status_update(&new, &old).len(), want, "{policy}");
        }
    }
}
