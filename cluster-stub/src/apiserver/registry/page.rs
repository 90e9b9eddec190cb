//! Continue tokens: where the next page of a list begins, and at which revision.
//!
//! Upstream: apiserver v1.36.2 `pkg/storage/continue.go`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A decoded continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Continue {
    /// The revision of the first page; -1 goes on at the newest.
    pub revision: i64,
    /// The first key of the page, relative to the prefix of the resource.
    pub start: String,
}

impl Continue {
    /// The text for `metadata.continue`.
    pub(super) fn encode(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": self.start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    /// Reads a token; the error is upstream's text for a 400.
    pub(super) fn decode(token: &str) -> Result<Continue, String> {
        let bad = |why: &dyn std::fmt::Display| format!("continue key is not valid: {why}");
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|error| bad(&error))?;
        let token: Value = serde_json::from_slice(&json).map_err(|error| bad(&error))?;
        if token["v"] != "meta.k8s.io/v1" {
            let version = token["v"].as_str().unwrap_or("");
            return Err(format!("continue key is not valid: server does not recognize this encoded version {version}"));
        }
        let revision = token["rv"].as_i64().unwrap_or(0);
        if revision == 0 {
            let why = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
            return Err(bad(&why));
        }
        let start = token["start"].as_str().unwrap_or("");
        if start.is_empty() {
            return Err(bad(&"encoded start key empty (version meta.k8s.io/v1)"));
        }
        if start.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(bad(&start));
        }
        Ok(Continue { revision, start: start.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_way_out_and_back() {
        let token = Continue { revision: 42, start: "ns/name\0".to_string() };
        assert_eq!(Continue::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn foreign_tokens_are_refused() {
        let wrap = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for (token, part) in [
            ("%%%".to_string(), "continue key is not valid"),
            (wrap("{}"), "does not recognize this encoded version"),
            (wrap(r#"{"v":"meta.k8s.io/v1","start":"a"}"#), "incorrect encoded start resourceVersion"),
            (wrap(r#"{"v":"meta.k8s.io/v1","rv":1}"#), "encoded start key empty"),
            (wrap(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#), "continue key is not valid: ../x"),
        ] {
            assert!(Continue::decode(&token).is_err_and(|error| error.contains(part)), "{token}");
        }
    }
}
