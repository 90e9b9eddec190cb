//! Kubernetes objects out of YAML and JSON files, with the file and line of what is wrong. Never talks to a server.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

/// One object of a manifest and where it stands.
#[derive(Clone, Debug)]
pub struct Document {
    /// The object; `apiVersion`, `kind` and a name are there.
    pub object: Value,
    /// File and first line, as `deployment.yaml:12`.
    pub place: String,
}

impl Document {
    /// The object's `apiVersion`.
    pub fn api_version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap_or_default()
    }

    /// The object's `kind`.
    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// The object's `metadata.name`; empty if it only has a `generateName`.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Kind and name for messages: `Deployment shop/web`; the namespace only if the object states one.
    pub fn title(&self) -> String {
        let name = self.object["metadata"]["generateName"].as_str().filter(|_| self.name().is_empty());
        let name = name.unwrap_or(self.name());
        match self.object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind()),
            None => format!("{} {name}", self.kind()),
        }
    }
}

/// Why a manifest could not be read.
#[derive(Debug)]
pub enum ManifestError {
    /// The file could not be opened or read.
    Io {
        /// Path as the user wrote it.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A document is not YAML or JSON, or not a Kubernetes object.
    Document {
        /// File and line.
        place: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// There is not one object in the file.
    Empty {
        /// Path as the user wrote it.
        path: String,
    },
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "cannot read {path}: {source}"),
            Self::Document { place, problem } => write!(f, "{place}: {problem}"),
            Self::Empty { path } => write!(f, "{path}: no objects found, expected at least one YAML or JSON document"),
        }
    }
}

impl std::error::Error for ManifestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Reads every object of `path`; `-` is standard input.
///
/// # Errors
/// The file cannot be read, a document is malformed, or nothing is in it.
pub fn read(path: &Path) -> Result<Vec<Document>, ManifestError> {
    let name = path.display().to_string();
    let io = |source| ManifestError::Io { path: name.clone(), source };
    let text = if name == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(io)?;
        text
    } else {
        std::fs::read_to_string(path).map_err(io)?
    };
    parse(&name, &text)
}

/// Splits `text` at its `---` lines, as kubectl does, and parses each document; the items of a List stand for themselves.
///
/// # Errors
/// As [`read`]; `name` stands for the file in them.
pub fn parse(name: &str, text: &str) -> Result<Vec<Document>, ManifestError> {
    let mut documents = Vec::new();
    for (first_line, body) in split(text) {
        parse_body(name, first_line, &body, &mut documents)?;
    }
    if documents.is_empty() {
        return Err(ManifestError::Empty { path: name.to_owned() });
    }
    Ok(documents)
}

/// Parses one YAML document whose text begins at `first_line` of the file; nothing if it is blank.
pub(crate) fn parse_body(
    name: &str,
    first_line: usize,
    body: &str,
    documents: &mut Vec<Document>,
) -> Result<(), ManifestError> {
    let is_blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let n_blank = body.lines().take_while(is_blank).count();
    if n_blank == body.lines().count() {
        return Ok(());
    }
    let object: Value = crate::yaml::parse(body).map_err(|error| {
        let line =
            error.location().map_or(first_line, |at| first_line + usize::try_from(at.line()).unwrap_or(1).max(1) - 1);
        ManifestError::Document { place: format!("{name}:{line}"), problem: first_sentence(&error) }
    })?;
    take(object, &format!("{name}:{}", first_line + n_blank), documents)
}

fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        let separator = line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if separator {
            parts.push((index + 2, String::new()));
        } else if let Some((_, body)) = parts.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    parts
}

/// Adds an object, or the items of a List.
pub(crate) fn take(object: Value, place: &str, documents: &mut Vec<Document>) -> Result<(), ManifestError> {
    let wrong = |problem: String| ManifestError::Document { place: place.to_owned(), problem };
    let Some(map) = object.as_object() else {
        return Err(wrong(format!("expected a Kubernetes object (a mapping), found {}", kind_of(&object))));
    };
    let field = |key: &str| map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if field("apiVersion").is_none() {
        return Err(wrong("apiVersion not set, expected for example \"apps/v1\"".to_owned()));
    }
    let Some(kind) = field("kind") else {
        return Err(wrong("kind not set, expected for example \"Deployment\"".to_owned()));
    };
    if let Some(item_kind) = kind.strip_suffix("List")
        && let Some(items) = map.get("items")
    {
        let Some(items) = items.as_array() else {
            return Err(wrong(format!("items of a {kind} must be a sequence, found {}", kind_of(items))));
        };
        for (index, item) in items.iter().enumerate() {
            let item = inherit(item.clone(), item_kind, field("apiVersion").unwrap_or_default());
            take(item, &format!("{place} item {}", index + 1), documents)?;
        }
        return Ok(());
    }
    let metadata = &object["metadata"];
    // An entry of a recording names its target instead.
    let is_entry = map.contains_key("target") && map.contains_key("method");
    if !is_entry && metadata["name"].as_str().is_none() && metadata["generateName"].as_str().is_none() {
        let name = &metadata["name"];
        let problem = match name {
            Value::Null => format!("{kind} has no metadata.name"),
            // YAML reads an unquoted n, no, off, y or 1 as something else than text.
            other => {
                format!("{kind}: metadata.name is {other}, {}, expected a string: write it in quotes", kind_of(other))
            }
        };
        return Err(wrong(problem));
    }
    documents.push(Document { object, place: place.to_owned() });
    Ok(())
}

/// An item of a typed list such as a NodeList need not name its kind again.
pub(crate) fn inherit(mut item: Value, kind: &str, api_version: &str) -> Value {
    if let Some(map) = item.as_object_mut().filter(|_| !kind.is_empty()) {
        for (key, value) in [("kind", kind), ("apiVersion", api_version)] {
            if map.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                map.insert(key.to_owned(), value.into());
            }
        }
    }
    item
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a sequence",
        Value::Object(_) => "a mapping",
    }
}

/// The parser's message without the excerpt of the source that it draws below it.
fn first_sentence(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default().trim();
    format!("malformed YAML: {}", line.strip_prefix("error: ").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_split_and_placed() {
        let text = "# head\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\n\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n";
        let documents = parse("x.yaml", text).expect("two objects");
        let seen: Vec<_> = documents.iter().map(|d| (d.kind(), d.name(), d.place.as_str())).collect();
        assert_eq!(seen, [("Namespace", "a", "x.yaml:2"), ("Pod", "b", "x.yaml:8 item 1")]);
    }

    #[test]
    fn json_is_read_too() {
        let documents = parse("x.json", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}")
            .expect("one object");
        assert_eq!(documents[0].name(), "a");
    }

    #[test]
    fn unquoted_yes_is_a_boolean_as_for_kubectl() {
        let documents = parse("x", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: yes, b: 'yes'}\n")
            .expect("one object");
        assert_eq!(documents[0].object["data"], serde_json::json!({"a": true, "b": "yes"}));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (name, text, want) in [
            ("no kind", "apiVersion: v1\nmetadata: {name: a}\n", "x.yaml:1: kind not set"),
            ("no apiVersion", "---\nkind: Pod\nmetadata: {name: a}\n", "x.yaml:2: apiVersion not set"),
            ("no name", "apiVersion: v1\nkind: Pod\nmetadata: {}\n", "x.yaml:1: Pod has no metadata.name"),
            (
                "a name that YAML takes for a boolean",
                "apiVersion: v1\nkind: Pod\nmetadata: {name: n}\n",
                "x.yaml:1: Pod: metadata.name is false, a boolean, expected a string: write it in quotes",
            ),
            ("a scalar", "hello\n", "x.yaml:1: expected a Kubernetes object (a mapping), found a string"),
            (
                "bad indentation",
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n bad: [\n",
                "x.yaml:5: malformed YAML",
            ),
            ("second document", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\na: [1\n", "x.yaml:"),
            ("nothing", "# only this\n---\n", "x.yaml: no objects found"),
        ] {
            let error = parse("x.yaml", text).expect_err(name).to_string();
            assert!(error.starts_with(want), "{name}: {error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/does/not/exist.yaml")).expect_err("no such file").to_string();
        assert_eq!(error, "cannot read /does/not/exist.yaml: No such file or directory (os error 2)");
    }
}
