//! Kubernetes API objects into the model: everything is parsed here, once, and nothing else knows the API types.
//!
//! `model::Pod::try_from(&corev1::Pod)` and its like for every kind. Golden tests, the live scheduler and simulations
//! all come this way.
#![cfg(feature = "k8s-openapi")]

mod affinity;
mod node;
mod pod;
mod pod_resources;
mod selector;
mod storage;
mod volume;
mod workload;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::model::{Labels, Quantity, QuantityError, ResourceList, Timestamp};

/// Why an API object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?}: {field}: {problem}")]
pub struct ConvertError {
    /// Kind of the object.
    pub kind: &'static str,
    /// `namespace/name`, or the name alone.
    pub name: String,
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub problem: QuantityError,
}

/// A fault in a field, before the object it belongs to is named.
#[derive(Debug)]
struct FieldError {
    field: String,
    problem: QuantityError,
}

impl FieldError {
    fn on(self, kind: &'static str, meta: &ObjectMeta) -> ConvertError {
        let name = meta.name.as_deref().unwrap_or_default();
        let name = match meta.namespace.as_deref() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        ConvertError { kind, name, field: self.field, problem: self.problem }
    }
}

type ApiList<'a> = Option<&'a std::collections::BTreeMap<String, ApiQuantity>>;

fn resource_list(list: ApiList<'_>, path: &str) -> Result<ResourceList, FieldError> {
    list.into_iter()
        .flatten()
        .map(|(name, text)| Ok((Arc::from(name.as_str()), quantity(text, || format!("{path}[{name}]"))?)))
        .collect()
}

fn quantity(text: &ApiQuantity, path: impl FnOnce() -> String) -> Result<Quantity, FieldError> {
    Quantity::parse(&text.0).map_err(|problem| FieldError { field: path(), problem })
}

fn labels(map: Option<&std::collections::BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn text(value: Option<&String>) -> Arc<str> {
    value.map(|value| Arc::from(value.as_str())).unwrap_or_default()
}

/// `None` also for the empty text, which the API treats as absent.
fn non_empty(value: Option<&String>) -> Option<Arc<str>> {
    value.filter(|value| !value.is_empty()).map(|value| Arc::from(value.as_str()))
}

fn texts(values: Option<&Vec<String>>) -> Box<[Arc<str>]> {
    values.into_iter().flatten().map(|value| Arc::from(value.as_str())).collect()
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| Timestamp(time.0.as_microsecond()))
}
