//! The schema of each API type in OpenAPI's words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use crate::apiserver::custom::CustomType;
use crate::apiserver::resources::Resource;
use crate::apiserver::schema::{Descriptions, Field, Schema, Structure, TypeRef};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Group, version and kind of a type that is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupVersionKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl GroupVersionKind {
    pub(super) fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// Which types are kinds of which groups and versions: those of the resources, their lists and subresources.
pub(super) fn kinds<'a>(resources: impl Iterator<Item = &'a Resource>) -> BTreeMap<String, BTreeSet<GroupVersionKind>> {
    let mut kinds: BTreeMap<String, BTreeSet<GroupVersionKind>> = BTreeMap::new();
    let mut add = |type_name: &str, group: &str, version: &str, kind: &str| {
        if !type_name.is_empty() {
            let kind = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
            kinds.entry(type_name.to_owned()).or_default().insert(kind);
        }
    };
    for resource in resources {
        let (group, version) = (&resource.group, &resource.version);
        add(&resource.type_name, group, version, &resource.kind);
        add(&list_type(resource), group, version, &resource.list_kind);
        for subresource in &resource.subresources {
            let own = subresource.version.is_empty();
            let (group, version) = if own { (group, version) } else { (&subresource.group, &subresource.version) };
            add(&subresource.type_name, group, version, &subresource.kind);
        }
        add(&format!("{META}.DeleteOptions"), group, version, "DeleteOptions");
        add(&format!("{META}.WatchEvent"), group, version, "WatchEvent");
    }
    add(&format!("{META}.Status"), "", "v1", "Status");
    kinds
}

/// Name of the type of a resource's lists.
pub(super) fn list_type(resource: &Resource) -> String {
    match resource.type_name.rsplit_once('.') {
        Some((package, _)) if !resource.list_kind.is_empty() => format!("{package}.{}", resource.list_kind),
        _ => String::new(),
    }
}

/// What writes the schemas of custom resources and their lists, by type name; the types that they use are added to a list.
pub(super) type CustomDocuments<'a> = BTreeMap<String, Box<dyn Fn(Dialect, &mut Vec<String>) -> Value + 'a>>;

/// The schemas of the custom resources among `resources`.
pub(super) fn custom_documents<'a>(resources: impl Iterator<Item = &'a Resource>) -> CustomDocuments<'a> {
    let mut documents: CustomDocuments<'a> = BTreeMap::new();
    for resource in resources {
        let Some(custom) = resource.custom.as_deref() else { continue };
        let object = |dialect: Dialect, used: &mut Vec<String>| {
            used.push(format!("{META}.ObjectMeta"));
            custom.document(|name| dialect.extensible_reference(name))
        };
        let (item, kind) = (resource.type_name.to_string(), resource.list_kind.to_string());
        documents.insert(item.clone(), Box::new(object));
        let list = move |dialect: Dialect, used: &mut Vec<String>| {
            used.extend([format!("{META}.ListMeta"), item.clone()]);
            CustomType::list_document(&item, &kind, |name| dialect.reference(name))
        };
        documents.insert(list_type(resource), Box::new(list));
    }
    documents
}

/// The schemas of `roots` and of every type that they use.
pub(super) fn schemas(
    dialect: Dialect,
    schema: &Schema,
    roots: impl IntoIterator<Item = String>,
    kinds: &BTreeMap<String, BTreeSet<GroupVersionKind>>,
    custom: &CustomDocuments<'_>,
) -> Map<String, Value> {
    let mut made = Map::new();
    let mut wanted: Vec<String> = roots.into_iter().filter(|name| !name.is_empty()).collect();
    while let Some(name) = wanted.pop() {
        if made.contains_key(&name) {
            continue;
        }
        let mut document = match (schema.find(&name), custom.get(&name)) {
            (Some(idx), _) => object(dialect, schema, idx, &mut wanted),
            (None, Some(make)) => make(dialect, &mut wanted),
            (None, None) => scalar(dialect, &name),
        };
        if let Some(text) = Descriptions::builtin().of_type(&name) {
            document["description"] = text.into();
        }
        if let Some(kinds) = kinds.get(&name) {
            let kinds: Vec<Value> = kinds.iter().map(GroupVersionKind::to_value).collect();
            document["x-kubernetes-group-version-kind"] = json!(kinds);
        }
        made.insert(name, document);
    }
    made
}

fn object(dialect: Dialect, schema: &Schema, idx: crate::apiserver::schema::TypeIdx, used: &mut Vec<String>) -> Value {
    let ty = schema.get(idx);
    let mut document = json!({"type": "object"});
    let properties: Map<String, Value> = ty
        .fields
        .iter()
        .map(|field| (field.name.to_string(), property(dialect, schema, &ty.name, field, used)))
        .collect();
    if !properties.is_empty() {
        document["properties"] = Value::Object(properties);
    }
    let required: Vec<&str> = ty.fields.iter().filter(|f| f.required).map(|f| f.name.as_ref()).collect();
    if !required.is_empty() {
        document["required"] = json!(required);
    }
    if ty.atomic {
        document["x-kubernetes-map-type"] = json!("atomic");
    }
    document
}

fn property(dialect: Dialect, schema: &Schema, owner: &str, field: &Field, used: &mut Vec<String>) -> Value {
    let mut document = type_schema(dialect, schema, &field.ty, used);
    let is_list = matches!(field.ty, TypeRef::List(_));
    let mut set = |key: &str, value: Value| document[key] = value;
    if let Some(text) = Descriptions::builtin().of_field(owner, &field.name) {
        set("description", text.into());
    }
    if let Some(default) = &field.default
        && dialect == Dialect::V3
    {
        set("default", default.clone());
    }
    if !field.values.is_empty() {
        set("enum", json!(field.values));
    }
    match &field.structure {
        Structure::Default => {}
        Structure::Atomic if is_list => set("x-kubernetes-list-type", json!("atomic")),
        Structure::Atomic => set("x-kubernetes-map-type", json!("atomic")),
        Structure::Set => set("x-kubernetes-list-type", json!("set")),
        Structure::Map(keys) => {
            set("x-kubernetes-list-type", json!("map"));
            set("x-kubernetes-list-map-keys", json!(keys));
        }
    }
    let strategies: Vec<&str> = [("merge", field.patch.merge), ("retainKeys", field.patch.retain_keys)]
        .into_iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| name)
        .collect();
    if !strategies.is_empty() {
        set("x-kubernetes-patch-strategy", json!(strategies.join(",")));
    }
    if let Some(key) = &field.patch.merge_key {
        set("x-kubernetes-patch-merge-key", json!(key));
    }
    document
}

fn type_schema(dialect: Dialect, schema: &Schema, ty: &TypeRef, used: &mut Vec<String>) -> Value {
    let mut named = |name: &str| {
        used.push(name.to_owned());
        dialect.extensible_reference(name)
    };
    match ty {
        TypeRef::String => json!({"type": "string"}),
        TypeRef::Int32 => json!({"type": "integer", "format": "int32"}),
        TypeRef::Int64 => json!({"type": "integer", "format": "int64"}),
        TypeRef::Double => json!({"type": "number", "format": "double"}),
        TypeRef::Bool => json!({"type": "boolean"}),
        TypeRef::Bytes => json!({"type": "string", "format": "byte"}),
        TypeRef::Quantity => named(QUANTITY),
        TypeRef::IntOrString => named(INT_OR_STRING),
        TypeRef::Any => named(RAW_EXTENSION),
        TypeRef::Time => named(&format!("{META}.Time")),
        TypeRef::MicroTime => named(&format!("{META}.MicroTime")),
        TypeRef::Duration => named(&format!("{META}.Duration")),
        TypeRef::FieldsV1 => named(&format!("{META}.FieldsV1")),
        TypeRef::Map(value) => {
            json!({"type": "object", "additionalProperties": type_schema(dialect, schema, value, used)})
        }
        TypeRef::List(item) => json!({"type": "array", "items": type_schema(dialect, schema, item, used)}),
        TypeRef::Object(idx) => named(&schema.get(*idx).name),
    }
}

/// Types that are no objects with fields.
fn scalar(dialect: Dialect, name: &str) -> Value {
    let short = name.rsplit('.').next().unwrap_or(name);
    match (short, dialect) {
        ("Time", _) => json!({"type": "string", "format": "date-time"}),
        ("MicroTime", _) => json!({"type": "string", "format": "date-time"}),
        ("Duration", _) => json!({"type": "string"}),
        ("Quantity", Dialect::V2) => json!({"type": "string"}),
        ("Quantity", Dialect::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        ("IntOrString", Dialect::V2) => json!({"type": "string", "format": "int-or-string"}),
        ("IntOrString", Dialect::V3) => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        _ => json!({"type": "object"}),
    }
}
