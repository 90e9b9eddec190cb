//! `/healthz`, `/livez`, `/readyz` and `/metrics` over plain HTTP, for probes and Prometheus.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// What the probes ask about; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    synced: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
}

impl Health {
    /// The first lists of all kinds have reached the engine.
    pub(crate) fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// The engine has ended; the process should be restarted.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    fn is_ready(&self) -> bool {
        self.synced.load(Ordering::Acquire) && self.is_alive()
    }

    fn is_alive(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }
}

/// Serves until `stop`; returns the address at once, with the port that was taken.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn serve(
    address: SocketAddr,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let stream = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!("cannot accept a connection on {bound}: {error}");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            let (health, metrics, stop) = (health.clone(), metrics.clone(), stop.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let response = answer(request.uri().path(), &health, &metrics);
                    async move { Ok::<_, Infallible>(response) }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    () = stop.cancelled() => {}
                    // A client that goes away in the middle of an answer is its own affair.
                    _ = connection => {}
                }
            });
        }
    });
    Ok(bound)
}

fn answer(path: &str, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, kind, body) = match path {
        "/healthz" | "/livez" => verdict(health.is_alive()),
        "/readyz" => verdict(health.is_ready()),
        "/metrics" => (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.text()),
        _ => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

fn verdict(good: bool) -> (StatusCode, &'static str, String) {
    let (status, body) = if good { (StatusCode::OK, "ok") } else { (StatusCode::INTERNAL_SERVER_ERROR, "not ready") };
    (status, "text/plain; charset=utf-8", body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_follow_the_state() {
        let (health, metrics) = (Health::default(), Metrics::default());
        let code = |path: &str| answer(path, &health, &metrics).status().as_u16();
        assert_eq!((code("/livez"), code("/readyz")), (200, 500), "started");
        health.set_synced();
        assert_eq!((code("/livez"), code("/readyz"), code("/healthz")), (200, 200, 200), "synced");
        health.set_failed();
        assert_eq!((code("/livez"), code("/readyz")), (500, 500), "failed");
        assert_eq!((code("/metrics"), code("/nothing")), (200, 404));
    }
}
