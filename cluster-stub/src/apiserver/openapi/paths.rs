//! The operations on each path in OpenAPI's words.

use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use super::schemas::{GroupVersionKind, list_type};
use crate::apiserver::resources::{Behavior, Resource, Subresource, Verbs};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const WRITE: &[(&str, &str)] = &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

/// One operation before it is written down.
struct Operation<'a> {
    method: &'static str,
    action: &'static str,
    id: String,
    query: &'static [(&'static str, &'static str)],
    /// Type of the body.
    body: Option<String>,
    /// Type of the answer.
    answer: String,
    kind: &'a GroupVersionKind,
}

/// All paths of `resource`.
pub(super) fn paths(dialect: Dialect, resource: &Resource) -> Vec<(String, Value)> {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let plural = &resource.plural;
    let (scoped, scope) = if resource.namespaced {
        (format!("{root}/namespaces/{{namespace}}/{plural}"), "Namespaced")
    } else {
        (format!("{root}/{plural}"), "")
    };
    let package = package(&resource.group, &resource.version);
    let id = |verb: &str, rest: &str| format!("{verb}{package}{rest}{scope}{}", resource.kind);
    let own = GroupVersionKind {
        group: resource.group.to_string(),
        version: resource.version.to_string(),
        kind: resource.kind.to_string(),
    };
    let has = |verb| resource.verbs.contains(verb);
    let list = list_type(resource);
    let delete_options = Some(format!("{META}.DeleteOptions"));
    let status = format!("{META}.Status");
    let object = resource.type_name.to_string();
    let operation = |method, action, id, query, body: Option<String>, answer: &str| Operation {
        method,
        action,
        id,
        query,
        body,
        answer: answer.to_owned(),
        kind: &own,
    };

    let mut collection = Vec::new();
    if has(Verbs::DELETE_COLLECTION) {
        let id = id("delete", "Collection");
        collection.push(operation("delete", "deletecollection", id, DELETE, delete_options.clone(), &status));
    }
    if has(Verbs::LIST) {
        collection.push(operation("get", "list", id("list", ""), LIST, None, &list));
    }
    if has(Verbs::CREATE) {
        collection.push(operation("post", "post", id("create", ""), WRITE, Some(object.clone()), &object));
    }
    let mut single = Vec::new();
    if has(Verbs::DELETE) {
        single.push(operation("delete", "delete", id("delete", ""), DELETE, delete_options, &status));
    }
    single.extend(object_operations(resource.verbs, &object, &own, |verb| id(verb, "")));

    let mut all = vec![(scoped.clone(), collection), (format!("{scoped}/{{name}}"), single)];
    if resource.namespaced && has(Verbs::LIST) {
        let id = format!("list{package}{}ForAllNamespaces", resource.kind);
        all.push((format!("{root}/{plural}"), vec![operation("get", "list", id, LIST, None, &list)]));
    }
    let subkinds: Vec<GroupVersionKind> = resource.subresources.iter().map(|sub| kind_of(sub, &own)).collect();
    for (subresource, kind) in resource.subresources.iter().zip(&subkinds) {
        let name = capitalized(&subresource.name);
        let id = |verb: &str| format!("{verb}{package}{scope}{}{name}", resource.kind);
        let path = format!("{scoped}/{{name}}/{}", subresource.name);
        all.push((path, subresource_operations(subresource, kind, id)));
    }
    all.into_iter()
        .filter(|(_, operations)| !operations.is_empty())
        .map(|(path, operations)| {
            let item = path_item(dialect, resource, &path, &operations);
            (path, item)
        })
        .collect()
}

fn object_operations<'a>(
    verbs: Verbs,
    object: &str,
    kind: &'a GroupVersionKind,
    id: impl Fn(&str) -> String,
) -> Vec<Operation<'a>> {
    let patch = format!("{META}.Patch");
    let candidates = [
        (Verbs::GET, "get", "get", "read", &[][..], None),
        (Verbs::PATCH, "patch", "patch", "patch", PATCH, Some(patch)),
        (Verbs::UPDATE, "put", "put", "replace", WRITE, Some(object.to_owned())),
    ];
    candidates
        .into_iter()
        .filter(|(verb, ..)| verbs.contains(*verb))
        .map(|(_, method, action, verb, query, body)| Operation {
            method,
            action,
            id: id(verb),
            query,
            body,
            answer: object.to_owned(),
            kind,
        })
        .collect()
}

fn subresource_operations<'a>(
    subresource: &Subresource,
    kind: &'a GroupVersionKind,
    id: impl Fn(&str) -> String,
) -> Vec<Operation<'a>> {
    let object = subresource.type_name.to_string();
    match &subresource.behavior {
        Behavior::Connect => Vec::new(),
        Behavior::Action(_) => vec![Operation {
            method: "post",
            action: "post",
            id: id("create"),
            query: WRITE,
            body: Some(object.clone()),
            answer: object,
            kind,
        }],
        Behavior::Object(_) | Behavior::Scale(_) => object_operations(subresource.verbs, &object, kind, id),
    }
}

fn kind_of(subresource: &Subresource, own: &GroupVersionKind) -> GroupVersionKind {
    let kind = subresource.kind.to_string();
    if subresource.version.is_empty() {
        return GroupVersionKind { kind, ..own.clone() };
    }
    GroupVersionKind { group: subresource.group.to_string(), version: subresource.version.to_string(), kind }
}

fn path_item(dialect: Dialect, resource: &Resource, path: &str, operations: &[Operation<'_>]) -> Value {
    let tag = match package(&resource.group, &resource.version) {
        package if package.is_empty() => package,
        package => {
            format!("{}_{}", package[..package.len() - resource.version.len()].to_ascii_lowercase(), resource.version)
        }
    };
    let mut item = Map::new();
    for operation in operations {
        let mut value = operation.to_value(dialect, &tag);
        if resource.custom.is_some() {
            without_strategic(&mut value);
        }
        item.insert(operation.method.to_owned(), value);
    }
    let path_parameters = ["name", "namespace"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
    let parameters: Vec<Value> = path_parameters
        .map(|name| dialect.parameter(name, "path", "string"))
        .chain([dialect.parameter("pretty", "query", "string")])
        .collect();
    item.insert("parameters".into(), json!(parameters));
    Value::Object(item)
}

/// Custom resources have no strategic merge; clients look here before they send one.
fn without_strategic(operation: &mut Value) {
    const STRATEGIC: &str = "application/strategic-merge-patch+json";
    if let Some(types) = operation.get_mut("consumes").and_then(Value::as_array_mut) {
        types.retain(|ty| ty != STRATEGIC);
    }
    if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
        content.remove(STRATEGIC);
    }
}

impl Operation<'_> {
    fn to_value(&self, dialect: Dialect, tag: &str) -> Value {
        let mut parameters: Vec<Value> =
            self.query.iter().map(|(name, ty)| dialect.parameter(name, "query", ty)).collect();
        let is_patch = self.method == "patch";
        let body_types: &[&str] = if is_patch { &PATCH_TYPES } else { &["*/*"] };
        let answer_types = ["application/json", "application/yaml"];
        let mut value = json!({
            "operationId": self.id,
            "tags": [tag],
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": self.kind.to_value(),
        });
        let answer = dialect.reference(&self.answer);
        let content = |types: &[&str], schema: &Value| -> Value {
            types.iter().map(|ty| ((*ty).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
        };
        match dialect {
            Dialect::V2 => {
                if let Some(body) = &self.body {
                    parameters.push(json!({
                        "name": "body", "in": "body", "required": self.method != "delete",
                        "schema": dialect.reference(body),
                    }));
                }
                value["consumes"] = json!(body_types);
                value["produces"] = json!(answer_types);
                value["responses"] = json!({"200": {"description": "OK", "schema": answer}});
            }
            Dialect::V3 => {
                if let Some(body) = &self.body {
                    let content = content(body_types, &dialect.reference(body));
                    value["requestBody"] = json!({"content": content, "required": self.method != "delete"});
                }
                let content = content(&answer_types, &answer);
                value["responses"] = json!({"200": {"description": "OK", "content": content}});
            }
        }
        if !parameters.is_empty() {
            value["parameters"] = json!(parameters);
        }
        value
    }
}

/// `AppsV1`, `CoreV1`, `RbacAuthorizationV1`: what operation ids are made of.
fn package(group: &str, version: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") };
    let words: String = group.split(['.', '-']).map(capitalized).collect();
    words + &capitalized(version)
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_ids_name_the_package() {
        let cases = [
            ("", "v1", "CoreV1"),
            ("apps", "v1", "AppsV1"),
            ("rbac.authorization.k8s.io", "v1", "RbacAuthorizationV1"),
            ("events.k8s.io", "v1", "EventsV1"),
            ("example.com", "v1beta1", "ExampleComV1beta1"),
        ];
        for (group, version, want) in cases {
            assert_eq!(package(group, version), want);
        }
    }
}
