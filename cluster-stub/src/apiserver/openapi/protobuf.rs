//! The v2 document in the binary form that kubectl asks for.
//!
//! Field numbers: gnostic-models `openapiv2/OpenAPIv2.proto`. Extensions and other free values travel as YAML text, for
//! which JSON serves.

use serde_json::Value;

/// The media type, as kube-apiserver v1.36.2 names it in its answers.
pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Whether an Accept header prefers the binary form; older clients write `@` before the version.
pub(super) fn is_preferred(accept: &str) -> bool {
    let first = accept.split([',', ';']).next().unwrap_or_default().trim();
    first == MEDIA_TYPE || first == "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
}

/// Encodes the JSON form of a v2 document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document["swagger"].as_str());
    out.message(2, |info| {
        info.text(1, document["info"]["title"].as_str());
        info.text(2, document["info"]["version"].as_str());
    });
    out.message(8, |out| paths(out, &document["paths"]));
    out.message(9, |definitions| named_schemas(definitions, &document["definitions"]));
    out.0
}

fn paths(out: &mut Message, paths: &Value) {
    const METHODS: [(&str, u64); 5] = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)];
    for (path, item) in paths.as_object().into_iter().flatten() {
        out.message(2, |named| {
            named.text(1, Some(path));
            named.message(2, |out| {
                for (method, field) in METHODS {
                    if item[method].is_object() {
                        out.message(field, |out| operation(out, &item[method]));
                    }
                }
                parameters(out, 9, &item["parameters"]);
            });
        });
    }
}

fn operation(out: &mut Message, value: &Value) {
    let texts = |out: &mut Message, field: u64, key: &str| {
        value[key].as_array().into_iter().flatten().for_each(|one| out.text(field, one.as_str()));
    };
    texts(out, 1, "tags");
    out.text(5, value["operationId"].as_str());
    texts(out, 6, "produces");
    texts(out, 7, "consumes");
    parameters(out, 8, &value["parameters"]);
    out.message(9, |responses| {
        for (code, answer) in value["responses"].as_object().into_iter().flatten() {
            responses.message(1, |named| {
                named.text(1, Some(code));
                named.message(2, |value| {
                    value.message(1, |response| {
                        response.text(1, answer["description"].as_str());
                        response.message(2, |item| item.message(1, |out| schema(out, &answer["schema"])));
                    });
                });
            });
        }
    });
    extensions(out, 13, value);
}

/// Each is a parameter in its own kind of message: of the body, the query or the path.
fn parameters(out: &mut Message, field: u64, list: &Value) {
    for value in list.as_array().into_iter().flatten() {
        let required = value["required"].as_bool().unwrap_or_default();
        let place = value["in"].as_str();
        out.message(field, |item| {
            item.message(1, |parameter| match place {
                Some("body") => parameter.message(1, |body| {
                    body.text(2, value["name"].as_str());
                    body.text(3, place);
                    if required {
                        body.flag(4, true);
                    }
                    body.message(5, |out| schema(out, &value["schema"]));
                }),
                _ => parameter.message(2, |other| {
                    let (kind, unique) = if place == Some("path") { (4, 19) } else { (3, 20) };
                    let shift = u64::from(kind == 3);
                    other.message(kind, |out| {
                        if required {
                            out.flag(1, true);
                        }
                        out.text(2, place);
                        out.text(4, value["name"].as_str());
                        out.text(5 + shift, value["type"].as_str());
                        if value["uniqueItems"] == true {
                            out.flag(unique, true);
                        }
                    });
                }),
            });
        });
    }
}

fn extensions(out: &mut Message, field: u64, value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-")) {
        out.message(field, |named| {
            named.text(1, Some(key));
            named.message(2, |any| any.text(2, Some(&value.to_string())));
        });
    }
}

fn named_schemas(out: &mut Message, schemas: &Value) {
    for (name, value) in schemas.as_object().into_iter().flatten() {
        out.message(1, |named| {
            named.text(1, Some(name));
            named.message(2, |out| schema(out, value));
        });
    }
}

fn schema(out: &mut Message, value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "$ref" => out.text(1, value.as_str()),
            "format" => out.text(2, value.as_str()),
            "description" => out.text(4, value.as_str()),
            "default" => out.message(5, |any| any.text(2, Some(&value.to_string()))),
            "required" => value.as_array().into_iter().flatten().for_each(|name| out.text(19, name.as_str())),
            "enum" => value
                .as_array()
                .into_iter()
                .flatten()
                .for_each(|one| out.message(20, |any| any.text(2, Some(&one.to_string())))),
            "additionalProperties" => out.message(21, |item| match value {
                Value::Bool(allowed) => item.flag(2, *allowed),
                value => item.message(1, |out| schema(out, value)),
            }),
            "type" => out.message(22, |item| item.text(1, value.as_str())),
            "items" => out.message(23, |item| item.message(1, |out| schema(out, value))),
            "allOf" => value.as_array().into_iter().flatten().for_each(|one| out.message(24, |out| schema(out, one))),
            "properties" => out.message(25, |properties| named_schemas(properties, value)),
            extension if extension.starts_with("x-") => out.message(31, |named| {
                named.text(1, Some(extension));
                named.message(2, |any| any.text(2, Some(&value.to_string())));
            }),
            _ => {}
        }
    }
}

/// A protobuf message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: Option<&str>) {
        if let Some(text) = text {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: bool) {
        self.varint(field << 3);
        self.varint(u64::from(value));
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_written_field_by_field() {
        let text = document(&json!({
            "swagger": "2.0",
            "info": {"title": "t", "version": "v"},
            "definitions": {"a": {"type": "object", "required": ["b"]}},
        }));
        let want = b"\x0a\x032.0\x12\x06\x0a\x01t\x12\x01v\x42\x00\x4a\x16\x0a\x14\x0a\x01a\x12\x0f\x9a\x01\x01b\xb2\x01\x08\x0a\x06object";
        assert_eq!(text, want);
    }

    #[test]
    fn the_binary_form_is_sent_to_those_who_ask_for_it_first() {
        assert!(is_preferred("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"));
        assert!(is_preferred("application/com.github.proto-openapi.spec.v2.v1.0+protobuf,application/json"));
        assert!(!is_preferred("application/json, application/com.github.proto-openapi.spec.v2@v1.0+protobuf"));
        assert!(!is_preferred(""));
    }
}
