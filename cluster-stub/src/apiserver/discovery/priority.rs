//! In which order groups and versions are listed, and so which one clients prefer.

/// Order of a group version; higher comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersionPriority {
    /// Order of the group (`groupPriorityMinimum` of its APIService).
    pub group: i32,
    /// Order of the version within the group (`versionPriority`).
    pub version: i32,
}

/// Group, order of the group, versions with their order.
type Row = (&'static str, i32, &'static [(&'static str, i32)]);

/// Upstream v1.36.2: pkg/controlplane/apiserver/aggregator.go and cmd/kube-apiserver/app/aggregator.go.
const BUILTIN: &[Row] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15)]),
    ("authentication.k8s.io", 17700, &[("v1", 15)]),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[("v2", 30), ("v1", 15)]),
    ("batch", 17400, &[("v1", 15)]),
    ("certificates.k8s.io", 17300, &[("v1", 15)]),
    ("networking.k8s.io", 17200, &[("v1", 15)]),
    ("policy", 17100, &[("v1", 15)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16700, &[("v1", 15)]),
    ("scheduling.k8s.io", 16600, &[("v1", 15)]),
    ("coordination.k8s.io", 16500, &[("v1", 15)]),
    ("node.k8s.io", 16300, &[("v1", 15)]),
    ("discovery.k8s.io", 16200, &[("v1", 15)]),
    ("resource.k8s.io", 16200, &[("v1", 21)]),
    ("flowcontrol.apiserver.k8s.io", 16100, &[("v1", 21)]),
];

/// The aggregator's own group stands above all others.
const AGGREGATOR: (&str, GroupVersionPriority) =
    ("apiregistration.k8s.io", GroupVersionPriority { group: 20000, version: 100 });
/// Groups of CustomResourceDefinitions.
const CUSTOM: GroupVersionPriority = GroupVersionPriority { group: 1000, version: 100 };

/// The order of `version` of `group`.
pub fn priority(group: &str, version: &str) -> GroupVersionPriority {
    if group == AGGREGATOR.0 {
        return AGGREGATOR.1;
    }
    let Some((_, group, versions)) = BUILTIN.iter().find(|(name, ..)| *name == group) else { return CUSTOM };
    let version = versions.iter().find(|(name, _)| *name == version).map_or(9, |(_, order)| *order);
    GroupVersionPriority { group: *group, version }
}
