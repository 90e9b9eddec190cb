//! The report for a terminal: one table, runs side by side, and why pods wait.

use std::io::{self, Write};

use super::{RunReport, SimulationReport, Summary};
use crate::columns::align;
use crate::counted::counted;
use crate::simulate::span::pretty;

/// Most messages that are shown for a run.
const MAX_MESSAGES: usize = 8;

/// Writes the report.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write(report: &SimulationReport, out: &mut dyn Write) -> io::Result<()> {
    let first = &report.summary;
    writeln!(
        out,
        "{} on {}: {} placed, {} not.",
        counted(first.pods, "pod"),
        counted(first.nodes, "node"),
        first.pods_scheduled,
        first.pods_unschedulable
    )?;
    writeln!(out)?;
    for line in align(&table(report)).lines() {
        writeln!(out, "  {line}")?;
    }
    for run in &report.runs {
        reasons(run, report.runs.len() > 1, out)?;
    }
    out.flush()
}

/// Figures as rows, runs as columns; with several runs the difference to the first stands behind each.
pub(crate) fn table(report: &SimulationReport) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    if report.runs.len() > 1 {
        let head = std::iter::once("FIGURE".to_owned());
        rows.push(head.chain(report.runs.iter().map(|run| run.name.clone())).collect());
    }
    for (name, show, figure) in figures(report) {
        let base = report.runs.first().and_then(|run| figure(&run.summary));
        if report.runs.iter().all(|run| figure(&run.summary).is_none()) {
            continue;
        }
        let mut row = vec![name];
        for (at, run) in report.runs.iter().enumerate() {
            let amount = figure(&run.summary);
            let text = amount.map_or_else(|| "-".to_owned(), |amount| show.text(amount));
            row.push(match (amount, base) {
                (Some(amount), Some(base)) if at > 0 && amount != base => {
                    format!("{text} ({})", show.difference(amount - base))
                }
                _ => text,
            });
        }
        rows.push(row);
    }
    rows
}

/// How an amount is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Show {
    /// A whole number.
    Count,
    /// A share as percent.
    Percent,
    /// Seconds as a span.
    Span,
    /// Milliseconds.
    Millis,
    /// Two decimals.
    Money,
}

impl Show {
    /// The amount as text.
    pub(crate) fn text(self, amount: f64) -> String {
        match self {
            Self::Count => grouped(amount),
            Self::Percent => format!("{:.1}%", amount * 100.0),
            Self::Span => pretty(amount),
            Self::Millis if amount >= 1000.0 => format!("{:.2} s", amount / 1000.0),
            Self::Millis => format!("{amount:.1} ms"),
            Self::Money => format!("{amount:.2}"),
        }
    }

    fn difference(self, amount: f64) -> String {
        let sign = if amount < 0.0 { "−" } else { "+" };
        match self {
            Self::Percent => format!("{sign}{:.1} points", amount.abs() * 100.0),
            other => format!("{sign}{}", other.text(amount.abs())),
        }
    }
}

type Figure = Box<dyn Fn(&Summary) -> Option<f64>>;

/// The figures of the table.
pub(crate) fn figures(report: &SimulationReport) -> Vec<(String, Show, Figure)> {
    let mut figures: Vec<(String, Show, Figure)> = Vec::new();
    let mut add = |name: &str, show, figure: Figure| figures.push((name.to_owned(), show, figure));
    add("scheduled", Show::Count, Box::new(|of| Some(of.pods_scheduled as f64)));
    add("unschedulable", Show::Count, Box::new(|of| Some(of.pods_unschedulable as f64)));
    let some = |amount: u64| (amount > 0).then_some(amount as f64);
    add("otherSchedulers", Show::Count, Box::new(move |of| some(of.pods_of_other_schedulers)));
    add("left", Show::Count, Box::new(move |of| some(of.pods_left)));
    add("preemptions", Show::Count, Box::new(move |of| some(of.preemptions)));
    add("displaced", Show::Count, Box::new(move |of| some(of.displaced)));
    let resources = report.runs.iter().map(|run| &run.resources).max_by_key(|resources| resources.len());
    for resource in resources.into_iter().flatten() {
        let name = resource.clone();
        add(&format!("utilisation.{resource}"), Show::Percent, Box::new(move |of| of.utilisation.get(&name).copied()));
        let name = resource.clone();
        add(
            &format!("meanUtilisation.{resource}"),
            Show::Percent,
            Box::new(move |of| of.mean_utilisation.get(&name).copied().filter(|_| of.simulated_seconds > 0.0)),
        );
        let name = resource.clone();
        add(
            &format!("fragmentation.{resource}"),
            Show::Percent,
            Box::new(move |of| of.fragmentation.get(&name).copied().filter(|_| of.pods_pending > 0)),
        );
        let name = resource.clone();
        add(&format!("imbalance.{resource}"), Show::Percent, Box::new(move |of| of.imbalance.get(&name).copied()));
    }
    let waited = |of: &Summary| of.simulated_seconds > 0.0;
    add("wait.median", Show::Span, Box::new(move |of| waited(of).then_some(of.wait_seconds.median)));
    add("wait.p99", Show::Span, Box::new(move |of| waited(of).then_some(of.wait_seconds.p99)));
    add("wait.max", Show::Span, Box::new(move |of| waited(of).then_some(of.wait_seconds.max)));
    add("simulated", Show::Span, Box::new(move |of| waited(of).then_some(of.simulated_seconds)));
    add("cost", Show::Money, Box::new(move |of| of.cost.filter(|_| waited(of))));
    add("costPerHour", Show::Money, Box::new(|of| of.cost_per_hour));
    add("attempts", Show::Count, Box::new(|of| Some(of.attempts as f64)));
    add("engine", Show::Millis, Box::new(|of| of.engine_millis));
    add("decisionsPerSecond", Show::Count, Box::new(|of| of.decisions_per_second));
    figures
}

fn reasons(run: &RunReport, named: bool, out: &mut dyn Write) -> io::Result<()> {
    if run.messages.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let suffix = if named { format!(" ({})", run.name) } else { String::new() };
    writeln!(out, "Why pods wait{suffix}:")?;
    for message in run.messages.iter().take(MAX_MESSAGES) {
        let noun = if message.pods == 1 { "pod" } else { "pods" };
        writeln!(out, "  {} {noun}: {}", grouped(message.pods as f64), message.message)?;
    }
    if run.messages.len() > MAX_MESSAGES {
        writeln!(out, "  and {}; -o json has them all", counted(run.messages.len() - MAX_MESSAGES, "more message"))?;
    }
    Ok(())
}

/// A whole number with blanks between groups of three digits.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("−{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_for_people() {
        assert_eq!(grouped(1_234_567.0), "1 234 567");
        assert_eq!(grouped(-12.0), "−12");
        assert_eq!(Show::Percent.text(0.1234), "12.3%");
        assert_eq!(Show::Percent.difference(-0.05), "−5.0 points");
        assert_eq!(Show::Span.difference(90.0), "+1m 30s");
    }
}
