//! ServiceAccount tokens: what they claim, how they are signed and checked. Storage is asked through a trait.

use std::fmt::Debug;

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Header, Validation};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::UserInfo;
use super::certificate::CREDENTIAL_ID;
use crate::apiserver::tls::SigningKey;

/// Who issues the tokens, and the audience of a token that names none.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Clocks may differ by this much. Upstream: go-jose's DefaultLeeway.
const LEEWAY_SECONDS: i64 = 60;

/// The identity of an object that a token is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BoundObject {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The claim `kubernetes.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesClaim {
    /// Namespace of the service account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The service account.
    pub serviceaccount: BoundObject,
    /// The pod that the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<BoundObject>,
    /// The secret that the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<BoundObject>,
    /// The node that the token is bound to, or the node of its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<BoundObject>,
    /// From when on a use of the token is worth a warning, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// All claims of a token. Upstream v1.36.2: pkg/serviceaccount/claims.go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenClaims {
    /// Audiences.
    pub aud: Vec<String>,
    /// End, seconds since the epoch.
    pub exp: i64,
    /// Time of issue.
    pub iat: i64,
    /// Issuer.
    pub iss: String,
    /// Unique id of the token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// What Kubernetes adds.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaim,
    /// Start.
    pub nbf: i64,
    /// The user name.
    pub sub: String,
}

/// Who issues tokens that live in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// All claims of a token that lives in a Secret. Upstream v1.36.2: pkg/serviceaccount/legacy.go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegacyClaims {
    iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    uid: String,
    sub: String,
}

impl LegacyClaims {
    /// The claims of the token in a Secret for a service account.
    pub fn new(namespace: &str, secret: &str, account: &str, uid: &str) -> Self {
        LegacyClaims {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            account: account.to_owned(),
            uid: uid.to_owned(),
            sub: format!("system:serviceaccount:{namespace}:{account}"),
        }
    }

    /// The same as the claims of a token without an end, bound to whatever Secret has the name.
    fn into_claims(self) -> TokenClaims {
        TokenClaims {
            aud: vec![ISSUER.to_owned()],
            exp: i64::MAX,
            iss: self.iss,
            sub: self.sub,
            kubernetes: KubernetesClaim {
                namespace: self.namespace,
                serviceaccount: BoundObject { name: self.account, uid: self.uid },
                secret: Some(BoundObject { name: self.secret, uid: String::new() }),
                ..KubernetesClaim::default()
            },
            ..TokenClaims::default()
        }
    }
}

/// What the checks ask about stored objects.
pub trait ServiceAccountGetter: Debug + Send + Sync {
    /// Uid and deletion time of an object of the core group, or `None` if it is not there.
    fn find(&self, resource: &'static str, namespace: &str, name: &str) -> Option<(String, Option<Timestamp>)>;
}

/// Issues and checks tokens with the cluster's key.
#[derive(Clone, Debug)]
pub struct ServiceAccountTokens {
    key: watch::Receiver<Option<SigningKey>>,
}

impl ServiceAccountTokens {
    /// Tokens signed with `key`, which may still be in the making.
    pub fn new(key: watch::Receiver<Option<SigningKey>>) -> Self {
        ServiceAccountTokens { key }
    }

    /// The key, waiting until it is made; the error says that it could not be made.
    pub async fn key(&self) -> Result<SigningKey, String> {
        let gone = || "the key for ServiceAccount tokens could not be made".to_owned();
        let mut key = self.key.clone();
        let made = key.wait_for(Option::is_some).await.map_err(|_| gone())?;
        made.clone().ok_or_else(gone)
    }

    /// Signs `claims`.
    pub async fn sign(&self, claims: &impl Serialize) -> Result<String, String> {
        let key = self.key().await?;
        // Without `typ`, as upstream's signer leaves it out.
        let header = Header { typ: None, kid: Some(key.key_id().to_owned()), ..Header::new(Algorithm::RS256) };
        jsonwebtoken::encode(&header, claims, key.encoding()).map_err(|e| e.to_string())
    }

    /// The claims of a token that this cluster signed, whatever their times; `None` for any other token.
    pub async fn read(&self, token: &str) -> Option<TokenClaims> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        if header.alg != Algorithm::RS256 {
            return None;
        }
        let key = self.key().await.ok()?;
        let mut validation = Validation::new(Algorithm::RS256);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        let claims = jsonwebtoken::decode::<serde_json::Value>(token, key.decoding(), &validation).ok()?.claims;
        match claims["iss"].as_str()? {
            ISSUER => serde_json::from_value(claims).ok(),
            LEGACY_ISSUER => serde_json::from_value::<LegacyClaims>(claims).ok().map(LegacyClaims::into_claims),
            _ => None,
        }
    }
}

/// The user of a token whose signature is good, or why the token is not good any more.
/// Upstream v1.36.2: pkg/serviceaccount/claims.go Validate.
pub(super) fn validate(
    claims: &TokenClaims,
    getter: &dyn ServiceAccountGetter,
    now: Timestamp,
) -> Result<UserInfo, String> {
    let seconds = now.as_second();
    if seconds - LEEWAY_SECONDS > claims.exp {
        return Err("service account token has expired".into());
    }
    if seconds + LEEWAY_SECONDS < claims.nbf {
        return Err("service account token is not valid yet".into());
    }
    if seconds + LEEWAY_SECONDS < claims.iat {
        return Err("service account token is issued in the future".into());
    }
    let KubernetesClaim { namespace, serviceaccount: account, pod, secret, node, .. } = &claims.kubernetes;
    let gone = |deleted: Option<Timestamp>| deleted.is_some_and(|at| at.as_second() < seconds - LEEWAY_SECONDS);
    let (uid, deleted) = getter
        .find("serviceaccounts", namespace, &account.name)
        .ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
    if uid != account.uid {
        return Err(format!("service account UID ({uid}) does not match claim ({})", account.uid));
    }
    if gone(deleted) {
        return Err(format!("service account {namespace}/{} has been deleted", account.name));
    }
    let check = |resource, kind: &str, word: &str, bound: &BoundObject| {
        let namespace = if resource == "nodes" { "" } else { namespace.as_str() };
        let invalid = || "service account token has been invalidated".to_owned();
        let (uid, deleted) = getter.find(resource, namespace, &bound.name).ok_or_else(invalid)?;
        // A token that lives in a Secret names it without its uid.
        if uid != bound.uid && !bound.uid.is_empty() {
            let claimed = &bound.uid;
            return Err(format!("{kind} UID ({uid}) does not match service account {word} ref claim ({claimed})"));
        }
        if gone(deleted) { Err(invalid()) } else { Ok(()) }
    };
    if let Some(bound) = secret {
        check("secrets", "secret", "secret", bound)?;
    }
    if let Some(bound) = pod {
        check("pods", "pod", "pod", bound)?;
    }
    if let (Some(bound), None) = (node, pod) {
        check("nodes", "node", "node", bound)?;
    }
    Ok(user(claims))
}

/// Upstream v1.36.2: apiserver/pkg/authentication/serviceaccount/util.go UserInfo.
fn user(claims: &TokenClaims) -> UserInfo {
    let claim = &claims.kubernetes;
    let mut user = UserInfo::service_account(&claim.namespace, &claim.serviceaccount.name);
    user.uid.clone_from(&claim.serviceaccount.uid);
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    };
    if !claims.jti.is_empty() {
        add(CREDENTIAL_ID, &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = &claim.pod {
        add("authentication.kubernetes.io/pod-name", &pod.name);
        add("authentication.kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = &claim.node {
        add("authentication.kubernetes.io/node-name", &node.name);
        add("authentication.kubernetes.io/node-uid", &node.uid);
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Objects(Vec<(&'static str, &'static str, &'static str, Option<Timestamp>)>);

    impl ServiceAccountGetter for Objects {
        fn find(&self, resource: &'static str, _: &str, name: &str) -> Option<(String, Option<Timestamp>)> {
            let found = self.0.iter().find(|(r, n, ..)| (*r, *n) == (resource, name))?;
            Some((found.2.to_owned(), found.3))
        }
    }

    fn bound(name: &str, uid: &str) -> BoundObject {
        BoundObject { name: name.into(), uid: uid.into() }
    }

    fn claims() -> TokenClaims {
        TokenClaims {
            exp: 5_000,
            iat: 1_000,
            nbf: 1_000,
            jti: "j".into(),
            kubernetes: KubernetesClaim {
                namespace: "ns".into(),
                serviceaccount: bound("robot", "u1"),
                ..KubernetesClaim::default()
            },
            ..TokenClaims::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_good_token_names_the_service_account() {
        let objects = Objects(vec![("serviceaccounts", "robot", "u1", None)]);
        let user = validate(&claims(), &objects, at(2_000)).unwrap();
        assert_eq!(user.name, "system:serviceaccount:ns:robot");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        assert_eq!(user.uid, "u1");
        assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=j"]);
    }

    #[test]
    fn a_token_in_a_secret_lasts_as_long_as_the_secret() {
        let claims = LegacyClaims::new("ns", "s", "robot", "u1").into_claims();
        let account = ("serviceaccounts", "robot", "u1", None);
        let whole = Objects(vec![account, ("secrets", "s", "any", None)]);
        let user = validate(&claims, &whole, at(1)).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:robot", "u1"));
        assert!(validate(&claims, &Objects(vec![account]), at(1)).is_err());
        assert!(validate(&claims, &Objects(vec![("secrets", "s", "any", None)]), at(1)).is_err());
    }

    #[test]
    fn tokens_end_with_their_time_their_account_or_their_bound_object() {
        let pod = |uid| TokenClaims {
            kubernetes: KubernetesClaim { pod: Some(bound("p", uid)), ..claims().kubernetes },
            ..claims()
        };
        let account = || ("serviceaccounts", "robot", "u1", None);
        let cases = [
            ("expired", claims(), vec![account()], 5_061, "service account token has expired"),
            ("within the leeway", claims(), vec![account()], 5_059, ""),
            ("too early", claims(), vec![account()], 900, "service account token is not valid yet"),
            ("no account", claims(), vec![], 2_000, "serviceaccounts \"robot\" not found"),
            (
                "another account of that name",
                claims(),
                vec![("serviceaccounts", "robot", "u2", None)],
                2_000,
                "service account UID (u2) does not match claim (u1)",
            ),
            (
                "deleted account",
                claims(),
                vec![("serviceaccounts", "robot", "u1", Some(at(1_500)))],
                2_000,
                "service account ns/robot has been deleted",
            ),
            ("bound pod is there", pod("u3"), vec![account(), ("pods", "p", "u3", None)], 2_000, ""),
            ("bound pod is gone", pod("u3"), vec![account()], 2_000, "service account token has been invalidated"),
            (
                "another pod of that name",
                pod("u3"),
                vec![account(), ("pods", "p", "u4", None)],
                2_000,
                "pod UID (u4) does not match service account pod ref claim (u3)",
            ),
            ("deleted just now", pod("u3"), vec![account(), ("pods", "p", "u3", Some(at(1_990)))], 2_000, ""),
            (
                "deleted long ago",
                pod("u3"),
                vec![account(), ("pods", "p", "u3", Some(at(1_900)))],
                2_000,
                "service account token has been invalidated",
            ),
        ];
        for (name, claims, objects, now, want) in cases {
            let got = validate(&claims, &Objects(objects), at(now)).err().unwrap_or_default();
            assert_eq!(got, want, "{name}");
        }
    }

    #[tokio::test]
    async fn only_tokens_of_this_cluster_are_read() {
        let key = SigningKey::generate().unwrap();
        let tokens = ServiceAccountTokens::new(watch::channel(Some(key)).1);
        let ours = TokenClaims { iss: ISSUER.into(), ..claims() };
        let token = tokens.sign(&ours).await.unwrap();
        assert_eq!(tokens.read(&token).await, Some(ours));
        let foreign = tokens.sign(&TokenClaims { iss: "https://example.com".into(), ..claims() }).await.unwrap();
        assert_eq!(tokens.read(&foreign).await, None);
        let other = ServiceAccountTokens::new(watch::channel(Some(SigningKey::generate().unwrap())).1);
        assert_eq!(other.read(&token).await, None);
        assert_eq!(tokens.read("not.a.token").await, None);
    }
}
