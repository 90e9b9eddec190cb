//! Rows of measurements as a table for people and as JSON. What the columns mean is said in `plimsoll bench --help`.

use std::time::Duration;

use serde_json::{Value, json};

use super::memory;
use super::shapes::Row;
use super::workload::Measurement;
use crate::counted::counted;

/// Headings of the table.
const HEADINGS: [&str; 14] = [
    "SHAPE",
    "NODES",
    "PODS",
    "DISTINCT",
    "THREADS",
    "DECISIONS/S",
    "P50",
    "P99",
    "MAX",
    "NS/NODE",
    "BARE LOOP",
    "RATIO",
    "PODS/S",
    "ALLOCS",
];

/// Lines of cells in columns: the first to the left, the others, numbers, to the right.
fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            text += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        text.push('\n');
    }
    text
}

/// The rows in aligned columns, and below them what does not fit in.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let mut text = columns(&lines);
    for row in rows {
        if row.n_unscheduled > 0 {
            text += &format!(
                "{} on {}: {} of {} found no node\n",
                row.case.shape.name(),
                counted(row.case.n_nodes, "node"),
                row.n_unscheduled,
                counted(row.decisions.len(), "pod")
            );
        }
    }
    let mut sizes: Vec<(usize, usize)> = rows.iter().map(|row| (row.case.n_nodes, row.case.n_existing)).collect();
    sizes.dedup();
    for (n_nodes, n_existing) in sizes {
        let of_size = |row: &&Row| (row.case.n_nodes, row.case.n_existing) == (n_nodes, n_existing);
        if let Some(footprint) = rows.iter().find(of_size).and_then(|row| row.footprint)
            && let Some(per_node) = footprint.bytes_per_node(n_nodes)
        {
            text += &format!("memory of the engine with {}: {per_node} bytes a node", counted(n_nodes, "node"));
            if let Some(per_pod) = footprint.bytes_per_pod(n_existing) {
                text += &format!(", {per_pod} bytes for each of {}", counted(n_existing, "bound pod"));
            }
            text += &format!(", objects and their strings included ({})\n", memory::source());
        }
    }
    text
}

fn cells(row: &Row) -> [String; HEADINGS.len()] {
    let case = &row.case;
    let median = row.percentile(50);
    [
        case.shape.name().to_owned(),
        case.n_nodes.to_string(),
        row.decisions.len().to_string(),
        case.distinct.to_string(),
        case.n_threads.to_string(),
        rate(row.decisions_per_second()),
        time(median),
        time(row.percentile(99)),
        time(row.percentile(100)),
        format!("{:.2}", median.as_secs_f64() * 1e9 / case.n_nodes as f64),
        time(row.bare_loop),
        format!("{:.2}", row.ratio()),
        rate(row.pods_per_second()),
        row.allocations_per_decision().map_or_else(|| "-".to_owned(), |n| format!("{n:.1}")),
    ]
}

/// `12.3 µs` or `4.56 ms`.
fn time(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..100.0 => format!("{micros:.1} µs"),
        100.0..10_000.0 => format!("{micros:.0} µs"),
        _ => format!("{:.1} ms", micros / 1e3),
    }
}

/// A number a second: whole, but small ones keep what tells them from nothing.
fn rate(per_second: f64) -> String {
    match per_second {
        10.0.. => format!("{per_second:.0}"),
        1.0.. => format!("{per_second:.1}"),
        _ if per_second > 0.0 => format!("{per_second:.2e}"),
        _ => "-".to_owned(),
    }
}

/// The report as JSON.
pub(crate) fn json(rows: &[Row]) -> Value {
    json!({
        "apiVersion": "plimsoll.io/v1alpha1",
        "kind": "BenchReport",
        "version": env!("CARGO_PKG_VERSION"),
        "machine": { "cpu": processor(), "cpus": std::thread::available_parallelism().map_or(1, usize::from) },
        "memorySource": memory::source(),
        "rows": rows.iter().map(row_json).collect::<Vec<_>>(),
    })
}

fn row_json(row: &Row) -> Value {
    let case = &row.case;
    let micros = |duration: Duration| (duration.as_secs_f64() * 1e9).round() / 1e3;
    let median = row.percentile(50);
    let n_placed = row.decisions.len() - row.n_unscheduled;
    let mean = |sum: usize| (n_placed > 0).then(|| sum as f64 / n_placed as f64);
    json!({
        "shape": case.shape.name(),
        "nodes": case.n_nodes,
        "existingPods": case.n_existing,
        "pods": row.decisions.len(),
        "threads": case.n_threads,
        "distinct": case.distinct,
        "replicas": case.n_replicas,
        "percentageOfNodesToScore": case.sample,
        "seed": case.seed,
        "decisionsPerSecond": row.decisions_per_second().round(),
        "p50Micros": micros(median),
        "p90Micros": micros(row.percentile(90)),
        "p99Micros": micros(row.percentile(99)),
        "maxMicros": micros(row.percentile(100)),
        "nanosPerNode": (median.as_secs_f64() * 1e12 / case.n_nodes as f64).round() / 1e3,
        "podsPerSecond": row.pods_per_second().round(),
        "nodesEvaluated": mean(row.n_evaluated),
        "nodesFeasible": mean(row.n_feasible),
        "podsUnschedulable": row.n_unscheduled,
        "bareLoopMicros": micros(row.bare_loop),
        "ratioToBareLoop": row.ratio(),
        "bytesPerNode": row.footprint.and_then(|footprint| footprint.bytes_per_node(case.n_nodes)),
        "bytesPerBoundPod": row.footprint.and_then(|footprint| footprint.bytes_per_pod(case.n_existing)),
        "allocationsPerDecision": row.allocations_per_decision(),
        "placements": format!("{:016x}", row.placements),
    })
}

/// Measured workloads in aligned columns.
pub(crate) fn workload_table(measurements: &[Measurement]) -> String {
    let mut lines = vec![
        [
            "WORKLOAD",
            "PODS",
            "SECONDS",
            "PODS/S",
            "P50",
            "P90",
            "P95",
            "P99",
            "WINDOW",
            "CPU/POD",
            "THRESHOLD",
            "RATIO",
        ]
        .map(str::to_owned),
    ];
    lines.extend(measurements.iter().map(|measurement| {
        let percentile = |percent| rate(measurement.percentile(percent));
        let has_threshold = measurement.threshold > 0.0;
        let or_none = |text: String| if has_threshold { text } else { "-".to_owned() };
        [
            measurement.name.clone(),
            measurement.n_pods.to_string(),
            format!("{:.3}", measurement.duration.as_secs_f64()),
            rate(measurement.average()),
            percentile(50),
            percentile(90),
            percentile(95),
            percentile(99),
            format!("{:.3} s", measurement.window_seconds()),
            measurement.cpu_millis_per_pod().map_or_else(|| "-".to_owned(), |millis| format!("{millis:.3} ms")),
            or_none(measurement.threshold.to_string()),
            or_none(format!("{:.1}", measurement.average() / measurement.threshold)),
        ]
    }));
    columns(&lines)
}

/// Measured workloads in scheduler_perf's result format.
pub(crate) fn workload_json(measurements: &[Measurement]) -> Value {
    json!({ "version": "v1", "dataItems": measurements.iter().flat_map(Measurement::data_items).collect::<Vec<_>>() })
}

/// The machine in a few words, for a picture.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "plimsoll {}, {} ({cpus} CPUs)",
        env!("CARGO_PKG_VERSION"),
        processor().unwrap_or_else(|| "unknown processor".to_owned())
    )
}

/// Name of the processor, where the system tells it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Row {
    /// The time that `percent` per cent of the decisions do not exceed; 100 is the longest.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.decisions.len() * percent).div_ceil(100).max(1) - 1;
        self.decisions.get(rank).copied().unwrap_or_default()
    }

    /// The median decision over the bare loop.
    fn ratio(&self) -> f64 {
        self.percentile(50).as_nanos() as f64 / self.bare_loop.as_nanos().max(1) as f64
    }

    fn decisions_per_second(&self) -> f64 {
        self.decisions.len() as f64 / self.decisions.iter().sum::<Duration>().as_secs_f64()
    }

    fn pods_per_second(&self) -> f64 {
        self.decisions.len() as f64 / self.whole_loop.as_secs_f64()
    }

    fn allocations_per_decision(&self) -> Option<f64> {
        self.n_allocations.map(|n| n as f64 / self.decisions.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shapes::Case;
    use benches::workload::Shape;

    fn row() -> Row {
        Row {
            case: Case {
                shape: Shape::Spread,
                n_nodes: 1_000,
                n_existing: 20_000,
                n_pods: 4,
                n_threads: 2,
                distinct: 1.0,
                n_replicas: 1,
                sample: 100,
                seed: 0,
            },
            decisions: [10, 20, 30, 40].map(Duration::from_micros).to_vec(),
            whole_loop: Duration::from_micros(200),
            n_unscheduled: 1,
            n_evaluated: 3_000,
            n_feasible: 1_500,
            n_allocations: Some(8),
            bare_loop: Duration::from_micros(5),
            footprint: None,
            placements: 0xabc,
        }
    }

    #[test]
    fn a_row_is_told_in_numbers() {
        let row = &json(&[row()])["rows"][0];
        for (key, want) in [
            ("p50Micros", json!(20.0)),
            ("p99Micros", json!(40.0)),
            ("decisionsPerSecond", json!(40_000.0)),
            ("podsPerSecond", json!(20_000.0)),
            ("nanosPerNode", json!(20.0)),
            ("ratioToBareLoop", json!(4.0)),
            ("nodesFeasible", json!(500.0)),
            ("allocationsPerDecision", json!(2.0)),
            ("bytesPerNode", Value::Null),
            ("placements", json!("0000000000000abc")),
        ] {
            assert_eq!(row[key], want, "{key}");
        }
    }

    #[test]
    fn the_table_says_what_found_no_node() {
        let text = table(&[row()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("SHAPE") && lines[1].starts_with("spread"), "{text}");
        assert_eq!(lines[2], "spread on 1000 nodes: 1 of 4 pods found no node");
        assert!(lines[1].contains("20.0 µs"), "{text}");
    }

    #[test]
    fn times_keep_three_digits() {
        for (micros, want) in [(1.25, "1.2 µs"), (250.0, "250 µs"), (12_345.0, "12.3 ms")] {
            assert_eq!(time(Duration::from_secs_f64(micros / 1e6)), want);
        }
    }
}
