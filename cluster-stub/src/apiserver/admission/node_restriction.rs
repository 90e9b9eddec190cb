//! NodeRestriction: a kubelet writes its own Node, its own Lease and CSINode, and the pods that are bound to it, and nothing else.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/noderestriction/admission.go`.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use serde_json::Value;

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::authn::user::NODE_USER_PREFIX;
use crate::apiserver::resources::{GroupResource, same_but};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::json::JsonExt;

const NODES_GROUP: &str = "system:nodes";
const PODS: GroupResource = GroupResource::of("", "pods");
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels of Kubernetes' own that a kubelet may set. Upstream: kubelet `pkg/apis/well_known_labels.go`.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

pub(super) struct NodeRestriction;

impl AdmissionPlugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        !request.user.in_group(NODES_GROUP)
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(check(request)))
    }
}

fn check(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let Some(node) = request.user.name.strip_prefix(NODE_USER_PREFIX) else { return Ok(()) };
    if !request.user.in_group(NODES_GROUP) {
        return Ok(());
    }
    if node.is_empty() {
        return Err(request.forbidden(format!("could not determine node from user {:?}", request.user.name)));
    }
    match (&*request.resource.group, &*request.resource.plural) {
        ("", "pods") => check_pod(node, request),
        ("", "nodes") => check_node(node, request),
        ("", "persistentvolumeclaims") => check_claim(node, request),
        ("", "serviceaccounts") => check_token(node, request),
        ("coordination.k8s.io", "leases") => check_lease(node, request),
        ("storage.k8s.io", "csinodes") => {
            check_name(node, request, "can only access CSINode with the same name as the requesting node")
        }
        _ => Ok(()),
    }
}

fn check_pod(node: &str, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let operation = request.operation.name();
    let runs_here = |pod: &Value| pod.at("spec").text("nodeName") == node;
    let here = request.old_object.is_some_and(runs_here);
    match (request.subresource, request.operation) {
        ("", Operation::Create) => check_mirror_pod(node, request),
        ("", Operation::Delete) if here => Ok(()),
        ("", Operation::Delete) => {
            Err(request.forbidden(format!("node {node:?} can only delete pods with spec.nodeName set to itself")))
        }
        ("", _) => {
            let why =
                format!("unexpected operation {operation:?}, node {node:?} can only create and delete mirror pods");
            Err(request.forbidden(why))
        }
        ("status", Operation::Update) if !here => {
            let why = format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
            Err(request.forbidden(why))
        }
        ("status", Operation::Update) => {
            let old = request.old_object.unwrap_or(&Value::Null);
            let labels = |pod: &Value| pod.at("metadata").at("labels").clone();
            let claims = |pod: &Value| pod.at("status").at("resourceClaimStatuses").clone();
            if labels(old) != labels(&request.object) {
                return Err(request.forbidden(format!("node {node:?} cannot update labels through pod status")));
            }
            if claims(old) != claims(&request.object) {
                return Err(request.forbidden(format!("node {node:?} cannot update resource claim statues")));
            }
            Ok(())
        }
        ("eviction", Operation::Create) => {
            let pod =
                request.objects.get(&PODS, request.namespace, &request.name).ok_or_else(|| request.not_found())?;
            if runs_here(&pod) {
                return Ok(());
            }
            Err(request.forbidden(format!("node {node} can only evict pods with spec.nodeName set to itself")))
        }
        ("status" | "eviction", _) => Err(request.forbidden(format!("unexpected operation {operation:?}"))),
        (other, _) => {
            let why = format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed");
            Err(request.forbidden(why))
        }
    }
}

fn check_mirror_pod(node: &str, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let pod = &request.object;
    let refuse = |why: String| Err(request.forbidden(why));
    if !pod.at("metadata").at("annotations").has(MIRROR) {
        return refuse(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if pod.at("spec").text("nodeName") != node {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.at("metadata").items("ownerReferences");
    if owners.len() > 1 {
        return refuse(format!("node {node:?} can only create pods with a single owner reference set to itself"));
    }
    let own =
        |owner: &&Value| owner.text("apiVersion") == "v1" && owner.text("kind") == "Node" && owner.text("name") == node;
    let Some(owner) = owners.first().filter(own) else {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    };
    if !owner.flag("controller") {
        return refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner.flag("blockOwnerDeletion") {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let known = request.objects.get(&GroupResource::of("", "nodes"), "", node);
    let known = known.ok_or_else(|| ApiError::not_found(Qualified { group: "", name: "nodes" }, node))?;
    let (wanted, given) = (known.at("metadata").text("uid"), owner.text("uid"));
    if wanted != given {
        return refuse(format!("node {node} UID mismatch: expected {given} got {wanted}"));
    }
    Ok(())
}

fn check_node(node: &str, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.name != node {
        return Err(request.forbidden(format!("node {node:?} is not allowed to modify node {:?}", request.name)));
    }
    let labels = |object: &Value| object.at("metadata").at("labels").clone();
    match (request.operation, request.old_object) {
        (Operation::Create, _) => {
            let forbidden = forbidden_labels(&labels(&request.object), &Value::Null);
            if !forbidden.is_empty() {
                let why = format!("node {node:?} is not allowed to set the following labels: {}", forbidden.join(", "));
                return Err(request.forbidden(why));
            }
            Ok(())
        }
        (Operation::Update, Some(old)) => {
            if request.object.at("spec").items("taints") != old.at("spec").items("taints") {
                return Err(request.forbidden(format!("node {node:?} is not allowed to modify taints")));
            }
            let owners = |object: &Value| object.at("metadata").items("ownerReferences").to_vec();
            if owners(&request.object) != owners(old) {
                return Err(request.forbidden(format!("node {node:?} is not allowed to modify ownerReferences")));
            }
            let forbidden = forbidden_labels(&labels(&request.object), &labels(old));
            if !forbidden.is_empty() {
                let why = format!("is not allowed to modify labels: {}", forbidden.join(", "));
                return Err(request.forbidden(why));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The labels that differ and that a kubelet may not touch, sorted.
fn forbidden_labels(labels: &Value, old: &Value) -> Vec<String> {
    let keys = |labels: &Value| -> Vec<String> {
        labels.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let all: BTreeSet<String> = keys(labels).into_iter().chain(keys(old)).collect();
    all.into_iter().filter(|key| labels.at(key) != old.at(key) && is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    let Some((namespace, _)) = label.split_once('/') else { return false };
    let within = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
    let own = within("kubernetes.io") || within("k8s.io");
    let allowed = KUBELET_LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    within("node-restriction.kubernetes.io") || (own && !allowed)
}

fn check_claim(node: &str, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.subresource != "status" {
        return Err(request.forbidden("may only update PVC status"));
    }
    let Some(old) = request.old_object.filter(|_| request.operation == Operation::Update) else {
        return Err(request.forbidden(format!("unexpected operation {:?}", request.operation.name())));
    };
    const OWN: [&str; 4] = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
    let metadata = same_but(request.object.at("metadata"), old.at("metadata"), &["resourceVersion", "managedFields"]);
    let rest = same_but(&request.object, old, &["metadata", "status"]);
    if metadata && rest && same_but(request.object.at("status"), old.at("status"), &OWN) {
        return Ok(());
    }
    let why = format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions");
    Err(request.forbidden(why))
}

/// A token for a pod that runs on the node.
fn check_token(node: &str, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.operation != Operation::Create || request.subresource != "token" {
        return Ok(());
    }
    let reference = request.object.at("spec").at("boundObjectRef");
    let (kind, api_version) = (reference.text("kind"), reference.text("apiVersion"));
    if kind != "Pod" || api_version != "v1" || reference.text("name").is_empty() {
        return Err(request.forbidden("node requested token not bound to a pod"));
    }
    let uid = reference.text("uid");
    if uid.is_empty() {
        return Err(request.forbidden("node requested token with a pod binding without a uid"));
    }
    let name = reference.text("name");
    let pod = request.objects.get(&PODS, request.namespace, name);
    let pod = pod.ok_or_else(|| ApiError::not_found(Qualified { group: "", name: "pods" }, name))?;
    if pod.at("metadata").text("uid") != uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted \
             and then recreated"
        );
        return Err(request.forbidden(why));
    }
    if pod.at("spec").text("nodeName") != node {
        return Err(request.forbidden("node requested token bound to a pod scheduled on a different node"));
    }
    Ok(())
}

fn check_lease(node: &str, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.namespace != "kube-node-lease" {
        return Err(request.forbidden("can only access leases in the \"kube-node-lease\" system namespace"));
    }
    check_name(node, request, "can only access node lease with the same name as the requesting node")
}

fn check_name(node: &str, request: &AdmissionRequest<'_>, why: &str) -> Result<(), ApiError> {
    let name = match request.operation {
        Operation::Create => request.object.at("metadata").text("name"),
        _ => request.name.as_str(),
    };
    if name == node { Ok(()) } else { Err(request.forbidden(why)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_of_kubernetes_own_are_not_a_kubelets_to_set() {
        let cases = [
            ("example.com/a", false),
            ("plain", false),
            ("kubernetes.io/hostname", false),
            ("topology.kubernetes.io/zone", false),
            ("x.kubelet.kubernetes.io/y", false),
            ("node.kubernetes.io/any", false),
            ("node-role.kubernetes.io/worker", true),
            ("node-restriction.kubernetes.io/a", true),
            ("a.node-restriction.kubernetes.io/a", true),
            ("x.k8s.io/y", true),
        ];
        for (label, want) in cases {
            assert_eq!(is_forbidden(label), want, "{label}");
        }
    }

    #[test]
    fn only_labels_that_change_count() {
        let old = json!({"node-role.kubernetes.io/worker": "", "a": "b"});
        assert_eq!(forbidden_labels(&old, &old), Vec::<String>::new());
        let new = json!({"node-role.kubernetes.io/worker": "x"});
        assert_eq!(forbidden_labels(&new, &old), ["node-role.kubernetes.io/worker"]);
        assert_eq!(forbidden_labels(&Value::Null, &old), ["node-role.kubernetes.io/worker"]);
    }
}
