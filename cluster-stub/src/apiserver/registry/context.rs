//! Who asks, how, and when: what every step of one request may look at.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use jiff::Timestamp;

use super::options::WriteOptions;
use crate::apiserver::authn::UserInfo;
use crate::apiserver::request::{Query, RequestInfo};
use crate::apiserver::resources::WriteContext;

/// Whom writes are made by that the server itself makes.
pub(super) const INTERNAL_USER: &str = "system:apiserver";

/// One request on its way through the registry.
#[derive(Debug)]
pub struct RequestContext {
    /// What the path says.
    pub info: Arc<RequestInfo>,
    /// The decoded query.
    pub query: Query,
    /// The request's headers.
    pub headers: HeaderMap,
    /// Who asks.
    pub user: Arc<UserInfo>,
    /// When the request began; every timestamp of this write is this one.
    pub now: Timestamp,
    /// `dryRun`, `fieldManager`, `fieldValidation`.
    pub options: WriteOptions,
    warnings: Mutex<Vec<String>>,
}

impl RequestContext {
    /// A context without options.
    pub fn new(
        info: Arc<RequestInfo>,
        query: Query,
        headers: HeaderMap,
        user: Arc<UserInfo>,
        now: Timestamp,
    ) -> RequestContext {
        let (options, warnings) = (WriteOptions::default(), Mutex::default());
        RequestContext { info, query, headers, user, now, options, warnings }
    }

    /// A context for a write that the server itself makes.
    pub fn internal(verb: &str) -> RequestContext {
        let info = RequestInfo { is_resource_request: true, verb: verb.to_string(), ..RequestInfo::default() };
        let user = Arc::new(UserInfo::admin(INTERNAL_USER));
        let mut context =
            RequestContext::new(Arc::new(info), Query::default(), HeaderMap::new(), user, Timestamp::now());
        context.options.field_manager = "kube-apiserver".to_string();
        context
    }

    /// What strategies see of it.
    pub fn write_context(&self) -> WriteContext<'_> {
        WriteContext { now: self.now, user: &self.user }
    }

    /// Adds a warning for the client; a text that is there already is not repeated.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Whether there are warnings for the client.
    pub fn has_warnings(&self) -> bool {
        !self.warnings.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes the warnings out.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The manager name for `managedFields`: the client's, or its User-Agent up to the first slash, printable characters
    /// only, at most 128 bytes.
    ///
    /// Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/create.go` managerOrUserAgent.
    pub fn manager(&self) -> String {
        if !self.options.field_manager.is_empty() {
            return self.options.field_manager.clone();
        }
        let agent = self.headers.get(http::header::USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default();
        let agent = String::from_utf8_lossy(agent);
        let mut name = String::new();
        for character in agent.split('/').next().unwrap_or("").chars().filter(|character| !character.is_control()) {
            if name.len() + character.len_utf8() > 128 {
                break;
            }
            name.push(character);
        }
        name
    }
}

/// RFC 3339 with whole seconds and `Z`, as `metav1.Time` is written.
pub fn format_time(time: Timestamp) -> String {
    thread_local! {
        /// The second that was written last, and how: a busy server writes the same one over and over.
        static LAST: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    // Before 1970 the second is not what the text has.
    if time.as_second() < 0 {
        return time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    }
    LAST.with_borrow_mut(|(second, text)| {
        if *second != time.as_second() {
            *text = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            *second = time.as_second();
        }
        text.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_the_named_one_or_the_head_of_the_user_agent() {
        let cases = [
            ("", "kubectl/v1.32.4 (linux/amd64)", "kubectl"),
            ("me", "kubectl/v1", "me"),
            ("", "", ""),
            ("", "Mozilla 5", "Mozilla 5"),
        ];
        for (named, agent, want) in cases {
            let mut context = RequestContext::internal("create");
            context.options.field_manager = named.to_string();
            context.headers.insert(http::header::USER_AGENT, agent.parse().expect("a header value"));
            assert_eq!(context.manager(), want);
        }
    }

    #[test]
    fn times_have_whole_seconds() {
        for (nanosecond, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (999_999_999, "1970-01-01T00:00:00Z"),
            (1_000_000_000, "1970-01-01T00:00:01Z"),
            (1_999_999_999, "1970-01-01T00:00:01Z"),
            (0, "1970-01-01T00:00:00Z"),
            (-1_000_000_000, "1969-12-31T23:59:59Z"),
        ] {
            let time = Timestamp::from_nanosecond(nanosecond).expect("a time near 1970");
            assert_eq!(format_time(time), want);
        }
    }

    #[test]
    fn a_warning_is_said_once() {
        let context = RequestContext::internal("create");
        context.warn("a");
        context.warn("a");
        context.warn("b");
        assert_eq!(context.take_warnings(), ["a", "b"]);
        assert!(context.take_warnings().is_empty());
    }
}
