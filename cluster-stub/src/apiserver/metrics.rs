//! Counts of requests in the Prometheus text format. Counts only what it can vouch for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use http::{Response, StatusCode};
use jiff::Timestamp;

use super::health::GIT_VERSION;
use super::request::RequestInfo;
use super::server::{Body, text};

/// Stands between two labels.
const SEPARATOR: char = '\0';

/// Counters since the start of the server.
#[derive(Debug)]
pub struct Metrics {
    started: Timestamp,
    /// By verb, group, version, resource, subresource and code, with [`SEPARATOR`] between them.
    requests: Mutex<BTreeMap<String, u64>>,
    watches: AtomicU64,
}

impl Metrics {
    /// Counters at zero.
    pub fn new(started: Timestamp) -> Self {
        Metrics { started, requests: Mutex::default(), watches: AtomicU64::new(0) }
    }

    /// Counts an answered request.
    pub fn count(&self, info: &RequestInfo, code: StatusCode) {
        if info.verb == "watch" {
            self.watches.fetch_add(1, Ordering::Relaxed);
        }
        let mut labels = String::with_capacity(96);
        for label in [&info.verb, &info.group, &info.version, &info.resource, &info.subresource] {
            // What a path holds may be anything; a separator in it must not look like one.
            match label.as_bytes().contains(&(SEPARATOR as u8)) {
                false => labels.push_str(label),
                true => labels.extend(label.split(SEPARATOR)),
            }
            labels.push(SEPARATOR);
        }
        labels.push_str(code.as_str());
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        match requests.get_mut(&labels) {
            Some(count) => *count += 1,
            None => drop(requests.insert(labels, 1)),
        }
    }

    /// The document at `/metrics`.
    pub fn answer(&self) -> Response<Body> {
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = self.write(&mut out);
        let mut response = text(StatusCode::OK, out);
        let format = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(http::header::CONTENT_TYPE, format);
        response
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, "# HELP apiserver_request_total Counter of apiserver requests by verb, resource and HTTP code.")?;
        writeln!(out, "# TYPE apiserver_request_total counter")?;
        for (labels, count) in requests.iter() {
            let labels: Vec<&str> = labels.split(SEPARATOR).collect();
            let [verb, group, version, resource, subresource, code] = labels[..] else { continue };
            let verb = verb.to_ascii_uppercase();
            writeln!(
                out,
                "apiserver_request_total{{code=\"{code}\",group=\"{group}\",resource=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"}} {count}",
                escaped(resource),
                escaped(subresource),
                escaped(&verb),
                escaped(version),
            )?;
        }
        writeln!(out, "# HELP apiserver_watches_total Counter of watches that were begun.")?;
        writeln!(out, "# TYPE apiserver_watches_total counter")?;
        writeln!(out, "apiserver_watches_total {}", self.watches.load(Ordering::Relaxed))?;
        writeln!(out, "# HELP kubernetes_build_info The version whose behaviour the server has.")?;
        writeln!(out, "# TYPE kubernetes_build_info gauge")?;
        writeln!(out, "kubernetes_build_info{{git_version=\"{GIT_VERSION}\",major=\"1\",minor=\"36\"}} 1")?;
        writeln!(out, "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.")?;
        writeln!(out, "# TYPE process_start_time_seconds gauge")?;
        writeln!(out, "process_start_time_seconds {}", self.started.as_second())
    }
}

/// Label values come from paths, so they may hold anything.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_resource_and_code() {
        let metrics = Metrics::new(Timestamp::UNIX_EPOCH);
        let info = RequestInfo {
            verb: "list".into(),
            resource: "po\"ds".into(),
            version: "v1".into(),
            ..RequestInfo::default()
        };
        metrics.count(&info, StatusCode::OK);
        metrics.count(&info, StatusCode::OK);
        let mut out = String::new();
        metrics.write(&mut out).unwrap();
        let line = r#"apiserver_request_total{code="200",group="",resource="po\"ds",subresource="",verb="LIST",version="v1"} 2"#;
        assert!(out.contains(line), "{out}");
    }
}
