//! Pods read one after the other. Replicas differ in nothing but their names and what happens to them: where the text of a
//! pod's spec is one that was read before, it is not read again, and the pods share their template.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::StreamDeserializer;
use serde_json::de::StrRead;

use super::read::identify;
use super::wire::{ObjectMeta, PodStatus, Text};
use super::{Identity, ReadObject, read};
use crate::model::{Object, ObjectKind, OwnerReference, Pod, PodTemplate};

/// So many specs are remembered; the oldest goes.
const N_KNOWN: usize = 8;
/// Longer ones are not, bytes.
const MAX_SPEC: usize = 64 * 1024;

const HEAD: &str = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":";
const SPEC: &str = ",\"spec\":";
const STATUS: &str = ",\"status\":";
const NODE_NAME: &str = "\"nodeName\":\"";

/// Reads pods as [`read`] does.
///
/// ```
/// use scheduler_core::convert::PodReader;
/// use scheduler_core::model::Object;
///
/// let mut reader = PodReader::default();
/// let mut template = |name: &str| {
///     let json = format!(
///         r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}"}},"spec":{{"priority":7}},"status":{{}}}}"#
///     );
///     let Object::Pod(pod) = reader.read(json.as_bytes()).unwrap().object.unwrap() else { unreachable!() };
///     (pod.name.to_string(), pod.template.clone())
/// };
/// let ((first, a), (second, b)) = (template("a"), template("b"));
/// assert_eq!((&*first, &*second, a.priority), ("a", "b", 7));
/// assert!(std::sync::Arc::ptr_eq(&a, &b));
/// ```
#[derive(Debug, Default)]
pub struct PodReader {
    /// The newest comes last.
    known: Vec<Known>,
}

/// A spec that was read, without `nodeName`, and everything else that its template was made of.
#[derive(Debug)]
struct Known {
    spec: Box<str>,
    /// Where its members begin.
    members: Box<[usize]>,
    namespace: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    controller: Option<Arc<OwnerReference>>,
    template: Arc<PodTemplate>,
}

/// A pod's text, its parts found and all but the spec read.
struct Parts<'a> {
    meta: ObjectMeta<'a>,
    /// The text from the spec on.
    rest: &'a str,
}

impl PodReader {
    /// Reads a pod.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(&mut self, json: &[u8]) -> Result<ReadObject, serde_json::Error> {
        let parts = parts(json);
        if let Some(read) = parts.as_ref().and_then(|parts| self.known.iter().rev().find_map(|known| known.read(parts)))
        {
            return Ok(read);
        }
        let read = read(ObjectKind::Pod, json)?;
        if let Some(parts) = parts
            && let Ok(Object::Pod(pod)) = &read.object
            && let Some(known) = Known::of(&parts, pod)
        {
            if self.known.len() >= N_KNOWN {
                self.known.remove(0);
            }
            self.known.push(known);
        }
        Ok(read)
    }
}

impl Known {
    fn of(parts: &Parts<'_>, pod: &Pod) -> Option<Known> {
        let (spec, members) = object(parts.rest)?;
        let (status, _) = first::<PodStatus<'_>>(parts.rest.get(spec.len()..)?.strip_prefix(STATUS)?)?;
        let has_node = members.iter().any(|at| spec[*at..].starts_with("\"nodeName\""));
        // A member whose name is written in an unusual way may be any.
        if has_node || spec.len() > MAX_SPEC || spec.contains('\\') || !is_alike(&status) {
            return None;
        }
        let labels = parts.meta.labels.as_ref().into_iter().flat_map(super::Map::iter);
        Some(Known {
            spec: spec.into(),
            members: members.into(),
            namespace: parts.meta.namespace.as_deref().unwrap_or_default().into(),
            labels: labels.map(|(key, value)| ((&**key).into(), (&**value).into())).collect(),
            controller: pod.controller.clone(),
            template: Arc::clone(&pod.template),
        })
    }

    /// The pod, if all that its template would be made of is as it was.
    fn read(&self, parts: &Parts<'_>) -> Option<ReadObject> {
        let meta = &parts.meta;
        let (node_name, rest) = self.split(parts.rest)?;
        let (status, end) = first::<PodStatus<'_>>(rest.strip_prefix(STATUS)?)?;
        if end != "}" || !is_alike(&status) || !self.is_of(meta) {
            return None;
        }
        let (identity, resource_version) = identify(meta);
        let Identity { name, uid, .. } = &identity;
        let node_name = node_name.filter(|name| !name.is_empty()).map(Arc::from);
        let mut pod = super::pod::with_template(meta, node_name, &status, Arc::clone(&self.template));
        pod.name = Arc::clone(name);
        pod.uid = Arc::clone(uid);
        pod.resource_version = Arc::clone(&resource_version);
        Some(ReadObject { identity, resource_version, object: Ok(pod.into()) })
    }

    /// The node's name, if there is one in the spec, and what stands behind the spec.
    fn split<'a>(&self, text: &'a str) -> Option<(Option<&'a str>, &'a str)> {
        if let Some(rest) = text.strip_prefix(&*self.spec) {
            return Some((None, rest));
        }
        let n_same = self.spec.bytes().zip(text.bytes()).take_while(|(known, byte)| known == byte).count();
        // The name stands in front of one of the members that are known.
        let at = self.members.iter().rev().copied().find(|at| *at <= n_same)?;
        let behind = text.get(at..)?.strip_prefix(NODE_NAME)?;
        let (name, rest) = behind.split_once('"')?;
        // Control characters have no place in a text.
        if name.bytes().any(|byte| byte == b'\\' || byte < b' ') {
            return None;
        }
        let rest = rest.strip_prefix(',')?.strip_prefix(self.spec.get(at..)?)?;
        Some((Some(name), rest))
    }

    fn is_of(&self, meta: &ObjectMeta<'_>) -> bool {
        let text = |value: &Option<Text<'_>>, known: &str| value.as_deref().unwrap_or_default() == known;
        let labels = meta.labels.as_ref().into_iter().flat_map(super::Map::iter);
        let same_labels =
            labels.map(|(key, value)| (&**key, &**value)).eq(self.labels.iter().map(|(key, value)| (&**key, &**value)));
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let same_controller = match (owner, &self.controller) {
            (None, None) => true,
            (Some(owner), Some(known)) => {
                *owner.uid == *known.uid
                    && *owner.name == *known.name
                    && *owner.kind == *known.kind
                    && *owner.api_version == *known.api_version
            }
            _ => false,
        };
        text(&meta.namespace, &self.namespace) && same_labels && same_controller
    }
}

/// Whether nothing of the status goes into the template.
fn is_alike(status: &PodStatus<'_>) -> bool {
    let PodStatus { container_statuses, init_container_statuses, resources, allocated_resources, .. } = status;
    container_statuses.is_none()
        && init_container_statuses.is_none()
        && resources.is_none()
        && allocated_resources.is_none()
}

/// The parts of a pod as the API server writes it: no space, members in its order. `None` for any other text.
fn parts(json: &[u8]) -> Option<Parts<'_>> {
    let text = std::str::from_utf8(json).ok()?.strip_prefix(HEAD)?;
    let (meta, rest) = first(text)?;
    Some(Parts { meta, rest: rest.strip_prefix(SPEC)? })
}

/// The value that a text begins with, and what stands behind it.
fn first<'a, T: Deserialize<'a>>(text: &'a str) -> Option<(T, &'a str)> {
    let mut values = StreamDeserializer::new(StrRead::new(text));
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}

/// The object that a text of JSON begins with, and where its members begin.
fn object(text: &str) -> Option<(&str, Vec<usize>)> {
    let mut members = Vec::new();
    let mut depth = 0_usize;
    let mut in_text = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        if in_text {
            in_text = byte != b'"' || escaped;
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'{' | b'[' => {
                depth += 1;
                if depth == 1 && text.as_bytes().get(at + 1) != Some(&b'}') {
                    members.push(at + 1);
                }
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((&text[..=at], members));
                }
            }
            b',' if depth == 1 => members.push(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn text(metadata: &Value, spec: &Value, status: &Value) -> String {
        format!("{HEAD}{metadata}{SPEC}{spec}{STATUS}{status}}}")
    }

    fn plain(json: &str) -> (Identity, Arc<str>, String) {
        shown(read(ObjectKind::Pod, json.as_bytes()).expect("a pod"))
    }

    fn shown(read: ReadObject) -> (Identity, Arc<str>, String) {
        (read.identity, read.resource_version, format!("{:?}", read.object))
    }

    fn any_spec() -> impl Strategy<Value = Value> {
        let parts = (0_u8..4, any::<bool>(), 0_u8..4, "[a-z\\\\\"]{0,2}");
        parts.prop_map(|(priority, is_bound, more, odd)| {
            let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}, "nodeName": "x"}],
                "nodeSelector": {"a": odd}, "tolerations": [{"key": "k", "operator": "Exists"}]});
            if priority > 0 {
                spec["priority"] = priority.into();
            }
            if is_bound {
                spec["nodeName"] = "n1".into();
            }
            match more {
                0 => spec["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "z"}]}}),
                1 => spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "z",
                    "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"],
                    "labelSelector": {"matchLabels": {"x": "y"}}}]),
                2 => spec = json!({"nodeName": spec["nodeName"]}),
                _ => {}
            }
            spec
        })
    }

    fn any_pod() -> impl Strategy<Value = String> {
        let metadata = ("[a-c]", "[a-b]", 0_u8..3, 0_u8..3).prop_map(|(name, namespace, label, owner)| {
            let mut metadata = json!({"name": name, "namespace": namespace, "uid": format!("u-{name}"), "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"fieldsV1": {"f:spec": {}}}]});
            if label > 0 {
                metadata["labels"] = json!({"app": format!("l{label}")});
            }
            if owner > 0 {
                metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r",
                    "uid": format!("o{owner}"), "controller": true}]);
            }
            metadata
        });
        let status = prop_oneof![
            Just(json!({})),
            Just(json!({"phase": "Running", "startTime": "2026-01-01T00:00:01Z"})),
            Just(json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "x", "message": "\"y"}]})),
            Just(
                json!({"nominatedNodeName": "n", "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]})
            ),
        ];
        (metadata, any_spec(), status).prop_map(|(metadata, spec, status)| text(&metadata, &spec, &status))
    }

    proptest! {
        #[test]
        fn pods_are_what_reading_each_alone_gives(pods in prop::collection::vec(any_pod(), 1..24)) {
            let mut reader = PodReader::default();
            for json in &pods {
                prop_assert_eq!(shown(reader.read(json.as_bytes()).expect("a pod")), plain(json), "{}", json);
            }
            prop_assert!(reader.known.len() <= N_KNOWN);
        }

        #[test]
        fn what_is_no_pod_is_refused_as_before(pod in any_pod(), at in any::<prop::sample::Index>(), byte in prop::sample::select(&b"{}[]\",:\\ x\n\xff"[..])) {
            let mut reader = PodReader::default();
            reader.read(pod.as_bytes()).expect("a pod");
            let mut broken = pod.into_bytes();
            let at = at.index(broken.len());
            broken[at] = byte;
            match (reader.read(&broken), read(ObjectKind::Pod, &broken)) {
                (Ok(got), Ok(want)) => prop_assert_eq!(shown(got), shown(want)),
                (Err(got), Err(want)) => prop_assert_eq!(got.to_string(), want.to_string()),
                (got, want) => prop_assert!(false, "{:?} {:?}", got, want),
            }
        }
    }

    #[test]
    fn a_replica_that_is_bound_shares_its_template() {
        let spec = json!({"containers": [{"name": "c"}], "nodeSelector": {}, "priority": 1});
        let mut bound = spec.clone();
        bound["nodeName"] = "n1".into();
        let mut reader = PodReader::default();
        let mut pod = |name: &str, spec: &Value| {
            let json = text(&json!({"name": name}), spec, &json!({}));
            match reader.read(json.as_bytes()).map(|read| read.object) {
                Ok(Ok(Object::Pod(pod))) => pod,
                other => panic!("{other:?}"),
            }
        };
        let (first, second) = (pod("a", &spec), pod("b", &bound));
        assert!(Arc::ptr_eq(&first.template, &second.template));
        assert_eq!((&*second.name, second.node_name.as_deref(), first.node_name.as_deref()), ("b", Some("n1"), None));
    }
}
