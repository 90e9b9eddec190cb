//! What strict field validation finds in an object, by the schema of the API server: `kubectl apply --validate=strict` without a
//! server. A build without the offline cluster has no schema and finds nothing.

#[cfg(feature = "offline-cluster")]
pub(crate) use by_schema::faults;

#[cfg(not(feature = "offline-cluster"))]
pub(crate) fn faults(_: &serde_json::Value) -> Vec<String> {
    Vec::new()
}

#[cfg(feature = "offline-cluster")]
mod by_schema {
    use cluster_stub::apiserver::codec::decode::conform_stated;
    use cluster_stub::apiserver::schema::{Schema, TypeIdx, TypeRef};
    use scheduler_core::config::error::nearest;
    use serde_json::Value;

    /// Groups whose kinds are part of Kubernetes, and what their types are called in the schema.
    const GROUPS: [(&str, &str); 20] = [
        ("", "core"),
        ("admissionregistration.k8s.io", "admissionregistration"),
        ("apps", "apps"),
        ("authentication.k8s.io", "authentication"),
        ("authorization.k8s.io", "authorization"),
        ("autoscaling", "autoscaling"),
        ("batch", "batch"),
        ("certificates.k8s.io", "certificates"),
        ("coordination.k8s.io", "coordination"),
        ("discovery.k8s.io", "discovery"),
        ("events.k8s.io", "events"),
        ("extensions", "extensions"),
        ("flowcontrol.apiserver.k8s.io", "flowcontrol"),
        ("networking.k8s.io", "networking"),
        ("node.k8s.io", "node"),
        ("policy", "policy"),
        ("rbac.authorization.k8s.io", "rbac"),
        ("resource.k8s.io", "resource"),
        ("scheduling.k8s.io", "scheduling"),
        ("storage.k8s.io", "storage"),
    ];

    /// Fields that its kind does not have, a value of a wrong type, or a kind that there is not. Kinds of other groups may be
    /// custom resources and are passed over.
    pub(crate) fn faults(object: &Value) -> Vec<String> {
        let (api_version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (api_version, kind) = (api_version.unwrap_or_default(), kind.unwrap_or_default());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some((_, package)) = GROUPS.iter().find(|(known, _)| *known == group) else { return Vec::new() };
        let schema = Schema::builtin();
        let Some(root) = schema.find(&format!("io.k8s.api.{package}.{version}.{kind}")) else {
            return vec![unknown_kind(&schema, api_version, kind)];
        };
        match conform_stated(&schema, root, object) {
            Ok(decoded) => decoded.strict_errors.into_iter().map(|fault| with_nearest(&schema, root, fault)).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    /// Kubectl's words, and where the kind, or one like it, can be found.
    fn unknown_kind(schema: &Schema, api_version: &str, kind: &str) -> String {
        let mut known: Vec<(String, &str)> = Vec::new();
        for ty in schema.types() {
            let is_kind = ty.field("kind").is_some() && ty.field("apiVersion").is_some();
            let Some(rest) = ty.name.strip_prefix("io.k8s.api.").filter(|_| is_kind) else { continue };
            let [package, version, name] = rest.split('.').collect::<Vec<_>>()[..] else { continue };
            if let Some((group, _)) = GROUPS.iter().find(|(_, known)| *known == package) {
                let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                known.push((api_version, name));
            }
        }
        let like = nearest(kind, known.iter().map(|(_, name)| *name));
        let like = like.and_then(|like| {
            let same_version = known.iter().find(|(version, name)| *name == like && version == api_version);
            same_version.or_else(|| known.iter().find(|(_, name)| *name == like))
        });
        let problem = format!("no matches for kind {kind:?} in version {api_version:?}");
        match like {
            Some((version, name)) => format!("{problem}, did you mean {name:?} in {version:?}?"),
            None => problem,
        }
    }

    /// Adds to `unknown field "spec.replica"` the field that is like it.
    fn with_nearest(schema: &Schema, root: TypeIdx, fault: String) -> String {
        let path = fault.strip_prefix("unknown field \"").and_then(|rest| rest.strip_suffix('"'));
        let Some(path) = path else { return fault };
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let like = type_at(schema, root, parent)
            .and_then(|ty| nearest(name, schema.get(ty).fields.iter().map(|field| &*field.name)));
        match like {
            Some(like) => format!("{fault}, did you mean {like:?}?"),
            None => fault,
        }
    }

    /// The type at a path such as `spec.containers[0]`; `None` below free keys.
    fn type_at(schema: &Schema, root: TypeIdx, path: &str) -> Option<TypeIdx> {
        let mut at = root;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let name = step.split('[').next().unwrap_or(step);
            let mut ty = &schema.get(at).field(name)?.ty;
            while let TypeRef::List(item) = ty {
                ty = item;
            }
            let TypeRef::Object(next) = ty else { return None };
            at = *next;
        }
        Some(at)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use serde_json::json;

        fn pod(spec: &Value) -> Value {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
        }

        #[test]
        fn what_a_kind_does_not_have_is_found_with_what_is_like_it() {
            for (name, object, want) in [
                (
                    "all is known",
                    pod(&json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]})),
                    vec![],
                ),
                ("null counts as absent", pod(&json!({"containers": [], "nodeName": null})), vec![]),
                (
                    "in a list",
                    pod(&json!({"containers": [{"name": "c"}, {"name": "d", "imge": "x"}]})),
                    vec!["unknown field \"spec.containers[1].imge\", did you mean \"image\"?"],
                ),
                (
                    "several, one like nothing",
                    pod(&json!({"Containers": [], "zzzzzzzzzzzzzz": 1})),
                    vec![
                        "unknown field \"spec.Containers\", did you mean \"containers\"?",
                        "unknown field \"spec.zzzzzzzzzzzzzz\"",
                    ],
                ),
                (
                    "at the top",
                    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "sepc": {}}),
                    vec!["unknown field \"sepc\", did you mean \"spec\"?"],
                ),
                (
                    "a wrong type",
                    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": "3"}}),
                    vec![
                        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
                    ],
                ),
                (
                    "no such kind",
                    json!({"apiVersion": "apps/v1", "kind": "Deploymint"}),
                    vec![
                        "no matches for kind \"Deploymint\" in version \"apps/v1\", did you mean \"Deployment\" in \"apps/v1\"?",
                    ],
                ),
                (
                    "a version that is gone",
                    json!({"apiVersion": "extensions/v1beta1", "kind": "Deployment"}),
                    vec![
                        "no matches for kind \"Deployment\" in version \"extensions/v1beta1\", did you mean \"Deployment\" in \"apps/v1\"?",
                    ],
                ),
                ("somebody else's kind", json!({"apiVersion": "example.com/v1", "kind": "Pod", "foo": 1}), vec![]),
            ] {
                assert_eq!(faults(&object), want, "{name}");
            }
        }
    }
}
