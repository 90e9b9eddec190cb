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
const CUSTOM_GROUP: i32 = 1000;

/// The order of `version` of `group`.
pub fn priority(group: &str, version: &str) -> GroupVersionPriority {
    if group == AGGREGATOR.0 {
        return AGGREGATOR.1;
    }
    let Some((_, group, versions)) = BUILTIN.iter().find(|(name, ..)| *name == group) else {
        return GroupVersionPriority { group: CUSTOM_GROUP, version: version_rank(version) };
    };
    let version = versions.iter().find(|(name, _)| *name == version).map_or(9, |(_, order)| *order);
    GroupVersionPriority { group: *group, version }
}

/// The order of a version by its name: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then whatever is no such name.
///
/// Upstream v1.36.2: apimachinery `pkg/version/helpers.go` CompareKubeAwareVersionStrings.
pub fn version_rank(version: &str) -> i32 {
    let number = |text: &str| text.parse::<i32>().ok().filter(|number| (1..10_000).contains(number));
    let parts = |rest: &str| -> Option<i32> {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let major = number(&rest[..digits])?;
        let (stage, minor) = match &rest[digits..] {
            "" => (2, 0),
            tail => match tail.strip_prefix("beta") {
                Some(minor) => (1, number(minor)?),
                None => (0, number(tail.strip_prefix("alpha")?)?),
            },
        };
        Some(stage * 100_000_000 + major * 10_000 + minor)
    };
    version.strip_prefix('v').and_then(parts).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_go_before_beta_and_alpha() {
        let mut versions = ["v1alpha1", "foo", "v1", "v1beta2", "v10", "v2", "v1beta1"];
        versions.sort_by_key(|version| -version_rank(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }
}
