//! The create verb.
//!
//! Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/create.go`, `pkg/registry/generic/registry/store.go` Create.

use serde_json::Value;

use super::alike::Notes;
use super::context::RequestContext;
use super::write::Written;
use super::{Entry, Registry, meta};
use crate::apiserver::admission::{AdmissionRequest, Operation};
use crate::apiserver::apply::managed;
use crate::apiserver::codec::stored;
use crate::apiserver::resources::Rollback;
use crate::apiserver::status::ApiError;

/// Tries for a generated name. Upstream: `maxNameGenerationCreateAttempts`.
const NAME_ATTEMPTS: usize = 8;

impl Registry {
    /// Creates a decoded object: everything from the namespace check to the store.
    pub(super) async fn create_object(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        namespace: &str,
        object: Value,
    ) -> Result<Written, ApiError> {
        self.create_noted(ctx, entry, namespace, object, None).await
    }

    /// The same, with notes of what the outcome depends on.
    pub(super) async fn create_noted(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        namespace: &str,
        mut object: Value,
        notes: Option<&Notes<'_>>,
    ) -> Result<Written, ApiError> {
        entry.resource.strategy.apply_defaults(&mut object);
        set_namespace(entry, namespace, &mut object)?;
        meta::dedup_owner_references(ctx, &mut object);
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(ApiError::unclassified("resourceVersion should not be set on objects to be created"));
        }
        let writer = self.writer(ctx, entry, "");
        managed::track_update(&writer, None, &mut object, entry.resource.strategy.reset_fields());
        self.create_tracked(ctx, entry, namespace, object, notes).await
    }

    /// The same from mutating admission on, for an object whose managed fields are right already.
    pub(super) async fn create_tracked(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        namespace: &str,
        object: Value,
        notes: Option<&Notes<'_>>,
    ) -> Result<Written, ApiError> {
        let strategy = &entry.resource.strategy;
        let name = meta::text(&object, "name").to_string();
        let options = create_options(ctx);
        // A Namespace is admitted as if it were inside itself.
        let inside = if entry.resource.group.is_empty() && entry.resource.plural == "namespaces" {
            name.clone()
        } else {
            namespace.to_string()
        };
        let mut request = AdmissionRequest {
            operation: Operation::Create,
            resource: &entry.resource,
            subresource: "",
            namespace: &inside,
            name,
            user: &ctx.user,
            now: ctx.now,
            dry_run: ctx.options.dry_run,
            object,
            old_object: None,
            options: &options,
            objects: notes.map_or(self, |notes| &notes.objects),
            warnings: Vec::new(),
            drawn: None,
        };
        self.0.admission.mutate(&mut request).await?;
        meta::dedup_owner_references(ctx, &mut request.object);
        meta::fill_new(ctx, &mut request.object)?;
        let prefix = meta::text(&request.object, "generateName").to_string();
        let generated = !prefix.is_empty() && meta::text(&request.object, "name").is_empty();
        let write = ctx.write_context();
        for attempt in 1.. {
            if generated {
                meta::metadata_mut(&mut request.object)?
                    .insert("name".to_string(), meta::generate_name(&prefix).into());
            }
            if attempt == 1 {
                strategy.prepare_for_create(&write, &mut request.object);
                self.fill(entry, &mut request.object);
                let errors = strategy.validate(&request.object);
                if !errors.is_empty() {
                    let name = meta::text(&request.object, "name");
                    return Err(ApiError::invalid(entry.qualified_kind(), name, &errors));
                }
                strategy.warnings(&request.object, None).into_iter().for_each(|warning| ctx.warn(warning));
                request.name = meta::text(&request.object, "name").to_string();
                self.0.admission.validate(&mut request).await?;
                std::mem::take(&mut request.warnings).into_iter().for_each(|warning| ctx.warn(warning));
                if let Some(notes) = notes {
                    let determined =
                        self.0.admission.is_determined(&request) && strategy.is_alike_under_any_name(&request.object);
                    notes.admitted(determined, request.drawn.take());
                }
                let (namespace, name) = (meta::text(&request.object, "namespace"), request.name.as_str());
                self.tell_admitted(ctx, entry, namespace, name);
            }
            // Only a generated name is tried again.
            let mut object = if generated { request.object.clone() } else { std::mem::take(&mut request.object) };
            let rollback = self.allocate(ctx, entry, &mut object, None).await?;
            let key = entry.key(namespace, meta::text(&object, "name"));
            if ctx.options.dry_run {
                return self.dry_create(entry, &key, object).await;
            }
            let name = meta::text(&object, "name").to_string();
            match self.insert(ctx, entry, key, object).await {
                Ok(Some(written)) => return Ok(written),
                Ok(None) => {
                    undo(rollback).await;
                    if !generated {
                        let key = entry.key(namespace, &name);
                        let going = self
                            .read_stored(entry, &key)
                            .await?
                            .is_some_and(|stored| !meta::text(&stored.object, "deletionTimestamp").is_empty());
                        let error = ApiError::already_exists(entry.qualified(), &name);
                        return Err(if going { error.prefixed("object is being deleted: ") } else { error });
                    }
                    if attempt == NAME_ATTEMPTS {
                        return Err(ApiError::generate_name_conflict(entry.qualified(), &name));
                    }
                }
                Err(error) => {
                    undo(rollback).await;
                    return Err(error);
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Puts the structs back in that are always there but that a strategy took out.
    pub(super) fn fill(&self, entry: &Entry, object: &mut Value) {
        if let (Some(ty), Some(members)) = (entry.ty, object.as_object_mut()) {
            self.0.schema.fill_structs(ty, members);
        }
    }

    /// Lets the strategy take what the object needs from shared pools.
    pub(super) async fn allocate(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Option<Rollback>, ApiError> {
        let strategy = &entry.resource.strategy;
        if !strategy.allocates() {
            return Ok(None);
        }
        strategy.allocate(self, object, old, ctx.options.dry_run).await
    }

    async fn dry_create(&self, entry: &Entry, key: &str, object: Value) -> Result<Written, ApiError> {
        if self.read_stored(entry, key).await?.is_some() {
            return Err(ApiError::already_exists(entry.qualified(), meta::text(&object, "name")));
        }
        Ok(Written { bytes: stored::encode_served(&object).into(), object })
    }
}

/// Gives back what was taken for a write that failed.
pub(super) async fn undo(rollback: Option<Rollback>) {
    if let Some(rollback) = rollback {
        rollback().await;
    }
}

/// `CreateOptions` or `UpdateOptions` as admission sees them.
pub(super) fn create_options(ctx: &RequestContext) -> Value {
    let mut options = serde_json::json!({"apiVersion": "meta.k8s.io/v1"});
    options["kind"] = if ctx.info.verb == "create" { "CreateOptions".into() } else { "UpdateOptions".into() };
    if ctx.options.dry_run {
        options["dryRun"] = serde_json::json!(["All"]);
    }
    if !ctx.options.field_manager.is_empty() {
        options["fieldManager"] = ctx.options.field_manager.as_str().into();
    }
    options
}

/// Fills in the namespace of the path; refuses another one.
fn set_namespace(entry: &Entry, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let given = meta::text(object, "namespace");
    if !entry.resource.namespaced {
        // Validation says what is wrong with a namespace here.
        return Ok(());
    }
    if given.is_empty() {
        meta::metadata_mut(object)?.insert("namespace".to_string(), namespace.into());
        return Ok(());
    }
    check_namespace(given, namespace)
}

/// Refuses a body with another namespace than the path's; one without may be of any. Upstream: v1.36.2
/// apiserver/pkg/endpoints/handlers `createHandler`, for subresources, too.
pub(super) fn check_namespace(given: &str, namespace: &str) -> Result<(), ApiError> {
    if given.is_empty() || given == namespace {
        return Ok(());
    }
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    Err(ApiError::bad_request(why))
}
