//! The namespace controller: empties a namespace that is being deleted, pods first, and then lets it go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DeleteParams;

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::discovery::{Collection, discover};
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::pod;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

const NAME: &str = "namespace-controller";
/// Reconciles at once. Upstream: kube-controller-manager v1.36.2 `--concurrent-namespace-syncs`.
const WORKERS: usize = 10;
/// Nothing is deleted before a change of the namespace is this old, so that late creates are seen.
/// Upstream: namespace_controller.go v1.36.2 `namespaceDeletionGracePeriod`.
const GRACE: Duration = Duration::from_secs(5);
/// Guess at how long a finalizer takes, seconds. Upstream: namespaced_resources_deleter.go v1.36.2 `finalizerEstimateSeconds`.
const FINALIZER_ESTIMATE: i64 = 15;
/// The finalizer in `spec.finalizers` that stands for this controller.
const FINALIZER: &str = "kubernetes";

/// The conditions in the order in which they are written: type, reason and message while all is well.
/// Upstream: namespace/deletion/status_condition_utils.go v1.36.2.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

struct NamespaceController {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the namespace controller.
pub(super) fn start(context: &Context) {
    let controller = Arc::new(NamespaceController {
        api: context.api(NAME),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.namespaces.on_change(move |delta| {
        if delta.object().metadata.deletion_timestamp.is_some() && !delta.is_deleted() {
            queue.add_after(ObjectKey::of(delta.object().as_ref()), GRACE);
        }
    });
    context.run(&controller, WORKERS);
}

/// What one pass over a namespace found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Findings {
    discovery_failures: Vec<(String, String)>,
    delete_failures: Vec<String>,
    /// Objects left, by `resource.group`.
    remaining: BTreeMap<String, usize>,
    /// Objects left with this finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Seconds until what is left may be gone.
    estimate: i64,
}

impl Reconcile for NamespaceController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "Namespace"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// Upstream: namespaced_resources_deleter.go v1.36.2 `Delete`.
    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(mut namespace) = self.api.get::<Namespace>(key).await? else { return Ok(()) };
        let finalizers = namespace.spec.clone().and_then(|spec| spec.finalizers).unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none() || finalizers.is_empty() {
            return Ok(());
        }
        if namespace.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Terminating") {
            namespace.status.get_or_insert_default().phase = Some("Terminating".to_owned());
            namespace = self.api.update_status(&namespace).await?;
        }
        let findings = self.delete_content(&namespace).await?;
        let mut changed = namespace.clone();
        if update_conditions(changed.status.get_or_insert_default(), &findings, Timestamp::now()) {
            namespace = self.api.update_status(&changed).await?;
        }
        if let Some(failure) =
            findings.delete_failures.first().or(findings.discovery_failures.first().map(|(_, why)| why))
        {
            return Err(SyncError::Unready(format!("cannot empty namespace {key}: {failure}")));
        }
        if findings.estimate > 0 {
            let wait = u64::try_from(findings.estimate / 2 + 1).unwrap_or(1);
            self.queue.add_after(key.clone(), Duration::from_secs(wait));
            return Ok(());
        }
        if let Some(spec) = namespace.spec.as_mut() {
            spec.finalizers = Some(finalizers.into_iter().filter(|finalizer| finalizer != FINALIZER).collect());
        }
        match self.api.update_subresource("finalize", &namespace).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

impl NamespaceController {
    /// Deletes pods, and once there are none left everything else.
    /// Upstream: namespaced_resources_deleter.go v1.36.2 `deleteAllContent` with OrderedNamespaceDeletion.
    async fn delete_content(&self, namespace: &Namespace) -> Result<Findings, SyncError> {
        let mut findings = Findings::default();
        let found = discover(&self.api).await?;
        findings.discovery_failures = found.failures;
        let collections: Vec<Collection> =
            found.collections.into_iter().filter(|found| found.namespaced && found.supports(&["delete"])).collect();
        let is_pods = |collection: &Collection| collection.group.is_empty() && collection.plural == "pods";
        for pods in [true, false] {
            for collection in collections.iter().filter(|collection| is_pods(collection) == pods) {
                self.delete_collection(namespace, collection, pods, &mut findings).await;
            }
            if !findings.remaining.is_empty() {
                break;
            }
        }
        Ok(findings)
    }

    async fn delete_collection(
        &self,
        namespace: &Namespace,
        collection: &Collection,
        pods: bool,
        findings: &mut Findings,
    ) {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let grace = if pods { self.pod_grace(namespace) } else { 0 };
        let left = match self.delete_all(collection, name).await {
            Ok(left) => left,
            Err(error) => {
                findings.estimate = findings.estimate.max(grace);
                findings.delete_failures.push(error.message());
                return;
            }
        };
        if left.is_empty() {
            return;
        }
        findings.remaining.insert(format!("{}.{}", collection.plural, collection.group), left.len());
        let held = left.iter().any(|finalizers| !finalizers.is_empty());
        for finalizer in left.iter().flatten() {
            *findings.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if grace > 0 {
            findings.estimate = findings.estimate.max(grace);
        } else if held {
            findings.estimate = findings.estimate.max(FINALIZER_ESTIMATE);
        } else {
            let resource = format!("{}, Resource={}", collection.api_version(), collection.plural);
            findings
                .delete_failures
                .push(format!("unexpected items still remain in namespace: {name} for gvr: {resource}"));
        }
    }

    /// Deletes the objects of a collection; answers the finalizers of each that is left.
    async fn delete_all(&self, collection: &Collection, namespace: &str) -> Result<Vec<Vec<String>>, SyncError> {
        if collection.supports(&["deletecollection"]) {
            self.api.delete_collection(collection, namespace).await?;
        } else if collection.supports(&["list"]) {
            for meta in self.api.list_metadata(collection, namespace).await? {
                let key = ObjectKey::new(namespace, meta.name.unwrap_or_default());
                match self.api.delete_from(collection, &key, &DeleteParams::background()).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        if !collection.supports(&["list"]) {
            return Ok(Vec::new());
        }
        let left = self.api.list_metadata(collection, namespace).await?;
        Ok(left.into_iter().map(|meta| meta.finalizers.unwrap_or_default()).collect())
    }

    /// Longest grace period of the running pods, 0 once it must be over.
    /// Upstream: namespaced_resources_deleter.go v1.36.2 `estimateGracefulTermination`.
    fn pod_grace(&self, namespace: &Namespace) -> i64 {
        let pods = self.informers.pods.list_namespace(namespace.metadata.name.as_deref().unwrap_or_default());
        let grace = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let longest =
            pods.iter().filter(|pod| !pod::is_terminal(pod)).filter_map(|pod| grace(pod)).max().unwrap_or_default();
        let deleted = namespace.metadata.deletion_timestamp.as_ref().map_or_else(Timestamp::now, |time| time.0);
        if Timestamp::now().duration_since(deleted).as_secs() >= longest { 0 } else { longest }
    }
}

/// Brings the conditions in line with `findings`; answers whether one changed.
/// Upstream: status_condition_utils.go v1.36.2 `namespaceConditionUpdater`.
fn update_conditions(status: &mut NamespaceStatus, findings: &Findings, now: Timestamp) -> bool {
    let counts = |counts: &BTreeMap<String, usize>, words: &str| -> String {
        let mut parts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {} {count} resource instances", words)).collect();
        parts.sort();
        parts.join(", ")
    };
    let failing = |kind: &str| -> Option<(&str, String)> {
        match kind {
            "NamespaceDeletionDiscoveryFailure" if !findings.discovery_failures.is_empty() => {
                let texts: Vec<String> =
                    findings.discovery_failures.iter().map(|(group, why)| format!("{group}: {why}")).collect();
                let (count, texts) = (texts.len(), texts.join(", "));
                Some((
                    "DiscoveryFailed",
                    format!(
                        "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {texts}"
                    ),
                ))
            }
            "NamespaceDeletionContentFailure" if !findings.delete_failures.is_empty() => {
                let mut texts = findings.delete_failures.clone();
                texts.sort();
                let (count, texts) = (texts.len(), texts.join(", "));
                Some((
                    "ContentDeletionFailed",
                    format!("Failed to delete all resource types, {count} remaining: {texts}"),
                ))
            }
            "NamespaceContentRemaining" if !findings.remaining.is_empty() => {
                let texts = counts(&findings.remaining, "has");
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {texts}")))
            }
            "NamespaceFinalizersRemaining" if !findings.finalizers.is_empty() => {
                let texts = counts(&findings.finalizers, "in");
                let message = format!("Some content in the namespace has finalizers remaining: {texts}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    };
    let conditions = status.conditions.get_or_insert_default();
    let mut changed = false;
    for (kind, ok_reason, ok_message) in CONDITIONS {
        let (value, reason, message) = match failing(kind) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", ok_reason, ok_message.to_owned()),
        };
        let new = NamespaceCondition {
            type_: kind.to_owned(),
            status: value.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            None => {
                conditions.push(new);
                changed = true;
            }
            Some(old) if old.status != new.status || old.reason != new.reason || old.message != new.message => {
                let since = if old.status == new.status {
                    old.last_transition_time.clone()
                } else {
                    new.last_transition_time.clone()
                };
                *old = NamespaceCondition { last_transition_time: since, ..new };
                changed = true;
            }
            Some(_) => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_say_what_is_left_and_change_back_when_it_is_gone() {
        let mut status = NamespaceStatus::default();
        let now = Timestamp::UNIX_EPOCH;
        let findings = Findings {
            remaining: BTreeMap::from([("pods.".to_owned(), 2), ("things.example.com".to_owned(), 1)]),
            finalizers: BTreeMap::from([("example.com/hold".to_owned(), 1)]),
            ..Findings::default()
        };
        assert!(update_conditions(&mut status, &findings, now));
        assert!(!update_conditions(&mut status, &findings, now));
        let text = |status: &NamespaceStatus, i: usize| {
            let condition = &status.conditions.as_ref().expect("written above")[i];
            (condition.status.clone(), condition.message.clone().unwrap_or_default())
        };
        let want =
            "Some resources are remaining: pods. has 2 resource instances, things.example.com has 1 resource instances";
        assert_eq!(text(&status, 3), ("True".to_owned(), want.to_owned()));
        let want = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
        assert_eq!(text(&status, 4), ("True".to_owned(), want.to_owned()));
        assert!(update_conditions(&mut status, &Findings::default(), now));
        assert_eq!(text(&status, 3), ("False".to_owned(), "All content successfully removed".to_owned()));
        let failed = Findings { delete_failures: vec!["b".to_owned(), "a".to_owned()], ..Findings::default() };
        assert!(update_conditions(&mut status, &failed, now));
        assert_eq!(text(&status, 2).1, "Failed to delete all resource types, 2 remaining: a, b");
    }
}
