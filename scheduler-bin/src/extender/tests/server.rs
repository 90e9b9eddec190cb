//! An extender on a loopback port, for tests: HTTP/1.1, in the clear or over TLS. What it answers is the test's affair.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Status and body for a verb and what was sent.
pub(crate) type Answer = Box<dyn Fn(String, Value) -> BoxFuture<'static, (u16, Vec<u8>)> + Send + Sync>;

/// It ends with its owner.
pub(crate) struct Server {
    /// Such as `http://127.0.0.1:40123/scheduler`.
    pub(crate) url: String,
    /// Verbs and what was sent, in order.
    pub(crate) calls: Arc<Mutex<Vec<(String, Value)>>>,
    _ends: tokio::sync::oneshot::Sender<()>,
}

impl Server {
    /// Answers at once.
    pub(crate) fn start(answer: impl Fn(&str, &Value) -> (u16, Vec<u8>) + Send + Sync + 'static) -> Self {
        Self::with(
            None,
            Box::new(move |verb, sent| {
                let answer = answer(&verb, &sent);
                Box::pin(async move { answer })
            }),
        )
    }

    /// Answers when the future does.
    pub(crate) fn with(tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (ends, has_ended) = tokio::sync::oneshot::channel();
        let (is_bound, bound) = std::sync::mpsc::channel();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = (Arc::new(answer), Arc::clone(&calls));
        // A thread of its own: some of those who call it block theirs.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                is_bound.send(listener.local_addr().expect("it is bound")).expect("the test waits for it");
                tokio::select! {
                    () = accept(listener, tls, shared) => {}
                    _ = has_ended => {}
                }
            });
        });
        let url = format!("{scheme}://{}/scheduler", bound.recv().expect("it listens"));
        Self { url, calls, _ends: ends }
    }

    /// What was sent to the verb, the last time.
    pub(crate) fn last(&self, verb: &str) -> Option<Value> {
        let calls = self.calls.lock().expect("no panic");
        calls.iter().rev().find(|(called, _)| called == verb).map(|(_, sent)| sent.clone())
    }
}

type Shared = (Arc<Answer>, Arc<Mutex<Vec<(String, Value)>>>);

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Shared) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, (answer, calls): Shared) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, calls) = (Arc::clone(&answer), Arc::clone(&calls));
        async move {
            assert_eq!(request.method(), "POST");
            assert_eq!(request.headers()["content-type"], "application/json");
            let verb = request.uri().path().trim_start_matches("/scheduler/").to_owned();
            let body = request.into_body().collect().await?.to_bytes();
            let sent: Value = serde_json::from_slice(&body).expect("JSON is sent");
            calls.lock().expect("no panic").push((verb.clone(), sent.clone()));
            let (status, body) = answer(verb, sent).await;
            let answer = Response::builder().status(status).body(Full::new(Bytes::from(body)));
            Ok::<_, hyper::Error>(answer.expect("status and body are valid"))
        }
    });
    // Who called hears of it.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
