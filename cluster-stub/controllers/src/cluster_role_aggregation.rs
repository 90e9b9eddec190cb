//! The cluster role aggregation controller: gives an aggregated ClusterRole the rules of the roles that it selects.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::runtime::api::{ApiClient, SyncError};
use super::runtime::context::Context;
use super::runtime::informers::Informers;
use super::runtime::key::ObjectKey;
use super::runtime::selector::Selector;
use super::runtime::worker::Reconcile;
use super::runtime::workqueue::WorkQueue;

const NAME: &str = "clusterrole-aggregation-controller";

struct Aggregation {
    api: ApiClient,
    informers: Arc<Informers>,
    queue: WorkQueue<ObjectKey>,
}

/// Starts the cluster role aggregation controller.
pub(super) fn start(context: &Context) {
    let controller = Arc::new(Aggregation {
        api: context.api(NAME),
        informers: Arc::clone(&context.informers),
        queue: WorkQueue::default(),
    });
    let watcher = Arc::clone(&controller);
    context.informers.cluster_roles.on_change(move |_| {
        for role in watcher.informers.cluster_roles.list() {
            if role.aggregation_rule.is_some() {
                watcher.queue.add(ObjectKey::of(role.as_ref()));
            }
        }
    });
    context.run(&controller, 1);
}

/// The rules of the roles that `role` selects, each once, in the order of the roles' names. `None` if it selects none.
/// Upstream: clusterroleaggregation_controller.go v1.36.2 `syncClusterRole`.
fn aggregate(role: &ClusterRole, roles: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_deref().unwrap_or_default();
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors.iter().filter_map(|selector| Selector::from_label_selector(Some(selector))) {
        let selected = roles.iter().filter(|other| {
            other.metadata.name != role.metadata.name && selector.matches(other.metadata.labels.as_ref())
        });
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

impl Reconcile for Aggregation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> &'static str {
        "ClusterRole"
    }

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(role) = self.informers.cluster_roles.get(key) else { return Ok(()) };
        let Some(rules) = aggregate(&role, &self.informers.cluster_roles.list()) else { return Ok(()) };
        if role.rules.as_deref().unwrap_or_default() == rules {
            return Ok(());
        }
        let mut changed = role.as_ref().clone();
        changed.rules = Some(rules);
        match self.api.update(&changed).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::AggregationRule;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;

    #[test]
    fn selected_roles_give_their_rules_once() {
        let rule = |resource: &str| PolicyRule {
            resources: Some(vec![resource.to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        let role = |name: &str, label: &str, rules: Vec<PolicyRule>| {
            let mut role = ClusterRole { rules: Some(rules), ..ClusterRole::default() };
            role.metadata.name = Some(name.to_owned());
            role.metadata.labels = Some([("to".to_owned(), label.to_owned())].into());
            role
        };
        let roles = [
            role("a", "x", vec![rule("p"), rule("q")]),
            role("b", "x", vec![rule("q"), rule("r")]),
            role("c", "y", vec![rule("s")]),
        ]
        .map(Arc::new);
        let mut sum = role("sum", "x", Vec::new());
        assert_eq!(aggregate(&sum, &roles), None);
        let labels = Some([("to".to_owned(), "x".to_owned())].into());
        sum.aggregation_rule = Some(AggregationRule {
            cluster_role_selectors: Some(vec![LabelSelector { match_labels: labels, match_expressions: None }]),
        });
        assert_eq!(aggregate(&sum, &roles), Some(vec![rule("p"), rule("q"), rule("r")]));
    }
}
