//! Looks for the ConfigMaps and Secrets that a pod needs, as the kubelet of its node. What a program in a simulated container
//! would have made does not count as missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;

use super::Shared;
use crate::FLEET_IDENTITY;
use crate::lifecycle::Found;
use crate::references::{Kind, Reference};

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long an answer about permissions is used again.
const PERMISSION_TTL: Duration = Duration::from_secs(3);
/// Service accounts that are asked about, those of the pod's own namespace first.
const MAX_ACCOUNTS: usize = 64;

/// Which objects the containers of this cluster could have made, if they ran: by kind and namespace, and when it was asked.
pub(super) type Makers = HashMap<(Kind, String), (bool, Instant)>;

/// Looks for what is needed by each volume or container of a pod in `namespace`.
pub(super) async fn find(
    shared: &Shared,
    client: kube::Client,
    namespace: &str,
    needs: Vec<(String, Vec<Reference>)>,
) -> Found {
    let mut seen: HashMap<(Kind, String), Option<BTreeSet<String>>> = HashMap::new();
    let (mut missing, mut is_unknown) = (Vec::new(), false);
    for (what, references) in needs {
        for reference in references {
            let key = (reference.kind, reference.name.clone());
            if !seen.contains_key(&key) {
                let Some(found) = keys(shared, &client, namespace, &reference).await else {
                    is_unknown = true;
                    continue;
                };
                seen.insert(key.clone(), found);
            }
            let Some(fault) = reference.fault(namespace, seen[&key].as_ref()) else { continue };
            if !could_be_made(shared, namespace, reference.kind).await {
                missing.push((what, fault));
                break;
            }
        }
    }
    match (missing.is_empty(), is_unknown) {
        (false, _) => Found::Missing(missing),
        (true, true) => Found::Unknown,
        (true, false) => Found::Everything,
    }
}

/// The keys of an object, or `None` in it if there is no such object; `None` if the API did not answer.
async fn keys(
    shared: &Shared,
    client: &kube::Client,
    namespace: &str,
    reference: &Reference,
) -> Option<Option<BTreeSet<String>>> {
    let _permit = shared.requests.acquire().await;
    let name = &reference.name;
    let look = async {
        match reference.kind {
            Kind::ConfigMap => {
                let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await?;
                Ok::<_, kube::Error>(found.map(|map| {
                    let text = map.data.unwrap_or_default().into_keys();
                    text.chain(map.binary_data.unwrap_or_default().into_keys()).collect()
                }))
            }
            Kind::Secret => {
                let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await?;
                Ok(found.map(|secret| secret.data.unwrap_or_default().into_keys().collect()))
            }
        }
    };
    match tokio::time::timeout(TIMEOUT, look).await {
        Ok(Ok(found)) => Some(found),
        Ok(Err(error)) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a kubelet cannot read {namespace}/{name}");
            None
        }
        Err(_) => None,
    }
}

/// Whether a pod of this cluster has a service account that may create such objects: an operator, a Job that makes a
/// certificate. It would have, if its containers ran; so the kubelet does not wait for what cannot come.
async fn could_be_made(shared: &Shared, namespace: &str, kind: Kind) -> bool {
    let key = (kind, namespace.to_owned());
    let known = shared.makers.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
    if let Some((answer, at)) = known
        && (answer || at.elapsed() < PERMISSION_TTL)
    {
        return answer;
    }
    let mut accounts: Vec<(Arc<str>, Arc<str>)> =
        shared.accounts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
    accounts.sort_by_key(|(own, _)| **own != *namespace);
    accounts.truncate(MAX_ACCOUNTS);
    let client = (shared.clients)(FLEET_IDENTITY);
    let mut answer = false;
    for (own, account) in accounts {
        if may_create(shared, client.clone(), (&own, &account), namespace, kind).await {
            answer = true;
            break;
        }
    }
    shared.makers.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (answer, Instant::now()));
    answer
}

async fn may_create(
    shared: &Shared,
    client: kube::Client,
    (own, account): (&str, &str),
    namespace: &str,
    kind: Kind,
) -> bool {
    let resource = match kind {
        Kind::ConfigMap => "configmaps",
        Kind::Secret => "secrets",
    };
    let of_namespace = format!("system:serviceaccounts:{own}");
    let groups = ["system:serviceaccounts", &of_namespace, "system:authenticated"];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{own}:{account}")),
            groups: Some(groups.map(str::to_owned).to_vec()),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                verb: Some("create".to_owned()),
                resource: Some(resource.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let _permit = shared.requests.acquire().await;
    let params = PostParams::default();
    let reviews: Api<SubjectAccessReview> = Api::all(client);
    let asked = reviews.create(&params, &review);
    let answer = tokio::time::timeout(TIMEOUT, asked).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed)))
}
