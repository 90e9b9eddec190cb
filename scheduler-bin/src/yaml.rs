//! YAML of files, with bounds: what a few lines stand for must not take long to read.

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Options, alias_limits, options};

/// Parser events that aliases may stand for, all together: a few hundred manifests of shared blocks, and a tenth of a second.
const MAX_ALIASED_EVENTS: usize = 20_000;

/// Reads one document.
///
/// # Errors
/// It is malformed, not what is wanted, or its aliases stand for too much.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let limited: Options = options! { alias_limits: alias_limits! { max_total_replayed_events: MAX_ALIASED_EVENTS } };
    serde_saphyr::from_str_with_options(text, limited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn aliases_of_aliases_are_bounded() {
        let one: Value = parse("a: &x [1]\nb: *x\n").expect("one alias");
        assert_eq!(one, json!({"a": [1], "b": [1]}));
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let items = vec![format!("*a{}", i - 1); 9].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{items}]\n"));
        }
        let error = parse::<Value>(&text).expect_err("nine to the power of nine").to_string();
        assert!(error.contains("alias"), "{error}");
    }
}
