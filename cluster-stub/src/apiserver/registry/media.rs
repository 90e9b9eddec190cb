//! Content negotiation: which form of an answer a client wants, and what its body is in. Nothing is encoded here.
//!
//! Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/negotiation`.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};

use crate::apiserver::request::Query;
use crate::apiserver::status::ApiError;

/// What upstream lists in a 406 or 415. Answers are never protobuf: clients that prefer it take JSON as well.
pub(super) const MEDIA_TYPES: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Compact or indented JSON.
    Json,
    /// YAML.
    Yaml,
    /// Protobuf; in request bodies only.
    Protobuf,
}

/// What the answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The object itself.
    Object,
    /// A `Table`.
    Table,
    /// `PartialObjectMetadata` or its list.
    Metadata,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// Object, table or metadata.
    pub view: View,
    /// Whether JSON is indented.
    pub pretty: bool,
    /// Whether the client takes gzip.
    pub gzip: bool,
}

impl Accept {
    /// Reads the request's headers and query. `views` tells whether tables and metadata can be served here.
    ///
    /// # Errors
    /// 406 when nothing that is accepted can be served.
    pub fn negotiate(headers: &HeaderMap, query: &Query, views: bool) -> Result<Accept, ApiError> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let mut clauses: Vec<(&str, f32)> =
            accept.split(',').map(str::trim).filter(|text| !text.is_empty()).map(with_quality).collect();
        // A stable sort: among equals the order of the header counts.
        clauses.sort_by(|a, b| b.1.total_cmp(&a.1));
        let chosen = if clauses.is_empty() {
            Some((Encoding::Json, View::Object, false))
        } else {
            clauses.iter().find_map(|(clause, _)| read_clause(clause, views))
        };
        let Some((encoding, view, pretty)) = chosen else {
            return Err(ApiError::not_acceptable(&MEDIA_TYPES));
        };
        let gzip = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let gzip = gzip.is_some_and(|value| value.split(',').any(|part| part.trim().split(';').next() == Some("gzip")));
        Ok(Accept { encoding, view, pretty: wants_pretty(headers, query).unwrap_or(pretty), gzip })
    }
}

fn with_quality(clause: &str) -> (&str, f32) {
    let quality = clause.split(';').skip(1).find_map(|parameter| parameter.trim().strip_prefix("q="));
    (clause, quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0))
}

fn read_clause(clause: &str, views: bool) -> Option<(Encoding, View, bool)> {
    let mut parts = clause.split(';').map(str::trim);
    let encoding = match parts.next()? {
        "application/json" | "*/*" | "application/*" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let (mut kind, mut version, mut group, mut pretty) = ("", "", "", false);
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("v", value)) => version = value,
            Some(("g", value)) => group = value,
            Some(("pretty", value)) => pretty = value == "1",
            Some(("stream", value)) if value != "watch" => return None,
            _ => {}
        }
    }
    let ours = group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1");
    let view = match kind {
        "" => View::Object,
        "Table" if ours && views => View::Table,
        "PartialObjectMetadata" | "PartialObjectMetadataList" if ours && views => View::Metadata,
        _ => return None,
    };
    Some((encoding, view, pretty))
}

fn wants_pretty(headers: &HeaderMap, query: &Query) -> Option<bool> {
    if let Some(value) = query.get("pretty").filter(|value| !value.is_empty()) {
        return Some(matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"));
    }
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|browser| agent.starts_with(browser)).then_some(true)
}

/// The media type of a request's body without parameters; JSON when there is no header.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = value.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if media_type.is_empty() { "application/json".to_string() } else { media_type }
}

/// The encoding of a request's body.
///
/// # Errors
/// 415 for anything but JSON, YAML and protobuf.
pub(super) fn body_encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    if headers.get(CONTENT_TYPE).is_some_and(|value| value == "application/json") {
        return Ok(Encoding::Json);
    }
    match content_type(headers).as_str() {
        "application/json" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(ApiError::unsupported_media_type(&MEDIA_TYPES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(accept: &str, query: &str) -> Option<(Encoding, View, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().expect("a header of the table"));
        let accept = Accept::negotiate(&headers, &Query::parse(query), true).ok()?;
        Some((accept.encoding, accept.view, accept.pretty))
    }

    #[test]
    fn the_best_form_that_can_be_served_wins() {
        let cases = [
            ("", "", Some((Encoding::Json, View::Object, false))),
            ("application/json", "pretty=true", Some((Encoding::Json, View::Object, true))),
            ("application/yaml", "", Some((Encoding::Yaml, View::Object, false))),
            ("application/vnd.kubernetes.protobuf,application/json", "", Some((Encoding::Json, View::Object, false))),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                "",
                Some((Encoding::Json, View::Table, false)),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                "",
                Some((Encoding::Json, View::Metadata, false)),
            ),
            ("application/json;q=0.5,application/yaml", "", Some((Encoding::Yaml, View::Object, false))),
            ("text/html", "", None),
            ("application/json;as=Chair;g=meta.k8s.io;v=v1", "", None),
            ("*/*", "", Some((Encoding::Json, View::Object, false))),
        ];
        for (accept, query, want) in cases {
            assert_eq!(negotiate(accept, query), want, "{accept}");
        }
    }

    #[test]
    fn bodies_are_json_yaml_or_protobuf() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().expect("a header of the table"));
            body_encoding(&headers).map_err(|error| error.code())
        };
        assert_eq!(of("application/json; charset=utf-8"), Ok(Encoding::Json));
        assert_eq!(of("application/yaml"), Ok(Encoding::Yaml));
        assert_eq!(of("application/vnd.kubernetes.protobuf"), Ok(Encoding::Protobuf));
        assert_eq!(of("text/plain"), Err(415));
        assert_eq!(body_encoding(&HeaderMap::new()), Ok(Encoding::Json));
    }
}
