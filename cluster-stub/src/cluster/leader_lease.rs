//! The Lease that says which controller manager leads. There is only one, so it is never lost, only renewed.

use std::time::Duration;

use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Upstream v1.36.2: `--leader-elect-lease-duration`.
const DURATION_SECONDS: u32 = 15;
/// Upstream renews every two seconds, so that another may take over soon; nobody waits here.
const RENEWAL: Duration = Duration::from_secs(5);
const COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Holds the Lease `name` of `kube-system` for `holder` until `stop`. Failures are tried again.
pub(super) async fn hold(client: kube::Client, name: &'static str, holder: String, stop: CancellationToken) {
    let acquired = micro_time();
    loop {
        if let Err(error) = renew(&client, name, &holder, &acquired).await {
            tracing::debug!(error = &error as &dyn std::error::Error, name, "cannot renew the lease");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RENEWAL) => {}
        }
    }
}

async fn renew(client: &kube::Client, name: &str, holder: &str, acquired: &str) -> Result<(), kube::Error> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "acquireTime": acquired,
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "leaseTransitions": 0,
            "renewTime": micro_time(),
        },
    });
    match send(client, Method::PUT, &format!("{COLLECTION}/{name}"), &lease).await {
        Err(kube::Error::Api(status)) if status.reason == "NotFound" => {
            send(client, Method::POST, COLLECTION, &lease).await
        }
        renewed => renewed,
    }
}

async fn send(client: &kube::Client, method: Method, path: &str, lease: &Value) -> Result<(), kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(lease.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}

fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
