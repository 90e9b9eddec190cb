//! Reads the text table of API types. The format is line based, so that a diff of the table reads like a diff of the API:
//!
//! ```text
//! # a comment; blank lines are skipped
//! type io.k8s.api.core.v1.Container
//!  name string required
//!  args list<string> atomic
//!  ports list<io.k8s.api.core.v1.ContainerPort> map=containerPort,protocol patch=merge key=containerPort
//!  imagePullPolicy string enum=Always|IfNotPresent|Never
//! type io.k8s.api.core.v1.LabelSelector atomic
//!  matchLabels map<string>
//! ```
//!
//! A field line is one blank, the JSON name, the type, then attributes in any order: `required`; `atomic`, `set` or
//! `map=<keys>` (list or map structure); `patch=merge`, `patch=merge,retainKeys`, `patch=retainKeys` or `patch=replace`;
//! `key=<merge key>`; `enum=<a>|<b>`; `default=<JSON without blanks>`. Types are `string int32 int64 double bool quantity
//! int-or-string time micro-time duration bytes any fields-v1 map<T> list<T>` or the name of a type of the table.

use std::collections::HashMap;

use super::{Field, PatchStrategy, Schema, Structure, Type, TypeIdx, TypeRef};

/// A line of the table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("type table, line {line}: {what}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Schema {
    /// Reads a table. Types may be used before their line.
    pub fn parse(table: &str) -> Result<Schema, ParseError> {
        let mut by_name = HashMap::new();
        for (number, line) in lines(table) {
            if let Some(head) = line.strip_prefix("type ") {
                let name = head.split(' ').next().unwrap_or("");
                let idx = TypeIdx(u32::try_from(by_name.len()).expect("a table has fewer lines than u32 counts"));
                if by_name.insert(Box::from(name), idx).is_some() {
                    return Err(ParseError { line: number, what: format!("type {name} occurs twice") });
                }
            }
        }
        let mut schema = Schema { types: Vec::with_capacity(by_name.len()), by_name };
        for (number, line) in lines(table) {
            let fail = |what: String| ParseError { line: number, what };
            if let Some(head) = line.strip_prefix("type ") {
                let mut words = head.split(' ');
                let name = words.next().unwrap_or("").into();
                let atomic = match words.next() {
                    None => false,
                    Some("atomic") => true,
                    Some(other) => return Err(fail(format!("unknown type attribute {other}, expected atomic"))),
                };
                schema.types.push(Type { name, atomic, fields: Vec::new() });
            } else if let Some(line) = line.strip_prefix(' ') {
                let field = schema.parse_field(line).map_err(fail)?;
                let ty = schema.types.last_mut().ok_or_else(|| fail("a field before the first type".to_string()))?;
                ty.fields.push(field);
            } else {
                return Err(fail(format!("expected `type NAME` or a field, found {line:?}")));
            }
        }
        for ty in &mut schema.types {
            ty.fields.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(schema)
    }

    fn parse_field(&self, line: &str) -> Result<Field, String> {
        let mut words = line.split(' ');
        let (Some(name), Some(ty)) = (words.next(), words.next()) else {
            return Err(format!("expected `name type …`, found {line:?}"));
        };
        let mut field = Field {
            name: name.into(),
            ty: self.parse_type(ty)?,
            required: false,
            structure: Structure::Default,
            patch: PatchStrategy::default(),
            values: Vec::new(),
            default: None,
        };
        for word in words {
            let (attribute, value) = word.split_once('=').unwrap_or((word, ""));
            match attribute {
                "required" => field.required = true,
                "atomic" => field.structure = Structure::Atomic,
                "set" => field.structure = Structure::Set,
                "map" => field.structure = Structure::Map(value.split(',').map(Box::from).collect()),
                "patch" => {
                    field.patch.merge = value.split(',').any(|part| part == "merge");
                    field.patch.retain_keys = value.split(',').any(|part| part == "retainKeys");
                }
                "key" => field.patch.merge_key = Some(value.into()),
                "enum" => field.values = value.split('|').map(Box::from).collect(),
                "default" => {
                    let parsed = serde_json::from_str(value).map_err(|error| format!("default of {name}: {error}"))?;
                    field.default = Some(parsed);
                }
                other => return Err(format!("unknown attribute {other} of field {name}")),
            }
        }
        Ok(field)
    }

    fn parse_type(&self, text: &str) -> Result<TypeRef, String> {
        let inner = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
        Ok(match text {
            "string" => TypeRef::String,
            "int32" => TypeRef::Int32,
            "int64" => TypeRef::Int64,
            "double" => TypeRef::Double,
            "bool" => TypeRef::Bool,
            "quantity" => TypeRef::Quantity,
            "int-or-string" => TypeRef::IntOrString,
            "time" => TypeRef::Time,
            "micro-time" => TypeRef::MicroTime,
            "duration" => TypeRef::Duration,
            "bytes" => TypeRef::Bytes,
            "any" => TypeRef::Any,
            "fields-v1" => TypeRef::FieldsV1,
            _ => {
                if let Some(value) = inner("map<") {
                    TypeRef::Map(Box::new(self.parse_type(value)?))
                } else if let Some(item) = inner("list<") {
                    TypeRef::List(Box::new(self.parse_type(item)?))
                } else {
                    TypeRef::Object(self.find(text).ok_or_else(|| format!("unknown type {text}"))?)
                }
            }
        })
    }
}

fn lines(table: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = table.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# two types\ntype a.v1.Box atomic\n items list<a.v1.Item> map=name,port patch=merge,retainKeys key=name\n label string required enum=X|Y\n\ntype a.v1.Item\n name string\n port int32 default=80\n sizes map<list<quantity>>\n";

    #[test]
    fn a_table_gives_types_fields_and_attributes() {
        let schema = Schema::parse(TABLE).expect("the table is right");
        let boxed = schema.get(schema.find("a.v1.Box").expect("it is in the table"));
        let item = schema.find("a.v1.Item").expect("it is in the table");
        assert!(boxed.atomic);
        assert_eq!(boxed.go_name(), "v1.Box");
        let items = boxed.field("items").expect("it is in the table");
        assert_eq!(items.ty, TypeRef::List(Box::new(TypeRef::Object(item))));
        assert_eq!(items.structure, Structure::Map(vec!["name".into(), "port".into()]));
        assert!(items.patch.merge && items.patch.retain_keys);
        assert_eq!(items.patch.merge_key.as_deref(), Some("name"));
        let label = boxed.field("label").expect("it is in the table");
        assert!(label.required);
        assert_eq!(label.values, ["X".into(), "Y".into()]);
        let item = schema.get(item);
        assert_eq!(item.field("port").expect("it is in the table").default, Some(80.into()));
        assert_eq!(
            schema.go_type(&item.field("sizes").expect("it is in the table").ty),
            "map[string][]resource.Quantity"
        );
        assert_eq!(item.field("absent"), None);
    }

    #[test]
    fn faults_name_their_line() {
        let cases = [
            (" name string\n", 1, "a field before the first type"),
            ("type a\n x nope\n", 2, "unknown type nope"),
            ("type a\n x string odd\n", 2, "unknown attribute odd of field x"),
            ("type a\ntype a\n", 2, "type a occurs twice"),
            ("what\n", 1, "expected `type NAME` or a field, found \"what\""),
            ("type a odd\n", 1, "unknown type attribute odd, expected atomic"),
        ];
        for (table, line, what) in cases {
            let error = Schema::parse(table).expect_err("the table is wrong");
            assert_eq!(error, ParseError { line, what: what.to_string() });
        }
    }

    #[test]
    fn the_builtin_table_can_be_read() {
        if let Err(error) = Schema::parse(include_str!("types.txt")) {
            panic!("{error}");
        }
    }
}
