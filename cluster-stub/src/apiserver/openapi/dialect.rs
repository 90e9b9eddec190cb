//! What differs between OpenAPI v2 and v3.

use serde_json::{Value, json};

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Dialect {
    /// A reference to the schema of a type.
    pub(super) fn reference(self, type_name: &str) -> Value {
        let root = match self {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{root}{type_name}")})
    }

    /// A reference beside which other members may stand: v3 ignores what stands beside a `$ref`.
    pub(super) fn extensible_reference(self, type_name: &str) -> Value {
        match self {
            Dialect::V2 => self.reference(type_name),
            Dialect::V3 => json!({"allOf": [self.reference(type_name)]}),
        }
    }

    /// A parameter of a scalar type.
    pub(super) fn parameter(self, name: &str, location: &str, ty: &str) -> Value {
        let mut parameter = json!({"name": name, "in": location});
        match self {
            Dialect::V2 => parameter["type"] = json!(ty),
            Dialect::V3 => parameter["schema"] = json!({"type": ty}),
        }
        if location == "path" {
            parameter["required"] = json!(true);
        }
        parameter["uniqueItems"] = json!(true);
        parameter
    }
}
