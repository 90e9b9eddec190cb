//! Evicting a pod: a delete that the pod's disruption budget must allow.
//!
//! Upstream: v1.36.2 `pkg/registry/core/pod/storage/eviction.go`.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::super::action::{Action, ActionRequest};
use super::super::core::persistent_volume::timestamp;
use super::super::resource::GroupResource;
use super::set_condition;
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::selector_matches;

const PODS: GroupResource = GroupResource::of("", "pods");
const BUDGETS: GroupResource = GroupResource::of("policy", "poddisruptionbudgets");
const MAX_DISRUPTED_PODS: usize = 2000;
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Deletes a pod unless its budget forbids it.
pub(super) struct EvictPod;

impl Action for EvictPod {
    fn run<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>> {
        Box::pin(async move {
            if request.body.at("metadata").text("name") != request.name {
                return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
            }
            let pod = request.objects.read(&PODS, request.namespace, request.name).await?;
            let pod = pod.ok_or_else(|| ApiError::not_found(Qualified { group: "", name: "pods" }, request.name))?;
            let dry_run = request.dry_run || !request.body.at("deleteOptions").items("dryRun").is_empty();
            if !is_beyond_budgets(&pod) {
                self.take_from_budget(&request, &pod, dry_run).await?;
            }
            if !dry_run {
                evict(&request).await?;
            }
            Ok((201, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})))
        })
    }
}

/// Pods that do not count for any budget: not running yet, over, or going.
fn is_beyond_budgets(pod: &Value) -> bool {
    matches!(pod.at("status").text("phase"), "Succeeded" | "Failed" | "Pending")
        || pod.at("metadata").has("deletionTimestamp")
}

impl EvictPod {
    async fn take_from_budget(&self, request: &ActionRequest<'_>, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
        let labels = pod.at("metadata").at("labels");
        let budgets: Vec<_> = request
            .objects
            .list(&BUDGETS, Some(request.namespace))
            .into_iter()
            .filter(|budget| selector_matches(budget.at("spec").at("selector"), labels))
            .collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let why =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(ApiError::unclassified(why));
            }
        };
        let ready = pod
            .at("status")
            .items("conditions")
            .iter()
            .any(|one| one.text("type") == "Ready" && one.text("status") == "True");
        let status = budget.at("status");
        let (healthy, desired) = (status.int("currentHealthy").unwrap_or(0), status.int("desiredHealthy").unwrap_or(0));
        let always = budget.at("spec").text("unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if !ready && (always || (healthy >= desired && desired > 0)) {
            return Ok(());
        }
        let name = budget.at("metadata").text("name").to_owned();
        let (pod_name, now) = (request.name.to_owned(), timestamp(request.context.now));
        if dry_run {
            return decrement(&mut budget.as_ref().clone(), &pod_name, &now);
        }
        let change = Box::new(move |budget: &mut Value| decrement(budget, &pod_name, &now));
        request.objects.update(&BUDGETS, request.namespace, &name, change).await.map(|_| ())
    }
}

/// Takes one disruption from a budget and remembers the pod.
fn decrement(budget: &mut Value, pod: &str, now: &str) -> Result<(), ApiError> {
    let name = budget.at("metadata").text("name").to_owned();
    let budgets = Qualified { group: "policy", name: "poddisruptionbudget" };
    let generation = budget.at("metadata").int("generation").unwrap_or(0);
    let status = budget.object_mut("status");
    let count = |key: &str| status.int(key).unwrap_or(0);
    let refuse = |seconds: u32, why: &str| {
        ApiError::too_many_requests(VIOLATION, seconds).with_cause("DisruptionBudget", why, "")
    };
    if count("observedGeneration") < generation {
        return Err(refuse(10, &format!("The disruption budget {name} is still being processed by the server.")));
    }
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return Err(ApiError::forbidden(budgets, &name, "pdb disruptions allowed is negative"));
    }
    if status.entries("disruptedPods").is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden(budgets, &name, why));
    }
    if allowed == 0 {
        let (healthy, desired) = (count("currentHealthy"), count("desiredHealthy"));
        let condition =
            status.items("conditions").iter().find(|condition| condition.text("type") == "DisruptionAllowed");
        let said =
            condition.filter(|condition| condition.text("status") == "False" && !condition.text("message").is_empty());
        let why = match said {
            Some(condition) if condition.text("reason") == "SyncFailed" => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
                condition.text("message")
            ),
            _ if healthy <= desired => {
                format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
            }
            Some(condition) => format!(
                "The disruption budget {name} does not allow evicting pods currently ({}): {}",
                condition.text("reason"),
                condition.text("message")
            ),
            None => format!("The disruption budget {name} does not allow evicting pods currently"),
        };
        return Err(refuse(0, &why));
    }
    status.put("disruptionsAllowed", json!(allowed - 1));
    if allowed == 1 {
        for condition in status.items_mut("conditions").iter_mut().filter(|one| one.text("type") == "DisruptionAllowed")
        {
            condition.put("status", json!("False"));
            condition.put("reason", json!("InsufficientPods"));
            condition.put("lastTransitionTime", json!(now));
        }
    }
    status.object_mut("disruptedPods").put(pod, json!(now));
    Ok(())
}

async fn evict(request: &ActionRequest<'_>) -> Result<(), ApiError> {
    let now = request.context.now;
    let preconditions = request.body.at("deleteOptions").at("preconditions").clone();
    let mark = move |pod: &mut Value| {
        let uid = preconditions.text("uid");
        if !uid.is_empty() && uid != pod.at("metadata").text("uid") {
            let name = pod.at("metadata").text("name");
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                pod.at("metadata").text("uid")
            );
            return Err(ApiError::conflict(Qualified { group: "", name: "Pod" }, name, why));
        }
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting"});
        set_condition(pod, condition, now);
        Ok(())
    };
    request.objects.update(&PODS, request.namespace, request.name, Box::new(mark)).await?;
    let mut options = request.body.at("deleteOptions").clone();
    if options.is_null() {
        options = json!({});
    }
    // The mark above has moved the version on.
    options.object_mut("preconditions").take_member("resourceVersion");
    request.objects.delete(&PODS, request.namespace, request.name, options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(allowed: i64, healthy: i64) -> Value {
        json!({"metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 2}})
    }

    #[test]
    fn a_budget_with_room_shrinks() {
        let mut budget = budget(1, 3);
        decrement(&mut budget, "p", "now").expect("one disruption is allowed");
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
        assert_eq!(budget["status"]["disruptedPods"]["p"], "now");
    }

    #[test]
    fn a_used_up_budget_refuses_with_its_reason() {
        let error = decrement(&mut budget(0, 2), "p", "now").expect_err("nothing is allowed");
        assert_eq!((error.code(), error.message()), (429, VIOLATION));
        let cause = &error.to_status()["details"]["causes"][0];
        assert_eq!(cause["message"], "The disruption budget b needs 2 healthy pods and has 2 currently");
    }
}
