//! Workloads out of their manifests.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use scheduler_core::model::{self, Object};
use serde_json::{Value, json};

use super::{Concurrency, Rules, Schedule, Share, Template, Workload};
use crate::simulate::admission::Admission;
use crate::simulate::script::Name;
use crate::simulate::span;

/// Annotation on a pod or a pod template: how long the pod works, such as `90s`. Without it a pod works for ever.
pub(crate) const DURATION_ANNOTATION: &str = "plimsoll.io/duration";

/// Most replicas of one workload.
const MAX_REPLICAS: u64 = 10_000_000;

/// Whether objects of this kind make pods.
pub(crate) fn is_workload(kind: &str) -> bool {
    matches!(
        kind,
        "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" | "DaemonSet" | "Job" | "CronJob"
    )
}

/// Reads a workload whose template is admitted already, see [`Admission`].
///
/// # Errors
/// The template is missing or malformed, or a number is none.
pub(crate) fn parse(object: &Value) -> Result<Workload, String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let spec = &object["spec"];
    let name = Name {
        kind: kind.to_owned(),
        namespace: namespace_of(object),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
    };
    let replicas = number(spec, "replicas", 1)?;
    let rules = match kind {
        "Deployment" if spec["strategy"]["type"].as_str() == Some("Recreate") => Rules::Recreate,
        "Deployment" => {
            let rolling = &spec["strategy"]["rollingUpdate"];
            Rules::Rolling {
                max_surge: share(&rolling["maxSurge"])?,
                max_unavailable: share(&rolling["maxUnavailable"])?,
            }
        }
        "ReplicaSet" | "ReplicationController" => Rules::Replicas,
        "StatefulSet" => Rules::Stateful { parallel: spec["podManagementPolicy"].as_str() == Some("Parallel") },
        "DaemonSet" => Rules::Daemon,
        "Job" => {
            let (parallelism, completions) = job(spec)?;
            Rules::Job { parallelism, completions }
        }
        "CronJob" => {
            let text = spec["schedule"].as_str().unwrap_or_default();
            Rules::Cron {
                schedule: Box::new(Schedule::parse(text)?),
                suspend: spec["suspend"].as_bool() == Some(true),
                concurrency: match spec["concurrencyPolicy"].as_str() {
                    Some("Forbid") => Concurrency::Forbid,
                    Some("Replace") => Concurrency::Replace,
                    _ => Concurrency::Allow,
                },
                job: job(&spec["jobTemplate"]["spec"])?,
            }
        }
        other => return Err(format!("{other} is no workload")),
    };
    let template = if kind == "CronJob" { &spec["jobTemplate"]["spec"]["template"] } else { &spec["template"] };
    let (template, owner) = template_of(object, template, &name)?;
    Ok(Workload { name, replicas, template: Arc::new(template), rules, lifetimes: Vec::new(), owner })
}

/// Fills in the pod template of a workload, or the pod itself, and gives what is odd about it.
pub(crate) fn admit(object: &mut Value, admission: &Admission) -> Vec<String> {
    match object["kind"].as_str() {
        Some("Pod") => admission.admit(object),
        Some("CronJob") => admission.admit(&mut object["spec"]["jobTemplate"]["spec"]["template"]),
        Some(kind) if is_workload(kind) => admission.admit(&mut object["spec"]["template"]),
        _ => Vec::new(),
    }
}

/// How long a pod with these annotations works.
///
/// # Errors
/// The annotation is no duration.
pub(crate) fn duration_of(metadata: &Value) -> Result<Option<std::time::Duration>, String> {
    match &metadata["annotations"][DURATION_ANNOTATION] {
        Value::Null => Ok(None),
        value => span::duration_of(value).map(Some).map_err(|problem| format!("{DURATION_ANNOTATION}: {problem}")),
    }
}

/// The object's namespace; `default` when it names none.
pub(crate) fn namespace_of(object: &Value) -> String {
    object["metadata"]["namespace"].as_str().filter(|name| !name.is_empty()).unwrap_or("default").to_owned()
}

fn template_of(object: &Value, template: &Value, name: &Name) -> Result<(Template, Option<Object>), String> {
    if !template.is_object() {
        return Err("spec.template is missing, expected a pod template".to_owned());
    }
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    let hash = format!("{:08x}", hasher.finish() & 0xffff_ffff);
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["namespace"] = json!(name.namespace);
    pod["metadata"]["name"] = json!(name.name);
    let (mut api_version, mut kind, mut owner_name) =
        (object["apiVersion"].as_str().unwrap_or_default(), name.kind.as_str(), name.name.clone());
    if kind == "Deployment" {
        (api_version, kind, owner_name) = ("apps/v1", "ReplicaSet", format!("{}-{hash}", name.name));
        pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
    }
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": api_version, "kind": kind, "name": owner_name, "uid": format!("{kind}/{}/{owner_name}", name.namespace), "controller": true,
    }]);
    let duration = duration_of(&pod["metadata"])?;
    let api: Pod = serde_json::from_value(pod).map_err(|error| format!("spec.template: {error}"))?;
    let pod = model::Pod::try_from(&api).map_err(|error| format!("spec.template: {error}"))?;
    let owner = owner(object, kind, &owner_name, &name.namespace, &hash)?;
    Ok((Template { pod, duration, hash }, owner))
}

/// What PodTopologySpread's default constraints read of the pods' owner.
fn owner(object: &Value, kind: &str, name: &str, namespace: &str, hash: &str) -> Result<Option<Object>, String> {
    let metadata = json!({"name": name, "namespace": namespace});
    let mut spec = json!({"selector": object["spec"]["selector"], "replicas": 0, "serviceName": ""});
    let wrong = |error: &dyn std::fmt::Display| format!("spec.selector: {error}");
    Ok(match kind {
        "ReplicaSet" => {
            if object["kind"].as_str() == Some("Deployment") && spec["selector"].is_object() {
                spec["selector"]["matchLabels"]["pod-template-hash"] = json!(hash);
            }
            let api: ReplicaSet =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).map_err(|e| wrong(&e))?;
            Some(model::ReplicaSet::from(&api).into())
        }
        "StatefulSet" => {
            spec["template"] = json!({});
            let api: StatefulSet =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).map_err(|e| wrong(&e))?;
            Some(model::StatefulSet::from(&api).into())
        }
        "ReplicationController" => {
            let api: ReplicationController =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).map_err(|e| wrong(&e))?;
            Some(model::ReplicationController::from(&api).into())
        }
        _ => None,
    })
}

fn number(spec: &Value, field: &str, default: u32) -> Result<u32, String> {
    match &spec[field] {
        Value::Null => Ok(default),
        value => value
            .as_u64()
            .filter(|number| *number <= MAX_REPLICAS)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| format!("spec.{field} is {value}, expected a number of 0 to {MAX_REPLICAS}")),
    }
}

fn job(spec: &Value) -> Result<(u32, u32), String> {
    let parallelism = number(spec, "parallelism", 1)?;
    Ok((parallelism, number(spec, "completions", parallelism)?))
}

fn share(value: &Value) -> Result<Share, String> {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).map(str::parse);
    match (value, percent) {
        (Value::Null, _) => Ok(Share::Percent(25)),
        (_, Some(Ok(percent))) => Ok(Share::Percent(percent)),
        (Value::Number(number), _) if number.as_u64().is_some_and(|number| number <= MAX_REPLICAS) => {
            Ok(Share::Number(number.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0)))
        }
        _ => Err(format!("spec.strategy.rollingUpdate has {value}, expected a number or for example \"25%\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployments_pods_belong_to_its_replica_set() {
        let workload = parse(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"plimsoll.io/duration": "90s"}}, "spec": {"containers": [{"name": "c"}]}}},
        }))
        .expect("a Deployment");
        let pod = &workload.template.pod;
        let owner = pod.controller.as_ref().expect("an owner");
        assert_eq!((&*owner.kind, &*owner.name), ("ReplicaSet", &*format!("web-{}", workload.template.hash)));
        assert_eq!(pod.labels.get("pod-template-hash").map(|hash| &**hash), Some(&*workload.template.hash));
        assert_eq!(workload.template.duration, Some(std::time::Duration::from_secs(90)));
        let Some(Object::ReplicaSet(set)) = workload.owner else { panic!("a ReplicaSet") };
        assert!(set.selector.matches(&pod.labels), "it selects them");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let template = json!({"spec": {"containers": []}});
        for (kind, spec, want) in [
            ("Deployment", json!({}), "spec.template is missing"),
            ("Deployment", json!({"template": template, "replicas": -1}), "spec.replicas is -1"),
            (
                "Deployment",
                json!({"template": template, "strategy": {"rollingUpdate": {"maxSurge": "lots"}}}),
                "rollingUpdate",
            ),
            ("CronJob", json!({"schedule": "soon", "jobTemplate": {"spec": {"template": template}}}), "soon"),
            (
                "Job",
                json!({"template": {"metadata": {"annotations": {"plimsoll.io/duration": "x"}}, "spec": {}}}),
                "plimsoll.io/duration",
            ),
        ] {
            let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec});
            let error = parse(&object).expect_err(want);
            assert!(error.contains(want), "{error}");
        }
    }
}
