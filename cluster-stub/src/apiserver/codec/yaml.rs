//! YAML in and out at the edge of the server. Inside there is only JSON.

use serde_json::Value;
use serde_saphyr::{Options, alias_limits, options};

/// Parser events that aliases may stand for, all together: a few hundred manifests of shared blocks, and a tenth of a second.
const MAX_ALIASED_EVENTS: usize = 20_000;

/// Reads one YAML document into JSON values.
///
/// # Errors
/// `error converting YAML to JSON: …`.
pub fn parse(yaml: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(yaml).map_err(|error| format!("error converting YAML to JSON: {error}"))?;
    let limited: Options = options! { alias_limits: alias_limits! { max_total_replayed_events: MAX_ALIASED_EVENTS } };
    serde_saphyr::from_str_with_options(text, limited)
        .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))
}

/// Writes an object as YAML.
///
/// # Errors
/// What the YAML writer says; it does not happen for JSON values.
pub fn write(object: &Value) -> Result<String, String> {
    serde_saphyr::to_string(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aliases_of_aliases_are_bounded() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let items = vec![format!("*a{}", i - 1); 9].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{items}]\n"));
        }
        let error = parse(text.as_bytes()).expect_err("nine to the power of nine");
        assert!(error.contains("alias"), "{error}");
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let value = json!({"kind": "A", "list": [1, "x", {"y": true}], "none": null, "text": "a: b"});
        let yaml = write(&value).expect("plain values can be written");
        assert_eq!(parse(yaml.as_bytes()), Ok(value.clone()));
        assert_eq!(parse(value.to_string().as_bytes()), Ok(value));
        assert_eq!(parse(b"a: &x [1]\nb: *x"), Ok(json!({"a": [1], "b": [1]})));
        assert!(parse(b"a: b: c").is_err_and(|error| error.starts_with("error converting YAML to JSON: ")));
    }
}
