//! All discovery documents, encoded once when the list of resources changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::{MediaType, aggregated, legacy, priority};
use crate::apiserver::resources::Resource;
use crate::apiserver::server::{Body, status};
use crate::apiserver::status::ApiError;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const ACCEPTED: [&str; 1] = ["application/json"];

/// Answers `/api`, `/apis` and what is below them and no resource.
#[derive(Debug)]
pub struct Discovery {
    server_address: String,
    documents: RwLock<Arc<Documents>>,
}

#[derive(Debug, Default)]
struct Documents {
    by_path: HashMap<String, Bytes>,
    /// `/api` and `/apis` with the hash of their content.
    aggregated: HashMap<&'static str, (Bytes, HeaderValue)>,
    /// All paths, sorted.
    paths: Vec<String>,
    /// Group and version of each, in the order of `/apis`, the core group first.
    group_versions: Vec<(String, String)>,
}

impl Discovery {
    /// Documents of `resources` for a server at `server_address` (host and port).
    pub fn new(server_address: String, resources: &[Arc<Resource>]) -> Self {
        let documents = RwLock::new(Arc::new(Documents::of(&server_address, resources)));
        Discovery { server_address, documents }
    }

    /// Makes the documents anew, for a changed list of resources.
    pub fn set(&self, resources: &[Arc<Resource>]) {
        let documents = Arc::new(Documents::of(&self.server_address, resources));
        *self.documents.write().unwrap_or_else(PoisonError::into_inner) = documents;
    }

    /// All discovery paths, for the index at `/`.
    pub fn paths(&self) -> Vec<String> {
        self.current().paths.clone()
    }

    /// Every served group and version, the core group first, then in the order of `/apis`.
    pub fn group_versions(&self) -> Vec<(String, String)> {
        self.current().group_versions.clone()
    }

    /// The document at `path`, or `None` if there is none.
    pub fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        let documents = self.current();
        let plain = documents.by_path.get(path)?;
        for media_type in MediaType::accepted(headers) {
            let aggregated = media_type.parameter("g") == Some("apidiscovery.k8s.io")
                && media_type.parameter("v") == Some("v2")
                && media_type.parameter("as") == Some("APIGroupDiscoveryList");
            if aggregated
                && media_type.name == "application/json"
                && let Some((content, hash)) = documents.aggregated.get(path)
            {
                return Some(with_etag(content, hash, headers));
            }
            if media_type.allows_json() && media_type.parameter("as").is_none() {
                return Some(document(plain.clone(), "application/json"));
            }
        }
        Some(status(&ApiError::not_acceptable(&ACCEPTED)))
    }

    fn current(&self) -> Arc<Documents> {
        self.documents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Documents {
    fn of(server_address: &str, resources: &[Arc<Resource>]) -> Self {
        let mut by_version: BTreeMap<(&str, &str), Vec<&Resource>> = BTreeMap::new();
        for resource in resources {
            by_version.entry((&resource.group, &resource.version)).or_default().push(resource);
        }
        let mut ordered: Vec<((&str, &str), Vec<&Resource>)> = by_version.into_iter().collect();
        ordered.sort_by_key(|((group, version), _)| {
            let order = priority(group, version);
            (std::cmp::Reverse(order.group), *group, std::cmp::Reverse(order.version))
        });
        let mut groups: Vec<(String, Vec<(String, Vec<&Resource>)>)> = Vec::new();
        for ((group, version), mut resources) in ordered {
            resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            match groups.last_mut() {
                Some((name, versions)) if name == group => versions.push((version.to_owned(), resources)),
                _ => groups.push((group.to_owned(), vec![(version.to_owned(), resources)])),
            }
        }
        let mut documents = Documents::default();
        documents.put("/api", &legacy::api_versions(server_address));
        let (core, named): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(name, _)| name.is_empty());
        let mut list = Vec::new();
        for (name, versions) in core.iter().chain(&named) {
            let root = if name.is_empty() { "/api".to_owned() } else { format!("/apis/{name}") };
            if !name.is_empty() {
                let names: Vec<String> = versions.iter().map(|(version, _)| version.clone()).collect();
                let mut group = legacy::group(name, &names);
                list.push(group.clone());
                group["kind"] = json!("APIGroup");
                group["apiVersion"] = json!("v1");
                documents.put(&root, &group);
            }
            for (version, of_version) in versions {
                let group_version = if name.is_empty() { version.clone() } else { format!("{name}/{version}") };
                let document =
                    legacy::resource_list(&group_version, of_version, |resource| storage_version(resource, resources));
                documents.put(&format!("{root}/{version}"), &document);
                documents.group_versions.push((name.clone(), version.clone()));
            }
        }
        documents.put("/apis", &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}));
        for (path, groups) in [("/api", &core), ("/apis", &named)] {
            let content = encode(&aggregated::group_list(groups));
            let hash: String = Sha512::digest(&content).iter().map(|byte| format!("{byte:02X}")).collect();
            if let Ok(hash) = HeaderValue::from_str(&format!("\"{hash}\"")) {
                documents.aggregated.insert(path, (content, hash));
            }
        }
        documents.paths = documents.by_path.keys().cloned().chain(["/apis/".to_owned()]).collect();
        documents.paths.sort();
        documents
    }

    fn put(&mut self, path: &str, document: &Value) {
        self.by_path.insert(path.to_owned(), encode(document));
    }
}

/// Group and version that the objects of `resource` are stored in: of all views of one storage the one that comes
/// first in discovery.
fn storage_version<'a>(resource: &Resource, all: &'a [Arc<Resource>]) -> (&'a str, &'a str) {
    let views = all.iter().filter(|other| other.storage == resource.storage);
    views
        .max_by_key(|view| priority(&view.group, &view.version))
        .map_or(("", ""), |view| (view.group.as_ref(), view.version.as_ref()))
}

fn encode(document: &Value) -> Bytes {
    let mut text = document.to_string();
    text.push('\n');
    text.into()
}

fn document(content: Bytes, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(content));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// Upstream v1.36.2: apiserver/pkg/endpoints/discovery/aggregated/etag.go ServeHTTPWithETag.
fn with_etag(content: &Bytes, hash: &HeaderValue, headers: &HeaderMap) -> Response<Body> {
    let mut response = if headers.get(IF_NONE_MATCH) == Some(hash) {
        let mut unchanged = Response::new(Body::empty());
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        document(content.clone(), AGGREGATED)
    };
    let out = response.headers_mut();
    out.insert(ETAG, hash.clone());
    out.insert(VARY, HeaderValue::from_static("Accept"));
    out.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}
