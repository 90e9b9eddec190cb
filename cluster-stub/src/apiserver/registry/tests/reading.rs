//! Lists, pages, views and watches; the fixture is the parent's.

use super::*;

#[tokio::test]
async fn lists_select_and_page_at_one_version() {
    let client = Client::new().await;
    for (name, label) in [("a", "1"), ("b", "2"), ("c", "1")] {
        client.create("configmaps", name, json!({"labels": {"l": label}})).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or("").to_string()).collect()
    };
    let (_, all) = client.json("GET", CMS, Value::Null).await;
    assert_eq!((all["kind"].as_str(), names(&all)), (Some("ConfigMapList"), vec!["a".into(), "b".into(), "c".into()]));
    assert_eq!(names(&client.json("GET", &format!("{CMS}?labelSelector=l%3D1"), Value::Null).await.1), ["a", "c"]);
    assert_eq!(
        names(&client.json("GET", &format!("{CMS}?fieldSelector=metadata.name%3Db"), Value::Null).await.1),
        ["b"]
    );
    assert_eq!(names(&client.json("GET", "/api/v1/configmaps", Value::Null).await.1).len(), 3);
    let (_, first) = client.json("GET", &format!("{CMS}?limit=2"), Value::Null).await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a".into(), "b".into()], &json!(1)));
    client.create("configmaps", "d", Value::Null).await;
    let token = first["metadata"]["continue"].as_str().expect("there is a second page");
    let (_, second) = client.json("GET", &format!("{CMS}?limit=2&continue={token}"), Value::Null).await;
    assert_eq!(names(&second), ["c"], "the second page is as old as the first");
    assert_eq!(second["metadata"], json!({"resourceVersion": first["metadata"]["resourceVersion"]}));
    let version = first["metadata"]["resourceVersion"].as_str().expect("a list has a version");
    let exact = format!("{CMS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.json("GET", &exact, Value::Null).await.1).len(), 3);
    let pages = format!("{CMS}?resourceVersion={version}&limit=9");
    assert_eq!(names(&client.json("GET", &pages, Value::Null).await.1).len(), 3, "pages of a version are exact");
    let newest = format!("{CMS}?limit=9");
    assert_eq!(names(&client.json("GET", &newest, Value::Null).await.1).len(), 4);
}

#[tokio::test]
async fn versions_and_tokens_that_cannot_be_read_are_refused_as_each_verb_does() {
    let client = Client::new().await;
    client.create("configmaps", "a", Value::Null).await;
    client.create("configmaps", "b", Value::Null).await;
    let (_, first) = client.json("GET", &format!("{CMS}?limit=1"), Value::Null).await;
    let token = first["metadata"]["continue"].as_str().expect("there is a second page");
    let unread = "resourceVersion: Invalid value: \"new\": strconv.ParseUint: parsing \"new\": invalid syntax";
    for (query, status, message) in [
        ("?resourceVersion=new".to_owned(), 400, format!("invalid resource version: {unread}")),
        ("?watch=1&resourceVersion=new".to_owned(), 500, unread.to_owned()),
        ("/a?resourceVersion=new".to_owned(), 500, unread.to_owned()),
        ("?continue=e30".to_owned(), 400, "invalid continue token: continue key is not valid".to_owned()),
        (
            format!("?resourceVersion=5&continue={token}"),
            400,
            "specifying resource version is not allowed when using continue".to_owned(),
        ),
    ] {
        let (got, refused) = client.json("GET", &format!("{CMS}{query}"), Value::Null).await;
        assert_eq!(got, status, "{query}: {refused}");
        let said = refused["message"].as_str().unwrap_or_default();
        assert!(said.starts_with(&message), "{query}: {said}");
    }
}

#[tokio::test]
async fn pages_show_each_selected_object_once() {
    let client = Client::new().await;
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        let label = if matches!(name, "b" | "f" | "g") { "1" } else { "2" };
        client.create("configmaps", name, json!({"labels": {"l": label}})).await;
    }
    let selected = [json!(null), json!(null)];
    for (selector, want, remaining) in
        [("", "abcdefg", &[json!(5), json!(3), json!(1), json!(null)][..]), ("labelSelector=l%3D1&", "bfg", &selected)]
    {
        let (mut token, mut seen, mut left) = (String::new(), String::new(), Vec::new());
        loop {
            let (_, page) = client.json("GET", &format!("{CMS}?{selector}limit=2&continue={token}"), Value::Null).await;
            for item in page["items"].as_array().expect("a list") {
                seen.push_str(item["metadata"]["name"].as_str().expect("a name"));
            }
            left.push(page["metadata"]["remainingItemCount"].clone());
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        assert_eq!((seen.as_str(), left.as_slice()), (want, remaining), "{selector}");
    }
}

#[tokio::test]
async fn tables_and_metadata_are_views_of_the_same_objects() {
    let client = Client::new().await;
    client.create("configmaps", "a", json!({"data": {"k": "v"}})).await;
    let view = |accept: &'static str| {
        let client = &client;
        async move {
            let response = client.send("GET", CMS, &[("accept", accept)], "").await;
            let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
            serde_json::from_slice::<Value>(&bytes).expect("JSON")
        }
    };
    let table = view("application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!((table["kind"].as_str(), &table["rows"][0]["cells"]), (Some("Table"), &json!(["a"])));
    let metadata = view("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").await;
    assert_eq!(metadata["items"][0]["metadata"]["name"], "a");
    assert_eq!(metadata["items"][0].get("data"), None);
}

#[tokio::test]
async fn a_watch_follows_from_any_version_that_is_kept() {
    let client = Client::new().await;
    let first = client.create("configmaps", "r0", Value::Null).await;
    client.create("configmaps", "r1", Value::Null).await;
    client.json("DELETE", &format!("{CMS}/r1"), Value::Null).await;
    let version = first["metadata"]["resourceVersion"].as_str().expect("a version");
    let events = client.events(&format!("{CMS}?watch=1&resourceVersion={version}"), 2).await;
    assert_eq!(seen(&events), ["ADDED r1", "DELETED r1"]);
    let versions: Vec<i64> = events
        .iter()
        .filter_map(|event| event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok())
        .collect();
    assert!(versions[0] < versions[1], "a deletion has a version of its own: {versions:?}");
    let events = client.events(&format!("{CMS}?watch=1"), 1).await;
    assert_eq!(seen(&events), ["ADDED r0"]);
    let uri =
        format!("{CMS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let events = client.events(&uri, 2).await;
    assert_eq!(seen(&events), ["ADDED r0", "BOOKMARK "]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(
        client.events(&format!("{CMS}?watch=1&resourceVersion={version}0000&timeoutSeconds=1"), 1).await.is_empty()
    );
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let client = Client::new().await;
    client.create("configmaps", "w", json!({"labels": {"k": "1"}})).await;
    let response = client.send("GET", &format!("{CMS}?watch=1&labelSelector=k%3D1"), &[], "").await;
    for label in ["\"2\"", "\"1\"", "null"] {
        let patch = format!("{{\"metadata\":{{\"labels\":{{\"k\":{label}}}}}}}");
        let (code, _) = client.call("PATCH", &format!("{CMS}/w"), "application/merge-patch+json", &patch).await;
        assert_eq!(code, 200);
    }
    let events = read_events(response, 4).await;
    assert_eq!(seen(&events), ["ADDED w", "DELETED w", "ADDED w", "DELETED w"]);
    assert_eq!(events[1]["object"]["metadata"]["labels"]["k"], "1", "what leaves is shown as it was");
}

#[tokio::test]
async fn a_replayed_watch_is_the_list() {
    let client = Client::new().await;
    let response = client.send("GET", &format!("{CMS}?watch=1"), &[], "").await;
    let mut n = 0;
    for round in 0..40 {
        let name = format!("o{}", round * 7 % 5);
        let (code, _) = match round % 3 {
            0 | 1 => {
                let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"r": round.to_string()}});
                let uri = format!("{CMS}/{name}?fieldManager=m");
                client.call("PATCH", &uri, "application/apply-patch+yaml", &config.to_string()).await
            }
            _ => client.json("DELETE", &format!("{CMS}/{name}"), Value::Null).await,
        };
        n += usize::from(code < 300);
    }
    let mut replayed = std::collections::BTreeMap::new();
    for event in read_events(response, n).await {
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("").to_string();
        if event["type"] == "DELETED" {
            replayed.remove(&name);
        } else {
            replayed.insert(name, event["object"].clone());
        }
    }
    let (_, list) = client.json("GET", CMS, Value::Null).await;
    let listed = list["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(replayed.into_values().collect::<Vec<_>>(), listed);
}
