//! The scale subresource: an `autoscaling/v1` Scale as a window on the replicas of an object.
//!
//! Upstream: v1.36.2 `pkg/registry/apps/deployment/storage/storage.go` ScaleREST.

use serde_json::{Map, Value, json};

use super::body::Expected;
use super::context::RequestContext;
use super::media::Accept;
use super::options::{WriteOptions, WriteVerb};
use super::patch::PatchType;
use super::response::{self, Response};
use super::update::{Change, Changed, MODIFIED, Place};
use super::{Entry, Registry, meta};
use crate::apiserver::apply::managed;
use crate::apiserver::codec::decode::conform;
use crate::apiserver::codec::yaml;
use crate::apiserver::patch::{json_patch, merge};
use crate::apiserver::resources::columns::age;
use crate::apiserver::resources::{ScaleStrategy, Verbs};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::table;

const SCALE_TYPE: &str = "io.k8s.api.autoscaling.v1.Scale";
const KIND: Qualified<'static> = Qualified { group: "autoscaling", name: "Scale" };

impl Registry {
    /// Answers a request for the scale of an object.
    pub(super) async fn on_scale(
        &self,
        ctx: &mut RequestContext,
        entry: &Entry,
        scale: &dyn ScaleStrategy,
        verb: Verbs,
        body: &[u8],
        accept: Accept,
    ) -> Result<Response, ApiError> {
        let info = ctx.info.clone();
        let missing = || ApiError::not_found(entry.qualified(), &info.name);
        let object = match verb {
            Verbs::GET => {
                let key = entry.key(&info.namespace, &info.name);
                self.read_stored(entry, &key).await?.ok_or_else(missing)?.object
            }
            Verbs::UPDATE => {
                ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Update)?;
                let ty = self.0.schema.find(SCALE_TYPE);
                let expected = Expected { api_version: "autoscaling/v1", kind: "Scale", ty, custom: None };
                let wanted = self.decode_body(ctx, body, expected)?;
                self.change_scale(ctx, entry, scale, &mut |_| Ok(wanted.clone())).await?
            }
            _ if PatchType::of(ctx, entry)? == PatchType::Apply => {
                ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Apply)?;
                self.apply_scale(ctx, entry, scale, body).await?
            }
            _ => {
                let patch_type = PatchType::of(ctx, entry)?;
                ctx.options = WriteOptions::parse(&ctx.query, WriteVerb::Patch)?;
                let patch = match patch_type {
                    PatchType::Json => None,
                    _ => Some(
                        serde_json::from_slice(body)
                            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?,
                    ),
                };
                let mut compute = |present: &Value| match &patch {
                    Some(patch) => Ok(merge::apply(present.clone(), patch)),
                    None => {
                        let patch = json_patch::JsonPatch::parse(body)
                            .map_err(|error| ApiError::bad_request(error.to_string()))?;
                        patch.apply(present).map_err(|_| {
                            let why = "the server rejected our request due to an error in our request";
                            ApiError::unprocessable(why)
                        })
                    }
                };
                self.change_scale(ctx, entry, scale, &mut compute).await?
            }
        };
        let shown = scale_object(&object, scale);
        let shown = match accept.view {
            super::media::View::Object => shown,
            super::media::View::Metadata => table::partial_metadata(&shown),
            super::media::View::Table => scale_table(ctx, &shown),
        };
        Ok(response::object(200, &shown, accept))
    }

    /// Server-side apply of replicas: who states them owns them in the object, through the subresource.
    async fn apply_scale(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        scale: &dyn ScaleStrategy,
        body: &[u8],
    ) -> Result<Value, ApiError> {
        let info = &ctx.info;
        let stated =
            yaml::parse(body).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
        let (kind, api_version) = (stated["kind"].as_str().unwrap_or(""), stated["apiVersion"].as_str().unwrap_or(""));
        if kind != "Scale" || api_version != "autoscaling/v1" {
            let why = format!(
                "the kind in the data ({api_version}, Kind={kind}) does not match the expected kind (autoscaling/v1, Kind=Scale)"
            );
            return Err(ApiError::bad_request(why));
        }
        let errors = scale.validate_scale(&stated);
        if !errors.is_empty() {
            return Err(ApiError::invalid(KIND, &info.name, &errors));
        }
        let mut configuration = json!({"apiVersion": entry.api_version, "kind": entry.resource.kind, "metadata": {}});
        let replicas = &stated["spec"]["replicas"];
        if !replicas.is_null() {
            let path = scale.replicas_path();
            let value = path.iter().rev().fold(replicas.clone(), |value, name| json!({&**name: value}));
            configuration = merge::apply(configuration, &value);
        }
        let writer = self.writer(ctx, entry, "scale");
        let mut compute =
            |live: &Value| crate::apiserver::apply::apply(&writer, Some(live), &configuration, &[], ctx.options.force);
        let mut view = |object: &Value| scale_object(object, scale);
        let change = Change {
            place: Place { namespace: &info.namespace, name: &info.name, subresource: "scale" },
            uid: None,
            admitted_as: Some(&mut view),
        };
        match self.change(ctx, entry, change, &mut compute).await? {
            Changed::Updated(written) | Changed::Released(written) => Ok(written.object),
            Changed::Missing => Err(ApiError::not_found(entry.qualified(), &info.name)),
        }
    }

    /// Writes new replicas; `compute` gives the wanted Scale from the present one.
    async fn change_scale(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        scale: &dyn ScaleStrategy,
        compute: &mut (dyn FnMut(&Value) -> Result<Value, ApiError> + Send),
    ) -> Result<Value, ApiError> {
        let info = &ctx.info;
        let writer = self.writer(ctx, entry, "scale");
        let schema = &self.0.schema;
        let ty = schema.find(SCALE_TYPE);
        let mut apply = |live: &Value| {
            let mut wanted = compute(&scale_object(live, scale))?;
            if let Some(ty) = ty {
                let decoded = conform(schema, ty, &wanted).map_err(|error| ApiError::bad_request(error.to_string()))?;
                wanted =
                    ctx.check_strict(decoded, |why| ApiError::bad_request(format!("strict decoding error: {why}")))?;
            }
            if wanted["spec"]["replicas"].is_null() {
                wanted["spec"]["replicas"] = 0.into();
            }
            let given = meta::text(&wanted, "name");
            if !given.is_empty() && given != info.name {
                let why =
                    format!("the name of the object ({given}) does not match the name on the URL ({})", info.name);
                return Err(ApiError::bad_request(why));
            }
            let version = meta::text(&wanted, "resourceVersion");
            if !version.is_empty() && version != meta::text(live, "resourceVersion") {
                return Err(ApiError::conflict(entry.qualified(), &info.name, MODIFIED));
            }
            let errors = scale.validate_scale(&wanted);
            if !errors.is_empty() {
                return Err(ApiError::invalid(KIND, &info.name, &errors));
            }
            let mut object = live.clone();
            scale.apply_scale(&mut object, &wanted);
            managed::track_update(&writer, Some(live), &mut object, &[]);
            Ok(object)
        };
        let mut view = |object: &Value| scale_object(object, scale);
        let change = Change {
            place: Place { namespace: &info.namespace, name: &info.name, subresource: "scale" },
            uid: None,
            admitted_as: Some(&mut view),
        };
        match self.change(ctx, entry, change, &mut apply).await? {
            Changed::Updated(written) | Changed::Released(written) => Ok(written.object),
            Changed::Missing => Err(ApiError::not_found(entry.qualified(), &info.name)),
        }
    }
}

fn scale_object(object: &Value, scale: &dyn ScaleStrategy) -> Value {
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(key) {
            metadata.insert(key.to_string(), value.clone());
        }
    }
    let mut shown = scale.scale_of(object);
    shown["kind"] = "Scale".into();
    shown["apiVersion"] = "autoscaling/v1".into();
    shown["metadata"] = Value::Object(metadata);
    shown
}

/// Upstream: v1.36.2 `pkg/printers/internalversion/printers.go` printScale.
fn scale_table(ctx: &RequestContext, scale: &Value) -> Value {
    let column = |name: &str, kind: &str| {
        let format = if name == "Name" { "name" } else { "" };
        json!({"name": name, "type": kind, "format": format, "description": "", "priority": 0})
    };
    let count = |value: &Value| value.as_i64().unwrap_or(0);
    let age = age(scale, ctx.now);
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
        "columnDefinitions": [
            column("Name", "string"), column("Desired", "integer"), column("Available", "integer"), column("Age", "string"),
        ],
        "rows": [{
            "cells": [
                scale["metadata"]["name"], count(&scale["spec"]["replicas"]), count(&scale["status"]["replicas"]), age,
            ],
            "object": table::partial_metadata(scale),
        }],
    })
}
