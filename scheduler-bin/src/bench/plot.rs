//! Measurements as a picture: median time of a decision against the number of nodes, both on logarithmic scales, beside
//! the bare loop. SVG that is readable on light and on dark pages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::shapes::Row;
use crate::counted::counted;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 500.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 56.0;
/// Least distance between two labels.
const LINE_HEIGHT: f64 = 17.0;
/// Colours that differ also for those who see few, on white and on black.
const COLOURS: [&str; 8] = ["#3b82f6", "#f97316", "#10b981", "#e879a6", "#a78bfa", "#eab308", "#06b6d4", "#94a3b8"];

const STYLE: &str = "\
    text { font: 13px system-ui, sans-serif; fill: #1f2937 }
    .title { font-size: 16px; font-weight: 600 }
    .small { font-size: 12px; fill: #4b5563 }
    .grid { stroke: #9ca3af; stroke-opacity: .35 }
    .line { fill: none; stroke-width: 2 }
    .limit { stroke: #6b7280; stroke-dasharray: 6 4 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e5e7eb }
      .small { fill: #9ca3af }
      .limit { stroke: #d1d5db }
    }";

/// One line of the picture.
#[derive(Debug)]
pub(crate) struct Series {
    label: String,
    /// The bare loop, which is drawn as a limit.
    is_limit: bool,
    /// Nodes and microseconds, by nodes.
    points: Vec<(f64, f64)>,
}

impl Series {
    /// A line through `points`, nodes and microseconds in any order.
    pub(crate) fn new(label: String, is_limit: bool, mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { label, is_limit, points }
    }

    /// What stands beside the line.
    #[cfg(test)]
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Nodes and microseconds, by nodes.
    #[cfg(test)]
    pub(super) fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}

/// The picture of `series`; `subtitle` stands below its title.
pub(crate) fn svg(series: Vec<Series>, subtitle: &str) -> String {
    let mut colours = COLOURS.iter().cycle();
    let series: Vec<(Series, Option<&str>)> = series
        .into_iter()
        .map(|line| {
            let colour = if line.is_limit { None } else { colours.next().copied() };
            (line, colour)
        })
        .collect();
    let points = || series.iter().flat_map(|(line, _)| line.points.iter().copied());
    let x = Scale::new(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Scale::new(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Median time of a decision against the number of nodes\">\n  <style>\n{STYLE}\n  </style>\n"
    );
    let mut text = |x: f64, y: f64, class: &str, anchor: &str, text: &str| {
        // A String takes whatever is written.
        let _ = writeln!(
            svg,
            "  <text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    };
    text(LEFT, 22.0, "title", "start", "One decision, every node scored: median time");
    text(LEFT, 40.0, "small", "start", subtitle);
    text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0, "small", "middle", "nodes");
    for (value, label) in x.ticks(count) {
        text(x.at(value), HEIGHT - BOTTOM + 20.0, "small", "middle", &label);
    }
    for (value, label) in y.ticks(time) {
        text(LEFT - 8.0, y.at(value) + 4.0, "small", "end", &label);
    }
    let mut labels: Vec<(f64, &str)> =
        series.iter().filter_map(|(line, _)| Some((y.at(line.points.last()?.1), line.label.as_str()))).collect();
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (at, label) in &labels {
        let at = at.max(free);
        free = at + LINE_HEIGHT;
        text(WIDTH - RIGHT + 12.0, at + 4.0, "", "start", label);
    }
    for (value, _) in x.ticks(count) {
        let at = x.at(value);
        let _ = writeln!(
            svg,
            "  <line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{}\" class=\"grid\"/>",
            HEIGHT - BOTTOM
        );
    }
    for (value, _) in y.ticks(time) {
        let at = y.at(value);
        let _ = writeln!(
            svg,
            "  <line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" class=\"grid\"/>",
            WIDTH - RIGHT
        );
    }
    for (line, colour) in &series {
        let path: Vec<String> =
            line.points.iter().map(|&(nodes, micros)| format!("{:.1},{:.1}", x.at(nodes), y.at(micros))).collect();
        let path = path.join(" ");
        let Some(colour) = colour else {
            let _ = writeln!(svg, "  <polyline points=\"{path}\" class=\"line limit\"/>");
            continue;
        };
        let _ = writeln!(svg, "  <polyline points=\"{path}\" class=\"line\" stroke=\"{colour}\"/>");
        for &(nodes, micros) in &line.points {
            let _ = writeln!(
                svg,
                "  <circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x.at(nodes),
                y.at(micros)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Lines of the rows with all in common but the number of nodes, and of the bare loops by their threads.
pub(crate) fn of_rows(rows: &[Row]) -> Vec<Series> {
    let has_several = |what: fn(&Row) -> String| rows.iter().any(|row| what(row) != what(&rows[0]));
    let differs = [
        has_several(|row| row.case.n_threads.to_string()),
        has_several(|row| row.case.distinct.to_string()),
        has_several(|row| row.case.sample.to_string()),
    ];
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut limits: BTreeMap<usize, BTreeMap<usize, f64>> = BTreeMap::new();
    for row in rows {
        let case = &row.case;
        let mut label = case.shape.name().to_owned();
        if differs[0] {
            label += &format!(", {}", counted(case.n_threads, "thread"));
        }
        if differs[1] {
            label += &format!(", {:.0}% different", case.distinct * 100.0);
        }
        if differs[2] {
            label += &format!(", sample {}%", case.sample);
        }
        let micros = |duration: std::time::Duration| duration.as_secs_f64() * 1e6;
        lines.entry(label).or_default().push((case.n_nodes as f64, micros(row.percentile(50))));
        let limit = limits.entry(case.n_threads).or_default().entry(case.n_nodes).or_insert(f64::INFINITY);
        *limit = limit.min(micros(row.bare_loop));
    }
    let lines = lines.into_iter().map(|(label, points)| Series::new(label, false, points));
    let limits = limits.into_iter().map(|(n_threads, points)| {
        let label =
            if differs[0] { format!("bare loop, {}", counted(n_threads, "thread")) } else { "bare loop".to_owned() };
        Series::new(label, true, points.into_iter().map(|(n_nodes, micros)| (n_nodes as f64, micros)).collect())
    });
    lines.chain(limits).collect()
}

/// A logarithmic axis.
struct Scale {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From the power of ten below all values to the one above.
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let logarithms: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
        let least = logarithms.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
        if least.is_finite() && most > least {
            Self { least, most, from, to }
        } else {
            let least = if least.is_finite() { least } else { 0.0 };
            Self { least, most: least + 1.0, from, to }
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.least) / (self.most - self.least);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self, label: fn(f64) -> String) -> Vec<(f64, String)> {
        (self.least as i32..=self.most as i32)
            .map(|power| 10_f64.powi(power))
            .map(|value| (value, label(value)))
            .collect()
    }
}

fn count(value: f64) -> String {
    match value {
        1e6.. => format!("{:.0}M", value / 1e6),
        1e3.. => format!("{:.0}k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

fn time(micros: f64) -> String {
    match micros {
        1e6.. => format!("{:.0} s", micros / 1e6),
        1e3.. => format!("{:.0} ms", micros / 1e3),
        1.0.. => format!("{micros:.0} µs"),
        _ => format!("{:.0} ns", micros * 1e3),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shapes::Case;
    use benches::workload::Shape;
    use std::time::Duration;

    fn row(shape: Shape, n_nodes: usize, micros: u64) -> Row {
        Row {
            case: Case {
                shape,
                n_nodes,
                n_existing: 0,
                n_pods: 1,
                n_threads: 2,
                distinct: 1.0,
                n_replicas: 1,
                sample: 100,
                seed: 0,
            },
            decisions: vec![Duration::from_micros(micros)],
            whole_loop: Duration::from_micros(micros),
            n_unscheduled: 0,
            n_evaluated: 1,
            n_feasible: 1,
            n_allocations: None,
            bare_loop: Duration::from_micros(micros / 2),
            footprint: None,
            placements: 0,
        }
    }

    #[test]
    fn every_shape_has_a_line_and_the_bare_loop_one_too() {
        let rows = [row(Shape::Basic, 1_000, 10), row(Shape::Basic, 100_000, 1_000), row(Shape::Spread, 1_000, 20)];
        let svg = svg(of_rows(&rows), "a <machine>");
        assert_eq!(svg.matches("<polyline").count(), 3, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        for part in [
            ">basic<",
            ">spread<",
            ">bare loop<",
            ">1k<",
            ">100k<",
            ">1 ms<",
            "a &lt;machine&gt;",
            "prefers-color-scheme: dark",
        ] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn one_point_or_none_is_no_fault() {
        for rows in [vec![], vec![row(Shape::Basic, 1_000, 10)]] {
            let svg = svg(of_rows(&rows), "");
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn ticks_are_powers_of_ten_with_units() {
        let scale = Scale::new([3.0, 4_000.0].into_iter(), 0.0, 40.0);
        let labels: Vec<String> = scale.ticks(time).into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
        assert_eq!((scale.at(1.0), scale.at(100.0), scale.at(10_000.0)), (0.0, 20.0, 40.0));
    }
}
