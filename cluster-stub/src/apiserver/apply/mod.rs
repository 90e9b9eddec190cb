//! Server-side apply: a manager states the fields that it wants, takes them from others or fails, and what it no longer states
//! goes unless somebody else owns it.
//!
//! Upstream: structured-merge-diff v6 `merge/update.go`, apimachinery v1.36.2 `pkg/util/managedfields`.

mod conflict;
mod creation;
mod field_set;
pub mod managed;
mod merge;
mod shape;
mod walk;

use serde_json::{Value, json};

use crate::apiserver::codec::decode::conform;
use crate::apiserver::schema::{Schema, TypeIdx};
use crate::apiserver::status::ApiError;
use conflict::Conflict;
use field_set::FieldSet;
use managed::{Entry, Operation, Writer};
use merge::{merge, remove, with_named_fields};
use shape::Shape;
use walk::{compare, field_set};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager that owns what an object had before anybody applied it.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies a configuration to the present object (`None`: there is none) and gives the object to write. `reset` are the members
/// that this write cannot change.
///
/// # Errors
/// 409 for fields that others own with another value, unless `force`.
pub fn apply(
    writer: &Writer<'_>,
    live: Option<&Value>,
    applied: &Value,
    reset: &[&str],
    force: bool,
) -> Result<Value, ApiError> {
    let mut entries = live.and_then(managed::read).unwrap_or_default();
    let mut present = live.cloned().unwrap_or_else(|| empty(writer, applied));
    managed::clear(&mut present);
    if entries.is_empty() && live.is_some() {
        let before = Writer {
            schema: writer.schema,
            manager: BEFORE_FIRST_APPLY.to_string(),
            subresource: writer.subresource,
            api_version: writer.api_version,
            ..*writer
        };
        entries = managed::update(&before, None, &present, entries, reset);
    }
    let kubectl = writer.manager == "kubectl";
    let mut outcome = try_apply(writer, &present, applied, entries.clone(), reset, force);
    if let Err(conflicts) = &mut outcome
        && kubectl
        && let Some(allowed) = last_applied_fields(writer, &present)
    {
        // What kubectl applied before, it may take from its own former self.
        conflicts.retain(|conflict| !allowed.has(&conflict.path));
        if conflicts.is_empty() {
            outcome = try_apply(writer, &present, applied, entries, reset, true);
        }
    }
    let (mut object, entries) = outcome.map_err(conflict::failure)?;
    if kubectl && object["metadata"]["annotations"][LAST_APPLIED].as_str().is_some_and(|text| !text.is_empty()) {
        object["metadata"]["annotations"][LAST_APPLIED] = last_applied_text(applied).into();
    }
    managed::write(&mut object, entries);
    Ok(object)
}

/// Lays a configuration over an object: structs and maps merge, lists by their keys. Nobody owns the fields afterwards.
pub fn overlay(schema: &Schema, ty: Option<TypeIdx>, live: &Value, configuration: &Value) -> Value {
    merge(schema, Shape::root(ty), Some(live), configuration)
}

/// What an apply starts from when there is no object.
fn empty(writer: &Writer<'_>, applied: &Value) -> Value {
    let mut object = writer.ty.map_or_else(|| json!({}), |ty| writer.schema.zero(ty));
    object["apiVersion"] = applied["apiVersion"].clone();
    object["kind"] = applied["kind"].clone();
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object
}

fn try_apply(
    writer: &Writer<'_>,
    present: &Value,
    applied: &Value,
    mut entries: Vec<Entry>,
    reset: &[&str],
    force: bool,
) -> Result<(Value, Vec<Entry>), Vec<Conflict>> {
    let schema = writer.schema;
    let shape = Shape::root(writer.ty);
    let mut stated = field_set(schema, shape, applied);
    for member in reset {
        stated.remove_tree(&format!("f:{member}"));
    }
    let mut mine = Entry::new(writer, Operation::Apply, stated.clone());
    let last = entries.iter().position(|entry| entry.same_manager(&mine)).map(|at| entries.remove(at));
    let merged = merge(schema, shape, Some(present), applied);
    let object = prune(writer, merged, &entries, &stated, last.as_ref());
    let difference = managed::difference(writer, Some(present), &object, reset);
    let changed = difference.modified.union(&difference.added);
    let conflicts: Vec<Conflict> = entries
        .iter()
        .flat_map(|owner| {
            let lost = owner.fields.intersection(&changed);
            lost.paths().into_iter().map(|path| Conflict { owner: owner.clone(), path }).collect::<Vec<_>>()
        })
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    managed::release(&mut entries, &changed.union(&difference.removed));
    mine.fields = managed::stripped(stated);
    if difference.is_same() {
        // An apply that changes nothing has no time of its own.
        mine.time = last.map(|last| last.time).unwrap_or_default();
    }
    if !mine.fields.is_empty() {
        entries.push(mine);
    }
    Ok((object, entries))
}

/// Takes out what the manager stated last time, does not state now, and nobody else owns.
fn prune(writer: &Writer<'_>, merged: Value, others: &[Entry], stated: &FieldSet, last: Option<&Entry>) -> Value {
    let Some(last) = last.filter(|last| !last.fields.is_empty()) else {
        return merged;
    };
    let (schema, shape) = (writer.schema, Shape::root(writer.ty));
    let named = |set: &FieldSet| with_named_fields(schema, shape, set);
    let without = |set: &FieldSet| remove(schema, shape, &merged, set).unwrap_or_else(|| json!({}));
    let everything = named(&field_set(schema, shape, &merged));
    let last = named(&last.fields);
    let pruned = without(&last);
    // Back comes what somebody owns, …
    let owned = others.iter().fold(stated.clone(), |owned, entry| owned.union(&entry.fields));
    let gone = everything.difference(&named(&field_set(schema, shape, &pruned))).difference(&named(&owned));
    let pruned = without(&gone);
    // … and what was never this manager's.
    let gone = everything.difference(&named(&field_set(schema, shape, &pruned))).intersection(&last);
    without(&gone)
}

/// The fields of kubectl's last client-side apply that still have the values that it gave them.
fn last_applied_fields(writer: &Writer<'_>, present: &Value) -> Option<FieldSet> {
    let text = present["metadata"]["annotations"][LAST_APPLIED].as_str().filter(|text| !text.is_empty())?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"].as_str() != Some(writer.api_version) {
        return None;
    }
    let (schema, shape) = (writer.schema, Shape::root(writer.ty));
    if let Some(ty) = writer.ty {
        conform(schema, ty, &last).ok()?;
    }
    let difference = compare(schema, shape, Some(&last), Some(present));
    let fields = field_set(schema, shape, &last);
    Some(fields.difference(&difference.modified).difference(&difference.added).difference(&difference.removed))
}

/// The annotation that client-side apply would write for a configuration.
fn last_applied_text(applied: &Value) -> String {
    let mut applied = applied.clone();
    if let Some(annotations) = applied["metadata"]["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    format!("{applied}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::schema::Schema;
    use jiff::Timestamp;

    pub(super) const TABLE: &str = "type t.v1.Root\n apiVersion string\n kind string\n metadata t.v1.Meta default={}\n\
        \x20data map<string>\n spec t.v1.Spec default={}\n status t.v1.Status default={}\n\
        type t.v1.Meta\n name string\n labels map<string>\n annotations map<string>\n managedFields list<any> atomic\n\
        type t.v1.Spec\n replicas int32\n args list<string> atomic\n tags list<string> set\n empty t.v1.Spec\n\
        \x20items list<t.v1.Item> map=name\n\
        type t.v1.Item\n name string required\n image string\n env list<t.v1.Item> map=name\n\
        type t.v1.Status\n ready bool\n";

    pub(super) fn root(schema: &Schema) -> Shape<'_> {
        Shape::root(schema.find("t.v1.Root"))
    }

    pub(super) fn writer<'a>(schema: &'a Schema, manager: &str) -> Writer<'a> {
        Writer {
            schema,
            ty: schema.find("t.v1.Root"),
            manager: manager.to_string(),
            subresource: "",
            api_version: "v1",
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn config(body: Value) -> Value {
        let mut config = json!({"apiVersion": "v1", "kind": "Root", "metadata": {"name": "c"}});
        let Value::Object(body) = body else { panic!("{body} is no object") };
        for (key, value) in body {
            config[key] = value;
        }
        config
    }

    struct World {
        schema: Schema,
        object: Option<Value>,
    }

    impl World {
        fn new() -> World {
            World { schema: Schema::parse(TABLE).expect("the table is right"), object: None }
        }

        fn apply(&mut self, manager: &str, body: Value, force: bool) -> Result<(), String> {
            let object = apply(&writer(&self.schema, manager), self.object.as_ref(), &config(body), &["status"], force)
                .map_err(|error| error.message().to_string())?;
            self.object = Some(object);
            Ok(())
        }

        fn update(&mut self, manager: &str, change: impl Fn(&mut Value)) {
            let live = self.object.clone().expect("there is an object");
            let mut object = live.clone();
            change(&mut object);
            managed::track_update(&writer(&self.schema, manager), Some(&live), &mut object, &["status"]);
            self.object = Some(object);
        }

        fn at(&self, pointer: &str) -> Value {
            self.object.as_ref().and_then(|object| object.pointer(pointer)).cloned().unwrap_or(Value::Null)
        }

        fn owned_by(&self, manager: &str) -> Value {
            let entries =
                managed::read(self.object.as_ref().expect("there is an object")).expect("entries that we wrote");
            entries.iter().find(|entry| entry.manager == manager).map_or(Value::Null, |entry| entry.fields.to_value())
        }
    }

    #[test]
    fn shared_fields_stay_until_the_last_owner_gives_them_up() {
        let mut world = World::new();
        world.apply("m1", json!({"data": {"a": "1", "b": "1"}}), false).expect("nobody else");
        assert_eq!(world.owned_by("m1"), json!({"f:data": {"f:a": {}, "f:b": {}}}));
        world.apply("m2", json!({"data": {"b": "1", "d": "2"}}), false).expect("the same value is shared");
        world.apply("m1", json!({}), false).expect("giving up is free");
        assert_eq!(world.at("/data"), json!({"b": "1", "d": "2"}));
        assert_eq!(world.owned_by("m1"), Value::Null);
        world.apply("m2", json!({}), false).expect("giving up is free");
        assert_eq!(world.at("/data"), Value::Null);
    }

    #[test]
    fn a_changed_field_conflicts_until_forced() {
        let mut world = World::new();
        world.apply("m1", json!({"data": {"a": "1", "b": "1"}}), false).expect("nobody else");
        world.update("ed", |object| object["data"]["a"] = "9".into());
        assert_eq!(
            world.apply("m1", json!({"data": {"a": "1", "b": "1"}}), false),
            Err("Apply failed with 1 conflict: conflict with \"ed\" using v1: .data.a".to_string())
        );
        assert_eq!(world.owned_by("m1"), json!({"f:data": {"f:b": {}}}));
        world.apply("m1", json!({"data": {"a": "1", "b": "1"}}), true).expect("forced");
        assert_eq!(world.owned_by("ed"), Value::Null);
        assert_eq!(world.at("/data/a"), json!("1"));
    }

    #[test]
    fn several_conflicts_are_listed_by_owner() {
        let mut world = World::new();
        world.apply("m1", json!({"data": {"a": "1", "b": "1"}, "spec": {"replicas": 1}}), false).expect("nobody else");
        assert_eq!(
            world.apply("m2", json!({"data": {"a": "2"}, "spec": {"replicas": 2}}), false),
            Err("Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.a\n- .spec.replicas".to_string())
        );
    }

    #[test]
    fn lists_of_objects_are_merged_by_key() {
        let mut world = World::new();
        world
            .apply("m1", json!({"spec": {"items": [{"name": "c", "image": "1", "env": [{"name": "A"}]}]}}), false)
            .expect("nobody else");
        world
            .apply(
                "m2",
                json!({"spec": {"items": [{"name": "c", "env": [{"name": "B"}]}, {"name": "side", "image": "s"}]}}),
                false,
            )
            .expect("no conflict");
        assert_eq!(
            world.at("/spec/items"),
            json!([{"name": "c", "image": "1", "env": [{"name": "A"}, {"name": "B"}]}, {"name": "side", "image": "s"}])
        );
        world.apply("m1", json!({"spec": {"items": [{"name": "c", "image": "1"}]}}), false).expect("no conflict");
        assert_eq!(world.at("/spec/items/0/env"), json!([{"name": "B"}]));
        assert_eq!(
            world.owned_by("m2"),
            json!({"f:spec": {"f:items": {
                "k:{\"name\":\"c\"}": {".": {}, "f:env": {"k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}, "f:name": {}},
                "k:{\"name\":\"side\"}": {".": {}, "f:image": {}, "f:name": {}}}}})
        );
    }

    #[test]
    fn an_untracked_object_gets_an_owner_for_what_it_had() {
        let mut world = World::new();
        world.object =
            Some(json!({"apiVersion": "v1", "kind": "Root", "metadata": {"name": "c"}, "data": {"a": "9", "b": "1"}}));
        world.apply("m1", json!({"data": {"b": "1"}}), false).expect("the same value is shared");
        assert_eq!(world.owned_by("m1"), json!({"f:data": {"f:b": {}}}));
        assert_eq!(world.owned_by(BEFORE_FIRST_APPLY), json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}));
    }

    #[test]
    fn kubectl_takes_over_from_its_client_side_self() {
        let mut world = World::new();
        let last = config(json!({"data": {"a": "1"}})).to_string();
        world.object = Some(
            json!({"apiVersion": "v1", "kind": "Root", "metadata": {"name": "c", "annotations": {LAST_APPLIED: last}}, "data": {"a": "1"}}),
        );
        world.apply("kubectl", json!({"data": {"a": "2"}}), false).expect("it was kubectl's own field");
        assert_eq!(world.at("/data/a"), json!("2"));
        let text = world.at("/metadata/annotations");
        assert!(text[LAST_APPLIED].as_str().is_some_and(|text| text.contains("\"a\":\"2\"")), "{text}");
        assert!(world.apply("other", json!({"data": {"a": "3"}}), false).is_err());
    }
}
