//! The API server over real HTTPS: who gets in, who may do what, what a restart keeps, what a bad start says.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;

use cluster_stub::apiserver::authn::UserInfo;
use cluster_stub::cluster::{Cluster, ClusterOptions, StartError};
use http::Request;
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// Only the API server: nothing else writes.
fn bare() -> ClusterOptions {
    ClusterOptions { controllers: false, kubelet: false, nodes: Vec::new(), ..ClusterOptions::default() }
}

async fn config(cluster: &Cluster) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig()).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a usable kubeconfig")
}

async fn admin(cluster: &Cluster) -> Client {
    Client::try_from(config(cluster).await).expect("a client")
}

/// A client that trusts the server and shows `token`, or nothing.
async fn with_token(cluster: &Cluster, token: Option<&str>) -> Client {
    let mut config = config(cluster).await;
    config.auth_info = kube::config::AuthInfo { token: token.map(|t| t.to_owned().into()), ..Default::default() };
    Client::try_from(config).expect("a client")
}

async fn get(client: &Client, path: &str) -> Result<Value, (u16, String)> {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    client.request::<Value>(request).await.map_err(|error| match error {
        kube::Error::Api(status) => (status.code, status.message),
        other => (0, other.to_string()),
    })
}

fn token_file(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.csv");
    std::fs::File::create(&path).and_then(|mut file| file.write_all(lines.as_bytes())).expect("a file");
    (dir, path)
}

#[tokio::test]
async fn a_fresh_cluster_has_its_objects_and_its_admin_gets_in() {
    let cluster = Cluster::start(bare()).await.expect("a cluster");
    let client = admin(&cluster).await;
    let namespaces = Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await.expect("namespaces");
    let names: Vec<_> = namespaces.items.iter().filter_map(|ns| ns.metadata.name.as_deref()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let roles = Api::<ClusterRole>::all(client.clone()).list(&ListParams::default()).await.expect("roles");
    assert_eq!(roles.items.len(), 69);
    let service = Api::<Service>::namespaced(client.clone(), "default").get("kubernetes").await.expect("the service");
    assert_eq!(service.spec.and_then(|spec| spec.cluster_ip).as_deref(), Some("10.96.0.1"));
    let me = Api::<SelfSubjectReview>::all(client).create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = me.expect("a review").status.and_then(|status| status.user_info).expect("a user");
    assert_eq!(user.username.as_deref(), Some("kubernetes-admin"));
    assert_eq!(user.groups.unwrap_or_default(), ["system:masters", "system:authenticated"]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn credentials_decide_who_gets_in() {
    let (_dir, path) = token_file("tok-alice,alice,alice-uid,\"dev,ops\"\n");
    let cluster = Cluster::start(ClusterOptions { token_auth_file: Some(path), ..bare() }).await.expect("a cluster");
    let pods = "/api/v1/namespaces/default/pods";
    let nobody = with_token(&cluster, None).await;
    assert!(get(&nobody, "/version").await.is_ok());
    assert_eq!(
        get(&nobody, pods).await,
        Err((403, r#"pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "default""#.into()))
    );
    let wrong = with_token(&cluster, Some("wrong")).await;
    assert_eq!(get(&wrong, "/version").await, Err((401, "Unauthorized".into())));
    let alice = with_token(&cluster, Some("tok-alice")).await;
    assert!(get(&alice, "/api").await.is_ok());
    assert_eq!(
        get(&alice, pods).await,
        Err((
            403,
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default""#
                .into()
        ))
    );
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_service_account_gets_a_token_and_what_its_roles_allow() {
    let cluster = Cluster::start(bare()).await.expect("a cluster");
    let client = admin(&cluster).await;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    let robot: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "robot"}})).expect("an account");
    accounts.create(&PostParams::default(), &robot).await.expect("the account");
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let issued = accounts.create_token_request("robot", &PostParams::default(), &request).await.expect("a token");
    let token = issued.status.and_then(|status| status.token).expect("a token");

    let review =
        TokenReview { spec: TokenReviewSpec { token: token.clone(), ..Default::default() }, ..Default::default() };
    let review =
        Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await.expect("a review");
    let status = review.status.expect("a status");
    assert_eq!(status.authenticated, Some(true));
    assert_eq!(status.user.and_then(|user| user.username).as_deref(), Some("system:serviceaccount:default:robot"));

    let robot = with_token(&cluster, Some(&token)).await;
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(get(&robot, pods).await.map_err(|(code, _)| code), Err(403));
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "rv"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    }))
    .expect("a binding");
    Api::<RoleBinding>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &binding)
        .await
        .expect("the binding");
    let mut allowed = false;
    for _ in 0..500 {
        allowed = get(&robot, pods).await.is_ok();
        if allowed {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(allowed, "the binding counts within seconds");
    accounts.delete("robot", &Default::default()).await.expect("the account goes");
    let mut refused = false;
    for _ in 0..500 {
        refused = get(&robot, pods).await.map_err(|(code, _)| code) == Err(401);
        if refused {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(refused, "a token ends with its account");
    cluster.shutdown().await;
}

#[tokio::test]
async fn nobody_grants_more_than_he_holds() {
    let cluster = Cluster::start(bare()).await.expect("a cluster");
    let client = admin(&cluster).await;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}],
    }))
    .expect("a binding");
    Api::<RoleBinding>::namespaced(client, "default")
        .create(&PostParams::default(), &binding)
        .await
        .expect("the binding");
    let eve = cluster.client(UserInfo::authenticated("eve", [""; 0]));
    let bindings = Api::<RoleBinding>::namespaced(eve, "default");
    let grant = |role: &str| -> RoleBinding {
        let mut grant = binding.clone();
        grant.metadata.name = Some(format!("to-{role}"));
        grant.role_ref.name = role.to_owned();
        grant
    };
    let mut outcome = bindings.create(&PostParams::default(), &grant("view")).await;
    for _ in 0..500 {
        if outcome.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        outcome = bindings.create(&PostParams::default(), &grant("view")).await;
    }
    outcome.expect("eve holds all that view grants");
    let error = bindings.create(&PostParams::default(), &grant("cluster-admin")).await.expect_err("an escalation");
    let kube::Error::Api(status) = error else { panic!("want a Status, got {error}") };
    assert_eq!(status.code, 403);
    let want = "rolebindings.rbac.authorization.k8s.io \"to-cluster-admin\" is forbidden: \
                user \"eve\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n";
    assert!(status.message.starts_with(want), "{}", status.message);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_restart_keeps_objects_keys_and_tokens() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || ClusterOptions { data_dir: Some(dir.path().to_owned()), ..bare() };
    let first = Cluster::start(options()).await.expect("a cluster");
    let client = admin(&first).await;
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "kept"}, "data": {"a": "b"}})).expect("a map");
    Api::<ConfigMap>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &map)
        .await
        .expect("the map");
    let before = get(&client, "/api/v1/namespaces/default/configmaps/kept").await.expect("the map");
    drop(client);
    first.shutdown().await;
    let second = Cluster::start(options()).await.expect("the cluster again");
    let client = admin(&second).await;
    assert_eq!(get(&client, "/api/v1/namespaces/default/configmaps/kept").await.expect("the map"), before);
    second.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_watches() {
    use futures::StreamExt as _;
    let cluster = Cluster::start(bare()).await.expect("a cluster");
    let pods = Api::<Pod>::all(admin(&cluster).await);
    let mut events = pods.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    let ended = tokio::spawn(async move { while events.next().await.is_some() {} });
    cluster.shutdown().await;
    tokio::time::timeout(std::time::Duration::from_secs(60), ended)
        .await
        .expect("the watch ends")
        .expect("without a panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_holds_against_clients_that_create_at_once() {
    use futures::StreamExt as _;
    let cluster = Cluster::start(ClusterOptions { controllers: true, ..bare() }).await.expect("a cluster");
    let client = admin(&cluster).await;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    let quotas = Api::<ResourceQuota>::namespaced(client.clone(), "default");
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, async {
        while accounts.get("default").await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("a controller makes the service account");
    for round in 0..4 {
        let name = format!("q{round}");
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": {"pods": (5 * (round + 1)).to_string()}}});
        let quota = serde_json::from_value(quota).expect("a quota");
        quotas.create(&PostParams::default(), &quota).await.expect("a quota");
        tokio::time::timeout(patience, async {
            while quotas.get(&name).await.expect("it is there").status.is_none_or(|status| status.used.is_none()) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("a controller counts");
        let pods = Api::<Pod>::namespaced(client.clone(), "default");
        let made = futures::stream::iter(0..24)
            .map(|index| {
                let pod = json!({
                    "metadata": {"name": format!("p{round}-{index}")},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                });
                let (pods, pod) = (pods.clone(), serde_json::from_value::<Pod>(pod).expect("a pod"));
                async move { pods.create(&PostParams::default(), &pod).await.is_ok() }
            })
            .buffer_unordered(4)
            .filter(|made| std::future::ready(*made))
            .count()
            .await;
        assert_eq!(made, 5, "round {round}");
        // The next one counts these, too.
        quotas.delete(&name, &DeleteParams::default()).await.expect("it goes");
    }
    cluster.shutdown().await;
}

/// A frame of HTTP/2: RFC 9113, section 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn a_client_may_give_up_many_requests_at_once() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const GO_AWAY: u8 = 7;
    // Both END_STREAM and END_HEADERS.
    const WHOLE: u8 = 5;
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    // By the static table of HPACK: GET, https, /, and the authority x.
    const GET_ROOT: [u8; 6] = [0x82, 0x87, 0x84, 0x41, 0x01, b'x'];
    const N_GIVEN_UP: u32 = 200;

    let cluster = Cluster::start(bare()).await.expect("a cluster");
    let mut roots = rustls::RootCertStore::empty();
    for certificate in config(&cluster).await.root_cert.expect("the kubeconfig has one") {
        roots.add(certificate.into()).expect("a certificate");
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut tls = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let address = cluster.server_url().trim_start_matches("https://").to_owned();
    let tcp = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").expect("an address");
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls));
    let mut stream = connector.connect(name, tcp).await.expect("a connection");

    let mut burst = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    burst.extend(frame(SETTINGS, 0, 0, &[]));
    for stream in (0..N_GIVEN_UP).map(|index| 2 * index + 1) {
        burst.extend(frame(HEADERS, WHOLE, stream, &GET_ROOT));
        burst.extend(frame(RESET, 0, stream, &CANCEL));
    }
    let last = 2 * N_GIVEN_UP + 1;
    burst.extend(frame(HEADERS, WHOLE, last, &GET_ROOT));
    stream.write_all(&burst).await.expect("the server reads");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("the connection stays");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.expect("the connection stays");
        assert_ne!(head[3], GO_AWAY, "{payload:?}");
        if (head[3], id) == (HEADERS, last) {
            break;
        }
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn bad_options_say_what_is_wrong() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let error = Cluster::start(ClusterOptions { port, ..bare() }).await.expect_err("the port is taken");
    assert!(matches!(&error, StartError::Bind(_)) && !error.is_bad_input(), "{error}");
    assert!(
        error.to_string().starts_with(&format!("cannot listen on 127.0.0.1:{port}: the port is in use")),
        "{error}"
    );

    let (_dir, path) = token_file("a,b,c\nx,y\n");
    let error = Cluster::start(ClusterOptions { token_auth_file: Some(path), ..bare() }).await.expect_err("a bad file");
    assert!(error.is_bad_input() && error.to_string().contains("line 2: want at least 3 columns"), "{error}");

    let missing = ClusterOptions { token_auth_file: Some("/no/such/file".into()), ..bare() };
    let error = Cluster::start(missing).await.expect_err("no file");
    assert_eq!(error.to_string(), "cannot read the token file /no/such/file");

    let error =
        Cluster::start(ClusterOptions { service_range: "10.0.0.0".into(), ..bare() }).await.expect_err("no CIDR");
    assert_eq!(
        error.to_string(),
        r#"service range "10.0.0.0": want a CIDR with room for addresses, like 10.96.0.0/16"#
    );

    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = ClusterOptions { data_dir: Some(file.path().join("below")), ..bare() };
    let error = Cluster::start(options).await.expect_err("a file is no directory");
    assert!(matches!(error, StartError::DataDirectory(_)), "{error}");
}
