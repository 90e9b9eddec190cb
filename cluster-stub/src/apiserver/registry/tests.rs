//! The registry as a client sees it, over the memory store, with two kinds made for these tests.

mod alike;
mod bound;
mod reading;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::apiserver::authn::UserInfo;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::resources::{
    Behavior, Column, Columns, GracefulDelete, Strategy, Subresource, UpdateStrategy, Verbs, WriteContext,
};
use crate::apiserver::server::Body;
use crate::apiserver::validation::names::name_is_dns_subdomain;
use crate::apiserver::validation::{FieldError, meta};
use crate::store::memory::MemoryStore;

struct Rules {
    graceful: bool,
}

impl Strategy for Rules {
    fn prepare_for_create(&self, _: &WriteContext<'_>, object: &mut Value) {
        if self.graceful {
            object["metadata"]["generation"] = 1.into();
            object["status"] = json!({});
        }
    }

    fn prepare_for_update(&self, _: &WriteContext<'_>, object: &mut Value, old: &Value) {
        if self.graceful {
            object["status"] = old["status"].clone();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        meta::validate_object_meta(object, true, name_is_dns_subdomain)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        meta::validate_object_meta_update(object, old)
    }

    fn field_labels(&self) -> &'static [&'static str] {
        if self.graceful { &["spec.nodeName"] } else { &[] }
    }

    fn field_values(&self, object: &Value) -> Vec<String> {
        vec![object["spec"]["nodeName"].as_str().unwrap_or("").to_string()]
    }

    fn graceful_delete(&self, _: &Value, requested: Option<i64>) -> GracefulDelete {
        if self.graceful { GracefulDelete::After(requested.unwrap_or(30)) } else { GracefulDelete::Immediate }
    }

    fn returns_deleted_object(&self) -> bool {
        self.graceful
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

struct Status;

impl UpdateStrategy for Status {
    fn prepare_for_update(&self, _: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["spec"] = old["spec"].clone();
    }

    fn validate_update(&self, _: &Value, _: &Value) -> Vec<FieldError> {
        Vec::new()
    }
}

struct NameColumn([Column; 1]);

impl Columns for NameColumn {
    fn columns(&self) -> &[Column] {
        &self.0
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![object["metadata"]["name"].clone()]
    }
}

struct Nobody;

impl Connector for Nobody {
    fn connect<'a>(&'a self, _: ConnectRequest<'a>) -> BoxFuture<'a, Result<Response, ApiError>> {
        Box::pin(std::future::ready(Err(ApiError::method_not_allowed())))
    }

    fn answer<'a>(&'a self, _: ConnectRequest<'a>) -> BoxFuture<'a, Result<(u16, Value), ApiError>> {
        Box::pin(std::future::ready(Err(ApiError::method_not_allowed())))
    }
}

fn kind(plural: &'static str, name: &'static str, graceful: bool) -> Arc<Resource> {
    let status = Subresource {
        name: "status".into(),
        group: "".into(),
        version: "".into(),
        kind: name.into(),
        type_name: format!("io.k8s.api.core.v1.{name}").into(),
        verbs: Verbs::SUBOBJECT,
        behavior: Behavior::Object(Arc::new(Status)),
    };
    let column = Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: "".into(),
        priority: 0,
    };
    Arc::new(Resource {
        group: "".into(),
        version: "v1".into(),
        plural: plural.into(),
        singular: name.to_lowercase().into(),
        kind: name.into(),
        list_kind: format!("{name}List").into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Verbs::ALL,
        subresources: if graceful { vec![status] } else { Vec::new() },
        type_name: format!("io.k8s.api.core.v1.{name}").into(),
        columns: Arc::new(NameColumn([column])),
        strategy: Arc::new(Rules { graceful }),
        storage: plural.into(),
        deprecation: None,
        custom: None,
        action: None,
    })
}

struct Client(Registry);

impl Client {
    async fn new() -> Client {
        let config = RegistryConfig {
            store: Arc::new(MemoryStore::new()),
            schema: Schema::builtin(),
            resources: vec![kind("configmaps", "ConfigMap", false), kind("pods", "Pod", true)],
            admission: AdmissionChain::default(),
            connector: Arc::new(Nobody),
            story: Story::silent(),
        };
        Client(Registry::start(config).await.expect("the store can be read"))
    }

    async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(uri).header("user-agent", "test/1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request of the table").into_parts();
        let info = RequestInfo::parse(&parts.method, &parts.uri).expect("a decidable path");
        let user = Arc::new(UserInfo::admin("me"));
        self.0.serve(Arc::new(info), user, parts, Bytes::from(body.to_string()), Timestamp::now()).await
    }

    async fn call(&self, method: &str, uri: &str, content_type: &str, body: &str) -> (u16, Value) {
        let response = self.send(method, uri, &[("content-type", content_type)], body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("bodies of the registry do not fail").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn json(&self, method: &str, uri: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.call(method, uri, "application/json", &body).await
    }

    async fn create(&self, plural: &str, name: &str, more: Value) -> Value {
        let mut object = json!({"metadata": {"name": name}});
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        if let Some(labels) = object.as_object_mut().and_then(|members| members.remove("labels")) {
            object["metadata"]["labels"] = labels;
        }
        let (code, created) = self.json("POST", &format!("/api/v1/namespaces/ns/{plural}"), object).await;
        assert_eq!(code, 201, "{created}");
        created
    }

    /// The events of a watch until there are `n` or nothing comes any more.
    async fn events(&self, uri: &str, n: usize) -> Vec<Value> {
        let response = self.send("GET", uri, &[], "").await;
        assert_eq!(response.status(), 200);
        read_events(response, n).await
    }
}

async fn read_events(response: http::Response<Body>, n: usize) -> Vec<Value> {
    let mut body = response.into_body();
    let mut text = Vec::new();
    let mut events = Vec::new();
    while events.len() < n {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        text.extend_from_slice(&frame.into_data().expect("a watch has no trailers"));
        events = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).expect("whole lines of JSON"))
            .collect();
    }
    events
}

fn seen(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["object"]["metadata"]["name"].as_str().unwrap_or("").to_string();
    events.iter().map(|event| format!("{} {}", event["type"].as_str().unwrap_or(""), name(event))).collect()
}

const CMS: &str = "/api/v1/namespaces/ns/configmaps";
const PODS: &str = "/api/v1/namespaces/ns/pods";

#[tokio::test]
async fn a_created_object_can_be_read_replaced_and_deleted() {
    let client = Client::new().await;
    let created = client.create("configmaps", "a", json!({"data": {"k": "v"}})).await;
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(created["metadata"]["namespace"], "ns");
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "test");
    let (code, read) = client.json("GET", &format!("{CMS}/a"), Value::Null).await;
    assert_eq!((code, &read), (200, &created));
    let (code, replaced) =
        client.json("PUT", &format!("{CMS}/a"), json!({"metadata": {"name": "a"}, "data": {"k": "w"}})).await;
    assert_eq!(code, 200);
    assert_eq!(replaced["metadata"]["uid"], created["metadata"]["uid"]);
    assert_ne!(replaced["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let (code, same) =
        client.json("PUT", &format!("{CMS}/a"), json!({"metadata": {"name": "a"}, "data": {"k": "w"}})).await;
    assert_eq!((code, &same), (200, &replaced), "a write that changes nothing is none");
    let (code, gone) = client.json("DELETE", &format!("{CMS}/a"), Value::Null).await;
    assert_eq!(
        (code, gone["status"].as_str(), gone["details"]["kind"].as_str()),
        (200, Some("Success"), Some("configmaps"))
    );
    assert_eq!(client.json("GET", &format!("{CMS}/a"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn failures_come_in_upstreams_order_and_words() {
    let client = Client::new().await;
    client.create("configmaps", "dup", Value::Null).await;
    let rv_dup = json!({"metadata": {"name": "dup", "resourceVersion": "1"}});
    let cases = [
        ("POST", CMS.to_string(), json!({"metadata": {"name": "dup"}}), 409, "configmaps \"dup\" already exists"),
        (
            "POST",
            format!("{CMS}?fieldValidation=Strict"),
            json!({"metadata": {"name": "d"}, "bogus": 1}),
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"bogus\"",
        ),
        (
            "POST",
            CMS.to_string(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}}),
            400,
            "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        (
            "POST",
            CMS.to_string(),
            json!({"metadata": {"name": "q", "namespace": "zzz"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "POST",
            CMS.to_string(),
            json!({"metadata": {"name": "q", "resourceVersion": "5"}}),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "PUT",
            format!("{CMS}/other"),
            json!({"metadata": {"name": "q"}}),
            400,
            "the name of the object (q) does not match the name on the URL (other)",
        ),
        (
            "PUT",
            format!("{CMS}/dup"),
            rv_dup,
            409,
            "Operation cannot be fulfilled on configmaps \"dup\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        ("GET", format!("{CMS}/nope"), Value::Null, 404, "configmaps \"nope\" not found"),
        ("PUT", CMS.to_string(), json!({}), 405, "the server does not allow this method on the requested resource"),
        ("GET", format!("{PODS}/p/bogus"), Value::Null, 404, "the server could not find the requested resource"),
        (
            "GET",
            format!("{PODS}?fieldSelector=spec.bogus%3D1"),
            Value::Null,
            400,
            "field label not supported: spec.bogus",
        ),
    ];
    for (method, uri, body, code, message) in cases {
        let (got, status) = client.json(method, &uri, body).await;
        assert_eq!((got, status["message"].as_str()), (code, Some(message)), "{method} {uri}");
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let client = Client::new().await;
    let (code, object) = client.json("POST", &format!("{CMS}?dryRun=All"), json!({"metadata": {"name": "d"}})).await;
    assert_eq!((code, object["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(client.json("GET", &format!("{CMS}/d"), Value::Null).await.0, 404);
    client.create("configmaps", "keep", json!({"data": {"a": "b"}})).await;
    assert_eq!(client.json("DELETE", &format!("{CMS}/keep?dryRun=All"), Value::Null).await.0, 200);
    let uri = format!("{CMS}/keep?dryRun=All");
    let (code, patched) = client.call("PATCH", &uri, "application/merge-patch+json", r#"{"data":{"z":"1"}}"#).await;
    assert_eq!((code, &patched["data"]), (200, &json!({"a": "b", "z": "1"})));
    assert_eq!(client.json("GET", &format!("{CMS}/keep"), Value::Null).await.1["data"], json!({"a": "b"}));
}

#[tokio::test]
async fn every_patch_type_applies() {
    let client = Client::new().await;
    client.create("configmaps", "c", json!({"data": {"a": "b"}})).await;
    let uri = format!("{CMS}/c");
    let cases = [
        ("application/merge-patch+json", r#"{"data":{"z":"1"}}"#, 200, json!({"a": "b", "z": "1"})),
        ("application/strategic-merge-patch+json", r#"{"data":{"a":null}}"#, 200, json!({"z": "1"})),
        ("application/json-patch+json", r#"[{"op":"add","path":"/data","value":{"n":"1"}}]"#, 200, json!({"n": "1"})),
        ("application/json-patch+json", r#"[{"op":"test","path":"/data/n","value":"2"}]"#, 422, Value::Null),
        ("application/json-patch+json", "{}", 400, Value::Null),
        ("application/json", "{}", 415, Value::Null),
        ("application/merge-patch+json", r#"{"data":{"a":1}}"#, 422, Value::Null),
        ("application/strategic-merge-patch+json", r#"{"data":null}"#, 200, Value::Null),
    ];
    for (content_type, patch, code, data) in cases {
        let (got, object) = client.call("PATCH", &uri, content_type, patch).await;
        assert_eq!((got, &object["data"]), (code, &data), "{content_type} {patch} {object}");
    }
    let apply = |manager: &'static str| format!("{CMS}/ssa?fieldManager={manager}");
    let config = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ssa"},"data":{"a":"1"}}"#;
    assert_eq!(client.call("PATCH", &apply("m"), "application/apply-patch+yaml", config).await.0, 201);
    assert_eq!(client.call("PATCH", &apply("m"), "application/apply-patch+yaml", config).await.0, 200);
    let other = config.replace("\"1\"", "\"2\"");
    assert_eq!(client.call("PATCH", &apply("n"), "application/apply-patch+yaml", &other).await.0, 409);
}

#[tokio::test]
async fn finalizers_and_grace_hold_an_object() {
    let client = Client::new().await;
    let body = json!({"metadata": {"name": "f", "finalizers": ["x.io/f"]}});
    assert_eq!(client.json("POST", CMS, body).await.0, 201);
    let (_, held) = client.json("DELETE", &format!("{CMS}/f"), Value::Null).await;
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    let (code, _) = client.call("PATCH", &format!("{CMS}/f"), "application/merge-patch+json", patch).await;
    assert_eq!(code, 200);
    assert_eq!(client.json("GET", &format!("{CMS}/f"), Value::Null).await.0, 404);

    client.create("pods", "p", json!({"spec": {"containers": []}})).await;
    let (code, dying) = client.json("DELETE", &format!("{PODS}/p?gracePeriodSeconds=7"), Value::Null).await;
    assert_eq!(
        (code, &dying["metadata"]["deletionGracePeriodSeconds"], &dying["metadata"]["generation"]),
        (200, &json!(7), &json!(2))
    );
    let again = client.json("DELETE", &format!("{PODS}/p?gracePeriodSeconds=9"), Value::Null).await.1;
    assert_eq!(
        again["metadata"]["deletionTimestamp"], dying["metadata"]["deletionTimestamp"],
        "a longer grace changes nothing"
    );
    assert_eq!(client.json("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), Value::Null).await.0, 200);
    assert_eq!(client.json("GET", &format!("{PODS}/p"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn delete_preconditions_and_policies_are_checked() {
    let client = Client::new().await;
    client.create("configmaps", "c", Value::Null).await;
    let cases = [
        (json!({"propagationPolicy": "Bogus"}), 422),
        (json!({"propagationPolicy": "Foreground", "orphanDependents": true}), 422),
        (json!({"preconditions": {"uid": "other"}}), 409),
        (json!({"preconditions": {"resourceVersion": "1"}}), 409),
    ];
    for (body, code) in cases {
        assert_eq!(client.json("DELETE", &format!("{CMS}/c"), body.clone()).await.0, code, "{body}");
    }
    let (_, held) = client.json("DELETE", &format!("{CMS}/c?propagationPolicy=Orphan"), Value::Null).await;
    assert_eq!(held["details"]["name"].as_str().or(held["metadata"]["name"].as_str()), Some("c"));
    let (_, read) = client.json("GET", &format!("{CMS}/c"), Value::Null).await;
    assert_eq!(read["metadata"]["finalizers"], json!(["orphan"]));
}

#[tokio::test]
async fn a_collection_is_deleted_by_selection() {
    let client = Client::new().await;
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        client.create("configmaps", name, json!({"labels": {"g": label}})).await;
    }
    let uri = format!("{CMS}?labelSelector=g%3Dx");
    let count = |list: &Value| list["items"].as_array().map(Vec::len);
    let (code, dry) = client.json("DELETE", &format!("{uri}&dryRun=All"), Value::Null).await;
    assert_eq!((code, dry["kind"].as_str(), count(&dry)), (200, Some("ConfigMapList"), Some(2)));
    assert_eq!(count(&client.json("DELETE", &uri, Value::Null).await.1), Some(2));
    assert_eq!(count(&client.json("DELETE", &uri, Value::Null).await.1), Some(0));
    assert_eq!(client.json("DELETE", "/api/v1/configmaps", Value::Null).await.0, 405);
}

#[tokio::test]
async fn status_is_written_apart_from_the_rest() {
    let client = Client::new().await;
    client
        .create("pods", "p", json!({"spec": {"containers": [], "nodeName": "n"}, "status": {"phase": "Running"}}))
        .await;
    let uri = format!("{PODS}/p");
    let patch = r#"{"status":{"phase":"Running"},"spec":{"nodeName":"other"},"metadata":{"labels":{"via":"status"}}}"#;
    let (_, main) = client.call("PATCH", &uri, "application/merge-patch+json", patch).await;
    assert_eq!((main["status"].get("phase"), main["spec"]["nodeName"].as_str()), (None, Some("other")));
    let (_, status) = client
        .call(
            "PATCH",
            &format!("{uri}/status"),
            "application/merge-patch+json",
            r#"{"status":{"phase":"Running"},"spec":{"nodeName":"third"}}"#,
        )
        .await;
    assert_eq!(
        (status["status"]["phase"].as_str(), status["spec"]["nodeName"].as_str()),
        (Some("Running"), Some("other"))
    );
    let managers = status["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    assert!(managers.iter().any(|entry| entry["subresource"] == "status"), "{managers:?}");
    assert_eq!(client.json("DELETE", &format!("{uri}/status"), Value::Null).await.0, 405);
    let (_, found) = client.json("GET", &format!("{PODS}?fieldSelector=spec.nodeName%3Dother"), Value::Null).await;
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn concurrent_changes_all_land() {
    let client = Arc::new(Client::new().await);
    client.create("configmaps", "c", Value::Null).await;
    let changes = (0..20).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            let patch = format!("{{\"data\":{{\"k{n}\":\"v\"}}}}");
            client.call("PATCH", &format!("{CMS}/c"), "application/merge-patch+json", &patch).await.0
        })
    });
    for change in changes.collect::<Vec<_>>() {
        assert_eq!(change.await.expect("the task ends"), 200);
    }
    let (_, read) = client.json("GET", &format!("{CMS}/c"), Value::Null).await;
    assert_eq!(read["data"].as_object().map(serde_json::Map::len), Some(20));
}

#[tokio::test]
async fn generated_names_differ() {
    let client = Client::new().await;
    let create = || client.json("POST", CMS, json!({"metadata": {"generateName": "gen-"}}));
    let (first, second) = (create().await.1, create().await.1);
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    assert_eq!(first["metadata"]["generateName"], "gen-");
}
