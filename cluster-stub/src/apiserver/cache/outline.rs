//! The outline of an encoded object: only the members that field selectors can name, without building the rest.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// An object with nothing but scalars, as deep as the labels reach, and the lists that a label names. `Null` when the bytes are
/// no object.
pub fn read(json: &[u8], labels: &[&str]) -> Value {
    // `spec.nodeName` needs two levels of members.
    let levels = labels.iter().map(|label| label.matches('.').count() + 1).max().unwrap_or(0);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let outline = Outline { labels, path: String::new(), levels };
    outline.deserialize(&mut deserializer).ok().flatten().unwrap_or(Value::Null)
}

struct Outline<'a> {
    labels: &'a [&'a str],
    path: String,
    /// Levels of members that are still wanted below this value.
    levels: usize,
}

impl<'de> DeserializeSeed<'de> for Outline<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outline<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<Value>, E> {
        Ok(Some(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<Value>, E> {
        Ok(Some(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<Value>, E> {
        Ok(Some(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Option<Value>, E> {
        Ok(Some(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Option<Value>, E> {
        Ok(Some(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Value>, A::Error> {
        if !self.labels.contains(&self.path.as_str()) {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(None);
        }
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Value>()? {
            list.push(item);
        }
        Ok(Some(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Value>, A::Error> {
        if self.levels == 0 {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(None);
        }
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let inner = Outline { labels: self.labels, path, levels: self.levels - 1 };
            if let Some(value) = map.next_value_seed(inner)? {
                object.insert(key, value);
            }
        }
        Ok(Some(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
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
            "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n", "hostNetwork": true},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        assert_eq!(outline, want);
        assert_eq!(read(b"[", &["a"]), Value::Null);
        assert_eq!(read(br#"{"reason":"x","source":{"component":"y"}}"#, &["reason"]), json!({"reason": "x"}));
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
            }
        }
    }
}
