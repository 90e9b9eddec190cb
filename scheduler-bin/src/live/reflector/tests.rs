//! The reflector against a server that answers by a script: pages, half lines, lost positions, refused connections.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::Notify;

use super::*;

/// What the server does with a request.
enum Answer {
    /// Sends a document.
    Json(&'static str),
    /// Sends a Status with this code.
    Status(u16),
    /// Sends pieces and ends.
    Stream(&'static [&'static str]),
    /// Sends pieces and breaks off.
    Broken(&'static [&'static str]),
    /// There is no server.
    Refuse,
}

#[derive(Default)]
struct Seen {
    requests: Vec<String>,
    told: Vec<String>,
}

struct Log(Arc<Mutex<Seen>>);

impl Log {
    fn push(&self, text: String) {
        self.0.lock().expect("no panic").told.push(text);
    }
}

impl Sink for Log {
    fn list_started(&mut self) {
        self.push("[".to_owned());
    }

    fn listed(&mut self, object: &[u8]) {
        self.push(String::from_utf8_lossy(object).into_owned());
    }

    fn list_ended(&mut self) {
        self.push("]".to_owned());
    }

    fn changed(&mut self, event: EventType, object: &[u8]) -> Result<Arc<str>, serde_json::Error> {
        let object: serde_json::Value = serde_json::from_slice(object)?;
        self.push(format!("{event:?} {}", object["n"]));
        Ok(object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into())
    }
}

/// Follows until the script is used up; what was asked for (watches as `watch` and position) and what was told.
async fn follow_script(script: Vec<Answer>) -> (Vec<String>, String) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let done = Arc::new(Notify::new());
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let (log, end) = (Arc::clone(&seen), Arc::clone(&done));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let answer = script.lock().expect("no panic").pop_front();
        let (log, end) = (Arc::clone(&log), Arc::clone(&end));
        async move {
            let Some(answer) = answer else {
                end.notify_one();
                return std::future::pending().await;
            };
            log.lock().expect("no panic").requests.push(in_short(&request));
            let stream = |pieces: &'static [&'static str], breaks: bool| {
                let pieces = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
                let fault = breaks.then(|| Err(std::io::Error::other("connection reset")));
                Response::new(kube_body(StreamBody::new(futures::stream::iter(
                    pieces.chain(fault).collect::<Vec<_>>(),
                ))))
            };
            match answer {
                Answer::Json(text) => {
                    Ok(Response::new(kube_body(http_body_util::Full::from(text).map_err(std::io::Error::other))))
                }
                Answer::Status(code) => {
                    let text =
                        format!(r#"{{"kind":"Status","status":"Failure","message":"no","reason":"","code":{code}}}"#);
                    let mut response =
                        Response::new(kube_body(http_body_util::Full::from(text).map_err(std::io::Error::other)));
                    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
                    Ok(response)
                }
                Answer::Stream(pieces) => Ok(stream(pieces, false)),
                Answer::Broken(pieces) => Ok(stream(pieces, true)),
                Answer::Refuse => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
            }
        }
    });
    let client = Client::new(service, "default");
    let collection = Collection { client, name: "things", path: "/things", fields: "a%3Db" };
    let mut sink = Log(Arc::clone(&seen));
    tokio::select! {
        () = follow(&collection, &mut sink) => unreachable!("it follows for ever"),
        () = done.notified() => {}
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("the script was not used up"),
    }
    let mut seen = seen.lock().expect("no panic");
    (std::mem::take(&mut seen.requests), seen.told.join(" "))
}

type BoxBody = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

fn kube_body(body: impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static) -> BoxBody {
    body.boxed_unsync()
}

fn in_short(request: &Request<kube::client::Body>) -> String {
    let query = request.uri().query().unwrap_or_default();
    assert!(query.starts_with("fieldSelector=a%3Db"), "{query}");
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)).unwrap_or("-");
    if query.contains("watch=true") {
        format!("watch {}", value("resourceVersion="))
    } else if query.contains("resourceVersion=0") {
        "list cached".to_owned()
    } else {
        format!("list {} {}", value("limit="), value("continue="))
    }
}

const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":[1]}"#;

#[tokio::test]
async fn pages_are_one_list_and_the_watch_begins_where_it_was_true() {
    let (requests, told) = follow_script(vec![
        Answer::Status(410),
        Answer::Json(r#"{"metadata":{"resourceVersion":"5","continue":"a/b"},"items":[1,2]}"#),
        Answer::Json(r#"{"metadata":{"resourceVersion":"5"},"items":[3]}"#),
        Answer::Stream(&[
            "{\"type\":\"ADDED\",\"object\":{\"n\":1,\"metadata\":{\"resourceVersion\":\"6\"}}}\n{\"type\":\"MODI",
            "FIED\",\"object\":{\"n\":2,\"metadata\":{\"resourceVersion\":\"7\"}}}\n",
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n",
        ]),
    ])
    .await;
    assert_eq!(requests, ["list cached", "list 500 -", "list 500 a%2Fb", "watch 5"]);
    assert_eq!(told, "[ [ 1 2 3 ] Added 1 Modified 2 Bookmark null");
}

#[tokio::test]
async fn half_a_line_is_dropped_and_told_again_from_the_last_position() {
    let (requests, told) = follow_script(vec![
        Answer::Json(LIST),
        Answer::Broken(&[
            "{\"type\":\"ADDED\",\"object\":{\"n\":1,\"metadata\":{\"resourceVersion\":\"6\"}}}\n{\"type\":\"DELETED\",\"obj",
        ]),
        Answer::Stream(&["{\"type\":\"DELETED\",\"object\":{\"n\":1,\"metadata\":{\"resourceVersion\":\"7\"}}}\n"]),
        Answer::Stream(&["{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n"]),
    ])
    .await;
    assert_eq!(requests, ["list cached", "watch 5", "watch 6", "watch 7"]);
    assert_eq!(told, "[ 1 ] Added 1 Deleted 1 Bookmark null");
}

#[tokio::test]
async fn a_lost_position_means_a_new_list() {
    for lost in [
        Answer::Status(410),
        Answer::Stream(&[
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n",
        ]),
        Answer::Stream(&["{\"type\":\"ADDED\",\"object\":{\"n\":}}\n"]),
    ] {
        let (requests, told) = follow_script(vec![Answer::Json(LIST), lost, Answer::Json(LIST)]).await;
        assert_eq!(requests, ["list cached", "watch 5", "list 500 -"]);
        assert_eq!(told, "[ 1 ] [ 1 ]");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_asked_again_from_the_same_position() {
    for away in [
        Answer::Refuse,
        Answer::Status(503),
        Answer::Stream(&["{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500,\"message\":\"etcd\"}}\n"]),
    ] {
        let added =
            Answer::Stream(&["{\"type\":\"ADDED\",\"object\":{\"n\":1,\"metadata\":{\"resourceVersion\":\"6\"}}}\n"]);
        let (requests, told) = follow_script(vec![Answer::Json(LIST), away, added]).await;
        assert_eq!(requests, ["list cached", "watch 5", "watch 5"]);
        assert_eq!(told, "[ 1 ] Added 1");
    }
    let (requests, told) = follow_script(vec![Answer::Refuse, Answer::Json(LIST)]).await;
    assert_eq!(requests, ["list cached", "list cached"]);
    assert_eq!(told, "[ [ 1 ]");
}

#[tokio::test]
async fn pages_that_get_too_old_are_asked_for_at_once() {
    let (requests, told) = follow_script(vec![
        Answer::Status(410),
        Answer::Json(r#"{"metadata":{"resourceVersion":"5","continue":"t"},"items":[1]}"#),
        Answer::Status(410),
        Answer::Json(LIST),
    ])
    .await;
    assert_eq!(requests, ["list cached", "list 500 -", "list 500 t", "list - -"]);
    assert_eq!(told, "[ [ 1 [ 1 ]");
}

#[test]
fn pauses_grow_to_a_limit() {
    let mut pauses = Pauses::default();
    let first = pauses.next();
    assert!((FIRST_PAUSE..FIRST_PAUSE * 2).contains(&first), "{first:?}");
    let last = (0..100).map(|_| pauses.next()).last().expect("many");
    assert!((LONGEST_PAUSE..LONGEST_PAUSE * 2).contains(&last), "{last:?}");
}
