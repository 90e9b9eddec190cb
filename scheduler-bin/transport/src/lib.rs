//! The HTTP client below every API call: HTTP/2 where the server speaks it, over a few connections, so that hundreds of
//! requests are in flight without a handshake for each. Knows nothing of Kubernetes' resources.
//!
//! A package of its own because the library's generic code is compiled, and optimised, where it is first used: here.

mod connections;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::core::Status;
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use connections::{Connections, Legacy, legacy_client};

/// Silence after which a connection is asked whether it lives, and how long it may take to answer. As client-go's.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A client for the server of `config`, over HTTP/2 if it can, and the shorter way over the same connections.
///
/// # Errors
/// Certificates or keys cannot be read.
pub fn connect(config: Config) -> Result<(Client, Sender), kube::Error> {
    // What these need is the library's own secret; both are rare, and HTTP/1.1 serves them.
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        let client = Client::try_from(config)?;
        return Ok((client.clone(), client.into()));
    }
    let connections = Connections::new(connector(&config)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(connections);
    let sender = Sender(Way::Direct(BoxCloneSyncService::new(service.clone())));
    let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new().option_layer(retry).service(service);
    Ok((Client::new(service, config.default_namespace), sender))
}

/// Sends requests without the queue in front of a [`Client`], and without its retries: for those who send many, and try
/// again themselves.
#[derive(Clone, Debug)]
pub struct Sender(Way);

#[derive(Clone)]
enum Way {
    Direct(BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>),
    Client(Client),
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Direct(_) => "Direct",
            Way::Client(_) => "Client",
        })
    }
}

impl From<Client> for Sender {
    /// By way of the client.
    fn from(client: Client) -> Self {
        Self(Way::Client(client))
    }
}

impl Sender {
    /// Sends `request` and reads the answer to its end.
    ///
    /// # Errors
    /// The server refuses with its own status, or does not answer.
    pub fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<(), kube::Error>> {
        let request = request.map(|body| Body::from(Vec::from(body)));
        match &self.0 {
            Way::Direct(service) => {
                let answer = service.clone().oneshot(request);
                async move { finish(answer.await.map_err(unanswered)?).await }.boxed()
            }
            Way::Client(client) => {
                let client = client.clone();
                async move { finish(client.send(request).await?).await }.boxed()
            }
        }
    }
}

/// Why there is no answer, as [`Client`] tells it.
fn unanswered(error: BoxError) -> kube::Error {
    let error = match error.downcast::<kube::Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    match error.downcast::<hyper::Error>() {
        Ok(error) => kube::Error::HyperError(*error),
        Err(error) => kube::Error::Service(error),
    }
}

/// An answer that was not read to its end would hold the connection.
async fn finish<B>(response: Response<B>) -> Result<(), kube::Error>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let failed = |error: B::Error| unanswered(error.into());
    let status = response.status();
    let mut body = response.into_body();
    if !status.is_success() {
        return Err(refusal(status, &body.collect().await.map_err(failed)?.to_bytes()));
    }
    while let Some(frame) = body.frame().await {
        frame.map_err(failed)?;
    }
    Ok(())
}

/// Posts to a service that is no API server, such as a scheduler extender; cheap to clone. Connections are kept for the next
/// request.
#[derive(Clone, Debug)]
pub struct Poster(Legacy);

impl Poster {
    /// What certificates and names `config` holds is minded; its URL, user and headers are not.
    ///
    /// # Errors
    /// Certificates or keys cannot be read.
    pub fn new(config: &Config) -> Result<Self, kube::Error> {
        Ok(Self(legacy_client(connector(config)?)))
    }

    /// Posts JSON to `url`. The answer's body is still to be read.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn post(&self, url: Uri, json: Bytes) -> Result<Response<Incoming>, BoxError> {
        let request = Request::post(url).header(CONTENT_TYPE, "application/json").body(Body::from(Vec::from(json)))?;
        Ok(self.0.request(request).await?)
    }
}

/// What the server said instead.
#[must_use]
pub fn refusal(status: StatusCode, body: &[u8]) -> kube::Error {
    let answer = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| Status {
        code: status.as_u16(),
        reason: status.canonical_reason().unwrap_or_default().to_owned(),
        message: String::from_utf8_lossy(body).into_owned(),
        ..Status::default()
    });
    kube::Error::Api(Box::new(answer))
}

fn connector(config: &Config) -> Result<HttpsConnector<HttpConnector>, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(config.connect_timeout);
    // HTTP/1.1 has no pings.
    http.set_keepalive(Some(PING_AFTER));
    http.set_keepalive_interval(Some(PING_TIMEOUT));
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let wrong = || kube::Error::Service(format!("tls-server-name {name:?} is no host name").into());
        let name = name.clone().try_into().map_err(|_| wrong());
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name?));
    }
    Ok(builder.enable_all_versions().wrap_connector(http))
}
