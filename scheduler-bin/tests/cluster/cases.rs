//! Runs the cases of `tests/cases`, each against an empty offline cluster of its own; see the README there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};

use super::process::{Up, program};

/// The cases wait most of the time.
const N_AT_ONCE: usize = 4;

#[test]
fn every_reported_problem_ends_as_it_should() -> Result<()> {
    for name in ["bash", "kubectl"] {
        if program(name)?.is_none() {
            return Ok(());
        }
    }
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"));
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    cases.retain(|case| case.join("check.sh").is_file());
    cases.sort();
    ensure!(cases.len() >= 38, "only {} cases in {}", cases.len(), folder.display());
    if program("jq")?.is_none() {
        cases.retain(|case| std::fs::read_to_string(case.join("check.sh")).is_ok_and(|check| !check.contains("jq ")));
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failures = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = check(case) {
                failures.push(format!("{}: {error:#}", case.display()));
            }
        }
        failures
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..N_AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|_| vec!["a worker panicked".to_owned()]))
            .collect()
    });
    ensure!(failures.is_empty(), "{} of {} cases failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
    Ok(())
}

fn check(case: &Path) -> Result<()> {
    let up = Up::start(&["--nodes", "0"])?;
    let output = Command::new("bash")
        .arg(case.join("check.sh"))
        .env("KUBECONFIG", &up.kubeconfig)
        .env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"))
        .stdin(Stdio::null())
        .output()
        .context("bash can be started")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
