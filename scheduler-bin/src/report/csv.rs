//! The course of the runs as CSV: one line a sample.

use std::io::{self, Write};

use super::SimulationReport;

/// Writes a head and the samples of every run.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write(report: &SimulationReport, out: &mut dyn Write) -> io::Result<()> {
    let resources = report.runs.iter().map(|run| &run.resources).max_by_key(|resources| resources.len());
    let resources = resources.cloned().unwrap_or_default();
    write!(out, "run,seconds,attempts,nodes,placed,pending")?;
    for figure in ["utilisation", "fragmentation", "imbalance"] {
        for resource in &resources {
            write!(out, ",{figure}.{resource}")?;
        }
    }
    writeln!(out)?;
    for run in &report.runs {
        for sample in &run.samples {
            write!(
                out,
                "{},{},{},{},{},{}",
                quoted(&run.name),
                sample.seconds,
                sample.attempts,
                sample.nodes,
                sample.placed,
                sample.pending
            )?;
            for amounts in [&sample.utilisation, &sample.fragmentation, &sample.imbalance] {
                for resource in &resources {
                    let at = run.resources.iter().position(|own| own == resource);
                    match at.and_then(|at| amounts.get(at)) {
                        Some(amount) => write!(out, ",{}", super::rounded(*amount))?,
                        None => write!(out, ",")?,
                    }
                }
            }
            writeln!(out)?;
        }
    }
    out.flush()
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
