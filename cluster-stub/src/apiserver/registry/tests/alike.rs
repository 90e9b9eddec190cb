//! Creations that are alike, held against the whole way, which a body in YAML always goes.

use proptest::bool::weighted;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::*;
use crate::apiserver::authz::{Authorizer, PrivilegedGroups};
use crate::apiserver::resources::{ResourceOptions, builtin};

/// A server with all kinds and all of admission, a namespace and its service account, which mounts a token or not.
pub(super) async fn cluster(mounts: bool) -> Client {
    let authorizer: Arc<dyn Authorizer> = Arc::new(PrivilegedGroups);
    let mut admission = AdmissionChain::builtin();
    admission.push_configured(&authorizer);
    let config = RegistryConfig {
        store: Arc::new(MemoryStore::new()),
        schema: Schema::builtin(),
        resources: builtin(&ResourceOptions::default()),
        admission,
        connector: Arc::new(Nobody),
        story: Story::silent(),
    };
    let client = Client(Registry::start(config).await.expect("the store can be read"));
    for namespace in ["ns", "other"] {
        client.make("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": mounts});
        client.make(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account).await;
    }
    client
}

impl Client {
    pub(super) async fn make(&self, uri: &str, object: Value) -> Value {
        let (code, made) = self.json("POST", uri, object).await;
        assert_eq!(code, 201, "{made}");
        self.0.0.feed.catch_up().await.expect("the memory store does not fail");
        made
    }

    pub(super) async fn merge(&self, uri: &str, patch: Value) {
        let (code, made) = self.call("PATCH", uri, "application/merge-patch+json", &patch.to_string()).await;
        assert_eq!(code, 200, "{made}");
        self.0.0.feed.catch_up().await.expect("the memory store does not fail");
    }

    /// Creates a pod the whole way.
    async fn whole(&self, pod: &Value) -> (u16, Value) {
        self.call("POST", PODS, "application/yaml", &pod.to_string()).await
    }

    fn n_used(&self) -> u64 {
        self.0.0.alike.n_used()
    }
}

fn named(pod: &Value, name: &str) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["name"] = name.into();
    pod
}

/// The object without what differs between two of a kind.
pub(super) fn common(object: &Value) -> Value {
    let mut object = object.clone();
    for key in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        object["metadata"][key] = Value::Null;
    }
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry["time"] = Value::Null;
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    let drawn = object["spec"]["volumes"].as_array().into_iter().flatten();
    let drawn = drawn.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with("kube-api-access-"));
    match drawn.map(str::to_owned) {
        Some(drawn) => object.to_string().replace(&drawn, "drawn").parse().expect("still JSON"),
        None => object,
    }
}

fn pause() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "labels": {"app": "a", "version": "1"}},
        "spec": {"containers": [{"name": "c", "image": "pause:3", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "0.5", "memory": "1Gi"}}}]}})
}

fn any_pod() -> impl Strategy<Value = Value> {
    let quantity = prop_oneof![Just("100m"), Just("0.5"), Just("1"), Just("1500m")];
    let container = (any::<bool>(), quantity, any::<bool>(), any::<bool>()).prop_map(|(tag, cpu, port, env)| {
        let mut container = json!({"name": "c", "image": if tag { "a:1" } else { "a" },
            "resources": {"requests": {"cpu": cpu}}});
        if port {
            container["ports"] = json!([{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]);
        }
        if env {
            container["env"] = json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
            container["livenessProbe"] = json!({"httpGet": {"port": 80}});
        }
        container
    });
    let volumes = prop_oneof![
        2 => Just(Value::Null),
        2 => Just(json!([{"name": "v", "emptyDir": {}}])),
        1 => Just(json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}}}, {"name": "w", "persistentVolumeClaim": {"claimName": "p1-v"}}])),
    ];
    let parts = (container, volumes, any::<bool>(), weighted(0.2), any::<bool>(), any::<bool>(), 0_usize..8);
    parts.prop_map(|(container, volumes, owned, gated, spread, hostname, more)| {
        let mut pod = pause();
        pod["spec"]["containers"] = json!([container]);
        if !volumes.is_null() {
            pod["spec"]["volumes"] = volumes;
        }
        if owned {
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
            pod["metadata"]["generateName"] = "r-".into();
        }
        if gated {
            pod["spec"]["schedulingGates"] = json!([{"name": "x.io/g"}]);
        }
        if spread {
            pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "z",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["version"]}]);
        }
        if hostname {
            pod["spec"]["hostname"] = "p3".into();
        }
        match more {
            0 => pod["metadata"]["annotations"] = json!({"note": "p2", "x": "\"\\ü"}),
            1 => pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]),
            2 => pod["bogus"] = 1.into(),
            3 => pod["spec"]["restartPolicy"] = "Sometimes".into(),
            _ => {}
        }
        pod
    })
}

#[test]
fn objects_that_are_alike_become_what_the_whole_way_makes_of_them() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clients = [false, true].map(|mounts| runtime.block_on(cluster(mounts)));
    let mut runner = TestRunner::new(Config::with_cases(64));
    let names = ["p1", "p2", "p3", "p4", "a.b", "p5", "P6", "p7"];
    runner
        .run(&(any_pod(), any::<bool>()), |(pod, mounts)| {
            let client = &clients[usize::from(mounts)];
            runtime.block_on(async {
                for name in names {
                    let pod = named(&pod, name);
                    let got = client.json("POST", PODS, pod.clone()).await;
                    if got.0 == 201 {
                        prop_assert_eq!(got.1["metadata"]["name"].as_str(), Some(name));
                        let stored = client.json("GET", &format!("{PODS}/{name}"), Value::Null).await;
                        prop_assert_eq!(&stored.1, &got.1);
                        client.json("DELETE", &format!("{PODS}/{name}"), json!({"gracePeriodSeconds": 0})).await;
                    }
                    let want = client.whole(&pod).await;
                    client.json("DELETE", &format!("{PODS}/{name}"), json!({"gracePeriodSeconds": 0})).await;
                    prop_assert_eq!((got.0, common(&got.1)), (want.0, common(&want.1)));
                }
                Ok::<(), TestCaseError>(())
            })
        })
        .expect("both ways agree");
    assert!(clients.iter().all(|client| client.n_used() > 0), "some were alike");
}

#[tokio::test]
async fn replicas_are_created_alike_from_the_third_on() {
    for mounts in [false, true] {
        let client = cluster(mounts).await;
        let bodies = [pause(), json!({"metadata": {"generateName": "g-"}, "spec": pause()["spec"]})];
        for (body, is_named) in bodies.iter().zip([true, false]) {
            let before = client.n_used();
            let mut made = Vec::new();
            for index in 0..6 {
                let body = if is_named { named(body, &format!("p{index}")) } else { body.clone() };
                made.push(client.make(PODS, body).await);
            }
            // One is seen, one is noted, one confirms.
            assert_eq!(client.n_used() - before, 3);
            let distinct = |way: &str| made.iter().map(|pod| pod.pointer(way).cloned()).collect::<Vec<_>>();
            for way in ["/metadata/name", "/metadata/uid", "/metadata/resourceVersion", "/spec/volumes/0/name"] {
                let mut found: Vec<String> =
                    distinct(way).into_iter().flatten().map(|value| value.to_string()).collect();
                let n_found = found.len();
                found.sort();
                found.dedup();
                assert_eq!(found.len(), n_found, "{way}: {found:?}");
            }
            assert!(made.iter().all(|pod| common(pod) == common(&made[0])));
            assert_eq!(distinct("/spec/volumes/0/name")[0].is_some(), mounts);
        }
    }
}

#[tokio::test]
async fn a_taken_name_is_told() {
    let client = cluster(false).await;
    for name in ["a", "b", "c", "d"] {
        client.make(PODS, named(&pause(), name)).await;
    }
    let n_used = client.n_used();
    assert!(n_used > 0);
    let (code, status) = client.json("POST", PODS, named(&pause(), "a")).await;
    assert_eq!((code, status["message"].as_str()), (409, Some("pods \"a\" already exists")));
}

/// After each of these a pod like those before is no longer what they were; `None`: it is refused.
#[tokio::test]
async fn whatever_is_read_on_the_way_counts() {
    let webhook = |kind: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "w"}, "webhooks": [{
            "name": "w.x.io", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]})
    };
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let cases: [(&str, String, Value, Option<(&str, Value)>); 7] = [
        (
            "limit range",
            "/api/v1/namespaces/ns/limitranges".into(),
            json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"ephemeral-storage": "7Mi"}}]}}),
            Some(("/spec/containers/0/resources/requests/ephemeral-storage", json!("7Mi"))),
        ),
        (
            "limit",
            "/api/v1/namespaces/ns/limitranges".into(),
            json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "7Mi"}}]}}),
            None,
        ),
        (
            "default priority",
            "/apis/scheduling.k8s.io/v1/priorityclasses".into(),
            json!({"metadata": {"name": "high"}, "value": 7, "globalDefault": true}),
            Some(("/spec/priority", json!(7))),
        ),
        (
            "mutating webhook",
            format!("{admission}/mutatingwebhookconfigurations"),
            webhook("MutatingWebhookConfiguration"),
            None,
        ),
        (
            "validating webhook",
            format!("{admission}/validatingwebhookconfigurations"),
            webhook("ValidatingWebhookConfiguration"),
            None,
        ),
        (
            "label of the namespace",
            "/api/v1/namespaces/ns".into(),
            json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}),
            None,
        ),
        (
            "service account",
            "/api/v1/namespaces/ns/serviceaccounts/default".into(),
            json!({"imagePullSecrets": [{"name": "pull"}]}),
            Some(("/spec/imagePullSecrets/0/name", json!("pull"))),
        ),
    ];
    for (what, uri, object, want) in cases {
        let client = cluster(false).await;
        for name in ["a", "b", "c", "d"] {
            client.make(PODS, named(&pause(), name)).await;
        }
        let n_used = client.n_used();
        assert_eq!(n_used, 1, "{what}");
        if uri.ends_with("/ns") || uri.ends_with("/default") {
            client.merge(&uri, object).await;
        } else {
            client.make(&uri, object).await;
        }
        for name in ["e", "f", "g", "h"] {
            let (code, pod) = client.json("POST", PODS, named(&pause(), name)).await;
            match &want {
                Some((way, value)) => assert_eq!((code, pod.pointer(way)), (201, Some(value)), "{what}: {pod}"),
                None => assert!(code >= 400, "{what}: {pod}"),
            }
        }
        // Where the change leaves nothing to ask outside, the new ones are alike again.
        assert_eq!(client.n_used() > n_used, want.is_some(), "{what}");
    }
}

#[tokio::test]
async fn a_quota_is_charged_for_each() {
    let client = cluster(false).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
    for name in ["a", "b", "c", "d"] {
        client.make(PODS, named(&pause(), name)).await;
    }
    client.make("/api/v1/namespaces/ns/resourcequotas", quota).await;
    let status = json!({"status": {"hard": {"pods": "5"}, "used": {"pods": "3"}}});
    client.merge("/api/v1/namespaces/ns/resourcequotas/q/status", status).await;
    let mut codes = Vec::new();
    for name in ["e", "f", "g", "h"] {
        codes.push(client.json("POST", PODS, named(&pause(), name)).await.0);
        client.0.0.feed.catch_up().await.expect("the memory store does not fail");
    }
    assert_eq!(codes, [201, 201, 403, 403]);
}

#[tokio::test]
async fn changes_elsewhere_do_not_count() {
    let client = cluster(false).await;
    for name in ["a", "b", "c", "d"] {
        client.make(PODS, named(&pause(), name)).await;
    }
    let n_used = client.n_used();
    client.make("/api/v1/namespaces", json!({"metadata": {"name": "third"}})).await;
    client
        .make("/api/v1/namespaces/other/limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": []}}))
        .await;
    client.make(PODS, named(&pause(), "e")).await;
    assert_eq!(client.n_used(), n_used + 1);
}

#[tokio::test]
async fn who_asks_and_where_and_how_counts() {
    let client = cluster(false).await;
    for name in ["a", "b", "c", "d"] {
        client.make(PODS, named(&pause(), name)).await;
    }
    let n_used = client.n_used();
    let mut elsewhere = named(&pause(), "e");
    elsewhere["metadata"]["namespace"] = "other".into();
    let made = client.make("/api/v1/namespaces/other/pods", elsewhere).await;
    assert_eq!(made["metadata"]["namespace"], "other");
    let made = client.make(&format!("{PODS}?fieldManager=mine"), named(&pause(), "e")).await;
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "mine");
    let (code, dry) = client.json("POST", &format!("{PODS}?dryRun=All"), named(&pause(), "f")).await;
    assert_eq!((code, dry["metadata"].get("resourceVersion")), (201, None));
    let headers = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"), ("content-type", "application/json")];
    let table = client.send("POST", PODS, &headers, &named(&pause(), "g").to_string()).await;
    let table = table.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&table).expect("JSON")["kind"], "Table");
    let foreign = client.json("POST", "/api/v1/namespaces/other/pods", named(&pause(), "h")).await;
    assert_eq!(foreign.0, 400, "another namespace than the body's");
    assert_eq!(client.n_used(), n_used);
    let pretty =
        client.send("POST", &format!("{PODS}?pretty=true"), &headers[1..], &named(&pause(), "i").to_string()).await;
    let pretty = pretty.into_body().collect().await.expect("a body").to_bytes();
    assert!(pretty.starts_with(b"{\n  \"kind\": \"Pod\""));
}

#[tokio::test]
async fn a_body_that_says_its_name_in_an_unusual_way_is_not_taken_for_one_of_many() {
    let client = cluster(false).await;
    let pretty = serde_json::to_string_pretty(&named(&pause(), "a")).expect("JSON");
    let spec = pause()["spec"].to_string();
    let twice = format!(r#"{{"metadata":{{"name":"x"}},"metadata":{{"name":"a"}},"spec":{spec}}}"#);
    let escaped = format!(r#"{{"metadata":{{"n\u0061me":"a"}},"spec":{spec}}}"#);
    for body in [pretty, twice, escaped] {
        for _ in 0..5 {
            let uri = format!("{PODS}?fieldValidation=Ignore");
            let (code, pod) = client.call("POST", &uri, "application/json", &body).await;
            assert_eq!((code, pod["metadata"]["name"].as_str()), (201, Some("a")), "{pod}");
            client.json("DELETE", &format!("{PODS}/a"), json!({"gracePeriodSeconds": 0})).await;
        }
    }
    assert_eq!(client.n_used(), 0);
}

#[tokio::test]
async fn an_action_on_another_namespace_than_the_paths_is_refused() {
    let client = cluster(false).await;
    for name in ["a", "b"] {
        client.make(PODS, named(&pause(), name)).await;
    }
    let binding = |namespace: &str| json!({"metadata": {"name": "a", "namespace": namespace}, "target": {"name": "n"}});
    let eviction = |namespace: &str| json!({"metadata": {"name": "b", "namespace": namespace}});
    for (uri, body) in [("a/binding", &binding as &dyn Fn(&str) -> Value), ("b/eviction", &eviction)] {
        let uri = format!("{PODS}/{uri}");
        let (code, status) = client.json("POST", &uri, body("other")).await;
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        assert_eq!((code, status["message"].as_str()), (400, Some(why)), "{uri}");
        let (code, status) = client.json("POST", &uri, body("ns")).await;
        assert_eq!(code, 201, "{uri}: {status}");
    }
}

#[tokio::test]
async fn behind_a_body_stands_what_json_calls_blank() {
    let client = cluster(false).await;
    for name in ["a", "b", "c"] {
        client.make(PODS, named(&pause(), name)).await;
    }
    for (name, end, code) in [("d", " \t\r\n", 201), ("e", "\u{c}", 400), ("f", "\u{b}", 400), ("g", "}", 400)] {
        let n_used = client.n_used();
        let body = named(&pause(), name).to_string() + end;
        let (got, answer) = client.call("POST", PODS, "application/json", &body).await;
        assert_eq!((got, client.n_used() - n_used), (code, u64::from(code == 201)), "{end:?}: {answer}");
    }
}

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

fn event(name: &str, pod: [&str; 3], note: &str, time: &str) -> Value {
    let [pod, uid, version] = pod;
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "ns"}, "action": "Binding",
        "eventTime": time, "note": note, "reason": "Scheduled", "type": "Normal", "reportingController": "s",
        "reportingInstance": "s-1", "regarding": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": "ns",
            "resourceVersion": version, "uid": uid}})
}

const NOON: &str = "2026-11-30T12:00:00.000001Z";

#[tokio::test]
async fn events_are_created_alike_from_the_third_on() {
    let client = cluster(false).await;
    for index in 0..6 {
        let text = |what: &str| format!("{what}{index}");
        let body = event(&text("p.17f"), [&text("p"), &text("u"), &text("v")], &text("Assigned ns/p"), NOON);
        let made = client.make(EVENTS, body.clone()).await;
        for (key, value) in body.as_object().expect("an object").iter().filter(|(key, _)| *key != "metadata") {
            assert_eq!(&made[key], value, "{key}");
        }
        let stored = client.json("GET", &format!("{EVENTS}/{}", text("p.17f")), Value::Null).await;
        assert_eq!(stored.1, made);
        let (_, core) =
            client.json("GET", &format!("/api/v1/namespaces/ns/events/{}", text("p.17f")), Value::Null).await;
        assert_eq!((&core["message"], &core["involvedObject"]), (&made["note"], &made["regarding"]));
        assert_eq!(core["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    }
    assert_eq!(client.n_used(), 3, "one is seen, one is noted, one confirms");
}

#[test]
fn events_that_are_alike_become_what_the_whole_way_makes_of_them() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(cluster(false));
    // What YAML takes, too.
    let text = || prop_oneof![6 => "[a-z0-9]{1,4}", 1 => "[ -~à-ż]{0,4}", 1 => "[a-z\\\\\"\n]{0,3}"];
    let time = prop_oneof![
        8 => Just(NOON),
        1 => Just("2026-11-30T12:00:00Z"),
        1 => Just("2026-11-31T12:00:00.000001Z"),
        1 => Just(""),
        1 => Just("noon")
    ];
    let name = prop_oneof![8 => "[a-z]{1,3}(\\.[a-z]{1,2})?", 1 => "[a-z]{1,3}[-.]"];
    let note = prop_oneof![8 => text(), 1 => Just("n".repeat(1025))];
    let one = (name, [text(), text(), text()], note, time);
    let mut runner = TestRunner::new(Config { cases: 64, ..Config::default() });
    runner
        .run(&proptest::collection::vec(one, 8), |events| {
            runtime.block_on(async {
                for (name, pod, note, time) in &events {
                    let body = event(name, pod.each_ref().map(String::as_str), note, time);
                    let place = format!("{EVENTS}/{name}");
                    let got = client.json("POST", EVENTS, body.clone()).await;
                    client.json("DELETE", &place, Value::Null).await;
                    let want = client.call("POST", EVENTS, "application/yaml", &body.to_string()).await;
                    client.json("DELETE", &place, Value::Null).await;
                    prop_assert_eq!((got.0, common(&got.1)), (want.0, common(&want.1)));
                }
                Ok::<(), TestCaseError>(())
            })
        })
        .expect("both ways agree");
    assert!(client.n_used() > 50, "some were alike");
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    let client = cluster(false).await;
    let mut pod = pause();
    for index in 0..140 {
        pod["metadata"]["annotations"] = json!({"n": index.to_string(), "more": "x".repeat(15_000)});
        for name in ["a", "b"] {
            assert!(client.0.0.alike.n_bytes() <= 4 * 1024 * 1024);
            let (code, made) = client.json("POST", PODS, named(&pod, name)).await;
            assert_eq!(code, 201, "{made}");
            client.json("DELETE", &format!("{PODS}/{name}"), json!({"gracePeriodSeconds": 0})).await;
        }
    }
    assert_eq!(client.n_used(), 0);
}
