//! A structural schema, read once from the JSON of a CustomResourceDefinition. Which schemas are structural is checked where the
//! definition is validated; reading takes any.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/apiserver/schema/structural.go`, `convert.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::rules::Rule;
use crate::apiserver::cel::Type;
use crate::apiserver::validation::json::JsonExt;

/// How a list merges and what is unique in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// One value.
    #[default]
    Atomic,
    /// Scalars, each once.
    Set,
    /// Objects told apart by these members.
    Map(Vec<String>),
}

/// A schema with what its values must fulfil.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or `""`.
    pub ty: String,
    /// Put in where a value is missing.
    pub default: Option<Value>,
    /// Whether null is a value.
    pub nullable: bool,
    /// Members of an object.
    pub properties: BTreeMap<String, Structural>,
    /// Values of free keys; `Some(None)` takes anything.
    pub additional: Option<Option<Box<Structural>>>,
    /// Items of a list.
    pub items: Option<Box<Structural>>,
    /// Whether members that are not declared stay.
    pub preserve_unknown: bool,
    /// An object with kind, version and metadata inside another one.
    pub embedded: bool,
    /// A number or a text.
    pub int_or_string: bool,
    /// How a list merges.
    pub list_type: ListType,
    /// Whether an object is one value.
    pub atomic: bool,
    /// What values must fulfil.
    pub values: ValueRules,
    /// CEL rules, in order.
    pub rules: Vec<Rule>,
}

/// What a value must fulfil beyond its type.
#[derive(Clone, Debug, Default)]
pub struct ValueRules {
    pub(super) format: String,
    pub(super) minimum: Option<(f64, bool)>,
    pub(super) maximum: Option<(f64, bool)>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) pattern: Option<(String, Option<Regex>)>,
    pub(super) min_items: Option<usize>,
    pub(super) max_items: Option<usize>,
    pub(super) min_properties: Option<usize>,
    pub(super) max_properties: Option<usize>,
    pub(super) required: Vec<String>,
    pub(super) allowed: Vec<Value>,
    pub(super) all_of: Vec<Structural>,
    pub(super) any_of: Vec<Structural>,
    pub(super) one_of: Vec<Structural>,
    pub(super) not: Option<Box<Structural>>,
}

impl Structural {
    /// Reads the schema at the root of a version: kind, version and metadata are declared by the server.
    pub fn root(schema: &Value) -> Structural {
        let mut root = Structural::read(schema, true);
        for name in ["apiVersion", "kind"] {
            root.properties.entry(name.to_owned()).or_insert_with(|| Structural::of_type("string"));
        }
        root.properties.entry("metadata".to_owned()).or_insert_with(|| Structural::of_type("object"));
        root.compile_rules(true);
        root
    }

    /// A schema of a type and nothing else.
    pub fn of_type(ty: &str) -> Structural {
        Structural { ty: ty.to_owned(), ..Structural::default() }
    }

    /// Reads a schema without its rules.
    fn read(schema: &Value, with_rules: bool) -> Structural {
        let list = |key: &str| schema.items(key).iter().map(|inner| Structural::read(inner, false)).collect();
        let size = |key: &str| schema.int(key).and_then(|size| usize::try_from(size).ok());
        let bound = |key: &str, exclusive: &str| Some((schema.at(key).as_f64()?, schema.flag(exclusive)));
        let pattern = schema.text("pattern");
        Structural {
            ty: schema.text("type").to_owned(),
            default: Some(schema.at("default").clone()).filter(|default| !default.is_null()),
            nullable: schema.flag("nullable"),
            properties: schema
                .entries("properties")
                .into_iter()
                .flatten()
                .map(|(name, inner)| (name.clone(), Structural::read(inner, with_rules)))
                .collect(),
            additional: match schema.at("additionalProperties") {
                Value::Object(_) => {
                    Some(Some(Box::new(Structural::read(schema.at("additionalProperties"), with_rules))))
                }
                Value::Bool(true) => Some(None),
                _ => None,
            },
            items: schema.has("items").then(|| Box::new(Structural::read(schema.at("items"), with_rules))),
            preserve_unknown: schema.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: schema.flag("x-kubernetes-embedded-resource"),
            int_or_string: schema.flag("x-kubernetes-int-or-string"),
            list_type: match schema.text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => {
                    ListType::Map(schema.texts("x-kubernetes-list-map-keys").into_iter().map(str::to_owned).collect())
                }
                _ => ListType::Atomic,
            },
            atomic: schema.text("x-kubernetes-map-type") == "atomic",
            values: ValueRules {
                format: schema.text("format").to_owned(),
                minimum: bound("minimum", "exclusiveMinimum"),
                maximum: bound("maximum", "exclusiveMaximum"),
                multiple_of: schema.at("multipleOf").as_f64(),
                min_length: size("minLength"),
                max_length: size("maxLength"),
                pattern: (!pattern.is_empty()).then(|| (pattern.to_owned(), Regex::new(pattern).ok())),
                min_items: size("minItems"),
                max_items: size("maxItems"),
                min_properties: size("minProperties"),
                max_properties: size("maxProperties"),
                required: schema.texts("required").into_iter().map(str::to_owned).collect(),
                allowed: schema.items("enum").to_vec(),
                all_of: list("allOf"),
                any_of: list("anyOf"),
                one_of: list("oneOf"),
                not: schema.has("not").then(|| Box::new(Structural::read(schema.at("not"), false))),
            },
            rules: if with_rules { Rule::read_all(schema) } else { Vec::new() },
        }
    }

    fn compile_rules(&mut self, is_root: bool) {
        let ty = self.cel_type(is_root);
        for rule in &mut self.rules {
            rule.compile(&ty);
        }
        self.properties.values_mut().for_each(|inner| inner.compile_rules(false));
        if let Some(Some(inner)) = &mut self.additional {
            inner.compile_rules(false);
        }
        if let Some(inner) = &mut self.items {
            inner.compile_rules(false);
        }
    }

    /// The schema of a member, declared or free.
    pub fn member(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or_else(|| self.additional.as_ref()?.as_deref())
    }

    /// Whether the schema or one below it has CEL rules.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.properties.values().any(Structural::has_rules)
            || self.additional.iter().flatten().any(|inner| inner.has_rules())
            || self.items.iter().any(|inner| inner.has_rules())
    }

    /// The type of `self` in rules at this schema. At the root, and in embedded objects, kind, version and metadata are there.
    ///
    /// Upstream: apiserver v1.36.2 `pkg/cel/common/schemas.go` SchemaDeclType.
    pub fn cel_type(&self, with_object_meta: bool) -> Type {
        if self.int_or_string {
            return Type::Dyn;
        }
        match self.ty.as_str() {
            "boolean" => Type::Bool,
            "integer" => Type::Int,
            "number" => Type::Double,
            "string" => match self.values.format.as_str() {
                "byte" => Type::Bytes,
                "duration" => Type::Duration,
                "date" | "date-time" => Type::Timestamp,
                _ => Type::String,
            },
            "array" => {
                Type::List(Box::new(self.items.as_ref().map_or(Type::Dyn, |items| items.cel_type(items.embedded))))
            }
            "object" => match &self.additional {
                Some(Some(inner)) => Type::Map(Box::new(inner.cel_type(inner.embedded))),
                Some(None) => Type::Map(Box::new(Type::Dyn)),
                None if self.properties.is_empty() && self.preserve_unknown => Type::Dyn,
                None => self.object_type(with_object_meta || self.embedded),
            },
            _ => Type::Dyn,
        }
    }

    fn object_type(&self, with_object_meta: bool) -> Type {
        let mut fields: BTreeMap<String, Type> = self
            .properties
            .iter()
            .filter_map(|(name, inner)| Some((escaped(name)?, inner.cel_type(inner.embedded))))
            .collect();
        if with_object_meta {
            let meta = ["name", "generateName"].map(|name| (name.to_owned(), Type::String));
            let meta = crate::apiserver::cel::ObjectType { name: "object".to_owned(), fields: meta.into() };
            fields.insert("metadata".to_owned(), Type::Object(Arc::new(meta)));
            fields.insert("apiVersion".to_owned(), Type::String);
            fields.insert("kind".to_owned(), Type::String);
        }
        let name = "object".to_owned();
        Type::Object(Arc::new(crate::apiserver::cel::ObjectType { name, fields }))
    }
}

/// A member's name as rules write it; `None` for names that rules cannot reach.
///
/// Upstream: apiserver v1.36.2 `pkg/cel/escaping.go`.
pub(super) fn escaped(name: &str) -> Option<String> {
    const RESERVED: [&str; 19] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "while",
    ];
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let mut out = String::new();
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = tail;
            continue;
        }
        match letter {
            '_' => out.push('_'),
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            letter if letter.is_ascii_alphanumeric() => out.push(letter),
            _ => return None,
        }
        rest = &rest[letter.len_utf8()..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_escaped_for_rules() {
        let cases = [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("1a", None),
            ("a b", None),
        ];
        for (name, want) in cases {
            assert_eq!(escaped(name).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn the_root_declares_what_every_object_has() {
        let root = Structural::root(&json!({"type": "object", "properties": {"spec": {"type": "object"}}}));
        assert_eq!(root.properties.keys().collect::<Vec<_>>(), ["apiVersion", "kind", "metadata", "spec"]);
        assert!(!root.has_rules());
    }
}
