//! The delete verb: preconditions, grace, finalizers, garbage collection policy.
//!
//! Upstream: apiserver v1.36.2 `pkg/registry/rest/delete.go` BeforeDelete, `pkg/registry/generic/registry/store.go` Delete.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::context::{RequestContext, format_time};
use super::options::{DeleteOptions, Propagation};
use super::write::{Stored, Written};
use super::{Entry, Registry, meta};
use crate::apiserver::admission::{AdmissionRequest, Operation};
use crate::apiserver::codec::stored;
use crate::apiserver::resources::{GarbagePolicy, GracefulDelete};
use crate::apiserver::status::{self, ApiError, Qualified};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const ATTEMPTS: usize = 64;

/// How a delete ended.
pub(super) struct Deleted {
    /// What the client gets.
    pub answer: Written,
    /// Whether the object is gone.
    pub gone: bool,
}

/// What is to be done with the object.
enum Plan {
    /// Nothing more: the delete is under way already.
    Pending,
    /// Write this state; then delete if the flag says so.
    Write(Value, bool),
    /// Delete at once.
    Erase,
}

impl Registry {
    /// Deletes one object.
    pub(super) async fn delete_object(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let missing = || ApiError::not_found(entry.qualified(), name);
        let key = entry.key(namespace, name);
        let mut current = self.read_stored(entry, &key).await?;
        // A version that the client wants is held against the object as it was before our own writes.
        let mut options = options.clone();
        for _ in 0..ATTEMPTS {
            let existing = current.take().ok_or_else(missing)?;
            check_preconditions(entry, name, &existing.object, &options)?;
            self.admit_delete(ctx, entry, namespace, name, &existing.object, &options).await?;
            match plan(ctx.now, entry, &existing.object, &options) {
                Plan::Pending => {
                    let answer = answer_of(entry, existing);
                    return Ok(Deleted { answer, gone: false });
                }
                Plan::Write(object, then_erase) => {
                    let before = existing.revision;
                    let written = match self.write_dying(ctx, entry, &key, existing, object, &options).await? {
                        Ok(written) => written,
                        Err(newer) => {
                            current = newer;
                            continue;
                        }
                    };
                    if !then_erase {
                        return Ok(Deleted { answer: written, gone: false });
                    }
                    if options.dry_run {
                        return Ok(Deleted { answer: written, gone: true });
                    }
                    options.resource_version = None;
                    tracing::trace!(%before, key, "wrote the last state, deleting");
                    // Somebody may have been faster: then it is gone as it should be.
                    let Some(last) = self.read_stored(entry, &key).await? else {
                        return Ok(Deleted { answer: gone_answer(entry, &written.object), gone: true });
                    };
                    if let Some(deleted) = self.finish_delete(ctx, entry, &key, last).await? {
                        return Ok(deleted);
                    }
                    current = self.read_stored(entry, &key).await?;
                }
                Plan::Erase if options.dry_run => {
                    let answer = answer_of(entry, existing);
                    return Ok(Deleted { answer, gone: true });
                }
                Plan::Erase => {
                    if let Some(deleted) = self.finish_delete(ctx, entry, &key, existing).await? {
                        return Ok(deleted);
                    }
                    current = self.read_stored(entry, &key).await?;
                }
            }
        }
        Err(ApiError::conflict(entry.qualified(), name, super::update::MODIFIED))
    }

    async fn finish_delete(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        key: &str,
        existing: Stored,
    ) -> Result<Option<Deleted>, ApiError> {
        let mut object = existing.object;
        match self.erase(ctx, entry, key, existing.revision, &object).await? {
            Ok(revision) => {
                stored::set_resource_version(&mut object, revision.0).map_err(ApiError::internal)?;
                Ok(Some(Deleted { answer: gone_answer(entry, &object), gone: true }))
            }
            Err(_) => Ok(None),
        }
    }

    async fn write_dying(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        key: &str,
        existing: Stored,
        object: Value,
        options: &DeleteOptions,
    ) -> Result<Result<Written, Option<Stored>>, ApiError> {
        let bytes = Bytes::from(entry.encode(&object));
        if bytes == existing.bytes {
            return Ok(Ok(existing.written(entry)));
        }
        if options.dry_run {
            return Ok(Ok(Written { bytes: stored::encode_served(&object).into(), object }));
        }
        self.replace(ctx, entry, key, existing.revision, bytes, object).await
    }

    async fn admit_delete(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        namespace: &str,
        name: &str,
        existing: &Value,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let given = options.to_value();
        let mut request = AdmissionRequest {
            operation: Operation::Delete,
            resource: &entry.resource,
            subresource: "",
            namespace: if namespace.is_empty() && entry.resource.plural == "namespaces" { name } else { namespace },
            name: name.to_string(),
            user: &ctx.user,
            now: ctx.now,
            dry_run: options.dry_run,
            object: Value::Null,
            old_object: Some(existing),
            options: &given,
            objects: self,
            warnings: Vec::new(),
            drawn: None,
        };
        self.0.admission.mutate(&mut request).await?;
        self.0.admission.validate(&mut request).await?;
        request.warnings.into_iter().for_each(|warning| ctx.warn(warning));
        Ok(())
    }
}

fn check_preconditions(entry: &Entry, name: &str, existing: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    // The kind in place of the resource is upstream's.
    let qualified = Qualified { group: &entry.resource.group, name: &entry.resource.kind };
    let uid = meta::text(existing, "uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(ApiError::conflict(qualified, name, why));
    }
    let version = meta::text(existing, "resourceVersion");
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        );
        return Err(ApiError::conflict(qualified, name, why));
    }
    Ok(())
}

/// Decides what a delete does to an object.
fn plan(now: Timestamp, entry: &Entry, existing: &Value, options: &DeleteOptions) -> Plan {
    let strategy = &entry.resource.strategy;
    let mut object = existing.clone();
    let dying = !existing["metadata"]["deletionTimestamp"].is_null();
    if strategy.keeps_deleted(existing) {
        if dying {
            return Plan::Pending;
        }
        object["metadata"]["deletionTimestamp"] = format_time(now).into();
        strategy.prepare_for_delete(&mut object);
        set_collection_finalizers(&mut object, strategy.default_garbage_policy(), options);
        return Plan::Write(object, false);
    }
    let requested = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let grace = match grace(now, existing, requested, |requested| strategy.graceful_delete(existing, requested)) {
        Grace::Pending => return Plan::Pending,
        grace => grace,
    };
    if let Grace::Until(time, seconds) = &grace {
        object["metadata"]["deletionTimestamp"] = time.as_str().into();
        object["metadata"]["deletionGracePeriodSeconds"] = (*seconds).into();
        if !dying {
            bump_generation(&mut object);
        }
        strategy.prepare_for_delete(&mut object);
    }
    set_collection_finalizers(&mut object, strategy.default_garbage_policy(), options);
    let held = object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    match grace {
        Grace::Until(_, seconds) => Plan::Write(object, !held && seconds == 0),
        _ if held => {
            if !dying {
                bump_generation(&mut object);
                strategy.prepare_for_delete(&mut object);
            }
            let today = format_time(now);
            let later = existing["metadata"]["deletionTimestamp"].as_str().is_none_or(|time| time > today.as_str());
            if later {
                object["metadata"]["deletionTimestamp"] = today.into();
            }
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            Plan::Write(object, false)
        }
        _ => Plan::Erase,
    }
}

enum Grace {
    /// The kind knows no grace, or all of it is over.
    None,
    /// A delete is under way that ends no later.
    Pending,
    /// The object stays until then; the seconds are the grace that is written into it.
    Until(String, i64),
}

fn grace(
    now: Timestamp,
    existing: &Value,
    requested: Option<i64>,
    strategy: impl Fn(Option<i64>) -> GracefulDelete,
) -> Grace {
    let metadata = &existing["metadata"];
    let add = |time: Timestamp, seconds: i64| time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(time);
    let GracefulDelete::After(seconds) = strategy(requested) else {
        return Grace::None;
    };
    let Some(deletion) = metadata["deletionTimestamp"].as_str() else {
        return Grace::Until(format_time(add(now, seconds)), seconds);
    };
    let present = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if present == 0 {
        return Grace::None;
    }
    let Some(mut period) = requested.filter(|period| *period < present) else {
        return Grace::Pending;
    };
    let start = deletion.parse::<Timestamp>().unwrap_or(now);
    let mut end = add(start, period - present);
    if end < now {
        end = now;
        if period != 0 {
            period = 1;
        }
    }
    Grace::Until(format_time(end), period)
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

/// Puts the finalizers in that make the garbage collector orphan or delete dependents first.
fn set_collection_finalizers(object: &mut Value, policy: GarbagePolicy, options: &DeleteOptions) {
    let before: Vec<String> = object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).map(ToString::to_string).collect())
        .unwrap_or_default();
    let present = before.iter().find_map(|name| match name.as_str() {
        ORPHAN => Some(Propagation::Orphan),
        FOREGROUND => Some(Propagation::Foreground),
        _ => None,
    });
    let wanted = match (options.orphan_dependents, options.propagation, present, policy) {
        (Some(true), ..) => Propagation::Orphan,
        (Some(false), ..) => Propagation::Background,
        (None, Some(propagation), ..) | (None, None, Some(propagation), _) => propagation,
        (None, None, None, GarbagePolicy::Orphan) => Propagation::Orphan,
        (None, None, None, GarbagePolicy::Background) => Propagation::Background,
    };
    let mut after: Vec<String> =
        before.iter().filter(|name| !matches!(name.as_str(), ORPHAN | FOREGROUND)).cloned().collect();
    match wanted {
        Propagation::Orphan => after.push(ORPHAN.to_string()),
        Propagation::Foreground => after.push(FOREGROUND.to_string()),
        Propagation::Background => {}
    }
    let same = after.len() == before.len() && after.iter().all(|name| before.contains(name));
    if same {
        return;
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if after.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_string(), json!(after));
        }
    }
}

/// What the client gets of an object that stays.
fn answer_of(entry: &Entry, existing: Stored) -> Written {
    if entry.resource.strategy.returns_deleted_object() || entry.resource.strategy.keeps_deleted(&existing.object) {
        return existing.written(entry);
    }
    gone_answer(entry, &existing.object)
}

/// What the client gets of an object that is gone: the object or a `Status`, as the kind has it.
fn gone_answer(entry: &Entry, object: &Value) -> Written {
    let object = if entry.resource.strategy.returns_deleted_object() {
        object.clone()
    } else {
        status::success(entry.qualified(), meta::text(object, "name"), meta::text(object, "uid"))
    };
    Written { bytes: stored::encode_served(&object).into(), object }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finalizers(before: &[&str], policy: GarbagePolicy, options: &DeleteOptions) -> Value {
        let mut object = json!({"metadata": {"finalizers": before}});
        set_collection_finalizers(&mut object, policy, options);
        object["metadata"]["finalizers"].clone()
    }

    #[test]
    fn the_propagation_policy_becomes_a_finalizer() {
        let with = |propagation| DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let none = DeleteOptions::default();
        let cases = [
            (&["x"][..], GarbagePolicy::Background, with(Propagation::Foreground), json!(["x", "foregroundDeletion"])),
            (&[], GarbagePolicy::Background, with(Propagation::Orphan), json!(["orphan"])),
            (&["orphan"], GarbagePolicy::Background, with(Propagation::Background), Value::Null),
            (&["orphan"], GarbagePolicy::Background, none.clone(), json!(["orphan"])),
            (&["x"], GarbagePolicy::Background, none.clone(), json!(["x"])),
            (&[], GarbagePolicy::Orphan, none, json!(["orphan"])),
        ];
        for (before, policy, options, want) in cases {
            assert_eq!(finalizers(before, policy, &options), want, "{before:?} {options:?}");
        }
    }

    #[test]
    fn a_grace_can_only_be_shortened() {
        let now: Timestamp = "2024-01-01T00:00:10Z".parse().expect("a time");
        let kind = |requested: Option<i64>| GracefulDelete::After(requested.unwrap_or(30));
        let dying =
            json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}});
        let until = |time: &str, seconds| Some((time.to_string(), seconds));
        let run = |object: &Value, requested| match grace(now, object, requested, kind) {
            Grace::Until(time, seconds) => Some((time, seconds)),
            Grace::Pending | Grace::None => None,
        };
        let fresh = json!({"metadata": {}});
        assert_eq!(run(&fresh, None), until("2024-01-01T00:00:40Z", 30));
        assert_eq!(run(&fresh, Some(0)), until("2024-01-01T00:00:10Z", 0));
        assert_eq!(run(&dying, Some(20)), until("2024-01-01T00:00:20Z", 20));
        assert_eq!(run(&dying, Some(5)), until("2024-01-01T00:00:10Z", 1));
        assert_eq!(run(&dying, Some(0)), until("2024-01-01T00:00:10Z", 0));
        assert!(matches!(grace(now, &dying, Some(40), kind), Grace::Pending));
        assert!(matches!(grace(now, &dying, None, kind), Grace::Pending));
        assert!(matches!(grace(now, &fresh, None, |_| GracefulDelete::Immediate), Grace::None));
    }
}
