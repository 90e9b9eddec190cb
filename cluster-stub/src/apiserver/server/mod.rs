//! The HTTP face of the API server: the filter chain around every request, the TLS listener, in-process clients.
//! Knows no kinds and no storage.

mod api_server;
mod body;
mod client;
mod handler;
mod kubeconfig;
mod listener;
mod request_body;
mod response;

pub use api_server::{ApiServer, ApiServerConfig};
pub use body::{Body, BoxError};
pub use handler::{AuthorizedRequest, Handler};
pub use kubeconfig::kubeconfig;
pub use listener::{BindError, Listener};
pub use response::{json, status, text};
