//! Writes the bootstrap objects through the API: what is there already stays, what names the running server is renewed.

use std::net::{IpAddr, SocketAddr};

use futures::stream::{self, TryStreamExt as _};
use http::{Method, Request};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use super::{authentication, flow_control, groups, kubernetes_service, namespaces, rbac};

/// Writes at the same time. With a durable store they share its syncs.
const CONCURRENCY: usize = 32;

/// What the objects say about this cluster.
#[derive(Clone, Debug)]
pub struct BootstrapOptions {
    /// Range of Service addresses, e.g. `10.96.0.0/16`.
    pub service_range: String,
    /// First address of the range.
    pub service_ip: IpAddr,
    /// Where clients reach the server.
    pub advertised: SocketAddr,
    /// Certificate of the authority of client certificates, PEM.
    pub client_ca_pem: String,
    /// Certificate of the authority of the front proxy, PEM.
    pub front_proxy_ca_pem: String,
    /// Name of this host.
    pub host_name: String,
    /// Served groups and versions.
    pub group_versions: Vec<(String, String)>,
}

/// A bootstrap object could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the {kind} {name:?} that every cluster has")]
pub struct BootstrapError {
    kind: String,
    name: String,
    #[source]
    source: Box<kube::Error>,
}

/// Creates what is missing. `client` must be allowed everything.
pub async fn bootstrap(client: &kube::Client, options: &BootstrapOptions) -> Result<(), BootstrapError> {
    let now = Timestamp::now();
    let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let micros = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let today = now.to_zoned(TimeZone::UTC).date().to_string();
    let BootstrapOptions { service_range, service_ip, advertised, client_ca_pem, front_proxy_ca_pem, .. } = options;

    create_all(client, namespaces::namespaces()).await?;
    let mut objects = rbac::objects();
    objects.extend(namespaces::priority_classes());
    objects.extend(flow_control::priority_levels());
    objects.extend(flow_control::flow_schemas(&seconds));
    objects.extend(groups::api_services(&options.group_versions, &seconds));
    objects.push(kubernetes_service::service_cidr(service_range, &seconds));
    objects.push(authentication::legacy_token_tracking(&today));
    create_all(client, objects).await?;

    // The Service allocates its address, so its range must be there before and its IPAddress is checked after it.
    let service = kubernetes_service::service(*service_ip, advertised.port());
    // Asked first: to create it again would be refused for its address, which it holds itself.
    if !exists(client, &service).await? {
        create(client, &service).await?;
    }
    create(client, &kubernetes_service::ip_address(*service_ip)).await?;
    let holder = format!("{}_{}", options.host_name, uuid::Uuid::new_v4());
    let mut renewed = vec![
        authentication::extension_authentication(client_ca_pem, front_proxy_ca_pem),
        authentication::identity_lease(&options.host_name, &holder, &micros),
    ];
    renewed.extend(kubernetes_service::endpoints(*advertised));
    stream::iter(renewed.into_iter().map(Ok))
        .try_for_each_concurrent(CONCURRENCY, |object| async move {
            if !create(client, &object).await? {
                // A patch needs no resourceVersion: nobody else writes these.
                send(client, Method::PATCH, &object_path(&object), &object).await?;
            }
            Ok(())
        })
        .await
}

async fn create_all(client: &kube::Client, objects: Vec<Value>) -> Result<(), BootstrapError> {
    stream::iter(objects.into_iter().map(Ok))
        .try_for_each_concurrent(CONCURRENCY, |object| async move {
            if create(client, &object).await? && object.get("status").is_some() {
                send(client, Method::PUT, &format!("{}/status", object_path(&object)), &object).await?;
            }
            Ok(())
        })
        .await
}

async fn exists(client: &kube::Client, object: &Value) -> Result<bool, BootstrapError> {
    match send(client, Method::GET, &object_path(object), object).await {
        Ok(()) => Ok(true),
        Err(BootstrapError { source, .. }) if matches!(&*source, kube::Error::Api(e) if e.code == 404) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the object was created; `false` if it was there.
async fn create(client: &kube::Client, object: &Value) -> Result<bool, BootstrapError> {
    match send(client, Method::POST, &collection_path(object), object).await {
        Ok(()) => Ok(true),
        Err(BootstrapError { source, .. }) if matches!(&*source, kube::Error::Api(e) if e.reason == "AlreadyExists") => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

async fn send(client: &kube::Client, method: Method, path: &str, object: &Value) -> Result<(), BootstrapError> {
    let failed = |source| BootstrapError {
        kind: object["kind"].as_str().unwrap_or_default().to_owned(),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        source: Box::new(source),
    };
    let body = if method == Method::GET { Vec::new() } else { object.to_string().into_bytes() };
    let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(|error| failed(kube::Error::HttpError(error)))?;
    client.request::<Value>(request).await.map(drop).map_err(failed)
}

fn object_path(object: &Value) -> String {
    format!("{}/{}", collection_path(object), object["metadata"]["name"].as_str().unwrap_or_default())
}

fn collection_path(object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let kind = object["kind"].as_str().unwrap_or_default().to_ascii_lowercase();
    let plural = match kind.as_str() {
        "endpoints" => kind,
        _ if kind.ends_with('s') => format!("{kind}es"),
        _ => format!("{kind}s"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{api_version}/{plural}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_follow_from_version_kind_and_namespace() {
        let object = |api_version: &str, kind: &str, namespace: Option<&str>| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "n", "namespace": namespace}});
        let cases = [
            (object("v1", "Endpoints", Some("default")), "/api/v1/namespaces/default/endpoints/n"),
            (object("networking.k8s.io/v1", "IPAddress", None), "/apis/networking.k8s.io/v1/ipaddresses/n"),
            (object("scheduling.k8s.io/v1", "PriorityClass", None), "/apis/scheduling.k8s.io/v1/priorityclasses/n"),
            (object("v1", "Namespace", None), "/api/v1/namespaces/n"),
            (object("networking.k8s.io/v1", "ServiceCIDR", None), "/apis/networking.k8s.io/v1/servicecidrs/n"),
        ];
        for (object, want) in cases {
            assert_eq!(object_path(&object), want);
        }
    }
}
