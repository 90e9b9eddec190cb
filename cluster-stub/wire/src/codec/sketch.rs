//! Changes a few members of a stored object: only these are built, and everything around them is copied as it is encoded.
//! What the members mean stands elsewhere.

use crate::scan::{Member, members};
use serde_json::{Map, Value};

use super::stored;

/// The members that a change looks at or makes, by the section (`metadata`, `spec`, `status`) that they stand in.
pub type Wanted = [(&'static str, &'static [&'static str])];

/// A stored object of which some members are built.
pub struct Sketch<'b> {
    sections: Vec<Section<'b>>,
    object: Value,
}

/// A member of the object: copied, or put together anew.
struct Section<'b> {
    encoded: Member<'b>,
    wanted: Option<&'static [&'static str]>,
}

impl<'b> Sketch<'b> {
    /// Builds the wanted members of an encoded object. `None` when it is not encoded as the API server stores it, or has
    /// no such section; then the whole object has to be built.
    pub fn read(stored: &'b [u8], wanted: &Wanted) -> Option<Sketch<'b>> {
        let mut sections = Vec::with_capacity(8);
        let mut object = Map::new();
        for encoded in members(stored)? {
            let wanted = wanted.iter().find(|(section, _)| section.as_bytes() == encoded.key);
            if let Some((section, names)) = wanted {
                object.insert((*section).to_owned(), build(encoded.value, names)?);
            }
            sections.push(Section { encoded, wanted: wanted.map(|(_, names)| *names) });
        }
        (object.len() == wanted.len()).then_some(Sketch { sections, object: Value::Object(object) })
    }

    /// The object with nothing but the wanted members.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// The bytes to store of the object with the wanted members as they are in `changed`. `None` when something else was
    /// changed too.
    pub fn write(&self, changed: &Value) -> Option<Vec<u8>> {
        let changed = changed.as_object()?;
        if changed.len() != self.sections.iter().filter(|section| section.wanted.is_some()).count() {
            return None;
        }
        let mut out = String::with_capacity(1024);
        out.push('{');
        for Section { encoded, wanted } in &self.sections {
            let key = text(encoded.key)?;
            match wanted {
                None => put(&mut out, key, text(encoded.value)?),
                Some(wanted) => {
                    put(&mut out, key, "{");
                    merge(&mut out, encoded, wanted, changed.get(key)?.as_object()?)?;
                    out.push('}');
                }
            }
        }
        out.push('}');
        Some(out.into_bytes())
    }
}

/// The wanted members of a section. `None` when its keys are not those of a map in order, written without escapes.
fn build(section: &[u8], wanted: &[&str]) -> Option<Value> {
    let members = members(section)?;
    let plain = members.iter().all(|member| !member.key.contains(&b'\\'));
    if !plain || !members.is_sorted_by(|one, next| one.key < next.key) {
        return None;
    }
    let mut object = Map::new();
    for name in wanted {
        if let Ok(at) = members.binary_search_by(|member| member.key.cmp(name.as_bytes())) {
            object.insert((*name).to_owned(), stored::parse(members[at].value).ok()?);
        }
    }
    Some(Value::Object(object))
}

/// Writes the members of a section in order: the unwanted ones as they are, the wanted ones as they have become.
fn merge(out: &mut String, section: &Member<'_>, wanted: &[&str], changed: &Map<String, Value>) -> Option<()> {
    let kept = members(section.value)?;
    let mut kept = kept.iter().filter(|member| !wanted.iter().any(|name| name.as_bytes() == member.key)).peekable();
    // The version is the store's.
    for (key, value) in changed.iter().filter(|(key, _)| section.key != b"metadata" || *key != "resourceVersion") {
        while let Some(before) = kept.next_if(|member| member.key < key.as_bytes()) {
            put(out, text(before.key)?, text(before.value)?);
        }
        if kept.peek().is_some_and(|member| member.key == key.as_bytes()) {
            return None;
        }
        stored::write_member(out, key, value);
    }
    for after in kept {
        put(out, text(after.key)?, text(after.value)?);
    }
    Some(())
}

fn put(out: &mut String, key: &str, value: &str) {
    if !out.ends_with('{') {
        out.push(',');
    }
    out.extend(["\"", key, "\":", value]);
}

fn text(encoded: &[u8]) -> Option<&str> {
    std::str::from_utf8(encoded).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const WANTED: &Wanted = &[("metadata", &["name", "uid"]), ("spec", &["a", "c"])];

    #[test]
    fn what_is_not_wanted_is_copied() {
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {"labels": {"x": "{"}, "name": "n"},
            "spec": {"b": [1, {"c": "\"}"}], "c": {"d": null}}, "status": {"a": 1}});
        let stored = stored::encode(&object);
        let sketch = Sketch::read(&stored, WANTED).expect("a stored object");
        assert_eq!(sketch.object(), &json!({"metadata": {"name": "n"}, "spec": {"c": {"d": null}}}));
        let changed = json!({"metadata": {"resourceVersion": "7", "name": "n"}, "spec": {"a": "new"}});
        let written = sketch.write(&changed).expect("only wanted members were changed");
        assert_eq!(
            String::from_utf8_lossy(&written),
            r#"{"kind":"K","apiVersion":"v1","metadata":{"labels":{"x":"{"},"name":"n"},"spec":{"a":"new","b":[1,{"c":"\"}"}]},"status":{"a":1}}"#
        );
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let read = |text: &str| Sketch::read(text.as_bytes(), WANTED).is_some();
        assert!(read(r#"{"metadata":{},"spec":{}}"#));
        for (name, text) in [
            ("a section is missing", r#"{"metadata":{}}"#),
            ("a section is no object", r#"{"metadata":{},"spec":1}"#),
            ("not in order", r#"{"metadata":{"b":1,"a":1},"spec":{}}"#),
            ("escaped keys", r#"{"metadata":{"\u0061":1},"spec":{}}"#),
            ("blanks", r#"{"metadata":{}, "spec":{}}"#),
        ] {
            assert!(!read(text), "{name}");
        }
        let stored = br#"{"metadata":{"x":1},"spec":{}}"#;
        let sketch = Sketch::read(stored, WANTED).expect("a stored object");
        for changed in [json!({"metadata": {}}), json!({"metadata": {"x": 2}, "spec": {}}), json!([])] {
            assert!(sketch.write(&changed).is_none(), "{changed}");
        }
    }

    fn any_member() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!({})),
            any::<i32>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from),
            prop::collection::vec("[\\\\\"{},]{0,3}", 0..3).prop_map(|texts| json!({ "texts": texts })),
        ]
    }

    fn any_section() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]|name|uid|.{1,2}", any_member(), 0..6)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn it_writes_what_the_whole_object_would(
            metadata in any_section(), spec in any_section(), status in any_section(), a in any_member(), removes in any::<bool>()
        ) {
            let change = |object: &mut Value| {
                object["spec"]["a"] = a.clone();
                let metadata = object["metadata"].as_object_mut().expect("an object");
                if removes { metadata.remove("uid"); } else { metadata.insert("name".to_owned(), a.clone()); }
                stored::set_resource_version(object, 9).expect("an object");
            };
            let object = json!({"kind": "K", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status});
            let bytes = stored::encode(&object);
            let mut whole = stored::decode(&bytes, 8).expect("an object");
            change(&mut whole);
            if let Some(sketch) = Sketch::read(&bytes, WANTED) {
                let mut seen = sketch.object().clone();
                change(&mut seen);
                prop_assert_eq!(sketch.write(&seen).map(String::from_utf8), Some(String::from_utf8(stored::encode(&whole))));
            } else {
                let escaped = [&object["metadata"], &object["spec"]].into_iter().any(|section| {
                    section.as_object().expect("an object").keys().any(|key| Value::from(key.as_str()).to_string().contains('\\'))
                });
                prop_assert!(escaped, "refused {object}");
            }
        }
    }
}
