//! YAML in and out at the edge of the server. Inside there is only JSON.

use serde_json::Value;

/// Reads one YAML document into JSON values.
///
/// # Errors
/// `error converting YAML to JSON: …`.
pub fn parse(yaml: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(yaml).map_err(|error| format!("error converting YAML to JSON: {error}"))?;
    serde_saphyr::from_str(text).map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))
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
    fn yaml_and_json_say_the_same() {
        let value = json!({"kind": "A", "list": [1, "x", {"y": true}], "none": null, "text": "a: b"});
        let yaml = write(&value).expect("plain values can be written");
        assert_eq!(parse(yaml.as_bytes()), Ok(value.clone()));
        assert_eq!(parse(value.to_string().as_bytes()), Ok(value));
        assert!(parse(b"a: b: c").is_err_and(|error| error.starts_with("error converting YAML to JSON: ")));
    }
}
