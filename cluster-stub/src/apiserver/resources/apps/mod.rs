//! The resources of the group `apps`, and what their rules share.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

use serde_json::Value;

use super::kind::{SPEC, STATUS};
use super::pod::template;
use super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::{is_empty_selector, selector_matches, validate_label_selector};
use crate::apiserver::validation::meta::validate_nonnegative;
use crate::apiserver::validation::names::percent;
use crate::apiserver::validation::{FieldError, Path};

/// Every resource of the group.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        controller_revision::resource(),
        daemon_set::resource(),
        deployment::resource(),
        replica_set::resource(),
        stateful_set::resource(),
    ]
}

/// A selector that is there and not empty; `owner` is the kind in lower case as upstream's text has it.
fn validate_selector(spec: &Value, owner: &str, out: &mut Vec<FieldError>) {
    let field = SPEC.child("selector");
    let selector = spec.at("selector");
    if selector.is_null() {
        out.push(FieldError::required(&field, ""));
        return;
    }
    validate_label_selector(selector, &field, out);
    if is_empty_selector(selector) {
        out.push(FieldError::invalid(&field, selector.clone(), format!("empty selector is invalid for {owner}")));
    }
}

/// The template: its labels fit the selector, its pods restart always. `owner` is the kind as upstream's text has it.
fn validate_template(spec: &Value, template: &Value, owner: &str, out: &mut Vec<FieldError>) {
    let path = SPEC.child("template");
    let labels = template.at("metadata").at("labels");
    let selector = spec.at("selector");
    if !selector.is_null() && !is_empty_selector(selector) && !selector_matches(selector, labels) {
        let metadata = path.child("metadata");
        let why = "`selector` does not match template `labels`";
        out.push(FieldError::invalid(&metadata.child("labels"), labels.clone(), why));
    }
    template::validate(template, &path, out);
    let pod = path.child("spec");
    let policy = template.at("spec").text("restartPolicy");
    if policy != "Always" {
        out.push(FieldError::not_supported(&pod.child("restartPolicy"), policy, &["Always"]));
    }
    if template.at("spec").has("activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {owner} is not Supported");
        out.push(FieldError::forbidden(&pod.child("activeDeadlineSeconds"), why));
    }
}

/// Counts of a status that may not be negative.
fn validate_counts(object: &Value, keys: &[&str], out: &mut Vec<FieldError>) {
    for key in keys {
        validate_nonnegative(object.at("status").int(key), &STATUS.child(key), out);
    }
}

/// Counts of a status that may not be greater than another one.
fn validate_at_most(object: &Value, pairs: &[(&str, &str, &str)], out: &mut Vec<FieldError>) {
    let count = |key: &str| object.at("status").int(key).unwrap_or(0);
    for (key, limit, shown) in pairs {
        if count(key) > count(limit) {
            out.push(FieldError::invalid(&STATUS.child(key), count(key), format!("cannot be greater than {shown}")));
        }
    }
}

/// `collisionCount` only grows.
fn validate_collisions(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let count = |object: &Value| object.at("status").int("collisionCount").unwrap_or(0);
    if count(object) < count(old) {
        out.push(FieldError::invalid(&STATUS.child("collisionCount"), count(object), "cannot be decremented"));
    }
}

/// A number that is not negative, or a percent.
pub(super) fn validate_int_or_percent(value: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    match value.as_str() {
        Some(text) => out.extend(percent(text).into_iter().map(|fault| FieldError::invalid(path, text, fault))),
        None => validate_nonnegative(value.as_i64(), path, out),
    }
}

/// A percent is at most 100.
pub(super) fn validate_at_most_100_percent(value: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if value.as_str().is_some() && int_or_percent(value) > 100 {
        out.push(FieldError::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

/// The number in a number or a percent.
fn int_or_percent(value: &Value) -> i64 {
    match value.as_str() {
        Some(text) => text.strip_suffix('%').unwrap_or(text).parse().unwrap_or(0),
        None => value.as_i64().unwrap_or(0),
    }
}
