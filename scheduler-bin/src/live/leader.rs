//! Leader election by a Lease: of many schedulers that share one, only the holder schedules. Knows nothing of scheduling.

use std::io::Write as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::failure::{self, Verdict};

/// How leadership is sought. Upstream: component-base config LeaderElectionConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Others may take over when the Lease was not renewed for so long.
    pub lease_duration: Duration,
    /// The holder gives up when it could not renew for so long.
    pub renew_deadline: Duration,
    /// Pause between two tries.
    pub retry_period: Duration,
}

/// Seeks and keeps one Lease.
pub(crate) struct Elector {
    leases: Api<Lease>,
    config: LeaderElection,
    identity: String,
    /// The last seen state of the Lease and when we first saw it: another's clock is never compared with ours.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Elector {
    /// An elector with a fresh identity `<host>_<uuid>`.
    pub(crate) fn new(client: Client, config: LeaderElection, host: &str) -> Self {
        let leases = Api::namespaced(client, &config.namespace);
        let identity = format!("{host}_{}", uuid::Uuid::new_v4());
        Self { leases, config, identity, observed: None }
    }

    /// Waits until this process holds the Lease; `false` if `stop` came first.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let (namespace, name) = (self.config.namespace.clone(), self.config.name.clone());
        let mut told = None;
        loop {
            if self.try_acquire_or_renew().await {
                say(format_args!("holding the lease {namespace}/{name} as {}", self.identity));
                return true;
            }
            let holder = self.observed.as_ref().and_then(|(spec, _)| spec.holder_identity.clone());
            if told.as_ref() != Some(&holder) {
                let held = holder.as_ref().map(|holder| format!(", which {holder} holds")).unwrap_or_default();
                say(format_args!("waiting for the lease {namespace}/{name}{held}"));
                told = Some(holder);
            }
            // Upstream: leaderelection.go JitterFactor 1.2.
            let pause = self.config.retry_period.mul_f64(1.0 + 1.2 * rand::random::<f64>());
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Keeps the Lease; returns when it is lost, or released after `stop`.
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.release().await,
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
            let left = self.config.renew_deadline.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.try_acquire_or_renew()).await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) if renewed.elapsed() < self.config.renew_deadline => {}
                _ => {
                    return;
                }
            }
        }
    }

    async fn try_acquire_or_renew(&mut self) -> bool {
        match self.attempt().await {
            Ok(holding) => holding,
            Err(error) => {
                tracing::warn!("lease {}/{}: {}", self.config.namespace, self.config.name, failure::describe(&error));
                false
            }
        }
    }

    /// Upstream v1.36.2: client-go leaderelection.go tryAcquireOrRenew.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let mut lease = match self.leases.get(&self.config.name).await {
            Ok(lease) => lease,
            Err(error) if failure::verdict(&error) == Verdict::NotFound => {
                let lease = Lease {
                    metadata: ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() },
                    spec: Some(self.spec(None)),
                };
                let created = self.leases.create(&PostParams::default(), &lease).await?;
                self.observe(created.spec);
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        self.observe(lease.spec.clone());
        if !self.is_free(Instant::now()) {
            return Ok(false);
        }
        lease.spec = Some(self.spec(lease.spec.as_ref()));
        match self.leases.replace(&self.config.name, &PostParams::default(), &lease).await {
            Ok(updated) => {
                self.observe(updated.spec);
                Ok(true)
            }
            Err(error) if failure::verdict(&error) == Verdict::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn observe(&mut self, spec: Option<LeaseSpec>) {
        let spec = spec.unwrap_or_default();
        if self.observed.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.observed = Some((spec, Instant::now()));
        }
    }

    /// Ours, nobody's, or not renewed for the holder's own lease duration.
    fn is_free(&self, now: Instant) -> bool {
        let Some((spec, since)) = &self.observed else { return true };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let duration =
            Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default());
        holder.is_empty() || holder == self.identity || now.duration_since(*since) > duration
    }

    fn spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mut spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.config.lease_duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        if let Some(old) = old {
            let ours = old.holder_identity.as_deref() == Some(self.identity.as_str());
            let transitions = old.lease_transitions.unwrap_or_default();
            spec.lease_transitions = Some(if ours { transitions } else { transitions.saturating_add(1) });
            if ours {
                spec.acquire_time = old.acquire_time.clone();
            }
        }
        spec
    }

    /// Gives the Lease up so that the next one need not wait for its end. Upstream: leaderelection.go release.
    async fn release(&mut self) {
        let Ok(mut lease) = self.leases.get(&self.config.name).await else { return };
        if lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) != Some(self.identity.as_str()) {
            return;
        }
        let now = MicroTime(Timestamp::now());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: lease.spec.and_then(|spec| spec.lease_transitions),
            ..LeaseSpec::default()
        });
        if let Err(error) = self.leases.replace(&self.config.name, &PostParams::default(), &lease).await {
            tracing::warn!(
                "cannot release lease {}/{}: {}",
                self.config.namespace,
                self.config.name,
                failure::describe(&error)
            );
        }
    }
}

/// What whoever started the scheduler should see whatever is logged: whether it is this one that schedules.
fn say(words: std::fmt::Arguments<'_>) {
    // Standard error may be closed; that is no reason not to schedule.
    let _ = writeln!(std::io::stderr(), "{words}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elector() -> Elector {
        let nowhere = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no server"))
        });
        let config = LeaderElection {
            namespace: "kube-system".into(),
            name: "plimsoll".into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        Elector::new(Client::new(nowhere, "default"), config, "host")
    }

    fn held(by: &str, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(by.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test]
    async fn a_lease_is_free_when_nobody_holds_it_or_its_holder_is_silent() {
        let mut elector = elector();
        let ours = elector.identity.clone();
        for (name, holder, age, want) in [
            ("nobody", "", 0, true),
            ("ours", ours.as_str(), 0, true),
            ("another's", "other_1", 14, false),
            ("another's, silent", "other_1", 16, true),
        ] {
            elector.observed = None;
            elector.observe(Some(held(holder, 0)));
            assert_eq!(elector.is_free(Instant::now() + Duration::from_secs(age)), want, "{name}");
        }
    }

    #[tokio::test]
    async fn transitions_count_changes_of_the_holder_only() {
        let elector = elector();
        assert_eq!(elector.spec(None).lease_transitions, Some(0));
        assert_eq!(elector.spec(Some(&held("other_1", 3))).lease_transitions, Some(4));
        assert_eq!(elector.spec(Some(&held(&elector.identity, 3))).lease_transitions, Some(3));
    }

    #[tokio::test]
    async fn a_server_that_fails_gives_no_lease_and_no_panic() {
        assert!(!elector().try_acquire_or_renew().await);
    }
}
