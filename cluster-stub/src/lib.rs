//! An offline Kubernetes cluster in one process: API server, store, controllers and kubelet.
//! Knows nothing of scheduling.

pub mod apiserver;
pub mod cluster;
pub mod controllers;
pub mod kubelet;
pub mod store;
pub mod story;
