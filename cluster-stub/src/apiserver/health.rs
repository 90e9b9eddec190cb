//! Health, version and the index of paths: small documents about the server itself.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::request::Query;
use super::server::{Body, text};

/// The Kubernetes version whose behaviour the server has.
pub const GIT_VERSION: &str = "v1.36.2";

/// One named check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Always,
    /// Passes while the server is not shutting down.
    NotDraining,
    /// Passes once the bootstrap objects are there.
    Bootstrapped,
}

/// What the checks look at.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    /// Whether the objects that every cluster has were written.
    pub bootstrapped: bool,
    /// Whether the server is shutting down.
    pub draining: bool,
}

/// Checks after the first few, in upstream's order; the same for all three endpoints.
const POST_START_HOOKS: &[&str] = &[
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "aggregator-reload-proxy-client-cert",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-wait-for-first-sync",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
];
/// Hooks that wrote bootstrap objects.
const WRITERS: &[&str] = &[
    "start-system-namespaces-controller",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
];

fn checks(endpoint: &str) -> Vec<(String, Probe)> {
    let first: &[&str] = match endpoint {
        "readyz" => &["ping", "log", "etcd", "etcd-readiness", "informer-sync"],
        _ => &["ping", "log", "loopback-serving-certificate", "etcd"],
    };
    let mut checks: Vec<(String, Probe)> = first.iter().map(|name| ((*name).to_owned(), Probe::Always)).collect();
    for hook in POST_START_HOOKS {
        let probe = if WRITERS.contains(hook) { Probe::Bootstrapped } else { Probe::Always };
        checks.push((format!("poststarthook/{hook}"), probe));
    }
    checks.push(("autoregister-completion".into(), Probe::Always));
    for hook in ["apiservice-openapi-controller", "apiservice-openapiv3-controller"] {
        checks.push((format!("poststarthook/{hook}"), Probe::Always));
    }
    if endpoint == "readyz" {
        checks.push(("shutdown".into(), Probe::NotDraining));
    }
    checks
}

/// The answer at `/healthz`, `/livez`, `/readyz` or below one of them; `None` for other paths and unknown checks.
/// Upstream v1.36.2: apiserver/pkg/server/healthz/healthz.go.
pub fn health(path: &str, query: &Query, state: Health) -> Option<Response<Body>> {
    let path = path.strip_prefix('/')?;
    let (endpoint, single) = path.split_once('/').unwrap_or((path, ""));
    if !matches!(endpoint, "healthz" | "livez" | "readyz") {
        return None;
    }
    let passes = |probe: Probe| match probe {
        Probe::Always => true,
        Probe::NotDraining => !state.draining,
        Probe::Bootstrapped => state.bootstrapped,
    };
    let checks = checks(endpoint);
    if !single.is_empty() {
        let (_, probe) = checks.iter().find(|(name, _)| name == single)?;
        return Some(if passes(*probe) {
            text(StatusCode::OK, "ok")
        } else {
            text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: not finished\n")
        });
    }
    let mut excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = Vec::new();
    for (name, probe) in &checks {
        if let Some(at) = excluded.iter().position(|other| other == name) {
            excluded.remove(at);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if passes(*probe) {
            lines.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed.push(name.as_str());
            lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(", ")));
    }
    if !failed.is_empty() {
        return Some(text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")));
    }
    let verbose = query.all("verbose").next().is_some();
    Some(text(StatusCode::OK, if verbose { format!("{lines}{endpoint} check passed\n") } else { "ok".to_owned() }))
}

/// The document at `/version`.
pub fn version() -> Value {
    let (major, minor) = ("1", "36");
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "gc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The paths at `/` that are no discovery paths.
pub fn index_paths() -> Vec<String> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for endpoint in ["healthz", "livez", "readyz"] {
        paths.extend(checks(endpoint).into_iter().map(|(name, _)| format!("/{endpoint}/{name}")));
    }
    paths
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn get(path: &str, query: &str, state: Health) -> Option<(u16, String)> {
        let response = health(path, &Query::parse(query), state)?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Some((code, String::from_utf8(body.to_vec()).unwrap()))
    }

    #[tokio::test]
    async fn endpoints_say_ok_list_checks_and_know_single_ones() {
        let good = Health { bootstrapped: true, draining: false };
        let ok = Some((200, "ok".to_owned()));
        for path in [
            "/healthz",
            "/livez",
            "/readyz",
            "/livez/ping",
            "/readyz/etcd",
            "/readyz/poststarthook/rbac/bootstrap-roles",
        ] {
            assert_eq!(get(path, "", good).await, ok, "{path}");
        }
        for path in ["/livez/nope", "/livez/shutdown", "/health"] {
            assert_eq!(get(path, "", good).await, None, "{path}");
        }
        let (_, verbose) = get("/readyz", "verbose&exclude=etcd", good).await.unwrap();
        assert!(
            verbose.starts_with("[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n"),
            "{verbose}"
        );
        assert!(verbose.ends_with("[+]shutdown ok\nreadyz check passed\n"), "{verbose}");
    }

    #[tokio::test]
    async fn a_failed_check_fails_its_endpoints() {
        let draining = Health { bootstrapped: true, draining: true };
        assert_eq!(get("/livez", "", draining).await.unwrap().0, 200);
        assert_eq!(get("/readyz", "", draining).await.unwrap().0, 500);
        let starting = Health { bootstrapped: false, draining: false };
        let (code, body) = get("/readyz", "", starting).await.unwrap();
        assert_eq!(code, 500);
        assert!(body.contains("[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n"), "{body}");
        assert_eq!(get("/readyz", "exclude=nope", draining).await.unwrap().0, 500);
    }
}
