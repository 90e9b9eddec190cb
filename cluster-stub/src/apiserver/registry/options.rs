//! The options of the verbs: from the query (of deletes also from the body), with upstream's faults.
//!
//! Upstream: apimachinery v1.36.2 `pkg/apis/meta/v1/validation/validation.go` and `pkg/apis/meta/internalversion`.

use serde_json::{Value, json};

use crate::apiserver::request::Query;
use crate::apiserver::selector::{FieldSelector, LabelSelector};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::{FieldError, Path};

/// What to do with unknown and duplicate fields of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and say so in `Warning` headers; the default.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// `CreateOptions`, `UpdateOptions` and `PatchOptions` of meta/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `dryRun=All`: everything but the store.
    pub dry_run: bool,
    /// `fieldManager`; empty if the client named none.
    pub field_manager: String,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `force` of an apply.
    pub force: bool,
}

/// Which write the options belong to; names the options' kind in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteVerb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH other than apply.
    Patch,
    /// Server-side apply.
    Apply,
}

fn invalid_options(kind: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid(Qualified { group: "meta.k8s.io", name: kind }, "", errors)
}

/// Go's `strconv.ParseBool` as the query decoder uses it: anything but `false` and `0` is true.
fn boolean(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

fn integer(value: &str) -> Result<i64, ApiError> {
    let bad = || ApiError::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", json!(value)));
    value.parse().map_err(|_| bad())
}

impl WriteOptions {
    /// Reads the query.
    ///
    /// # Errors
    /// 422 for values that upstream does not know.
    pub fn parse(query: &Query, verb: WriteVerb) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        let manager = query.get("fieldManager").unwrap_or("");
        let force = query.get("force").map(boolean);
        match verb {
            WriteVerb::Apply if manager.is_empty() => {
                errors.push(FieldError::required(&Path::root("fieldManager"), "is required for apply patch"));
            }
            WriteVerb::Patch if force.is_some() => {
                errors.push(FieldError::forbidden(&Path::root("force"), "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        if manager.len() > 128 {
            errors.push(FieldError::too_long(&Path::root("fieldManager"), 128));
        }
        for (at, character) in manager.char_indices().filter(|(_, character)| character.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(character));
            errors.push(FieldError::invalid(&Path::root("fieldManager"), manager, why));
        }
        let dry_run = dry_run(query, &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or("") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(&Path::root("fieldValidation"), other, &supported));
                FieldValidation::Warn
            }
        };
        if errors.is_empty() {
            let field_manager = manager.to_string();
            return Ok(WriteOptions { dry_run, field_manager, field_validation, force: force.unwrap_or(false) });
        }
        let kind = match verb {
            WriteVerb::Create => "CreateOptions",
            WriteVerb::Update => "UpdateOptions",
            WriteVerb::Patch | WriteVerb::Apply => "PatchOptions",
        };
        Err(invalid_options(kind, &errors))
    }
}

fn dry_run(query: &Query, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = query.all("dryRun").collect();
    check_dry_run(&values, errors)
}

fn check_dry_run(values: &[&str], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.push(FieldError::not_supported(&Path::root("dryRun"), json!(values), &["All"]));
    }
    !values.is_empty()
}

/// What happens to the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay and lose their owner.
    Orphan,
    /// They are collected afterwards.
    Background,
    /// The owner goes after them.
    Foreground,
}

/// `DeleteOptions` of meta/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds that the object may take; `None` leaves it to the kind.
    pub grace_period_seconds: Option<i64>,
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version of the object.
    pub resource_version: Option<String>,
    /// The deprecated way to say orphan (true) or background (false).
    pub orphan_dependents: Option<bool>,
    /// What happens to dependents; `None` leaves it to the kind.
    pub propagation: Option<Propagation>,
    /// Everything but the store.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads the query of a delete without a body.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for values that upstream does not know.
    pub fn from_query(query: &Query) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        let options = DeleteOptions {
            grace_period_seconds: query.get("gracePeriodSeconds").map(integer).transpose()?,
            orphan_dependents: query.get("orphanDependents").map(boolean),
            propagation: propagation(query.get("propagationPolicy"), &mut errors),
            dry_run: dry_run(query, &mut errors),
            ..DeleteOptions::default()
        };
        options.checked(query.get("propagationPolicy"), errors)
    }

    /// Reads the decoded body of a delete.
    ///
    /// # Errors
    /// 422 for values that upstream does not know.
    pub fn from_body(body: &Value) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        let text = |value: &Value| value.as_str().map(ToString::to_string);
        let policy = body["propagationPolicy"].as_str();
        let dry_runs: Vec<&str> = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let options = DeleteOptions {
            grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            orphan_dependents: body["orphanDependents"].as_bool(),
            propagation: propagation(policy, &mut errors),
            dry_run: check_dry_run(&dry_runs, &mut errors),
        };
        options.checked(policy, errors)
    }

    fn checked(self, policy: Option<&str>, mut errors: Vec<FieldError>) -> Result<DeleteOptions, ApiError> {
        if let (Some(_), Some(policy)) = (self.orphan_dependents, policy) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.insert(0, FieldError::invalid(&Path::root("propagationPolicy"), policy, why));
        }
        if errors.is_empty() { Ok(self) } else { Err(invalid_options("DeleteOptions", &errors)) }
    }

    /// As the object that admission sees.
    pub fn to_value(&self) -> Value {
        let mut value = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(seconds) = self.grace_period_seconds {
            value["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(orphan) = self.orphan_dependents {
            value["orphanDependents"] = orphan.into();
        }
        if let Some(policy) = self.propagation {
            value["propagationPolicy"] = format!("{policy:?}").into();
        }
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        for (key, text) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(text) = text {
                value["preconditions"][key] = text.as_str().into();
            }
        }
        value
    }
}

fn propagation(policy: Option<&str>, errors: &mut Vec<FieldError>) -> Option<Propagation> {
    match policy? {
        "Orphan" => Some(Propagation::Orphan),
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        other => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(&Path::root("propagationPolicy"), other, &supported));
            None
        }
    }
}

/// How a resourceVersion of a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Exactly this version.
    Exact,
    /// This version or a newer one.
    NotOlderThan,
}

/// `ListOptions` of meta/v1, for lists, watches and collection deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`.
    pub labels: LabelSelector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
    /// `resourceVersion` as it came; empty for none.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// `limit`; 0 means all.
    pub limit: usize,
    /// `continue`; empty for the first page.
    pub continue_token: String,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<u64>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads the query; `watch` tells whether it is a watch's.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for combinations that upstream forbids.
    pub fn parse(query: &Query, watch: bool) -> Result<ListOptions, ApiError> {
        let text = |key: &str| query.get(key).unwrap_or("").to_string();
        let mut errors = Vec::new();
        let version_match = query.get("resourceVersionMatch").filter(|value| !value.is_empty());
        let options = ListOptions {
            labels: LabelSelector::parse(&text("labelSelector")).map_err(ApiError::bad_request)?,
            fields: FieldSelector::parse(&text("fieldSelector")).map_err(ApiError::bad_request)?,
            resource_version: text("resourceVersion"),
            version_match: match version_match {
                Some("Exact") => Some(VersionMatch::Exact),
                Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
                _ => None,
            },
            limit: usize::try_from(query.get("limit").map_or(Ok(0), integer)?).unwrap_or(0),
            continue_token: text("continue"),
            timeout_seconds: query.get("timeoutSeconds").map(integer).transpose()?.and_then(|n| u64::try_from(n).ok()),
            bookmarks: query.get("allowWatchBookmarks").is_some_and(boolean),
            send_initial_events: query.get("sendInitialEvents").map(boolean),
        };
        if watch {
            options.check_watch(version_match, &mut errors);
        } else {
            options.check_list(version_match, &mut errors);
        }
        if errors.is_empty() { Ok(options) } else { Err(invalid_options("ListOptions", &errors)) }
    }

    fn check_list(&self, version_match: Option<&str>, errors: &mut Vec<FieldError>) {
        let path = Path::root("resourceVersionMatch");
        if let Some(given) = version_match {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if self.version_match.is_none() {
                errors.push(FieldError::not_supported(&path, given, &["Exact", "NotOlderThan", ""]));
            }
            if self.version_match == Some(VersionMatch::Exact) && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&path, why));
            }
        }
        if self.send_initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden(&Path::root("sendInitialEvents"), why));
        }
    }

    fn check_watch(&self, version_match: Option<&str>, errors: &mut Vec<FieldError>) {
        let path = Path::root("resourceVersionMatch");
        let not_older = self.version_match == Some(VersionMatch::NotOlderThan);
        if self.send_initial_events.is_some() && !not_older {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, why));
        }
        if let Some(given) = version_match {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if !not_older {
                errors.push(FieldError::not_supported(&path, given, &["NotOlderThan"]));
            }
            if !self.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(query: &str, verb: WriteVerb) -> Result<WriteOptions, String> {
        WriteOptions::parse(&Query::parse(query), verb).map_err(|error| format!("{} {error}", error.code()))
    }

    #[test]
    fn write_options_are_read_and_checked() {
        let read = write("dryRun=All&fieldManager=me&fieldValidation=Strict&pretty=true", WriteVerb::Create);
        let want = WriteOptions {
            dry_run: true,
            field_manager: "me".to_string(),
            field_validation: FieldValidation::Strict,
            force: false,
        };
        assert_eq!(read, Ok(want));
        let cases = [
            (
                "dryRun=Some",
                WriteVerb::Create,
                "422 CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=Bogus",
                WriteVerb::Update,
                "422 UpdateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Bogus\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                "",
                WriteVerb::Apply,
                "422 PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ),
            (
                "force=true",
                WriteVerb::Patch,
                "422 PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch",
            ),
        ];
        for (query, verb, want) in cases {
            assert_eq!(write(query, verb), Err(want.to_string()), "{query}");
        }
    }

    #[test]
    fn delete_options_come_from_query_or_body() {
        let query = Query::parse("gracePeriodSeconds=7&propagationPolicy=Orphan&dryRun=All");
        let want = DeleteOptions {
            grace_period_seconds: Some(7),
            propagation: Some(Propagation::Orphan),
            dry_run: true,
            ..DeleteOptions::default()
        };
        assert_eq!(DeleteOptions::from_query(&query), Ok(want.clone()));
        assert_eq!(DeleteOptions::from_body(&want.to_value()), Ok(want));
        for body in
            [json!({"propagationPolicy": "Bogus"}), json!({"propagationPolicy": "Orphan", "orphanDependents": true})]
        {
            assert_eq!(DeleteOptions::from_body(&body).map_err(|error| error.code()), Err(422), "{body}");
        }
        assert_eq!(DeleteOptions::from_query(&Query::parse("gracePeriodSeconds=x")).map_err(|e| e.code()), Err(400));
    }

    #[test]
    fn list_options_refuse_forbidden_combinations() {
        let parse = |query: &str, watch| ListOptions::parse(&Query::parse(query), watch).map_err(|error| error.code());
        assert!(parse("limit=5&resourceVersion=3&resourceVersionMatch=Exact", false).is_ok());
        assert!(
            parse("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", true).is_ok()
        );
        for (query, watch, code) in [
            ("resourceVersionMatch=Exact", false, 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", false, 422),
            ("sendInitialEvents=true", false, 422),
            ("sendInitialEvents=true", true, 422),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", true, 422),
            ("resourceVersionMatch=NotOlderThan", true, 422),
            ("labelSelector=a%3D%3D%3D", false, 400),
            ("fieldSelector=x", false, 400),
            ("limit=x", false, 400),
        ] {
            assert_eq!(parse(query, watch), Err(code), "{query}");
        }
    }
}
