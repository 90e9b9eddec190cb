//! The columns of `kubectl get pods`, above all STATUS.
//!
//! Upstream: v1.36.2 `pkg/printers/internalversion/printers.go` printPod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column, or_else};
use super::resources::is_restartable;
use crate::apiserver::validation::json::JsonExt;

pub(super) const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Ready"),
    Column::text("Status"),
    Column::text("Restarts"),
    columns::AGE,
    Column::wide("IP"),
    Column::wide("Node"),
    Column::wide("Nominated Node"),
    Column::wide("Readiness Gates"),
];

/// Cells of a pod.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (pod.at("spec"), pod.at("status"));
    let tally = Tally::of(pod);
    let restarts = match (tally.restarts, tally.last_restart) {
        (restarts @ 1.., last) if !last.is_empty() => format!("{restarts} ({} ago)", columns::since(last, now)),
        (restarts, _) => restarts.to_string(),
    };
    let address = status.items("podIPs").first().map_or("", |item| item.text("ip"));
    vec![
        columns::name(pod),
        json!(format!("{}/{}", tally.ready, tally.total)),
        json!(tally.reason),
        json!(restarts),
        columns::age(pod, now),
        json!(or_else(address, "<none>")),
        json!(or_else(spec.text("nodeName"), "<none>")),
        json!(or_else(status.text("nominatedNodeName"), "<none>")),
        json!(readiness_gates(spec, status)),
    ]
}

fn readiness_gates(spec: &Value, status: &Value) -> String {
    let gates = spec.items("readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = |gate: &&Value| has_condition(status, gate.text("conditionType"));
    format!("{}/{}", gates.iter().filter(met).count(), gates.len())
}

fn has_condition(status: &Value, kind: &str) -> bool {
    let condition = status.items("conditions").iter().find(|condition| condition.text("type") == kind);
    condition.is_some_and(|condition| condition.text("status") == "True")
}

/// What READY, STATUS and RESTARTS are made of.
#[derive(Default)]
struct Tally<'a> {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: &'a str,
    reason: String,
}

impl<'a> Tally<'a> {
    fn of(pod: &'a Value) -> Tally<'a> {
        let (spec, status) = (pod.at("spec"), pod.at("status"));
        let phase = status.text("phase");
        let mut tally = Tally { reason: or_else(status.text("reason"), phase).to_owned(), ..Tally::default() };
        let gated = |condition: &Value| {
            condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated"
        };
        if status.items("conditions").iter().any(gated) {
            tally.reason = "SchedulingGated".to_owned();
        }
        let init = spec.items("initContainers");
        tally.total =
            spec.items("containers").len() + init.iter().filter(|container| is_restartable(container)).count();
        let sidecars = tally.count_init_containers(spec, status);
        if let Some((restarts, last)) = sidecars {
            (tally.restarts, tally.last_restart) = (restarts, last);
            tally.count_containers(status);
        }
        if pod.at("metadata").has("deletionTimestamp") {
            if status.text("reason") == "NodeLost" {
                tally.reason = "Unknown".to_owned();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                tally.reason = "Terminating".to_owned();
            }
        }
        tally
    }

    fn count(&mut self, status: &'a Value) {
        self.restarts += status.int("restartCount").unwrap_or(0);
        self.last_restart = self.last_restart.max(last_end(status));
    }

    /// Restarts of the sidecars when the init containers are through, `None` while they run.
    fn count_init_containers(&mut self, spec: &Value, status: &'a Value) -> Option<(i64, &'a str)> {
        let sidecar =
            |name: &str| spec.items("initContainers").iter().any(|one| one.text("name") == name && is_restartable(one));
        let (mut restarts, mut last) = (0, "");
        let mut initializing = false;
        for (index, container) in status.items("initContainerStatuses").iter().enumerate() {
            self.count(container);
            let is_sidecar = sidecar(container.text("name"));
            if is_sidecar {
                restarts += container.int("restartCount").unwrap_or(0);
                last = last.max(last_end(container));
            }
            let state = container.at("state");
            let ended = state.at("terminated");
            let waiting = state.at("waiting").text("reason");
            if !ended.is_null() && ended.int("exitCode").unwrap_or(0) == 0 {
                continue;
            }
            if is_sidecar && container.flag("started") {
                self.ready += usize::from(container.flag("ready"));
                continue;
            }
            self.reason = if !ended.is_null() {
                format!("Init:{}", end_reason(ended))
            } else if !matches!(waiting, "" | "PodInitializing") {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", spec.items("initContainers").len())
            };
            initializing = true;
            break;
        }
        (!initializing || has_condition(status, "Initialized")).then_some((restarts, last))
    }

    fn count_containers(&mut self, status: &'a Value) {
        let mut running = false;
        let mut failure = String::new();
        for container in status.items("containerStatuses").iter().rev() {
            self.count(container);
            let state = container.at("state");
            let ended = state.at("terminated");
            let waiting = state.at("waiting").text("reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if !ended.is_null() {
                self.reason = end_reason(ended);
                if ended.int("exitCode").unwrap_or(0) != 0 {
                    failure.clone_from(&self.reason);
                }
            } else if container.flag("ready") && state.has("running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && has_condition(status, "Ready") {
                self.reason = "Running".to_owned();
            } else if !failure.is_empty() {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

fn last_end(status: &Value) -> &str {
    status.at("lastState").at("terminated").text("finishedAt")
}

fn end_reason(ended: &Value) -> String {
    let signal = ended.int("signal").unwrap_or(0);
    match ended.text("reason") {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", ended.int("exitCode").unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_says_what_holds_the_pod_up() {
        let two = json!([{"name": "a"}, {"name": "b"}]);
        let cases = [
            ("pending", json!({"spec": {"containers": two}, "status": {"phase": "Pending"}}), "0/2", "Pending"),
            (
                "gated",
                json!({"spec": {"containers": two}, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}),
                "0/2",
                "SchedulingGated",
            ),
            (
                "init runs",
                json!({"spec": {"containers": two, "initContainers": [{"name": "i"}]},
                       "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}}),
                "0/2",
                "Init:0/1",
            ),
            (
                "crash loop",
                json!({"spec": {"containers": two}, "status": {"phase": "Running", "containerStatuses": [
                    {"name": "a", "ready": true, "state": {"running": {}}}, {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
                "1/2",
                "CrashLoopBackOff",
            ),
            (
                "terminating",
                json!({"metadata": {"deletionTimestamp": "t"}, "spec": {"containers": two}, "status": {"phase": "Running"}}),
                "0/2",
                "Terminating",
            ),
            (
                "completed",
                json!({"spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Succeeded", "containerStatuses": [
                    {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}}),
                "0/1",
                "Completed",
            ),
        ];
        for (name, pod, ready, status) in cases {
            let cells = cells(&pod, Timestamp::UNIX_EPOCH);
            assert_eq!((&cells[1], &cells[2]), (&json!(ready), &json!(status)), "{name}");
        }
    }

    #[test]
    fn restarts_say_how_long_ago() {
        let pod = json!({"spec": {"containers": [{"name": "a"}]}, "status": {"containerStatuses": [
            {"name": "a", "restartCount": 2, "lastState": {"terminated": {"finishedAt": "1970-01-01T00:00:00Z"}}}]}});
        assert_eq!(cells(&pod, Timestamp::from_second(30).expect("in range"))[3], json!("2 (30s ago)"));
    }
}
