//! From an authorized request to who answers it: the registry for resources, else the document at the path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::authn::{ISSUER, ServiceAccountTokens};
use super::discovery::Discovery;
use super::health::{Health, health, index_paths, version};
use super::metrics::Metrics;
use super::openapi::OpenApi;
use super::registry::Registry;
use super::request::Query;
use super::server::{AuthorizedRequest, Body, Handler, json as json_response, status, text};
use super::status::ApiError;

/// Everything that answers requests.
pub struct Router {
    /// Resources.
    pub registry: Registry,
    /// Which resources there are.
    pub discovery: Arc<Discovery>,
    /// What they look like.
    pub openapi: Arc<OpenApi>,
    /// The key set of ServiceAccount tokens.
    pub tokens: ServiceAccountTokens,
    /// Counters.
    pub metrics: Metrics,
    /// URL of the server, for the document about its tokens.
    pub server_url: String,
    /// Whether the objects that every cluster has are there.
    pub bootstrapped: Arc<AtomicBool>,
    /// Cancelled when the server is shutting down.
    pub draining: CancellationToken,
}

impl Handler for Router {
    fn handle(&self, request: AuthorizedRequest) -> BoxFuture<'_, Response<Body>> {
        async move {
            let AuthorizedRequest { info, user, parts, body, received } = request;
            if info.is_resource_request {
                let counted = Arc::clone(&info);
                let response = self.registry.serve(info, user, parts, body, received).await;
                self.metrics.count(&counted, response.status());
                return response;
            }
            let response = if matches!(parts.method, Method::GET | Method::HEAD) {
                self.document(&info.path, &parts).await
            } else {
                self.refuse_method(&info.path, &parts).await
            };
            self.metrics.count(&info, response.status());
            response
        }
        .boxed()
    }
}

impl Router {
    async fn document(&self, path: &str, parts: &http::request::Parts) -> Response<Body> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        match path {
            "/" => {
                let mut paths = index_paths();
                paths.extend(self.discovery.paths());
                paths.sort();
                json_response(StatusCode::OK, &json!({"paths": paths}))
            }
            "/version" | "/version/" => json_response(StatusCode::OK, &version()),
            "/metrics" => self.metrics.answer(),
            "/.well-known/openid-configuration" | "/.well-known/openid-configuration/" => self.openid_configuration(),
            "/openid/v1/jwks" | "/openid/v1/jwks/" => self.key_set().await,
            _ => {
                let state = Health {
                    bootstrapped: self.bootstrapped.load(Ordering::Acquire),
                    draining: self.draining.is_cancelled(),
                };
                health(path, &query, state)
                    .or_else(|| self.discovery.answer(path, &parts.headers))
                    .or_else(|| self.openapi.answer(path, &query, &parts.headers))
                    .unwrap_or_else(|| text(StatusCode::NOT_FOUND, "404 page not found\n"))
            }
        }
    }

    /// 405 where a document is, 404 elsewhere.
    async fn refuse_method(&self, path: &str, parts: &http::request::Parts) -> Response<Body> {
        let document = self.document(path, parts).await;
        if document.status() == StatusCode::NOT_FOUND { document } else { status(&ApiError::method_not_allowed()) }
    }

    /// Upstream v1.36.2: pkg/serviceaccount/openidmetadata.go.
    fn openid_configuration(&self) -> Response<Body> {
        let document = json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{}/openid/v1/jwks", self.server_url),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        });
        cacheable(json_response(StatusCode::OK, &document), "application/json")
    }

    async fn key_set(&self) -> Response<Body> {
        match self.tokens.key().await {
            Err(error) => status(&ApiError::internal(error)),
            Ok(key) => {
                let key = json!({
                    "use": "sig",
                    "kty": "RSA",
                    "kid": key.key_id(),
                    "alg": "RS256",
                    "n": key.modulus(),
                    "e": key.exponent(),
                });
                cacheable(json_response(StatusCode::OK, &json!({"keys": [key]})), "application/jwk-set+json")
            }
        }
    }
}

fn cacheable(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}
