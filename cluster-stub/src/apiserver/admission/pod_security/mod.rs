//! PodSecurity: the Pod Security Standards, enforced on pods and announced for what makes pods.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/security/podsecurity`, `k8s.io/pod-security-admission/admission/admission.go`.

mod checks;
mod policy;

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use serde_json::Value;

use self::checks::{Pod, Violation, evaluate};
use self::policy::{Level, LevelVersion};
use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::json::JsonExt;

const NAMESPACES: GroupResource = GroupResource::of("", "namespaces");
const PODS: GroupResource = GroupResource::of("", "pods");

/// Subresources of pods that do not change what a pod may do.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Pods of a namespace that are checked at most when its level is raised.
const MOST_CHECKED: usize = 3000;

/// See the module.
pub(super) struct PodSecurity;

impl AdmissionPlugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        let result = check(request);
        Box::pin(std::future::ready(result))
    }
}

fn check(request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    if request.is("", "namespaces") {
        return check_namespace(request);
    }
    if request.is_resource("", "pods") {
        let insignificant = request.operation == Operation::Update
            && request.old_object.is_some_and(|old| !is_significant(&request.object, old));
        if IGNORED.contains(&request.subresource) || insignificant {
            return Ok(());
        }
        return check_pod(request);
    }
    if request.subresource.is_empty()
        && let Some(template) = template(&request.resource.plural, &request.object)
        && template.has("spec")
    {
        let Some(policy) = policy_of(request) else { return Ok(()) };
        let warnings = warn(policy.warn, template);
        request.warnings.extend(warnings);
    }
    Ok(())
}

fn policy_of(request: &AdmissionRequest<'_>) -> Option<policy::Policy> {
    let namespace = request.objects.get(&NAMESPACES, "", request.namespace)?;
    Some(policy::of(namespace.at("metadata").at("labels")).0)
}

/// The pod template of a workload. Upstream: `DefaultPodSpecExtractor`.
fn template<'a>(plural: &str, object: &'a Value) -> Option<&'a Value> {
    match plural {
        "podtemplates" => Some(object.at("template")),
        "replicationcontrollers" | "replicasets" | "deployments" | "statefulsets" | "daemonsets" | "jobs" => {
            Some(object.at("spec").at("template"))
        }
        "cronjobs" => Some(object.way(&["spec", "jobTemplate", "spec", "template"])),
        _ => None,
    }
}

fn as_pod(object: &Value) -> Pod<'_> {
    Pod { metadata: object.at("metadata"), spec: object.at("spec") }
}

fn details(violations: &[Violation]) -> String {
    let one = |violation: &Violation| match violation.detail.as_str() {
        "" => violation.reason.clone(),
        detail => format!("{} ({detail})", violation.reason),
    };
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn warn(policy: LevelVersion, object: &Value) -> Option<String> {
    let violations = evaluate(policy, &as_pod(object));
    (!violations.is_empty()).then(|| format!("would violate PodSecurity \"{policy}\": {}", details(&violations)))
}

fn check_pod(request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
    let Some(policy) = policy_of(request) else { return Ok(()) };
    let violations = evaluate(policy.enforce, &as_pod(&request.object));
    if !violations.is_empty() {
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&violations));
        return Err(request.forbidden(why));
    }
    let warnings = warn(policy.warn, &request.object);
    request.warnings.extend(warnings);
    Ok(())
}

/// Whether an update changes images or adds containers.
fn is_significant(new: &Value, old: &Value) -> bool {
    let (new, old) = (new.at("spec"), old.at("spec"));
    ["containers", "initContainers"].into_iter().any(|list| {
        let (new, old) = (new.items(list), old.items(list));
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new.text("image") != old.text("image"))
    }) || new.items("ephemeralContainers").iter().any(|container| {
        let known = old.items("ephemeralContainers").iter().find(|other| other.text("name") == container.text("name"));
        known.is_none_or(|known| known.text("image") != container.text("image"))
    })
}

fn check_namespace(request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
    let (new, errors) = policy::of(request.object.at("metadata").at("labels"));
    let Some(old) = request.old_object else { return refuse(request, &errors) };
    let (old, old_errors) = policy::of(old.at("metadata").at("labels"));
    let texts = |errors: &[FieldError]| -> Vec<String> { errors.iter().map(ToString::to_string).collect() };
    if texts(&errors) != texts(&old_errors) {
        refuse(request, &errors)?;
    }
    let relaxed = new.enforce.minor == old.enforce.minor && new.enforce.level <= old.enforce.level;
    if new.enforce == old.enforce || new.enforce.level == Level::Privileged || relaxed {
        return Ok(());
    }
    let warnings = check_existing(request, new.enforce);
    request.warnings.extend(warnings);
    Ok(())
}

fn refuse(request: &AdmissionRequest<'_>, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(Qualified { group: "", name: "Namespace" }, &request.name, errors))
}

/// Warnings about pods that are there already. One pod of a controller goes before its siblings.
fn check_existing(request: &AdmissionRequest<'_>, policy: LevelVersion) -> Vec<String> {
    let pods = request.objects.list(&PODS, Some(&request.name));
    let mut controllers = BTreeSet::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for pod in &pods {
        let owners = pod.at("metadata").items("ownerReferences");
        match owners.iter().find(|owner| owner.flag("controller")) {
            Some(owner) if !controllers.insert(owner.text("uid").to_owned()) => rest.push(pod),
            _ => first.push(pod),
        }
    }
    let total = pods.len();
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in first.into_iter().chain(rest).take(MOST_CHECKED) {
        let violations = evaluate(policy, &as_pod(pod));
        if violations.is_empty() {
            continue;
        }
        let reasons: Vec<&str> = violations.iter().map(|violation| violation.reason.as_str()).collect();
        let name = pod.at("metadata").text("name");
        let entry = found.entry(reasons.join(", ")).or_insert_with(|| (name.to_owned(), 0));
        if name < entry.0.as_str() {
            name.clone_into(&mut entry.0);
        }
        entry.1 += 1;
    }
    let mut warnings = Vec::new();
    if total > MOST_CHECKED {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MOST_CHECKED} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{policy}\"",
            request.name
        ));
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort();
    warnings.append(&mut lines);
    warnings
}
