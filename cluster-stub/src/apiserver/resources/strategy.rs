//! The seam between the registry and the rules of one kind. The registry calls these in upstream's order; kinds override what they need.

use std::borrow::Cow;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use super::objects::Objects;
use crate::apiserver::authn::UserInfo;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::FieldError;
use crate::apiserver::validation::names::dns_label;

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The moment of the request.
    pub now: Timestamp,
    /// Who asks.
    pub user: &'a UserInfo,
}

/// Undoes an allocation when the write that it was made for fails.
pub type Rollback = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// How objects may be deleted. Upstream: `rest.RESTGracefulDeleteStrategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracefulDelete {
    /// The kind knows no grace: the object goes at once.
    Immediate,
    /// The object stays, with a deletion timestamp so many seconds ahead; 0 removes it at once.
    After(i64),
}

/// What happens to dependents when the client names no propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbagePolicy {
    /// The garbage collector deletes them.
    Background,
    /// They stay, without the owner reference.
    Orphan,
}

/// The rules of one kind. Upstream: `rest.RESTCreateStrategy`, `RESTUpdateStrategy`, `RESTDeleteStrategy` and the versioned
/// defaulting functions, v1.36.2.
///
/// Order of a create: `apply_defaults`, mutating admission, name from `generateName`, `prepare_for_create`, `validate` (which includes the
/// object metadata), validating admission, `allocate`, store. Order of an update: `apply_defaults`, mutating admission,
/// `prepare_for_update`, `validate_update` (which includes `validate`), validating admission, `allocate`, store.
pub trait Strategy: Send + Sync {
    /// Fills in what the client left out. Runs on every decoded body and must be idempotent.
    fn apply_defaults(&self, _object: &mut Value) {}

    /// Changes that only a create makes: drops status, sets the generation.
    fn prepare_for_create(&self, _context: &WriteContext<'_>, _object: &mut Value) {}

    /// Changes that an update makes: keeps what the main resource may not change, bumps the generation.
    fn prepare_for_update(&self, _context: &WriteContext<'_>, _object: &mut Value, _old: &Value) {}

    /// Whether objects of this kind are made by the thousand from one template, so that it pays to look for it.
    fn has_replicas(&self) -> bool {
        false
    }

    /// The texts besides the name in which such objects differ.
    fn own_texts(&self) -> &'static [OwnText] {
        &[]
    }

    /// Whether a name is one that no rule minds, whatever else the object has.
    fn takes_name(&self, name: &str) -> bool {
        dns_label(name).is_empty()
    }

    /// Whether these rules do the same to a new object, find no fault in it and nothing to warn of, whatever its name and its
    /// own texts are, as long as they are taken, and whenever it is made. `object` is one that was let in.
    fn is_alike_under_any_name(&self, _object: &Value) -> bool {
        false
    }

    /// Every fault of a new object, metadata included.
    fn validate(&self, object: &Value) -> Vec<FieldError>;

    /// Every fault of a changed object, metadata and the object's own validity included.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError>;

    /// Texts for `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Field selector labels beyond `metadata.name` and `metadata.namespace`.
    fn field_labels(&self) -> &[&'static str] {
        &[]
    }

    /// Those of [`Strategy::field_labels`] whose value is the text at their own way of two members, empty if there is none.
    fn text_fields(&self) -> &[&'static str] {
        &[]
    }

    /// Values of [`Strategy::field_labels`], in the same order.
    fn field_values(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Turns an object of this version into the stored one. Only for kinds that two versions or groups share.
    fn convert_to_storage(&self, _object: &mut Value) {}

    /// Turns a stored object into one of this version.
    fn convert_from_storage(&self, _object: &mut Value) {}

    /// Whether [`Strategy::convert_from_storage`] makes of what [`Strategy::convert_to_storage`] made exactly what it was.
    fn converts_back(&self) -> bool {
        false
    }

    /// Whether PUT of an object that does not exist creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// Whether PUT without a resourceVersion is allowed.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Members that a write through the main resource never owns (server-side apply drops them), e.g. `status`.
    fn reset_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// How long the object stays after a delete with the requested grace period, seconds.
    fn graceful_delete(&self, _object: &Value, _requested: Option<i64>) -> GracefulDelete {
        GracefulDelete::Immediate
    }

    /// What happens to dependents when the client says nothing.
    fn default_garbage_policy(&self) -> GarbagePolicy {
        GarbagePolicy::Background
    }

    /// Whether the object must outlive a delete although `metadata.finalizers` is empty (`spec.finalizers` of a Namespace).
    fn keeps_deleted(&self, _object: &Value) -> bool {
        false
    }

    /// Whether a delete answers with the object instead of a `Status`. Upstream: `ReturnDeletedObject`.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Changes that a delete makes to an object that stays for its finalizers or grace.
    fn prepare_for_delete(&self, _object: &mut Value) {}

    /// Takes what the object needs from a shared pool (addresses and ports of Services) and writes it into the object.
    /// `old` is `None` on create. The rollback runs when the write fails; with `dry_run` nothing may be taken.
    fn allocate<'a>(
        &'a self,
        _objects: &'a dyn Objects,
        _object: &'a mut Value,
        _old: Option<&'a Value>,
        _dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Rollback>, ApiError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether [`Strategy::allocate`] and [`Strategy::release`] do anything.
    fn allocates(&self) -> bool {
        false
    }

    /// Gives back what a write has made superfluous: `object` is `None` after a removal.
    fn release<'a>(
        &'a self,
        _objects: &'a dyn Objects,
        _old: &'a Value,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A text of a new object in which objects that are alike differ.
#[derive(Debug)]
pub struct OwnText {
    /// The member that it is in; empty if it is one of the object itself.
    pub section: &'static str,
    /// Its key.
    pub name: &'static str,
    /// Whether no rule minds a text, which is not empty, and it is stored as it comes.
    pub takes: fn(&str) -> bool,
}

/// The rules of a subresource that is a part of the object (`status`, `finalize`, …).
pub trait UpdateStrategy: Send + Sync {
    /// Puts back everything that this subresource does not own.
    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value);

    /// Every fault of the changed object.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError>;

    /// Texts for `Warning` headers.
    fn warnings(&self, _object: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Members that a write through this subresource never owns (server-side apply drops them).
    fn reset_fields(&self) -> Cow<'static, [&'static str]> {
        Cow::Borrowed(&["spec"])
    }
}

/// The rules of a `scale` subresource.
pub trait ScaleStrategy: Send + Sync {
    /// The Scale (`autoscaling/v1`) of an object, without `metadata` and type: `spec` and `status`.
    fn scale_of(&self, object: &Value) -> Value;

    /// Writes the Scale's replicas into the object.
    fn apply_scale(&self, object: &mut Value, scale: &Value);

    /// Every fault of a Scale.
    fn validate_scale(&self, scale: &Value) -> Vec<FieldError>;

    /// Way to the replica count in the object, for managed fields, e.g. `["spec", "replicas"]`.
    fn replicas_path(&self) -> Vec<Cow<'static, str>>;
}
