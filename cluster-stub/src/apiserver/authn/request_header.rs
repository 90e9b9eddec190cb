//! The front proxy: a client with a certificate of the front-proxy authority names the user in headers.

use std::collections::BTreeMap;

use http::HeaderMap;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use super::{CertificateVerifier, UserInfo};

/// Names that the front proxy uses, as the ConfigMap `extension-apiserver-authentication` publishes them.
#[derive(Clone, Copy, Debug)]
pub struct RequestHeaderConfig {
    /// Common names that may speak for others.
    pub allowed_names: &'static [&'static str],
    /// Headers with the user name.
    pub username_headers: &'static [&'static str],
    /// Headers with groups.
    pub group_headers: &'static [&'static str],
    /// Prefixes of headers with extra attributes.
    pub extra_headers_prefix: &'static [&'static str],
}

impl Default for RequestHeaderConfig {
    fn default() -> Self {
        RequestHeaderConfig {
            allowed_names: &["front-proxy-client"],
            username_headers: &["X-Remote-User"],
            group_headers: &["X-Remote-Group"],
            extra_headers_prefix: &["X-Remote-Extra-"],
        }
    }
}

impl RequestHeaderConfig {
    /// The user that the headers name, if a verified front proxy sent them. Upstream v1.36.2:
    /// apiserver/pkg/authentication/request/headerrequest/requestheader.go.
    pub(super) fn user(
        &self,
        verifier: &CertificateVerifier,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<UserInfo> {
        let first = |names: &[&str]| {
            names.iter().filter_map(|n| headers.get(*n)?.to_str().ok()).find(|v| !v.is_empty()).map(str::to_owned)
        };
        let name = first(self.username_headers)?;
        let subject = verifier.verify(chain, now).ok()?;
        if !self.allowed_names.contains(&subject.common_name.as_str()) {
            return None;
        }
        let texts = |name: &str| {
            headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok().map(str::to_owned)).collect::<Vec<_>>()
        };
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for header in headers.keys() {
            for prefix in self.extra_headers_prefix {
                if let Some(key) = header.as_str().strip_prefix(&prefix.to_ascii_lowercase()) {
                    extra.entry(key.to_owned()).or_default().extend(texts(header.as_str()));
                }
            }
        }
        let groups = self.group_headers.iter().flat_map(|header| texts(header)).collect();
        Some(UserInfo { name, groups, extra, ..UserInfo::default() })
    }
}
