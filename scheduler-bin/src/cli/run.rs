//! `plimsoll run`: the scheduler on its own, against any cluster's kubeconfig.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use scheduler_core::config::{KubeSchedulerConfiguration, LeaderElectionConfiguration};
use scheduler_core::framework::Registry;

use super::{EXIT_CODES, Failure, termination, with_causes};
use crate::live::connect::{self, connect};
use crate::live::{LeaderElection, LiveError, LiveScheduler, Options, Record};

/// The schedulerName that is served when nothing else is said.
const DEFAULT_NAME: &str = "plimsoll";

#[derive(Args)]
#[command(
    long_about = "Schedule the pods of a live cluster, next to its own scheduler.\n\n\
        Only pods whose spec.schedulerName is served here are touched; all others count for what they use. \
        Without --config and --scheduler-name it serves `plimsoll`, scores every node and holds no Lease. \
        With --config everything left out there has kube-scheduler's default, leader election included.",
    after_help = format!("Examples:\n  plimsoll run --kubeconfig ~/.kube/config\n  plimsoll run --config scheduler.yaml --metrics-bind-address 127.0.0.1:10259\n\n{EXIT_CODES}")
)]
pub(crate) struct Run {
    /// Kubeconfig of the cluster. Default: the variable KUBECONFIG, the pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The spec.schedulerName to serve; with --config it renames its only profile.
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,

    /// Whether to hold a Lease while scheduling; overrides the configuration.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: Option<bool>,

    /// Serve /healthz, /livez, /readyz and /metrics on this address.
    #[arg(long, value_name = "HOST:PORT")]
    metrics_bind_address: Option<SocketAddr>,

    /// Keep everything that the engine hears and decides in this file, so that `plimsoll simulate --replay` can decide it again.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Seed of the draws among equally good nodes. Default: random.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Run {
    /// Schedules until it is told to end.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let configuration = configuration(self.config.as_deref(), self.scheduler_name.as_deref())?;
        let election = self.election(&configuration);
        let kubeconfig = self.kubeconfig.clone().or_else(|| {
            let path = &configuration.client_connection.kubeconfig;
            (!path.is_empty()).then(|| PathBuf::from(path))
        });
        let terminated =
            termination().map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;

        let connection = connect(kubeconfig.as_deref())
            .await
            .map_err(|error| if error.is_bad_input() { Failure::bad_input(error) } else { Failure::failed(error) })?;
        let missing = connect::missing_permissions(&connection.client, connect::REQUIRED).await;
        if !missing.is_empty() {
            let list = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(Failure::failed(format_args!(
                "the user of {} lacks permissions in the cluster {}: {list} (deploy/rbac.yaml grants what is needed)",
                connection.origin, connection.server
            )));
        }

        let elects = election.is_some();
        let names: Vec<_> = configuration.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect();
        let options = Options {
            configuration,
            seed: self.seed.unwrap_or_else(rand::random),
            leader_election: election,
            metrics_address: self.metrics_bind_address,
            record: self.record()?,
            observer: None,
            record_decisions: false,
        };
        let mut scheduler =
            LiveScheduler::start(connection.clone(), &registry, options).await.map_err(|error| match error {
                LiveError::Configuration(_) => Failure::bad_input(error),
                other => Failure::failed(with_causes(&other)),
            })?;
        let elects = if elects { "on" } else { "off" };
        let plural = if names.len() == 1 { "profile" } else { "profiles" };
        // Standard error may be closed; that is no reason not to schedule.
        let _ = writeln!(
            io::stderr(),
            "serving {plural} {} on {}, leader election {elects}",
            names.join(", "),
            connection.server
        );
        tokio::select! {
            () = terminated => {
                tracing::info!("ending");
                scheduler.shutdown().await;
                Ok(())
            }
            result = scheduler.ended() => result.map_err(Failure::failed),
        }
    }

    /// The recording, with the configuration as it was given.
    fn record(&self) -> Result<Option<Record>, Failure> {
        let Some(path) = &self.record else { return Ok(None) };
        let config = match &self.config {
            None => None,
            Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
                Failure::bad_input(format_args!("cannot read the configuration {}: {error}", file.display()))
            })?),
        };
        Ok(Some(Record { path: path.clone(), config, scheduler_name: self.scheduler_name.clone() }))
    }

    fn election(&self, configuration: &KubeSchedulerConfiguration) -> Option<LeaderElection> {
        let from_file = self.config.is_some() && configuration.leader_election.leader_elect;
        if !self.leader_elect.unwrap_or(from_file) {
            return None;
        }
        let mut election = to_election(&configuration.leader_election);
        if self.config.is_none() {
            election.name = DEFAULT_NAME.to_owned();
        } else if election.name == "kube-scheduler" {
            tracing::warn!(
                "leaderElection.resourceName is kube-scheduler, the Lease of the cluster's own scheduler: \
                 this one will wait as long as that one runs; name another Lease for a second scheduler"
            );
        }
        Some(election)
    }
}

fn to_election(configuration: &LeaderElectionConfiguration) -> LeaderElection {
    let duration = |duration: jiff::SignedDuration| duration.unsigned_abs();
    LeaderElection {
        namespace: configuration.resource_namespace.clone(),
        name: configuration.resource_name.clone(),
        lease_duration: duration(configuration.lease_duration),
        renew_deadline: duration(configuration.renew_deadline),
        retry_period: duration(configuration.retry_period),
    }
}

/// The configuration of `--config` and `--scheduler-name`.
///
/// # Errors
/// The file cannot be read or is invalid; a name was given for several profiles.
pub(crate) fn configuration(
    path: Option<&Path>,
    scheduler_name: Option<&str>,
) -> Result<KubeSchedulerConfiguration, Failure> {
    let text = match path {
        None => None,
        Some(path) => {
            let file = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::bad_input(format_args!("cannot read the configuration {file}: {error}")))?;
            Some((file.to_string(), text))
        }
    };
    configuration_of(text.as_ref().map(|(file, text)| (file.as_str(), text.as_str())), scheduler_name)
}

/// The configuration of a file's name and text, and of a name.
///
/// # Errors
/// The text is invalid; a name was given for several profiles.
pub(crate) fn configuration_of(
    text: Option<(&str, &str)>,
    scheduler_name: Option<&str>,
) -> Result<KubeSchedulerConfiguration, Failure> {
    let mut configuration = match text {
        None => KubeSchedulerConfiguration::default(),
        Some((file, text)) => KubeSchedulerConfiguration::from_text(text)
            .map_err(|error| Failure::bad_input(format_args!("{file}: {error}")))?,
    };
    let name = scheduler_name.or_else(|| text.is_none().then_some(DEFAULT_NAME));
    match (name, configuration.profiles.as_mut_slice()) {
        (Some(""), _) => return Err(Failure::bad_input("--scheduler-name is empty, expected a name such as plimsoll")),
        (Some(name), [profile]) => profile.scheduler_name = name.to_owned(),
        (Some(_), profiles) => {
            return Err(Failure::bad_input(format_args!(
                "--scheduler-name needs a configuration with one profile, this one has {}; name them in the file",
                profiles.len()
            )));
        }
        (None, _) => {}
    }
    Ok(configuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: Option<&str>, name: Option<&str>) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = text.map(|text| {
            let path = dir.path().join("config.yaml");
            std::fs::write(
                &path,
                format!("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}"),
            )
            .expect("the file can be written");
            path
        });
        configuration(path.as_deref(), name)
            .map(|configuration| configuration.profiles.into_iter().map(|profile| profile.scheduler_name).collect())
            .map_err(|failure| failure.message)
    }

    #[test]
    fn the_name_that_is_served() {
        assert_eq!(names(None, None).as_deref(), Ok(&["plimsoll".to_owned()][..]), "neither file nor name");
        assert_eq!(names(None, Some("a")).as_deref(), Ok(&["a".to_owned()][..]), "a name");
        assert_eq!(
            names(Some(""), None).as_deref(),
            Ok(&["default-scheduler".to_owned()][..]),
            "a file without profiles"
        );
        assert_eq!(
            names(Some("profiles: [{schedulerName: b}]"), Some("a")).as_deref(),
            Ok(&["a".to_owned()][..]),
            "both"
        );
        let error =
            names(Some("profiles: [{schedulerName: b}, {schedulerName: c}]"), Some("a")).expect_err("two profiles");
        assert!(error.contains("this one has 2"), "{error}");
    }

    #[test]
    fn a_wrong_field_is_named() {
        let error = names(Some("profile: []"), None).expect_err("no such field");
        assert!(error.contains("config.yaml: ") && error.contains("profile"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = configuration(Some(Path::new("/no/such.yaml")), None).expect_err("no such file").message;
        assert!(error.starts_with("cannot read the configuration /no/such.yaml: "), "{error}");
    }
}
