//! What `cargo bench -p benches --bench cycle` measured, read back from Criterion's directory. Measures nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::plot::Series;
use crate::counted::counted;

/// The group whose iterations are decisions about pods that all differ.
const CYCLE: &str = "cycle";
/// The group whose iterations are decisions about replicas.
const BATCH: &str = "batch";
/// The group of the loop to compare with.
const BARE_LOOP: &str = "bare-loop";

/// Which measurements are wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Names of shapes.
    pub(crate) shapes: Vec<String>,
    /// Numbers of threads; every one when empty.
    pub(crate) threads: Vec<usize>,
    /// Pods that all differ.
    pub(crate) distinct: bool,
    /// Replicas.
    pub(crate) replicas: bool,
}

/// A measurement's name, of Criterion's `benchmark.json`.
#[derive(Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
}

/// A measurement's result, of Criterion's `estimates.json`.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    /// Nanoseconds.
    point_estimate: f64,
}

/// What a line of the picture is made of.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    is_limit: bool,
    shape: String,
    is_batch: bool,
    n_threads: usize,
}

/// The wanted medians below `directory`, the latest run of each, as lines over the number of nodes.
///
/// # Errors
/// What cannot be read, by file; that nothing wanted is there.
pub(crate) fn read(directory: &Path, wanted: &Wanted) -> Result<Vec<Series>, String> {
    let mut lines: BTreeMap<Line, Vec<(f64, f64)>> = BTreeMap::new();
    for file in latest_runs(directory)? {
        let benchmark: Benchmark = parse(&file)?;
        let Some((line, n_nodes)) = line(&benchmark).filter(|(line, _)| wanted.has(line)) else { continue };
        let estimates: Estimates = parse(&file.with_file_name("estimates.json"))?;
        lines.entry(line).or_default().push((n_nodes, estimates.median.point_estimate / 1e3));
    }
    if !lines.keys().any(|line| !line.is_limit) {
        return Err(format!(
            "{}: no measured decisions of {}; `cargo bench -p benches --bench cycle` writes them to target/criterion",
            directory.display(),
            wanted.shapes.join(", ")
        ));
    }
    let names_threads = lines.keys().any(|line| Some(line.n_threads) != lines.keys().next().map(|line| line.n_threads));
    let series = lines.into_iter().map(|(line, points)| {
        let mut label = line.shape;
        if line.is_batch {
            label += ", replica";
        }
        if names_threads {
            label += &format!(", {}", counted(line.n_threads, "thread"));
        }
        Series::new(label, line.is_limit, points)
    });
    Ok(series.collect())
}

impl Wanted {
    fn has(&self, line: &Line) -> bool {
        let kind = if line.is_batch { self.replicas } else { self.distinct };
        (self.threads.is_empty() || self.threads.contains(&line.n_threads))
            && (line.is_limit || (kind && self.shapes.contains(&line.shape)))
    }
}

/// The line that a benchmark is a point of, and its number of nodes; `None` for the benchmarks of something else.
fn line(benchmark: &Benchmark) -> Option<(Line, f64)> {
    let function = benchmark.function_id.as_deref()?;
    let n_nodes: u32 = benchmark.value_str.as_deref()?.parse().ok()?;
    let (is_limit, is_batch) = match benchmark.group_id.as_str() {
        CYCLE => (false, false),
        BATCH => (false, true),
        BARE_LOOP => (true, false),
        _ => return None,
    };
    let (shape, threads) = if is_limit { ("bare loop", function) } else { function.split_once('/')? };
    let n_threads = threads.strip_suffix("-threads")?.parse().ok()?;
    Some((Line { is_limit, shape: shape.to_owned(), is_batch, n_threads }, f64::from(n_nodes)))
}

/// The `benchmark.json` of every benchmark's latest run.
fn latest_runs(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let fault = |error| format!("cannot read {}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            if !entry.file_type().map_err(fault)?.is_dir() {
                continue;
            }
            let file = entry.path().join("benchmark.json");
            if entry.file_name() == "new" && file.is_file() {
                files.push(file);
            } else {
                pending.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn parse<T: DeserializeOwned>(file: &Path) -> Result<T, String> {
    let bytes = fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{} is not as Criterion writes it: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plot;

    /// A directory with a run of each: path, group, function, nodes and median nanoseconds.
    fn directory(runs: &[(&str, &str, &str, &str, f64)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (path, group, function, nodes, median) in runs {
            for run in ["base", "new"] {
                let folder = directory.path().join(path).join(run);
                fs::create_dir_all(&folder).expect("made");
                let benchmark = serde_json::json!({"group_id": group, "function_id": function, "value_str": nodes});
                // An earlier run took longer.
                let median = if run == "new" { *median } else { median * 100.0 };
                let estimates = serde_json::json!({"median": {"point_estimate": median, "standard_error": 1.0}});
                fs::write(folder.join("benchmark.json"), benchmark.to_string()).expect("written");
                fs::write(folder.join("estimates.json"), estimates.to_string()).expect("written");
            }
        }
        directory
    }

    fn wanted(shapes: &[&str], threads: &[usize], replicas: bool) -> Wanted {
        Wanted {
            shapes: shapes.iter().map(|&shape| shape.to_owned()).collect(),
            threads: threads.to_vec(),
            distinct: true,
            replicas,
        }
    }

    const RUNS: [(&str, &str, &str, &str, f64); 7] = [
        ("cycle/basic_1-threads/5000", "cycle", "basic/1-threads", "5000", 40_000.0),
        ("cycle/basic_1-threads/1000", "cycle", "basic/1-threads", "1000", 9_000.0),
        ("cycle/basic_2-threads/1000", "cycle", "basic/2-threads", "1000", 8_000.0),
        ("cycle/spread_1-threads/1000", "cycle", "spread/1-threads", "1000", 12_000.0),
        ("batch/basic_1-threads/1000", "batch", "basic/1-threads", "1000", 3_000.0),
        ("bare-loop/1-threads/1000", "bare-loop", "1-threads", "1000", 5_000.0),
        ("queue/pods/1000", "queue", "pods", "1000", 1.0),
    ];

    #[test]
    fn lines_are_the_latest_medians_over_the_nodes() {
        let directory = directory(&RUNS);
        let series = read(directory.path(), &wanted(&["basic"], &[1], true)).expect("read");
        let found: Vec<_> = series.iter().map(|line| (line.label(), line.points())).collect();
        let expected: [(&str, &[(f64, f64)]); 3] = [
            ("basic", &[(1_000.0, 9.0), (5_000.0, 40.0)]),
            ("basic, replica", &[(1_000.0, 3.0)]),
            ("bare loop", &[(1_000.0, 5.0)]),
        ];
        assert_eq!(found, expected);
        assert_eq!(plot::svg(series, "").matches("<polyline").count(), 3);
    }

    #[test]
    fn threads_are_named_where_they_differ() {
        let directory = directory(&RUNS);
        let series = read(directory.path(), &wanted(&["basic", "spread"], &[], false)).expect("read");
        let labels: Vec<_> = series.iter().map(Series::label).collect();
        assert_eq!(labels, ["basic, 1 thread", "basic, 2 threads", "spread, 1 thread", "bare loop, 1 thread"]);
    }

    #[test]
    fn a_directory_without_them_is_refused_with_the_command_that_fills_it() {
        let fault = read(directory(&RUNS[5..]).path(), &wanted(&["basic"], &[1], true)).expect_err("no decisions");
        assert!(fault.contains("no measured decisions of basic; `cargo bench -p benches"), "{fault}");
        let fault = read(Path::new("/nonexistent"), &wanted(&["basic"], &[], true)).expect_err("no directory");
        assert!(fault.starts_with("cannot read /nonexistent: "), "{fault}");
    }

    #[test]
    fn a_broken_file_is_named() {
        let directory = directory(&RUNS[..1]);
        let file = directory.path().join("cycle/basic_1-threads/5000/new/estimates.json");
        fs::write(&file, "{").expect("written");
        let fault = read(directory.path(), &wanted(&["basic"], &[], true)).expect_err("broken");
        assert!(fault.contains("estimates.json is not as Criterion writes it"), "{fault}");
    }
}
