//! Fills Secrets of the type `kubernetes.io/service-account-token` with a token that does not expire, and removes those whose service
//! account is gone. Upstream's controller manager does it; here it is where the key is.
//!
//! Upstream: v1.36.2 `pkg/controller/serviceaccount/tokens_controller.go`, `pkg/serviceaccount/legacy.go`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::authn::{LegacyClaims, ServiceAccountTokens};
use super::cache::ChangeKind;
use super::registry::Registry;
use super::resources::{GroupResource, Objects as _};
use super::status::ApiError;
use super::validation::json::JsonExt;

const SECRETS: GroupResource = GroupResource::of("", "secrets");
const ACCOUNTS: GroupResource = GroupResource::of("", "serviceaccounts");
const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// Issues tokens into Secrets.
pub struct LegacyTokens {
    /// Where Secrets and service accounts are.
    pub registry: Registry,
    /// Signs.
    pub tokens: ServiceAccountTokens,
    /// What clients trust, as PEM.
    pub ca_pem: String,
}

impl LegacyTokens {
    /// Works until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (Some(secrets), Some(accounts)) = (self.registry.cache(&SECRETS), self.registry.cache(&ACCOUNTS)) else {
            return;
        };
        loop {
            let (present, mut changed) = secrets.snapshot_and_cursor("", 0, |_| true);
            let (_, mut left) = accounts.snapshot_and_cursor("", 0, |_| false);
            for secret in &present.objects {
                self.tell(self.look_at(&secret.value()).await);
            }
            // A follower that fell behind looks at everything anew.
            while let (Ok((new, _)), Ok((accounts, _))) = (changed.take(), left.take()) {
                for change in new.iter().filter(|change| change.kind != ChangeKind::Deleted) {
                    self.tell(self.look_at(&change.object.value()).await);
                }
                for account in accounts.iter().filter(|change| change.kind == ChangeKind::Deleted) {
                    for secret in self.registry.list(&SECRETS, Some(&account.object.namespace)) {
                        if secret.at("metadata").at("annotations").text(NAME) == &*account.object.name {
                            self.tell(self.look_at(&secret).await);
                        }
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    more = changed.wait() => if more.is_err() { return },
                    more = left.wait() => if more.is_err() { return },
                }
            }
        }
    }

    fn tell(&self, outcome: Result<(), ApiError>) {
        if let Err(error) = outcome {
            tracing::debug!(%error, "a Secret for a service account was not served");
        }
    }

    async fn look_at(&self, secret: &Value) -> Result<(), ApiError> {
        let metadata = secret.at("metadata");
        let account = metadata.at("annotations").text(NAME);
        if secret.text("type") != TYPE || account.is_empty() || metadata.has("deletionTimestamp") {
            return Ok(());
        }
        let (namespace, name) = (metadata.text("namespace"), metadata.text("name"));
        let found = self.registry.read(&ACCOUNTS, namespace, account).await?;
        let uid = found.as_ref().map(|found| found.at("metadata").text("uid").to_owned());
        let wanted = metadata.at("annotations").text(UID);
        let Some(uid) = uid.filter(|uid| wanted.is_empty() || wanted == uid) else {
            let preconditions = json!({"preconditions": {"uid": metadata.at("uid")}});
            return self.registry.delete(&SECRETS, namespace, name, preconditions).await;
        };
        let data = secret.at("data");
        let whole = ["ca.crt", "namespace", "token"].iter().all(|key| data.has(key)) && wanted == uid;
        if whole {
            return Ok(());
        }
        let claims = LegacyClaims::new(namespace, name, account, &uid);
        let token = self.tokens.sign(&claims).await.map_err(ApiError::internal)?;
        let contents = [("ca.crt", self.ca_pem.clone()), ("namespace", namespace.to_owned()), ("token", token)];
        let change = move |object: &mut Value| {
            object.object_mut("metadata").object_mut("annotations").put(UID, uid.as_str().into());
            let data = object.object_mut("data");
            for (key, text) in &contents {
                data.default_to(key, STANDARD.encode(text));
            }
            Ok(())
        };
        self.registry.update(&SECRETS, namespace, name, Box::new(change)).await.map(drop)
    }
}
