//! KubeSchedulerConfiguration `kubescheduler.config.k8s.io/v1`: text to typed, defaulted, validated configuration, as v1.36.2 reads it.
//! Turning a profile's plugin sets into lists per extension point is in `profile`; no plugin is built here.
//!
//! ```
//! use scheduler_core::config::KubeSchedulerConfiguration;
//!
//! let config = KubeSchedulerConfiguration::from_text("
//! apiVersion: kubescheduler.config.k8s.io/v1
//! kind: KubeSchedulerConfiguration
//! profiles:
//! - schedulerName: packer
//!   pluginConfig:
//!   - name: NodeResourcesFit
//!     args: {scoringStrategy: {type: MostAllocated}}
//! ").unwrap();
//! assert_eq!(config.profiles[0].scheduler_name, "packer");
//! assert_eq!(config.percentage_of_nodes_to_score, 0); // adaptive, since the document leaves it out
//! ```

use jiff::SignedDuration;
use serde_json::Value;

pub mod affinity;
pub mod args;
mod args_validation;
mod decode;
pub mod error;
pub mod extender;
pub mod in_tree;
mod names;
pub mod plugins;
pub mod profile;
pub mod spread;
mod validation;

use args::{PluginArgs, PluginConfig};
use decode::{Decoded, Fields, boolean, duration, float32, int32, int64, string};
use error::{ConfigError, FieldPath};
use extender::{Extender, decode_extender};
use plugins::Plugins;

/// The only served `apiVersion`.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The only served `kind`.
pub const KIND: &str = "KubeSchedulerConfiguration";
/// `schedulerName` of a single profile that names none.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// The whole configuration, defaulted and valid. Upstream v1.36.2: apis/config/types.go.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeSchedulerConfiguration {
    /// Threads of one cycle, at least 1. Default 16.
    pub parallelism: i32,
    /// Election of the one active replica.
    pub leader_election: LeaderElectionConfiguration,
    /// How to reach the API server.
    pub client_connection: ClientConnectionConfiguration,
    /// Whether to serve profiles of the process. Default true.
    pub enable_profiling: bool,
    /// Whether to profile lock contention too. Default as `enable_profiling`.
    pub enable_contention_profiling: bool,
    /// Per cent of the nodes after whose number the search for feasible nodes stops, 0..=100. 0 is adaptive.
    pub percentage_of_nodes_to_score: i32,
    /// First back-off of a pod, seconds, at least 1. Default 1.
    pub pod_initial_backoff_seconds: i64,
    /// Longest back-off, seconds, at least the first. Default 10.
    pub pod_max_backoff_seconds: i64,
    /// One scheduler each; never empty, names are unique.
    pub profiles: Vec<KubeSchedulerProfile>,
    /// HTTP extenders.
    pub extenders: Vec<Extender>,
    /// Whether a replica that is not the leader keeps no caches. Default false.
    pub delay_cache_until_active: bool,
}

/// One scheduler: pods choose it by `spec.schedulerName`.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeSchedulerProfile {
    /// The name that pods ask for.
    pub scheduler_name: String,
    /// Overrides the global percentage; `None` takes it.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The default plugins merged with the profile's own.
    pub plugins: Plugins,
    /// Arguments: those of the document in order, then the defaults of the other enabled plugins.
    pub plugin_config: Vec<PluginConfig>,
}

/// Upstream v1.36.2: component-base/config LeaderElectionConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfiguration {
    /// Default true.
    pub leader_elect: bool,
    /// How long a lease holds without renewal. Default 15 s.
    pub lease_duration: SignedDuration,
    /// How long the leader tries to renew before it gives up, less than `lease_duration`. Default 10 s.
    pub renew_deadline: SignedDuration,
    /// Pause between tries. Default 2 s.
    pub retry_period: SignedDuration,
    /// `leases` is the only lock.
    pub resource_lock: String,
    /// Name of the Lease. Default `kube-scheduler`: a second scheduler needs another.
    pub resource_name: String,
    /// Namespace of the Lease. Default `kube-system`.
    pub resource_namespace: String,
}

/// Upstream v1.36.2: component-base/config ClientConnectionConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnectionConfiguration {
    /// Path of a kubeconfig; empty means the one of the command line or of the cluster.
    pub kubeconfig: String,
    /// `Accept` header; empty is the client's own.
    pub accept_content_types: String,
    /// `Content-Type` of what is sent. Default `application/vnd.kubernetes.protobuf`.
    pub content_type: String,
    /// Queries per second. Default 50.
    pub qps: f32,
    /// Queries at once above the rate, 0 or more. Default 100.
    pub burst: i32,
}

impl Default for KubeSchedulerConfiguration {
    /// The configuration without a file: the default profile, and every node is scored (percentage 100).
    /// Upstream's would be the adaptive percentage; a document that says nothing has that.
    fn default() -> Self {
        let mut config = Self::decode(&Value::Null).expect("nothing is read from an absent document");
        config.percentage_of_nodes_to_score = 100;
        config
    }
}

impl KubeSchedulerConfiguration {
    /// Reads a YAML or JSON document strictly, fills in the defaults and validates.
    ///
    /// # Errors
    /// Every fault that was found, with the path of its field. An unknown field or a repeated key is one.
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        let document: Value =
            serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax { detail: error.to_string() })?;
        Self::from_value(&document)
    }

    /// As [`from_text`](Self::from_text), from a parsed document.
    ///
    /// # Errors
    /// As [`from_text`](Self::from_text).
    pub fn from_value(document: &Value) -> Result<Self, ConfigError> {
        expect_type(document.get("apiVersion"), API_VERSION, FieldPath::root().child("apiVersion"))?;
        expect_type(document.get("kind"), KIND, FieldPath::root().child("kind"))?;
        let config = Self::decode(document)?;
        config.validate()?;
        Ok(config)
    }

    fn decode(document: &Value) -> Decoded<Self> {
        let mut fields = Fields::new(document, FieldPath::root())?;
        fields.raw("apiVersion");
        fields.raw("kind");
        let enable_profiling = fields.get("enableProfiling", boolean)?.unwrap_or(true);
        let config = Self {
            parallelism: fields.get("parallelism", int32)?.unwrap_or(16),
            leader_election: LeaderElectionConfiguration::decode(
                fields.raw("leaderElection").unwrap_or(&Value::Null),
                FieldPath::root().child("leaderElection"),
            )?,
            client_connection: ClientConnectionConfiguration::decode(
                fields.raw("clientConnection").unwrap_or(&Value::Null),
                FieldPath::root().child("clientConnection"),
            )?,
            enable_profiling,
            enable_contention_profiling: fields.get("enableContentionProfiling", boolean)?.unwrap_or(enable_profiling),
            percentage_of_nodes_to_score: fields.get("percentageOfNodesToScore", int32)?.unwrap_or(0),
            pod_initial_backoff_seconds: fields.get("podInitialBackoffSeconds", int64)?.unwrap_or(1),
            pod_max_backoff_seconds: fields.get("podMaxBackoffSeconds", int64)?.unwrap_or(10),
            profiles: decode_profiles(&mut fields)?,
            extenders: fields.list("extenders", decode_extender)?.unwrap_or_default(),
            delay_cache_until_active: fields.get("delayCacheUntilActive", boolean)?.unwrap_or(false),
        };
        fields.finish()?;
        Ok(config)
    }

    /// For hosts that call no extenders: leaving them out would change decisions in silence.
    ///
    /// # Errors
    /// There is an extender.
    pub fn refuse_extenders(&self) -> Result<(), ConfigError> {
        let path = FieldPath::root().child("extenders");
        let errors = self.extenders.iter().enumerate().map(|(index, extender)| ConfigError::ExtenderUnavailable {
            path: path.index(index),
            url_prefix: extender.url_prefix.clone(),
        });
        ConfigError::from_all(errors.collect())
    }
}

/// `got` must be the text `expected`.
fn expect_type(got: Option<&Value>, expected: &str, path: FieldPath) -> Result<(), ConfigError> {
    if got.and_then(Value::as_str) == Some(expected) {
        return Ok(());
    }
    let got = got.map_or_else(|| "nothing".to_owned(), Value::to_string);
    Err(ConfigError::UnexpectedType { path, got, expected: expected.to_owned() })
}

fn decode_profiles(fields: &mut Fields<'_>) -> Decoded<Vec<KubeSchedulerProfile>> {
    let mut profiles = fields.list("profiles", KubeSchedulerProfile::decode)?.unwrap_or_default();
    if profiles.is_empty() {
        profiles.push(KubeSchedulerProfile::decode(&Value::Null, FieldPath::root())?);
    }
    // Several profiles must each say their name; validation asks for it.
    if let [(profile, None)] = &mut profiles[..] {
        profile.scheduler_name = DEFAULT_SCHEDULER_NAME.to_owned();
    }
    Ok(profiles.into_iter().map(|(profile, _)| profile).collect())
}

impl KubeSchedulerProfile {
    /// The profile and, apart, the name that the document gives it.
    fn decode(value: &Value, path: FieldPath) -> Decoded<(Self, Option<String>)> {
        let mut fields = Fields::new(value, path)?;
        let scheduler_name = fields.get("schedulerName", string)?;
        let percentage_of_nodes_to_score = fields.get("percentageOfNodesToScore", int32)?;
        let own = fields.get("plugins", Plugins::decode)?.unwrap_or_default();
        let plugins = Plugins::defaults().merged_with(&own);
        let mut plugin_config = fields.list("pluginConfig", PluginConfig::decode)?.unwrap_or_default();
        fields.finish()?;
        for name in plugins.names() {
            if !plugin_config.iter().any(|config| config.name == name) {
                let args = PluginArgs::defaults(name);
                plugin_config.extend(args.map(|args| PluginConfig { name: name.to_owned(), args }));
            }
        }
        let name = scheduler_name.clone().unwrap_or_default();
        let profile = Self { scheduler_name: name, percentage_of_nodes_to_score, plugins, plugin_config };
        Ok((profile, scheduler_name))
    }

    /// The arguments of `plugin`; `None` if it has none here.
    pub fn args(&self, plugin: &str) -> Option<&PluginArgs> {
        self.plugin_config.iter().find(|config| config.name == plugin).map(|config| &config.args)
    }
}

impl LeaderElectionConfiguration {
    fn decode(value: &Value, path: FieldPath) -> Decoded<Self> {
        let mut fields = Fields::new(value, path)?;
        let mut text = |name, default: &str| {
            Ok(fields.get(name, string)?.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned()))
        };
        let resource_lock = text("resourceLock", "leases")?;
        let resource_name = text("resourceName", "kube-scheduler")?;
        let resource_namespace = text("resourceNamespace", "kube-system")?;
        let mut seconds = |name, default| {
            let value = fields.get(name, duration)?.filter(|value| !value.is_zero());
            Ok(value.unwrap_or(SignedDuration::from_secs(default)))
        };
        let lease_duration = seconds("leaseDuration", 15)?;
        let renew_deadline = seconds("renewDeadline", 10)?;
        let retry_period = seconds("retryPeriod", 2)?;
        let leader_elect = fields.get("leaderElect", boolean)?.unwrap_or(true);
        fields.finish()?;
        Ok(Self {
            leader_elect,
            lease_duration,
            renew_deadline,
            retry_period,
            resource_lock,
            resource_name,
            resource_namespace,
        })
    }
}

impl ClientConnectionConfiguration {
    fn decode(value: &Value, path: FieldPath) -> Decoded<Self> {
        let mut fields = Fields::new(value, path)?;
        let mut text = |name| Ok(fields.get(name, string)?.unwrap_or_default());
        let kubeconfig = text("kubeconfig")?;
        let accept_content_types = text("acceptContentTypes")?;
        let mut content_type: String = text("contentType")?;
        if content_type.is_empty() {
            "application/vnd.kubernetes.protobuf".clone_into(&mut content_type);
        }
        let qps = fields.get("qps", float32)?.filter(|qps| *qps != 0.0).unwrap_or(50.0);
        let burst = fields.get("burst", int32)?.filter(|burst| *burst != 0).unwrap_or(100);
        fields.finish()?;
        Ok(Self { kubeconfig, accept_content_types, content_type, qps, burst })
    }
}
