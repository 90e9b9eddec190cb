//! Admission webhooks: servers elsewhere that change or refuse requests. Whom to ask is decided here; how, in `webhook/call.rs`.
//!
//! Upstream: apiserver v1.36.2 `pkg/admission/plugin/webhook/mutating/dispatcher.go`, `validating/dispatcher.go`,
//! `generic/webhook.go`.

mod call;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::attributes::{Conditions, Values, conditions};
use super::matching::{is_exempt, rules_match, selectors_match};
use super::{AdmissionPlugin, AdmissionRequest};
use crate::apiserver::authz::Authorizer;
use crate::apiserver::patch::json_patch::JsonPatch;
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;
use call::{Answer, CallError};

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: GroupResource = GroupResource::of(GROUP, "mutatingwebhookconfigurations");
const VALIDATING: GroupResource = GroupResource::of(GROUP, "validatingwebhookconfigurations");

/// Asks the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations.
#[derive(Debug)]
pub(super) struct Webhooks {
    authorizer: Arc<dyn Authorizer>,
}

impl Webhooks {
    /// Webhooks whose conditions may ask `authorizer`.
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Webhooks { authorizer }
    }

    /// The webhooks that are for this request, in order of their configurations' names.
    fn relevant(&self, resource: &GroupResource, request: &AdmissionRequest<'_>) -> Result<Vec<Hook>, ApiError> {
        let configurations = request.objects.list(resource, None);
        if configurations.is_empty() || is_exempt(request) {
            return Ok(Vec::new());
        }
        let mut values = None;
        let mut hooks = Vec::new();
        for configuration in configurations {
            for (index, webhook) in configuration.items("webhooks").iter().enumerate() {
                if !rules_match(webhook.items("rules"), request) || !selectors_match(webhook, request)? {
                    continue;
                }
                let hook = Hook { configuration: configuration.clone(), index };
                let list = webhook.items("matchConditions");
                if !list.is_empty() {
                    let values = values.get_or_insert_with(|| Values::of(request, &self.authorizer));
                    match conditions(list, values) {
                        Conditions::Match => {}
                        Conditions::Miss => continue,
                        Conditions::Failed(_) if hook.fails_open() => continue,
                        Conditions::Failed(why) => return Err(request.forbidden(why)),
                    }
                }
                hooks.push(hook);
            }
        }
        Ok(hooks)
    }

    async fn mutate_all(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let hooks = self.relevant(&MUTATING, request)?;
        let mut again = Vec::new();
        for (at, hook) in hooks.iter().enumerate() {
            if self.mutate_one(hook, request).await? {
                // Whoever answered before, and wants to, sees the object once more.
                again = (0..at).filter(|earlier| hooks[*earlier].is_reinvoked()).collect();
            }
        }
        for at in again {
            self.mutate_one(&hooks[at], request).await?;
        }
        Ok(())
    }

    /// Asks one webhook; whether it changed the object.
    async fn mutate_one(&self, hook: &Hook, request: &mut AdmissionRequest<'_>) -> Result<bool, ApiError> {
        let Some(answer) = ask(hook, request).await? else { return Ok(false) };
        let Some(patch) = answer.patch else { return Ok(false) };
        let broken = |why: String| ApiError::internal(call::failed(hook.name(), &why));
        let patch = JsonPatch::parse(&patch).map_err(|error| broken(error.to_string()))?;
        let patched = patch.apply(&request.object).map_err(ApiError::internal)?;
        if patched == request.object {
            return Ok(false);
        }
        request.object = patched;
        request.resource.strategy.apply_defaults(&mut request.object);
        Ok(true)
    }

    async fn validate_all(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        for hook in self.relevant(&VALIDATING, request)? {
            ask(&hook, request).await?;
        }
        Ok(())
    }
}

/// One webhook of a configuration.
struct Hook {
    configuration: Arc<Value>,
    index: usize,
}

impl Hook {
    fn value(&self) -> &Value {
        &self.configuration.items("webhooks")[self.index]
    }

    fn name(&self) -> &str {
        self.value().text("name")
    }

    fn fails_open(&self) -> bool {
        self.value().text("failurePolicy") == "Ignore"
    }

    fn is_reinvoked(&self) -> bool {
        self.value().text("reinvocationPolicy") == "IfNeeded"
    }
}

/// Asks a webhook and hands its warnings on. `None` means that it could not be asked, which its policy forgives.
async fn ask(hook: &Hook, request: &mut AdmissionRequest<'_>) -> Result<Option<Answer>, ApiError> {
    let webhook = hook.value();
    let name = hook.name();
    if request.dry_run && !matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun") {
        let why = format!("admission webhook \"{name}\" does not support dry run");
        return Err(ApiError::bad_request(why));
    }
    let answer = match call::call(webhook, request).await {
        Ok(answer) => answer,
        Err(CallError(why)) if hook.fails_open() => {
            tracing::debug!(why, name, "a webhook that may fail failed");
            return Ok(None);
        }
        Err(CallError(why)) => return Err(ApiError::internal(call::failed(name, &why))),
    };
    request.warnings.extend(answer.warnings.iter().cloned());
    if answer.allowed {
        return Ok(Some(answer));
    }
    Err(denied(name, &answer.status))
}

/// Upstream: `pkg/admission/plugin/webhook/errors/statuserror.go` ToStatusErr.
fn denied(name: &str, status: &Value) -> ApiError {
    let by = format!("admission webhook \"{name}\" denied the request");
    let message = match (status.text("message"), status.text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status.int("code").and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400).unwrap_or(400);
    ApiError::foreign(code, status.text("reason"), message)
}

impl AdmissionPlugin for Arc<Webhooks> {
    fn name(&self) -> &'static str {
        "AdmissionWebhooks"
    }

    fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        [MUTATING, VALIDATING].iter().all(|configurations| request.objects.list(configurations, None).is_empty())
    }

    fn mutate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        self.mutate_all(request).boxed()
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        self.validate_all(request).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_says_who_and_why() {
        let cases = [
            (
                json!({"message": "no", "code": 403, "reason": "Forbidden"}),
                (403, "admission webhook \"w\" denied the request: no"),
            ),
            (json!({"reason": "Invalid"}), (400, "admission webhook \"w\" denied the request: Invalid")),
            (Value::Null, (400, "admission webhook \"w\" denied the request without explanation")),
            (json!({"code": 200}), (400, "admission webhook \"w\" denied the request without explanation")),
        ];
        for (status, (code, message)) in cases {
            let error = denied("w", &status);
            assert_eq!((error.code(), error.message()), (code, message));
        }
    }
}
