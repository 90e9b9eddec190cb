//! The filter chain, as one tower service: request info, authentication, impersonation, authorization, handler.
//! The same service answers in-process clients and connections.

use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_stub_wire::listener::{Answer, PeerCertificates};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::client::LocalUser;
use super::{AuthorizedRequest, Body, Handler, request_body, response};
use crate::apiserver::authn::{Authenticator, UserInfo, impersonate, wanted_user};
use crate::apiserver::authz::{Attributes, Authorizer, Decision, forbidden};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use cluster_stub_base::story::{Component, Step, Story};

/// How long a request may take that neither watches nor streams. Upstream v1.36.2: `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What the server is made of.
pub struct ApiServerConfig {
    /// Says who sends a request.
    pub authenticator: Arc<Authenticator>,
    /// Says whether he may.
    pub authorizer: Arc<dyn Authorizer>,
    /// Answers what may go on.
    pub handler: Arc<dyn Handler>,
    /// Who follows along.
    pub story: Story,
    /// Cancelled by `drain`; the handler may look at it.
    pub draining: CancellationToken,
}

struct Inner(ApiServerConfig);

/// The API server as a service over HTTP requests; clones are the same server.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("draining", &self.0.0.draining.is_cancelled()).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// A server of these parts.
    pub fn new(config: ApiServerConfig) -> Self {
        ApiServer(Arc::new(Inner(config)))
    }

    /// Ends all streams (watches, logs) and refuses new ones; other requests are still answered.
    pub fn drain(&self) {
        self.0.0.draining.cancel();
    }

    /// The authorizer, for those who ask on their own account (access reviews, escalation checks).
    pub fn authorizer(&self) -> &Arc<dyn Authorizer> {
        &self.0.0.authorizer
    }

    async fn respond<B>(self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: fmt::Display,
    {
        let mut audit_id = match request.headers().get(AUDIT_ID) {
            Some(sent) if !sent.is_empty() => sent.clone(),
            _ => HeaderValue::try_from(cluster_stub_wire::uuid::random())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        };
        // No two answers have the same: HTTP/2 is told not to remember it for the next one.
        audit_id.set_sensitive(true);
        let head = request.method() == Method::HEAD;
        let answered = AssertUnwindSafe(self.guarded(request)).catch_unwind().await;
        let mut response = answered.unwrap_or_else(|_| {
            tracing::error!("a request made the API server panic");
            let what = "This request caused apiserver to panic. Look in the logs for details.";
            response::text(StatusCode::INTERNAL_SERVER_ERROR, what)
        });
        if head {
            response = without_body(response);
        }
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        response.map(|body| body.until(&self.0.0.draining))
    }

    async fn guarded<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: fmt::Display,
    {
        let info = match RequestInfo::parse(request.method(), request.uri()) {
            Ok(info) => info,
            Err(error) => return response::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        };
        if is_long_running(&info) {
            if self.0.0.draining.is_cancelled() {
                return response::status(&ApiError::unavailable("the server is shutting down"));
            }
            return self.filtered(request, info).await;
        }
        match tokio::time::timeout(REQUEST_TIMEOUT, self.filtered(request, info)).await {
            Ok(response) => response,
            Err(_) => {
                let what = "request did not complete within the allotted timeout";
                response::status(&ApiError::timeout(what, 1))
            }
        }
    }

    async fn filtered<B>(&self, request: Request<B>, info: RequestInfo) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send,
        B::Error: fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        let received = Timestamp::now();
        let admitted = async {
            // Who comes over the network has no name yet.
            let local = parts.extensions.get().map(|LocalUser(user)| user.clone());
            self.tell(&info, local.as_deref(), "request", || format!("received {} {}", parts.method, parts.uri.path()));
            let user = self.authenticate(&mut parts, received).await?;
            self.tell(&info, Some(&user), "authentication", || {
                format!("is {} [{}]", user.name, user.groups.join(", "))
            });
            let user = self.authorize(&mut parts.headers, &info, user)?;
            let body = request_body::read(body).await?;
            Ok::<_, ApiError>((user, body))
        };
        let (user, body) = match admitted.await {
            Ok(admitted) => admitted,
            Err(error) => return response::status(&error),
        };
        self.0.0.handler.handle(AuthorizedRequest { info: Arc::new(info), user, parts, body, received }).await
    }

    async fn authenticate(&self, parts: &mut http::request::Parts, now: Timestamp) -> Result<Arc<UserInfo>, ApiError> {
        if let Some(LocalUser(user)) = parts.extensions.get() {
            return Ok(user.clone());
        }
        let peer = parts.extensions.get::<PeerCertificates>();
        let user = self.0.0.authenticator.authenticate(&parts.headers, peer, now).await?;
        parts.headers.remove(AUTHORIZATION);
        Ok(user)
    }

    /// Upstream asks for impersonation first and then whether the impersonated user may do it.
    fn authorize(
        &self,
        headers: &mut http::HeaderMap,
        info: &RequestInfo,
        user: Arc<UserInfo>,
    ) -> Result<Arc<UserInfo>, ApiError> {
        let authorizer = self.0.0.authorizer.as_ref();
        let user = match wanted_user(headers)? {
            None => user,
            Some(wanted) => Arc::new(impersonate(&wanted, &attributes(info, &user), authorizer)?),
        };
        let question = attributes(info, &user);
        match authorizer.authorize(&question) {
            Decision::Allow(grant) => {
                self.tell(info, Some(&user), "authorization", || match grant.to_string() {
                    reason if reason.is_empty() => "allowed".to_owned(),
                    reason => reason,
                });
                Ok(user)
            }
            Decision::NoOpinion { reason } => Err(forbidden(&question, &reason)),
        }
    }

    /// Only writes of resources are told; reads would drown them.
    fn tell(&self, info: &RequestInfo, user: Option<&UserInfo>, stage: &'static str, what: impl FnOnce() -> String) {
        if !info.is_resource_request || matches!(info.verb.as_str(), "get" | "list" | "watch") {
            return;
        }
        self.0.0.story.tell(|| Step {
            at: Instant::now(),
            component: Component::ApiServer,
            stage,
            what: what(),
            kind: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            resource_version: None,
            user: user.map(|user| user.name.as_str().into()),
        });
    }
}

/// The answer to HEAD: the length of the body, and no body.
fn without_body(response: Response<Body>) -> Response<Body> {
    let length = response.body().size_hint().exact();
    let mut response = response.map(|_| Body::empty());
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}

fn attributes<'a>(info: &'a RequestInfo, user: &'a UserInfo) -> Attributes<'a> {
    if !info.is_resource_request {
        return Attributes::path(user, &info.verb, &info.path);
    }
    Attributes {
        user,
        verb: &info.verb,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        field_selector: &info.field_selector,
        is_resource: true,
        path: &info.path,
    }
}

/// Requests without a time limit. Upstream v1.36.2: pkg/kubeapiserver/options DefaultLongRunningRequests.
fn is_long_running(info: &RequestInfo) -> bool {
    info.is_resource_request
        && (matches!(info.verb.as_str(), "watch" | "proxy")
            || matches!(info.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward"))
}

impl Answer for ApiServer {
    fn answer(&self, request: Request<Incoming>) -> BoxFuture<'static, Response<Body>> {
        self.clone().respond(request).boxed()
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().respond(request).map(Ok).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http_body_util::{BodyExt as _, Full};
    use serde_json::Value;
    use tokio::sync::watch;
    use tower::ServiceExt as _;

    use super::*;
    use crate::apiserver::authn::{
        CertificateVerifier, RequestHeaderConfig, ServiceAccountGetter, ServiceAccountTokens, TokenFile,
    };
    use crate::apiserver::authz::PrivilegedGroups;
    use crate::apiserver::tls::CertificateAuthority;

    #[derive(Debug)]
    struct Nothing;

    impl ServiceAccountGetter for Nothing {
        fn find(&self, _: &'static str, _: &str, _: &str) -> Option<(String, Option<Timestamp>)> {
            None
        }
    }

    /// Answers with the user's name and the body; a path may ask for a panic or a stream without end.
    struct Echo;

    impl Handler for Echo {
        fn handle(&self, request: AuthorizedRequest) -> BoxFuture<'_, Response<Body>> {
            assert!(request.info.path != "/panic", "as asked");
            if request.info.verb == "watch" {
                let endless = futures::stream::pending::<Result<Bytes, std::io::Error>>();
                return std::future::ready(Response::new(Body::stream(endless))).boxed();
            }
            let text = format!("{} {}", request.user.name, String::from_utf8_lossy(&request.body));
            std::future::ready(response::text(StatusCode::OK, text)).boxed()
        }
    }

    fn server() -> ApiServer {
        let authority = CertificateAuthority::generate("kubernetes", Timestamp::now()).unwrap();
        let verifier = || CertificateVerifier::new(authority.certificate()).unwrap();
        let tokens = "admin,root,0,system:masters\njane,jane,1,\n";
        ApiServer::new(ApiServerConfig {
            authenticator: Arc::new(Authenticator {
                client_certificates: verifier(),
                front_proxy: verifier(),
                request_header: RequestHeaderConfig::default(),
                token_file: TokenFile::parse(tokens, Path::new("tokens")).unwrap(),
                service_accounts: ServiceAccountTokens::new(watch::channel(None).1),
                getter: Arc::new(Nothing),
            }),
            authorizer: Arc::new(PrivilegedGroups),
            handler: Arc::new(Echo),
            story: Story::silent(),
            draining: CancellationToken::new(),
        })
    }

    async fn send(server: &ApiServer, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, String) {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = server.clone().oneshot(request).await.unwrap();
        assert!(response.headers().contains_key(AUDIT_ID), "{path}");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let message =
            serde_json::from_str::<Value>(&text).ok().and_then(|v| Some(v.get("message")?.as_str()?.to_owned()));
        (code, message.unwrap_or(text))
    }

    #[tokio::test]
    async fn the_first_filter_that_objects_answers() {
        let server = server();
        let admin = ("authorization", "Bearer admin");
        let cases = [
            ("/x", &[admin][..], (200, "root body".to_owned())),
            ("/x", &[("authorization", "Bearer nope")], (401, "Unauthorized".to_owned())),
            (
                "/x",
                &[("authorization", "Bearer jane")],
                (403, r#"forbidden: User "jane" cannot post path "/x""#.to_owned()),
            ),
            ("/x", &[], (403, r#"forbidden: User "system:anonymous" cannot post path "/x""#.to_owned())),
            (
                "/x",
                &[admin, ("impersonate-user", "jane")],
                (403, r#"forbidden: User "jane" cannot post path "/x""#.to_owned()),
            ),
            (
                "/x",
                &[admin, ("impersonate-user", "jane"), ("impersonate-group", "system:masters")],
                (200, "jane body".to_owned()),
            ),
            (
                "/panic",
                &[admin],
                (500, "This request caused apiserver to panic. Look in the logs for details.".to_owned()),
            ),
        ];
        for (path, headers, want) in cases {
            assert_eq!(send(&server, path, headers, b"body".to_vec()).await, want, "{path} {headers:?}");
        }
        let refused = send(&server, "/x", &[("authorization", "Bearer jane")], vec![0; 4 << 20]).await;
        assert_eq!(refused.0, 403, "authorization comes before the size of the body");
        assert_eq!(send(&server, "/x", &[admin], vec![0; 4 << 20]).await.0, 413);
    }

    #[tokio::test]
    async fn head_answers_the_length_and_no_body() {
        let request = Request::head("/x").header("authorization", "Bearer admin").body(Body::empty()).unwrap();
        let response = server().oneshot(request).await.unwrap();
        assert_eq!(response.headers()[CONTENT_LENGTH], "root ".len().to_string());
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    }

    #[tokio::test]
    async fn draining_ends_streams_and_keeps_answering() {
        let server = server();
        let watch = Request::get("/api/v1/pods?watch=1").header("authorization", "Bearer admin");
        let watching = server.clone().oneshot(watch.body(Body::empty()).unwrap()).await.unwrap();
        server.drain();
        assert_eq!(watching.into_body().collect().await.unwrap().to_bytes(), "");
        assert_eq!(send(&server, "/x", &[("authorization", "Bearer admin")], vec![]).await.0, 200);
        let again =
            send(&server, "/api/v1/namespaces/a/pods/p/exec", &[("authorization", "Bearer admin")], vec![]).await;
        assert_eq!(again.0, 503);
    }

    #[tokio::test]
    async fn an_in_process_client_is_who_it_was_made_for() {
        let client = server().client(UserInfo::admin("someone"));
        let answer = client.request_text(Request::get("/x").body(Vec::new()).unwrap()).await.unwrap();
        assert_eq!(answer, "someone ");
    }
}
