//! Sends objects to an API server as `kubectl apply` does: discovery, GET, then create or three-way patch.
//! Client-side apply only; nothing is pruned or deleted.

use std::fmt;

use http::{Method, Request, header};
use kube::Client;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::manifest::Document;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const FIELD_MANAGER: &str = "kubectl-client-side-apply";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// What became of an applied object, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was not there.
    Created,
    /// It was there and differed.
    Configured,
    /// It was there and is as wanted.
    Unchanged,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        })
    }
}

/// An object after it was applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// The object as the server returned it.
    pub(crate) object: Value,
    /// `deployment.apps/web`, as kubectl prints it.
    pub(crate) display: String,
    /// Where it is: path of its URL.
    pub(crate) path: String,
    /// What was done.
    pub(crate) outcome: Outcome,
}

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The server could not be asked what it serves.
    #[error("cannot read the API server's discovery document {path}: {}", crate::live::failure::describe(source))]
    Discovery { path: &'static str, source: kube::Error },
    /// No such kind.
    #[error(
        "{place}: no matches for kind \"{kind}\" in version \"{api_version}\": the API server does not serve it; check spelling and apiVersion"
    )]
    UnknownKind { place: String, kind: String, api_version: String },
    /// Apply needs a name.
    #[error("{place}: {kind} has only metadata.generateName, expected metadata.name: apply cannot use generated names")]
    GenerateName { place: String, kind: String },
    /// The server refused.
    #[error("{place}: {verb} {object}: {}", crate::live::failure::describe(source))]
    Refused { place: String, verb: &'static str, object: String, source: kube::Error },
    /// A request could not be built from the object's names.
    #[error("{place}: cannot address {object}: {source}")]
    Address { place: String, object: String, source: http::Error },
}

#[derive(Debug)]
struct Resource {
    group: String,
    version: String,
    kind: String,
    plural: String,
    singular: String,
    namespaced: bool,
}

/// A client that knows what the server serves.
pub(crate) struct Applier {
    client: Client,
    resources: Vec<Resource>,
}

impl ApplyError {
    /// Whether the manifest is at fault.
    pub(crate) fn is_bad_input(&self) -> bool {
        match self {
            Self::Discovery { .. } => false,
            Self::UnknownKind { .. } | Self::GenerateName { .. } | Self::Address { .. } => true,
            Self::Refused { source, .. } => {
                matches!(source, kube::Error::Api(status) if (400..500).contains(&status.code))
            }
        }
    }
}

impl Applier {
    /// Reads the aggregated discovery documents, as kubectl does first.
    ///
    /// # Errors
    /// The server cannot be reached or does not answer with a discovery document.
    pub(crate) async fn discover(client: Client) -> Result<Self, ApplyError> {
        let mut resources = Vec::new();
        for path in ["/api", "/apis"] {
            let request = Request::get(path)
                .header(header::ACCEPT, AGGREGATED)
                .body(Vec::new())
                .expect("a constant path and header make a request");
            let groups: GroupDiscoveryList =
                client.request(request).await.map_err(|source| ApplyError::Discovery { path, source })?;
            resources.extend(groups.items.into_iter().flat_map(Group::resources));
        }
        Ok(Self { client, resources })
    }

    /// Applies one object; a namespaced one without a namespace goes to `default`.
    ///
    /// # Errors
    /// The kind is unknown or the server refuses the object.
    pub(crate) async fn apply(&self, document: &Document) -> Result<Applied, ApplyError> {
        let place = document.place.clone();
        let (group, version) = document.api_version().rsplit_once('/').unwrap_or(("", document.api_version()));
        let Some(resource) =
            self.resources.iter().find(|r| r.group == group && r.version == version && r.kind == document.kind())
        else {
            return Err(ApplyError::UnknownKind {
                place,
                kind: document.kind().to_owned(),
                api_version: document.api_version().to_owned(),
            });
        };
        if document.name().is_empty() {
            return Err(ApplyError::GenerateName { place, kind: document.kind().to_owned() });
        }
        let mut object = document.object.clone();
        if resource.namespaced && object["metadata"]["namespace"].as_str().unwrap_or_default().is_empty() {
            object["metadata"]["namespace"] = json!("default");
        }
        let display = resource.display(document.name());
        let address = |source| ApplyError::Address { place: place.clone(), object: display.clone(), source };
        let refused = |verb| {
            let (place, object) = (place.clone(), display.clone());
            move |source| ApplyError::Refused { place, verb, object, source }
        };
        let collection = resource.path(object["metadata"]["namespace"].as_str());
        let item = format!("{collection}/{}", document.name());

        let get = request(Method::GET, &item, None, Vec::new()).map_err(address)?;
        let current = match self.client.request::<Value>(get).await {
            Ok(current) => current,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let modified = with_last_applied(&object);
                let uri = format!("{collection}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
                let create = request(Method::POST, &uri, Some("application/json"), modified.to_string().into_bytes())
                    .map_err(address)?;
                let object = self.client.request::<Value>(create).await.map_err(refused("create"))?;
                return Ok(Applied { object, display, path: item, outcome: Outcome::Created });
            }
            Err(source) => return Err(refused("get")(source)),
        };

        let patch = three_way_patch(&current, &with_last_applied(&object));
        if patch.is_empty() {
            return Ok(Applied { object: current, display, path: item, outcome: Outcome::Unchanged });
        }
        let uri = format!("{item}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
        let body = Value::Object(patch).to_string().into_bytes();
        let patch = request(Method::PATCH, &uri, Some("application/merge-patch+json"), body).map_err(address)?;
        let object = self.client.request::<Value>(patch).await.map_err(refused("patch"))?;
        Ok(Applied { object, display, path: item, outcome: Outcome::Configured })
    }
}

fn request(
    method: Method,
    uri: &str,
    content_type: Option<&str>,
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, http::Error> {
    let mut builder = Request::builder().method(method).uri(uri).header(header::ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        builder = builder.header(header::CONTENT_TYPE, content_type);
    }
    builder.body(body)
}

impl Resource {
    fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    fn display(&self, name: &str) -> String {
        if self.group.is_empty() {
            format!("{}/{name}", self.singular)
        } else {
            format!("{}.{}/{name}", self.singular, self.group)
        }
    }
}

/// The object with its own encoding as the annotation that the next apply compares with. Nulls go, as in kubectl's create.
fn with_last_applied(object: &Value) -> Value {
    let mut recorded = object.clone();
    let metadata = &mut recorded["metadata"];
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    let text = go_json(&recorded);
    let mut modified = recorded;
    modified["metadata"]["annotations"][LAST_APPLIED] = json!(text);
    prune_nulls(&mut modified);
    modified
}

/// JSON as Go's encoder writes it: sorted keys, `<`, `>` and `&` escaped, a line feed at the end.
fn go_json(value: &Value) -> String {
    let mut text = value.to_string();
    for (from, to) in
        [("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")]
    {
        text = text.replace(from, to);
    }
    text.push('\n');
    text
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, field| !field.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

/// A JSON merge patch that sets what `modified` says and removes what was applied last and is gone now.
fn three_way_patch(current: &Value, modified: &Value) -> Map<String, Value> {
    let original = current["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .unwrap_or(Value::Null);
    let mut patch = changes(current, modified);
    removals(&original, modified, current, &mut patch);
    patch
}

fn changes(current: &Value, wanted: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, want) in wanted.as_object().into_iter().flatten() {
        let have = &current[key];
        if want.is_object() && have.is_object() {
            let inner = changes(have, want);
            if !inner.is_empty() {
                patch.insert(key.clone(), Value::Object(inner));
            }
        } else if want != have {
            patch.insert(key.clone(), want.clone());
        }
    }
    patch
}

fn removals(original: &Value, modified: &Value, current: &Value, patch: &mut Map<String, Value>) {
    for (key, old) in original.as_object().into_iter().flatten() {
        match (modified.get(key), current.get(key)) {
            (None, Some(_)) => {
                patch.insert(key.clone(), Value::Null);
            }
            (Some(new), Some(have)) if old.is_object() && new.is_object() && have.is_object() => {
                let mut inner = match patch.remove(key) {
                    Some(Value::Object(inner)) => inner,
                    _ => Map::new(),
                };
                removals(old, new, have, &mut inner);
                if !inner.is_empty() {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            _ => {}
        }
    }
}

#[derive(Deserialize)]
struct GroupDiscoveryList {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<DiscoveredResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveredResource {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

impl Group {
    fn resources(self) -> impl Iterator<Item = Resource> {
        let group = self.metadata.name;
        self.versions.into_iter().flat_map(move |version| {
            let group = group.clone();
            version.resources.into_iter().map(move |found| Resource {
                group: group.clone(),
                version: version.version.clone(),
                kind: found.response_kind.kind,
                plural: found.resource,
                singular: found.singular_resource,
                namespaced: found.scope == "Namespaced",
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_is_the_object_as_go_encodes_it() {
        let object =
            json!({"kind": "A", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"x": "<&>", "gone": null}});
        let modified = with_last_applied(&object);
        assert_eq!(
            modified["metadata"]["annotations"][LAST_APPLIED],
            "{\"apiVersion\":\"v1\",\"kind\":\"A\",\"metadata\":{\"annotations\":{},\"name\":\"a\"},\"spec\":{\"gone\":null,\"x\":\"\\u003c\\u0026\\u003e\"}}\n"
        );
        assert_eq!(modified["spec"], json!({"x": "<&>"}), "nulls are not sent");
    }

    #[test]
    fn three_way_patch_sets_changes_and_removes_what_was_dropped() {
        let first = with_last_applied(
            &json!({"metadata": {"name": "a", "labels": {"old": "1", "keep": "1"}}, "spec": {"n": 1}}),
        );
        let mut current = first.clone();
        current["metadata"]["labels"]["theirs"] = json!("1");
        current["spec"]["defaulted"] = json!(true);
        let second = with_last_applied(&json!({"metadata": {"name": "a", "labels": {"keep": "2"}}, "spec": {"n": 1}}));
        let patch = Value::Object(three_way_patch(&current, &second));
        assert_eq!(patch["metadata"]["labels"], json!({"keep": "2", "old": null}));
        assert!(patch["metadata"]["annotations"][LAST_APPLIED].is_string(), "the record is renewed");
        assert!(patch.get("spec").is_none(), "nothing changed there");
    }

    #[test]
    fn an_equal_object_needs_no_patch() {
        let object = with_last_applied(&json!({"metadata": {"name": "a"}, "spec": {"n": 1}}));
        assert!(three_way_patch(&object, &object).is_empty());
    }

    #[test]
    fn paths_and_names_are_those_of_kubectl() {
        let resource = |group: &str, namespaced| Resource {
            group: group.into(),
            version: "v1".into(),
            kind: "X".into(),
            plural: "xs".into(),
            singular: "x".into(),
            namespaced,
        };
        assert_eq!(resource("apps", true).path(Some("default")), "/apis/apps/v1/namespaces/default/xs");
        assert_eq!(resource("", false).path(None), "/api/v1/xs");
        assert_eq!(resource("apps", true).display("web"), "x.apps/web");
        assert_eq!(resource("", false).display("a"), "x/a");
    }
}
