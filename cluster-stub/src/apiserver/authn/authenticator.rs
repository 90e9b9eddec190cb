//! All ways to prove an identity, in order. What each means stands in its own file.

use std::sync::Arc;

use cluster_stub_wire::listener::PeerCertificates;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

use super::service_account::{ISSUER, validate};
use super::user::with_authenticated_group;
use super::{
    CertificateVerifier, RequestHeaderConfig, ServiceAccountGetter, ServiceAccountTokens, TokenFile, UserInfo,
};
use crate::apiserver::status::ApiError;

/// The user of a token and the audiences it is meant for.
#[derive(Clone, Debug)]
pub struct TokenIdentity {
    /// The user.
    pub user: UserInfo,
    /// For whom the token is good.
    pub audiences: Vec<String>,
}

/// Authenticates requests. Upstream v1.36.2: pkg/kubeapiserver/authenticator/config.go New.
#[derive(Debug)]
pub struct Authenticator {
    /// Verifies client certificates of the cluster.
    pub client_certificates: CertificateVerifier,
    /// Verifies the front proxy.
    pub front_proxy: CertificateVerifier,
    /// How the front proxy names users.
    pub request_header: RequestHeaderConfig,
    /// Static tokens.
    pub token_file: TokenFile,
    /// ServiceAccount tokens.
    pub service_accounts: ServiceAccountTokens,
    /// Where service accounts and the objects that tokens are bound to are looked up.
    pub getter: Arc<dyn ServiceAccountGetter>,
}

impl Authenticator {
    /// The user of a request. Without credentials it is `system:anonymous`; with bad ones the answer is 401.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificates>,
        now: Timestamp,
    ) -> Result<Arc<UserInfo>, ApiError> {
        let mut refused = Vec::new();
        if let Some(PeerCertificates(chain)) = peer {
            if let Some(user) = self.request_header.user(&self.front_proxy, chain, headers, now) {
                return Ok(Arc::new(with_authenticated_group(user)));
            }
            match self.client_certificates.user(chain, now) {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(error) => refused.push(error),
            }
        }
        if let Some(token) = bearer_token(headers) {
            match self.authenticate_token(token, now).await {
                Ok(Some(identity)) if identity.audiences.iter().any(|a| a == ISSUER) => {
                    return Ok(Arc::new(identity.user));
                }
                Ok(Some(_)) => refused.push("the token is for another audience".into()),
                Ok(None) => refused.push("invalid bearer token".into()),
                Err(error) => refused.push(error),
            }
        }
        if refused.is_empty() {
            return Ok(Arc::new(UserInfo::anonymous()));
        }
        tracing::debug!(errors = ?refused, "unable to authenticate the request");
        Err(ApiError::unauthorized())
    }

    /// Whom `token` stands for: `None` if nobody knows it, an error if it is known and not good.
    pub async fn authenticate_token(&self, token: &str, now: Timestamp) -> Result<Option<TokenIdentity>, String> {
        if let Some(user) = self.token_file.user(token) {
            let user = with_authenticated_group(user.clone());
            return Ok(Some(TokenIdentity { user, audiences: vec![ISSUER.to_owned()] }));
        }
        let Some(claims) = self.service_accounts.read(token).await else { return Ok(None) };
        let user = validate(&claims, self.getter.as_ref(), now)?;
        Ok(Some(TokenIdentity { user, audiences: claims.aud }))
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::HeaderValue;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use tokio::sync::watch;

    use super::*;
    use crate::apiserver::tls::CertificateAuthority;

    #[derive(Debug)]
    struct Nothing;

    impl ServiceAccountGetter for Nothing {
        fn find(&self, _: &'static str, _: &str, _: &str) -> Option<(String, Option<Timestamp>)> {
            None
        }
    }

    struct World {
        cluster: CertificateAuthority,
        proxy: CertificateAuthority,
        authenticator: Authenticator,
    }

    fn world() -> World {
        let now = Timestamp::now();
        let cluster = CertificateAuthority::generate("kubernetes", now).unwrap();
        let proxy = CertificateAuthority::generate("front-proxy-ca", now).unwrap();
        let authenticator = Authenticator {
            client_certificates: CertificateVerifier::new(cluster.certificate()).unwrap(),
            front_proxy: CertificateVerifier::new(proxy.certificate()).unwrap(),
            request_header: RequestHeaderConfig::default(),
            token_file: TokenFile::parse("tok,alice,1,\"dev,ops\"\n", Path::new("t")).unwrap(),
            service_accounts: ServiceAccountTokens::new(watch::channel(None).1),
            getter: Arc::new(Nothing),
        };
        World { cluster, proxy, authenticator }
    }

    fn certificate(authority: &CertificateAuthority, name: &str, group: &str) -> PeerCertificates {
        let issued = authority.issue_client(name, group, Timestamp::now()).unwrap();
        PeerCertificates([CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()].into())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse().unwrap(), HeaderValue::from_str(v).unwrap())).collect()
    }

    #[tokio::test]
    async fn each_credential_names_its_user_and_bad_ones_are_401() {
        let World { cluster, proxy, authenticator } = world();
        let stranger = CertificateAuthority::generate("kubernetes", Timestamp::now()).unwrap();
        let remote = [("x-remote-user", "bob"), ("x-remote-group", "g")];
        let cases = [
            ("nothing", &[][..], None, Some("system:anonymous[system:unauthenticated]")),
            (
                "basic is no bearer",
                &[("authorization", "Basic x")],
                None,
                Some("system:anonymous[system:unauthenticated]"),
            ),
            ("token", &[("authorization", "Bearer tok")], None, Some("alice[dev,ops,system:authenticated]")),
            (
                "scheme in any case",
                &[("authorization", "bearer tok")],
                None,
                Some("alice[dev,ops,system:authenticated]"),
            ),
            ("bad token", &[("authorization", "Bearer nope")], None, None),
            ("certificate", &[], Some(certificate(&cluster, "jane", "dev")), Some("jane[dev,system:authenticated]")),
            ("certificate of a stranger", &[], Some(certificate(&stranger, "jane", "dev")), None),
            (
                "bad certificate, good token",
                &[("authorization", "Bearer tok")],
                Some(certificate(&stranger, "jane", "dev")),
                Some("alice[dev,ops,system:authenticated]"),
            ),
            (
                "certificate before token",
                &[("authorization", "Bearer nope")],
                Some(certificate(&cluster, "jane", "dev")),
                Some("jane[dev,system:authenticated]"),
            ),
            (
                "front proxy",
                &remote,
                Some(certificate(&proxy, "front-proxy-client", "")),
                Some("bob[g,system:authenticated]"),
            ),
            ("another client of that authority", &remote, Some(certificate(&proxy, "someone", "")), None),
            ("headers alone", &remote, None, Some("system:anonymous[system:unauthenticated]")),
            (
                "headers with a user's certificate",
                &remote,
                Some(certificate(&cluster, "jane", "dev")),
                Some("jane[dev,system:authenticated]"),
            ),
        ];
        for (name, pairs, peer, want) in cases {
            let got = authenticator.authenticate(&headers(pairs), peer.as_ref(), Timestamp::now()).await;
            let got = got.ok().map(|user| format!("{}[{}]", user.name, user.groups.join(",")));
            assert_eq!(got.as_deref(), want, "{name}");
        }
    }
}
