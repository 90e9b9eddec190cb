//! One call of a webhook over HTTPS: an AdmissionReview goes out, an AdmissionReview comes back.
//!
//! Upstream: apiserver v1.36.2 `pkg/util/webhook/client.go`, `pkg/admission/plugin/webhook/request/admissionreview.go`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::attributes::{object_of, request_of};
use super::super::{AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::validation::json::JsonExt;

/// Largest answer that is read, bytes.
const MAX_ANSWER: usize = 3 * 1024 * 1024;
const DEFAULT_TIMEOUT: i64 = 10;

/// What a webhook says.
pub(super) struct Answer {
    pub(super) allowed: bool,
    /// Why not, as a `Status`.
    pub(super) status: Value,
    pub(super) warnings: Vec<String>,
    /// A JSON patch.
    pub(super) patch: Option<Vec<u8>>,
}

/// Why a webhook could not be asked, in upstream's words.
pub(super) struct CallError(pub(super) String);

/// The words around a failed call.
pub(super) fn failed(name: &str, why: &str) -> String {
    format!("failed calling webhook \"{name}\": {why}")
}

/// Where a webhook listens.
struct Place {
    /// As messages show it.
    url: String,
    /// Whom the certificate must name.
    server: String,
    /// `host:port` to connect to.
    address: String,
    path: String,
}

/// Calls a webhook.
pub(super) async fn call(webhook: &Value, request: &AdmissionRequest<'_>) -> Result<Answer, CallError> {
    let seconds = webhook.int("timeoutSeconds").unwrap_or(DEFAULT_TIMEOUT);
    let uid = uuid::Uuid::new_v4().to_string();
    let version = if webhook.texts("admissionReviewVersions").contains(&"v1") { "v1" } else { "v1beta1" };
    let body = review(&uid, version, request).to_string();
    let place = Place::of(webhook.at("clientConfig"), seconds, request).map_err(CallError)?;
    let shown = format!("failed to call webhook: Post \"{}\": ", place.url);
    let told = |why: String| CallError(format!("{shown}{why}"));
    let roots = roots(webhook.at("clientConfig").text("caBundle"))
        .map_err(|why| CallError(format!("could not get REST client: unable to load root certificates: {why}")))?;
    let timeout = Duration::from_secs(u64::try_from(seconds).unwrap_or(1));
    let answered = tokio::time::timeout(timeout, post(&place, roots, body)).await;
    let (status, bytes) = match answered {
        Err(_) => return Err(told("context deadline exceeded".to_owned())),
        Ok(Err(why)) => return Err(told(why)),
        Ok(Ok(answered)) => answered,
    };
    if !status.is_success() {
        return Err(CallError(format!("failed to call webhook: {}", refusal(status, &bytes))));
    }
    let answer: Value = serde_json::from_slice(&bytes).map_err(|error| {
        CallError(format!("failed to call webhook: couldn't get version/kind; json parse error: {error}"))
    })?;
    read(&answer, &uid, version).map_err(|why| CallError(format!("received invalid webhook response: {why}")))
}

fn review(uid: &str, version: &str, request: &AdmissionRequest<'_>) -> Value {
    let mut asked = request_of(request);
    asked["uid"] = uid.into();
    asked["object"] = object_of(request);
    asked["oldObject"] = match request.operation {
        Operation::Create | Operation::Connect => Value::Null,
        Operation::Update | Operation::Delete => request.old_object.cloned().unwrap_or(Value::Null),
    };
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": asked})
}

/// Reads the answer; its uid must be that of the question.
fn read(review: &Value, uid: &str, version: &str) -> Result<Answer, String> {
    let response = review.at("response");
    if response.is_null() {
        return Err("webhook response was absent".to_owned());
    }
    if version == "v1" {
        let (kind, api_version) = (review.text("kind"), review.text("apiVersion"));
        if kind != "AdmissionReview" || api_version != "admission.k8s.io/v1" {
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {api_version}, Kind={kind}"
            ));
        }
        if response.text("uid") != uid {
            return Err(format!("expected response.uid=\"{uid}\", got \"{}\"", response.text("uid")));
        }
    }
    let patch = match response.text("patch") {
        "" => None,
        encoded => {
            let kind = response.text("patchType");
            if kind != "JSONPatch" && version == "v1" {
                return Err(format!("webhook returned response.patchType=\"{kind}\", expected \"JSONPatch\""));
            }
            let patch = STANDARD.decode(encoded).map_err(|error| format!("response.patch is no base64: {error}"))?;
            Some(patch)
        }
    };
    Ok(Answer {
        allowed: response.flag("allowed"),
        status: response.at("status").clone(),
        warnings: response.texts("warnings").into_iter().map(str::to_owned).collect(),
        patch,
    })
}

impl Place {
    fn of(config: &Value, seconds: i64, request: &AdmissionRequest<'_>) -> Result<Place, String> {
        let query = format!("?timeout={seconds}s");
        let service = config.at("service");
        if service.is_null() {
            let url = config.text("url");
            let rest =
                url.strip_prefix("https://").ok_or_else(|| format!("could not get REST client: bad URL {url:?}"))?;
            let at = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(at);
            let has_port = host.rsplit(']').next().unwrap_or(host).contains(':');
            let address = if has_port { host.to_owned() } else { format!("{host}:443") };
            let server = address.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']).to_owned();
            let path = if path.is_empty() { "/" } else { path };
            return Ok(Place { url: format!("{url}{query}"), server, address, path: format!("{path}{query}") });
        }
        let (name, namespace) = (service.text("name"), service.text("namespace"));
        let port = service.int("port").unwrap_or(443);
        let server = format!("{name}.{namespace}.svc");
        let path = match service.text("path") {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        };
        let url = format!("https://{server}:{port}{path}{query}");
        let lost = |why: String| format!("failed to call webhook: Post \"{url}\": {why}");
        let address = resolve(name, namespace, port, request).map_err(lost)?;
        Ok(Place { url: url.clone(), server, address, path: format!("{path}{query}") })
    }
}

/// The first ready address behind a Service.
fn resolve(name: &str, namespace: &str, port: i64, request: &AdmissionRequest<'_>) -> Result<String, String> {
    let service = request
        .objects
        .get(&GroupResource::of("", "services"), namespace, name)
        .ok_or_else(|| format!("service \"{name}\" not found"))?;
    let found = service.at("spec").items("ports").iter().find(|one| one.int("port") == Some(port));
    let named = found.ok_or_else(|| format!("no service port {port} found for service \"{name}\""))?.text("name");
    let endpoints = request.objects.get(&GroupResource::of("", "endpoints"), namespace, name);
    let place = endpoints.iter().flat_map(|endpoints| endpoints.items("subsets")).find_map(|subset| {
        let address = subset.items("addresses").first()?.text("ip").to_owned();
        let port = subset.items("ports").iter().find(|port| port.text("name") == named)?.int("port")?;
        Some(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
    });
    place.ok_or_else(|| format!("no endpoints available for service \"{name}\""))
}

fn roots(bundle: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if bundle.is_empty() {
        return Ok(roots);
    }
    let pem = STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// Sends `body`; gives status and body of the answer.
async fn post(place: &Place, roots: RootCertStore, body: String) -> Result<(StatusCode, Bytes), String> {
    let tcp = TcpStream::connect(&place.address).await.map_err(|error| dial_error(&place.address, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerName::try_from(place.server.clone()).map_err(|error| error.to_string())?;
    let tls = TlsConnector::from(Arc::new(config)).connect(server, tcp).await.map_err(|error| tls_error(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri(&place.path)
        .header(header::HOST, &place.server)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    };
    let answered = answered.await;
    driver.abort();
    answered
}

/// What Go says when a connection is not made.
fn dial_error(address: &str, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ if error.raw_os_error().is_none() => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            return format!("dial tcp: lookup {host}: no such host");
        }
        _ => error.to_string(),
    };
    format!("dial tcp {address}: {why}")
}

/// What Go says when the other side cannot prove who it is.
fn tls_error(error: &std::io::Error) -> String {
    use rustls::CertificateError;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".to_owned(),
        Some(rustls::Error::InvalidCertificate(why)) => format!("tls: failed to verify certificate: x509: {why}"),
        Some(other) => format!("tls: {other}"),
        None => error.to_string(),
    }
}

/// What client-go says of an answer that is no success.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match status {
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::UNAUTHORIZED => "the server has asked for the client to provide credentials".to_owned(),
        StatusCode::FORBIDDEN => "the server does not allow access to the requested resource".to_owned(),
        StatusCode::SERVICE_UNAVAILABLE => "the server is currently unable to handle the request".to_owned(),
        status if status.is_server_error() => {
            format!("an error on the server ({:?}) has prevented the request from succeeding", text.trim())
        }
        status => {
            format!("the server responded with the status code {} but did not return more information", status.as_u16())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_its_question() {
        let answer = |response: Value| {
            let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            read(&review, "u", "v1").map(|answer| (answer.allowed, answer.patch))
        };
        assert_eq!(answer(json!({"uid": "u", "allowed": true})), Ok((true, None)));
        let patch = json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"});
        assert_eq!(answer(patch), Ok((true, Some(b"[]".to_vec()))));
        assert_eq!(answer(json!({"uid": "x"})), Err("expected response.uid=\"u\", got \"x\"".to_owned()));
        assert_eq!(answer(Value::Null), Err("webhook response was absent".to_owned()));
        let untyped = json!({"uid": "u", "patch": "W10="});
        assert_eq!(answer(untyped), Err("webhook returned response.patchType=\"\", expected \"JSONPatch\"".to_owned()));
    }

    #[tokio::test]
    async fn nobody_there_is_told_as_go_tells_it() {
        let place = Place {
            url: String::new(),
            server: "127.0.0.1".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            path: "/".to_owned(),
        };
        let error = post(&place, RootCertStore::empty(), String::new()).await.expect_err("nothing listens on port 1");
        assert_eq!(error, "dial tcp 127.0.0.1:1: connect: connection refused");
    }
}
