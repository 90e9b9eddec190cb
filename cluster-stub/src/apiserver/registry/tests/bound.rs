//! Bindings whose bodies are not decoded, held against those of a server where somebody of admission may have a say.

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof};
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::alike::{cluster, common};
use super::*;

const PODS: &str = "/api/v1/namespaces/ns/pods";
/// What stands in bodies for the pod's UID.
const UID: &str = "UID";

/// A server whose nodes are `plain`, and `zoned` in a zone.
async fn with_nodes() -> Client {
    let client = cluster(false).await;
    for (node, labels) in [("plain", json!({"a": "b"})), ("zoned", json!({"topology.kubernetes.io/zone": "z"}))] {
        client.make("/api/v1/nodes", json!({"metadata": {"name": node, "labels": labels}})).await;
    }
    client
}

/// A webhook for requests about `resources`, which nobody answers.
fn webhook(kind: &str, resources: &str) -> (String, Value) {
    let uri = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
    let hook = json!({"name": "w.x.io", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resources]}]});
    (uri, json!({"metadata": {"name": "w"}, "webhooks": [hook]}))
}

impl Client {
    fn n_bound(&self) -> u64 {
        self.0.0.passed.n_used()
    }

    /// Binds a new pod `p`; the answer, without what is the pod's own, and what became of the pod.
    async fn bind(&self, pod: &Value, body: &str, query: &str) -> (u16, Value, Value) {
        let made = self.make(PODS, pod.clone()).await;
        let uid = made["metadata"]["uid"].as_str().expect("a pod has one");
        let uri = format!("{PODS}/p/binding{query}");
        let (code, answer) = self.call("POST", &uri, "application/json", &body.replace(UID, uid)).await;
        let (_, pod) = self.json("GET", &format!("{PODS}/p"), Value::Null).await;
        self.json("DELETE", &format!("{PODS}/p"), json!({"gracePeriodSeconds": 0})).await;
        let version = made["metadata"]["resourceVersion"].as_str().expect("a pod has one");
        let answer = answer.to_string().replace(uid, UID).replace(&format!("meta: {version}"), "meta: 1");
        (code, answer.parse().expect("still JSON"), common(&pod))
    }
}

fn pod(more: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a"}]}});
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn any_pod() -> impl Strategy<Value = Value> {
    let more = prop_oneof![
        6 => Just(json!({})),
        1 => Just(json!({"priority": 0, "tolerations": [{"operator": "Exists"}]})),
        1 => Just(json!({"schedulingGates": [{"name": "x.io/g"}]})),
        1 => Just(json!({"nodeName": "plain"})),
    ];
    more.prop_map(|more| pod(&more))
}

/// The members of an object in any order, mostly all of them.
fn object(members: &'static [&'static str]) -> impl Strategy<Value = String> {
    let all: Vec<usize> = (0..members.len()).collect();
    let some = proptest::sample::subsequence(all.clone(), 0..=members.len());
    prop_oneof![6 => Just(all).prop_shuffle(), 1 => some].prop_map(|which| {
        let members: Vec<&str> = which.into_iter().map(|at| members[at]).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn any_metadata() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => object(&[r#""name":"p""#, r#""namespace":"ns""#, r#""uid":"UID""#]),
        2 => object(&[r#""name":"p""#, r#""uid":"UID""#, r#""creationTimestamp":null"#]),
        2 => proptest::sample::select(&[
            r#"{"name":"p","uid":"other"}"#,
            r#"{"name":"q"}"#,
            r#"{"name":"p","namespace":"other"}"#,
            r#"{"name":"p","labels":{"l":"v"},"annotations":{"a":"v"}}"#,
            r#"{"name":"p","resourceVersion":"1"}"#,
            r#"{"name":"p","name":"p"}"#,
            r#"{"name":"\u0070"}"#,
            r#"{"name": "p"}"#,
            r#"{"name":"p","uid":null}"#,
            r#"{"name":"p","bogus":1}"#,
        ][..])
        .prop_map(str::to_owned),
    ]
}

fn any_target() -> impl Strategy<Value = String> {
    let usual = |node: &'static str| {
        prop_oneof![
            Just(format!(r#"{{"kind":"Node","name":"{node}"}}"#)),
            Just(format!(r#"{{"name":"{node}","kind":"Node"}}"#)),
            Just(format!(r#"{{"name":"{node}"}}"#)),
        ]
    };
    prop_oneof![
        5 => usual("plain"),
        1 => usual("zoned"),
        1 => usual("nowhere"),
        1 => proptest::sample::select(&[
            r#"{"kind":"Pod","name":"plain"}"#,
            r#"{"kind":"","name":"plain"}"#,
            r#"{"kind":"Node","name":""}"#,
            r#"{"kind":"Node"}"#,
            r#"{"kind":"Node","name":"plain","apiVersion":"v1"}"#,
            r#"{"kind":"Node","name":"plain","bogus":{}}"#,
            "null",
            "[]",
        ][..])
        .prop_map(str::to_owned),
    ]
}

fn any_body() -> impl Strategy<Value = String> {
    let head = prop_oneof![
        8 => Just(r#""kind":"Binding","apiVersion":"v1""#),
        1 => proptest::sample::select(&[
            r#""apiVersion":"v1""#,
            r#""kind":"Pod","apiVersion":"v1""#,
            r#""kind":"Binding","apiVersion":"v2""#,
            r#""kind":"Binding","kind":"Binding","apiVersion":"v1""#,
        ][..]),
    ];
    let end = prop_oneof![6 => Just(""), 3 => Just("\n"), 1 => Just(" \r\n\t"), 1 => Just("\u{c}"), 1 => Just("x")];
    let change = prop_oneof![5 => Just(None), 1 => any::<(Index, char, bool)>().prop_map(Some)];
    (head, any_metadata(), any_target(), any::<bool>(), end, change).prop_map(
        |(head, metadata, target, swapped, end, change)| {
            let parts = [head.to_owned(), format!(r#""metadata":{metadata}"#), format!(r#""target":{target}"#)];
            let order = if swapped { [1, 2, 0] } else { [0, 1, 2] };
            let body = format!("{{{}}}{end}", order.map(|at| parts[at].as_str()).join(","));
            let Some((at, by, inserts)) = change else { return body };
            // What is said of a broken body may have any of its characters, and two pods have not the same UID.
            let mut changed: Vec<char> = body.replace(UID, "other").chars().collect();
            let at = at.index(changed.len());
            if inserts {
                changed.insert(at, by);
            } else {
                let _ = changed.remove(at);
            }
            changed.into_iter().collect()
        },
    )
}

#[test]
fn a_usual_body_binds_as_a_decoded_one_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (usual, whole) = runtime.block_on(async {
        let (usual, whole) = (with_nodes().await, with_nodes().await);
        let (uri, configuration) = webhook("ValidatingWebhookConfiguration", "configmaps");
        whole.make(&uri, configuration).await;
        (usual, whole)
    });
    let query = prop_oneof![
        6 => Just(""), 1 => Just("?fieldValidation=Strict"), 1 => Just("?dryRun=All"), 1 => Just("?dryRun=x"), 1 => Just("?pretty=true")
    ];
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&(any_pod(), any_body(), query), |(pod, body, query)| {
            runtime.block_on(async {
                let got = usual.bind(&pod, &body, query).await;
                let want = whole.bind(&pod, &body, query).await;
                prop_assert_eq!(got, want);
                Ok::<(), TestCaseError>(())
            })
        })
        .expect("both ways agree");
    assert!(usual.n_bound() > 20, "the short way is taken where it may be: {}", usual.n_bound());
    assert_eq!(whole.n_bound(), 0);
}

const BODY: &str = r#"{"kind":"Binding","apiVersion":"v1","metadata":{"name":"p","uid":"UID"},"target":{"kind":"Node","name":"plain"}}"#;

#[tokio::test]
async fn the_second_binding_of_a_user_in_a_namespace_is_not_decoded() {
    let client = with_nodes().await;
    for n_bound in [0, 1, 2] {
        let (code, _, bound) = client.bind(&pod(&Value::Null), BODY, "").await;
        assert_eq!((code, &bound["spec"]["nodeName"]), (201, &json!("plain")));
        assert_eq!(client.n_bound(), n_bound);
    }
    client.merge("/api/v1/namespaces/ns", json!({"metadata": {"labels": {"a": "b"}}})).await;
    client.bind(&pod(&Value::Null), BODY, "").await;
    assert_eq!(client.n_bound(), 2, "what admission reads has changed");
    client.bind(&pod(&Value::Null), BODY, "").await;
    assert_eq!(client.n_bound(), 3);
}

#[tokio::test]
async fn the_zone_of_a_node_comes_to_the_pod() {
    let client = with_nodes().await;
    for node in ["plain", "zoned", "plain", "zoned"] {
        let (code, _, bound) = client.bind(&pod(&Value::Null), &BODY.replace("plain", node), "").await;
        let zone = bound.pointer("/metadata/labels/topology.kubernetes.io~1zone");
        assert_eq!((code, zone.is_some()), (201, node == "zoned"), "{bound}");
    }
    client.merge("/api/v1/nodes/plain", json!({"metadata": {"labels": {"topology.kubernetes.io/region": "r"}}})).await;
    let (_, _, bound) = client.bind(&pod(&Value::Null), BODY, "").await;
    assert_eq!(bound.pointer("/metadata/labels/topology.kubernetes.io~1region"), Some(&json!("r")));
}

#[tokio::test]
async fn a_webhook_for_bindings_is_asked_from_its_configuration_on() {
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let client = with_nodes().await;
        for _ in 0..3 {
            assert_eq!(client.bind(&pod(&Value::Null), BODY, "").await.0, 201);
        }
        let (uri, configuration) = webhook(kind, "pods/binding");
        client.make(&uri, configuration).await;
        let (code, answer, _) = client.bind(&pod(&Value::Null), BODY, "").await;
        assert_eq!((code, client.n_bound()), (500, 2), "{kind}: {answer}");
        client.json("DELETE", &format!("{uri}/w"), Value::Null).await;
        client.0.0.feed.catch_up().await.expect("the memory store does not fail");
        assert_eq!(client.bind(&pod(&Value::Null), BODY, "").await.0, 201, "{kind}");
    }
}
