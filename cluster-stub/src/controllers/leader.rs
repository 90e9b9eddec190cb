//! The Lease that says which controllers are at work. There is one process, so it is simply held.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::key::ObjectKey;

/// Seconds that the Lease is good for. Upstream: `--leader-elect-lease-duration`.
const DURATION_SECONDS: i32 = 15;
/// Pause between two renewals; upstream retries every 2 s, and a third of the duration is as good.
const RENEWAL: Duration = Duration::from_secs(5);

/// Starts to hold the Lease `kube-system/kube-controller-manager`.
pub(super) fn start(context: &Context, identity: &str) {
    let api = ApiClient::new((context.clients)(identity), "leader-election");
    let shutdown = context.shutdown.clone();
    let holder = format!("plimsoll_{}", uuid::Uuid::new_v4());
    context.tasks.spawn(async move {
        let work = async {
            loop {
                if let Err(error) = renew(&api, &holder).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "lease not renewed, will retry");
                }
                tokio::time::sleep(RENEWAL).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = work => {}
        }
    });
}

async fn renew(api: &ApiClient, holder: &str) -> Result<(), SyncError> {
    let key = ObjectKey::new("kube-system", "kube-controller-manager");
    let now = MicroTime(Timestamp::now());
    match api.get::<Lease>(&key).await? {
        None => {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(key.name), namespace: Some(key.namespace), ..ObjectMeta::default() },
                spec: Some(taken(None, holder, now)),
            };
            api.create(&lease).await.map(|_| ())
        }
        Some(mut lease) => {
            lease.spec = Some(taken(lease.spec.take(), holder, now));
            api.update(&lease).await.map(|_| ())
        }
    }
}

/// The Lease after `holder` renewed or took it.
fn taken(old: Option<LeaseSpec>, holder: &str, now: MicroTime) -> LeaseSpec {
    let old = old.unwrap_or_default();
    let ours = old.holder_identity.as_deref() == Some(holder);
    let transitions = old.lease_transitions.unwrap_or_default();
    let moved = i32::from(!ours && old.holder_identity.is_some());
    LeaseSpec {
        acquire_time: if ours { old.acquire_time } else { Some(now.clone()) },
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(DURATION_SECONDS),
        lease_transitions: Some(transitions + moved),
        renew_time: Some(now),
        ..old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_by_its_holder_and_taken_over_by_another() {
        let at = |second: i64| MicroTime(Timestamp::from_second(second).expect("in range"));
        let first = taken(None, "a", at(1));
        assert_eq!((first.lease_transitions, first.acquire_time.clone()), (Some(0), Some(at(1))));
        let renewed = taken(Some(first), "a", at(2));
        assert_eq!((renewed.acquire_time.clone(), renewed.renew_time.clone()), (Some(at(1)), Some(at(2))));
        let moved = taken(Some(renewed), "b", at(3));
        assert_eq!((moved.lease_transitions, moved.acquire_time), (Some(1), Some(at(3))));
    }
}
