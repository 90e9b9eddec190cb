//! The documents at `/openapi/v2`, `/openapi/v3` and below, made when they are first asked for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::dialect::Dialect;
use super::paths::paths;
use super::protobuf;
use super::schemas::{GroupVersionKind, custom_documents, kinds, list_type, schemas};
use crate::apiserver::discovery::MediaType;
use crate::apiserver::health::GIT_VERSION;
use crate::apiserver::request::Query;
use crate::apiserver::resources::Resource;
use crate::apiserver::schema::Schema;
use crate::apiserver::server::{Body, status};
use crate::apiserver::status::ApiError;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// Documents of v3 that describe no group version; clients only look whether they are there.
const OTHER: [&str; 6] = [".well-known/openid-configuration", "api", "apis", "logs", "openid/v1/jwks", "version"];

/// Answers requests for OpenAPI documents.
pub struct OpenApi {
    schema: Arc<Schema>,
    documents: RwLock<Arc<Documents>>,
}

#[derive(Default)]
struct Documents {
    /// Resources by the name of their v3 document, e.g. `apis/apps/v1`.
    by_name: BTreeMap<String, Vec<Arc<Resource>>>,
    v2: OnceLock<Content>,
    /// The same in the binary form.
    v2_protobuf: OnceLock<Content>,
    v3: HashMap<String, OnceLock<Content>>,
}

struct Content {
    bytes: Bytes,
    media_type: &'static str,
    etag: Option<HeaderValue>,
}

impl OpenApi {
    /// Documents of `resources`, whose types are in `schema`.
    pub fn new(schema: Arc<Schema>, resources: &[Arc<Resource>]) -> Self {
        let documents = RwLock::new(Arc::new(Documents::of(resources)));
        OpenApi { schema, documents }
    }

    /// Forgets the documents, for a changed list of resources.
    pub fn set(&self, resources: &[Arc<Resource>]) {
        *self.documents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Documents::of(resources));
    }

    /// The answer at `path`, or `None` if no document is there.
    pub fn answer(&self, path: &str, query: &Query, headers: &HeaderMap) -> Option<Response<Body>> {
        let documents = self.documents.read().unwrap_or_else(PoisonError::into_inner).clone();
        let rest = path.strip_prefix("/openapi/")?;
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        if rest.trim_end_matches('/') == "v2" && protobuf::is_preferred(accept) {
            return Some(respond(documents.v2_protobuf(&self.schema), headers));
        }
        if !MediaType::accepted(headers).iter().any(MediaType::allows_json) {
            return Some(status(&ApiError::not_acceptable(&["application/json"])));
        }
        match rest.trim_end_matches('/') {
            "v2" => Some(respond(documents.v2(&self.schema), headers)),
            "v3" => Some(respond(&documents.index(), headers)),
            rest => {
                let name = rest.strip_prefix("v3/")?;
                let hash = documents.hash(name)?;
                match query.get("hash") {
                    Some(asked) if asked != hash => Some(moved(&documents.url(name, &hash))),
                    asked => {
                        let mut response = respond(documents.v3(name, &self.schema)?, headers);
                        if asked.is_some() {
                            let forever = HeaderValue::from_static("public, immutable");
                            response.headers_mut().insert(CACHE_CONTROL, forever);
                        }
                        Some(response)
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for OpenApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenApi").finish_non_exhaustive()
    }
}

impl Documents {
    fn of(resources: &[Arc<Resource>]) -> Self {
        let mut documents = Documents::default();
        for resource in resources {
            let name = match &*resource.group {
                "" => format!("api/{}", resource.version),
                group => {
                    documents.by_name.entry(format!("apis/{group}")).or_default();
                    format!("apis/{group}/{}", resource.version)
                }
            };
            documents.by_name.entry(name).or_default().push(resource.clone());
        }
        documents.by_name.extend(OTHER.map(|name| (name.to_owned(), Vec::new())));
        documents.v3 = documents.by_name.keys().map(|name| (name.clone(), OnceLock::new())).collect();
        documents
    }

    /// A document follows from the program and the resources in it, so those make its hash: the index needs no document.
    fn hash(&self, name: &str) -> Option<String> {
        let resources = self.by_name.get(name)?;
        let names: Vec<&str> = resources.iter().map(|resource| resource.plural.as_ref()).collect();
        let custom: Vec<String> = resources
            .iter()
            .filter_map(|resource| Some(resource.custom.as_ref()?.document(|name| json!({"type": name})).to_string()))
            .collect();
        let names = names.join(",");
        let what = format!("{} {GIT_VERSION} {name} {names} {}", env!("CARGO_PKG_VERSION"), custom.join(","));
        Some(Sha512::digest(what).iter().map(|byte| format!("{byte:02X}")).collect())
    }

    fn url(&self, name: &str, hash: &str) -> String {
        format!("/openapi/v3/{name}?hash={hash}")
    }

    fn index(&self) -> Content {
        let paths: Map<String, Value> = self
            .by_name
            .keys()
            .filter_map(|name| Some((name.clone(), json!({"serverRelativeURL": self.url(name, &self.hash(name)?)}))))
            .collect();
        Content::of(&json!({"paths": paths}))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_name.values().flatten()
    }

    fn kinds(&self) -> BTreeMap<String, std::collections::BTreeSet<GroupVersionKind>> {
        kinds(self.all().map(Arc::as_ref))
    }

    fn v3(&self, name: &str, schema: &Schema) -> Option<&Content> {
        let resources = self.by_name.get(name)?;
        let document = || {
            let custom = custom_documents(resources.iter().map(Arc::as_ref));
            let components = schemas(Dialect::V3, schema, roots(resources), &self.kinds(), &custom);
            let paths: Map<String, Value> = resources.iter().flat_map(|r| paths(Dialect::V3, r)).collect();
            Content::of(&json!({
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": GIT_VERSION},
                "paths": paths,
                "components": {"schemas": components},
            }))
        };
        Some(self.v3.get(name)?.get_or_init(document))
    }

    fn v2(&self, schema: &Schema) -> &Content {
        self.v2.get_or_init(|| Content::of(&self.v2_document(schema)))
    }

    fn v2_protobuf(&self, schema: &Schema) -> &Content {
        let encode = || Content::new(protobuf::document(&self.v2_document(schema)).into(), protobuf::MEDIA_TYPE);
        self.v2_protobuf.get_or_init(encode)
    }

    fn v2_document(&self, schema: &Schema) -> Value {
        let resources: Vec<Arc<Resource>> = self.all().cloned().collect();
        let custom = custom_documents(resources.iter().map(Arc::as_ref));
        let definitions = schemas(Dialect::V2, schema, roots(&resources), &self.kinds(), &custom);
        let paths: Map<String, Value> = resources.iter().flat_map(|r| paths(Dialect::V2, r)).collect();
        json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": GIT_VERSION},
            "paths": paths,
            "definitions": definitions,
        })
    }
}

fn roots(resources: &[Arc<Resource>]) -> Vec<String> {
    let mut roots: Vec<String> = ["DeleteOptions", "Patch", "Status", "APIResourceList", "WatchEvent"]
        .map(|name| format!("{META}.{name}"))
        .into();
    if resources.is_empty() {
        roots.clear();
    }
    for resource in resources {
        roots.push(resource.type_name.to_string());
        roots.push(list_type(resource));
        roots.extend(resource.subresources.iter().map(|subresource| subresource.type_name.to_string()));
    }
    roots
}

impl Content {
    fn of(document: &Value) -> Self {
        Content::new(document.to_string().into(), "application/json")
    }

    fn new(bytes: Bytes, media_type: &'static str) -> Self {
        let hash: String = Sha512::digest(&bytes).iter().map(|byte| format!("{byte:02X}")).collect();
        Content { etag: HeaderValue::from_str(&format!("\"{hash}\"")).ok(), bytes, media_type }
    }
}

fn respond(content: &Content, headers: &HeaderMap) -> Response<Body> {
    let known = headers.get(IF_NONE_MATCH);
    let unchanged = known.is_some() && known == content.etag.as_ref();
    let mut response = Response::new(if unchanged { Body::empty() } else { Body::from(content.bytes.clone()) });
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, HeaderValue::from_static(content.media_type));
    out.insert(VARY, HeaderValue::from_static("Accept"));
    if let Some(etag) = &content.etag {
        out.insert(ETAG, etag.clone());
    }
    response
}

fn moved(url: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(url) = HeaderValue::from_str(url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}
