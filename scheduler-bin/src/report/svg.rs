//! Charts as inline SVG: lines over time, bars, and a heat map. Colours are classes, so that the page decides light or dark.

use std::fmt::Write as _;

/// Width and height of a chart, in user units.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 230.0;
/// Room for labels around the plot.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 30.0;

/// Most cells of a heat map; with more nodes a cell stands for several.
const MAX_CELLS: usize = 4000;

/// One line of a chart.
pub(crate) struct Line {
    /// What it shows.
    pub(crate) name: String,
    /// Points by rising x.
    pub(crate) points: Vec<(f64, f64)>,
}

/// How numbers along an axis are written.
pub(crate) type Label = fn(f64) -> String;

/// The vertical axis of a chart: from zero to a round number.
struct YAxis {
    top: f64,
    step: f64,
}

impl YAxis {
    /// An axis that `end` fits on.
    fn to(end: f64) -> Self {
        let step = step(end, 4.0);
        Self { top: if end > 0.0 { (end / step - 1e-9).ceil().max(1.0) * step } else { 1.0 }, step }
    }

    /// Where `y` lies in the chart.
    fn at(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - y / self.top * (HEIGHT - TOP - BOTTOM)
    }

    /// A line and a label for each step.
    fn draw_grid(&self, svg: &mut String, label: Label) {
        let mut tick = 0.0;
        while tick <= self.top * 1.0001 {
            let y = self.at(tick);
            let _ =
                write!(svg, r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#, WIDTH - RIGHT);
            let _ = write!(
                svg,
                r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y + 4.0,
                escape(&label(tick))
            );
            tick += self.step;
        }
    }

    /// The line that everything stands on, and the end of the chart.
    fn close(&self, svg: &mut String) {
        let y = self.at(0.0);
        let end = WIDTH - RIGHT;
        let _ = write!(svg, r#"<line class="axis" x1="{LEFT}" x2="{end:.1}" y1="{y:.1}" y2="{y:.1}"/></svg>"#);
    }
}

/// Escapes text for HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Steps over time: a value holds until the next one. `floor_top` is the least upper end of the y axis.
pub(crate) fn lines(title: &str, lines: &[Line], x_label: Label, y_label: Label, floor_top: f64) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_end = points().map(|point| point.0).fold(0.0, f64::max);
    let y_end = points().map(|point| point.1).fold(floor_top, f64::max);
    let y_axis = YAxis::to(y_end);
    let x_top = if x_end > 0.0 { x_end } else { 1.0 };
    let x_of = |x: f64| LEFT + x / x_top * (WIDTH - LEFT - RIGHT);
    let y_of = |y: f64| y_axis.at(y);
    let mut svg = open(title);
    y_axis.draw_grid(&mut svg, y_label);
    for at in 0..=4 {
        let value = x_top * f64::from(at) / 4.0;
        let anchor = match at {
            0 => "start",
            4 => "end",
            _ => "middle",
        };
        let _ = write!(
            svg,
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
            x_of(value),
            HEIGHT - 8.0,
            escape(&x_label(value))
        );
    }
    for (at, line) in lines.iter().enumerate() {
        let mut path = String::new();
        let mut last = None;
        for &(x, y) in &line.points {
            let (x, y) = (x_of(x), y_of(y));
            match last {
                None => {
                    let _ = write!(path, "M{x:.1} {y:.1}");
                }
                Some(before) if before == y => {
                    let _ = write!(path, "H{x:.1}");
                }
                Some(_) => {
                    let _ = write!(path, "H{x:.1}V{y:.1}");
                }
            }
            last = Some(y);
        }
        let first = line.points.first().map_or(LEFT, |point| x_of(point.0));
        let end = line.points.last().map_or(LEFT, |point| x_of(point.0));
        if lines.len() == 1 && !path.is_empty() {
            let base = y_of(0.0);
            let _ = write!(svg, r#"<path class="area s{at}" d="{path}L{end:.1} {base:.1}L{first:.1} {base:.1}Z"/>"#);
        }
        let _ = write!(svg, r#"<path class="line s{at}" d="{path}"><title>{}</title></path>"#, escape(&line.name));
        if let [(x, y)] = line.points[..] {
            let _ = write!(svg, r#"<circle class="dot s{at}" cx="{:.1}" cy="{:.1}" r="4"/>"#, x_of(x), y_of(y));
        }
    }
    y_axis.close(&mut svg);
    if lines.len() > 1 {
        svg.push_str(&legend(lines.iter().map(|line| line.name.as_str())));
    }
    svg
}

/// Bars side by side: names of the groups, then for each series its amounts.
pub(crate) fn bars(title: &str, groups: &[String], series: &[(String, Vec<f64>)], y_label: Label) -> String {
    let y_end = series.iter().flat_map(|(_, amounts)| amounts).copied().fold(0.0, f64::max);
    let y_axis = YAxis::to(y_end);
    let y_of = |y: f64| y_axis.at(y);
    let mut svg = open(title);
    y_axis.draw_grid(&mut svg, y_label);
    let slot = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let width = slot * 0.74 / series.len().max(1) as f64;
    for (group, name) in groups.iter().enumerate() {
        let start = LEFT + slot * group as f64 + slot * 0.13;
        for (at, (series_name, amounts)) in series.iter().enumerate() {
            let amount = amounts.get(group).copied().unwrap_or(0.0);
            let (x, y) = (start + width * at as f64, y_of(amount));
            let _ = write!(
                svg,
                r#"<rect class="bar s{at}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" rx="2"><title>{}: {} {}</title></rect>"#,
                (width - 2.0).max(1.0),
                (y_of(0.0) - y).max(0.0),
                escape(name),
                escape(&y_label(amount)),
                escape(series_name),
            );
        }
        let _ = write!(
            svg,
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            start + slot * 0.37,
            HEIGHT - 8.0,
            escape(name)
        );
    }
    y_axis.close(&mut svg);
    if series.len() > 1 {
        svg.push_str(&legend(series.iter().map(|(name, _)| name.as_str())));
    }
    svg
}

/// One cell a node, or several nodes: the fuller, the stronger. Amounts are shares; titles are shown by the browser.
pub(crate) fn heat(title: &str, cells: &[(String, f64)]) -> String {
    let together = cells.len().div_ceil(MAX_CELLS).max(1);
    let cells: Vec<(String, f64)> = cells
        .chunks(together)
        .map(|chunk| {
            let mean = chunk.iter().map(|cell| cell.1).sum::<f64>() / chunk.len() as f64;
            match chunk {
                [only] => only.clone(),
                [first, .., last] => (format!("{} … {}", first.0, last.0), mean),
                [] => (String::new(), 0.0),
            }
        })
        .collect();
    let n_columns = ((cells.len() as f64 * 3.2).sqrt().ceil().max(1.0) as usize).clamp(1, 120);
    let n_rows = cells.len().div_ceil(n_columns).max(1);
    let size = (WIDTH / n_columns as f64).min(36.0);
    let gap = if size > 8.0 { 1.5 } else { 0.5 };
    let mut svg = format!(
        r#"<svg class="chart heat" role="img" viewBox="0 0 {WIDTH} {:.1}"><title>{}</title>"#,
        (size * n_rows as f64).max(12.0),
        escape(title)
    );
    for (at, (name, share)) in cells.iter().enumerate() {
        let (x, y) = ((at % n_columns) as f64 * size, (at / n_columns) as f64 * size);
        let level = (share.clamp(0.0, 1.0) * 10.0).round() as usize;
        let _ = write!(
            svg,
            r#"<rect class="h{level}" x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{w:.1}" rx="1"><title>{}: {:.0}%</title></rect>"#,
            escape(name),
            share * 100.0,
            w = size - gap,
        );
    }
    svg.push_str("</svg>");
    svg
}

fn open(title: &str) -> String {
    format!(r#"<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}"><title>{}</title>"#, escape(title))
}

fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let items: String = names
        .enumerate()
        .map(|(at, name)| format!(r#"<span><i class="key s{at}"></i>{}</span>"#, escape(name)))
        .collect();
    format!(r#"<div class="legend">{items}</div>"#)
}

/// A round step so that about `n` of them reach `end`.
fn step(end: f64, n: f64) -> f64 {
    if end <= 0.0 {
        return 1.0;
    }
    let raw = end / n;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw * 0.999).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(amount: f64) -> String {
        amount.to_string()
    }

    #[test]
    fn every_line_is_drawn_also_a_single_point() {
        let of = |points: &[(f64, f64)]| Line { name: "a<b".into(), points: points.to_vec() };
        let svg = lines("t", &[of(&[(0.0, 0.0), (1.0, 5.0)]), of(&[(0.0, 1.0)])], plain, plain, 0.0);
        assert_eq!(svg.matches("class=\"line").count(), 2);
        assert!(svg.contains("circle") && svg.contains("a&lt;b") && !svg.contains("a<b"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        let empty = lines("t", &[], plain, plain, 0.0);
        assert!(!empty.contains("NaN") && empty.contains("</svg>"), "{empty}");
    }

    #[test]
    fn a_heat_map_of_many_nodes_stays_small() {
        let cells: Vec<_> = (0..100_000).map(|at| (format!("n{at}"), 0.5)).collect();
        let svg = heat("t", &cells);
        assert!(svg.matches("<rect").count() <= MAX_CELLS);
        assert!(heat("t", &[]).ends_with("</svg>"));
    }

    #[test]
    fn steps_are_round() {
        for (end, want) in [(0.0, 1.0), (1.0, 0.25), (100.0, 25.0), (950.0, 250.0), (7.0, 2.0)] {
            assert!((step(end, 4.0) - want).abs() < 1e-9, "{end}: {}", step(end, 4.0));
        }
    }
}
