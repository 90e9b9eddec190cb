//! Clients inside this process: they speak HTTP to the same service, without a socket and with a given identity.

use std::sync::Arc;

use http::Request;
use tower::ServiceExt as _;

use super::ApiServer;
use crate::apiserver::authn::UserInfo;

/// The identity of an in-process client. Only this process can put it on a request: no header becomes an extension.
#[derive(Clone, Debug)]
pub(super) struct LocalUser(pub(super) Arc<UserInfo>);

impl ApiServer {
    /// A client that acts as `user`; what the user may do is authorized as for anybody.
    pub fn client(&self, user: UserInfo) -> kube::Client {
        let user = LocalUser(Arc::new(user));
        let service = self.clone().map_request(move |mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(user.clone());
            request
        });
        kube::Client::new(service, "default")
    }
}
