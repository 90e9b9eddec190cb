//! The outline of an encoded object: only the members that field selectors can name, without building the rest.

use cluster_stub_wire::scan::members;
use serde_json::{Map, Value};

use crate::apiserver::codec::stored;

/// An object with nothing but scalars, as deep as the labels reach, and the lists that a label names, of the members that a
/// label begins with. `Null` when the bytes are no object.
pub fn read(json: &[u8], labels: &[&str]) -> Value {
    // `spec.nodeName` needs two levels of members.
    let levels = labels.iter().map(|label| label.matches('.').count() + 1).max().unwrap_or(0);
    let mut path = String::new();
    object(json, labels, &mut path, levels).unwrap_or(Value::Null)
}

/// The outline of an object, with so many levels of members.
fn object(json: &[u8], labels: &[&str], path: &mut String, levels: usize) -> Option<Value> {
    if levels == 0 {
        return None;
    }
    let length = path.len();
    let mut object = Map::new();
    for member in members(json)? {
        let Value::String(key) = stored::parse(&[b"\"", member.key, b"\""].concat()).ok()? else { return None };
        if length > 0 {
            path.push('.');
        }
        path.push_str(&key);
        // A kind may look beside a label (`status.succeeded` is selected as `status.successful`), never elsewhere.
        let wanted = length > 0 || labels.iter().any(|label| label.split('.').next() == Some(&key));
        let value = match member.value.first() {
            _ if !wanted => None,
            Some(b'{') => self::object(member.value, labels, path, levels - 1),
            Some(b'[') if !labels.contains(&path.as_str()) => None,
            _ => stored::parse(member.value).ok().filter(|value| !value.is_null()),
        };
        path.truncate(length);
        if let Some(value) = value {
            object.insert(key, value);
        }
    }
    Some(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::super::object::CachedObject;
    use super::super::storage::StorageSpec;
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_selectors_can_name_is_read() {
        let object = json!({
            "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}, "managedFields": [{"x": 1}]},
            "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "c"}], "affinity": {"x": {"y": 1}}},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        let outline = read(object.to_string().as_bytes(), &["spec.nodeName", "status.podIPs"]);
        let want = json!({
            "spec": {"nodeName": "n", "hostNetwork": true},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        assert_eq!(outline, want);
        assert_eq!(read(b"[", &["a"]), Value::Null);
        let event = br#"{"reason":"x","reasons":"z","source":{"component":"y"}}"#;
        assert_eq!(read(event, &["reason"]), json!({"reason": "x"}));
        assert_eq!(read(event, &["source", "a.b"]), json!({"source": {"component": "y"}}));
    }

    #[test]
    fn every_builtin_kind_finds_its_fields_in_the_outline() {
        let objects = [
            json!({"spec": {"nodeName": "n", "restartPolicy": "Always", "schedulerName": "s", "serviceAccountName": "a", "hostNetwork": true,
                "unschedulable": true, "clusterIP": "10.0.0.1", "type": "NodePort", "signerName": "x", "driver": "d", "parentRef": {"name": "p"}},
                "status": {"phase": "Running", "podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}], "nominatedNodeName": "m", "replicas": 3, "succeeded": 2},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns", "uid": "u", "apiVersion": "v1", "resourceVersion": "1", "fieldPath": "f"},
                "reason": "r", "reportingComponent": "", "source": {"component": "c"}, "type": "Warning"}),
            json!({}),
        ];
        for resource in crate::apiserver::resources::builtin(&crate::apiserver::resources::ResourceOptions::default()) {
            let labels = resource.strategy.field_labels();
            for object in &objects {
                let outline = read(object.to_string().as_bytes(), labels);
                let (want, got) = (resource.strategy.field_values(object), resource.strategy.field_values(&outline));
                assert_eq!(got, want, "{resource:?}");
                let spec = StorageSpec { prefix: "x".into(), namespaced: true, strategy: resource.strategy.clone() };
                let mut object = object.clone();
                object["metadata"] = json!({"name": "p"});
                let cached = CachedObject::new(&spec, "n/p", &stored::encode(&object), 5);
                for label in resource.strategy.text_fields() {
                    let at = labels.iter().position(|known| known == label);
                    assert_eq!(cached.field(label), want[at.expect("one of the labels")], "{resource:?} {label}");
                }
            }
        }
    }
}
