//! What users add to an API server: kinds of their own, policies, webhooks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cluster_stub::apiserver::authn::UserInfo;
use cluster_stub::apiserver::tls::CertificateAuthority;
use cluster_stub::cluster::{Cluster, ClusterOptions};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// Longest wait for something that the server does on its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// Only the API server: nothing else writes.
async fn bare() -> (Cluster, Client) {
    let options = ClusterOptions { controllers: false, kubelet: false, nodes: Vec::new(), ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.expect("a cluster");
    let client = cluster.client(UserInfo::admin("tester"));
    (cluster, client)
}

/// Sends a request; gives the object, or code and message of the refusal.
async fn send(client: &Client, method: Method, path: &str, body: Value) -> Result<Value, (u16, String)> {
    let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type).body(body);
    let request = request.expect("a request");
    client.request::<Value>(request).await.map_err(|error| match error {
        kube::Error::Api(status) => (status.code, status.message),
        other => (0, other.to_string()),
    })
}

/// Tries again until `accept` likes the answer.
async fn until(
    client: &Client,
    method: Method,
    path: &str,
    body: Value,
    accept: impl Fn(&Result<Value, (u16, String)>) -> bool,
) -> Result<Value, (u16, String)> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = send(client, method.clone(), path, body.clone()).await;
        if accept(&answer) || tokio::time::Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "string", "enum": ["small", "large"]},
                        "replicas": {"type": "integer", "default": 1,
                            "x-kubernetes-validations": [{"rule": "self < 10", "message": "too many"}]},
                        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "value": {"type": "string"}}}},
                    }},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                }}},
            }, {
                "name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn define(client: &Client) {
    send(client, Method::POST, DEFINITIONS, definition()).await.expect("a definition");
    until(client, Method::GET, WIDGETS, Value::Null, Result::is_ok).await.expect("its collection");
}

#[tokio::test]
async fn a_definition_makes_a_kind_with_its_own_rules() {
    let (cluster, client) = bare().await;
    define(&client).await;
    let crd = send(&client, Method::GET, &format!("{DEFINITIONS}/widgets.example.com"), Value::Null).await;
    let status = crd.expect("the definition")["status"].clone();
    assert_eq!(status["acceptedNames"]["singular"], "widget");
    assert_eq!(status["storedVersions"], json!(["v1"]));
    let conditions: Vec<&str> =
        status["conditions"].as_array().into_iter().flatten().filter_map(|one| one["type"].as_str()).collect();
    assert_eq!(conditions, ["NamesAccepted", "Established"]);

    let unknown = json!({"size": "small", "bogus": 1});
    let made = send(&client, Method::POST, WIDGETS, widget("a", &unknown)).await.expect("a widget");
    assert_eq!(made["spec"], json!({"size": "small", "replicas": 1}));
    assert_eq!(made["metadata"]["generation"], 1);
    let strict = send(&client, Method::POST, &format!("{WIDGETS}?fieldValidation=Strict"), widget("b", &unknown)).await;
    let want =
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.bogus\"";
    assert_eq!(strict, Err((400, want.to_owned())));
    let cases = [
        (json!({}), "spec.size: Required value"),
        (json!({"size": "huge"}), "spec.size: Unsupported value: \"huge\": supported values: \"small\", \"large\""),
        (json!({"size": "small", "replicas": 12}), "spec.replicas: Invalid value: 12: too many"),
        (
            json!({"size": "small", "items": [{"name": "x"}, {"name": "x"}]}),
            "spec.items[1]: Duplicate value: {\"name\":\"x\"}",
        ),
    ];
    for (spec, want) in cases {
        let (code, message) = send(&client, Method::POST, WIDGETS, widget("c", &spec)).await.expect_err(want);
        assert_eq!(code, 422);
        assert!(message.contains(want), "{message}");
    }

    let one = format!("{WIDGETS}/a");
    let changed = json!({"spec": {"replicas": 3}, "status": {"replicas": 9}});
    let patched = send(&client, Method::PATCH, &one, changed.clone()).await.expect("a patch");
    assert_eq!((&patched["metadata"]["generation"], &patched["status"]), (&json!(2), &Value::Null));
    let patched = send(&client, Method::PATCH, &format!("{one}/status"), changed).await.expect("a patch of the status");
    assert_eq!(patched["status"], json!({"replicas": 9}));
    assert_eq!(patched["metadata"]["generation"], 2);
    let scale = send(&client, Method::GET, &format!("{one}/scale"), Value::Null).await.expect("a scale");
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(3), &json!(9)));
    let scaled = send(&client, Method::PATCH, &format!("{one}/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!(scaled.expect("a patch of the scale")["spec"]["replicas"], 5);

    let found = send(&client, Method::GET, &format!("{WIDGETS}?fieldSelector=spec.size%3Dsmall"), Value::Null).await;
    assert_eq!(found.expect("a list")["items"].as_array().map(Vec::len), Some(1));
    let beta = send(&client, Method::GET, "/apis/example.com/v1beta1/namespaces/default/widgets/a", Value::Null).await;
    assert_eq!(beta.expect("the other version")["apiVersion"], "example.com/v1beta1");
    let listed = send(&client, Method::GET, "/apis/example.com/v1", Value::Null).await.expect("discovery");
    let names: Vec<&str> =
        listed["resources"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let documents = send(&client, Method::GET, "/openapi/v3/apis/example.com/v1", Value::Null).await.expect("OpenAPI");
    let schema = &documents["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["enum"], json!(["small", "large"]));
    cluster.shutdown().await;
}

#[tokio::test]
async fn server_side_apply_merges_lists_by_their_keys() {
    let (cluster, client) = bare().await;
    define(&client).await;
    let apply = async |manager: &str, items: Value| {
        let body = widget("a", &json!({"size": "small", "items": items})).to_string().into_bytes();
        let path = format!("{WIDGETS}/a?fieldManager={manager}");
        let request = Request::patch(path).header("content-type", "application/apply-patch+yaml").body(body);
        client.request::<Value>(request.expect("a request")).await
    };
    apply("one", json!([{"name": "x", "value": "1"}])).await.expect("the first apply");
    let merged = apply("two", json!([{"name": "y", "value": "2"}])).await.expect("the second apply");
    assert_eq!(merged["spec"]["items"], json!([{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]));
    let conflict = apply("two", json!([{"name": "x", "value": "3"}])).await.expect_err("somebody else's field");
    assert!(matches!(conflict, kube::Error::Api(status) if status.reason == "Conflict"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_along() {
    let (cluster, client) = bare().await;
    define(&client).await;
    let mut held = widget("held", &json!({"size": "small"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    send(&client, Method::POST, WIDGETS, held).await.expect("a widget");
    let path = format!("{DEFINITIONS}/widgets.example.com");
    send(&client, Method::DELETE, &path, Value::Null).await.expect("a delete");
    let in_progress = |answer: &Result<Value, (u16, String)>| {
        answer.as_ref().is_ok_and(|crd| {
            let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["reason"] == "InstanceDeletionInProgress")
        })
    };
    let waiting = until(&client, Method::GET, &path, Value::Null, in_progress).await.expect("the definition");
    assert_eq!(waiting["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let release = json!({"metadata": {"finalizers": null}});
    send(&client, Method::PATCH, &format!("{WIDGETS}/held"), release).await.expect("the last finalizer");
    let gone = until(&client, Method::GET, &path, Value::Null, Result::is_err).await;
    assert_eq!(gone.map_err(|(code, _)| code), Err(404));
    let gone = until(&client, Method::GET, WIDGETS, Value::Null, Result::is_err).await;
    assert_eq!(gone.map_err(|(code, _)| code), Err(404));
    cluster.shutdown().await;
}

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn a_bound_policy_refuses_and_warns() {
    let (cluster, client) = bare().await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "matchConditions": [{"name": "not-limits", "expression": "object.metadata.name != 'limits'"}],
            "variables": [{"name": "n", "expression": "has(object.data) ? object.data.size() : 0"}],
            "validations": [{
                "expression": "variables.n <= int(params.data.most)", "messageExpression": "'has ' + string(variables.n) + ' keys'",
                "reason": "Forbidden",
            }],
        },
    });
    let path = format!("{REGISTRATION}/validatingadmissionpolicies");
    send(&client, Method::POST, &path, policy).await.expect("a policy");
    send(&client, Method::POST, MAPS, map("limits", &json!({"most": "1"}))).await.expect("the parameters");
    let two = || map("two", &json!({"a": "1", "b": "2"}));
    let dry = format!("{MAPS}?dryRun=All");
    send(&client, Method::POST, &dry, two()).await.expect("nothing is bound yet");
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}},
    });
    let path = format!("{REGISTRATION}/validatingadmissionpolicybindings");
    send(&client, Method::POST, &path, binding).await.expect("a binding");
    let refused = until(&client, Method::POST, &dry, two(), Result::is_err).await;
    let want =
        "configmaps \"two\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: has 2 keys";
    assert_eq!(refused, Err((403, want.to_owned())));
    send(&client, Method::POST, &dry, map("one", &json!({"a": "1"}))).await.expect("one key is allowed");
    send(&client, Method::DELETE, &format!("{MAPS}/limits"), Value::Null).await.expect("the parameters go");
    let lost =
        until(&client, Method::POST, &dry, map("one", &json!({})), Result::is_err).await.expect_err("no parameters");
    assert!(lost.1.contains("no params found for policy binding with `Deny` parameterNotFoundAction"), "{}", lost.1);
    cluster.shutdown().await;
}

/// A webhook that answers every review with `respond`; gives its port and the authority to trust, as PEM.
async fn webhook(respond: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (u16, String) {
    let now = jiff::Timestamp::now();
    let authority = CertificateAuthority::generate("webhooks", now).expect("an authority");
    let serving = authority.issue_server("webhook", &["127.0.0.1".to_owned()], now).expect("a certificate");
    let certificate = CertificateDer::from_pem_slice(serving.certificate_pem.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let respond = Arc::new(respond);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(tls) = acceptor.accept(tcp).await else { continue };
            let respond = respond.clone();
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let respond = respond.clone();
                async move {
                    let body = request.into_body().collect().await?.to_bytes();
                    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let mut response = respond(&review["request"]);
                    response["uid"] = review["request"]["uid"].clone();
                    let answer =
                        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
                    Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service));
        }
    });
    (port, authority.certificate_pem().to_owned())
}

fn configuration(kind: &str, url: &str, bundle: &str, more: &Value) -> Value {
    let mut hook = json!({
        "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "clientConfig": {"url": url, "caBundle": STANDARD.encode(bundle)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        hook[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "w"}, "webhooks": [hook]})
}

#[tokio::test]
async fn a_mutating_webhook_patches_what_it_is_for() {
    let (cluster, client) = bare().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let (port, pem) = webhook(move |request| {
        let name = request["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        log.lock().expect("nobody panics with it").push((name, request["operation"].clone()));
        let patch = json!([{"op": "add", "path": "/data", "value": {"added": "yes"}}]).to_string();
        json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch), "warnings": ["patched"]})
    })
    .await;
    let conditions = json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name.startsWith('m')"}]});
    let body = configuration("MutatingWebhookConfiguration", &format!("https://127.0.0.1:{port}/x"), &pem, &conditions);
    let path = format!("{REGISTRATION}/mutatingwebhookconfigurations");
    send(&client, Method::POST, &path, body).await.expect("a configuration");
    let dry = format!("{MAPS}?dryRun=All");
    let is_patched = |answer: &Result<Value, (u16, String)>| {
        answer.as_ref().is_err() || answer.as_ref().is_ok_and(|made| made["data"]["added"] == "yes")
    };
    let made = until(&client, Method::POST, &dry, map("mine", &json!({})), is_patched).await.expect("a patched object");
    assert_eq!(made["data"], json!({"added": "yes"}));
    let made = send(&client, Method::POST, &dry, map("other", &json!({"a": "b"}))).await.expect("another object");
    assert_eq!(made["data"], json!({"a": "b"}));
    let seen = seen.lock().expect("nobody panics with it").clone();
    assert!(seen.iter().all(|one| *one == ("mine".to_owned(), json!("CREATE"))), "{seen:?}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_validating_webhook_refuses_and_its_absence_counts_as_its_policy_says() {
    let (cluster, client) = bare().await;
    let (port, pem) = webhook(|_| json!({"allowed": false, "status": {"code": 403, "message": "not today"}})).await;
    let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
    let kind = "ValidatingWebhookConfiguration";
    let dry = format!("{MAPS}?dryRun=All");
    let place = async |url: &str, bundle: &str, more: Value, want: Result<(), &str>| {
        send(&client, Method::POST, &path, configuration(kind, url, bundle, &more)).await.expect("a configuration");
        let accept = |answer: &Result<Value, (u16, String)>| match want {
            Ok(()) => answer.is_ok(),
            Err(text) => answer.as_ref().is_err_and(|(_, message)| message.contains(text)),
        };
        let answer = until(&client, Method::POST, &dry, map("x", &json!({})), accept).await;
        assert!(accept(&answer), "{url}: {answer:?}, want {want:?}");
        send(&client, Method::DELETE, &format!("{path}/w"), Value::Null).await.expect("the configuration goes");
    };
    let url = format!("https://127.0.0.1:{port}/x");
    let denied = "admission webhook \"hook.example.com\" denied the request: not today";
    place(&url, &pem, json!({}), Err(denied)).await;
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    place(&url, "", json!({}), Err(unknown)).await;
    let refused = "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: Post \
        \"https://127.0.0.1:1/x?timeout=5s\": dial tcp 127.0.0.1:1: connect: connection refused";
    place("https://127.0.0.1:1/x", &pem, json!({}), Err(refused)).await;
    place("https://127.0.0.1:1/x", &pem, json!({"failurePolicy": "Ignore"}), Ok(())).await;
    place(&url, &pem, json!({"objectSelector": {"matchLabels": {"a": "b"}}}), Ok(())).await;
    cluster.shutdown().await;
}
