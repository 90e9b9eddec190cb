//! URLs as the CEL library of Kubernetes takes them apart.
//!
//! Upstream: apiserver v1.36.2 `pkg/cel/library/urls.go`.

use std::collections::BTreeMap;
use std::fmt;

/// An absolute URL or an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    /// In front of `://`, `""` for a path.
    pub(super) scheme: String,
    /// Host and port.
    pub(super) host: String,
    /// Without the query.
    pub(super) path: String,
    /// Values by name, decoded.
    pub(super) query: BTreeMap<String, Vec<String>>,
}

impl Url {
    /// Reads a URL; `None` if it is none, or relative.
    pub(super) fn parse(text: &str) -> Option<Url> {
        if text.chars().any(|letter| letter.is_control() || letter == ' ') {
            return None;
        }
        let (before, _) = text.split_once('#').unwrap_or((text, ""));
        let (location, query) = before.split_once('?').unwrap_or((before, ""));
        let (scheme, host, path) = match location.split_once("://") {
            Some((scheme, rest)) => {
                let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.');
                if scheme.is_empty() || !scheme.chars().all(plain) {
                    return None;
                }
                let at = rest.find('/').unwrap_or(rest.len());
                let (authority, path) = rest.split_at(at);
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                (scheme.to_lowercase(), host.to_owned(), path.to_owned())
            }
            None if location.starts_with('/') => (String::new(), String::new(), location.to_owned()),
            None => return None,
        };
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decoded(name)).or_default().push(decoded(value));
        }
        Some(Url { text: text.to_owned(), scheme, host, path, query: values })
    }

    /// The host without brackets and port.
    pub(super) fn hostname(&self) -> &str {
        if let Some(rest) = self.host.strip_prefix('[') {
            return rest.split(']').next().unwrap_or(rest);
        }
        self.host.rsplit_once(':').map_or(&self.host, |(host, _)| host)
    }

    /// The port, `""` without one.
    pub(super) fn port(&self) -> &str {
        let behind = self.host.rsplit(']').next().unwrap_or(&self.host);
        behind.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Percent signs and plus signs of a query.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match (bytes[at], code()) {
            (b'%', Some(code)) => {
                out.push(code);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_url() {
        let url = Url::parse("https://user@[::1]:80/a/b?k=1&k=%202#x").expect("a URL");
        assert_eq!(
            (url.scheme.as_str(), url.hostname(), url.port(), url.path.as_str()),
            ("https", "::1", "80", "/a/b")
        );
        assert_eq!(url.query["k"], ["1", " 2"]);
        assert_eq!(Url::parse("/only/path").expect("a path").host, "");
        for bad in ["relative", "a b", "://x", ""] {
            assert_eq!(Url::parse(bad), None, "{bad}");
        }
    }
}
