//! The horizontal pod autoscaler: keeps a workload within its bounds. Metrics are asked for at the metrics API, which a
//! cluster without a metrics server does not have; the conditions say so.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::core::Request;

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::discovery::{Collection, discover};
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::recorder::{EventRecorder, NORMAL, WARNING};
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

const NAME: &str = "horizontal-pod-autoscaler";
/// Pause between two looks at one autoscaler. Upstream: `--horizontal-pod-autoscaler-sync-period`.
const PERIOD: Duration = Duration::from_secs(15);
/// What a client is told that asks for metrics where nobody serves them.
const NO_METRICS: &str = "the server could not find the requested resource";

struct Horizontal {
    api: ApiClient,
    recorder: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the horizontal pod autoscaler.
pub(super) fn start(context: &Context) {
    let api = context.api(NAME);
    let controller = Arc::new(Horizontal {
        recorder: context.recorder(&api, NAME),
        api,
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let queue = controller.queue.clone();
    context.informers.horizontal_pod_autoscalers.on_change(move |delta| {
        let old_spec = delta.old().map(|old| &old.spec);
        if !delta.is_deleted() && old_spec != Some(&delta.object().spec) {
            queue.add(ObjectKey::of(delta.object().as_ref()));
        }
    });
    context.run(&controller, 5);
}

/// What one look decides.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Leave the workload as it is; it is switched off.
    Disabled,
    /// Give it so many replicas, for this reason.
    Rescale(i32, &'static str),
    /// Only metrics could tell.
    AskMetrics,
}

/// Upstream: horizontal.go v1.36.2 `reconcileAutoscaler`, the part without metrics.
fn decide(current: i32, min: i32, max: i32) -> Decision {
    if current == 0 && min != 0 {
        Decision::Disabled
    } else if current > max {
        Decision::Rescale(max, "Current number of replicas above Spec.MaxReplicas")
    } else if current < min {
        Decision::Rescale(min, "Current number of replicas below Spec.MinReplicas")
    } else {
        Decision::AskMetrics
    }
}

/// Reason and message of the first metric that cannot be had. Upstream: horizontal.go v1.36.2 `computeStatusFor…Metric`.
fn missing_metric(metrics: &[MetricSpec]) -> (String, String) {
    let resource = |name: &str, what: &str| {
        let target = if what == "container resource" { "container resource" } else { "resource" };
        (
            if what == "container resource" { "FailedGetContainerResourceMetric" } else { "FailedGetResourceMetric" }
                .to_owned(),
            format!(
                "failed to get {name} {what} metric value: failed to get {name} utilization: unable to get metrics for {target} \
                 {name}: unable to fetch metrics from resource metrics API: {NO_METRICS} (get pods.metrics.k8s.io)"
            ),
        )
    };
    let custom = |reason: &str, kind: &str, api: &str, name: &str| {
        let message = format!(
            "failed to get {kind} metric value: unable to get metric {name}: unable to fetch metrics from {api} metrics API: {NO_METRICS}"
        );
        (reason.to_owned(), message)
    };
    match metrics.first() {
        None => ("FailedGetResourceMetric".to_owned(), "no metrics are configured".to_owned()),
        Some(metric) => match metric.type_.as_str() {
            "Pods" => {
                let name = metric.pods.as_ref().map(|pods| pods.metric.name.clone()).unwrap_or_default();
                custom("FailedGetPodsMetric", "pods", "custom", &name)
            }
            "Object" => {
                let name = metric.object.as_ref().map(|object| object.metric.name.clone()).unwrap_or_default();
                custom("FailedGetObjectMetric", "object", "custom", &name)
            }
            "External" => {
                let name = metric.external.as_ref().map(|external| external.metric.name.clone()).unwrap_or_default();
                custom("FailedGetExternalMetric", "external", "external", &name)
            }
            "ContainerResource" => {
                let name = metric.container_resource.as_ref().map(|resource| resource.name.clone()).unwrap_or_default();
                resource(&name, "container resource")
            }
            _ => {
                let name = metric.resource.as_ref().map(|resource| resource.name.clone()).unwrap_or_default();
                resource(&name, "resource")
            }
        },
    }
}

fn set_condition(
    status: &mut HorizontalPodAutoscalerStatus,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let new = |since: Option<Time>| HorizontalPodAutoscalerCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: since,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(old) => {
            let since = if old.status == value { old.last_transition_time.clone() } else { Some(Time(now)) };
            *old = new(since);
        }
        None => conditions.push(new(Some(Time(now)))),
    }
}

impl Horizontal {
    async fn target(&self, autoscaler: &HorizontalPodAutoscaler) -> Result<Collection, SyncError> {
        let target = autoscaler.spec.scale_target_ref.clone();
        let group =
            target.api_version.as_deref().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let served = discover(&self.api).await?.collections;
        let found = served.into_iter().find(|served| served.group == group && served.kind == target.kind);
        found.ok_or_else(|| SyncError::Unready(format!("no matches for kind {:?} in group {group:?}", target.kind)))
    }

    async fn scale(&self, collection: &Collection, key: &ObjectKey) -> Result<Scale, SyncError> {
        let request = Request::new(collection.path(&key.namespace)).get_subresource("scale", &key.name);
        let text = self.api.send("get the scale of", &collection.kind, key, request).await?;
        serde_json::from_str(&text)
            .map_err(|error| SyncError::Unready(format!("scale of {key} is unreadable: {error}")))
    }

    async fn rescale(
        &self,
        collection: &Collection,
        key: &ObjectKey,
        mut scale: Scale,
        replicas: i32,
    ) -> Result<(), SyncError> {
        scale.spec.get_or_insert_default().replicas = Some(replicas);
        let body = serde_json::to_vec(&scale)
            .map_err(|error| SyncError::Unready(format!("scale of {key} cannot be written: {error}")))?;
        let params = PostParams { dry_run: false, field_manager: Some("kube-controller-manager".to_owned()) };
        let path = collection.path(&key.namespace);
        let request = Request::new(path).replace_subresource("scale", &key.name, &params, body);
        self.api.send("scale", &collection.kind, key, request).await?;
        super::runtime::story_log::changed("scaled", &collection.kind, key);
        Ok(())
    }

    async fn look(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), SyncError> {
        let spec = autoscaler.spec.clone();
        let namespace = autoscaler.metadata.namespace.clone().unwrap_or_default();
        let key = ObjectKey::new(namespace, spec.scale_target_ref.name.clone());
        let now = Timestamp::now();
        let scale = match self.target(autoscaler).await {
            Ok(collection) => self.scale(&collection, &key).await.map(|scale| (collection, scale)),
            Err(error) => Err(error),
        };
        let (collection, scale) = match scale {
            Ok(found) => found,
            Err(error) => {
                self.recorder.event(autoscaler, WARNING, "FailedGetScale", error.message());
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {}", error.message());
                set_condition(status, "AbleToScale", "False", "FailedGetScale", &message, now);
                return Ok(());
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        set_condition(status, "AbleToScale", "True", "SucceededGetScale", message, now);
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        status.current_replicas = scale.status.as_ref().map(|status| status.replicas);
        status.desired_replicas = current;
        match decide(current, spec.min_replicas.unwrap_or(1), spec.max_replicas) {
            Decision::Disabled => {
                let message = "scaling is disabled since the replica count of the target is zero";
                set_condition(status, "ScalingActive", "False", "ScalingDisabled", message, now);
            }
            Decision::Rescale(replicas, reason) => {
                self.rescale(&collection, &key, scale, replicas).await?;
                let message = format!("the HPA controller was able to update the target scale to {replicas}");
                set_condition(status, "AbleToScale", "True", "SucceededRescale", &message, now);
                self.recorder.event(
                    autoscaler,
                    NORMAL,
                    "SuccessfulRescale",
                    format!("New size: {replicas}; reason: {reason}"),
                );
                status.desired_replicas = replicas;
                status.last_scale_time = Some(Time(now));
            }
            Decision::AskMetrics => {
                let metrics = spec.metrics.unwrap_or_default();
                let (reason, why) = missing_metric(&metrics);
                let event = why.split_once("metric value: ").map_or(why.as_str(), |(_, rest)| rest).to_owned();
                self.recorder.event(autoscaler, WARNING, &reason, event);
                let count = metrics.len();
                let all = format!("invalid metrics ({count} invalid out of {count}), first error is: {why}");
                self.recorder.event(autoscaler, WARNING, "FailedComputeMetricsReplicas", all);
                let message = format!(
                    "the HPA was unable to compute the replica count: {}",
                    why.split_once("metric value: ").map_or(why.as_str(), |(_, rest)| rest)
                );
                set_condition(status, "ScalingActive", "False", &reason, &message, now);
            }
        }
        Ok(())
    }
}

impl Reconcile for Horizontal {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler-controller"
    }

    fn kind(&self) -> &'static str {
        "HorizontalPodAutoscaler"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(autoscaler) = self.informers.horizontal_pod_autoscalers.get(key) else { return Ok(()) };
        self.queue.add_after(key.clone(), PERIOD);
        let mut changed = autoscaler.as_ref().clone();
        let mut status = changed.status.take().unwrap_or_default();
        let looked = self.look(&autoscaler, &mut status).await;
        changed.status = Some(status);
        if changed.status != autoscaler.status {
            self.api.update_status(&changed).await?;
        }
        looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_without_metrics() {
        for (current, want) in [
            (0, Decision::Disabled),
            (1, Decision::Rescale(2, "Current number of replicas below Spec.MinReplicas")),
            (3, Decision::AskMetrics),
            (9, Decision::Rescale(5, "Current number of replicas above Spec.MaxReplicas")),
        ] {
            assert_eq!(decide(current, 2, 5), want, "{current}");
        }
    }
}
