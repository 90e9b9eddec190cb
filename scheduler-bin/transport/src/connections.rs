//! The connections to one server, opened when they are needed and again when they are lost. Each HTTP/2 connection is one task,
//! which also waits for the answers to its requests; a server that speaks HTTP/1.1 only gets as many connections as it takes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http2_connection::{Driver, Spawned, gather};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt as _};

use super::{PING_AFTER, PING_TIMEOUT};

/// Connections that requests are spread over. One is encrypted and framed by one thread at a time.
const N_CONNECTIONS: usize = 2;

/// Connections that one request may lose before it is sent.
const MAX_TRIES: u32 = 3;

pub(super) type Legacy = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// Sends requests over the connections in turn; cheap to clone.
#[derive(Clone)]
pub(super) struct Connections(Arc<Inner>);

struct Inner {
    connector: HttpsConnector<HttpConnector>,
    slots: [Slot; N_CONNECTIONS],
    next: AtomicUsize,
    /// For a server without HTTP/2.
    legacy: OnceLock<Legacy>,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    open: RwLock<Option<SendRequest<Body>>>,
    /// Held by the one who opens it.
    opening: futures::lock::Mutex<()>,
}

impl Slot {
    /// The connection, if there is one that takes requests.
    fn get(&self) -> Option<SendRequest<Body>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().filter(|connection| !connection.is_closed()).cloned()
    }
}

impl Connections {
    /// Connections that `connector` opens.
    pub(super) fn new(connector: HttpsConnector<HttpConnector>) -> Self {
        let (slots, next, legacy) = (<[Slot; N_CONNECTIONS]>::default(), AtomicUsize::new(0), OnceLock::new());
        Self(Arc::new(Inner { connector, slots, next, legacy }))
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let position = self.0.next.fetch_add(1, Ordering::Relaxed) % N_CONNECTIONS;
        let slot = &self.0.slots[position];
        let mut tries = 0;
        loop {
            tries += 1;
            if let Some(legacy) = self.0.legacy.get() {
                return Ok(legacy.request(request).await?);
            }
            let open = match slot.get() {
                Some(open) => Some(open),
                None => self.open(slot, request.uri()).await?,
            };
            let Some(mut connection) = open else { continue };
            match connection.try_send_request(request).await {
                Ok(response) => return Ok(response),
                // The connection went before the request did: the next one takes it.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if tries < MAX_TRIES => request = unsent,
                    _ => return Err(failed.into_error().into()),
                },
            }
        }
    }

    /// Opens the connection of `slot`, unless another has done so meanwhile; `None` when the server does not speak HTTP/2.
    async fn open(&self, slot: &Slot, server: &Uri) -> Result<Option<SendRequest<Body>>, BoxError> {
        let _opening = slot.opening.lock().await;
        if let Some(open) = slot.get() {
            return Ok(Some(open));
        }
        let stream = self.0.connector.clone().oneshot(server.clone()).await?;
        if !stream.connected().is_negotiated_h2() {
            self.0.legacy.get_or_init(|| legacy_client(self.0.connector.clone()));
            return Ok(None);
        }
        let (stream, outbox) = gather(TokioIo::new(stream));
        let spawned = Spawned::default();
        let handshake = http2::Builder::new(spawned.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream));
        let mut driver = Driver::new(spawned, outbox);
        let (connection, serving) = {
            let mut handshake = pin!(handshake);
            poll_fn(|context| driver.poll(handshake.as_mut(), context)).await?
        };
        tokio::spawn(async move {
            let mut serving = pin!(serving);
            // Who waits for an answer is told why there is none.
            let _ = poll_fn(|context| driver.poll(serving.as_mut(), context)).await;
            poll_fn(|context| driver.poll_rest(context)).await;
        });
        *slot.open.write().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
        Ok(Some(connection))
    }
}

/// A client that opens as many connections as it has requests at a time, and keeps them for a while.
pub(super) fn legacy_client(connector: HttpsConnector<HttpConnector>) -> Legacy {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .build(connector)
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}
