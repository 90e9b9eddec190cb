//! Kubernetes API objects into the model: everything is parsed here, once, and nothing else knows the API types.
//!
//! Two ways in, one set of rules: `read` takes JSON as the API server sends it (the live scheduler), and
//! `model::Pod::try_from(&corev1::Pod)` and its like take typed objects (simulations, golden tests). [`ListPage`],
//! [`WatchEvent`] and [`Lines`] take the answers of the API server apart; [`binding`] and [`EventBody`] write what it is asked for.
//!
//! ```
//! use scheduler_core::convert::read;
//! use scheduler_core::model::{Object, ObjectKind};
//!
//! let json = br#"{"metadata": {"name": "n1", "managedFields": []}, "status": {"allocatable": {"cpu": "4"}}}"#;
//! let Object::Node(node) = read(ObjectKind::Node, json).unwrap().object.unwrap() else { unreachable!() };
//! assert_eq!((&*node.name, node.allocatable.milli_cpu), ("n1", 4000));
//! ```

mod affinity;
mod answer;
mod node;
mod pod;
mod pod_resources;
mod read;
mod replica;
mod selector;
mod storage;
#[cfg(feature = "k8s-openapi")]
mod typed;
mod volume;
mod wire;
mod workload;
mod write;

use std::sync::Arc;

pub use answer::{EventType, Lines, ListPage, WatchEvent};
pub use read::{Identity, ReadObject, read};
pub use replica::PodReader;
pub use write::{EventBody, EventSeries, binding};

use crate::model::{Labels, Quantity, QuantityError, ResourceList, Timestamp, shared_text};
use wire::{Map, ObjectMeta, Text, Time};

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
    fn on(self, kind: &'static str, meta: &ObjectMeta<'_>) -> ConvertError {
        let name = meta.name.as_deref().unwrap_or_default();
        let name = match meta.namespace.as_deref() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        ConvertError { kind, name, field: self.field, problem: self.problem }
    }
}

fn resource_list(list: Option<&Map<'_>>, path: &str) -> Result<ResourceList, FieldError> {
    list.into_iter()
        .flat_map(Map::iter)
        .map(|(name, text)| Ok((shared(name), quantity(text, || format!("{path}[{}]", &**name))?)))
        .collect()
}

fn quantity(text: &str, path: impl FnOnce() -> String) -> Result<Quantity, FieldError> {
    Quantity::parse(text).map_err(|problem| FieldError { field: path(), problem })
}

fn labels(map: Option<&Map<'_>>) -> Labels {
    map.into_iter().flat_map(Map::iter).map(|(key, value)| (shared(key), shared(value))).collect()
}

/// A text that other objects will have, too.
fn shared(value: &Text<'_>) -> Arc<str> {
    shared_text(value)
}

fn text(value: Option<&Text<'_>>) -> Arc<str> {
    value.map(Arc::from).unwrap_or_default()
}

/// `None` also for the empty text, which the API treats as absent.
fn non_empty(value: Option<&Text<'_>>) -> Option<Arc<str>> {
    value.filter(|value| !value.is_empty()).map(Arc::from)
}

fn texts(values: Option<&Vec<Text<'_>>>) -> Box<[Arc<str>]> {
    values.into_iter().flatten().map(Arc::from).collect()
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|Time(time)| *time)
}
