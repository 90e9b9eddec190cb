//! API errors: one value becomes the HTTP code and the `Status` body that clients know. No rule decides here when they occur.

use std::fmt;

use serde_json::{Map, Value, json};

use super::validation::FieldError;

/// One entry of `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCause {
    /// A machine-readable reason such as `FieldValueInvalid`; may be empty.
    pub reason: String,
    /// What is wrong, for people.
    pub message: String,
    /// The field, e.g. `spec.containers[0].name`; may be empty.
    pub field: String,
}

/// A group and resource (or kind) name as error texts spell it: `deployments.apps`, `configmaps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qualified<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Plural resource or kind, possibly with `/subresource`.
    pub name: &'a str,
}

impl fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(self.name) } else { write!(f, "{}.{}", self.name, self.group) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Details {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<StatusCause>,
    retry_after_seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Details>,
}

/// A request that failed, as the client is told. Upstream: apimachinery `StatusError` (v1.36.2 `pkg/api/errors/errors.go`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.message)]
pub struct ApiError(Box<Failure>);

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError(Box::new(Failure { code, reason, message: message.into(), details: None }))
    }

    fn about(mut self, resource: Qualified<'_>, name: &str) -> ApiError {
        let details = self.0.details.get_or_insert_default();
        details.group = resource.group.to_string();
        details.kind = resource.name.to_string();
        details.name = name.to_string();
        self
    }

    fn retry_after(mut self, seconds: u32) -> ApiError {
        self.0.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 404 for an object.
    pub fn not_found(resource: Qualified<'_>, name: &str) -> ApiError {
        ApiError::new(404, "NotFound", format!("{resource} {} not found", quote(name))).about(resource, name)
    }

    /// 404 for a resource or subresource that the server does not have.
    pub fn no_such_resource() -> ApiError {
        let mut error = ApiError::new(404, "NotFound", "the server could not find the requested resource");
        error.0.details = Some(Details::default());
        error
    }

    /// 409: an object of this name exists.
    pub fn already_exists(resource: Qualified<'_>, name: &str) -> ApiError {
        ApiError::new(409, "AlreadyExists", format!("{resource} {} already exists", quote(name))).about(resource, name)
    }

    /// The same error with more words in front of its message.
    #[must_use]
    pub fn prefixed(mut self, words: &str) -> ApiError {
        self.0.message.insert_str(0, words);
        self
    }

    /// What an admission policy or webhook answers: its own reason and code, with the message as the only cause.
    pub fn denied(resource: Qualified<'_>, name: &str, reason: &str, message: &str) -> ApiError {
        let (reason, code) = match reason {
            "Forbidden" => ("Forbidden", 403),
            "Unauthorized" => ("Unauthorized", 401),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
            _ => ("Invalid", 422),
        };
        let mut error = ApiError::forbidden(resource, name, message).with_cause("", message, "");
        (error.0.reason, error.0.code) = (reason, code);
        error
    }

    /// A failure that somebody else put into words: code, reason and message of a `Status`. Reasons that no client knows are left out.
    pub fn foreign(code: u16, reason: &str, message: impl Into<String>) -> ApiError {
        const REASONS: [&str; 14] = [
            "Unauthorized",
            "Forbidden",
            "NotFound",
            "AlreadyExists",
            "Conflict",
            "Gone",
            "Invalid",
            "ServerTimeout",
            "Timeout",
            "TooManyRequests",
            "BadRequest",
            "MethodNotAllowed",
            "InternalError",
            "ServiceUnavailable",
        ];
        let known = REASONS.into_iter().find(|known| *known == reason).unwrap_or_default();
        ApiError::new(code, known, message)
    }

    /// 409: no free name was found for a `generateName`.
    pub fn generate_name_conflict(resource: Qualified<'_>, name: &str) -> ApiError {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        ApiError::new(409, "AlreadyExists", message).about(resource, name).retry_after(1)
    }

    /// 409: the object is not in the state that the request expects.
    pub fn conflict(resource: Qualified<'_>, name: &str, why: impl fmt::Display) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        ApiError::new(409, "Conflict", message).about(resource, name)
    }

    /// 409 of server-side apply: fields that others own.
    pub fn apply_conflict(causes: Vec<StatusCause>, message: impl Into<String>) -> ApiError {
        let mut error = ApiError::new(409, "Conflict", message);
        error.0.details = Some(Details { causes, ..Details::default() });
        error
    }

    /// 422 with one cause for each faulty field. `kind` is the kind, not the resource.
    pub fn invalid(kind: Qualified<'_>, name: &str, errors: &[FieldError]) -> ApiError {
        let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        let causes = errors
            .iter()
            .map(|error| StatusCause {
                reason: error.kind.cause().to_string(),
                message: error.body(),
                field: error.path.clone(),
            })
            .collect();
        let mut message = format!("{kind} {} is invalid", quote(name));
        if !texts.is_empty() {
            message.push_str(": ");
            message.push_str(&aggregate(&texts));
        }
        let mut error = ApiError::new(422, "Invalid", message).about(kind, name);
        error.0.details.get_or_insert_default().causes = causes;
        error
    }

    /// 422 without details, for a patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> ApiError {
        ApiError::new(422, "Invalid", message)
    }

    /// 403. An empty `resource.name` means a path that is no resource.
    pub fn forbidden(resource: Qualified<'_>, name: &str, why: impl fmt::Display) -> ApiError {
        let message = if resource.name.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        ApiError::new(403, "Forbidden", message).about(resource, name)
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405 for an action that the kind's strategy refuses.
    pub fn method_not_supported(resource: Qualified<'_>, action: &str) -> ApiError {
        let message = format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        ApiError::new(405, "MethodNotAllowed", message).about(resource, "")
    }

    /// 405 for a path that has no such verb.
    pub fn method_not_allowed() -> ApiError {
        let mut error =
            ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        error.0.details = Some(Details::default());
        error
    }

    /// 406: none of the accepted media types can be served.
    pub fn not_acceptable(accepted: &[&str]) -> ApiError {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        ApiError::new(406, "NotAcceptable", message)
    }

    /// 415: the body's media type is none of the accepted ones.
    pub fn unsupported_media_type(accepted: &[&str]) -> ApiError {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 410: a resourceVersion or continue token whose data is gone.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    /// 413.
    pub fn too_large(message: impl fmt::Display) -> ApiError {
        ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"))
    }

    /// 429 with the seconds after which to try again.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> ApiError {
        ApiError::new(429, "TooManyRequests", message).retry_after(retry_after_seconds)
    }

    /// 500 with the usual words in front.
    pub fn internal(why: impl fmt::Display) -> ApiError {
        let mut error = ApiError::new(500, "InternalError", format!("Internal error occurred: {why}"));
        let cause = StatusCause { reason: String::new(), message: why.to_string(), field: String::new() };
        error.0.details = Some(Details { causes: vec![cause], ..Details::default() });
        error
    }

    /// 500 for an error that upstream has no Status for: the bare text, no reason.
    pub fn unclassified(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "", message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(503, "ServiceUnavailable", message)
    }

    /// 504: try again; the state asked for is not there yet.
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: u32) -> ApiError {
        ApiError::new(504, "Timeout", format!("Timeout: {message}")).retry_after(retry_after_seconds)
    }

    /// 504 for a list at a version of the future, with the cause that clients look for.
    pub fn too_large_resource_version(requested: i64, current: i64) -> ApiError {
        let message = format!("Too large resource version: {requested}, current: {current}");
        let cause = StatusCause {
            reason: "ResourceVersionTooLarge".to_string(),
            message: "Too large resource version".to_string(),
            field: String::new(),
        };
        let mut error = ApiError::timeout(message, 1);
        error.0.details.get_or_insert_default().causes.push(cause);
        error
    }

    /// Adds an entry to `details.causes`.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> ApiError {
        let cause = StatusCause { reason: reason.to_string(), message: message.to_string(), field: field.to_string() };
        self.0.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The same failure with other words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> ApiError {
        self.0.message = message.into();
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The machine-readable reason, e.g. `NotFound`; may be empty.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// The words for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Seconds for a `Retry-After` header, if the failure has one.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.0.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let failure = &*self.0;
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": failure.message, "code": failure.code,
        });
        if !failure.reason.is_empty() {
            status["reason"] = failure.reason.into();
        }
        if let Some(details) = &failure.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                value.insert(key.to_string(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(StatusCause::to_value).collect();
            value.insert("causes".to_string(), Value::Array(causes));
        }
        if self.retry_after_seconds > 0 {
            value.insert("retryAfterSeconds".to_string(), self.retry_after_seconds.into());
        }
        Value::Object(value)
    }
}

impl StatusCause {
    fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                value.insert(key.to_string(), text.as_str().into());
            }
        }
        Value::Object(value)
    }
}

/// The `Status` of a successful operation that returns no object, e.g. a delete.
pub fn success(resource: Qualified<'_>, name: &str, uid: &str) -> Value {
    let details = Details {
        name: name.into(),
        group: resource.group.into(),
        kind: resource.name.into(),
        uid: uid.into(),
        ..Details::default()
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details.to_value()})
}

/// Several error texts as one, as apimachinery's `Aggregate` prints them: equal ones once, more than one in brackets.
pub fn aggregate<T: AsRef<str>>(texts: &[T]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text.as_ref()) {
            seen.push(text.as_ref());
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_string(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn quote(text: &str) -> String {
    super::validation::field::quote(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Qualified<'static> = Qualified { group: "", name: "pods" };
    const DEPLOYMENTS: Qualified<'static> = Qualified { group: "apps", name: "deployments" };

    #[test]
    fn not_found_names_resource_group_and_object() {
        let status = ApiError::not_found(DEPLOYMENTS, "nope").to_status();
        assert_eq!(
            status,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
                "message": "deployments.apps \"nope\" not found",
                "details": {"name": "nope", "group": "apps", "kind": "deployments"},
            })
        );
    }

    #[test]
    fn forbidden_has_three_forms() {
        let nothing = Qualified { group: "", name: "" };
        let cases = [
            (ApiError::forbidden(PODS, "a", "no"), "pods \"a\" is forbidden: no"),
            (ApiError::forbidden(PODS, "", "no"), "pods is forbidden: no"),
            (ApiError::forbidden(nothing, "", "no"), "forbidden: no"),
        ];
        for (error, want) in cases {
            assert_eq!(error.message(), want);
        }
    }

    #[test]
    fn equal_texts_are_said_once_and_one_text_has_no_brackets() {
        assert_eq!(aggregate(&["a"]), "a");
        assert_eq!(aggregate(&["a", "a"]), "a");
        assert_eq!(aggregate(&["a", "b", "a"]), "[a, b]");
    }

    #[test]
    fn a_failure_without_reason_leaves_the_member_out() {
        assert_eq!(ApiError::unclassified("x").to_status().get("reason"), None);
    }
}
