//! Reading members of a JSON object the way Go reads a decoded struct: what is absent is the zero value.

use serde_json::{Map, Value};

/// Shorthand for members of an API object. Every reader takes a missing or null member for Go's zero value.
pub trait JsonExt {
    /// The member, `Null` when absent.
    fn at(&self, key: &str) -> &Value;
    /// The member at the end of a way of member names, `Null` when any is absent.
    fn way(&self, keys: &[&str]) -> &Value;
    /// Whether the member is there and not null.
    fn has(&self, key: &str) -> bool;
    /// The text of a member, `""` when absent.
    fn text(&self, key: &str) -> &str;
    /// The integer of a member.
    fn int(&self, key: &str) -> Option<i64>;
    /// The boolean of a member, `false` when absent.
    fn flag(&self, key: &str) -> bool;
    /// The items of a member, empty when absent.
    fn items(&self, key: &str) -> &[Value];
    /// The entries of a member.
    fn entries(&self, key: &str) -> Option<&Map<String, Value>>;
    /// The texts of a list member; items of another type are skipped.
    fn texts(&self, key: &str) -> Vec<&str>;
    /// Sets a member unless it is there and not null.
    fn default_to(&mut self, key: &str, value: impl Into<Value>);
    /// The member as an object to change, made when absent or null.
    fn object_mut(&mut self, key: &str) -> &mut Value;
    /// The items of a member to change; empty when absent.
    fn items_mut(&mut self, key: &str) -> &mut [Value];
    /// Takes a member out; `Null` when absent.
    fn take_member(&mut self, key: &str) -> Value;
    /// Puts a member in, or takes it out when the value is null.
    fn put(&mut self, key: &str, value: Value);
}

static NULL: Value = Value::Null;

impl JsonExt for Value {
    fn at(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }

    fn way(&self, keys: &[&str]) -> &Value {
        keys.iter().fold(self, |value, key| value.at(key))
    }

    fn has(&self, key: &str) -> bool {
        !self.at(key).is_null()
    }

    fn text(&self, key: &str) -> &str {
        self.at(key).as_str().unwrap_or("")
    }

    fn int(&self, key: &str) -> Option<i64> {
        self.at(key).as_i64()
    }

    fn flag(&self, key: &str) -> bool {
        self.at(key).as_bool().unwrap_or(false)
    }

    fn items(&self, key: &str) -> &[Value] {
        self.at(key).as_array().map_or(&[], Vec::as_slice)
    }

    fn entries(&self, key: &str) -> Option<&Map<String, Value>> {
        self.at(key).as_object()
    }

    fn texts(&self, key: &str) -> Vec<&str> {
        self.items(key).iter().filter_map(Value::as_str).collect()
    }

    fn default_to(&mut self, key: &str, value: impl Into<Value>) {
        if !self.has(key)
            && let Some(map) = self.as_object_mut()
        {
            map.insert(key.to_owned(), value.into());
        }
    }

    fn object_mut(&mut self, key: &str) -> &mut Value {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        let map = self.as_object_mut().expect("made an object just above");
        let member = map.entry(key).or_insert(Value::Null);
        if !member.is_object() {
            *member = Value::Object(Map::new());
        }
        member
    }

    fn items_mut(&mut self, key: &str) -> &mut [Value] {
        match self.get_mut(key) {
            Some(Value::Array(items)) => items,
            _ => &mut [],
        }
    }

    fn take_member(&mut self, key: &str) -> Value {
        self.as_object_mut().and_then(|map| map.remove(key)).unwrap_or(Value::Null)
    }

    fn put(&mut self, key: &str, value: Value) {
        if value.is_null() {
            self.take_member(key);
        } else {
            if !self.is_object() {
                *self = Value::Object(Map::new());
            }
            self.as_object_mut().expect("made an object just above").insert(key.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_and_null_members_read_as_zero_values() {
        let object = json!({"a": null, "b": {"c": "x"}, "n": 3, "l": ["p", 1]});
        assert!(!object.has("a") && !object.has("z"));
        assert_eq!((object.text("a"), object.way(&["b", "c"]), object.int("n")), ("", &json!("x"), Some(3)));
        assert_eq!((object.items("z").len(), object.texts("l")), (0, vec!["p"]));
    }

    #[test]
    fn default_to_replaces_null_but_not_a_value() {
        let mut object = json!({"a": null, "b": 0});
        object.default_to("a", 1);
        object.default_to("b", 1);
        object.object_mut("c").default_to("d", "x");
        object.put("b", Value::Null);
        assert_eq!(object, json!({"a": 1, "c": {"d": "x"}}));
    }
}
