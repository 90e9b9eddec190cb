//! Admission: what the API server changes in a write, or refuses, after authorization and before storage. One file per plugin; the chain
//! and its order stand here.

mod attributes;
mod certificates;
mod defaults;
mod limit_ranger;
mod matching;
mod mutating_policy;
mod namespace_lifecycle;
mod node_restriction;
mod persistent_volume_claim_resize;
mod plugin;
mod pod_security;
mod pod_topology_labels;
mod priority;
mod rbac_escalation;
mod resource_quota;
mod service_account;
mod validating_policy;
mod webhook;

use std::sync::Arc;

pub(in crate::apiserver) use attributes::names as expression_names;
pub use plugin::{AdmissionPlugin, AdmissionRequest, Operation};
pub use rbac_escalation::RbacEscalation;

use crate::apiserver::authz::Authorizer;
use crate::apiserver::resources::Objects;
use crate::apiserver::status::ApiError;
use certificates::Certificates;
use mutating_policy::MutatingAdmissionPolicy;
use validating_policy::ValidatingAdmissionPolicy;
use webhook::Webhooks;

/// The plugins in upstream's order (`pkg/kubeapiserver/options/plugins.go` v1.36.2).
#[derive(Default)]
pub struct AdmissionChain {
    mutating: Vec<Box<dyn AdmissionPlugin>>,
    validating: Vec<Box<dyn AdmissionPlugin>>,
}

impl AdmissionChain {
    /// The chain of a default kube-apiserver with NodeRestriction on.
    pub fn builtin() -> AdmissionChain {
        let mutating: Vec<Box<dyn AdmissionPlugin>> = vec![
            Box::new(namespace_lifecycle::NamespaceLifecycle),
            Box::new(limit_ranger::LimitRanger),
            Box::new(service_account::ServiceAccount),
            Box::new(node_restriction::NodeRestriction),
            Box::new(defaults::TAINT_NODES_BY_CONDITION),
            Box::new(priority::Priority),
            Box::new(defaults::DEFAULT_TOLERATION_SECONDS),
            Box::new(defaults::DEFAULT_STORAGE_CLASS),
            Box::new(defaults::STORAGE_OBJECT_IN_USE_PROTECTION),
            Box::new(defaults::RUNTIME_CLASS),
            Box::new(defaults::DEFAULT_INGRESS_CLASS),
            Box::new(pod_topology_labels::PodTopologyLabels),
        ];
        let validating: Vec<Box<dyn AdmissionPlugin>> = vec![
            Box::new(limit_ranger::LimitRanger),
            Box::new(service_account::ServiceAccount),
            Box::new(pod_security::PodSecurity),
            Box::new(priority::Priority),
            Box::new(persistent_volume_claim_resize::PersistentVolumeClaimResize),
            Box::new(resource_quota::ResourceQuota),
        ];
        AdmissionChain { mutating, validating }
    }

    /// Adds a plugin behind all mutating ones.
    pub fn push_mutating(&mut self, plugin: impl AdmissionPlugin + 'static) {
        self.mutating.push(Box::new(plugin));
    }

    /// Adds a plugin behind all validating ones but the count of quotas, which is the last.
    pub fn push_validating(&mut self, plugin: impl AdmissionPlugin + 'static) {
        let last = self.validating.len().saturating_sub(1);
        self.validating.insert(last, Box::new(plugin));
    }

    /// Adds what is configured by objects: policies, then webhooks, behind all of the server's own plugins.
    pub fn push_configured(&mut self, authorizer: &Arc<dyn Authorizer>) {
        let webhooks = Arc::new(Webhooks::new(authorizer.clone()));
        self.push_mutating(MutatingAdmissionPolicy::new(authorizer.clone()));
        self.push_mutating(webhooks.clone());
        self.push_validating(Certificates::new(authorizer.clone()));
        self.push_validating(ValidatingAdmissionPolicy::new(authorizer.clone()));
        self.push_validating(webhooks);
    }

    /// Whether all plugins did on this create what they will do on the next one like it.
    pub fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        self.mutating.iter().chain(&self.validating).all(|plugin| plugin.is_determined(request))
    }

    /// Whether no plugin, if all are determined, changes or refuses a binding to `node`.
    pub fn lets_bind(&self, node: &str, objects: &dyn Objects) -> bool {
        self.mutating.iter().chain(&self.validating).all(|plugin| plugin.lets_bind(node, objects))
    }

    /// Runs the mutating plugins; the first refusal ends it.
    ///
    /// # Errors
    /// The Status of the plugin that refused.
    pub async fn mutate(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        for plugin in &self.mutating {
            plugin.mutate(request).await?;
        }
        Ok(())
    }

    /// Runs the validating plugins; the first refusal ends it.
    ///
    /// # Errors
    /// The Status of the plugin that refused.
    pub async fn validate(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        for plugin in &self.validating {
            plugin.validate(request).await?;
        }
        Ok(())
    }
}
