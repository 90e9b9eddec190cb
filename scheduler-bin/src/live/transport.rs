//! The HTTP client below every API call: HTTP/2 where the server speaks it, over a few connections, so that hundreds of
//! requests are in flight without a handshake for each. Knows nothing of Kubernetes' resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Error as HttpError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

/// Connections that requests are spread over. One is encrypted and framed by one thread at a time.
const N_CONNECTIONS: usize = 2;
/// Silence after which a connection is asked whether it lives, and how long it may take to answer. As client-go's.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A client for the server of `config`, over HTTP/2 if it can.
///
/// # Errors
/// Certificates or keys cannot be read.
pub(super) fn client(config: Config) -> Result<Client, kube::Error> {
    // What these need is the library's own secret; both are rare, and HTTP/1.1 serves them.
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        return Client::try_from(config);
    }
    let connector = connector(&config)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Connections::new(&connector));
    Ok(Client::new(service, config.default_namespace))
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

/// Clients of one connection each (of as many as it takes, where the server speaks HTTP/1.1 only), used in turn.
#[derive(Clone)]
struct Connections {
    clients: Arc<[legacy::Client<HttpsConnector<HttpConnector>, Body>]>,
    next: Arc<AtomicUsize>,
}

impl Connections {
    fn new(connector: &HttpsConnector<HttpConnector>) -> Self {
        let client = || {
            legacy::Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .http2_keep_alive_interval(PING_AFTER)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .build(connector.clone())
        };
        Self { clients: (0..N_CONNECTIONS).map(|_| client()).collect(), next: Arc::default() }
    }
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Incoming>;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, HttpError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let position = self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len();
        self.clients[position].request(request).boxed()
    }
}
