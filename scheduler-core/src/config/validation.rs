//! Validation of a whole configuration. Upstream v1.36.2: apis/config/validation/validation.go.
//! What needs the set of registered plugins is checked in `profile`.

use std::collections::BTreeMap;

use super::args_validation::validate_args;
use super::error::{ConfigError, FieldPath};
use super::extender::validate_extenders;
use super::plugins::ExtensionPoint;
use super::{KubeSchedulerConfiguration, KubeSchedulerProfile, LeaderElectionConfiguration};
use jiff::SignedDuration;

/// Removed in-tree plugins, whose names are refused rather than unknown.
const REMOVED_PLUGINS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

impl KubeSchedulerConfiguration {
    /// Checks every rule that needs no plugin registry.
    ///
    /// # Errors
    /// Every fault, in document order.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let root = FieldPath::root();
        let mut errors = Vec::new();
        if self.client_connection.burst < 0 {
            let path = root.child("clientConnection").child("burst");
            errors.push(invalid(path, self.client_connection.burst.to_string(), "must be non-negative"));
        }
        validate_leader_election(&self.leader_election, &root.child("leaderElection"), &mut errors);
        if self.parallelism <= 0 {
            let path = root.child("parallelism");
            errors.push(invalid(path, self.parallelism.to_string(), "should be an integer value greater than zero"));
        }
        validate_profiles(&self.profiles, &root.child("profiles"), &mut errors);
        validate_percentage(Some(self.percentage_of_nodes_to_score), &root, &mut errors);
        if self.pod_initial_backoff_seconds <= 0 {
            let path = root.child("podInitialBackoffSeconds");
            errors.push(invalid(path, self.pod_initial_backoff_seconds.to_string(), "must be greater than 0"));
        }
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds {
            let detail = "must be greater than or equal to podInitialBackoffSeconds";
            let path = root.child("podMaxBackoffSeconds");
            errors.push(invalid(path, self.pod_max_backoff_seconds.to_string(), detail));
        }
        validate_extenders(&self.extenders, &root.child("extenders"), &mut errors);
        ConfigError::from_all(errors)
    }
}

fn invalid(path: FieldPath, value: String, detail: &str) -> ConfigError {
    ConfigError::Invalid { path, value, detail: detail.to_owned() }
}

fn validate_percentage(percentage: Option<i32>, parent: &FieldPath, errors: &mut Vec<ConfigError>) {
    if let Some(percentage) = percentage.filter(|percentage| !(0..=100).contains(percentage)) {
        let path = parent.child("percentageOfNodesToScore");
        errors.push(invalid(path, percentage.to_string(), "not in valid range [0-100]"));
    }
}

fn validate_leader_election(config: &LeaderElectionConfiguration, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    if !config.leader_elect {
        return;
    }
    for (name, value) in [
        ("leaseDuration", config.lease_duration),
        ("renewDeadline", config.renew_deadline),
        ("retryPeriod", config.retry_period),
    ] {
        if value <= SignedDuration::ZERO {
            errors.push(invalid(path.child(name), format!("{value:#}"), "must be greater than zero"));
        }
    }
    if config.lease_duration <= config.renew_deadline {
        let value = format!("{:#}", config.lease_duration);
        errors.push(invalid(path.child("leaseDuration"), value, "must be greater than renewDeadline"));
    }
    if config.resource_lock != "leases" {
        errors.push(ConfigError::NotSupported {
            path: path.child("resourceLock"),
            value: config.resource_lock.clone(),
            supported: vec!["leases"],
        });
    }
}

fn validate_profiles(profiles: &[KubeSchedulerProfile], path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let mut seen = BTreeMap::new();
    for (index, profile) in profiles.iter().enumerate() {
        let path = path.index(index);
        let name = profile.scheduler_name.as_str();
        if name.is_empty() {
            let detail = "the name that pods of this profile ask for".to_owned();
            errors.push(ConfigError::Required { path: path.child("schedulerName"), detail });
        }
        validate_percentage(profile.percentage_of_nodes_to_score, &path, errors);
        validate_plugins(profile, &path, errors);
        if seen.insert(name, index).is_some() {
            errors.push(ConfigError::Duplicate { path: path.child("schedulerName"), value: name.to_owned() });
        }
    }
    validate_common_queue_sort(profiles, path, errors);
}

fn validate_plugins(profile: &KubeSchedulerProfile, path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let removed = |name: &str| REMOVED_PLUGINS.contains(&name);
    for point in ExtensionPoint::ALL {
        let path = path.child("plugins").child(point.field()).child("enabled");
        for (index, plugin) in profile.plugins.at(point).enabled.iter().enumerate() {
            if removed(&plugin.name) {
                errors.push(invalid(path.index(index), format!("{:?}", plugin.name), "the plugin was removed"));
            }
        }
    }
    let enabled = profile.plugins.names();
    for (index, config) in profile.plugin_config.iter().enumerate() {
        let path = path.child("pluginConfig").index(index);
        if profile.plugin_config[..index].iter().any(|earlier| earlier.name == config.name) {
            errors.push(ConfigError::Duplicate { path: path.clone(), value: config.name.clone() });
        }
        if removed(&config.name) {
            errors.push(invalid(path, format!("{:?}", config.name), "the plugin was removed"));
        } else if config.name != "NodeResourcesFit" || enabled.contains("NodeResourcesFit") {
            // Upstream checks the arguments of NodeResourcesFit only when it builds the plugin.
            validate_args(&config.args, &path.child("args"), errors);
        }
    }
}

/// One queue serves all profiles.
fn validate_common_queue_sort(profiles: &[KubeSchedulerProfile], path: &FieldPath, errors: &mut Vec<ConfigError>) {
    let Some((first, others)) = profiles.split_first() else { return };
    let canon = first.plugins.at(ExtensionPoint::QueueSort);
    let set_path = |index| path.index(index).child("plugins").child("queueSort");
    if canon.enabled.len() > 1 {
        let detail = "only one queue sort plugin can be enabled";
        errors.push(invalid(set_path(0).child("enabled"), canon.enabled.len().to_string(), detail));
    }
    let queue_sort = canon.enabled.first().map(|plugin| plugin.name.as_str());
    for (index, profile) in others.iter().enumerate() {
        let index = index + 1;
        let set = profile.plugins.at(ExtensionPoint::QueueSort);
        if set != canon {
            let names: Vec<_> = set.enabled.iter().map(|plugin| plugin.name.as_str()).collect();
            let value = format!("enabled {names:?}, disabled {:?}", set.disabled);
            errors.push(invalid(set_path(index), value, "must be the same for all profiles"));
        }
        if let Some(name) = queue_sort
            && profile.args(name) != first.args(name)
        {
            let path = path.index(index).child("pluginConfig");
            errors.push(invalid(
                path,
                name.to_owned(),
                "the arguments of the queue sort plugin must be the same for all profiles",
            ));
        }
    }
}
