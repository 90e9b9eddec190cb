//! The report as one HTML file that needs nothing else: no network, no fonts, no library; readable in light and in dark.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::definitions::DEFINITIONS;
use super::style::{SCRIPT, STYLE};
use super::svg::{Line, bars, escape, heat, lines};
use super::text::{Show, grouped, table};
use super::{RunReport, SimulationReport};
use crate::simulate::measure::Sample;
use crate::simulate::span::pretty;

/// Most messages in the table of reasons.
const MAX_MESSAGES: usize = 20;

/// Most warnings that are printed.
const MAX_WARNINGS: usize = 50;

/// Writes the page; `input` says in a few words what was simulated.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write(report: &SimulationReport, input: &str, out: &mut dyn Write) -> io::Result<()> {
    let head = "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><link rel=\"icon\" href=\"data:,\">";
    write!(
        out,
        "<!doctype html><html lang=\"en\"><head>{head}<title>Plimsoll simulation</title><style>{STYLE}</style></head><body><main>"
    )?;
    let names: Vec<&str> = report.runs.iter().map(|run| run.name.as_str()).collect();
    let runs = if names.len() > 1 { format!(" · {}", escape(&names.join(" against "))) } else { String::new() };
    write!(
        out,
        "<header><div><h1>Simulation</h1><div class=\"soft\">{}{runs} · seed {}</div></div><button id=\"theme\" type=\"button\">Light / dark</button></header>",
        escape(input),
        report.seed
    )?;
    out.write_all(cards(report).as_bytes())?;
    out.write_all(b"<div class=\"grid\">")?;
    if report.runs.len() > 1 {
        section(out, "Side by side", "In brackets: the difference to the first.", &comparison(report), true)?;
    }
    for chart in over_time(report) {
        section(out, &chart.0, &chart.1, &chart.2, false)?;
    }
    waits(report, out)?;
    for run in &report.runs {
        heat_maps(run, report.runs.len() > 1, out)?;
    }
    for run in &report.runs {
        reasons(run, report.runs.len() > 1, out)?;
    }
    if report.runs.len() == 1 {
        section(out, "All figures", "", &figures(report), true)?;
    }
    if !report.warnings.is_empty() {
        let shown: String =
            report.warnings.iter().take(MAX_WARNINGS).map(|warning| format!("<li>{}</li>", escape(warning))).collect();
        let rest = report.warnings.len().saturating_sub(MAX_WARNINGS);
        let rest = if rest > 0 { format!("<li>and {rest} more</li>") } else { String::new() };
        section(out, "What was odd about the input", "", &format!("<ul>{shown}{rest}</ul>"), true)?;
    }
    let list: String = DEFINITIONS
        .iter()
        .map(|(name, unit, meaning)| format!("<dt>{}</dt><dd>{} <em>({unit})</em></dd>", escape(name), escape(meaning)))
        .collect();
    section(
        out,
        "What the figures mean",
        "The names are those of --fail-if and of the JSON form.",
        &format!("<dl>{list}</dl>"),
        true,
    )?;
    write!(out, "</div></main><script>{SCRIPT}</script></body></html>")?;
    out.flush()
}

fn section(out: &mut dyn Write, title: &str, note: &str, body: &str, wide: bool) -> io::Result<()> {
    let class = if wide { " class=\"wide\"" } else { "" };
    write!(out, "<section{class}><h2>{}</h2><p class=\"note\">{}</p>{body}</section>", escape(title), escape(note))
}

fn cards(report: &SimulationReport) -> String {
    let of = &report.summary;
    let mut html = String::from("<div class=\"cards\">");
    let mut card = |class: &str, value: String, name: &str| {
        let _ = write!(html, "<div class=\"card {class}\"><b>{}</b><span>{name}</span></div>", escape(&value));
    };
    card("", grouped(of.pods as f64), "pods came");
    card("good", grouped(of.pods_scheduled as f64), "got a node");
    card(if of.pods_unschedulable > 0 { "bad" } else { "" }, grouped(of.pods_unschedulable as f64), "never got one");
    card("", grouped(of.nodes as f64), "nodes at the end");
    for (resource, share) in of.utilisation.iter().take(3) {
        card("", Show::Percent.text(*share), &format!("{} requested at the end", escape(resource)));
    }
    if of.simulated_seconds > 0.0 {
        card("", pretty(of.simulated_seconds), "simulated");
        card("", pretty(of.wait_seconds.p99), "wait, 99 of 100 pods");
    }
    if of.preemptions > 0 {
        card("", grouped(of.preemptions as f64), "preempted");
    }
    if let Some(cost) = of.cost.filter(|_| of.simulated_seconds > 0.0) {
        card("", Show::Money.text(cost), "cost of the nodes");
    } else if let Some(rate) = of.cost_per_hour {
        card("", Show::Money.text(rate), "cost an hour");
    }
    if let (Some(millis), Some(rate)) = (of.engine_millis, of.decisions_per_second) {
        card("", Show::Millis.text(millis), &format!("in the engine, {} decisions a second", grouped(rate)));
    }
    html.push_str("</div>");
    html
}

/// The figures of a single run, in columns.
fn figures(report: &SimulationReport) -> String {
    let rows: String = table(report)
        .iter()
        .map(|row| {
            format!(
                "<div><span>{}</span><b>{}</b></div>",
                escape(&row[0]),
                escape(row.get(1).map_or("", String::as_str))
            )
        })
        .collect();
    format!("<div class=\"figures\">{rows}</div>")
}

fn comparison(report: &SimulationReport) -> String {
    let rows = table(report);
    let mut html = String::from("<div class=\"scroll\"><table>");
    for (at, row) in rows.iter().enumerate() {
        let cell = if at == 0 && report.runs.len() > 1 { "th" } else { "td" };
        let cells: String = row.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect();
        let _ = write!(html, "<tr>{cells}</tr>");
    }
    html.push_str("</table></div>");
    html
}

/// Title, note and body of the charts over time; over attempts when the clock stood still.
fn over_time(report: &SimulationReport) -> Vec<(String, String, String)> {
    let has_time = report.runs.iter().any(|run| run.summary.simulated_seconds > 0.0);
    let x = move |sample: &Sample| if has_time { sample.seconds } else { sample.attempts as f64 };
    let x_label: fn(f64) -> String = if has_time { |x| pretty(x.round()) } else { |x| grouped(x) };
    let axis = if has_time { "over virtual time" } else { "over attempts: the clock stood still" };
    let percent: fn(f64) -> String = |share| format!("{:.0}%", share * 100.0);
    let count: fn(f64) -> String = grouped;
    let mut charts = Vec::new();
    let points = |run: &RunReport, of: &dyn Fn(&Sample) -> Option<f64>| -> Vec<(f64, f64)> {
        run.samples.iter().filter_map(|sample| Some((x(sample), of(sample)?))).collect()
    };
    let families: [(&str, fn(&Sample) -> &Vec<f64>, f64); 3] = [
        ("Utilisation", |sample| &sample.utilisation, 0.1),
        ("Fragmentation", |sample| &sample.fragmentation, 0.05),
        ("Imbalance", |sample| &sample.imbalance, 0.05),
    ];
    for (title, of, top) in families {
        match &report.runs[..] {
            [run] => {
                let all: Vec<Line> = run
                    .resources
                    .iter()
                    .enumerate()
                    .map(|(at, name)| Line {
                        name: name.to_string(),
                        points: points(run, &|sample| of(sample).get(at).copied()),
                    })
                    .collect();
                charts.push((
                    title.to_owned(),
                    format!("Share of each resource, {axis}."),
                    lines(title, &all, x_label, percent, top),
                ));
            }
            runs => {
                for (at, resource) in
                    runs.first().map(|run| run.resources.clone()).unwrap_or_default().iter().enumerate()
                {
                    let title = format!("{title}: {resource}");
                    let all: Vec<Line> = runs
                        .iter()
                        .map(|run| Line {
                            name: run.name.clone(),
                            points: points(run, &|sample| of(sample).get(at).copied()),
                        })
                        .collect();
                    let chart = lines(&title, &all, x_label, percent, top);
                    charts.push((title, format!("Share, {axis}."), chart));
                }
            }
        }
    }
    let several = report.runs.len() > 1;
    let figures: [(&str, fn(&Sample) -> f64); 2] =
        [("waiting", |sample| sample.pending as f64), ("on nodes", |sample| sample.placed as f64)];
    let all: Vec<Line> = report
        .runs
        .iter()
        .flat_map(|run| {
            figures.iter().take(if several { 1 } else { 2 }).map(move |(name, of)| {
                let name = if several { run.name.clone() } else { (*name).to_owned() };
                Line { name, points: run.samples.iter().map(|sample| (x(sample), of(sample))).collect() }
            })
        })
        .collect();
    let title = if several { "Pods that wait" } else { "Pods" };
    charts.insert(
        if several { charts.len() } else { 1 },
        (title.to_owned(), format!("Number, {axis}."), lines(title, &all, x_label, count, 1.0)),
    );
    charts
}

fn waits(report: &SimulationReport, out: &mut dyn Write) -> io::Result<()> {
    if report.runs.iter().all(|run| run.summary.pods_scheduled == 0) {
        return Ok(());
    }
    let Some(first) = report.runs.first() else { return Ok(()) };
    let groups: Vec<String> = first
        .waits
        .iter()
        .map(|bucket| match bucket.up_to_seconds {
            Some(0.0) => "none".to_owned(),
            Some(end) => format!("≤{}", pretty(end)),
            None => "more".to_owned(),
        })
        .collect();
    let series: Vec<(String, Vec<f64>)> = report
        .runs
        .iter()
        .map(|run| (run.name.clone(), run.waits.iter().map(|bucket| bucket.pods as f64).collect()))
        .collect();
    let of = &report.summary.wait_seconds;
    let note = format!(
        "Pods by the time from creation to binding. Median {}, 99 of 100 within {}, longest {}.",
        pretty(of.median),
        pretty(of.p99),
        pretty(of.max)
    );
    section(out, "Waits", &note, &bars("Waits", &groups, &series, grouped), false)
}

fn heat_maps(run: &RunReport, named: bool, out: &mut dyn Write) -> io::Result<()> {
    let suffix = if named { format!(" · {}", run.name) } else { String::new() };
    for (at, resource) in run.resources.iter().enumerate() {
        let offers: Vec<_> = run.nodes.iter().filter(|node| node.allocatable[at] > 0).collect();
        if offers.is_empty() {
            continue;
        }
        let cells: Vec<(String, f64)> = offers
            .iter()
            .map(|node| (node.name.to_string(), node.requested[at] as f64 / node.allocatable[at] as f64))
            .collect();
        let title = format!("Nodes by {resource}{suffix}");
        let swatches: String = (0..=10)
            .map(|level| format!("<rect class=\"h{level}\" x=\"{}\" width=\"13\" height=\"12\" rx=\"2\"/>", level * 14))
            .collect();
        let scale = format!(
            "<div class=\"scale\"><span>0%</span><svg viewBox=\"0 0 154 12\">{swatches}</svg><span>100% requested</span></div>"
        );
        let note = format!(
            "One cell a node, in the order of the cluster; {} {} it.",
            grouped(offers.len() as f64),
            if offers.len() == 1 { "node offers" } else { "nodes offer" }
        );
        section(out, &title, &note, &format!("{}{scale}", heat(&title, &cells)), false)?;
    }
    Ok(())
}

fn reasons(run: &RunReport, named: bool, out: &mut dyn Write) -> io::Result<()> {
    if run.messages.is_empty() {
        return Ok(());
    }
    let suffix = if named { format!(" · {}", run.name) } else { String::new() };
    let rows: String = run
        .messages
        .iter()
        .take(MAX_MESSAGES)
        .map(|message| {
            format!("<tr><td>{}</td><td>{}</td></tr>", grouped(message.pods as f64), escape(&message.message))
        })
        .collect();
    let rest = run.messages.len().saturating_sub(MAX_MESSAGES);
    let note = if rest > 0 {
        format!("The {MAX_MESSAGES} most frequent of {} messages.", run.messages.len())
    } else {
        String::new()
    };
    let body = format!(
        "<div class=\"scroll\"><table class=\"left\"><tr><th>pods</th><th>the scheduler says</th></tr>{rows}</table></div>"
    );
    section(out, &format!("Why pods wait{suffix}"), &note, &body, true)
}
