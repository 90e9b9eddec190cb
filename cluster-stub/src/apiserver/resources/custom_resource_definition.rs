//! CustomResourceDefinition: defaults, validation, what a delete does first. What a definition makes the server serve lives in `custom`.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apis/apiextensions/v1/defaults.go`, `validation/validation.go`,
//! `pkg/apiserver/schema/validation.go`, `pkg/registry/customresourcedefinition/strategy.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::{Kind, SPEC, STATUS, same};
use super::resource::Resource;
use super::strategy::{Strategy, WriteContext};
use crate::apiserver::custom::JsonPath;
use crate::apiserver::registry::format_time;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::meta::validate_immutable;
use crate::apiserver::validation::names::{dns_1035_label, dns_subdomain, path_segment};
use crate::apiserver::validation::{FieldError, Path};

mod schema;

const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
const APPROVED: &str = "api-approved.kubernetes.io";

/// CustomResourceDefinition.
pub(super) fn resource() -> Resource {
    let kind = Kind::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
        .cluster_scoped()
        .short_names(&["crd", "crds"])
        .categories(&["api-extensions"])
        .generation()
        .status()
        .name_rule(path_segment)
        .defaults(apply_defaults)
        .validate(validate)
        .validate_update(validate_update);
    let strategy = Definition(kind.clone());
    let mut resource = kind.build().with_strategy(strategy);
    resource.storage = "apiextensions.k8s.io/customresourcedefinitions".into();
    resource
}

/// The generic rules; the stored version is noted in the status, and a deleted definition waits for its objects.
struct Definition(Kind);

impl Strategy for Definition {
    fn apply_defaults(&self, object: &mut Value) {
        self.0.apply_defaults(object);
    }

    fn prepare_for_create(&self, context: &WriteContext<'_>, object: &mut Value) {
        self.0.prepare_for_create(context, object);
        object.put("status", json!({}));
        note_stored_version(object);
    }

    fn prepare_for_update(&self, context: &WriteContext<'_>, object: &mut Value, old: &Value) {
        self.0.prepare_for_update(context, object, old);
        note_stored_version(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        Strategy::validate(&self.0, object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        Strategy::validate_update(&self.0, object, old)
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn keeps_deleted(&self, object: &Value) -> bool {
        !object.at("metadata").has("deletionTimestamp")
    }

    /// Upstream: `pkg/registry/customresourcedefinition/etcd.go` Delete.
    fn prepare_for_delete(&self, object: &mut Value) {
        let metadata = object.object_mut("metadata");
        let mut finalizers = metadata.at("finalizers").as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            finalizers.push(CLEANUP.into());
        }
        metadata.put("finalizers", finalizers.into());
        let status = object.object_mut("status");
        let mut conditions = status.items("conditions").to_vec();
        conditions.retain(|condition| condition.text("type") != "Terminating");
        conditions.push(json!({
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            "lastTransitionTime": format_time(Timestamp::now()),
        }));
        status.put("conditions", conditions.into());
    }
}

fn apply_defaults(object: &mut Value) {
    let spec = object.object_mut("spec");
    spec.default_to("conversion", json!({"strategy": "None"}));
    let kind = spec.at("names").text("kind").to_owned();
    let names = spec.object_mut("names");
    if names.text("singular").is_empty() && !kind.is_empty() {
        names.put("singular", json!(kind.to_lowercase()));
    }
    if names.text("listKind").is_empty() && !kind.is_empty() {
        names.put("listKind", json!(format!("{kind}List")));
    }
}

fn note_stored_version(object: &mut Value) {
    let stored = object.at("spec").items("versions").iter().find(|version| version.flag("storage"));
    let Some(name) = stored.map(|version| version.text("name").to_owned()) else { return };
    let mut versions = object.at("status").items("storedVersions").to_vec();
    if !versions.iter().any(|version| *version == name) {
        versions.push(name.into());
        object.object_mut("status").put("storedVersions", versions.into());
    }
}

fn validate(object: &Value, out: &mut Vec<FieldError>) {
    let (metadata, spec) = (object.at("metadata"), object.at("spec"));
    let name = metadata.text("name");
    let field = Path::root("metadata").child("name").to_string();
    let at_name = |why: String| FieldError { path: field.clone(), ..FieldError::invalid(&SPEC, name, why) };
    let (group, plural) = (spec.text("group"), spec.at("names").text("plural"));
    out.extend(dns_subdomain(name).into_iter().map(at_name));
    if name != format!("{plural}.{group}") {
        out.push(at_name("must be spec.names.plural+\".\"+spec.group".to_owned()));
    }
    validate_spec(spec, out);
    validate_names(object.at("status").at("acceptedNames"), &STATUS.child("acceptedNames"), out);
    validate_stored_versions(object, out);
    validate_approval(metadata, group, out);
    if spec.flag("preserveUnknownFields") {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        out.push(FieldError::invalid(&SPEC.child("preserveUnknownFields"), true, why));
    }
}

fn validate_update(object: &Value, old: &Value, out: &mut Vec<FieldError>) {
    let (spec, before) = (object.at("spec"), old.at("spec"));
    let conditions = old.at("status").items("conditions");
    let established = |condition: &Value| condition.text("type") == "Established" && condition.text("status") == "True";
    let names = SPEC.child("names");
    if conditions.iter().any(established) {
        validate_immutable(spec.at("scope"), before.at("scope"), &SPEC.child("scope"), out);
        let (kind, old_kind) = (spec.at("names").at("kind"), before.at("names").at("kind"));
        validate_immutable(kind, old_kind, &names.child("kind"), out);
    }
    validate_immutable(spec.at("group"), before.at("group"), &SPEC.child("group"), out);
    let (plural, old_plural) = (spec.at("names").at("plural"), before.at("names").at("plural"));
    validate_immutable(plural, old_plural, &names.child("plural"), out);
}

fn validate_spec(spec: &Value, out: &mut Vec<FieldError>) {
    let group = spec.text("group");
    let field = SPEC.child("group");
    let faults = dns_subdomain(group);
    if group.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else if !faults.is_empty() {
        out.push(FieldError::invalid(&field, group, faults.join(",")));
    } else if !group.contains('.') {
        out.push(FieldError::invalid(&field, group, "should be a domain with at least one dot"));
    }
    let (scope, field) = (spec.text("scope"), SPEC.child("scope"));
    if scope.is_empty() {
        out.push(FieldError::required(&field, ""));
    } else if !["Cluster", "Namespaced"].contains(&scope) {
        out.push(FieldError::not_supported(&field, scope, &["Cluster", "Namespaced"]));
    }
    let versions = spec.items("versions");
    let path = SPEC.child("versions");
    for (index, version) in versions.iter().enumerate() {
        if !version.at("schema").has("openAPIV3Schema") {
            out.push(FieldError::required(&path.index(index).child("schema").child("openAPIV3Schema"), ""));
        }
    }
    // Where all versions say the same, upstream keeps it once, and that is where faults are told.
    let shared = |key: &str| {
        let first = versions.first().map_or(&Value::Null, |version| version.at(key));
        !first.is_null()
            && !first.as_array().is_some_and(Vec::is_empty)
            && versions.iter().all(|v| same(v.at(key), first))
    };
    let [one_schema, one_part, one_table] = ["schema", "subresources", "additionalPrinterColumns"].map(shared);
    let mut names = BTreeSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        unique &= names.insert(version.text("name"));
        let path = path.index(index);
        let faults = dns_1035_label(version.text("name"));
        if !faults.is_empty() {
            out.push(FieldError::invalid(&path.child("name"), version.text("name"), faults.join(",")));
        }
        validate_deprecation(version, &path, out);
        if !one_schema {
            schema::validate(version, &path.child("schema"), out);
        }
        if !one_part {
            validate_subresources(version.at("subresources"), &path.child("subresources"), out);
        }
        if !one_table {
            validate_columns(version, &path.child("additionalPrinterColumns"), out);
        }
        schema::validate_selectable(version, &path.child("selectableFields"), out);
    }
    if !unique {
        out.push(FieldError::invalid(&path, spec.at("versions").clone(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        out.push(FieldError::invalid(&path, spec.at("versions").clone(), why));
    }
    let names = SPEC.child("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if spec.at("names").text(key).is_empty() {
            out.push(FieldError::required(&names.child(key), ""));
        }
    }
    validate_names(spec.at("names"), &names, out);
    if let Some(version) = versions.first() {
        if one_schema {
            schema::validate(version, &SPEC.child("validation"), out);
        }
        if one_part {
            validate_subresources(version.at("subresources"), &SPEC.child("subresources"), out);
        }
        if one_table {
            validate_columns(version, &SPEC.child("additionalPrinterColumns"), out);
        }
    }
    validate_conversion(spec.at("conversion"), out);
}

fn validate_deprecation(version: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let Some(text) = version.at("deprecationWarning").as_str() else { return };
    let field = path.child("deprecationWarning");
    let mut say = |why: &str| out.push(FieldError::invalid(&field, text, why));
    if !version.flag("deprecated") {
        say("can only be set for deprecated versions");
    } else if text.is_empty() {
        say("must not be an empty string");
    } else if text.len() > 256 {
        say("must be <= 256 characters long");
    }
}

fn validate_subresources(subresources: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let scale = subresources.at("scale");
    if scale.is_null() {
        return;
    }
    let path = path.child("scale");
    let mut check = |key: &'static str, root: &str, required: bool, roots: &[&str]| {
        let (text, field) = (scale.text(key), path.child(key));
        if text.is_empty() {
            if required {
                out.push(FieldError::required(&field, ""));
            }
            return;
        }
        let members = JsonPath::parse(text).and_then(|path| path.members().map(|names| names.len() > 1));
        if !text.starts_with('.') || members.is_none() {
            out.push(FieldError::invalid(&field, text, "is an invalid path: unexpected JSONPath"));
        } else if !roots.iter().any(|root| text.starts_with(root)) {
            out.push(FieldError::invalid(&field, text, format!("should be a json path under {root}")));
        }
    };
    check("specReplicasPath", ".spec", true, &[".spec."]);
    check("statusReplicasPath", ".status", true, &[".status."]);
    check("labelSelectorPath", "either .spec or .status", false, &[".spec.", ".status."]);
}

fn validate_columns(version: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in version.items("additionalPrinterColumns").iter().enumerate() {
        let path = path.index(index);
        if column.text("name").is_empty() {
            out.push(FieldError::required(&path.child("name"), ""));
        }
        let known = format!("must be one of {}", TYPES.join(","));
        let ty = column.text("type");
        if ty.is_empty() {
            out.push(FieldError::required(&path.child("type"), known));
        } else if !TYPES.contains(&ty) {
            out.push(FieldError::invalid(&path.child("type"), ty, known));
        }
        let format = column.text("format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            let known = format!("must be one of {}", FORMATS.join(","));
            out.push(FieldError::invalid(&path.child("format"), format, known));
        }
        let (text, field) = (column.text("jsonPath"), path.child("JSONPath"));
        if text.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else if !text.starts_with('.') || JsonPath::parse(text).is_none() {
            out.push(FieldError::invalid(
                &field,
                text,
                "is an invalid path: must be a simple json path starting with .",
            ));
        }
    }
}

fn validate_names(names: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    for key in ["plural", "singular"] {
        let faults = dns_1035_label(names.text(key));
        if !names.text(key).is_empty() && !faults.is_empty() {
            out.push(FieldError::invalid(&path.child(key), names.text(key), faults.join(",")));
        }
    }
    for key in ["kind", "listKind"] {
        let faults = dns_1035_label(&names.text(key).to_lowercase());
        if !names.text(key).is_empty() && !faults.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            out.push(FieldError::invalid(&path.child(key), names.text(key), why));
        }
    }
    let each = |key: &'static str, out: &mut Vec<FieldError>| {
        for (index, name) in names.texts(key).into_iter().enumerate() {
            let faults = dns_1035_label(name);
            if !faults.is_empty() {
                out.push(FieldError::invalid(&path.child(key).index(index), name, faults.join(",")));
            }
        }
    };
    each("shortNames", out);
    if !names.text("kind").is_empty() && names.text("kind") == names.text("listKind") {
        let why = "kind and listKind may not be the same";
        out.push(FieldError::invalid(&path.child("listKind"), names.text("listKind"), why));
    }
    each("categories", out);
}

fn validate_conversion(conversion: &Value, out: &mut Vec<FieldError>) {
    let path = SPEC.child("conversion");
    let strategy = conversion.text("strategy");
    let webhook = conversion.at("webhook");
    let client = path.child("webhookClientConfig");
    if !["None", "Webhook"].contains(&strategy) {
        out.push(FieldError::not_supported(&path.child("strategy"), strategy, &["None", "Webhook"]));
    } else if strategy == "Webhook" {
        let config = webhook.at("clientConfig");
        if config.is_null() {
            out.push(FieldError::required(&client, "required when strategy is set to Webhook"));
        } else if config.has("url") == config.has("service") {
            out.push(FieldError::required(&client, "exactly one of url or service is required"));
        }
        let versions = webhook.texts("conversionReviewVersions");
        let field = path.child("conversionReviewVersions");
        if versions.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else if !versions.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
            let given = webhook.at("conversionReviewVersions").clone();
            out.push(FieldError::invalid(&field, given, "must include at least one of v1, v1beta1"));
        }
    } else if webhook.has("clientConfig") {
        out.push(FieldError::forbidden(&client, "should not be set when strategy is not set to Webhook"));
    }
}

fn validate_stored_versions(object: &Value, out: &mut Vec<FieldError>) {
    let stored = object.at("status").texts("storedVersions");
    let path = STATUS.child("storedVersions");
    let versions = object.at("spec").items("versions");
    if stored.is_empty() {
        out.push(FieldError::invalid(&path, Value::Null, "must have at least one stored version"));
        return;
    }
    for version in versions.iter().filter(|version| version.flag("storage")) {
        let name = version.text("name");
        if !stored.contains(&name) {
            let given = object.at("status").at("storedVersions").clone();
            out.push(FieldError::invalid(&path, given, format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.into_iter().enumerate() {
        if !versions.iter().any(|version| version.text("name") == name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a \
                 storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            out.push(FieldError::invalid(&path.index(index), name, why));
        }
    }
}

/// Groups of Kubernetes' own need the mark of a review.
fn validate_approval(metadata: &Value, group: &str, out: &mut Vec<FieldError>) {
    let own =
        ["k8s.io", "kubernetes.io"].iter().any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !own {
        return;
    }
    let path = Path::root("metadata").child("annotations").to_string();
    let at = |error: FieldError| FieldError { path: format!("{path}[{APPROVED}]"), ..error };
    let given = metadata.at("annotations").text(APPROVED);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let is_url = given.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    if given.is_empty() {
        let why = format!("protected groups must have approval annotation \"{APPROVED}\", {see}");
        out.push(at(FieldError::required(&SPEC, why)));
    } else if !given.starts_with("unapproved") && !is_url {
        let why = format!(
            "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \"unapproved\", {see}"
        );
        out.push(at(FieldError::invalid(&SPEC, given, why)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        let mut object = json!({
            "metadata": {"name": "things.g.example.com"},
            "spec": {"group": "g.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        apply_defaults(&mut object);
        note_stored_version(&mut object);
        object
    }

    fn faults(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut object = definition();
        change(&mut object);
        let mut errors = Vec::new();
        validate(&object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_follow_from_the_kind() {
        let object = definition();
        assert_eq!(object["spec"]["names"]["singular"], "thing");
        assert_eq!(object["spec"]["names"]["listKind"], "ThingList");
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(faults(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn faults_have_upstreams_words_and_places() {
        let cases: [(&str, &dyn Fn(&mut Value), &str); 6] = [
            (
                "name",
                &|object| object["metadata"]["name"] = "wrong".into(),
                r#"metadata.name: Invalid value: "wrong": must be spec.names.plural+"."+spec.group"#,
            ),
            (
                "no schema",
                &|object| object["spec"]["versions"][0]["schema"] = Value::Null,
                "spec.versions[0].schema.openAPIV3Schema: Required value",
            ),
            (
                "scope",
                &|object| object["spec"]["scope"] = "Wide".into(),
                r#"spec.scope: Unsupported value: "Wide": supported values: "Cluster", "Namespaced""#,
            ),
            (
                "a member without a type",
                &|object| {
                    object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
                        json!({"spec": {"properties": {"a": {"type": "string"}}}});
                },
                "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
            ),
            (
                "column",
                &|object| {
                    object["spec"]["versions"][0]["additionalPrinterColumns"] =
                        json!([{"name": "A", "type": "text", "jsonPath": ".a"}])
                },
                r#"spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string"#,
            ),
            (
                "warning",
                &|object| object["spec"]["versions"][0]["deprecationWarning"] = "old".into(),
                r#"spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions"#,
            ),
        ];
        for (name, change, want) in cases {
            assert_eq!(faults(change), [want], "{name}");
        }
    }

    #[test]
    fn own_groups_need_approval() {
        let own = |annotation: Option<&str>| {
            faults(|object| {
                object["metadata"]["name"] = "things.x.k8s.io".into();
                object["spec"]["group"] = "x.k8s.io".into();
                if let Some(annotation) = annotation {
                    object["metadata"]["annotations"] = json!({APPROVED: annotation});
                }
            })
            .len()
        };
        assert_eq!(
            (own(None), own(Some("https://example.com/1")), own(Some("unapproved, testing")), own(Some("x"))),
            (1, 0, 0, 1)
        );
    }

    #[test]
    fn a_deleted_definition_waits_for_its_objects() {
        let strategy = resource().strategy;
        let mut object = definition();
        assert!(strategy.keeps_deleted(&object));
        strategy.prepare_for_delete(&mut object);
        assert_eq!(object["metadata"]["finalizers"], json!([CLEANUP]));
        assert_eq!(object["status"]["conditions"][0]["reason"], "InstanceDeletionPending");
    }
}
