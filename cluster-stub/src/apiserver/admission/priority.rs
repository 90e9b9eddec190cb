//! Priority: turns a pod's priority class into a number.
//!
//! Upstream: v1.36.2 `plugin/pkg/admission/priority/admission.go`.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{AdmissionPlugin, AdmissionRequest, Operation};
use crate::apiserver::resources::{GroupResource, Objects};
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const CLASSES: GroupResource = GroupResource::of("scheduling.k8s.io", "priorityclasses");

/// See the module.
pub(super) struct Priority;

impl AdmissionPlugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn is_determined(&self, _request: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if !request.is("", "pods") {
                return Ok(());
            }
            match request.operation {
                Operation::Create => set_priority(request).await,
                Operation::Update => {
                    keep_priority(request);
                    Ok(())
                }
                _ => Ok(()),
            }
        })
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let written = matches!(request.operation, Operation::Create | Operation::Update);
            if !request.is("scheduling.k8s.io", "priorityclasses") || !written || !request.object.flag("globalDefault")
            {
                return Ok(());
            }
            let own = request.object.at("metadata").text("name");
            match default_class(request.objects) {
                Some(class) if request.operation == Operation::Create || class.at("metadata").text("name") != own => {
                    let name = class.at("metadata").text("name");
                    let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
                    Err(request.forbidden(why))
                }
                _ => Ok(()),
            }
        })
    }
}

/// Of several defaults the lowest counts.
fn default_class(objects: &dyn Objects) -> Option<Arc<Value>> {
    objects
        .list(&CLASSES, None)
        .into_iter()
        .filter(|class| class.flag("globalDefault"))
        .min_by_key(|class| class.int("value"))
}

async fn set_priority(request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
    let name = request.object.at("spec").text("priorityClassName").to_owned();
    let class = if name.is_empty() {
        default_class(request.objects)
    } else {
        match request.objects.get(&CLASSES, "", &name) {
            Some(class) => Some(class),
            None => match request.objects.read(&CLASSES, "", &name).await? {
                Some(class) => Some(Arc::new(class)),
                None => return Err(request.forbidden(format!("no PriorityClass with name {name} was found"))),
            },
        }
    };
    let priority = class.as_ref().and_then(|class| class.int("value")).unwrap_or(0);
    let policy = class.as_ref().map_or("PreemptLowerPriority", |class| match class.text("preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    });
    let spec = request.object.at("spec");
    if let Some(given) = spec.int("priority")
        && given != priority
    {
        return Err(request.forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        )));
    }
    let given = spec.text("preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(request.forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    let (policy, name) = (json!(policy), class.as_ref().map(|class| class.at("metadata").at("name").clone()));
    let spec = request.object.object_mut("spec");
    spec.put("priority", json!(priority));
    spec.put("preemptionPolicy", policy);
    if let Some(name) = name {
        spec.put("priorityClassName", name);
    }
    Ok(())
}

/// A PUT may leave out what was computed on create.
fn keep_priority(request: &mut AdmissionRequest<'_>) {
    let Some(old) = request.old_object.map(|old| old.at("spec")) else { return };
    let spec = request.object.object_mut("spec");
    for key in ["priority", "preemptionPolicy"] {
        if old.has(key) {
            spec.default_to(key, old.at(key).clone());
        }
    }
}
