//! Recorded decisions of the real kube-scheduler v1.36.2: each case is one cluster, one pod, and everything that was
//! decided. A case passes only if all of it matches.
//!
//! The cases are in `tests/golden/`; the folder that the variable `GOLDEN_DIR` names is read, too.

mod golden_support;

use std::path::{Path, PathBuf};

use golden_support::case::Suite;
use golden_support::check::check;

/// Cases that need devices allocated: dynamic resource allocation is built next.
const SKIPPED_PREFIX: &str = "dra-extended-";

#[test]
fn every_recorded_decision_is_made_again() {
    let mut files = json_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"));
    if let Some(folder) = std::env::var_os("GOLDEN_DIR") {
        files.extend(json_files(Path::new(&folder)));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    let (mut n_passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    for file in files {
        let suite = Suite::read(&file);
        for case in &suite.cases {
            let name = format!("{}/{}", suite.name, case.name);
            if case.name.starts_with(SKIPPED_PREFIX) {
                skipped.push(name);
                continue;
            }
            let differences = check(case, &pool);
            if differences.is_empty() {
                n_passed += 1;
            } else {
                report(&name, &differences);
                failed.push(name);
            }
        }
    }
    summarize(n_passed, &failed, &skipped);
    assert!(failed.is_empty(), "{} cases differ: {}", failed.len(), failed.join(", "));
}

fn json_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("folder entry").path())
        .filter(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".json") || name.ends_with(".json.gz")
        })
        .collect();
    files.sort();
    files
}

#[expect(clippy::print_stdout, reason = "the report is what one runs this test for")]
fn report(name: &str, differences: &[String]) {
    println!("FAILED {name}");
    for difference in differences {
        println!("    {difference}");
    }
}

#[expect(clippy::print_stdout, reason = "the report is what one runs this test for")]
fn summarize(n_passed: usize, failed: &[String], skipped: &[String]) {
    if !skipped.is_empty() {
        println!("skipped, since they need devices allocated: {}", skipped.join(", "));
    }
    println!("{n_passed} passed, {} failed", failed.len());
}
