//! LimitRanges: defaults and validation. Their enforcement is the LimitRanger admission plugin.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateLimitRange, `pkg/apis/core/v1/defaults.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::kind::Kind;
use super::super::resource::Resource;
use super::super::resource_list::{self, quantity};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::{FieldError, Path, Quantity};

/// LimitRange.
pub(super) fn resource() -> Resource {
    Kind::new("", "v1", "limitranges", "LimitRange")
        .short_names(&["limits"])
        .create_on_update()
        .defaults(apply_defaults)
        .validate(validate)
        .build()
}

fn apply_defaults(object: &mut Value) {
    for item in object.object_mut("spec").items_mut("limits") {
        for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            resource_list::round_up(item.get_mut(key));
        }
        if item.text("type") != "Container" {
            continue;
        }
        // A missing default limit is the maximum, a missing default request the default limit, then the minimum.
        let max = item.at("max").clone();
        fill(item, "default", &max);
        let default = item.at("default").clone();
        fill(item, "defaultRequest", &default);
        let min = item.at("min").clone();
        fill(item, "defaultRequest", &min);
    }
}

fn fill(item: &mut Value, key: &str, from: &Value) {
    let target = item.object_mut(key);
    for (name, quantity) in from.as_object().into_iter().flatten() {
        target.default_to(name, quantity.clone());
    }
    if item.entries(key).is_some_and(serde_json::Map::is_empty) {
        item.take_member(key);
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let spec = Path::root("spec");
    let limits = spec.child("limits");
    let mut types = BTreeSet::new();
    for (index, limit) in object.at("spec").items("limits").iter().enumerate() {
        let path = limits.index(index);
        let kind = limit.text("type");
        for fault in crate::apiserver::validation::names::qualified_name(kind) {
            out.push(FieldError::invalid(&path.child("type"), kind, fault));
        }
        if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") && !kind.is_empty() {
            let why = "must be a standard limit type or fully qualified";
            out.push(FieldError::invalid(&path.child("type"), kind, why));
        }
        if !types.insert(kind) {
            out.push(FieldError::duplicate(&path.child("type"), kind));
        }
        validate_item(limit, &path, out);
    }
}

fn validate_item(limit: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let kind = limit.text("type");
    let mut names = BTreeSet::new();
    for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        if key.starts_with("default") && kind == "Pod" {
            if limit.has(key) {
                out.push(FieldError::forbidden(&path.child(key), "may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for name in limit.entries(key).into_iter().flatten().map(|(name, _)| name) {
            resource_list::validate_name(name, &path.child(key).key(name), out);
            names.insert(name.as_str());
        }
    }
    if kind == "PersistentVolumeClaim" && !limit.at("min").has("storage") && !limit.at("max").has("storage") {
        let field = path.child("limits");
        out.push(FieldError::required(
            &field,
            "either minimum or maximum storage value is required, but neither was provided",
        ));
    }
    for name in names {
        validate_order(limit, name, path, out);
    }
}

/// Minimum ≤ default request ≤ default limit ≤ maximum, as far as they are there.
fn validate_order(limit: &Value, name: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let of = |key: &str| -> Option<Quantity> { limit.at(key).has(name).then(|| quantity(limit.at(key), name)) };
    let (min, max) = (of("min"), of("max"));
    let (request, default, ratio) = (of("defaultRequest"), of("default"), of("maxLimitRequestRatio"));
    let fault = |key: &str, value: Quantity, why: String| {
        FieldError::invalid(&path.child(key).key(name), value.to_string(), why)
    };
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        out.push(fault("min", min, format!("min value {min} is greater than max value {max}")));
    }
    if let (Some(request), Some(min)) = (request, min)
        && min > request
    {
        out.push(fault(
            "defaultRequest",
            request,
            format!("min value {min} is greater than default request value {request}"),
        ));
    }
    if let (Some(request), Some(max)) = (request, max)
        && request > max
    {
        out.push(fault(
            "defaultRequest",
            request,
            format!("default request value {request} is greater than max value {max}"),
        ));
    }
    if let (Some(request), Some(default)) = (request, default)
        && request > default
    {
        let why = format!("default request value {request} is greater than default limit value {default}");
        out.push(fault("defaultRequest", request, why));
    }
    if let (Some(default), Some(min)) = (default, min)
        && min > default
    {
        out.push(fault("default", min, format!("min value {min} is greater than default value {default}")));
    }
    if let (Some(default), Some(max)) = (default, max)
        && default > max
    {
        out.push(fault("default", max, format!("default value {default} is greater than max value {max}")));
    }
    let one = Quantity::of(1);
    if let Some(ratio) = ratio {
        if ratio < one {
            out.push(fault("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1")));
        }
        if let (Some(min), Some(max)) = (min, max)
            && min.sign() > 0
        {
            #[expect(clippy::cast_precision_loss, reason = "a ratio of limits, compared as upstream does")]
            let bound = (max.milli_value() as f64) / (min.milli_value() as f64);
            #[expect(clippy::cast_precision_loss, reason = "a ratio of limits, compared as upstream does")]
            let given = ratio.milli_value() as f64 / 1000.0;
            if given > bound {
                out.push(fault(
                    "maxLimitRequestRatio",
                    ratio,
                    format!("ratio {ratio} is greater than max/min = {bound:.6}"),
                ));
            }
        }
    }
    if let (Some(request), Some(default)) = (request, default)
        && request != default
        && !resource_list::is_overcommit_allowed(name)
    {
        let why = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        out.push(fault("defaultRequest", request, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_flow_from_the_maximum_down() {
        let mut range =
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"}}]}});
        apply_defaults(&mut range);
        assert_eq!(
            range["spec"]["limits"][0],
            json!({"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "1Mi"},
                   "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1", "memory": "1Mi"}})
        );
    }

    #[test]
    fn values_out_of_order_are_named() {
        let mut range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}});
        apply_defaults(&mut range);
        let mut errors = Vec::new();
        validate(&range, &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
                "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
            ]
        );
    }
}
