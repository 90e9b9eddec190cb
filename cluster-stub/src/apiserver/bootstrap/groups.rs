//! One APIService object for each served group version, all answered by this server.

use serde_json::{Value, json};

use crate::apiserver::discovery::priority;

/// The APIServices of `group_versions`, each with a status: it is available. Upstream v1.36.2:
/// pkg/controlplane/apiserver/aggregator.go makeAPIService. The aggregator's own group has none.
pub(super) fn api_services(group_versions: &[(String, String)], now: &str) -> Vec<Value> {
    group_versions
        .iter()
        .filter(|(group, _)| group != "apiregistration.k8s.io")
        .map(|(group, version)| {
            let order = priority(group, version);
            let mut spec =
                json!({"version": version, "groupPriorityMinimum": order.group, "versionPriority": order.version});
            if !group.is_empty() {
                spec["group"] = json!(group);
            }
            json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {
                    "name": format!("{version}.{group}"),
                    "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
                },
                "spec": spec,
                "status": {"conditions": [{
                    "type": "Available",
                    "status": "True",
                    "reason": "Local",
                    "message": "Local APIServices are always available",
                    "lastTransitionTime": now,
                }]},
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_version_but_the_aggregators_has_one() {
        let served = [("", "v1"), ("apps", "v1"), ("apiregistration.k8s.io", "v1")];
        let served = served.map(|(group, version)| (group.to_owned(), version.to_owned()));
        let services = api_services(&served, "2026-01-01T00:00:00Z");
        let names: Vec<_> = services.iter().map(|s| s["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["v1.", "v1.apps"]);
        assert_eq!(services[1]["spec"]["groupPriorityMinimum"], 17800);
    }
}
