//! The schema of a custom resource as OpenAPI documents show it.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/controller/openapi/builder/builder.go`.

use serde_json::{Value, json};

use super::resource::CustomType;
use super::structural::Structural;
use crate::apiserver::schema::Descriptions;
use crate::apiserver::validation::json::JsonExt;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// Whose words say what kind and version are.
const MODEL: &str = "io.k8s.api.core.v1.Pod";

/// The schema as it was given, with kind and version; metadata is a reference, which documents of each version write in their own way.
pub(super) fn published(schema: &Value, structural: &Structural) -> Value {
    let mut document = schema.clone();
    if !document.is_object() {
        document = json!({"type": "object"});
    }
    if structural.preserve_unknown && structural.properties.len() <= 3 {
        // Nothing is declared beyond what every object has.
        return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let properties = document.object_mut("properties");
    for name in ["apiVersion", "kind"] {
        let mut property = json!({"type": "string"});
        if let Some(text) = Descriptions::builtin().of_field(MODEL, name) {
            property["description"] = text.into();
        }
        properties.put(name, property);
    }
    document
}

impl CustomType {
    /// The schema with a reference to the metadata's type, which `reference` writes.
    pub fn document(&self, reference: impl Fn(&str) -> Value) -> Value {
        let mut document = self.published.clone();
        if document.at("properties").is_object() {
            let mut metadata = reference(&format!("{META}.ObjectMeta"));
            if let Some(text) = Descriptions::builtin().of_field(MODEL, "metadata") {
                metadata["description"] = text.into();
            }
            document["properties"]["metadata"] = metadata;
        }
        document
    }

    /// The schema of a list of objects of the type named `item`.
    pub fn list_document(item: &str, kind: &str, reference: impl Fn(&str) -> Value) -> Value {
        let text = |name: &str| Descriptions::builtin().of_field(MODEL, name).unwrap_or_default();
        json!({
            "description": format!("{kind} is a list of {}", kind.trim_end_matches("List")),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": text("apiVersion")},
                "items": {"type": "array", "items": reference(item), "description": "List of items"},
                "kind": {"type": "string", "description": text("kind")},
                "metadata": reference(&format!("{META}.ListMeta")),
            },
        })
    }
}
