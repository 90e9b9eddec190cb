//! What an API server would have filled in before the scheduler sees a pod: priority, overhead, requests out of limits.
//! Idempotent, so that objects of a dump stay as they are.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// Priorities of the two classes that every cluster has. Upstream: apis/scheduling (v1.36.2).
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The cluster's classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    priorities: FxHashMap<String, Priority>,
    global_default: Option<String>,
    runtimes: FxHashMap<String, Value>,
}

#[derive(Clone, Debug)]
struct Priority {
    value: i64,
    policy: Option<String>,
}

impl Admission {
    /// Takes note of a PriorityClass or a RuntimeClass; whether it was one.
    pub(crate) fn learn(&mut self, object: &Value) -> bool {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match object["kind"].as_str() {
            Some("PriorityClass") => {
                if object["globalDefault"].as_bool() == Some(true) {
                    self.global_default = Some(name.clone());
                }
                let policy = object["preemptionPolicy"].as_str().map(str::to_owned);
                self.priorities.insert(name, Priority { value: object["value"].as_i64().unwrap_or(0), policy });
                true
            }
            Some("RuntimeClass") => {
                self.runtimes.insert(name, object.clone());
                true
            }
            _ => false,
        }
    }

    /// Fills in a pod, or a pod template: `object.spec` is the pod's. Gives what is odd about it.
    pub(crate) fn admit(&self, object: &mut Value) -> Vec<String> {
        let mut odd = Vec::new();
        if !object["spec"].is_object() {
            return odd;
        }
        let spec = &mut object["spec"];
        self.priority(spec, &mut odd);
        self.runtime(spec, &mut odd);
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                requests_from_limits(container);
            }
        }
        if spec["hostNetwork"].as_bool() == Some(true) {
            let ports = spec["containers"].as_array_mut().into_iter().flatten();
            for port in ports.flat_map(|container| container["ports"].as_array_mut().into_iter().flatten()) {
                if port["hostPort"].as_i64().unwrap_or(0) == 0 {
                    port["hostPort"] = port["containerPort"].clone();
                }
            }
        }
        odd
    }

    fn priority(&self, spec: &mut Value, odd: &mut Vec<String>) {
        let class = spec["priorityClassName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let class = class.or_else(|| if spec["priority"].is_null() { self.global_default.clone() } else { None });
        let Some(class) = class else { return };
        let known = self.priorities.get(&class).cloned().or_else(|| {
            let system = SYSTEM_CLASSES.iter().find(|(name, _)| *name == class);
            system.map(|(_, value)| Priority { value: *value, policy: None })
        });
        let Some(known) = known else {
            if spec["priority"].is_null() {
                odd.push(format!("its PriorityClass {class} is not there; it counts as priority 0"));
            }
            return;
        };
        match spec["priority"].as_i64() {
            None => spec["priority"] = json!(known.value),
            Some(own) if own != known.value => {
                odd.push(format!(
                    "its priority {own} is not that of PriorityClass {class}, {}; its own counts",
                    known.value
                ));
            }
            Some(_) => {}
        }
        let policy = known.policy.unwrap_or_else(|| "PreemptLowerPriority".to_owned());
        match spec["preemptionPolicy"].as_str() {
            None => spec["preemptionPolicy"] = json!(policy),
            Some(own) if own != policy => {
                odd.push(format!(
                    "its preemptionPolicy {own} is not that of PriorityClass {class}, {policy}; its own counts"
                ));
            }
            Some(_) => {}
        }
    }

    fn runtime(&self, spec: &mut Value, odd: &mut Vec<String>) {
        let Some(name) = spec["runtimeClassName"].as_str().map(str::to_owned) else { return };
        let Some(class) = self.runtimes.get(&name) else {
            if spec["overhead"].is_null() {
                odd.push(format!("its RuntimeClass {name} is not there; no overhead is counted"));
            }
            return;
        };
        if spec["overhead"].is_null() && class["overhead"]["podFixed"].is_object() {
            spec["overhead"] = class["overhead"]["podFixed"].clone();
        }
        for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
            spec["nodeSelector"][key] = value.clone();
        }
        let more = class["scheduling"]["tolerations"].as_array().cloned().unwrap_or_default();
        if !more.is_empty() {
            let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
            all.extend(
                more.into_iter()
                    .filter(|toleration| !spec["tolerations"].as_array().is_some_and(|own| own.contains(toleration))),
            );
            spec["tolerations"] = json!(all);
        }
    }
}

/// A limit without a request is the request. Upstream: apis/core/v1 defaults (v1.36.2).
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else { return };
    for (name, amount) in limits {
        let request = &mut container["resources"]["requests"][&name];
        if request.is_null() {
            *request = amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        let mut admission = Admission::default();
        for class in [
            json!({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}),
            json!({"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 7, "globalDefault": true}),
            json!({"kind": "RuntimeClass", "metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "250m"}},
                "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}]}}),
        ] {
            assert!(admission.learn(&class));
        }
        admission
    }

    #[test]
    fn priorities_come_from_classes() {
        for (name, spec, priority, policy) in [
            ("by class", json!({"priorityClassName": "high"}), json!(100), json!("Never")),
            ("by default", json!({}), json!(7), json!("PreemptLowerPriority")),
            (
                "system",
                json!({"priorityClassName": "system-node-critical"}),
                json!(2_000_001_000),
                json!("PreemptLowerPriority"),
            ),
            ("own", json!({"priority": 3}), json!(3), Value::Null),
        ] {
            let mut pod = json!({"spec": spec});
            assert!(admission().admit(&mut pod).is_empty(), "{name}");
            assert_eq!((&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]), (&priority, &policy), "{name}");
        }
    }

    #[test]
    fn contradictions_are_told_and_the_pod_counts() {
        let mut pod =
            json!({"spec": {"priorityClassName": "high", "priority": 100, "preemptionPolicy": "PreemptLowerPriority"}});
        let odd = admission().admit(&mut pod);
        assert_eq!(odd.len(), 1, "{odd:?}");
        assert!(odd[0].contains("Never"), "{odd:?}");
        let mut pod = json!({"spec": {"priorityClassName": "nobody"}});
        assert!(admission().admit(&mut pod)[0].contains("nobody"));
    }

    #[test]
    fn overhead_selector_and_tolerations_come_from_the_runtime_class_once() {
        let mut pod = json!({"spec": {"runtimeClassName": "vm", "priority": 0}});
        admission().admit(&mut pod);
        admission().admit(&mut pod);
        assert_eq!(pod["spec"]["overhead"], json!({"cpu": "250m"}));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"vm": "yes"}));
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": "vm"}]));
    }

    #[test]
    fn limits_become_requests_where_there_are_none() {
        let mut pod = json!({"spec": {"priority": 0, "hostNetwork": true, "containers": [
            {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}]}});
        admission().admit(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(pod["spec"]["containers"][0]["ports"][0]["hostPort"], json!(80));
    }
}
