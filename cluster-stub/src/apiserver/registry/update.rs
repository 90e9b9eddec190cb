//! Changes of existing objects: PUT, and the loop that all changes share: read, compute, check, write if nobody was faster.
//!
//! Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/update.go`, `pkg/registry/generic/registry/store.go` Update,
//! `pkg/registry/rest/update.go`.

use bytes::Bytes;
use serde_json::Value;

use super::context::RequestContext;
use super::create::{create_options, undo};
use super::write::{Stored, Written};
use super::{Entry, Registry, meta};
use crate::apiserver::admission::{AdmissionRequest, Operation};
use crate::apiserver::apply::managed::{self, Writer};
use crate::apiserver::codec::stored;
use crate::apiserver::resources::{Behavior, UpdateStrategy};
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::{FieldError, Path};
use crate::store::Revision;

/// What clients look for in a 409 before they read the object again.
pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Tries before a change gives up against other writers.
const ATTEMPTS: usize = 64;

/// Computes the new object from the present one.
pub(super) type Compute<'a> = dyn FnMut(&Value) -> Result<Value, ApiError> + Send + 'a;

/// Where a change goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Namespace in the path.
    pub namespace: &'a str,
    /// Name in the path.
    pub name: &'a str,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
}

/// One change.
pub(super) struct Change<'a> {
    /// Where it goes.
    pub place: Place<'a>,
    /// The object's uid must be this one.
    pub uid: Option<&'a str>,
    /// Admission looks at this instead of the object (scale).
    pub admitted_as: Option<&'a mut (dyn FnMut(&Value) -> Value + Send)>,
}

/// What the end of a change was.
pub(super) enum Changed {
    /// The object was written, or was as wanted already.
    Updated(Written),
    /// Its last finalizer went, and so did the object.
    Released(Written),
    /// There is no such object.
    Missing,
}

/// The two halves of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Mutate,
    Validate,
}

impl Registry {
    /// PUT of an object or of a part of it. The flag says whether the object is new.
    pub(super) async fn update_object(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        subresource: &str,
        mut object: Value,
    ) -> Result<(bool, Written), ApiError> {
        let info = &ctx.info;
        check_name(entry, &mut object, &info.namespace, &info.name)?;
        entry.resource.strategy.apply_defaults(&mut object);
        meta::dedup_owner_references(ctx, &mut object);
        let uid = meta::text(&object, "uid").to_string();
        let change = Change {
            place: Place { namespace: &info.namespace, name: &info.name, subresource },
            uid: Some(uid.as_str()).filter(|uid| !uid.is_empty()),
            admitted_as: None,
        };
        let writer = self.writer(ctx, entry, subresource);
        let reset = reset_fields(entry, subresource);
        let compute = &mut |live: &Value| {
            let mut object = object.clone();
            managed::track_update(&writer, Some(live), &mut object, &reset);
            Ok(object)
        };
        match self.change(ctx, entry, change, compute).await? {
            Changed::Updated(written) | Changed::Released(written) => Ok((false, written)),
            Changed::Missing if entry.resource.strategy.allow_create_on_update() && subresource.is_empty() => {
                if let Ok(metadata) = meta::metadata_mut(&mut object) {
                    for key in ["resourceVersion", "uid"] {
                        metadata.remove(key);
                    }
                }
                let written = self.create_object(ctx, entry, &info.namespace, object).await?;
                Ok((true, written))
            }
            Changed::Missing => Err(ApiError::not_found(entry.qualified(), &info.name)),
        }
    }

    /// The loop that all changes share.
    pub(super) async fn change(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        mut change: Change<'_>,
        compute: &mut Compute<'_>,
    ) -> Result<Changed, ApiError> {
        let key = entry.key(change.place.namespace, change.place.name);
        let mut current = self.read_stored(entry, &key).await?;
        for _ in 0..ATTEMPTS {
            let Some(old) = current else {
                return Ok(Changed::Missing);
            };
            match self.try_change(ctx, entry, &mut change, &key, old, compute).await? {
                Ok(changed) => return Ok(changed),
                Err(newer) => current = newer,
            }
        }
        Err(ApiError::conflict(entry.qualified(), change.place.name, MODIFIED))
    }

    async fn try_change(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        change: &mut Change<'_>,
        key: &str,
        old: Stored,
        compute: &mut Compute<'_>,
    ) -> Result<Result<Changed, Option<Stored>>, ApiError> {
        let strategy = &entry.resource.strategy;
        let part = part_strategy(entry, change.place.subresource);
        let mut object = compute(&old.object)?;
        meta::dedup_owner_references(ctx, &mut object);
        let mut object = self.admit(ctx, entry, change, (object, &old.object), Phase::Mutate).await?;
        self.check_version(entry, change, key, &mut object, &old)?;
        meta::keep_old(&mut object, &old.object)?;
        let write = ctx.write_context();
        let errors = match part {
            Some(part) => {
                part.prepare_for_update(&write, &mut object, &old.object);
                part.validate_update(&object, &old.object)
            }
            None => {
                strategy.prepare_for_update(&write, &mut object, &old.object);
                strategy.validate_update(&object, &old.object)
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(entry.qualified_kind(), change.place.name, &errors));
        }
        self.fill(entry, &mut object);
        let warnings = match part {
            Some(part) => part.warnings(&object, &old.object),
            None => strategy.warnings(&object, Some(&old.object)),
        };
        warnings.into_iter().for_each(|warning| ctx.warn(warning));
        let mut object = self.admit(ctx, entry, change, (object, &old.object), Phase::Validate).await?;
        if meta::is_released(&object, &old.object) && !strategy.keeps_deleted(&object) {
            return self.release(ctx, entry, key, old, object).await;
        }
        managed::keep_times_if_unchanged(&mut object, &old.object);
        let rollback =
            if part.is_none() { self.allocate(ctx, entry, &mut object, Some(&old.object)).await? } else { None };
        let bytes = Bytes::from(entry.encode(&object));
        if bytes == old.bytes {
            undo(rollback).await;
            return Ok(Ok(Changed::Updated(old.written(entry))));
        }
        if ctx.options.dry_run {
            return Ok(Ok(Changed::Updated(Written { bytes: stored::encode_served(&object).into(), object })));
        }
        let before = strategy.allocates().then(|| old.object.clone());
        match self.replace(ctx, entry, key, old.revision, bytes, object).await {
            Ok(Ok(written)) => {
                if let Some(before) = before {
                    strategy.release(self, &before, Some(&written.object)).await;
                }
                Ok(Ok(Changed::Updated(written)))
            }
            Ok(Err(newer)) => {
                undo(rollback).await;
                Ok(Err(newer))
            }
            Err(error) => {
                undo(rollback).await;
                Err(error)
            }
        }
    }

    async fn release(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        key: &str,
        old: Stored,
        mut object: Value,
    ) -> Result<Result<Changed, Option<Stored>>, ApiError> {
        let mut revision = old.revision;
        if !ctx.options.dry_run {
            match self.erase(ctx, entry, key, old.revision, &object).await? {
                Ok(at) => revision = at,
                Err(newer) => return Ok(Err(newer)),
            }
        }
        stored::set_resource_version(&mut object, revision.0).map_err(ApiError::internal)?;
        Ok(Ok(Changed::Released(Written { bytes: stored::encode_served(&object).into(), object })))
    }

    /// Runs a phase of admission on a changed object; gives the object that goes on.
    async fn admit(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        change: &mut Change<'_>,
        (object, old): (Value, &Value),
        phase: Phase,
    ) -> Result<Value, ApiError> {
        let options = create_options(ctx);
        let place = change.place;
        let views = change.admitted_as.as_mut().map(|view| (view(&object), view(old)));
        let (seen, old, object) = match &views {
            // Admission looks at another kind, and what it makes of it is not kept.
            Some((seen, old)) => (seen.clone(), old, Some(object)),
            None => (object, old, None),
        };
        let mut request = self.admission_request(ctx, entry, place, seen, old, &options);
        match phase {
            Phase::Mutate => self.0.admission.mutate(&mut request).await?,
            Phase::Validate => self.0.admission.validate(&mut request).await?,
        }
        std::mem::take(&mut request.warnings).into_iter().for_each(|warning| ctx.warn(warning));
        let mut object = object.unwrap_or(request.object);
        meta::dedup_owner_references(ctx, &mut object);
        Ok(object)
    }

    fn admission_request<'a>(
        &'a self,
        ctx: &'a RequestContext,
        entry: &'a Entry,
        place: Place<'a>,
        object: Value,
        old: &'a Value,
        options: &'a Value,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest {
            operation: Operation::Update,
            resource: &entry.resource,
            subresource: place.subresource,
            namespace: if place.namespace.is_empty() && entry.resource.plural == "namespaces" {
                place.name
            } else {
                place.namespace
            },
            name: place.name.to_string(),
            user: &ctx.user,
            now: ctx.now,
            dry_run: ctx.options.dry_run,
            object,
            old_object: Some(old),
            options,
            objects: self,
            warnings: Vec::new(),
            drawn: None,
        }
    }

    /// Holds the object against the uid and version that the client expects, and settles its resource version.
    fn check_version(
        &self,
        entry: &Entry,
        change: &Change<'_>,
        key: &str,
        object: &mut Value,
        old: &Stored,
    ) -> Result<(), ApiError> {
        let Revision(current) = old.revision;
        let given = meta::text(object, "resourceVersion");
        if given.is_empty() || given == "0" {
            if !entry.resource.strategy.allow_unconditional_update() {
                let path = Path::root("metadata");
                let error = FieldError::invalid(&path.child("resourceVersion"), 0, "must be specified for an update");
                return Err(ApiError::invalid(entry.qualified_kind(), change.place.name, &[error]));
            }
            stored::set_resource_version(object, current).map_err(ApiError::internal)?;
        } else if given.parse::<u64>().is_err() {
            let why = format!("invalid resource version \"{given}\"");
            return Err(ApiError::bad_request(why));
        } else if given != current.to_string() {
            return Err(ApiError::conflict(entry.qualified(), change.place.name, MODIFIED));
        }
        let real = meta::text(&old.object, "uid");
        if let Some(uid) = change.uid
            && uid != real
        {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {uid}, UID in object meta: {real}"
            );
            return Err(ApiError::conflict(entry.qualified(), change.place.name, why));
        }
        Ok(())
    }

    /// Who writes fields, for `managedFields`.
    pub(super) fn writer<'a>(&'a self, ctx: &RequestContext, entry: &'a Entry, subresource: &'a str) -> Writer<'a> {
        let (schema, ty) = match &entry.resource.custom {
            Some(custom) => {
                let (schema, ty) = custom.types();
                (schema, Some(ty))
            }
            None => (&*self.0.schema, entry.ty),
        };
        Writer { schema, ty, manager: ctx.manager(), subresource, api_version: &entry.api_version, now: ctx.now }
    }
}

/// The strategy of a subresource that is a part of the object.
fn part_strategy<'a>(entry: &'a Entry, subresource: &str) -> Option<&'a dyn UpdateStrategy> {
    match &entry.resource.subresource(subresource)?.behavior {
        Behavior::Object(strategy) => Some(strategy.as_ref()),
        Behavior::Scale(_) | Behavior::Action(_) | Behavior::Connect => None,
    }
}

/// Members that a write through the object or a part of it never owns.
pub(super) fn reset_fields(entry: &Entry, subresource: &str) -> Vec<&'static str> {
    match part_strategy(entry, subresource) {
        Some(part) => part.reset_fields().to_vec(),
        None => entry.resource.strategy.reset_fields().to_vec(),
    }
}

/// Holds name and namespace of the body against the path, and fills in what is missing.
///
/// Upstream: apiserver v1.36.2 `pkg/endpoints/handlers/rest.go` checkName.
pub(super) fn check_name(entry: &Entry, object: &mut Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    let given = meta::text(object, "name");
    if !given.is_empty() && given != name {
        let why = format!("the name of the object ({given}) does not match the name on the URL ({name})");
        return Err(ApiError::bad_request(why));
    }
    let inside = meta::text(object, "namespace");
    if entry.resource.namespaced && !inside.is_empty() && inside != namespace {
        let why =
            format!("the namespace of the object ({inside}) does not match the namespace on the request ({namespace})");
        return Err(ApiError::bad_request(why));
    }
    let metadata = meta::metadata_mut(object)?;
    metadata.insert("name".to_string(), name.into());
    if entry.resource.namespaced {
        metadata.insert("namespace".to_string(), namespace.into());
    }
    Ok(())
}
