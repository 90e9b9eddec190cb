//! The part of kubectl's JSONPath that printer columns use: members, indices, wildcards, filters by equality.

use serde_json::Value;

/// A path, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    All,
    /// `[?(@.way=="text")]`, with `!=` when the flag is false.
    Filter(Vec<String>, bool, Value),
    /// `..name`.
    Anywhere(String),
}

impl JsonPath {
    /// Reads a path such as `.spec.size` or `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Option<JsonPath> {
        let mut rest = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix("..") {
                let (name, tail) = name(tail)?;
                steps.push(Step::Anywhere(name));
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix(".*") {
                steps.push(Step::All);
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix('.') {
                let (name, tail) = name(tail)?;
                steps.push(Step::Member(name));
                rest = tail;
            } else {
                let tail = rest.strip_prefix('[')?;
                let (inner, tail) = bracket(tail)?;
                steps.push(subscript(inner)?);
                rest = tail;
            }
        }
        Some(JsonPath(steps))
    }

    /// The member names, if the path is nothing else.
    pub fn members(&self) -> Option<Vec<&str>> {
        self.0
            .iter()
            .map(|step| match step {
                Step::Member(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Every value that the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![value], |found, step| found.into_iter().flat_map(|value| step.of(value)).collect())
    }
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Member(name) => value.get(name).into_iter().collect(),
            Step::Index(at) => {
                let list = value.as_array().map_or(&[][..], Vec::as_slice);
                let at = if *at < 0 { *at + list.len() as i64 } else { *at };
                usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
            }
            Step::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Step::Filter(way, equal, wanted) => {
                let items = value.as_array().into_iter().flatten();
                let fits = |item: &&Value| {
                    let found = way.iter().try_fold(*item, |value, name| value.get(name));
                    found.is_some_and(|found| (found == wanted) == *equal)
                };
                items.filter(fits).collect()
            }
            Step::Anywhere(name) => {
                let mut found: Vec<&Value> = value.get(name).into_iter().collect();
                for inner in Step::All.of(value) {
                    found.extend(self.of(inner));
                }
                found
            }
        }
    }
}

fn name(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => out.push(letters.next()?.1),
            '.' | '[' => return (!out.is_empty()).then_some((out, &text[at..])),
            letter => out.push(letter),
        }
    }
    (!out.is_empty()).then_some((out, ""))
}

/// What stands before the closing bracket, which may stand in quotes too.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            (']', None) => return Some((&text[..at], &text[at + 1..])),
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            _ => {}
        }
    }
    None
}

fn subscript(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Ok(at) = inner.parse() {
        return Some(Step::Index(at));
    }
    if let Some(quoted) = unquoted(inner) {
        return Some(Step::Member(quoted));
    }
    let condition = inner.strip_prefix("?(")?.strip_suffix(')')?;
    let (left, equal, right) = match condition.split_once("==") {
        Some((left, right)) => (left, true, right),
        None => condition.split_once("!=").map(|(left, right)| (left, false, right))?,
    };
    let way = JsonPath::parse(left.trim().strip_prefix('@')?)?;
    let way: Vec<String> = way.members()?.into_iter().map(str::to_owned).collect();
    let right = right.trim();
    let wanted = unquoted(right).map(Value::String).or_else(|| serde_json::from_str(right).ok())?;
    Some(Step::Filter(way, equal, wanted))
}

fn unquoted(text: &str) -> Option<String> {
    let inner = ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    Some(inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "spec": {"size": "small", "a.b": 1, "list": [{"n": 1}, {"n": 2}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Up", "status": "False"}]},
        });
        let cases = [
            (".spec.size", json!(["small"])),
            ("$.spec.size", json!(["small"])),
            ("{.spec.size}", json!(["small"])),
            (".spec['a.b']", json!([1])),
            (".spec.a\\.b", json!([1])),
            (".spec.list[0].n", json!([1])),
            (".spec.list[-1].n", json!([2])),
            (".spec.list[*].n", json!([1, 2])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            ("..n", json!([1, 2])),
            (".spec.nothing", json!([])),
        ];
        for (text, want) in cases {
            let path = JsonPath::parse(text).unwrap_or_else(|| panic!("{text} is a path"));
            assert_eq!(json!(path.find(&object)), want, "{text}");
        }
        for bad in ["spec.size", ".spec[", ".spec.", ".spec[?(x)]"] {
            assert_eq!(JsonPath::parse(bad), None, "{bad}");
        }
    }
}
