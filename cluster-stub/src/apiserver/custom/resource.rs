//! One version of a CustomResourceDefinition as a resource: its names, columns, subresources and rules.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/registry/customresource/`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::json_path::JsonPath;
use super::structural::Structural;
use super::{defaults, document, prune, rules, typed, validate};
use crate::apiserver::codec::decode::{DecodeError, Decoded, conform};
use crate::apiserver::resources::{
    Behavior, Column, Columns, Resource, ScaleStrategy, Strategy, Subresource, UpdateStrategy, Verbs, WriteContext,
    columns, restore_all_but, restore_metadata, same_but,
};
use crate::apiserver::schema::{Schema, TypeIdx};
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::{validate_custom_meta, validate_nonnegative, validate_object_meta_update};
use crate::apiserver::validation::names::name_is_dns_subdomain;
use crate::apiserver::validation::{ErrorKind, FieldError, Path};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const SOME_RULES_UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the \
    existing errors to complete validation";

/// What the server knows of the objects of one version.
pub struct CustomType {
    pub(super) structural: Structural,
    types: Schema,
    ty: TypeIdx,
    api_version: String,
    /// `apiVersion` of what is stored.
    stored_version: String,
    namespaced: bool,
    has_status: bool,
    scale: Option<ScalePaths>,
    labels: Vec<&'static str>,
    /// The paths of the labels.
    selectable: Vec<JsonPath>,
    /// The schema as documents show it.
    pub(super) published: Value,
}

#[derive(Clone)]
struct ScalePaths {
    spec_replicas: Vec<String>,
    status_replicas: Vec<String>,
    selector: Vec<String>,
}

impl CustomType {
    /// The types of this object for server-side apply, and which of them the object has.
    pub fn types(&self) -> (&Schema, TypeIdx) {
        (&self.types, self.ty)
    }

    /// Reads an object: unknown fields go and are told, metadata is that of any object.
    ///
    /// # Errors
    /// [`DecodeError::Type`] for metadata of a wrong type.
    pub fn read(&self, mut object: Value) -> Result<Decoded, DecodeError> {
        let mut strict_errors = Vec::new();
        let builtin = Schema::builtin();
        if let (Some(meta), Some(ty)) = (object.get_mut("metadata"), builtin.find(META)) {
            let decoded = conform(&builtin, ty, meta)?;
            *meta = decoded.object;
            let told = decoded.strict_errors.iter().map(|error| error.replacen("field \"", "field \"metadata.", 1));
            strict_errors.extend(told);
        }
        let gone = prune::prune(&mut object, &self.structural);
        strict_errors.extend(gone.into_iter().map(|path| format!("unknown field \"{path}\"")));
        Ok(Decoded { object, strict_errors })
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = match old {
            None => validate_custom_meta(object, self.namespaced, name_is_dns_subdomain),
            Some(old) => validate_object_meta_update(object, old),
        };
        validate::validate(object, old, &self.structural, "", &mut errors);
        if let Some(scale) = &self.scale {
            scale.validate(object, &mut errors);
        }
        if old != Some(object) {
            validate::validate_lists(object, &self.structural, "", &mut errors);
        }
        if !self.structural.has_rules() {
            return errors;
        }
        if errors.iter().any(|error| blocks_rules(error.kind)) {
            errors.push(validate::fault(ErrorKind::Invalid, "", Some(Value::Null), SOME_RULES_UNCHECKED));
        } else {
            rules::run(object, old, &self.structural, "", true, &mut errors);
        }
        errors
    }
}

/// Upstream: `pkg/registry/customresource/strategy.go` hasBlockingErr.
fn blocks_rules(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotSupported
            | ErrorKind::Required
            | ErrorKind::TooLong
            | ErrorKind::TooMany
            | ErrorKind::TypeInvalid
    )
}

impl ScalePaths {
    fn read(scale: &Value) -> Option<ScalePaths> {
        let path = |key: &str| -> Vec<String> {
            scale
                .text(key)
                .trim_start_matches('.')
                .split('.')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let paths = ScalePaths {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: path("labelSelectorPath"),
        };
        (!paths.spec_replicas.is_empty()).then_some(paths)
    }

    fn validate(&self, object: &Value, out: &mut Vec<FieldError>) {
        for path in [&self.spec_replicas, &self.status_replicas] {
            let Some(count) = at(object, path).as_i64() else { continue };
            let why = if count < 0 {
                "should be a non-negative integer".to_owned()
            } else if count > i64::from(i32::MAX) {
                format!("should be less than or equal to {}", i32::MAX)
            } else {
                continue;
            };
            out.push(validate::fault(ErrorKind::Invalid, &format!(".{}", path.join(".")), Some(count.into()), why));
        }
    }
}

fn at<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |value, name| value.at(name))
}

impl Strategy for CustomType {
    fn apply_defaults(&self, object: &mut Value) {
        defaults::apply(object, &self.structural);
    }

    fn prepare_for_create(&self, _context: &WriteContext<'_>, object: &mut Value) {
        if self.has_status {
            object.take_member("status");
        }
        object.object_mut("metadata").put("generation", json!(1));
    }

    fn prepare_for_update(&self, _context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let mut ignored = vec!["metadata", "apiVersion", "kind"];
        if self.has_status {
            object.put("status", old.at("status").clone());
            ignored.push("status");
        }
        let before = old.at("metadata").int("generation").unwrap_or(0);
        let changed = !same_but(object, old, &ignored);
        object.object_mut("metadata").put("generation", json!(before + i64::from(changed)));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.validate(object, None)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        self.validate(object, Some(old))
    }

    fn field_labels(&self) -> &[&'static str] {
        &self.labels
    }

    fn field_values(&self, object: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let of = |path: &JsonPath| path.find(object).first().filter(|value| !value.is_null()).map(|value| text(value));
        self.selectable.iter().map(|path| of(path).unwrap_or_default()).collect()
    }

    fn convert_to_storage(&self, object: &mut Value) {
        object["apiVersion"] = self.stored_version.as_str().into();
    }

    fn convert_from_storage(&self, object: &mut Value) {
        object["apiVersion"] = self.api_version.as_str().into();
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        if self.has_status { &["status"] } else { &[] }
    }
}

/// The `status` subresource.
struct StatusOf(Arc<CustomType>);

impl UpdateStrategy for StatusOf {
    fn prepare_for_update(&self, _context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        restore_all_but(object, old, &["metadata", "status"]);
        restore_metadata(object, old);
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        self.0.validate(object, Some(old))
    }

    fn reset_fields(&self) -> Cow<'static, [&'static str]> {
        Cow::Borrowed(&["spec", "metadata"])
    }
}

/// The `scale` subresource.
struct ScaleOf(ScalePaths);

impl ScaleStrategy for ScaleOf {
    fn scale_of(&self, object: &Value) -> Value {
        let count = |path: &[String]| at(object, path).as_i64().unwrap_or(0);
        let mut scale = json!({"spec": {}, "status": {"replicas": count(&self.0.status_replicas)}});
        let replicas = count(&self.0.spec_replicas);
        if replicas != 0 {
            scale["spec"]["replicas"] = replicas.into();
        }
        let selector =
            if self.0.selector.is_empty() { "" } else { at(object, &self.0.selector).as_str().unwrap_or("") };
        if !selector.is_empty() {
            scale["status"]["selector"] = selector.into();
        }
        scale
    }

    fn apply_scale(&self, object: &mut Value, scale: &Value) {
        let Some((last, way)) = self.0.spec_replicas.split_last() else { return };
        let holder = way.iter().fold(object, |value, name| value.object_mut(name));
        holder.put(last, json!(scale.at("spec").int("replicas").unwrap_or(0)));
    }

    fn validate_scale(&self, scale: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate_nonnegative(scale.at("spec").int("replicas"), &Path::root("spec").child("replicas"), &mut errors);
        errors
    }

    fn replicas_path(&self) -> Vec<Cow<'static, str>> {
        self.0.spec_replicas.iter().map(|name| Cow::Owned(name.clone())).collect()
    }
}

/// The columns of a version.
struct Printer {
    columns: Vec<Column>,
    paths: Vec<(String, Option<JsonPath>)>,
}

impl Printer {
    fn of(version: &Value) -> Printer {
        let mut printer = Printer { columns: vec![columns::NAME], paths: Vec::new() };
        let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
        let given = version.items("additionalPrinterColumns");
        for column in if given.is_empty() { &age } else { given } {
            let text = |key: &str| Cow::Owned(column.text(key).to_owned());
            printer.columns.push(Column {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                description: text("description"),
                priority: column.int("priority").and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
            });
            printer.paths.push((column.text("type").to_owned(), JsonPath::parse(column.text("jsonPath"))));
        }
        printer
    }
}

impl Columns for Printer {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let cell = |(kind, path): &(String, Option<JsonPath>)| {
            let found = path.as_ref().and_then(|path| path.find(object).into_iter().next());
            found.map_or(Value::Null, |value| cell(kind, value, now))
        };
        [columns::name(object)].into_iter().chain(self.paths.iter().map(cell)).collect()
    }
}

/// Upstream: `pkg/registry/customresource/tableconvertor/tableconvertor.go` cellForJSONValue.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => Value::Null,
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).map_or(Value::Null, Into::into)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) if text.parse::<Timestamp>().is_ok() => columns::since(text, now).into(),
        ("date", Value::String(_)) => "<invalid>".into(),
        _ => Value::Null,
    }
}

/// The resource of one version of a definition whose names are accepted.
pub(super) fn resource(definition: &Value, version: &Value) -> Resource {
    let spec = definition.at("spec");
    let names = definition.at("status").at("acceptedNames");
    let group = spec.text("group").to_owned();
    let stored = spec.items("versions").iter().find(|version| version.flag("storage")).unwrap_or(version);
    let owned = |text: &str| Cow::Owned(text.to_owned());
    let list = |key: &str| names.texts(key).into_iter().map(owned).collect();
    let (kind, plural) = (names.text("kind"), names.text("plural"));
    let name = version.text("name");
    let api_version = format!("{group}/{name}");
    let namespaced = spec.text("scope") == "Namespaced";
    let structural = Structural::root(version.at("schema").at("openAPIV3Schema"));
    let (types, ty) = typed::types(&structural);
    let (labels, selectable) = version
        .items("selectableFields")
        .iter()
        .filter_map(|field| {
            let path = field.text("jsonPath");
            Some((interned(path.trim_start_matches('.')), JsonPath::parse(path)?))
        })
        .unzip();
    let custom = Arc::new(CustomType {
        types,
        ty,
        stored_version: format!("{group}/{}", stored.text("name")),
        api_version: api_version.clone(),
        namespaced,
        has_status: version.at("subresources").has("status"),
        scale: ScalePaths::read(version.at("subresources").at("scale")),
        labels,
        selectable,
        published: document::published(version.at("schema").at("openAPIV3Schema"), &structural),
        structural,
    });
    let type_name = format!("{}.{name}.{kind}", group.split('.').rev().collect::<Vec<_>>().join("."));
    let part = |name: &'static str, group: &str, version: &str, kind: &str, type_name: &str, behavior| Subresource {
        name: name.into(),
        group: owned(group),
        version: owned(version),
        kind: owned(kind),
        type_name: owned(type_name),
        verbs: Verbs::SUBOBJECT,
        behavior,
    };
    let mut subresources = Vec::new();
    if custom.has_status {
        let behavior = Behavior::Object(Arc::new(StatusOf(custom.clone())));
        subresources.push(part("status", &group, name, kind, &type_name, behavior));
    }
    if let Some(paths) = &custom.scale {
        let behavior = Behavior::Scale(Arc::new(ScaleOf(paths.clone())));
        subresources.push(part("scale", "autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale", behavior));
    }
    Resource {
        deprecation: version.flag("deprecated").then(|| Cow::Owned(deprecation(spec, version, kind))),
        version: owned(name),
        plural: owned(plural),
        singular: owned(names.text("singular")),
        kind: owned(kind),
        list_kind: owned(names.text("listKind")),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced,
        verbs: Verbs::ALL,
        subresources,
        type_name: type_name.into(),
        columns: Arc::new(Printer::of(version)),
        strategy: custom.clone(),
        custom: Some(custom),
        action: None,
        storage: format!("{group}/{plural}").into(),
        group: group.into(),
    }
}

/// What a deprecated version is warned of.
fn deprecation(spec: &Value, version: &Value, kind: &str) -> String {
    let given = version.text("deprecationWarning");
    if !given.is_empty() {
        return given.to_owned();
    }
    let (group, name) = (spec.text("group"), version.text("name"));
    let better = spec
        .items("versions")
        .iter()
        .filter(|other| other.flag("served") && !other.flag("deprecated"))
        .map(|other| other.text("name"))
        .max_by_key(|other| crate::apiserver::discovery::version_rank(other))
        .filter(|other| {
            crate::apiserver::discovery::version_rank(other) > crate::apiserver::discovery::version_rank(name)
        });
    match better {
        Some(better) => format!("{group}/{name} {kind} is deprecated; use {group}/{better} {kind}"),
        None => format!("{group}/{name} {kind} is deprecated"),
    }
}

/// A label that lives as long as the program. Definitions come and go, but the paths that they name are few.
fn interned(label: &str) -> &'static str {
    static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    match known.get(label) {
        Some(label) => label,
        None => {
            let label: &'static str = Box::leak(label.to_owned().into_boxed_str());
            known.insert(label);
            label
        }
    }
}
