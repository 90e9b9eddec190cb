//! Sets of fields, as `managedFields` records them (FieldsV1). Pure set algebra; what a field is comes from the schema walk.
//!
//! Upstream: structured-merge-diff v6 `fieldpath`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A tree of path elements; a node is in the set when `member` is true. Elements are spelled as in FieldsV1: `f:name`,
/// `k:{"name":"a"}`, `v:"x"`, `i:0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// Whether the path to this node is in the set.
    pub member: bool,
    children: BTreeMap<Box<str>, FieldSet>,
}

impl FieldSet {
    /// The set of the empty path: a leaf.
    pub(super) fn leaf() -> FieldSet {
        FieldSet { member: true, children: BTreeMap::new() }
    }

    /// Whether no path is in the set.
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(FieldSet::is_empty)
    }

    /// The subtree at an element.
    pub(super) fn child(&self, element: &str) -> Option<&FieldSet> {
        self.children.get(element)
    }

    /// The elements below this node with their subtrees.
    pub(super) fn children(&self) -> impl Iterator<Item = (&str, &FieldSet)> {
        self.children.iter().map(|(element, child)| (element.as_ref(), child))
    }

    /// Puts a subtree in; an empty one is left out.
    pub(super) fn insert(&mut self, element: impl Into<Box<str>>, child: FieldSet) {
        if !child.is_empty() {
            self.children.insert(element.into(), child);
        }
    }

    /// Whether a path is in the set.
    pub(super) fn has(&self, path: &[Box<str>]) -> bool {
        match path.split_first() {
            None => self.member,
            Some((first, rest)) => self.child(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// Takes a path out.
    pub(super) fn remove(&mut self, path: &[&str]) {
        match path.split_first() {
            None => self.member = false,
            Some((first, rest)) => {
                if let Some(child) = self.children.get_mut(*first) {
                    child.remove(rest);
                    if child.is_empty() {
                        self.children.remove(*first);
                    }
                }
            }
        }
    }

    /// Takes everything at and below an element out.
    pub(super) fn remove_tree(&mut self, element: &str) {
        self.children.remove(element);
    }

    /// Paths in either set.
    #[must_use]
    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut union = self.clone();
        union.member |= other.member;
        for (element, child) in &other.children {
            let merged = union.children.get(element).map_or_else(|| child.clone(), |present| present.union(child));
            union.children.insert(element.clone(), merged);
        }
        union
    }

    /// Paths in this set but not in the other.
    #[must_use]
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = FieldSet { member: self.member && !other.member, children: BTreeMap::new() };
        for (element, child) in &self.children {
            match other.children.get(element) {
                Some(gone) => left.insert(element.clone(), child.difference(gone)),
                None => left.insert(element.clone(), child.clone()),
            }
        }
        left
    }

    /// Paths in both sets.
    #[must_use]
    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet { member: self.member && other.member, children: BTreeMap::new() };
        for (element, child) in &self.children {
            if let Some(present) = other.children.get(element) {
                both.insert(element.clone(), child.intersection(present));
            }
        }
        both
    }

    /// Every path of the set, in order.
    pub(super) fn paths(&self) -> Vec<Vec<Box<str>>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, at: &mut Vec<Box<str>>, paths: &mut Vec<Vec<Box<str>>>) {
        if self.member {
            paths.push(at.clone());
        }
        for (element, child) in &self.children {
            at.push(element.clone());
            child.collect(at, paths);
            at.pop();
        }
    }

    /// FieldsV1.
    pub(super) fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (element, child) in &self.children {
            let mut value = child.to_value();
            if child.member
                && !child.children.is_empty()
                && let Some(map) = value.as_object_mut()
            {
                map.insert(".".to_string(), Value::Object(Map::new()));
            }
            map.insert(element.to_string(), value);
        }
        Value::Object(map)
    }

    /// Reads FieldsV1; the error says what is no field set.
    ///
    /// # Errors
    /// The element that is malformed.
    pub(super) fn from_value(value: &Value) -> Result<FieldSet, String> {
        let mut set = FieldSet::read(value)?;
        set.member = false;
        Ok(set)
    }

    fn read(value: &Value) -> Result<FieldSet, String> {
        let map = value.as_object().ok_or_else(|| format!("expected an object in a field set, found {value}"))?;
        let mut set = FieldSet { member: map.is_empty(), children: BTreeMap::new() };
        for (element, child) in map {
            if element == "." {
                set.member = true;
                continue;
            }
            let known = ["f:", "k:", "v:", "i:"].iter().any(|prefix| element.starts_with(prefix));
            if !known {
                return Err(format!("unknown path element {element:?} in a field set"));
            }
            set.children.insert(element.as_str().into(), FieldSet::read(child)?);
        }
        Ok(set)
    }
}

/// A path as conflict messages spell it: `.spec.containers[name="a"].image`.
pub(super) fn display(path: &[Box<str>]) -> String {
    let mut text = String::new();
    for element in path {
        if let Some(name) = element.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(keys) = element.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let _ = write!(text, "[{}]", keys.join(","));
        } else if let Some(value) = element.strip_prefix("v:") {
            let _ = write!(text, "[={value}]");
        } else {
            let _ = write!(text, "[{}]", element.trim_start_matches("i:"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(value: &Value) -> FieldSet {
        FieldSet::from_value(value).expect("a field set")
    }

    #[test]
    fn fields_v1_survives_reading_and_writing() {
        let value = json!({"f:data": {".": {}, "f:a": {}}, "f:list": {"k:{\"name\":\"x\"}": {".": {}, "f:image": {}}, "v:\"y\"": {}}});
        assert_eq!(set(&value).to_value(), value);
        assert!(FieldSet::from_value(&json!({"x": {}})).is_err());
        assert!(FieldSet::from_value(&json!([])).is_err());
    }

    #[test]
    fn paths_are_spelled_as_in_conflicts() {
        let set = set(
            &json!({"f:spec": {"f:containers": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {"f:name": {}}}, "f:finalizers": {"v:\"a\"": {}}}}),
        );
        let paths: Vec<String> = set.paths().iter().map(|path| display(path)).collect();
        assert_eq!(paths, [".spec.containers[containerPort=80,protocol=\"TCP\"].name", ".spec.finalizers[=\"a\"]"]);
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        prop::collection::vec(prop::collection::vec("[a-c]", 1..4), 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            for path in paths {
                let mut one = FieldSet::leaf();
                for element in path.iter().rev() {
                    let mut parent = FieldSet::default();
                    parent.insert(format!("f:{element}"), one);
                    one = parent;
                }
                set = set.union(&one);
            }
            set
        })
    }

    proptest! {
        #[test]
        fn the_algebra_is_that_of_sets_of_paths(a in any_set(), b in any_set()) {
            let paths = |set: &FieldSet| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
            let (left, right) = (paths(&a), paths(&b));
            prop_assert_eq!(paths(&a.union(&b)), left.union(&right).cloned().collect());
            prop_assert_eq!(paths(&a.difference(&b)), left.difference(&right).cloned().collect());
            prop_assert_eq!(paths(&a.intersection(&b)), left.intersection(&right).cloned().collect());
            prop_assert_eq!(FieldSet::from_value(&a.to_value()), Ok(a));
        }
    }
}
