//! Scheduler extenders as the configuration writes them: data, decoding, validation. Calling them is not here.

use std::borrow::Cow;

use jiff::SignedDuration;
use serde_json::Value;

use super::args::PluginArgs;
use super::decode::{Decoded, Fields, boolean, duration, int64, string};
use super::error::{ConfigError, FieldPath};
use super::names::{is_extended_resource, qualified_name_fault};
use super::{KubeSchedulerConfiguration, KubeSchedulerProfile};

/// The plugin that counts resources.
const FIT: &str = "NodeResourcesFit";

/// An HTTP service that filters, scores, preempts or binds beside the plugins. Upstream v1.36.2: apis/config/types.go Extender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    /// Where it listens; verbs are appended.
    pub url_prefix: String,
    /// Empty: it does not filter.
    pub filter_verb: String,
    /// Empty: it has no say in preemption.
    pub preempt_verb: String,
    /// Empty: it does not score.
    pub prioritize_verb: String,
    /// Factor of its scores, positive if it scores.
    pub weight: i64,
    /// Empty: it does not bind. At most one extender binds.
    pub bind_verb: String,
    /// Whether to speak TLS.
    pub enable_https: bool,
    /// Certificates and names for TLS.
    pub tls_config: Option<ExtenderTlsConfig>,
    /// Limit of one call; zero stands for 5 seconds, and a negative time for none.
    pub http_timeout: SignedDuration,
    /// Whether node names suffice in calls, since it keeps nodes itself.
    pub node_cache_capable: bool,
    /// Only pods that request one of these are sent; all if empty.
    pub managed_resources: Vec<ExtenderManagedResource>,
    /// Whether a failed call lets the pod pass.
    pub ignorable: bool,
}

/// A resource that an extender looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderManagedResource {
    /// Name of the extended resource.
    pub name: String,
    /// Whether NodeResourcesFit leaves it out.
    pub ignored_by_scheduler: bool,
}

/// TLS settings of an extender; `*_data` fields hold base64 text and win over files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are upstream's fields")]
pub struct ExtenderTlsConfig {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

impl KubeSchedulerConfiguration {
    /// The profiles as they are to be built: their NodeResourcesFit leaves out the resources that extenders say the scheduler
    /// ignores, instead of those of its own arguments. Upstream v1.36.2: scheduler.go buildExtenders.
    pub(crate) fn profiles_beside_extenders(&self) -> Result<Cow<'_, [KubeSchedulerProfile]>, ConfigError> {
        let managed = self.extenders.iter().flat_map(|extender| &extender.managed_resources);
        let ignored: Vec<&str> =
            managed.filter(|resource| resource.ignored_by_scheduler).map(|resource| resource.name.as_str()).collect();
        if ignored.is_empty() {
            return Ok(Cow::Borrowed(&self.profiles));
        }
        let mut profiles = self.profiles.clone();
        for profile in &mut profiles {
            let config = profile.plugin_config.iter_mut().find(|config| config.name == FIT);
            let Some(PluginArgs::NodeResourcesFit(args)) = config.map(|config| &mut config.args) else {
                return Err(ConfigError::Plugin {
                    profile: profile.scheduler_name.clone(),
                    plugin: FIT.to_owned(),
                    detail: "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config".to_owned(),
                });
            };
            args.ignored_resources = ignored.iter().map(|&name| name.to_owned()).collect();
        }
        Ok(Cow::Owned(profiles))
    }
}

pub(super) fn decode_extender(value: &Value, path: FieldPath) -> Decoded<Extender> {
    let mut fields = Fields::new(value, path)?;
    let mut text = |name: &'static str| Ok(fields.get(name, string)?.unwrap_or_default());
    let mut extender = Extender {
        url_prefix: text("urlPrefix")?,
        filter_verb: text("filterVerb")?,
        preempt_verb: text("preemptVerb")?,
        prioritize_verb: text("prioritizeVerb")?,
        bind_verb: text("bindVerb")?,
        ..Extender::default()
    };
    extender.weight = fields.get("weight", int64)?.unwrap_or(0);
    extender.enable_https = fields.get("enableHTTPS", boolean)?.unwrap_or(false);
    extender.tls_config = fields.get("tlsConfig", decode_tls)?;
    extender.http_timeout = fields.get("httpTimeout", duration)?.unwrap_or_default();
    extender.node_cache_capable = fields.get("nodeCacheCapable", boolean)?.unwrap_or(false);
    let managed_resources = fields.list("managedResources", |value, path| {
        let mut fields = Fields::new(value, path)?;
        let name = fields.get("name", string)?.unwrap_or_default();
        let ignored_by_scheduler = fields.get("ignoredByScheduler", boolean)?.unwrap_or(false);
        fields.finish()?;
        Ok(ExtenderManagedResource { name, ignored_by_scheduler })
    })?;
    extender.managed_resources = managed_resources.unwrap_or_default();
    extender.ignorable = fields.get("ignorable", boolean)?.unwrap_or(false);
    fields.finish()?;
    Ok(extender)
}

fn decode_tls(value: &Value, path: FieldPath) -> Decoded<ExtenderTlsConfig> {
    let mut fields = Fields::new(value, path)?;
    let insecure = fields.get("insecure", boolean)?.unwrap_or(false);
    let mut text = |name: &'static str| Ok(fields.get(name, string)?.unwrap_or_default());
    let tls = ExtenderTlsConfig {
        insecure,
        server_name: text("serverName")?,
        cert_file: text("certFile")?,
        key_file: text("keyFile")?,
        ca_file: text("caFile")?,
        cert_data: text("certData")?,
        key_data: text("keyData")?,
        ca_data: text("caData")?,
    };
    fields.finish()?;
    Ok(tls)
}

/// Upstream v1.36.2: validation.go validateExtenders.
pub(super) fn validate_extenders(extenders: &[Extender], path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, extender) in extenders.iter().enumerate() {
        let path = path.index(index);
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let detail = "must have a positive weight applied to it".to_owned();
            errors.push(ConfigError::Invalid {
                path: path.child("weight"),
                value: extender.weight.to_string(),
                detail,
            });
        }
        for (index, resource) in extender.managed_resources.iter().enumerate() {
            let name = resource.name.as_str();
            let path = path.child("managedResources").index(index).child("name");
            let mut invalid = |detail: &str| {
                let (path, value) = (path.clone(), format!("{name:?}"));
                errors.push(ConfigError::Invalid { path, value, detail: detail.to_owned() });
            };
            match qualified_name_fault(name) {
                Some(fault) => invalid(fault),
                None if !is_extended_resource(name) => invalid("is an invalid extended resource name"),
                None => {}
            }
            if seen.contains(&name) {
                invalid("duplicate extender managed resource name");
            }
            seen.push(name);
        }
    }
    let n_binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if n_binders > 1 {
        errors.push(ConfigError::Invalid {
            path: path.clone(),
            value: format!("\"found {n_binders} extenders implementing bind\""),
            detail: "only one extender can implement bind".to_owned(),
        });
    }
}
