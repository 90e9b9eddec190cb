//! From a kubeconfig (or the pod's own service account) to a client that is known to work. Changes nothing in the cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use scheduler_transport::Sender;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::failure;

/// How long the first question to the API server may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// A client and what it was made from.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The shorter way to the same server.
    pub sender: Sender,
    /// URL of the API server.
    pub server: String,
    /// File or mechanism that the credentials came from.
    pub origin: String,
}

/// Why there is no connection to the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No kubeconfig was given or found.
    #[error(
        "no kubeconfig: expected --kubeconfig FILE, the variable KUBECONFIG, ~/.kube/config, or a pod with a service account"
    )]
    NoKubeconfig,
    /// The kubeconfig, or a file that it names, cannot be read.
    #[error("cannot read {what} {path}: {source}")]
    Unreadable {
        /// `the kubeconfig`, or what the file is to it.
        what: String,
        /// The file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The kubeconfig is malformed or incomplete.
    #[error("{origin}: {problem}")]
    Kubeconfig {
        /// Path of the file.
        origin: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// The client certificate is past its end.
    #[error("the client certificate in {origin} expired at {end}; renew the credentials")]
    ClientCertificateExpired {
        /// Path of the file.
        origin: String,
        /// When it ended.
        end: Timestamp,
    },
    /// The server's certificate is past its end, or not yet valid.
    #[error("the certificate of {server} is not valid now: {problem}")]
    ServerCertificateExpired {
        /// URL.
        server: String,
        /// What the TLS library said.
        problem: String,
    },
    /// The server's certificate was not signed by the expected CA, or is for another name.
    #[error(
        "the certificate of {server} is not trusted: {problem}; expected one signed by the certificate-authority of {origin}"
    )]
    Untrusted {
        /// URL.
        server: String,
        /// Path of the kubeconfig.
        origin: String,
        /// What the TLS library said.
        problem: String,
    },
    /// Nobody answers.
    #[error("cannot reach the API server {server}: {problem}")]
    Unreachable {
        /// URL.
        server: String,
        /// The cause.
        problem: String,
    },
    /// 401.
    #[error("the API server {server} does not accept the credentials in {origin}: {problem}")]
    Unauthorized {
        /// URL.
        server: String,
        /// Path of the kubeconfig.
        origin: String,
        /// The server's message.
        problem: String,
    },
    /// The server answers, but not as an API server.
    #[error("{server} does not answer like a Kubernetes API server: {problem}")]
    NotAnApiServer {
        /// URL.
        server: String,
        /// What came instead.
        problem: String,
    },
}

impl ConnectError {
    /// Whether the user's input is at fault, not the cluster.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoKubeconfig | Self::Unreadable { .. } | Self::Kubeconfig { .. })
    }
}

/// Connects with the given kubeconfig, or with what `KUBECONFIG`, the pod or `~/.kube/config` offer, and asks for the version once.
///
/// # Errors
/// See [`ConnectError`]; each names the file or server.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let (config, origin) = load(kubeconfig).await?;
    let connection = with_config(config, origin)?;
    probe(&connection).await?;
    Ok(connection)
}

/// Connects with the text of a kubeconfig, without asking the server anything.
///
/// # Errors
/// The text is malformed.
#[cfg(feature = "offline-cluster")]
pub(crate) async fn from_text(text: &str) -> Result<Connection, ConnectError> {
    let origin = "the cluster's kubeconfig".to_owned();
    let file = Kubeconfig::from_yaml(text).map_err(|error| wrong(error, &origin))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    with_config(config.map_err(|error| wrong(error, &origin))?, origin)
}

async fn load(kubeconfig: Option<&Path>) -> Result<(Config, String), ConnectError> {
    if let Some(path) = kubeconfig {
        return read(path).await;
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
        let paths = std::env::var("KUBECONFIG").unwrap_or_default();
        let origin = format!("{paths} (named by the variable KUBECONFIG)");
        let file = Kubeconfig::from_env().map_err(|error| wrong(error, &origin))?;
        let Some(file) = file else { return Err(ConnectError::NoKubeconfig) };
        return Ok((config_of(file, &origin).await?, origin));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        let origin = "the pod's service account".to_owned();
        return match Config::incluster() {
            Ok(config) => Ok((config, origin)),
            Err(error) => Err(ConnectError::Kubeconfig { origin, problem: chain(&error, ": ") }),
        };
    }
    let home =
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config")).filter(|path| path.exists());
    match home {
        Some(path) => read(&path).await,
        None => Err(ConnectError::NoKubeconfig),
    }
}

async fn read(path: &Path) -> Result<(Config, String), ConnectError> {
    let origin = path.display().to_string();
    let file = Kubeconfig::read_from(path).map_err(|error| wrong(error, &origin))?;
    Ok((config_of(file, &origin).await?, origin))
}

async fn config_of(file: Kubeconfig, origin: &str) -> Result<Config, ConnectError> {
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| wrong(error, origin))?;
    // The client reads it with the first request, where its error would name neither the file nor the reason.
    if let Some(path) = config.auth_info.token_file.as_ref().filter(|_| config.auth_info.token.is_none()) {
        std::fs::read_to_string(path).map_err(|source| unreadable("the tokenFile", origin, path, source))?;
    }
    for (what, path) in [
        ("the client-certificate", config.auth_info.client_certificate.as_ref()),
        ("the client-key", config.auth_info.client_key.as_ref()),
    ] {
        if let Some(path) = path {
            std::fs::read(path).map_err(|source| unreadable(what, origin, path, source))?;
        }
    }
    Ok(config)
}

fn unreadable(what: &str, origin: &str, path: &str, source: std::io::Error) -> ConnectError {
    ConnectError::Unreadable { what: format!("{what} of {origin},"), path: path.to_owned(), source }
}

fn wrong(error: KubeconfigError, origin: &str) -> ConnectError {
    let load = |what: &str, source, path: &Path| unreadable(what, origin, &path.display().to_string(), source);
    match error {
        KubeconfigError::ReadConfig(source, path) => {
            let named = if origin.starts_with(&*path.to_string_lossy()) { "" } else { " that KUBECONFIG names" };
            let what = format!("the kubeconfig{named}");
            ConnectError::Unreadable { what, path: path.display().to_string(), source }
        }
        KubeconfigError::LoadCertificateAuthority(LoadDataError::ReadFile(source, path)) => {
            load("the certificate-authority", source, &path)
        }
        KubeconfigError::LoadClientCertificate(LoadDataError::ReadFile(source, path)) => {
            load("the client-certificate", source, &path)
        }
        KubeconfigError::LoadClientKey(LoadDataError::ReadFile(source, path)) => load("the client-key", source, &path),
        error => ConnectError::Kubeconfig { origin: origin.to_owned(), problem: explain(&error) },
    }
}

/// The problem without the file's name, which stands before it already.
fn explain(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(source) => {
            let text = source.without_snippet().to_string();
            format!("not a kubeconfig: {}", text.lines().next().unwrap_or_default())
        }
        KubeconfigError::CurrentContextNotSet => {
            "current-context is not set, expected the name of one of its contexts".to_owned()
        }
        KubeconfigError::LoadContext(name) => {
            format!("current-context is {name:?}, but contexts has no entry of that name")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the context's cluster is {name:?}, but clusters has no entry of that name")
        }
        KubeconfigError::MissingClusterUrl => {
            "the cluster has no server, expected a URL such as https://HOST:6443".to_owned()
        }
        other => other.to_string(),
    }
}

fn with_config(config: Config, origin: String) -> Result<Connection, ConnectError> {
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    if let Some(end) = client_certificate_end(&config)
        && end < Timestamp::now()
    {
        return Err(ConnectError::ClientCertificateExpired { origin, end });
    }
    match scheduler_transport::connect(config) {
        Ok((client, sender)) => Ok(Connection { client, sender, server, origin }),
        Err(error) => Err(ConnectError::Kubeconfig { origin, problem: failure::describe(&error) }),
    }
}

fn client_certificate_end(config: &Config) -> Option<Timestamp> {
    use base64::Engine as _;
    let pem = match (&config.auth_info.client_certificate_data, &config.auth_info.client_certificate) {
        (Some(data), _) => base64::engine::general_purpose::STANDARD.decode(data).ok()?,
        (None, Some(path)) => std::fs::read(path).ok()?,
        (None, None) => return None,
    };
    let certificate = Certificate::from_der(&CertificateDer::from_pem_slice(&pem).ok()?).ok()?;
    let end = certificate.tbs_certificate.validity.not_after.to_unix_duration();
    Timestamp::from_second(i64::try_from(end.as_secs()).ok()?).ok()
}

async fn probe(connection: &Connection) -> Result<(), ConnectError> {
    let server = connection.server.clone();
    let request = Request::get("/version").body(Vec::new()).expect("a constant path makes a request");
    let answer = tokio::time::timeout(PROBE_TIMEOUT, connection.client.request::<serde_json::Value>(request)).await;
    let error = match answer {
        Err(_) => {
            let problem = format!("no answer within {} s", PROBE_TIMEOUT.as_secs());
            return Err(ConnectError::Unreachable { server, problem });
        }
        Ok(Ok(version)) if version["gitVersion"].is_string() => return Ok(()),
        Ok(Ok(_)) => {
            let problem = "/version has no gitVersion".to_owned();
            return Err(ConnectError::NotAnApiServer { server, problem });
        }
        Ok(Err(error)) => error,
    };
    let problem = failure::describe(&error);
    let origin = connection.origin.clone();
    let chain = chain(&error, " | ");
    let says = |words: &[&str]| words.iter().any(|word| chain.contains(word));
    Err(match &error {
        kube::Error::Api(status) if status.code == 401 => ConnectError::Unauthorized { server, origin, problem },
        // Some clusters close /version to some users; whoever gets a 403 was let in.
        kube::Error::Api(status) if status.code == 403 => return Ok(()),
        kube::Error::Api(_) | kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            ConnectError::NotAnApiServer { server, problem }
        }
        // The other side's alert is about our certificate, the verifier's own words are about theirs.
        _ if says(&[
            "alert: CertificateExpired",
            "alert: BadCertificate",
            "alert: CertificateUnknown",
            "alert: UnknownCA",
            "alert: CertificateRequired",
        ]) =>
        {
            ConnectError::Unauthorized { server, origin, problem }
        }
        _ if says(&["certificate expired", "not valid yet", "NotValidYet", "Expired"]) => {
            ConnectError::ServerCertificateExpired { server, problem }
        }
        _ if says(&["invalid peer certificate", "UnknownIssuer", "NotValidForName"]) => {
            ConnectError::Untrusted { server, origin, problem }
        }
        _ => ConnectError::Unreachable { server, problem },
    })
}

fn chain(error: &dyn std::error::Error, separator: &str) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(separator);
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// One thing that the scheduler must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The verb.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, with subresource as `pods/binding`.
    pub resource: &'static str,
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, resource } = self;
        if group.is_empty() { write!(f, "{verb} {resource}") } else { write!(f, "{verb} {resource}.{group}") }
    }
}

/// What the scheduler cannot work without: it waits for the first list of every kind that it reads.
pub const REQUIRED: &[Permission] = &permissions();

/// Resources that are listed and watched.
const READ: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "services"),
    ("", "replicationcontrollers"),
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("policy", "poddisruptionbudgets"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csistoragecapacities"),
];

const WRITTEN: &[Permission] = &[
    Permission { verb: "create", group: "", resource: "pods/binding" },
    Permission { verb: "patch", group: "", resource: "pods/status" },
    Permission { verb: "create", group: "events.k8s.io", resource: "events" },
];

const fn permissions() -> [Permission; 2 * READ.len() + WRITTEN.len()] {
    let mut all = [WRITTEN[0]; 2 * READ.len() + WRITTEN.len()];
    let mut index = 0;
    while index < READ.len() {
        let (group, resource) = READ[index];
        all[2 * index] = Permission { verb: "list", group, resource };
        all[2 * index + 1] = Permission { verb: "watch", group, resource };
        index += 1;
    }
    while index < READ.len() + WRITTEN.len() {
        all[READ.len() + index] = WRITTEN[index - READ.len()];
        index += 1;
    }
    all
}

/// Asks the server which of `permissions` the user lacks. A server that cannot answer the question counts as a yes.
pub async fn missing_permissions(client: &Client, permissions: &'static [Permission]) -> Vec<Permission> {
    let ask = |permission: &'static Permission| {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        async move {
            let (resource, subresource) =
                permission.resource.split_once('/').map_or((permission.resource, None), |(r, s)| (r, Some(s)));
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        verb: Some(permission.verb.to_owned()),
                        group: Some(permission.group.to_owned()),
                        resource: Some(resource.to_owned()),
                        subresource: subresource.map(str::to_owned),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let answer = reviews.create(&kube::api::PostParams::default(), &review).await.ok()?;
            (!answer.status?.allowed).then_some(*permission)
        }
    };
    futures::future::join_all(permissions.iter().map(ask)).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error_of(text: &str) -> String {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, text).expect("the file can be written");
        let error = match load(Some(&path)).await {
            Err(error) => error,
            Ok(_) => panic!("{text} was accepted"),
        };
        assert!(error.is_bad_input(), "{error}");
        error.to_string().replace(&path.display().to_string(), "FILE")
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_named_with_what_was_expected() {
        for (name, text, want) in [
            ("not yaml", "a: [", "FILE: not a kubeconfig: "),
            ("no context", "apiVersion: v1\nkind: Config\n", "FILE: current-context is not set"),
            (
                "dangling context",
                "current-context: x\ncontexts: []\n",
                "FILE: current-context is \"x\", but contexts has no entry",
            ),
            (
                "dangling cluster",
                "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n",
                "FILE: the context's cluster is \"c\", but clusters has no entry",
            ),
            (
                "no server",
                "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {}}]\nusers: [{name: u, user: {}}]\n",
                "FILE: the cluster has no server",
            ),
        ] {
            let error = error_of(text).await;
            assert!(error.starts_with(want), "{name}: {error}");
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let Err(error) = load(Some(Path::new("/no/such/file"))).await else { panic!("there is no such file") };
        assert_eq!(
            error.to_string(),
            "cannot read the kubeconfig /no/such/file: No such file or directory (os error 2)"
        );
    }

    #[tokio::test]
    async fn a_missing_file_that_the_kubeconfig_names_is_named() {
        let user = |user: &str| {
            format!(
                "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            )
        };
        for (name, text, want) in [
            ("a token", user("{tokenFile: /no/token}"), "cannot read the tokenFile of FILE, /no/token: No such file"),
            (
                "a client certificate",
                user("{client-certificate: /no/crt, client-key: /no/key}"),
                "cannot read the client-certificate of FILE, /no/crt: No such file",
            ),
            (
                "an authority",
                user("{}").replace("{server:", "{certificate-authority: /no/ca, server:"),
                "cannot read the certificate-authority of FILE, /no/ca: No such file",
            ),
        ] {
            let error = error_of(&text).await;
            assert!(error.starts_with(want), "{name}: {error}");
        }
    }

    #[test]
    fn permissions_read_like_rules() {
        let all: Vec<_> = REQUIRED.iter().map(ToString::to_string).collect();
        for rule in [
            "list pods",
            "watch replicasets.apps",
            "create pods/binding",
            "patch pods/status",
            "create events.events.k8s.io",
        ] {
            assert_eq!(all.iter().filter(|known| *known == rule).count(), 1, "{rule}");
        }
        assert_eq!(all.len(), 2 * crate::live::informers::N_KINDS + 3);
    }
}
