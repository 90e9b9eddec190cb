//! ControllerRevisions: what a StatefulSet or DaemonSet looked like, unchangeable.
//!
//! Upstream: v1.36.2 `pkg/apis/apps/validation/validation.go` ValidateControllerRevisionCreate.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::Kind;
use super::super::resource::Resource;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::{validate_immutable, validate_nonnegative};
use crate::apiserver::validation::{FieldError, Path};

/// ControllerRevision.
pub(super) fn resource() -> Resource {
    Kind::new("apps", "v1", "controllerrevisions", "ControllerRevision")
        .validate(|object, out| {
            validate_nonnegative(object.int("revision"), &Path::root("revision"), out);
            let data = object.at("data");
            if data.is_null() {
                out.push(FieldError::required(&Path::root("data"), "data is mandatory"));
            } else if !data.is_object() {
                out.push(FieldError::required(&Path::root("data"), "data must be a valid JSON object"));
            }
        })
        .validate_update(|object, old, out| {
            validate_immutable(object.at("data"), old.at("data"), &Path::root("data"), out)
        })
        .columns(const { &[columns::NAME, Column::text("Controller"), Column::text("Revision"), columns::AGE] }, cells)
        .build()
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let owners = object.at("metadata").items("ownerReferences");
    let controller = owners.iter().find(|owner| owner.flag("controller")).map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group =
                owner.text("apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{}{group}/{}", owner.text("kind").to_lowercase(), owner.text("name"))
        },
    );
    vec![
        columns::name(object),
        json!(controller),
        json!(object.int("revision").unwrap_or(0)),
        columns::age(object, now),
    ]
}
