//! The HTTP face of the API server: the filter chain around every request, the TLS listener, in-process clients.
//! Knows no kinds and no storage.

mod api_server;
mod client;
mod handler;
mod kubeconfig;
mod request_body;
mod response;

pub use api_server::{ApiServer, ApiServerConfig};
pub use cluster_stub_wire::body::{Body, BoxError};
pub use cluster_stub_wire::listener::{BindError, Listener};
pub use handler::{AuthorizedRequest, Handler};
pub use kubeconfig::kubeconfig;
pub use response::{json, status, text};
