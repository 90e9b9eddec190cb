//! Jobs: defaults, the generated selector, validation, columns.
//!
//! Upstream: v1.36.2 `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation/validation.go`, `pkg/registry/batch/job/strategy.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::{Kind, SPEC, same};
use super::super::pod::template;
use super::super::resource::Resource;
use super::super::strategy::WriteContext;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{format_selector, selector_matches, validate_label_selector};
use crate::apiserver::validation::meta::{IMMUTABLE, validate_nonnegative};
use crate::apiserver::validation::{FieldError, Path};

const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const MAX_PARALLEL_INDEXES: i64 = 100_000;
const COLUMNS: &[Column] = &[
    columns::NAME,
    Column::text("Status"),
    Column::text("Completions"),
    Column::text("Duration"),
    columns::AGE,
    Column::wide("Containers"),
    Column::wide("Images"),
    Column::wide("Selector"),
];

/// Job.
pub(super) fn resource() -> Resource {
    Kind::new("batch", "v1", "jobs", "Job")
        .categories(&["all"])
        .generation()
        .status()
        .orphan_by_default()
        .field_labels(&["status.successful"], |job| vec![job.at("status").int("succeeded").unwrap_or(0).to_string()])
        .defaults(apply_defaults)
        .prepare_create(generate_selector)
        .validate(validate)
        .validate_update(validate_update)
        .columns(COLUMNS, cells)
        .build()
}

fn apply_defaults(job: &mut Value) {
    let labels = job.at("spec").at("template").at("metadata").at("labels").clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        let metadata = job.object_mut("metadata");
        if metadata.entries("labels").is_none_or(serde_json::Map::is_empty) {
            metadata.put("labels", labels);
        }
    }
    apply_spec_defaults(job.object_mut("spec"));
}

/// Defaults of a Job's spec.
fn apply_spec_defaults(spec: &mut Value) {
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.put("completions", json!(1));
    }
    spec.default_to("parallelism", 1);
    let per_index = spec.has("backoffLimitPerIndex");
    spec.default_to("backoffLimit", if per_index { i32::MAX } else { 6 });
    spec.default_to("completionMode", "NonIndexed");
    spec.default_to("suspend", false);
    spec.default_to("manualSelector", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.default_to("podReplacementPolicy", replacement);
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for pattern in policy.items_mut("rules").iter_mut().flat_map(|rule| rule.items_mut("onPodConditions")) {
            pattern.default_to("status", "True");
        }
    }
    template::apply_defaults(spec.object_mut("template"));
}

/// Labels that tie the pods to this Job, and the selector of them.
fn generate_selector(_context: &WriteContext<'_>, job: &mut Value) {
    if job.at("spec").flag("manualSelector") {
        return;
    }
    let metadata = job.at("metadata");
    let (name, uid) = (metadata.at("name").clone(), metadata.at("uid").clone());
    let spec = job.object_mut("spec");
    let labels = spec.object_mut("template").object_mut("metadata").object_mut("labels");
    for key in JOB_NAME {
        labels.default_to(key, name.clone());
    }
    for key in CONTROLLER_UID {
        labels.default_to(key, uid.clone());
    }
    spec.object_mut("selector").object_mut("matchLabels").default_to(CONTROLLER_UID[1], uid);
}

fn validate(job: &Value, out: &mut Vec<FieldError>) {
    let spec = job.at("spec");
    validate_generated_selector(job, out);
    validate_spec(spec, &SPEC, out);
    let field = SPEC.child("selector");
    if spec.has("selector") {
        validate_label_selector(spec.at("selector"), &field, out);
    } else {
        out.push(FieldError::required(&field, ""));
    }
    let labels = spec.at("template").at("metadata").at("labels");
    if spec.has("selector") && !selector_matches(spec.at("selector"), labels) {
        let template = SPEC.child("template");
        let why = "`selector` does not match template `labels`";
        out.push(FieldError::invalid(&template.child("metadata").child("labels"), labels.clone(), why));
    }
}

fn validate_generated_selector(job: &Value, out: &mut Vec<FieldError>) {
    let spec = job.at("spec");
    if spec.flag("manualSelector") {
        return;
    }
    let metadata = job.at("metadata");
    let template = SPEC.child("template");
    let template_metadata = template.child("metadata");
    let labels_path = template_metadata.child("labels");
    let labels = spec.at("template").at("metadata").at("labels");
    for (keys, want) in [(CONTROLLER_UID, metadata.text("uid")), (JOB_NAME, metadata.text("name"))] {
        for key in keys {
            if labels.text(key) != want {
                out.push(FieldError::invalid(&labels_path, labels.clone(), format!("must be '{want}'")));
            }
        }
    }
    let selector = spec.at("selector").at("matchLabels");
    if selector.text(CONTROLLER_UID[1]) != metadata.text("uid") {
        let why = "`selector` not auto-generated";
        out.push(FieldError::invalid(&SPEC.child("selector"), spec.at("selector").clone(), why));
    }
}

/// Faults of a Job's spec apart from its selector, which a CronJob's template does not have yet.
pub(super) fn validate_spec(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        validate_nonnegative(spec.int(key), &path.child(key), out);
    }
    let per_index = path.child("backoffLimitPerIndex");
    let failed = path.child("maxFailedIndexes");
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        out.push(FieldError::required(&per_index, "when maxFailedIndexes is specified"));
    }
    let mode = spec.text("completionMode");
    match mode {
        "Indexed" => {
            if !spec.has("completions") {
                out.push(FieldError::required(&path.child("completions"), "when completion mode is Indexed"));
            }
            let parallelism = spec.int("parallelism").unwrap_or(0);
            if parallelism > MAX_PARALLEL_INDEXES {
                let why =
                    format!("must be less than or equal to {MAX_PARALLEL_INDEXES} when completion mode is Indexed");
                out.push(FieldError::invalid(&path.child("parallelism"), parallelism, why));
            }
            if let (Some(max), Some(completions)) = (spec.int("maxFailedIndexes"), spec.int("completions"))
                && max > completions
            {
                out.push(FieldError::invalid(&failed, max, "must be less than or equal to completions"));
            }
        }
        "" | "NonIndexed" => {
            for (key, field) in [("backoffLimitPerIndex", &per_index), ("maxFailedIndexes", &failed)] {
                if let Some(value) = spec.int(key) {
                    out.push(FieldError::invalid(field, value, "requires indexed completion mode"));
                }
            }
        }
        other => out.push(FieldError::not_supported(&path.child("completionMode"), other, &["NonIndexed", "Indexed"])),
    }
    let policies: &[&str] = if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    let policy = spec.text("podReplacementPolicy");
    if !policy.is_empty() && !policies.contains(&policy) {
        out.push(FieldError::not_supported(&path.child("podReplacementPolicy"), policy, policies));
    }
    validate_template(spec, path, out);
}

fn validate_template(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let template_path = path.child("template");
    template::validate(spec.at("template"), &template_path, out);
    let pod = template_path.child("spec");
    let field = pod.child("restartPolicy");
    match spec.at("template").at("spec").text("restartPolicy") {
        "" | "Always" => out.push(FieldError::required(&field, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.has("podFailurePolicy") => {
            out.push(FieldError::invalid(
                &field,
                "OnFailure",
                "only \"Never\" is supported when podFailurePolicy is specified",
            ));
        }
        "OnFailure" | "Never" => {}
        other => out.push(FieldError::not_supported(&field, other, &["OnFailure", "Never"])),
    }
}

fn validate_update(job: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (spec, old_spec) = (job.at("spec"), old.at("spec"));
    let mut immutable = |key: &str| {
        if !same(spec.at(key), old_spec.at(key)) {
            out.push(FieldError::invalid(&SPEC.child(key), spec.at(key).clone(), IMMUTABLE));
        }
    };
    if spec.text("completionMode") != "Indexed" {
        immutable("completions");
    }
    immutable("selector");
    // A suspended Job that never ran may still be told where its pods go.
    let movable = old_spec.flag("suspend") && !old.at("status").has("startTime");
    let stripped = |spec: &Value| {
        let mut template = spec.at("template").clone();
        if movable {
            let pod = template.object_mut("spec");
            for key in ["nodeSelector", "tolerations", "schedulingGates"] {
                pod.take_member(key);
            }
            pod.object_mut("affinity").take_member("nodeAffinity");
            for list in ["containers", "initContainers"] {
                for container in pod.items_mut(list) {
                    container.take_member("resources");
                }
            }
            template.take_member("metadata");
        }
        template
    };
    if !same(&stripped(spec), &stripped(old_spec)) {
        out.push(FieldError::invalid(&SPEC.child("template"), go_template(spec.at("template")), IMMUTABLE));
    }
    let mut immutable = |key: &str| {
        if !same(spec.at(key), old_spec.at(key)) {
            out.push(FieldError::invalid(&SPEC.child(key), spec.at(key).clone(), IMMUTABLE));
        }
    };
    for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        immutable(key);
    }
    if spec.text("completionMode") == "Indexed"
        && spec.at("completions") != old_spec.at("completions")
        && spec.at("completions") != spec.at("parallelism")
    {
        let value = spec.at("completions").clone();
        out.push(FieldError::invalid(
            &SPEC.child("completions"),
            value,
            "can only be modified in tandem with spec.parallelism",
        ));
    }
}

/// Upstream prints its whole internal struct here; clients show it but never read it.
fn go_template(template: &Value) -> Value {
    template.clone()
}

fn cells(job: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (job.at("spec"), job.at("status"));
    let succeeded = status.int("succeeded").unwrap_or(0);
    let completions = match (spec.int("completions"), spec.int("parallelism").unwrap_or(0)) {
        (Some(want), _) => format!("{succeeded}/{want}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let time = |key: &str| status.text(key).parse::<Timestamp>().ok();
    let duration = time("startTime").map_or_else(String::new, |start| {
        let end = time("completionTime").unwrap_or(now);
        columns::human_duration(end.as_millisecond() - start.as_millisecond())
    });
    let [names, images] = columns::containers(spec.at("template").at("spec"));
    vec![
        columns::name(job),
        json!(state(job)),
        json!(completions),
        json!(duration),
        columns::age(job, now),
        names,
        images,
        json!(format_selector(spec.at("selector"))),
    ]
}

fn state(job: &Value) -> &'static str {
    let conditions = job.at("status").items("conditions");
    let is = |kind: &str| conditions.iter().any(|one| one.text("type") == kind && one.text("status") == "True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if job.at("metadata").has("deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_job_runs_once_and_selects_its_own_pods() {
        let mut job = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}});
        apply_defaults(&mut job);
        let spec = &job["spec"];
        assert_eq!(
            (&spec["completions"], &spec["parallelism"], &spec["backoffLimit"]),
            (&json!(1), &json!(1), &json!(6))
        );
        let user = crate::apiserver::authn::UserInfo::anonymous();
        generate_selector(&WriteContext { now: Timestamp::UNIX_EPOCH, user: &user }, &mut job);
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
        let mut errors = Vec::new();
        validate(&job, &mut errors);
        assert_eq!(errors, []);
    }

    #[test]
    fn pods_of_a_job_may_not_restart_for_ever() {
        let mut errors = Vec::new();
        let spec = json!({"template": {"spec": {"restartPolicy": "Always"}}});
        validate_template(&spec, &SPEC, &mut errors);
        let last = errors.last().expect("a fault").to_string();
        assert_eq!(last, "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"");
    }
}
