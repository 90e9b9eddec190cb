//! The members that Go writes even when they are empty: structs that are no pointers (`status: {}`, `resources: {}`).

use serde_json::{Map, Value};

use crate::apiserver::schema::{Schema, TypeIdx, TypeRef};

/// Adds an empty object wherever a type of the schema table says that its default is one. Idempotent.
pub(in crate::apiserver) fn fill(type_name: &str, object: &mut Value) {
    let schema = Schema::builtin();
    if let Some(root) = schema.find(type_name) {
        fill_type(&schema, root, object);
    }
}

fn fill_type(schema: &Schema, idx: TypeIdx, object: &mut Value) {
    let Value::Object(members) = object else { return };
    for field in &schema.get(idx).fields {
        let filled = matches!(&field.default, Some(Value::Object(default)) if default.is_empty());
        if filled && matches!(field.ty, TypeRef::Object(_)) && members.get(&*field.name).is_none_or(Value::is_null) {
            members.insert(field.name.to_string(), Value::Object(Map::new()));
        }
        if let Some(member) = members.get_mut(&*field.name) {
            fill_reference(schema, &field.ty, member);
        }
    }
}

fn fill_reference(schema: &Schema, ty: &TypeRef, value: &mut Value) {
    match (ty, value) {
        (TypeRef::Object(idx), value) => fill_type(schema, *idx, value),
        (TypeRef::List(item), Value::Array(items)) => {
            items.iter_mut().for_each(|value| fill_reference(schema, item, value))
        }
        (TypeRef::Map(item), Value::Object(members)) => {
            members.values_mut().for_each(|value| fill_reference(schema, item, value))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn structs_are_there_even_when_empty() {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        fill("io.k8s.api.core.v1.Pod", &mut pod);
        assert_eq!(
            pod,
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {}})
        );
        let mut job = json!({"spec": {"jobTemplate": {}}});
        fill("io.k8s.api.batch.v1.CronJob", &mut job);
        assert_eq!(
            job["spec"]["jobTemplate"],
            json!({"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {}}}})
        );
    }
}
