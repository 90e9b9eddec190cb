//! The patch verb: reads the patch once, applies it to whatever the object is now, and writes like every other change.
//!
//! Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/patch.go`.

use serde_json::Value;

use super::context::RequestContext;
use super::options::FieldValidation;
use super::update::{Change, Changed, Place, check_name, reset_fields};
use super::write::Written;
use super::{Entry, Registry, media, meta};
use crate::apiserver::apply::{self, managed};
use crate::apiserver::codec::decode::{
    DecodeError, Decoded, conform, conform_stated, conform_unstructured, decode_stated,
};
use crate::apiserver::codec::{syntax, yaml};
use crate::apiserver::patch::{PatchError, json_patch, merge, strategic};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::{FieldError, Path};

/// The kinds of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// With merge keys and directives.
    Strategic,
    /// Server-side apply.
    Apply,
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl PatchType {
    /// From the media type of the body; kinds outside the schema have no strategic merge.
    pub(super) fn of(ctx: &RequestContext, entry: &Entry) -> Result<PatchType, ApiError> {
        match media::content_type(&ctx.headers).as_str() {
            JSON => Ok(PatchType::Json),
            MERGE => Ok(PatchType::Merge),
            STRATEGIC if entry.ty.is_some() => Ok(PatchType::Strategic),
            APPLY => Ok(PatchType::Apply),
            _ if entry.ty.is_some() => Err(ApiError::unsupported_media_type(&[JSON, MERGE, STRATEGIC, APPLY])),
            _ => Err(ApiError::unsupported_media_type(&[JSON, MERGE, APPLY])),
        }
    }
}

/// A patch that was read but not applied yet.
enum Patch {
    Json(json_patch::JsonPatch),
    Merge(Value),
    Strategic(Value),
}

impl Registry {
    /// Patches an object or a part of it. The flag says whether an apply created it.
    pub(super) async fn patch_object(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        subresource: &str,
        patch_type: PatchType,
        body: &[u8],
    ) -> Result<(bool, Written), ApiError> {
        if patch_type == PatchType::Apply {
            return self.apply_object(ctx, entry, subresource, body).await;
        }
        let patch = read_patch(ctx, patch_type, body)?;
        let writer = self.writer(ctx, entry, subresource);
        let reset = reset_fields(entry, subresource);
        let info = &ctx.info;
        let compute = &mut |live: &Value| {
            let patched = self.patched(ctx, entry, &patch, live)?;
            let mut object = match &patch {
                Patch::Strategic(patch) => self.conformed_to_patch(ctx, entry, patched, patch)?,
                Patch::Json(_) | Patch::Merge(_) => self.conformed(ctx, entry, patched)?,
            };
            entry.resource.strategy.apply_defaults(&mut object);
            check_name(entry, &mut object, &info.namespace, &info.name)?;
            managed::track_update(&writer, Some(live), &mut object, &reset);
            Ok(object)
        };
        let change = Change {
            place: Place { namespace: &info.namespace, name: &info.name, subresource },
            uid: None,
            admitted_as: None,
        };
        match self.change(ctx, entry, change, compute).await? {
            Changed::Updated(written) | Changed::Released(written) => Ok((false, written)),
            Changed::Missing => Err(ApiError::not_found(entry.qualified(), &info.name)),
        }
    }

    fn patched(&self, _ctx: &RequestContext, entry: &Entry, patch: &Patch, live: &Value) -> Result<Value, ApiError> {
        match patch {
            Patch::Json(patch) => patch.apply(live).map_err(|error| patch_failure(&error)),
            Patch::Merge(patch) => Ok(merge::apply(live.clone(), patch)),
            Patch::Strategic(patch) => {
                strategic::apply(&self.0.schema, entry.ty, live.clone(), patch).map_err(|error| patch_failure(&error))
            }
        }
    }

    /// Holds a patched object against its type.
    fn conformed(&self, ctx: &RequestContext, entry: &Entry, patched: Value) -> Result<Value, ApiError> {
        let refuse = |why: &str| {
            let error = FieldError::invalid(&Path::root("patch"), patched.to_string(), why);
            ApiError::invalid(Qualified { group: "", name: "" }, "", &[error])
        };
        let decoded = match (entry.ty, &entry.resource.custom) {
            (Some(ty), _) => conform(&self.0.schema, ty, &patched),
            (None, Some(custom)) => custom.read(patched.clone()),
            (None, None) => return Ok(patched),
        };
        let decoded = decoded.map_err(|error| refuse(&error.to_string()))?;
        ctx.check_strict(decoded, |why| refuse(&format!("strict decoding error: {why}")))
    }

    /// The same for a strategic merge patch, whose failures show the patch instead of the object.
    fn conformed_to_patch(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        patched: Value,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let Some(ty) = entry.ty else {
            return Ok(patched);
        };
        let refuse = |why: &str| {
            let error = FieldError::invalid(&Path::root("patch"), go_text(patch), why);
            ApiError::invalid(Qualified { group: "", name: "" }, "", &[error])
        };
        let decoded = conform_unstructured(&self.0.schema, ty, &patched).map_err(|error| refuse(&error.to_string()))?;
        ctx.check_strict(decoded, |why| refuse(&format!("strict decoding error: {why}")))
    }

    /// Server-side apply.
    async fn apply_object(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        subresource: &str,
        body: &[u8],
    ) -> Result<(bool, Written), ApiError> {
        let info = &ctx.info;
        let applied = self.read_applied(ctx, entry, body)?;
        let writer = self.writer(ctx, entry, subresource);
        let reset = reset_fields(entry, subresource);
        let force = ctx.options.force;
        let strategy = entry.resource.strategy.clone();
        let compute = &mut |live: &Value| {
            let object = apply::apply(&writer, Some(live), &applied, &reset, force)?;
            let mut object = self.conformed(ctx, entry, object)?;
            strategy.apply_defaults(&mut object);
            check_name(entry, &mut object, &info.namespace, &info.name)?;
            Ok(object)
        };
        loop {
            let change = Change {
                place: Place { namespace: &info.namespace, name: &info.name, subresource },
                uid: None,
                admitted_as: None,
            };
            match self.change(ctx, entry, change, &mut *compute).await? {
                Changed::Updated(written) | Changed::Released(written) => return Ok((false, written)),
                Changed::Missing if subresource.is_empty() => {}
                Changed::Missing => return Err(ApiError::not_found(entry.qualified(), &info.name)),
            }
            if !meta::text(&applied, "uid").is_empty() || !meta::text(&applied, "resourceVersion").is_empty() {
                let why = if meta::text(&applied, "uid").is_empty() {
                    "resource version was specified, but the object does not exist".to_string()
                } else {
                    let uid = meta::text(&applied, "uid");
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found")
                };
                return Err(ApiError::conflict(entry.qualified(), &info.name, why));
            }
            let object = apply::apply(&writer, None, &applied, &reset, force)?;
            let mut object = self.conformed(ctx, entry, object)?;
            strategy.apply_defaults(&mut object);
            check_name(entry, &mut object, &info.namespace, &info.name)?;
            match self.create_tracked(ctx, entry, &info.namespace, object, None).await {
                Ok(written) => return Ok((true, written)),
                // Somebody else created it in between: apply to that.
                Err(error) if error.reason() == "AlreadyExists" && !ctx.options.dry_run => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the configuration of an apply: an object of the kind, with nothing filled in.
    fn read_applied(&self, ctx: &RequestContext, entry: &Entry, body: &[u8]) -> Result<Value, ApiError> {
        let value = match serde_json::from_slice(body) {
            Ok(value) => value,
            Err(_) => {
                yaml::parse(body).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?
            }
        };
        let (kind, api_version) = (value["kind"].as_str().unwrap_or(""), value["apiVersion"].as_str().unwrap_or(""));
        if kind.is_empty() || api_version.is_empty() {
            let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
            return Err(ApiError::bad_request(format!("invalid object type: couldn't get {missing}: must be set")));
        }
        if kind != entry.resource.kind || api_version != entry.api_version {
            return Err(ApiError::bad_request(format!(
                "the kind in the data ({api_version}, Kind={kind}) does not match the expected kind ({}, Kind={})",
                entry.api_version, entry.resource.kind
            )));
        }
        if value["metadata"]["managedFields"].is_array() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let decoded = match (entry.ty, &entry.resource.custom) {
            // Duplicates show in the text only.
            (Some(ty), _) => match decode_stated(&self.0.schema, ty, body) {
                Err(DecodeError::Syntax(_)) => conform_stated(&self.0.schema, ty, &value),
                decoded => decoded,
            },
            (None, Some(custom)) => custom.read(value.clone()),
            (None, None) => return Ok(value.clone()),
        };
        let Decoded { object, strict_errors } = decoded.map_err(|error| {
            ApiError::unclassified(format!(
                "failed to create typed patch object ({}/{}; {api_version}, Kind={kind}): {error}",
                ctx.info.namespace, ctx.info.name
            ))
        })?;
        if let Some(unknown) = strict_errors.iter().find_map(|error| error.strip_prefix("unknown field ")) {
            let path = unknown.trim_matches('"');
            return Err(ApiError::unclassified(format!(
                "failed to create typed patch object ({}/{}; {api_version}, Kind={kind}): .{path}: field not declared in \
                 schema",
                ctx.info.namespace, ctx.info.name
            )));
        }
        ctx.check_strict(Decoded { object, strict_errors }, |why| {
            let error = FieldError::invalid(
                &Path::root("patch"),
                String::from_utf8_lossy(body).into_owned(),
                format!("strict decoding error: {why}"),
            );
            ApiError::invalid(Qualified { group: "", name: "" }, "", &[error])
        })
    }
}

fn read_patch(ctx: &RequestContext, patch_type: PatchType, body: &[u8]) -> Result<Patch, ApiError> {
    let undecodable = |_: serde_json::Error| {
        let checked = ctx.options.field_validation != FieldValidation::Ignore && patch_type == PatchType::Merge;
        let prefix = if checked { "error decoding patch: " } else { "" };
        let why = match serde_json::from_slice(body) {
            Ok(value) => {
                format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_kind(&value))
            }
            Err(_) => syntax::fault(body),
        };
        ApiError::bad_request(format!("{prefix}{why}"))
    };
    match patch_type {
        PatchType::Json => {
            let patch = json_patch::JsonPatch::parse(body).map_err(|error| match error {
                PatchError::TooMany(_) => ApiError::too_large(error),
                error => ApiError::bad_request(error.to_string()),
            })?;
            Ok(Patch::Json(patch))
        }
        PatchType::Merge => serde_json::from_slice::<serde_json::Map<String, Value>>(body)
            .map(|patch| Patch::Merge(Value::Object(patch)))
            .map_err(undecodable),
        PatchType::Strategic | PatchType::Apply => serde_json::from_slice::<serde_json::Map<String, Value>>(body)
            .map(|patch| Patch::Strategic(Value::Object(patch)))
            .map_err(undecodable),
    }
}

/// What Go's decoder calls a value.
fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as Go's `%+v` prints it: `map[a:1 b:[x y]]`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let members: Vec<String> = members.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}

fn patch_failure(error: &PatchError) -> ApiError {
    match error {
        // Upstream hides what went wrong behind these words.
        PatchError::Operation(_) => {
            ApiError::unprocessable("the server rejected our request due to an error in our request")
        }
        PatchError::Strategic(why) => ApiError::bad_request(why.clone()),
        other => ApiError::bad_request(other.to_string()),
    }
}
