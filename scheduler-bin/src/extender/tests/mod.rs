//! Extenders on loopback ports, called as the engine calls them.

mod decisions;
mod server;
#[cfg(feature = "offline-cluster")]
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::framework::{Extender, MetaVictims, Victims};
use scheduler_core::model::{Object, ObjectRef, Pod};
use scheduler_core::testing::{node, pod};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{ConfiguredExtender, Extenders, Wanted, WholeObjects};
use server::Server;

/// The configuration of one extender with these fields besides its URL.
fn configuration(url: &str, fields: Value) -> KubeSchedulerConfiguration {
    let mut extender = fields;
    extender["urlPrefix"] = json!(url);
    KubeSchedulerConfiguration::from_value(&json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": [extender],
    }))
    .expect("the configuration is valid")
}

/// The extender, with whole objects: pod `p`, pod `v` on node `a`, and the nodes `a` and `b`, each with an annotation.
fn extender(url: &str, fields: Value) -> Arc<ConfiguredExtender> {
    let objects = Arc::new(WholeObjects::new(Wanted::ALL));
    let annotated = |name: &str| json!({ "metadata": { "name": name, "annotations": { "of": name } } });
    for name in ["a", "b"] {
        objects.applied_value(&Object::Node(Arc::new(node(name).into())), Some(annotated(name)));
    }
    for name in ["p", "v"] {
        objects.applied_value(&Object::Pod(Arc::new(pod(name).into())), Some(annotated(name)));
    }
    let extenders = Extenders::of_simulation(&configuration(url, fields), &objects).expect("it is built");
    Arc::clone(&extenders.all()[0])
}

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn json_answer(value: &Value) -> (u16, Vec<u8>) {
    (200, value.to_string().into_bytes())
}

/// What a filter call about the nodes `a` and `b` comes to: remaining nodes, or the error.
fn filtered(status: u16, body: &str, fields: Value) -> Result<Vec<String>, String> {
    let body = body.as_bytes().to_vec();
    let server = Server::start(move |_, _| (status, body.clone()));
    let extender = extender(&server.url, fields);
    let result = extender.filter(&pod("p").into(), &names(&["a", "b"]));
    result
        .map(|result| result.nodes.iter().map(ToString::to_string).collect())
        .map_err(|error| error.to_string().replace(&server.url, "URL"))
}

#[test]
fn whole_objects_or_names_are_sent_in_the_form_of_the_go_structs() {
    let annotated = |name: &str| json!({ "metadata": { "name": name, "annotations": { "of": name } } });
    for (names_only, want) in [
        (
            false,
            json!({
                "Pod": annotated("p"), "NodeNames": null,
                "Nodes": { "metadata": {}, "items": [annotated("a"), annotated("b")] },
            }),
        ),
        (true, json!({ "Pod": annotated("p"), "Nodes": null, "NodeNames": ["a", "b"] })),
    ] {
        let server = Server::start(|verb, sent| match verb {
            "filter" => json_answer(&json!({
                "Nodes": sent["Nodes"], "NodeNames": sent["NodeNames"], "FailedNodes": { "b": "later" },
                "FailedAndUnresolvableNodes": null, "Error": "",
            })),
            _ => json_answer(&json!([{ "Host": "a", "Score": 7 }, { "host": "b", "score": 0 }])),
        });
        let extender = extender(
            &server.url,
            json!({
                "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 3, "nodeCacheCapable": names_only,
            }),
        );
        let (pod, nodes) = (Pod::from(pod("p")), names(&["a", "b"]));
        let filtered = extender.filter(&pod, &nodes).expect("it answers");
        assert_eq!(filtered.nodes, nodes);
        assert_eq!(filtered.failed, BTreeMap::from([("b".into(), "later".to_owned())]));
        assert_eq!(server.last("filter"), Some(want.clone()));
        let scores = extender.prioritize(&pod, &nodes).expect("it answers");
        assert_eq!(scores, [("a".into(), 7), ("b".into(), 0)]);
        assert_eq!((server.last("prioritize"), extender.weight()), (Some(want), 3));
    }
}

#[test]
fn victims_are_sent_whole_or_as_uids_and_come_back_as_uids() {
    let annotated = |name: &str| json!({ "metadata": { "name": name, "annotations": { "of": name } } });
    let victims = BTreeMap::from([(
        Arc::from("a"),
        Victims { pods: vec![Arc::new(pod("v").on("a").into())], n_pdb_violations: 1 },
    )]);
    for (uids_only, want) in [
        (
            false,
            json!({
                "Pod": annotated("p"), "NodeNameToMetaVictims": null,
                "NodeNameToVictims": { "a": { "Pods": [annotated("v")], "NumPDBViolations": 1 } },
            }),
        ),
        (
            true,
            json!({
                "Pod": annotated("p"), "NodeNameToVictims": null,
                "NodeNameToMetaVictims": { "a": { "Pods": [{ "UID": "v" }], "NumPDBViolations": 1 } },
            }),
        ),
    ] {
        let server = Server::start(|_, _| {
            json_answer(&json!({
                "NodeNameToMetaVictims": { "a": { "Pods": [{ "UID": "w" }], "NumPDBViolations": 2 }, "b": null },
            }))
        });
        let extender = extender(&server.url, json!({ "preemptVerb": "preempt", "nodeCacheCapable": uids_only }));
        let answer = extender.process_preemption(&pod("p").into(), &victims).expect("it answers");
        let of_a = MetaVictims { uids: names(&["w"]), n_pdb_violations: 2 };
        assert_eq!(answer, BTreeMap::from([("a".into(), of_a), ("b".into(), MetaVictims::default())]));
        assert_eq!(server.last("preempt"), Some(want));
    }
}

#[tokio::test]
async fn a_binding_names_the_pod_and_the_node() {
    let server = Server::start(|_, sent| match sent["Node"].as_str() {
        Some("a") => json_answer(&json!({ "Error": "" })),
        _ => json_answer(&json!({ "Error": "no such room" })),
    });
    let extender = extender(&server.url, json!({ "bindVerb": "bind" }));
    let pod = ObjectRef { namespace: "ns".into(), name: "p".into(), uid: "u".into(), ..ObjectRef::default() };
    assert_eq!(extender.bind_pod(&pod, "a").await, Ok(()));
    let want = json!({ "PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a" });
    assert_eq!(server.last("bind"), Some(want));
    assert_eq!(extender.bind_pod(&pod, "b").await, Err("no such room".to_owned()));
}

#[test]
fn what_the_answer_to_a_filter_call_means() {
    let whole = || json!({ "filterVerb": "filter" });
    let cached = || json!({ "filterVerb": "filter", "nodeCacheCapable": true });
    let a = || Ok(vec!["a".to_owned()]);
    let none = || Ok(Vec::new());
    let cases = [
        ("nodes", 200, r#"{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#, whole(), a()),
        ("names of fields in lower case", 200, r#"{"nodes":{"items":[{"metadata":{"name":"a"}}]}}"#, whole(), a()),
        ("names", 200, r#"{"NodeNames":["a"]}"#, cached(), a()),
        ("nodes in place of names", 200, r#"{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#, cached(), a()),
        ("names in place of nodes count for nothing", 200, r#"{"NodeNames":["a"]}"#, whole(), none()),
        ("neither", 200, "{}", whole(), none()),
        ("an empty list", 200, r#"{"Nodes":{"items":null}}"#, whole(), none()),
        ("null", 200, "null", whole(), none()),
        ("an error", 200, r#"{"NodeNames":["a"],"Error":"out of order"}"#, cached(), Err("out of order".to_owned())),
        (
            "an unknown node",
            200,
            r#"{"NodeNames":["a","z"]}"#,
            cached(),
            Err(r#"extender "URL" claims a filtered node "z" which is not found in the input node list"#.to_owned()),
        ),
        ("500", 500, "{}", whole(), Err("failed filter with extender at URL URL/filter, code 500".to_owned())),
        ("201", 201, "{}", whole(), Err("failed filter with extender at URL URL/filter, code 201".to_owned())),
        ("a redirection", 302, "", whole(), Err("failed filter with extender at URL URL/filter, code 302".to_owned())),
        ("nothing", 200, "", whole(), Err("EOF".to_owned())),
        ("no JSON", 200, "<html>", whole(), Err("invalid character '<' looking for beginning of value".to_owned())),
        (
            "a list",
            200,
            "[]",
            whole(),
            Err("json: cannot unmarshal array into Go value of type v1.ExtenderFilterResult".to_owned()),
        ),
    ];
    for (name, status, body, fields, want) in cases {
        assert_eq!(filtered(status, body, fields), want, "{name}");
    }
}

#[test]
fn nobody_there_is_told_as_kube_scheduler_tells_it() {
    let filter = |url: &str| {
        let extender = extender(url, json!({ "filterVerb": "filter" }));
        extender.filter(&pod("p").into(), &names(&["a"])).expect_err("nobody answers").to_string()
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    assert_eq!(
        filter(&format!("http://{free}/")),
        format!("Post \"http://{free}/filter\": dial tcp {free}: connect: connection refused")
    );
    assert_eq!(filter("nowhere"), r#"Post "nowhere/filter": unsupported protocol scheme """#);
    assert_eq!(filter("ftp://x"), r#"Post "ftp://x/filter": unsupported protocol scheme "ftp""#);
    assert_eq!(
        filter("http://does-not-exist.invalid/x"),
        r#"Post "http://does-not-exist.invalid/x/filter": dial tcp: lookup does-not-exist.invalid: no such host"#
    );
}

/// Answers one call with these bytes, and keeps the connection open for as long as the test asks.
fn raw(answer: &'static str, stays_open: bool) -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it is called");
        let mut sent = Vec::new();
        // The call is whole with the closing braces of what is asked.
        while !sent.ends_with(b"\"NodeNames\":null}") {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).expect("the call is sent");
            sent.extend_from_slice(&piece[..length]);
        }
        stream.write_all(answer.as_bytes()).expect("the answer is read");
        if stays_open {
            // Until the caller hangs up.
            let _ = stream.read(&mut [0; 1]);
        }
    });
    url
}

#[test]
fn an_answer_ends_with_its_first_value() {
    const VALUE: &str = r#"{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#;
    let filter = |answer: String, stays_open| {
        let extender =
            extender(&raw(answer.leak(), stays_open), json!({ "filterVerb": "filter", "httpTimeout": "1h" }));
        let result = extender.filter(&pod("p").into(), &names(&["a", "b"]));
        result.map(|result| result.nodes).map_err(|error| error.to_string())
    };
    let chunk = format!("{:x}\r\n{VALUE}\r\n", VALUE.len());
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let long = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
    let a = Ok(names(&["a"]));
    assert_eq!(filter(format!("{chunked}{chunk}"), true), a, "the last chunk never comes");
    assert_eq!(filter(format!("{long}\n {VALUE}"), true), a, "it is shorter than announced");
    assert_eq!(filter(format!("{long}{VALUE}"), false), a, "and the connection is closed");
    assert_eq!(filter(format!("{long}{}", &VALUE[..9]), false), Err("unexpected EOF".to_owned()));
}

#[test]
fn an_answer_that_does_not_come_ends_with_the_time_limit() {
    let server = Server::with(None, Box::new(|_, _| Box::pin(std::future::pending())));
    let extender = extender(&server.url, json!({ "filterVerb": "filter", "httpTimeout": "200ms" }));
    let error = extender.filter(&pod("p").into(), &names(&["a"])).expect_err("it never answers").to_string();
    let url = format!("{}/filter", server.url);
    let want = format!("Post \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    assert_eq!(error, want);
}

#[test]
fn the_end_of_the_scheduler_ends_a_call() {
    let server = Server::with(None, Box::new(|_, _| Box::pin(std::future::pending())));
    let stop = CancellationToken::new();
    let configuration = configuration(&server.url, json!({ "filterVerb": "filter", "httpTimeout": "1h" }));
    let extenders = Extenders::over_http(&configuration, false, &stop).expect("it is built");
    let extender = Arc::clone(&extenders.all()[0]);
    let call = std::thread::spawn(move || extender.filter(&pod("p").into(), &names(&["a"])));
    let began = Instant::now();
    while server.last("filter").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is never called");
        std::thread::yield_now();
    }
    stop.cancel();
    let error = call.join().expect("no panic").expect_err("nobody answered");
    assert_eq!(error.to_string(), "context canceled");
}

#[tokio::test]
async fn the_end_of_the_scheduler_ends_a_binding_that_hangs() {
    let server = Server::with(None, Box::new(|_, _| Box::pin(std::future::pending())));
    let stop = CancellationToken::new();
    let configuration = configuration(&server.url, json!({ "bindVerb": "bind", "httpTimeout": "1h" }));
    let extenders = Extenders::over_http(&configuration, false, &stop).expect("it is built");
    let extender = Arc::clone(&extenders.all()[0]);
    let call = tokio::spawn(async move { extender.bind_pod(&ObjectRef::default(), "a").await });
    let began = Instant::now();
    while server.last("bind").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is never called");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.cancel();
    assert_eq!(call.await.expect("no panic"), Err("context canceled".to_owned()));
}

/// Upstream v1.36.2: extender_test.go TestIsInterested, with an extended resource: others are no managed resources.
#[test]
fn pods_that_ask_for_a_managed_resource_are_of_interest() {
    let managed = json!({ "filterVerb": "filter", "managedResources": [{ "name": "example.com/gpu" }] });
    let (all, some) = (extender("http://x", json!({ "filterVerb": "filter" })), extender("http://x", managed));
    for (name, pod, want) in [
        ("no request", pod("p"), false),
        ("another one", pod("p").cpu("1").request("example.com/tpu", "1"), false),
        ("a request", pod("p").request("example.com/gpu", "1"), true),
        ("a request of none", pod("p").request("example.com/gpu", "0"), true),
    ] {
        let pod = Pod::from(pod);
        assert_eq!((all.is_interested(&pod), some.is_interested(&pod)), (true, want), "{name}");
    }
}

#[test]
fn those_that_may_be_ignored_come_last() {
    let extender = |url: &str, ignorable: bool| json!({ "urlPrefix": url, "filterVerb": "f", "ignorable": ignorable });
    let configuration = KubeSchedulerConfiguration::from_value(&json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "extenders": [extender("http://1", true), extender("http://2", false), extender("http://3", true)],
    }))
    .expect("valid");
    let extenders = Extenders::of_recording(&configuration);
    let order: Vec<&str> = extenders.all().iter().map(|extender| extender.name()).collect();
    assert_eq!(order, ["http://2", "http://1", "http://3"]);
}

#[test]
fn only_what_extenders_want_to_see_is_kept() {
    let wanted = |fields: Value| super::wanted(&configuration("http://x", fields));
    let none = Wanted::default();
    assert_eq!(wanted(json!({ "bindVerb": "b" })), none);
    let all = Wanted { pods: true, nodes: true, bound_pods: true };
    assert_eq!(wanted(json!({ "filterVerb": "f" })), Wanted { bound_pods: false, ..all });
    assert_eq!(wanted(json!({ "filterVerb": "f", "nodeCacheCapable": true })), Wanted { pods: true, ..none });
    assert_eq!(wanted(json!({ "preemptVerb": "p" })), Wanted { nodes: false, ..all });
}
