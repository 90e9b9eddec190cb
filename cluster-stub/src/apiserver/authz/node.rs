//! The node authorizer: a kubelet may read what the pods on its node use, and write its own objects.
//! Knows no pods itself; a `NodeGraph` answers which objects they use.

use std::fmt::Debug;

use super::policy::PolicyRule;
use super::{Attributes, Authorizer, Decision, Grant};

/// The kinds of objects whose use by a pod lets the pod's node read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A Secret that a pod mounts, reads into its environment or pulls images with.
    Secret,
    /// A ConfigMap that a pod mounts or reads into its environment.
    ConfigMap,
    /// A claim that a pod mounts.
    PersistentVolumeClaim,
    /// The volume of such a claim.
    PersistentVolume,
    /// A claim for devices.
    ResourceClaim,
    /// An attachment to the node.
    VolumeAttachment,
    /// The service account of a pod.
    ServiceAccount,
    /// A slice that the node published.
    ResourceSlice,
    /// A pod of the node.
    Pod,
}

/// Knows which objects the pods of a node use.
pub trait NodeGraph: Debug + Send + Sync {
    /// Whether the object is used by a pod that is bound to `node`, or is such a pod.
    fn is_related(&self, node: &str, reference: Reference, namespace: &str, name: &str) -> bool;
}

/// Decides about kubelets. Upstream v1.36.2: plugin/pkg/auth/authorizer/node/node_authorizer.go.
#[derive(Debug)]
pub struct NodeAuthorizer<G> {
    graph: G,
    rules: Vec<PolicyRule>,
}

impl<G: NodeGraph> NodeAuthorizer<G> {
    /// An authorizer over `graph`; `rules` hold for what is not bound to single nodes (the ClusterRole `system:node`).
    pub fn new(graph: G, rules: Vec<PolicyRule>) -> Self {
        NodeAuthorizer { graph, rules }
    }

    fn related(&self, node: &str, reference: Reference, request: &Attributes<'_>) -> Decision {
        if request.name.is_empty() {
            return Decision::no_opinion("No Object name found");
        }
        if self.graph.is_related(node, reference, request.namespace, request.name) {
            return Decision::Allow(Grant::Node);
        }
        Decision::no_opinion(format!("no relationship found between node '{node}' and this object"))
    }

    fn get(&self, node: &str, reference: Reference, request: &Attributes<'_>) -> Decision {
        if request.verb != "get" {
            return Decision::no_opinion("can only get individual resources of this type");
        }
        if !request.subresource.is_empty() {
            return Decision::no_opinion("cannot get subresource");
        }
        self.related(node, reference, request)
    }

    fn read_namespaced(&self, node: &str, reference: Reference, request: &Attributes<'_>) -> Decision {
        if !matches!(request.verb, "get" | "list" | "watch") {
            return Decision::no_opinion("can only read resources of this type");
        }
        if !request.subresource.is_empty() {
            return Decision::no_opinion("cannot read subresource");
        }
        if request.namespace.is_empty() {
            return Decision::no_opinion("can only read namespaced object of this type");
        }
        self.related(node, reference, request)
    }

    fn claim_status(&self, node: &str, request: &Attributes<'_>) -> Decision {
        if !matches!(request.verb, "update" | "patch") {
            return Decision::no_opinion("can only get/update/patch this type");
        }
        self.related(node, Reference::PersistentVolumeClaim, request)
    }

    fn service_account(&self, node: &str, request: &Attributes<'_>) -> Decision {
        if request.verb == "get" && request.subresource.is_empty() {
            return self.read_namespaced(node, Reference::ServiceAccount, request);
        }
        if request.verb != "create" || request.name.is_empty() {
            return Decision::no_opinion("can only create tokens for individual service accounts");
        }
        if request.subresource != "token" {
            return Decision::no_opinion("can only create token subresource of serviceaccount");
        }
        self.related(node, Reference::ServiceAccount, request)
    }

    fn resource_slice(&self, node: &str, request: &Attributes<'_>) -> Decision {
        if !request.subresource.is_empty() {
            return Decision::no_opinion("cannot authorize ResourceSlice subresources");
        }
        match request.verb {
            "create" => Decision::Allow(Grant::Node),
            "get" | "update" | "patch" | "delete" => self.related(node, Reference::ResourceSlice, request),
            "watch" | "list" | "deletecollection" if selects(request, "spec.nodeName", node) => {
                Decision::Allow(Grant::Node)
            }
            "watch" | "list" | "deletecollection" => {
                Decision::no_opinion("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => Decision::no_opinion(
                "only the following verbs are allowed for a ResourceSlice: \
                 get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, request: &Attributes<'_>) -> Decision {
        match (request.subresource, request.verb) {
            ("", "get") => self.get(node, Reference::Pod, request),
            ("", "list" | "watch") if selects(request, "spec.nodeName", node) => Decision::Allow(Grant::Node),
            ("", "list" | "watch") if !request.name.is_empty() => self.related(node, Reference::Pod, request),
            ("", "list" | "watch") => {
                Decision::no_opinion("can only list/watch pods with spec.nodeName field selector")
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Decision::Allow(Grant::Node)
            }
            _ => Decision::no_opinion(""),
        }
    }
}

impl<G: NodeGraph> Authorizer for NodeAuthorizer<G> {
    fn authorize(&self, request: &Attributes<'_>) -> Decision {
        let Some(node) = request.user.as_node() else { return Decision::no_opinion("") };
        if request.is_resource {
            match (request.group, request.resource) {
                ("", "secrets") => return self.read_namespaced(node, Reference::Secret, request),
                ("", "configmaps") => return self.read_namespaced(node, Reference::ConfigMap, request),
                ("", "persistentvolumeclaims") if request.subresource == "status" => {
                    return self.claim_status(node, request);
                }
                ("", "persistentvolumeclaims") => return self.get(node, Reference::PersistentVolumeClaim, request),
                ("", "persistentvolumes") => return self.get(node, Reference::PersistentVolume, request),
                ("resource.k8s.io", "resourceclaims") => return self.get(node, Reference::ResourceClaim, request),
                ("storage.k8s.io", "volumeattachments") => {
                    return self.get(node, Reference::VolumeAttachment, request);
                }
                ("", "serviceaccounts") => return self.service_account(node, request),
                ("coordination.k8s.io", "leases") => return lease(node, request),
                ("storage.k8s.io", "csinodes") => return csi_node(node, request),
                ("resource.k8s.io", "resourceslices") => return self.resource_slice(node, request),
                ("", "nodes") => return own_node(node, request),
                ("", "pods") => return self.pod(node, request),
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(request)) {
            return Decision::Allow(Grant::Node);
        }
        Decision::no_opinion("")
    }
}

fn own_node(node: &str, request: &Attributes<'_>) -> Decision {
    match (request.subresource, request.verb, request.name) {
        ("", "create" | "update" | "patch", _) | ("status", "update" | "patch", _) => Decision::Allow(Grant::Node),
        ("", "get" | "list" | "watch", name) if name == node => Decision::Allow(Grant::Node),
        ("", "get" | "list" | "watch", "") => {
            Decision::no_opinion(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch", other) => {
            Decision::no_opinion(format!("node '{node}' cannot read '{other}', only its own Node object"))
        }
        _ => Decision::no_opinion(""),
    }
}

fn lease(node: &str, request: &Attributes<'_>) -> Decision {
    if !matches!(request.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Decision::no_opinion("can only get, create, update, patch, or delete a node lease");
    }
    if request.namespace != "kube-node-lease" {
        return Decision::no_opinion(r#"can only access leases in the "kube-node-lease" system namespace"#);
    }
    if request.verb != "create" && request.name != node {
        return Decision::no_opinion("can only access node lease with the same name as the requesting node");
    }
    Decision::Allow(Grant::Node)
}

fn csi_node(node: &str, request: &Attributes<'_>) -> Decision {
    if !matches!(request.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Decision::no_opinion("can only get, create, update, patch, or delete a CSINode");
    }
    if !request.subresource.is_empty() {
        return Decision::no_opinion("cannot authorize CSINode subresources");
    }
    if request.verb != "create" && request.name != node {
        return Decision::no_opinion("can only access CSINode with the same name as the requesting node");
    }
    Decision::Allow(Grant::Node)
}

/// Whether the field selector requires `field` to equal `value`.
fn selects(request: &Attributes<'_>, field: &str, value: &str) -> bool {
    request.field_selector.split(',').any(|term| {
        let required = term.trim().split_once('=').map(|(f, v)| (f, v.strip_prefix('=').unwrap_or(v)));
        required == Some((field, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authn::UserInfo;

    #[derive(Debug)]
    struct UsesSecretA;

    impl NodeGraph for UsesSecretA {
        fn is_related(&self, node: &str, reference: Reference, namespace: &str, name: &str) -> bool {
            (node, reference, namespace, name) == ("n1", Reference::Secret, "ns", "a")
        }
    }

    fn allowed(verb: &str, group: &str, resource: &str, namespace: &str, name: &str, selector: &str) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let rules = vec![PolicyRule {
            verbs: vec!["get".into()],
            api_groups: vec![String::new()],
            resources: vec!["services".into()],
            ..PolicyRule::default()
        }];
        let user = UserInfo::node("n1");
        let request = Attributes {
            namespace,
            name,
            subresource,
            field_selector: selector,
            ..Attributes::resource(&user, verb, group, "v1", resource)
        };
        NodeAuthorizer::new(UsesSecretA, rules).authorize(&request).is_allowed()
    }

    #[test]
    fn a_kubelet_reads_what_its_pods_use_and_writes_its_own() {
        let cases = [
            ("get", "", "secrets", "ns", "a", "", true),
            ("get", "", "secrets", "ns", "b", "", false),
            ("list", "", "secrets", "ns", "", "", false),
            ("get", "", "configmaps", "ns", "a", "", false),
            ("create", "", "secrets", "ns", "a", "", false),
            ("get", "", "nodes", "", "n1", "", true),
            ("get", "", "nodes", "", "n2", "", false),
            ("list", "", "nodes", "", "", "", false),
            ("patch", "", "nodes/status", "", "n1", "", true),
            ("list", "", "pods", "", "", "spec.nodeName=n1", true),
            ("list", "", "pods", "", "", "spec.nodeName==n1,status.phase=Running", true),
            ("list", "", "pods", "", "", "spec.nodeName!=n1", false),
            ("list", "", "pods", "", "", "", false),
            ("patch", "", "pods/status", "ns", "p", "", true),
            ("update", "coordination.k8s.io", "leases", "kube-node-lease", "n1", "", true),
            ("update", "coordination.k8s.io", "leases", "kube-node-lease", "n2", "", false),
            ("update", "coordination.k8s.io", "leases", "default", "n1", "", false),
            ("get", "", "services", "ns", "s", "", true),
            ("delete", "", "services", "ns", "s", "", false),
        ];
        for (verb, group, resource, namespace, name, selector, want) in cases {
            let got = allowed(verb, group, resource, namespace, name, selector);
            assert_eq!(got, want, "{verb} {resource} {namespace}/{name} {selector}");
        }
    }

    #[test]
    fn other_users_get_no_opinion() {
        let user = UserInfo::authenticated("jane", [""; 0]);
        let request = Attributes::resource(&user, "create", "", "v1", "nodes");
        assert!(!NodeAuthorizer::new(UsesSecretA, vec![]).authorize(&request).is_allowed());
    }
}
