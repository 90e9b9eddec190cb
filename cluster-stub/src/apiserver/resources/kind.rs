//! A resource written down as data: names, flags and plain functions for its rules. Builds a [`Resource`] with a [`Strategy`] that
//! calls them in upstream's order.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::action::Action;
use super::columns::{Column, Columns};
use super::resource::{Behavior, Resource, Subresource, Verbs};
use super::scale::ReplicaScale;
use super::strategy::{GarbagePolicy, Strategy, UpdateStrategy, WriteContext};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::{validate_object_meta, validate_object_meta_update};
use crate::apiserver::validation::names::{NameRule, name_is_dns_subdomain};
use crate::apiserver::validation::{FieldError, Path};

pub(super) type Defaults = fn(&mut Value);
pub(super) type Validate = fn(&Value, &mut Vec<FieldError>);
pub(super) type ValidateUpdate = fn(&Value, &Value, &mut Vec<FieldError>);
pub(super) type PrepareCreate = fn(&WriteContext<'_>, &mut Value);
pub(super) type PrepareUpdate = fn(&WriteContext<'_>, &mut Value, &Value);
pub(super) type FieldValues = fn(&Value) -> Vec<String>;
pub(super) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// The rules of one kind, all optional.
#[derive(Clone)]
pub(super) struct Kind {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: String,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: Verbs,
    storage: Option<&'static str>,
    name_rule: NameRule,
    generation: bool,
    counts_more: bool,
    status: bool,
    conditional_update_only: bool,
    create_on_update: bool,
    returns_deleted: bool,
    garbage: GarbagePolicy,
    defaults: Defaults,
    prepare_create: PrepareCreate,
    prepare_update: PrepareUpdate,
    validate: Validate,
    validate_update: ValidateUpdate,
    validate_change: ValidateUpdate,
    prepare_status: PrepareUpdate,
    validate_status: ValidateUpdate,
    field_labels: &'static [&'static str],
    field_values: FieldValues,
    columns: &'static [Column],
    cells: Cells,
    deprecation: Option<&'static str>,
}

impl Kind {
    /// A namespaced kind with all verbs and no rules but those of metadata.
    pub(super) fn new(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Kind {
        Kind {
            group,
            version,
            plural,
            singular: kind.to_lowercase(),
            kind,
            short_names: &[],
            categories: &[],
            namespaced: true,
            verbs: Verbs::ALL,
            storage: None,
            name_rule: name_is_dns_subdomain,
            generation: false,
            counts_more: false,
            status: false,
            conditional_update_only: false,
            create_on_update: false,
            returns_deleted: false,
            garbage: GarbagePolicy::Background,
            defaults: |_| {},
            prepare_create: |_, _| {},
            prepare_update: |_, _, _| {},
            validate: |_, _| {},
            validate_update: |_, _, _| {},
            validate_change: |_, _, _| {},
            prepare_status: |_, _, _| {},
            validate_status: |_, _, _| {},
            field_labels: &[],
            field_values: |_| Vec::new(),
            columns: super::columns::NAME_AND_CREATED,
            cells: super::columns::name_and_created,
            deprecation: None,
        }
    }

    pub(super) fn cluster_scoped(mut self) -> Kind {
        self.namespaced = false;
        self
    }

    pub(super) fn short_names(mut self, names: &'static [&'static str]) -> Kind {
        self.short_names = names;
        self
    }

    pub(super) fn categories(mut self, categories: &'static [&'static str]) -> Kind {
        self.categories = categories;
        self
    }

    pub(super) fn verbs(mut self, verbs: Verbs) -> Kind {
        self.verbs = verbs;
        self
    }

    /// Where objects are stored, if not under the plural name.
    pub(super) fn storage(mut self, storage: &'static str) -> Kind {
        self.storage = Some(storage);
        self
    }

    pub(super) fn name_rule(mut self, rule: NameRule) -> Kind {
        self.name_rule = rule;
        self
    }

    /// `metadata.generation` counts changes of everything but metadata and status.
    pub(super) fn generation(mut self) -> Kind {
        self.generation = true;
        self
    }

    /// `prepare_update` may have counted a change of metadata already.
    pub(super) fn counts_metadata_changes(mut self) -> Kind {
        self.counts_more = true;
        self
    }

    /// A `status` subresource; the main resource never changes `status`.
    pub(super) fn status(mut self) -> Kind {
        self.status = true;
        self
    }

    /// PUT without a resourceVersion is refused.
    pub(super) fn conditional_update_only(mut self) -> Kind {
        self.conditional_update_only = true;
        self
    }

    /// PUT of an absent object creates it.
    pub(super) fn create_on_update(mut self) -> Kind {
        self.create_on_update = true;
        self
    }

    /// A delete answers with the object instead of a `Status`.
    pub(super) fn returns_deleted(mut self) -> Kind {
        self.returns_deleted = true;
        self
    }

    /// Dependents stay when the client names no propagation policy.
    pub(super) fn orphan_by_default(mut self) -> Kind {
        self.garbage = GarbagePolicy::Orphan;
        self
    }

    pub(super) fn defaults(mut self, defaults: Defaults) -> Kind {
        self.defaults = defaults;
        self
    }

    pub(super) fn prepare_create(mut self, prepare: PrepareCreate) -> Kind {
        self.prepare_create = prepare;
        self
    }

    pub(super) fn prepare_update(mut self, prepare: PrepareUpdate) -> Kind {
        self.prepare_update = prepare;
        self
    }

    /// Faults beyond metadata, on create and update.
    pub(super) fn validate(mut self, validate: Validate) -> Kind {
        self.validate = validate;
        self
    }

    /// Faults of a change beyond metadata and [`Kind::validate`].
    pub(super) fn validate_update(mut self, validate: ValidateUpdate) -> Kind {
        self.validate_update = validate;
        self
    }

    /// Faults of a change that upstream's strategy looks for after everything else.
    pub(super) fn validate_change(mut self, validate: ValidateUpdate) -> Kind {
        self.validate_change = validate;
        self
    }

    /// Changes of a status update beyond putting back what is not status.
    pub(super) fn prepare_status(mut self, prepare: PrepareUpdate) -> Kind {
        self.prepare_status = prepare;
        self
    }

    pub(super) fn validate_status(mut self, validate: ValidateUpdate) -> Kind {
        self.validate_status = validate;
        self
    }

    /// Field selector labels beyond name and namespace, and their values.
    pub(super) fn field_labels(mut self, labels: &'static [&'static str], values: FieldValues) -> Kind {
        self.field_labels = labels;
        self.field_values = values;
        self
    }

    /// What every request for the kind is warned of.
    pub(super) fn deprecated(mut self, warning: &'static str) -> Kind {
        self.deprecation = Some(warning);
        self
    }

    pub(super) fn columns(mut self, columns: &'static [Column], cells: Cells) -> Kind {
        self.columns = columns;
        self.cells = cells;
        self
    }

    /// The resource.
    pub(super) fn build(self) -> Resource {
        let subresources = if self.status {
            vec![self.subresource("status", Verbs::SUBOBJECT, Behavior::Object(Arc::new(StatusOf(self.clone()))))]
        } else {
            Vec::new()
        };
        let deprecation = self.deprecation.map(Cow::Borrowed);
        let borrowed = |names: &'static [&'static str]| names.iter().map(|name| Cow::Borrowed(*name)).collect();
        Resource {
            group: self.group.into(),
            version: self.version.into(),
            plural: self.plural.into(),
            singular: self.singular.clone().into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            short_names: borrowed(self.short_names),
            categories: borrowed(self.categories),
            namespaced: self.namespaced,
            verbs: self.verbs,
            subresources,
            type_name: type_name(self.group, self.version, self.kind).into(),
            columns: Arc::new(Printer { columns: self.columns, cells: self.cells }),
            storage: self.storage.unwrap_or(self.plural).into(),
            strategy: Arc::new(self),
            deprecation,
            custom: None,
            action: None,
        }
    }

    fn subresource(&self, name: &'static str, verbs: Verbs, behavior: Behavior) -> Subresource {
        Subresource {
            name: name.into(),
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            type_name: type_name(self.group, self.version, self.kind).into(),
            verbs,
            behavior,
        }
    }

    /// What a create does to every object of this kind.
    pub(super) fn reset_for_create(&self, object: &mut Value) {
        if self.status {
            object.take_member("status");
            super::shape::fill(&type_name(self.group, self.version, self.kind), object);
        }
        if self.generation {
            object.object_mut("metadata").put("generation", json!(1));
        }
    }

    /// What an update through the main resource does to every object of this kind.
    pub(super) fn reset_for_update(&self, object: &mut Value, old: &Value) {
        if self.status {
            object.put("status", old.at("status").clone());
        }
        if self.generation {
            let before = old.at("metadata").int("generation").unwrap_or(0);
            let bumped = object.at("metadata").int("generation") == Some(before + 1) && self.counts_more;
            let changed = bumped || !same_but(object, old, &["metadata", "status", "apiVersion", "kind"]);
            object.object_mut("metadata").put("generation", json!(before + i64::from(changed)));
        }
    }
}

/// Whether two objects are equal apart from some top-level members.
pub(in crate::apiserver) fn same_but(left: &Value, right: &Value, ignored: &[&str]) -> bool {
    let members = |value: &Value, other: &Value| {
        value.as_object().is_none_or(|map| {
            map.iter().all(|(key, member)| ignored.contains(&key.as_str()) || same(member, other.at(key)))
        })
    };
    members(left, right) && members(right, left)
}

/// `spec.selector` never changes.
pub(super) fn immutable_selector(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (new, old) = (object.at("spec").at("selector"), old.at("spec").at("selector"));
    if !same(new, old) {
        out.push(FieldError::invalid(&SPEC.child("selector"), new.clone(), "field is immutable"));
    }
}

/// Equality of decoded Go values: empty and absent lists and maps are the same.
///
/// Upstream: `apiequality.Semantic.DeepEqual`.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        (Value::Null, Value::Object(map)) | (Value::Object(map), Value::Null) => map.is_empty(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(_), Value::Object(_)) => same_but(left, right, &[]),
        _ => left == right,
    }
}

impl Strategy for Kind {
    fn apply_defaults(&self, object: &mut Value) {
        (self.defaults)(object);
        super::shape::fill(&type_name(self.group, self.version, self.kind), object);
    }

    fn prepare_for_create(&self, context: &WriteContext<'_>, object: &mut Value) {
        self.reset_for_create(object);
        (self.prepare_create)(context, object);
    }

    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        (self.prepare_update)(context, object, old);
        self.reset_for_update(object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, self.namespaced, self.name_rule);
        (self.validate)(object, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, self.namespaced, self.name_rule);
        errors.extend(validate_object_meta_update(object, old));
        (self.validate_update)(object, old, &mut errors);
        (self.validate)(object, &mut errors);
        (self.validate_change)(object, old, &mut errors);
        dedup(errors)
    }

    fn field_labels(&self) -> &'static [&'static str] {
        self.field_labels
    }

    fn field_values(&self, object: &Value) -> Vec<String> {
        (self.field_values)(object)
    }

    fn allow_create_on_update(&self) -> bool {
        self.create_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        !self.conditional_update_only
    }

    fn returns_deleted_object(&self) -> bool {
        self.returns_deleted
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        if self.status { &["status"] } else { &[] }
    }

    fn default_garbage_policy(&self) -> GarbagePolicy {
        self.garbage
    }
}

/// Drops repetitions of the same fault.
pub(super) fn dedup(errors: Vec<FieldError>) -> Vec<FieldError> {
    let mut unique: Vec<FieldError> = Vec::with_capacity(errors.len());
    for error in errors {
        if !unique.contains(&error) {
            unique.push(error);
        }
    }
    unique
}

/// The `status` subresource of a kind.
struct StatusOf(Kind);

impl UpdateStrategy for StatusOf {
    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        restore_all_but(object, old, &["metadata", "status"]);
        (self.0.prepare_status)(context, object, old);
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_object_meta(object, self.0.namespaced, self.0.name_rule);
        errors.extend(validate_object_meta_update(object, old));
        (self.0.validate_status)(object, old, &mut errors);
        dedup(errors)
    }
}

/// Puts the old members back, apart from some top-level ones.
pub(in crate::apiserver) fn restore_all_but(object: &mut Value, old: &Value, kept: &[&str]) {
    let Some(map) = object.as_object_mut() else { return };
    map.retain(|key, _| kept.contains(&key.as_str()) || matches!(key.as_str(), "apiVersion" | "kind"));
    for (key, member) in old.as_object().into_iter().flatten() {
        if !kept.contains(&key.as_str()) {
            map.insert(key.clone(), member.clone());
        }
    }
}

/// Keeps the labels of the old object, as some status strategies do.
pub(super) fn restore_labels(object: &mut Value, old: &Value) {
    object.object_mut("metadata").put("labels", old.at("metadata").at("labels").clone());
}

/// Keeps all of the old metadata but its resourceVersion and managed fields.
pub(in crate::apiserver) fn restore_metadata(object: &mut Value, old: &Value) {
    let given = object.take_member("metadata");
    let mut metadata = old.at("metadata").clone();
    metadata.put("resourceVersion", given.at("resourceVersion").clone());
    metadata.put("managedFields", given.at("managedFields").clone());
    object.put("metadata", metadata);
}

struct Printer {
    columns: &'static [Column],
    cells: Cells,
}

impl Columns for Printer {
    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.cells)(object, now)
    }
}

/// The key of a kind in the schema table.
pub(super) fn type_name(group: &str, version: &str, kind: &str) -> String {
    let package = match group {
        "" => "io.k8s.api.core",
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
        "apiregistration.k8s.io" => "io.k8s.kube-aggregator.pkg.apis.apiregistration",
        other => return format!("io.k8s.api.{}.{version}.{kind}", other.split('.').next().unwrap_or(other)),
    };
    format!("{package}.{version}.{kind}")
}

impl Resource {
    /// Adds a `scale` subresource over `spec.replicas` and `status.replicas`.
    pub(super) fn with_scale(self) -> Resource {
        self.with(Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            type_name: "io.k8s.api.autoscaling.v1.Scale".into(),
            verbs: Verbs::SUBOBJECT,
            behavior: Behavior::Scale(Arc::new(ReplicaScale)),
        })
    }

    /// Adds a subresource over the object itself.
    pub(super) fn with_part(
        self,
        name: &'static str,
        verbs: Verbs,
        strategy: impl UpdateStrategy + 'static,
    ) -> Resource {
        let subresource = Subresource {
            name: name.into(),
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            type_name: self.type_name.clone(),
            verbs,
            behavior: Behavior::Object(Arc::new(strategy)),
        };
        self.with(subresource)
    }

    /// Adds an acting subresource with a body of another kind.
    pub(super) fn with_action(
        self,
        name: &'static str,
        (group, version, kind): (&'static str, &'static str, &'static str),
        action: impl Action + 'static,
    ) -> Resource {
        self.with(Subresource {
            name: name.into(),
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            type_name: type_name(group, version, kind).into(),
            verbs: Verbs::CREATE,
            behavior: Behavior::Action(Arc::new(action)),
        })
    }

    /// Adds a connection; the kind is that of its options.
    pub(super) fn with_connection(self, name: &'static str, kind: &'static str, verbs: Verbs) -> Resource {
        self.with(Subresource {
            name: name.into(),
            group: "".into(),
            version: "v1".into(),
            kind: kind.into(),
            type_name: type_name("", "v1", kind).into(),
            verbs,
            behavior: Behavior::Connect,
        })
    }

    /// Replaces the strategy.
    pub(super) fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Resource {
        self.strategy = Arc::new(strategy);
        self
    }

    fn with(mut self, subresource: Subresource) -> Resource {
        self.subresources.retain(|other| other.name != subresource.name);
        self.subresources.push(subresource);
        self.subresources.sort_by(|left, right| left.name.cmp(&right.name));
        self
    }
}

/// The path `spec`.
pub(super) const SPEC: Path<'static> = Path::root("spec");
/// The path `status`.
pub(super) const STATUS: Path<'static> = Path::root("status");
