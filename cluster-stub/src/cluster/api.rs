//! Puts the API server together and starts it: keys, store, authorizers, registry, documents, listener, first objects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::service_range::first_address;
use super::{ClusterOptions, StartError, host};
use crate::apiserver::admission::{AdmissionChain, RbacEscalation};
use crate::apiserver::authn::{
    Authenticator, CertificateVerifier, RequestHeaderConfig, ServiceAccountTokens, TokenFile, UserInfo,
};
use crate::apiserver::authz::{Authorizer, NodeAuthorizer, PrivilegedGroups, Rbac, RbacKind, Union, follow};
use crate::apiserver::bootstrap::{BootstrapOptions, bootstrap, node_rules};
use crate::apiserver::connections::{Connections, add_token_subresource};
use crate::apiserver::custom::CustomResources;
use crate::apiserver::discovery::Discovery;
use crate::apiserver::legacy_tokens::LegacyTokens;
use crate::apiserver::lookup::Lookup;
use crate::apiserver::metrics::Metrics;
use crate::apiserver::openapi::OpenApi;
use crate::apiserver::registry::{Registry, RegistryConfig};
use crate::apiserver::resources::{self, GroupResource, ResourceOptions};
use crate::apiserver::router::Router;
use crate::apiserver::schema::Schema;
use crate::apiserver::server::{ApiServer, ApiServerConfig, Listener, kubeconfig};
use crate::apiserver::tls::{Pki, PkiError, server_config};
use crate::store::durable::DurableStore;
use crate::store::memory::MemoryStore;
use crate::store::recovery::OpenError;
use crate::store::{Store, compactor};

/// How often a locked data directory is tried again, and after what pause.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// A running API server with what the cluster keeps of it.
pub(super) struct Api {
    pub(super) server: ApiServer,
    pub(super) server_url: String,
    pub(super) kubeconfig: String,
    pub(super) lookup: Lookup,
    pub(super) connections: Arc<Connections>,
    pub(super) pki: Pki,
    pub(super) store: Weak<dyn Store>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

/// Starts an API server; it has all first objects when this returns.
pub(super) async fn start(options: &ClusterOptions) -> Result<Api, StartError> {
    let now = Timestamp::now();
    let range = &options.service_range;
    let service_ip = first_address(range).ok_or_else(|| StartError::ServiceRange { range: range.clone() })?;
    let token_file = options.token_auth_file.as_deref().map(TokenFile::open).transpose()?.unwrap_or_default();
    let store: Arc<dyn Store> = match &options.data_dir {
        None => Arc::new(MemoryStore::new()),
        Some(dir) => Arc::new(open(&dir.join("store")).await?),
    };
    let weak_store = Arc::downgrade(&store);
    let pki = match &options.data_dir {
        None => Pki::in_memory(now)?,
        Some(dir) => Pki::open(&dir.join("pki"), now)?,
    };
    // Last of what may be refused from outside, so that nothing is left behind by a wrong option.
    let listener = Listener::bind(SocketAddr::new(options.bind_address, options.port)).await?;
    let address = listener.address();
    let reached = SocketAddr::new(reachable(address.ip()), address.port());
    let advertised = SocketAddr::new(host::advertised(options.bind_address), address.port());
    let server_url = format!("https://{reached}");
    let host_name = host::name();

    let stop = CancellationToken::new();
    let stop_on_error = stop.clone().drop_guard();
    let draining = CancellationToken::new();
    let mut tasks = vec![tokio::spawn(until(stop.clone(), compactor::run(store.clone(), compactor::INTERVAL)))];

    let lookup = Lookup::default();
    let rbac = Arc::new(Rbac::default());
    let authorizer: Arc<dyn Authorizer> = Arc::new(Union::new(vec![
        Arc::new(PrivilegedGroups),
        Arc::new(NodeAuthorizer::new(lookup.clone(), node_rules())),
        rbac.clone(),
    ]));
    let tokens = ServiceAccountTokens::new(pki.signing_key());
    let verifier = |authority| CertificateVerifier::new(authority).map_err(StartError::Verifier);
    let authenticator = Arc::new(Authenticator {
        client_certificates: verifier(pki.cluster_authority().certificate())?,
        front_proxy: verifier(pki.front_proxy_authority().certificate())?,
        request_header: RequestHeaderConfig::default(),
        token_file,
        service_accounts: tokens.clone(),
        getter: Arc::new(lookup.clone()),
    });
    let connections = Arc::new(Connections {
        authenticator: authenticator.clone(),
        authorizer: authorizer.clone(),
        rbac: rbac.clone(),
        logs: OnceLock::new(),
    });
    let mut served = resources::builtin(&ResourceOptions { service_range: range.clone() });
    add_token_subresource(&mut served, &tokens);
    let mut admission = AdmissionChain::builtin();
    admission.push_configured(&authorizer);
    admission.push_mutating(RbacEscalation::new(rbac.clone(), authorizer.clone()));
    let schema = Schema::builtin();
    let discovery = Arc::new(Discovery::new(reached.to_string(), &served));
    let openapi = Arc::new(OpenApi::new(schema.clone(), &served));
    let group_versions = discovery.group_versions();
    let registry = Registry::start(RegistryConfig {
        store,
        schema,
        resources: served,
        admission,
        connector: connections.clone(),
        story: options.story.clone(),
    })
    .await?;
    lookup.fill(Arc::new(registry.clone()));
    for kind in RbacKind::ALL {
        let resource = GroupResource::of("rbac.authorization.k8s.io", kind.resource());
        if let Some(cache) = registry.cache(&resource) {
            tasks.push(tokio::spawn(follow(rbac.clone(), kind, cache, stop.clone())));
        }
    }

    let custom = CustomResources { registry: registry.clone(), discovery: discovery.clone(), openapi: openapi.clone() };
    tasks.push(tokio::spawn(custom.run(stop.clone())));

    if options.controllers {
        let legacy = LegacyTokens {
            registry: registry.clone(),
            tokens: tokens.clone(),
            ca_pem: pki.cluster_authority().certificate_pem().to_owned(),
        };
        tasks.push(tokio::spawn(legacy.run(stop.clone())));
    }

    let bootstrapped = Arc::new(AtomicBool::new(false));
    let server = ApiServer::new(ApiServerConfig {
        authenticator,
        authorizer,
        handler: Arc::new(Router {
            registry,
            discovery,
            openapi,
            tokens,
            metrics: Metrics::new(now),
            server_url: server_url.clone(),
            bootstrapped: bootstrapped.clone(),
            draining: draining.clone(),
        }),
        story: options.story.clone(),
        draining,
    });
    let serving = pki.issue_serving(&serving_names(&host_name, address.ip(), advertised.ip(), service_ip), now)?;
    let tls = Arc::new(server_config(&serving)?);
    tasks.push(tokio::spawn(listener.serve(Arc::new(server.clone()), tls, stop.clone())));

    let first_objects = BootstrapOptions {
        service_range: range.clone(),
        service_ip,
        advertised,
        client_ca_pem: pki.cluster_authority().certificate_pem().to_owned(),
        front_proxy_ca_pem: pki.front_proxy_authority().certificate_pem().to_owned(),
        host_name,
        group_versions,
    };
    bootstrap(&server.client(UserInfo::admin("system:apiserver")), &first_objects).await?;
    bootstrapped.store(true, Ordering::Release);

    let admin = pki.issue_admin(now).map_err(|error: PkiError| StartError::Pki(error))?;
    let kubeconfig = kubeconfig("plimsoll", &server_url, pki.cluster_authority().certificate_pem(), &admin);
    stop_on_error.disarm();
    Ok(Api { server, server_url, kubeconfig, lookup, connections, pki, store: weak_store, stop, tasks })
}

/// Opens the store in `dir`. A process that is just ending may hold it a moment longer.
async fn open(dir: &Path) -> Result<DurableStore, OpenError> {
    for _ in 0..LOCK_ATTEMPTS {
        match DurableStore::open(dir) {
            Err(OpenError::Locked { .. }) => tokio::time::sleep(LOCK_PAUSE).await,
            opened => return opened,
        }
    }
    DurableStore::open(dir)
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

/// Where this machine reaches a server that listens on `bind`.
fn reachable(bind: IpAddr) -> IpAddr {
    match bind {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    }
}

/// The names that the serving certificate is good for.
fn serving_names(host_name: &str, bind: IpAddr, advertised: IpAddr, service: IpAddr) -> Vec<String> {
    let mut names: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
    ]
    .map(str::to_owned)
    .into();
    for name in [host_name.to_owned(), bind.to_string(), advertised.to_string(), service.to_string()] {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
