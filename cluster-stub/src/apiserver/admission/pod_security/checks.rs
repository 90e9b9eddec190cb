//! The checks of the Pod Security Standards, in the order in which messages list them.
//!
//! Upstream: v1.36.2 `k8s.io/pod-security-admission/policy/check_*.go`, `registry.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, LevelVersion};
use crate::apiserver::validation::json::JsonExt;

/// What a pod violates.
pub(super) struct Violation {
    pub(super) reason: String,
    pub(super) detail: String,
}

/// Metadata and spec of a pod or of a pod template.
pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

type Check = fn(&Pod<'_>, u32) -> Option<Violation>;

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Safe sysctls and the minor version since which they are.
const SAFE_SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

const FREE_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The newest minor version at which a check changes; later ones are evaluated like it.
const NEWEST: u32 = 35;

/// What the pod violates at a level of a version.
pub(super) fn evaluate(policy: LevelVersion, pod: &Pod<'_>) -> Vec<Violation> {
    if policy.level == Level::Privileged {
        return Vec::new();
    }
    let minor = policy.minor.unwrap_or(NEWEST);
    let restricted = policy.level == Level::Restricted;
    // A check, the first version with it, and the first version in which a restricted check takes its place.
    let baseline: [(Check, u32, u32); 12] = [
        (app_armor, 0, u32::MAX),
        (capabilities_baseline, 0, 22),
        (host_namespaces, 0, u32::MAX),
        (host_path_volumes, 0, 0),
        (host_ports, 0, u32::MAX),
        (probe_hosts, 34, u32::MAX),
        (privileged, 0, u32::MAX),
        (proc_mount_baseline, 0, 35),
        (se_linux, 0, u32::MAX),
        (seccomp_baseline, 0, 19),
        (sysctls, 0, u32::MAX),
        (windows_host_process, 0, u32::MAX),
    ];
    let more: [(Check, u32); 7] = [
        (privilege_escalation, 8),
        (capabilities_restricted, 22),
        (proc_mount, 35),
        (restricted_volumes, 0),
        (non_root, 0),
        (root_user, 23),
        (seccomp_restricted, 19),
    ];
    let base = baseline
        .into_iter()
        .filter(|(_, since, replaced)| minor >= *since && !(restricted && minor >= *replaced))
        .map(|(check, ..)| check);
    let more = more.into_iter().filter(|(_, since)| restricted && minor >= *since).map(|(check, _)| check);
    base.chain(more).filter_map(|check| check(pod, minor)).collect()
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| spec.items(list))
    }

    fn named(&self, bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| bad(container)).map(|container| container.text("name")).collect()
    }

    fn security(&self) -> &'a Value {
        self.spec.at("securityContext")
    }

    fn is_windows(&self) -> bool {
        self.spec.at("os").text("name") == "windows"
    }

    fn has_user_namespace(&self) -> bool {
        self.spec.get("hostUsers") == Some(&Value::Bool(false))
    }
}

fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod and containers "a", "b"`, `None` when nobody is.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(containers(names)),
        (true, false) => Some(format!("pod and {}", containers(names))),
    }
}

fn context(container: &Value) -> &Value {
    container.at("securityContext")
}

fn app_armor(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let bad = |security: &Value| -> Option<String> {
        let kind = security.at("appArmorProfile").text("type");
        let fine = !security.has("appArmorProfile") || matches!(kind, "RuntimeDefault" | "Localhost");
        (!fine).then(|| kind.to_owned())
    };
    let mut values: BTreeSet<String> = pod.containers().filter_map(|container| bad(context(container))).collect();
    values.extend(bad(pod.security()));
    let mut values: Vec<String> = values.into_iter().collect();
    let names = pod.named(|container| bad(context(container)).is_some());
    let mut who: Vec<String> = setters(bad(pod.security()).is_some(), &names).into_iter().collect();
    let mut annotations: Vec<String> = pod
        .metadata
        .entries("annotations")
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"))
        .map(|(key, value)| (key, value.as_str().unwrap_or("")))
        .filter(|(_, value)| !(value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/")))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    if !annotations.is_empty() {
        annotations.sort();
        who.push(plural("annotation", "annotations", annotations.len()).to_owned());
        values.append(&mut annotations);
    }
    if who.is_empty() {
        return None;
    }
    violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values)),
    )
}

fn added<'a>(container: &'a Value, allowed: &[&str]) -> Vec<&'a str> {
    let mut added = context(container).at("capabilities").texts("add");
    added.retain(|capability| !allowed.contains(capability));
    added
}

/// `containers "a" must not include "SYS_ADMIN" in securityContext.capabilities.add`.
fn added_detail(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let names = pod.named(|container| !added(container, allowed).is_empty());
    if names.is_empty() {
        return None;
    }
    let capabilities: BTreeSet<&str> = pod.containers().flat_map(|container| added(container, allowed)).collect();
    Some(format!(
        "{} must not include {} in securityContext.capabilities.add",
        containers(&names),
        quoted(&capabilities)
    ))
}

fn capabilities_baseline(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    violation("non-default capabilities", added_detail(pod, &DEFAULT_CAPABILITIES)?)
}

fn capabilities_restricted(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor >= 25 && pod.is_windows() {
        return None;
    }
    let mut details = Vec::new();
    let keeping = pod.named(|container| !context(container).at("capabilities").texts("drop").contains(&"ALL"));
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    details.extend(added_detail(pod, &["NET_BIND_SERVICE"]));
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|key| pod.spec.flag(key))
        .map(|key| format!("{key}=true"))
        .collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

fn host_path_volumes(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let names: Vec<&str> = pod
        .spec
        .items("volumes")
        .iter()
        .filter(|volume| volume.has("hostPath"))
        .map(|volume| volume.text("name"))
        .collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names)))
}

fn host_ports(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<String> {
        let ports = container.items("ports").iter().filter_map(|port| port.int("hostPort"));
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = pod.named(|container| !ports(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = pod.containers().flat_map(ports).collect();
    let (uses, word) = (plural("uses", "use", names.len()), plural("hostPort", "hostPorts", all.len()));
    let all: Vec<String> = all.into_iter().collect();
    violation("hostPort", format!("{} {uses} {word} {}", containers(&names), all.join(", ")))
}

fn hosts(container: &Value) -> Vec<&str> {
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| container.at(probe));
    let hooks = ["postStart", "preStop"].map(|hook| container.at("lifecycle").at(hook));
    probes
        .into_iter()
        .chain(hooks)
        .flat_map(|handler| [handler.at("httpGet").text("host"), handler.at("tcpSocket").text("host")])
        .filter(|host| !host.is_empty())
        .collect()
}

fn probe_hosts(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let mut names = pod.named(|container| !hosts(container).is_empty());
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    let all: BTreeSet<&str> = pod.containers().flat_map(hosts).collect();
    let uses = plural("uses", "use", names.len());
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", all.len());
    violation("probe or lifecycle host", format!("{} {uses} {word} {}", containers(&names), quoted(&all)))
}

fn privileged(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let names = pod.named(|container| context(container).flag("privileged"));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

fn proc_mount_baseline(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor >= 35 && pod.has_user_namespace() { None } else { proc_mount(pod, minor) }
}

fn proc_mount(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let bad = |container: &Value| -> Option<String> {
        let security = context(container);
        let kind = security.text("procMount");
        (security.has("procMount") && kind != "Default").then(|| kind.to_owned())
    };
    let names = pod.named(|container| bad(container).is_some());
    if names.is_empty() {
        return None;
    }
    let kinds: BTreeSet<String> = pod.containers().filter_map(bad).collect();
    violation(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&kinds)),
    )
}

fn se_linux(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    let bad_type = |security: &Value| -> Option<String> {
        let kind = security.at("seLinuxOptions").text("type");
        let fine = matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (minor >= 31 && kind == "container_engine_t");
        (!fine).then(|| kind.to_owned())
    };
    let sets = |security: &Value, key: &str| !security.at("seLinuxOptions").text(key).is_empty();
    let bad = |security: &Value| bad_type(security).is_some() || sets(security, "user") || sets(security, "role");
    let who = setters(bad(pod.security()), &pod.named(|container| bad(context(container))))?;
    let all = || pod.containers().map(context).chain([pod.security()]);
    let types: BTreeSet<String> = all().filter_map(bad_type).collect();
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for key in ["user", "role"] {
        if all().any(|security| sets(security, key)) {
            data.push(format!("{key} may not be set"));
        }
    }
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", data.join("; ")))
}

fn seccomp_baseline(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor < 19 { seccomp_annotations(pod) } else { bad_seccomp(pod) }
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned()).chain(
        pod.containers()
            .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", container.text("name"))),
    );
    let annotations = pod.metadata.at("annotations");
    let forbidden: BTreeSet<String> = keys
        .filter(|key| annotations.has(key))
        .map(|key| (annotations.text(&key), key.clone()))
        .filter(|(value, _)| {
            !(matches!(*value, "runtime/default" | "docker/default") || value.starts_with("localhost/"))
        })
        .map(|(value, key)| format!("{key}={value:?}"))
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let list: Vec<String> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", list.join(", ")))
}

/// Who sets a profile that is not safe.
fn bad_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |security: &Value| -> Option<String> {
        let kind = security.at("seccompProfile").text("type");
        let fine = !security.has("seccompProfile") || matches!(kind, "RuntimeDefault" | "Localhost");
        (!fine).then(|| kind.to_owned())
    };
    let names = pod.named(|container| bad(context(container)).is_some());
    let who = setters(bad(pod.security()).is_some(), &names)?;
    let kinds: BTreeSet<String> = pod.containers().map(context).chain([pod.security()]).filter_map(bad).collect();
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&kinds)))
}

fn seccomp_restricted(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor >= 25 && pod.is_windows() {
        return None;
    }
    if let Some(bad) = bad_seccomp(pod) {
        return Some(bad);
    }
    if pod.security().has("seccompProfile") {
        return None;
    }
    let names = pod.named(|container| !context(container).has("seccompProfile"));
    if names.is_empty() {
        return None;
    }
    let names = containers(&names);
    violation(
        "seccompProfile",
        format!("pod or {names} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""),
    )
}

fn sysctls(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    let names = pod.security().items("sysctls").iter().map(|sysctl| sysctl.text("name"));
    let forbidden: Vec<&str> =
        names.filter(|name| !SAFE_SYSCTLS.iter().any(|(safe, since)| safe == name && minor >= *since)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let bad = |security: &Value| security.at("windowsOptions").flag("hostProcess");
    let who = setters(bad(pod.security()), &pod.named(|container| bad(context(container))))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn privilege_escalation(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor >= 25 && pod.is_windows() {
        return None;
    }
    let names = pod.named(|container| context(container).get("allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    if names.is_empty() {
        return None;
    }
    violation(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names)),
    )
}

fn restricted_volumes(pod: &Pod<'_>, _: u32) -> Option<Violation> {
    let bad: Vec<&Value> =
        pod.spec.items("volumes").iter().filter(|volume| !FREE_VOLUMES.iter().any(|kind| volume.has(kind))).collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &Value| -> String {
        let mut keys = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        keys.find(|key| *key != "name").unwrap_or("unknown").to_owned()
    };
    let kinds: BTreeSet<String> = bad.iter().map(|volume| kind(volume)).collect();
    let names: Vec<&str> = bad.iter().map(|volume| volume.text("name")).collect();
    violation(
        "restricted volume types",
        format!(
            "{} {} {} {} {}",
            plural("volume", "volumes", names.len()),
            quoted(&names),
            plural("uses", "use", names.len()),
            plural("restricted volume type", "restricted volume types", kinds.len()),
            quoted(&kinds)
        ),
    )
}

fn non_root(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor >= 35 && pod.has_user_namespace() {
        return None;
    }
    const REASON: &str = "runAsNonRoot != true";
    let refused = |security: &Value| security.get("runAsNonRoot") == Some(&Value::Bool(false));
    if let Some(who) = setters(refused(pod.security()), &pod.named(|container| refused(context(container)))) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = pod.named(|container| !context(container).has("runAsNonRoot"));
    if silent.is_empty() || pod.security().flag("runAsNonRoot") {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent)))
}

fn root_user(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    if minor >= 35 && pod.has_user_namespace() {
        return None;
    }
    let bad = |security: &Value| security.int("runAsUser") == Some(0);
    let who = setters(bad(pod.security()), &pod.named(|container| bad(context(container))))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reasons(level: Level, spec: &Value) -> Vec<String> {
        let pod = Pod { metadata: &Value::Null, spec };
        evaluate(LevelVersion { level, minor: None }, &pod)
            .into_iter()
            .map(|violation| format!("{} ({})", violation.reason, violation.detail))
            .collect()
    }

    #[test]
    fn a_plain_pod_is_baseline_but_not_restricted() {
        let spec = json!({"containers": [{"name": "c"}]});
        assert_eq!(reasons(Level::Baseline, &spec), Vec::<String>::new());
        assert_eq!(
            reasons(Level::Restricted, &spec),
            [
                r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#,
                r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#,
                r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#,
                r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
            ]
        );
    }

    #[test]
    fn host_access_is_not_baseline() {
        let spec = json!({"hostNetwork": true, "hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
            "containers": [{"name": "a", "securityContext": {"privileged": true}}, {"name": "b", "ports": [{"hostPort": 80}]}]});
        assert_eq!(
            reasons(Level::Baseline, &spec),
            [
                r#"host namespaces (hostNetwork=true, hostPID=true)"#,
                r#"hostPath volumes (volume "v")"#,
                r#"hostPort (container "b" uses hostPort 80)"#,
                r#"privileged (container "a" must not set securityContext.privileged=true)"#,
            ]
        );
    }
}
