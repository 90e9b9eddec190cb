//! The API server: everything between a TCP connection (or an in-process client) and the store.
//! Controllers, kubelets and the scheduler reach it through HTTP requests only, never through these modules.

pub mod admission;
pub mod apply;
pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod cache;
pub mod cel;

pub mod codec;
pub mod connections;
pub mod custom;
pub mod discovery;
pub mod health;
pub mod legacy_tokens;
pub mod lookup;
pub mod metrics;
pub mod openapi;
pub mod patch;
pub mod registry;
pub mod resources;
pub mod router;
pub mod selector;
pub mod server;
pub mod status;
pub mod table;
pub mod tls;
pub mod validation;

pub use cluster_stub_wire::{request, schema};
