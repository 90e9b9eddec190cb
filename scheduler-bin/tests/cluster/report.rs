//! The HTML report in a real browser: no console message, every chart drawn, nothing fetched. Needs Chromium; in CI it must be there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::process::finish;

/// Looks at every chart after the page is drawn, and leaves what it saw in the page.
const PROBE: &str = r#"<script>addEventListener("load",function(){
var seen=[].map.call(document.querySelectorAll("svg.chart"),function(svg){var box=svg.getBoundingClientRect();
return{title:svg.querySelector("title").textContent,width:box.width,height:box.height,
shapes:[].filter.call(svg.querySelectorAll("path.line,rect,circle"),function(shape){var b=shape.getBBox();return b.width>0||b.height>0}).length}});
var probe=document.createElement("pre");probe.id="probe";
probe.textContent=JSON.stringify({charts:seen,fetched:performance.getEntriesByType("resource").map(function(e){return e.name}).filter(function(n){return n.indexOf("data:")!==0})});
document.body.appendChild(probe)})</script>"#;

fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

#[test]
fn the_report_is_drawn_by_a_browser_without_a_complaint() -> Result<()> {
    let Some(browser) = browser() else {
        if std::env::var_os("CI").is_some() {
            bail!("no Chromium on this machine; .ci/tools installs it");
        }
        use std::io::Write as _;
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: the report was not opened, there is no Chromium here (in CI that is an error)"
        );
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let trace = [
        r#"{"apiVersion":"plimsoll.io/v1alpha1","kind":"EventTrace"}"#,
        r#"{"at":0,"pod":{"name":"a","requests":{"cpu":"1","memory":"2Gi"}},"count":9,"duration":"10m"}"#,
        r#"{"at":60,"pod":{"name":"b","requests":{"cpu":"3","memory":"1Gi"}},"count":4,"duration":"5m"}"#,
        r#"{"at":120,"pod":{"name":"never","requests":{"cpu":"30"}}}"#,
    ];
    std::fs::write(path("trace.jsonl"), trace.join("\n"))?;
    let packed = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}\n";
    std::fs::write(path("packed.yaml"), packed)?;
    std::fs::write(
        path("spread.yaml"),
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
    )?;
    let (trace, report) = (path("trace.jsonl"), path("report.html"));
    let single = ["simulate", "--nodes", "4x4cpu,16Gi", "--trace", &trace, "--report", &report];
    let (spread, packed) = (path("spread.yaml"), path("packed.yaml"));
    let double = [&single[..], &["--config", &spread, "--config", &packed]].concat();
    for (name, arguments, least) in [("one configuration", &single[..], 7), ("two configurations", &double[..], 10)] {
        let run = finish(arguments)?;
        ensure!(run.code == 0, "{name}: {}", run.stderr);
        open(browser, name, dir.path(), least)?;
    }
    Ok(())
}

fn open(browser: &str, name: &str, dir: &Path, least: usize) -> Result<()> {
    let html = std::fs::read_to_string(dir.join("report.html"))?;
    ensure!(!html.contains("http://") && !html.contains("https://"), "{name}: the report names an address");
    let probed = dir.join("probed.html");
    std::fs::write(&probed, html.replace("</body>", &format!("{PROBE}</body>")))?;
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"])
        .args(["--window-size=1280,900", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", probed.display()))
        .output()
        .context("the browser can be started")?;
    let log = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    ensure!(complaints.is_empty(), "{name}: the console says {complaints:#?}");
    let page = String::from_utf8_lossy(&output.stdout);
    let (_, rest) =
        page.split_once("<pre id=\"probe\">").with_context(|| format!("{name}: the page has no probe: {log}"))?;
    let (probe, _) = rest.split_once("</pre>").context("the probe ends")?;
    let probe: Value = serde_json::from_str(&probe.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))?;
    let charts = probe["charts"].as_array().context("charts")?;
    ensure!(charts.len() >= least, "{name}: {} charts, expected at least {least}: {probe:#}", charts.len());
    for chart in charts {
        let drawn = chart["width"].as_f64() > Some(100.0) && chart["height"].as_f64() > Some(5.0);
        ensure!(drawn && chart["shapes"].as_u64() > Some(0), "{name}: a chart is not drawn: {chart}");
    }
    ensure!(probe["fetched"] == serde_json::json!([]), "{name}: something was fetched: {}", probe["fetched"]);
    Ok(())
}
