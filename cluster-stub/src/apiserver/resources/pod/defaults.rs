//! Defaults of pods and of pod specs inside templates.
//!
//! Upstream: v1.36.2 `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/v1/conversion.go`.

use serde_json::{Value, json};

use super::super::resource_list;
use super::volume_source;
use crate::apiserver::validation::json::JsonExt;

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of a pod: those of its spec, and those that only a real pod gets.
pub(super) fn apply_pod(pod: &mut Value) {
    apply_spec(pod.object_mut("spec"));
    let spec = pod.object_mut("spec");
    for list in ["containers", "initContainers"] {
        for container in spec.items_mut(list) {
            default_requests_to_limits(container);
        }
    }
    default_pod_requests(spec);
    spec.default_to("enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        for list in ["containers", "initContainers"] {
            for port in spec.items_mut(list).iter_mut().flat_map(|container| container.items_mut("ports")) {
                if port.int("hostPort").unwrap_or(0) == 0 {
                    let number = port.at("containerPort").clone();
                    port.put("hostPort", number);
                }
            }
        }
    }
    sync_addresses(pod);
    // Times that are no pointers in Go are written even when they are unknown.
    for condition in pod.object_mut("status").items_mut("conditions") {
        let Value::Object(members) = condition else { continue };
        for time in ["lastProbeTime", "lastTransitionTime"] {
            members.entry(time).or_insert(Value::Null);
        }
    }
}

/// Defaults of a pod spec, in a pod or a template.
pub(super) fn apply_spec(spec: &mut Value) {
    for (key, value) in
        [("dnsPolicy", "ClusterFirst"), ("restartPolicy", "Always"), ("schedulerName", "default-scheduler")]
    {
        if spec.text(key).is_empty() {
            spec.put(key, json!(value));
        }
    }
    spec.default_to("securityContext", json!({}));
    spec.default_to("terminationGracePeriodSeconds", 30);
    // The old and the new name of the service account are kept the same.
    let account = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount"),
        name => name,
    };
    if !account.is_empty() {
        let account = json!(account);
        spec.put("serviceAccountName", account.clone());
        spec.put("serviceAccount", account);
    }
    for volume in spec.items_mut("volumes") {
        volume_source::apply_volume_defaults(volume);
    }
    for list in CONTAINER_LISTS {
        for container in spec.items_mut(list) {
            apply_container(container);
        }
    }
    resource_list::round_up(spec.get_mut("overhead"));
    round_up_requirements(spec);
}

fn apply_container(container: &mut Value) {
    if container.text("imagePullPolicy").is_empty() {
        let policy = pull_policy(container.text("image"));
        container.put("imagePullPolicy", json!(policy));
    }
    for (key, value) in [("terminationMessagePath", "/dev/termination-log"), ("terminationMessagePolicy", "File")] {
        if container.text(key).is_empty() {
            container.put(key, json!(value));
        }
    }
    for port in container.items_mut("ports") {
        if port.text("protocol").is_empty() {
            port.put("protocol", json!("TCP"));
        }
    }
    for variable in container.items_mut("env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            if source.has("fieldRef") {
                source["fieldRef"].default_to("apiVersion", "v1");
            }
            if source.has("resourceFieldRef") {
                source["resourceFieldRef"].default_to("divisor", "0");
            }
            for key in ["fileKeyRef"] {
                if source.has(key) {
                    source[key].default_to("optional", false);
                }
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.has(probe) {
            apply_probe(&mut container[probe]);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook) {
                apply_handler(hook);
            }
        }
    }
    if let Some(context) = container.get_mut("securityContext")
        && context.is_object()
        && context.at("procMount") == "Default"
    {
        context.put("procMount", json!("Default"));
    }
    round_up_requirements(container);
}

fn round_up_requirements(holder: &mut Value) {
    if let Some(resources) = holder.get_mut("resources") {
        resource_list::round_up(resources.get_mut("limits"));
        resource_list::round_up(resources.get_mut("requests"));
    }
}

fn apply_probe(probe: &mut Value) {
    for (key, value) in [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.int(key).unwrap_or(0) == 0 {
            probe.put(key, json!(value));
        }
    }
    apply_handler(probe);
}

fn apply_handler(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet").filter(|get| get.is_object()) {
        if get.text("path").is_empty() {
            get.put("path", json!("/"));
        }
        if get.text("scheme").is_empty() {
            get.put("scheme", json!("HTTP"));
        }
    }
    if let Some(grpc) = handler.get_mut("grpc").filter(|grpc| grpc.is_object()) {
        grpc.default_to("service", "");
    }
}

/// `Always` for the tag `latest`, stated or implied; `IfNotPresent` otherwise.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, ""), |(name, digest)| (name, digest));
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map_or("", |(_, tag)| tag);
    if tag == "latest" || (tag.is_empty() && digest.is_empty()) { "Always" } else { "IfNotPresent" }
}

/// A limit without a request is a request too. Only in pods, not in templates.
fn default_requests_to_limits(container: &mut Value) {
    let Some(resources) = container.get_mut("resources") else { return };
    let Value::Object(limits) = resources.at("limits").clone() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = resources.object_mut("requests");
    for (name, quantity) in limits {
        requests.default_to(&name, quantity);
    }
}

/// Requests of the whole pod, when it has limits of its own: what the containers ask for, else the limit.
fn default_pod_requests(spec: &mut Value) {
    let limits = spec.at("resources").at("limits").clone();
    let Some(limits) = limits.as_object().filter(|limits| !limits.is_empty()) else { return };
    let total = super::resources::aggregate_requests(spec);
    let requests = spec.object_mut("resources").object_mut("requests");
    for (name, quantity) in total {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.default_to(&name, quantity.to_string());
        }
    }
    for (name, quantity) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || resource_list::is_huge_page(name) {
            requests.default_to(name, quantity.clone());
        }
    }
}

/// `podIP` and the first of `podIPs` say the same, and so do `hostIP` and `hostIPs`.
fn sync_addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    for (one, many) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let single = status.text(one).to_owned();
        let first = status.items(many).first().map(|item| item.text("ip").to_owned());
        match first {
            None if !single.is_empty() && one == "podIP" => status.put(many, json!([{"ip": single}])),
            Some(first) if single.is_empty() => status.put(one, json!(first)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_follows_the_tag() {
        let cases = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:ab", "IfNotPresent"),
        ];
        for (image, want) in cases {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }

    #[test]
    fn a_bare_pod_gets_every_default_and_stays_as_it_is_then() {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1"}},
            "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}}}], "serviceAccount": "s"}});
        apply_pod(&mut pod);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["cpu"], "1");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["livenessProbe"]["httpGet"], json!({"port": 80, "path": "/", "scheme": "HTTP"}));
        assert_eq!(
            (&pod["spec"]["serviceAccountName"], &pod["spec"]["enableServiceLinks"]),
            (&json!("s"), &json!(true))
        );
        let again = pod.clone();
        apply_pod(&mut pod);
        assert_eq!(pod, again);
    }
}
