//! Pods per second of a measured operation, and scheduler_perf's result format. Upstream: v1.36.2
//! test/integration/scheduler_perf util.go `DataItems`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::cpu::Moment;

/// Windows of a measurement; upstream's are a second long, ours too once there are as many.
const N_WINDOWS: u32 = 20;
const LONGEST_WINDOW: Duration = Duration::from_secs(1);

/// Throughput of one measured operation.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// Workload and operation, such as `SchedulingBasic/5000Nodes_10000Pods/namespace-2`.
    pub(crate) name: String,
    /// Pods that were scheduled.
    pub(crate) n_pods: usize,
    /// From the start of their creation to the last binding.
    pub(crate) duration: Duration,
    /// Length of a window.
    window: Duration,
    /// Pods per second of each window, sorted.
    windows: Vec<f64>,
    /// Processor time of the process meanwhile, where the system tells it.
    cpu: Option<Duration>,
    /// Average below which upstream's own test fails; 0 when it has none.
    pub(crate) threshold: f64,
}

impl Measurement {
    /// Counts what was `scheduled` since `start`; the times are in order.
    pub(super) fn new(name: String, start: Moment, scheduled: &[Instant], threshold: f64) -> Self {
        let (cpu, start) = (Moment::now().cpu_since(&start), start.at);
        let duration = scheduled.last().map_or(Duration::ZERO, |last| last.duration_since(start));
        let window = (duration / N_WINDOWS).clamp(Duration::from_micros(1), LONGEST_WINDOW);
        let n_windows = (duration.as_secs_f64() / window.as_secs_f64()).floor().max(1.0);
        let mut counts = vec![0_usize; n_windows as usize];
        for at in scheduled {
            let position = (at.duration_since(start).as_secs_f64() / window.as_secs_f64()) as usize;
            // The end of the last window belongs to it; what comes in a begun one is in the average only.
            let position = if position == counts.len() && *at - start == duration { position - 1 } else { position };
            if let Some(count) = counts.get_mut(position) {
                *count += 1;
            }
        }
        let mut windows: Vec<f64> = counts.into_iter().map(|count| count as f64 / window.as_secs_f64()).collect();
        windows.sort_by(f64::total_cmp);
        Self { name, n_pods: scheduled.len(), duration, window, windows, cpu, threshold }
    }

    /// Pods over time.
    pub(crate) fn average(&self) -> f64 {
        if self.duration.is_zero() { 0.0 } else { self.n_pods as f64 / self.duration.as_secs_f64() }
    }

    /// The throughput that `percent` per cent of the windows do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.windows.len() * percent).div_ceil(100).max(1) - 1;
        self.windows.get(rank).copied().unwrap_or_default()
    }

    /// Milliseconds of processor time for each pod, of everything in this process.
    pub(crate) fn cpu_millis_per_pod(&self) -> Option<f64> {
        self.cpu.filter(|_| self.n_pods > 0).map(|cpu| cpu.as_secs_f64() * 1e3 / self.n_pods as f64)
    }

    /// Upstream's data item, and one of our own for the processor time.
    pub(crate) fn data_items(&self) -> Vec<Value> {
        let name = format!("BenchmarkPerfScheduling/{}", self.name);
        let throughput = json!({
            "data": {
                "Average": self.average(),
                "Perc50": self.percentile(50),
                "Perc90": self.percentile(90),
                "Perc95": self.percentile(95),
                "Perc99": self.percentile(99),
            },
            "unit": "pods/s",
            "labels": { "Metric": "SchedulingThroughput", "Name": name },
        });
        let cpu = self.cpu_millis_per_pod().map(|millis| {
            json!({
                "data": { "Average": millis },
                "unit": "ms",
                "labels": { "Metric": "ProcessCPUPerPod", "Name": name },
            })
        });
        std::iter::once(throughput).chain(cpu).collect()
    }

    /// Length of a window, in seconds.
    pub(crate) fn window_seconds(&self) -> f64 {
        self.window.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_a_second_at_most_and_the_average_counts_all() {
        let start = Moment::now();
        let at = |millis: u64| start.at + Duration::from_millis(millis);
        let slow: Vec<Instant> = (1..=40).map(|second| at(second * 1000)).collect();
        let measurement = Measurement::new("w".to_owned(), start, &slow, 0.0);
        assert_eq!((measurement.window_seconds(), measurement.average()), (1.0, 1.0));
        assert_eq!(measurement.percentile(99), 2.0, "the last pod is in the last window");
        let quick: Vec<Instant> = (1..=100).map(at).collect();
        let measurement = Measurement::new("w".to_owned(), start, &quick, 0.0);
        assert_eq!(measurement.window_seconds(), 0.005);
        assert!((measurement.average() - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_scheduled_is_zero() {
        let measurement = Measurement::new("w".to_owned(), Moment::now(), &[], 0.0);
        assert_eq!((measurement.average(), measurement.percentile(50)), (0.0, 0.0));
    }

    #[test]
    fn a_result_has_the_shape_of_upstreams() {
        let start = Moment::now();
        let scheduled = [start.at + Duration::from_secs(1)];
        let items = Measurement::new("Case/w/namespace-1".to_owned(), start, &scheduled, 0.0).data_items();
        assert_eq!(items[0]["unit"], "pods/s");
        assert_eq!(items[0]["labels"]["Name"], "BenchmarkPerfScheduling/Case/w/namespace-1");
        for key in ["Average", "Perc50", "Perc90", "Perc95", "Perc99"] {
            assert!(items[0]["data"][key].is_f64(), "{key}");
        }
        assert_eq!(items.len(), 1 + usize::from(start.cpu.is_some()));
    }
}
