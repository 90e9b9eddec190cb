//! Calls to one extender over HTTP, with what goes wrong told in kube-scheduler's words. Knows nothing of what is asked.
//! Upstream v1.36.2: pkg/scheduler/extender.go (makeTransport, send).

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::Config;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use scheduler_core::config::extender::{Extender as Settings, ExtenderTlsConfig};
use scheduler_transport::Poster;
use serde_json::{Value, json};
use tower::BoxError;

use super::ExtenderError;
use super::go_json;

/// Limit of a call that names none. Upstream: extender.go `DefaultExtenderTimeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// How Go's HTTP client tells that its time is over.
const TIMED_OUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
const TIMED_OUT_READING: &str = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// Where an extender listens, and how it is spoken to; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Client {
    url_prefix: String,
    /// `None` for no limit.
    timeout: Option<Duration>,
    poster: Poster,
}

impl Client {
    /// The client of an extender as its configuration says.
    ///
    /// # Errors
    /// Certificates or keys cannot be read, or do not go together.
    pub(super) fn new(settings: &Settings) -> Result<Self, ExtenderError> {
        let poster = tls(settings)
            .and_then(|config| Poster::new(&config).map_err(|error| innermost(&error)))
            .map_err(|problem| ExtenderError { url_prefix: settings.url_prefix.clone(), problem })?;
        let timeout = match settings.http_timeout {
            limit if limit.is_zero() => Some(DEFAULT_TIMEOUT),
            limit => Duration::try_from(limit).ok(),
        };
        Ok(Self { url_prefix: settings.url_prefix.clone(), timeout, poster })
    }

    /// Posts `args` and reads the answer.
    ///
    /// # Errors
    /// There is no answer in time, its status is not 200, or it is no JSON: in kube-scheduler's words.
    pub(super) async fn send(&self, verb: &str, args: Bytes) -> Result<Value, String> {
        let url = format!("{}/{verb}", self.url_prefix.trim_end_matches('/'));
        let posted = |problem: String| format!("Post {url:?}: {problem}");
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !matches!(scheme, "http" | "https") {
            return Err(posted(format!("unsupported protocol scheme {scheme:?}")));
        }
        let target = url.parse::<Uri>().map_err(|error| format!("parse {url:?}: {error}"))?;
        let host = target.authority().map(ToString::to_string).unwrap_or_default();
        // The limit is for the whole call, as Go's.
        let deadline = self.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let answer = within(deadline, self.poster.post(target, args)).await;
        let answer = answer.ok_or_else(|| posted(TIMED_OUT.to_owned()))?;
        let answer = answer.map_err(|error| posted(explain(&error, &host)))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("failed {verb} with extender at URL {url}, code {}", answer.status().as_u16()));
        }
        let text = within(deadline, first_value(answer.into_body())).await.ok_or(TIMED_OUT_READING)?;
        go_json::first_value(&text.map_err(|error| explain(&error.into(), &host))?)
    }
}

/// The body up to the end of its first value, as Go's decoder reads it: what comes later is not waited for.
async fn first_value(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let (mut text, mut end) = (Vec::new(), go_json::ValueEnd::default());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let data = if text.is_empty() { data.trim_ascii_start() } else { &data };
        text.extend_from_slice(data);
        if end.is_in(data) {
            break;
        }
    }
    Ok(text)
}

async fn within<T>(deadline: Option<tokio::time::Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// Why there is no answer, as Go's HTTP client says it.
fn explain(error: &BoxError, host: &str) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    let mut text = error.to_string();
    let mut looks_up = false;
    while let Some(error) = cause {
        text = error.to_string();
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_incomplete_message()
        {
            return "EOF".to_owned();
        }
        if let Some(error) = tls_fault(error) {
            return untrusted(error);
        }
        looks_up |= text == "dns error";
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => return format!("dial tcp {host}: connect: connection refused"),
                io::ErrorKind::UnexpectedEof => return "unexpected EOF".to_owned(),
                io::ErrorKind::ConnectionReset => return "read: connection reset by peer".to_owned(),
                _ if looks_up => {
                    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                    return format!("dial tcp: lookup {name}: no such host");
                }
                _ => {}
            }
        }
        cause = error.source();
    }
    text
}

/// What TLS said, which errors of the system may enclose.
fn tls_fault<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let enclosed = || tls_fault(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref::<rustls::Error>().or_else(enclosed)
}

fn untrusted(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        rustls::Error::InvalidCertificate(fault) => format!("tls: failed to verify certificate: {fault}"),
        other => format!("tls: {other}"),
    }
}

fn innermost(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// Certificates and names. Upstream: extender.go makeTransport; client-go transport.TLSConfigFor.
fn tls(settings: &Settings) -> Result<Config, String> {
    let given = settings.tls_config.clone().unwrap_or_default();
    let ExtenderTlsConfig { server_name, .. } = &given;
    let ca = pem("caData", &given.ca_data, "caFile", &given.ca_file)?;
    let certificate = pem("certData", &given.cert_data, "certFile", &given.cert_file)?;
    let key = pem("keyData", &given.key_data, "keyFile", &given.key_file)?;
    if ca.is_some() && given.insecure {
        return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
    }
    let insecure = given.insecure || settings.enable_https && ca.is_none();
    let mut config = Config::new(Uri::default());
    config.accept_invalid_certs = insecure;
    config.tls_server_name = (!server_name.is_empty()).then(|| server_name.clone());
    // The certificates of the system are looked for only where they matter.
    let needs_none = insecure || !settings.url_prefix.starts_with("https:");
    config.root_cert = needs_none.then(Vec::new);
    if let Some(ca) = ca {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&ca).collect();
        let certificates = certificates.map_err(|error| format!("the CA bundle is malformed: {error}"))?;
        if certificates.is_empty() {
            return Err("the CA bundle holds no certificate, expected PEM".to_owned());
        }
        config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
    }
    match (certificate, key) {
        (None, None) => {}
        (Some(certificate), Some(key)) => {
            let auth = json!({
                "client-certificate-data": BASE64.encode(certificate), "client-key-data": BASE64.encode(key),
            });
            config.auth_info = serde_json::from_value::<AuthInfo>(auth).map_err(|error| error.to_string())?;
        }
        _ => return Err("a client certificate needs both certFile or certData and keyFile or keyData".to_owned()),
    }
    Ok(config)
}

/// PEM from base64 text, which wins, or from a file.
fn pem(data_name: &str, data: &str, file_name: &str, file: &str) -> Result<Option<Vec<u8>>, String> {
    if !data.is_empty() {
        return BASE64.decode(data).map(Some).map_err(|error| format!("tlsConfig.{data_name} is no base64: {error}"));
    }
    if file.is_empty() {
        return Ok(None);
    }
    std::fs::read(Path::new(file))
        .map(Some)
        .map_err(|error| format!("cannot read tlsConfig.{file_name} {file}: {error}"))
}
