//! What all controllers are built on: informers, work queues, expectations, events, owner references. Holds no controller.

pub(crate) mod api;
pub(crate) mod cache;
pub(crate) mod consistency;
pub(crate) mod context;
pub(crate) mod controller_ref;
pub(crate) mod discovery;
pub(crate) mod expectations;
pub(crate) mod hash;
pub(crate) mod history;
pub(crate) mod informer;
pub(crate) mod informers;
pub(crate) mod intstr;
pub(crate) mod key;
pub(crate) mod pod;
pub(crate) mod pod_control;
pub(crate) mod recorder;
pub(crate) mod selector;
pub(crate) mod story_log;
pub(crate) mod worker;
pub(crate) mod workqueue;
