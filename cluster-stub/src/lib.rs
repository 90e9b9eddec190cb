//! An offline Kubernetes cluster in one process: API server, store, controllers and kubelet.
//! Knows nothing of scheduling.

pub use cluster_stub_base::story;
pub use cluster_stub_controllers as controllers;
pub use cluster_stub_kubelet as kubelet;

pub mod apiserver;
pub mod cluster;
pub mod store;
