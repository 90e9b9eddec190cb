//! What a failed pod means for its Job, and which finished indexes are enough. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes;

/// What a failed pod means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts against the limit.
    Counts,
    /// It does not count.
    Ignored,
    /// Its index has failed for good.
    FailsIndex,
    /// The Job has failed, for this reason.
    FailsJob(String),
}

/// Upstream: job/pod_failure_policy.go v1.36.2 `matchPodFailurePolicy`.
pub(super) fn failure(spec: &JobSpec, pod: &Pod) -> Failure {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    let name = || {
        let name = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}/{}", name(&pod.metadata.namespace), name(&pod.metadata.name))
    };
    for (index, rule) in rules.enumerate() {
        let message = if let Some(codes) = &rule.on_exit_codes {
            let Some((container, code)) = matching_container(pod, codes) else { continue };
            format!(
                "Container {container} for pod {} failed with exit code {code} matching {} rule at index {index}",
                name(),
                rule.action
            )
        } else {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut patterns = rule.on_pod_conditions.iter().flatten();
            let found = conditions.into_iter().find(|condition| {
                patterns.any(|pattern| {
                    pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
                })
            });
            let Some(condition) = found else { continue };
            format!("Pod {} has condition {} matching {} rule at index {index}", name(), condition.type_, rule.action)
        };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignored,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(message),
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

fn matching_container(pod: &Pod, codes: &PodFailurePolicyOnExitCodesRequirement) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?;
    let fits = |container: &ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        let named = codes.container_name.as_ref().is_none_or(|name| *name == container.name);
        let listed = codes.values.contains(&code);
        let operator = if codes.operator == "In" { listed } else { !listed };
        (named && code != 0 && operator).then(|| (container.name.clone(), code))
    };
    let of = |list: &Option<Vec<ContainerStatus>>| list.iter().flatten().find_map(fits);
    of(&status.container_statuses).or_else(|| of(&status.init_container_statuses))
}

/// The message of the success policy's rule that `succeeded` meets.
/// Upstream: job/success_policy.go v1.36.2 `matchSuccessPolicy`.
pub(super) fn success(spec: &JobSpec, succeeded: &BTreeSet<i32>) -> Option<String> {
    let policy = spec.success_policy.as_ref().filter(|_| !succeeded.is_empty())?;
    let completions = spec.completions.unwrap_or_default();
    let met = |rule: &k8s_openapi::api::batch::v1::SuccessPolicyRule| {
        let count = rule.succeeded_count.and_then(|count| usize::try_from(count).ok());
        match &rule.succeeded_indexes {
            Some(text) => {
                let required = indexes::parse(text, completions);
                let have = required.intersection(succeeded).count();
                !required.is_empty() && have >= count.unwrap_or(required.len())
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        }
    };
    policy.rules.iter().position(met).map(|index| format!("Matched rules at index {index}"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::{
        PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule, SuccessPolicy,
        SuccessPolicyRule,
    };
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, PodCondition, PodStatus};

    use super::*;

    fn exited(code: i32, condition: Option<&str>) -> Pod {
        let terminated = Some(ContainerStateTerminated { exit_code: code, ..ContainerStateTerminated::default() });
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".to_owned());
        pod.metadata.namespace = Some("n".to_owned());
        pod.status = Some(PodStatus {
            container_statuses: Some(vec![ContainerStatus {
                name: "c".to_owned(),
                state: Some(ContainerState { terminated, ..ContainerState::default() }),
                ..ContainerStatus::default()
            }]),
            conditions: condition.map(|kind| {
                vec![PodCondition { type_: kind.to_owned(), status: "True".to_owned(), ..PodCondition::default() }]
            }),
            ..PodStatus::default()
        });
        pod
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let codes = |action: &str, values: &[i32]| PodFailurePolicyRule {
            action: action.to_owned(),
            on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                operator: "In".to_owned(),
                values: values.to_vec(),
                container_name: None,
            }),
            on_pod_conditions: None,
        };
        let disrupted = PodFailurePolicyRule {
            action: "Ignore".to_owned(),
            on_exit_codes: None,
            on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                type_: "DisruptionTarget".to_owned(),
                status: Some("True".to_owned()),
            }]),
        };
        let rules = vec![codes("FailJob", &[42]), codes("FailIndex", &[7]), disrupted];
        let spec = JobSpec { pod_failure_policy: Some(PodFailurePolicy { rules }), ..JobSpec::default() };
        let message = "Container c for pod n/p failed with exit code 42 matching FailJob rule at index 0".to_owned();
        assert_eq!(failure(&spec, &exited(42, None)), Failure::FailsJob(message));
        assert_eq!(failure(&spec, &exited(7, None)), Failure::FailsIndex);
        assert_eq!(failure(&spec, &exited(1, Some("DisruptionTarget"))), Failure::Ignored);
        assert_eq!(failure(&spec, &exited(1, None)), Failure::Counts);
        assert_eq!(failure(&JobSpec::default(), &exited(42, None)), Failure::Counts);
    }

    #[test]
    fn a_success_rule_is_met_by_indexes_by_count_or_by_both() {
        let spec = |indexes: Option<&str>, count| JobSpec {
            completions: Some(5),
            success_policy: Some(SuccessPolicy {
                rules: vec![SuccessPolicyRule {
                    succeeded_indexes: indexes.map(str::to_owned),
                    succeeded_count: count,
                }],
            }),
            ..JobSpec::default()
        };
        let done = BTreeSet::from([0, 2]);
        for (indexes, count, want) in [
            (Some("0,2"), None, true),
            (Some("0-2"), None, false),
            (Some("0-2"), Some(2), true),
            (None, Some(2), true),
            (None, Some(3), false),
        ] {
            assert_eq!(success(&spec(indexes, count), &done).is_some(), want, "{indexes:?} {count:?}");
        }
        assert_eq!(success(&JobSpec::default(), &done), None);
    }
}
