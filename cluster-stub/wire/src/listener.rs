//! TCP and TLS: accepts connections, speaks HTTP/1.1 or HTTP/2 on them, ends them when the server stops. Who answers the
//! requests is given.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use http2_connection::{Driver, Spawned, gather};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::body::Body;

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send a request's headers. Upstream v1.36.2: ReadHeaderTimeout, 32 s.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// Largest headers of a request, bytes. Go's default.
const MAX_HEADER_BYTES: u32 = 1024 * 1024;
/// Concurrent requests on one HTTP/2 connection. Go's default.
const MAX_STREAMS: u32 = 250;
/// Requests on one HTTP/2 connection that a client gave up before they were begun: more end the connection. As many as Go's
/// server lets wait, four times the concurrent ones.
const MAX_ABANDONED: usize = 4 * MAX_STREAMS as usize;
/// An HTTP/2 connection that is silent for so long is pinged, and closed when no answer comes.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long connections may take to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Most of a POST's body that is answered between the others of its connection, bytes.
const SHORT: u64 = 64 * 1024;
/// Pause after a failed accept, e.g. when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", if source.kind() == std::io::ErrorKind::AddrInUse { "the port is in use by another program; choose another or 0 for a free one" } else { "the system refused" })]
pub struct BindError {
    /// The wanted address.
    pub address: SocketAddr,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// The certificate chain that a client showed in the handshake, its own first. An extension of requests over TLS.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Answers requests. A failure is an answer too.
pub trait Answer: Send + Sync + 'static {
    /// Answers `request`. The future is dropped when the client goes away.
    fn answer(&self, request: Request<Incoming>) -> BoxFuture<'static, Response<Body>>;
}

/// A socket that connections come in on.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Listener { socket, address })
    }

    /// The address with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections until `shutdown`; then lets those that are open finish, for a few seconds.
    pub fn serve(
        self,
        server: Arc<dyn Answer>,
        tls: Arc<ServerConfig>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        self.accept(server, tls, shutdown).boxed()
    }

    async fn accept(self, server: Arc<dyn Answer>, tls: Arc<ServerConfig>, shutdown: CancellationToken) {
        let acceptor = TlsAcceptor::from(tls);
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection = connection(stream, peer, acceptor.clone(), server.clone(), shutdown.clone());
                    connections.spawn(connection);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.socket);
        connections.close();
        connections.wait().await;
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    server: Arc<dyn Answer>,
    shutdown: CancellationToken,
) {
    // Small writes are whole answers or watch events: waiting for more would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session
        .peer_certificates()
        .map(|chain| PeerCertificates(chain.iter().map(|certificate| certificate.clone().into_owned()).collect()));
    let service = service_fn(move |mut request: Request<Incoming>| {
        // Others may take a while, in which the connection answers nobody else.
        let is_small = request.body().size_hint().upper().is_some_and(|size| size <= SHORT);
        let is_short = !http2 || (request.method() == Method::POST && is_small);
        if let Some(certificates) = &certificates {
            request.extensions_mut().insert(certificates.clone());
        }
        let answer = server.answer(request);
        let answer = if is_short { answer } else { apart(answer).boxed() };
        answer.map(Ok::<_, Infallible>)
    });
    let ended = if http2 {
        serve_http2(stream, service, &shutdown).await
    } else {
        serve_http1(stream, service, &shutdown).await
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%peer, %error, "connection ended"),
        None => tracing::debug!(%peer, "connection is cut off"),
    }
}

/// Answers in a task of its own, which ends when the answer is no longer wanted.
async fn apart(answer: BoxFuture<'static, Response<Body>>) -> Response<Body> {
    AbortOnDropHandle::new(tokio::spawn(answer)).await.unwrap_or_else(|_| {
        let mut failure = Response::new(Body::empty());
        *failure.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        failure
    })
}

/// Serves until the client goes, or `shutdown`; `None` when requests were still open long after that.
async fn serve_http1<S>(
    stream: TlsStream<TcpStream>,
    service: S,
    shutdown: &CancellationToken,
) -> Option<hyper::Result<()>>
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send> + Send,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES as usize);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(DRAIN_TIMEOUT, serving).await.ok()
        }
    }
}

/// The same. Requests are answered by the task that reads and writes the connection: what came in one piece is answered
/// in one, without a task to start and wake for each.
async fn serve_http2<S>(
    stream: TlsStream<TcpStream>,
    service: S,
    shutdown: &CancellationToken,
) -> Option<hyper::Result<()>>
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static> + Send,
{
    let (io, outbox) = gather(stream);
    let spawned = Spawned::default();
    let mut builder = http2::Builder::new(spawned.clone());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_ABANDONED)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(io), service));
    let mut driver = Driver::new(spawned, outbox);
    tokio::select! {
        ended = poll_fn(|context| driver.poll(serving.as_mut(), context)) => return Some(ended),
        () = shutdown.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    let rest = poll_fn(|context| driver.poll(serving.as_mut(), context));
    tokio::time::timeout(DRAIN_TIMEOUT, rest).await.ok()
}
