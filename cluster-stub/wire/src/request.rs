//! What a request path means: verb, group, version, resource, subresource, namespace, name. Nothing is looked up here.

use http::{Method, Uri};

/// What a request asks for, as far as method, path and query tell.
///
/// Upstream: apiserver v1.36.2 `pkg/endpoints/request/requestinfo.go`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path names a resource, below `/api/<version>` or `/apis/<group>/<version>`.
    pub is_resource_request: bool,
    /// The decoded path.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method in lower case.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version, e.g. `v1`.
    pub version: String,
    /// Namespace, empty for cluster scope. For the resource `namespaces` it equals the name.
    pub namespace: String,
    /// Plural resource, e.g. `pods`.
    pub resource: String,
    /// Subresource, e.g. `status`; empty if none.
    pub subresource: String,
    /// Object name; for lists and watches with an exact `metadata.name` field selector, that name.
    pub name: String,
    /// Path segments from the resource on.
    pub parts: Vec<String>,
    /// Whether the path has the deprecated `/watch/` prefix.
    pub watch_prefix: bool,
    /// The unparsed `labelSelector` of list, watch and deletecollection.
    pub label_selector: String,
    /// The unparsed `fieldSelector` of list, watch and deletecollection.
    pub field_selector: String,
}

impl RequestInfo {
    /// Reads method, path and query. The error is a text for a 500, as upstream answers an undecidable path.
    pub fn parse(method: &Method, uri: &Uri) -> Result<RequestInfo, String> {
        let path = percent_decode(uri.path());
        let mut info = RequestInfo { verb: method.as_str().to_ascii_lowercase(), path, ..RequestInfo::default() };
        let path = info.path.clone();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let mut parts = match parts.as_slice() {
            ["api", rest @ ..] if rest.len() >= 2 => rest,
            ["apis", group, rest @ ..] if rest.len() >= 2 => {
                info.group = (*group).to_string();
                rest
            }
            _ => return Ok(info),
        };
        info.is_resource_request = true;
        info.version = parts[0].to_string();
        parts = &parts[1..];
        if matches!(parts[0], "watch" | "proxy") {
            if parts.len() < 2 {
                return Err(format!("unable to determine kind and namespace from url, {uri}"));
            }
            info.verb = parts[0].to_string();
            info.watch_prefix = true;
            parts = &parts[1..];
        } else {
            info.verb = match *method {
                Method::POST => "create",
                Method::GET | Method::HEAD => "get",
                Method::PUT => "update",
                Method::PATCH => "patch",
                Method::DELETE => "delete",
                _ => "",
            }
            .to_string();
        }
        if parts[0] == "namespaces" && parts.len() > 1 {
            info.namespace = parts[1].to_string();
            if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
                parts = &parts[2..];
            }
        }
        info.parts = parts.iter().map(|part| (*part).to_string()).collect();
        info.resource = parts[0].to_string();
        info.name = parts.get(1).map(ToString::to_string).unwrap_or_default();
        if info.verb != "proxy" {
            info.subresource = parts.get(2).map(ToString::to_string).unwrap_or_default();
        }
        info.read_query(uri.query().unwrap_or(""));
        Ok(info)
    }

    fn read_query(&mut self, query: &str) {
        let query = Query::parse(query);
        if self.name.is_empty() && self.verb == "get" {
            let watch =
                query.get("watch").is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"));
            self.verb = if watch { "watch" } else { "list" }.to_string();
            if let Some(name) = query.get("fieldSelector").and_then(exact_name) {
                self.name = name.to_string();
            }
        }
        if self.name.is_empty() && self.verb == "delete" {
            self.verb = "deletecollection".to_string();
        }
        if !self.watch_prefix && matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") {
            self.field_selector = query.get("fieldSelector").unwrap_or("").to_string();
            self.label_selector = query.get("labelSelector").unwrap_or("").to_string();
        }
    }
}

/// The name in a `metadata.name=x` term, if it can be a path segment.
fn exact_name(selector: &str) -> Option<&str> {
    let term = selector.split(',').find_map(|term| term.strip_prefix("metadata.name="))?;
    let name = term.strip_prefix('=').unwrap_or(term);
    let fits = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%', '\\']);
    fits.then_some(name)
}

/// A decoded query string; keys may repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Splits and decodes `a=b&c=d`.
    pub fn parse(query: &str) -> Query {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (percent_decode(&key.replace('+', " ")), percent_decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All values of a key, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// The text with `%` and two digits taken for the byte that they stand for; what is then no UTF-8 is replaced.
#[must_use]
pub fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_string();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        let decoded = match tail {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        out.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let method = Method::from_bytes(method.as_bytes()).expect("a method of the table");
        RequestInfo::parse(&method, &uri.parse().expect("a path of the table")).expect("a decidable path")
    }

    #[test]
    fn resource_paths_give_verb_and_coordinates() {
        // method, uri, [verb, group, version, namespace, resource, name, subresource]
        let cases = [
            ("GET", "/api/v1/pods", ["list", "", "v1", "", "pods", "", ""]),
            ("GET", "/api/v1/namespaces/ns/pods", ["list", "", "v1", "ns", "pods", "", ""]),
            ("GET", "/api/v1/namespaces/ns/pods?watch=1", ["watch", "", "v1", "ns", "pods", "", ""]),
            ("GET", "/api/v1/namespaces/ns/pods?watch=false", ["list", "", "v1", "ns", "pods", "", ""]),
            ("GET", "/api/v1/namespaces/ns/pods/p?watch=1", ["get", "", "v1", "ns", "pods", "p", ""]),
            ("POST", "/api/v1/namespaces/ns/pods/p/binding", ["create", "", "v1", "ns", "pods", "p", "binding"]),
            (
                "PUT",
                "/apis/apps/v1/namespaces/ns/deployments/d/scale",
                ["update", "apps", "v1", "ns", "deployments", "d", "scale"],
            ),
            ("PATCH", "/api/v1/namespaces/ns", ["patch", "", "v1", "ns", "namespaces", "ns", ""]),
            ("PUT", "/api/v1/namespaces/ns/finalize", ["update", "", "v1", "ns", "namespaces", "ns", "finalize"]),
            ("DELETE", "/api/v1/namespaces/ns/pods", ["deletecollection", "", "v1", "ns", "pods", "", ""]),
            ("DELETE", "/api/v1/nodes/n", ["delete", "", "v1", "", "nodes", "n", ""]),
            ("GET", "/api/v1/watch/namespaces/ns/pods", ["watch", "", "v1", "ns", "pods", "", ""]),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da", ["list", "", "v1", "", "pods", "a", ""]),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Da", ["list", "", "v1", "", "pods", "", ""]),
        ];
        for (method, uri, want) in cases {
            let info = parse(method, uri);
            let got = [
                &info.verb,
                &info.group,
                &info.version,
                &info.namespace,
                &info.resource,
                &info.name,
                &info.subresource,
            ];
            assert!(info.is_resource_request, "{uri}");
            assert_eq!(got.map(String::as_str), want, "{method} {uri}");
        }
    }

    #[test]
    fn other_paths_are_no_resource_requests() {
        for uri in ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/openapi/v3/api/v1"] {
            let info = parse("GET", uri);
            assert!(!info.is_resource_request, "{uri}");
            assert_eq!(info.verb, "get");
        }
    }

    #[test]
    fn query_decodes_escapes_and_plus() {
        let query = Query::parse("a=1%2C2&b=x+y&a=3&c");
        assert_eq!(query.get("a"), Some("1,2"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1,2", "3"]);
        assert_eq!(query.get("b"), Some("x y"));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.get("d"), None);
    }
}
