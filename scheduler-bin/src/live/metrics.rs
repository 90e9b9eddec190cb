//! The scheduler's metrics under upstream's names (prefix `scheduler_`). Upstream: pkg/scheduler/metrics/metrics.go v1.36.2, stability STABLE.

use std::fmt::Write as _;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

type Histograms = Family<AttemptLabels, Histogram, fn() -> Histogram>;

/// The metrics of attempts with one result, for one profile.
#[derive(Clone, Debug)]
pub(crate) struct AttemptMetrics {
    /// How many.
    pub(crate) count: Counter,
    /// Seconds from the pod's turn to its decision.
    pub(crate) duration: Histogram,
}

/// Pods that wait, by queue.
#[derive(Clone, Debug)]
pub(crate) struct PendingPods {
    /// Ready for their turn.
    pub(crate) active: Gauge,
    /// Failed a short while ago.
    pub(crate) backoff: Gauge,
    /// Fit nowhere.
    pub(crate) unschedulable: Gauge,
    /// Held back by a gate.
    pub(crate) gated: Gauge,
}

/// All metrics; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    schedule_attempts: Family<AttemptLabels, Counter>,
    attempt_duration: Histograms,
    /// Pods that wait.
    pub(crate) pending_pods: PendingPods,
    /// Attempts that a pod needed until it was placed.
    pub(crate) pod_attempts: Histogram,
    /// Victims of one preemption.
    pub(crate) preemption_victims: Histogram,
    /// Pods for which preemption was tried.
    pub(crate) preemption_attempts: Counter,
    registry: std::sync::Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let schedule_attempts = Family::<AttemptLabels, Counter>::default();
        let attempt_duration: Histograms =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15)));
        let queues = Family::<QueueLabel, Gauge>::default();
        let gauge = |queue| queues.get_or_create(&QueueLabel { queue }).clone();
        let pending_pods = PendingPods {
            active: gauge("active"),
            backoff: gauge("backoff"),
            unschedulable: gauge("unschedulable"),
            gated: gauge("gated"),
        };
        let pod_attempts = Histogram::new(exponential_buckets(1.0, 2.0, 5));
        let preemption_victims = Histogram::new(exponential_buckets(1.0, 2.0, 7));
        let preemption_attempts = Counter::default();

        let mut registry = Registry::with_prefix("scheduler");
        registry.register(
            "schedule_attempts",
            "Number of attempts to schedule pods, by the result",
            schedule_attempts.clone(),
        );
        registry.register(
            "scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            attempt_duration.clone(),
        );
        registry.register("pending_pods", "Number of pending pods, by the queue type", queues.clone());
        registry.register(
            "pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod",
            pod_attempts.clone(),
        );
        registry.register("preemption_victims", "Number of selected preemption victims", preemption_victims.clone());
        registry.register(
            "preemption_attempts",
            "Total preemption attempts in the cluster till now",
            preemption_attempts.clone(),
        );
        Self {
            schedule_attempts,
            attempt_duration,
            pending_pods,
            pod_attempts,
            preemption_victims,
            preemption_attempts,
            registry: std::sync::Arc::new(registry),
        }
    }
}

impl Metrics {
    /// Where attempts with this result (`scheduled`, `unschedulable` or `error`) are counted.
    pub(crate) fn attempts(&self, result: &'static str, profile: &str) -> AttemptMetrics {
        let labels = AttemptLabels { result, profile: profile.to_owned() };
        AttemptMetrics {
            count: self.schedule_attempts.get_or_create(&labels).clone(),
            duration: self.attempt_duration.get_or_create(&labels).clone(),
        }
    }

    /// The metrics as text, in the OpenMetrics format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, &self.registry).is_err() {
            text.clear();
            let _ = writeln!(text, "# EOF");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_upstream() {
        let metrics = Metrics::default();
        let attempts = metrics.attempts("scheduled", "default-scheduler");
        attempts.count.inc();
        attempts.duration.observe(0.002);
        metrics.pending_pods.active.set(3);
        metrics.pod_attempts.observe(1.0);
        let text = metrics.text();
        for line in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_bucket{le=\"0.002\",result=\"scheduled\",profile=\"default-scheduler\"} 1",
            "scheduler_pending_pods{queue=\"active\"} 3",
            "scheduler_pod_scheduling_attempts_count 1",
            "scheduler_preemption_attempts_total 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
