//! Tables and metadata views of objects: what `kubectl get` prints and what metadata-only clients read. The columns of a kind
//! live with the kind.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::apiserver::request::Query;
use crate::apiserver::resources::{Column, Columns};
use crate::apiserver::status::{ApiError, Qualified};
use crate::apiserver::validation::{FieldError, Path};

/// What a row carries of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// A `PartialObjectMetadata`; the default.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads `includeObject`.
    ///
    /// # Errors
    /// 422 for an unknown value.
    pub fn parse(query: &Query) -> Result<IncludeObject, ApiError> {
        match query.get("includeObject").unwrap_or("") {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => {
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid(&Path::root("includeObject"), other, why);
                Err(ApiError::invalid(Qualified { group: "meta.k8s.io", name: "TableOptions" }, "", &[error]))
            }
        }
    }
}

/// A `Table` of these objects. `metadata` is that of the list, or what a table of one object takes from it. `with_columns` is
/// false for all but the first event of a watch.
pub fn table<'a>(
    columns: &dyn Columns,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    include: IncludeObject,
    now: Timestamp,
    with_columns: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .map(|object| {
            let mut row = Map::new();
            row.insert("cells".to_string(), columns.cells(object, now).into());
            let shown = match include {
                IncludeObject::None => None,
                IncludeObject::Metadata => Some(partial_metadata(object)),
                IncludeObject::Object => Some(object.clone()),
            };
            row.insert("object".to_string(), shown.unwrap_or(Value::Null));
            if include == IncludeObject::None {
                row.remove("object");
            }
            Value::Object(row)
        })
        .collect();
    let definitions = if with_columns { columns.columns().iter().map(definition).collect() } else { Value::Null };
    let mut table = Map::new();
    table.insert("kind".to_string(), "Table".into());
    table.insert("apiVersion".to_string(), "meta.k8s.io/v1".into());
    table.insert("metadata".to_string(), metadata);
    table.insert("columnDefinitions".to_string(), definitions);
    table.insert("rows".to_string(), rows.into());
    Value::Object(table)
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
        "priority": column.priority,
    })
}

/// A `PartialObjectMetadata` of an object.
pub fn partial_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// A `PartialObjectMetadataList` of objects; `metadata` is that of the list.
pub fn partial_metadata_list<'a>(objects: impl Iterator<Item = &'a Value>, metadata: &Value) -> Value {
    let items: Vec<Value> = objects.map(partial_metadata).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names(Vec<Column>);

    impl Columns for Names {
        fn columns(&self) -> &[Column] {
            &self.0
        }

        fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
            vec![object["metadata"]["name"].clone()]
        }
    }

    #[test]
    fn a_row_carries_what_was_asked_for() {
        let column = Column {
            name: "Name".into(),
            kind: "string".into(),
            format: "name".into(),
            description: "".into(),
            priority: 0,
        };
        let columns = Names(vec![column]);
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let cases = [
            (IncludeObject::None, Value::Null),
            (
                IncludeObject::Metadata,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}),
            ),
            (IncludeObject::Object, object.clone()),
        ];
        for (include, want) in cases {
            let table = table(
                &columns,
                [&object].into_iter(),
                json!({"resourceVersion": "7"}),
                include,
                Timestamp::UNIX_EPOCH,
                true,
            );
            assert_eq!(table["rows"][0]["cells"], json!(["a"]));
            assert_eq!(table["rows"][0]["object"], want);
            assert_eq!(table["columnDefinitions"][0]["format"], "name");
            assert_eq!(table["metadata"]["resourceVersion"], "7");
        }
    }

    #[test]
    fn include_object_is_one_of_three() {
        let parse = |query: &str| IncludeObject::parse(&Query::parse(query)).map_err(|error| error.code());
        assert_eq!(parse(""), Ok(IncludeObject::Metadata));
        assert_eq!(parse("includeObject=Object"), Ok(IncludeObject::Object));
        assert_eq!(parse("includeObject=All"), Err(422));
    }
}
