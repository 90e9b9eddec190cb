//! Kubernetes objects of files of any size, one at a time: YAML and JSON, single objects, lists, and dumps of several tools.
//! A List is taken apart while it is read; what is held in memory is one item.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::manifest::{self, Document, ManifestError};

/// Largest single object, in bytes of YAML.
const MAX_DOCUMENT: usize = 64 << 20;

/// Arrays of a kube-scheduler-simulator export, and of what their elements are.
const EXPORT_KEYS: [(&str, &str, &str); 7] = [
    ("pods", "Pod", "v1"),
    ("nodes", "Node", "v1"),
    ("pvs", "PersistentVolume", "v1"),
    ("pvcs", "PersistentVolumeClaim", "v1"),
    ("storageClasses", "StorageClass", "storage.k8s.io/v1"),
    ("priorityClasses", "PriorityClass", "scheduling.k8s.io/v1"),
    ("namespaces", "Namespace", "v1"),
];

/// The key of an export with the simulator's own scheduler configuration, and the kind under which it is handed over.
const EXPORT_CONFIGURATION: &str = "schedulerConfig";
pub(crate) const CONFIGURATION_KIND: &str = "KubeSchedulerConfiguration";

/// The configuration in an export, so that its being there is known.
fn configuration(place: String) -> Document {
    Document { object: serde_json::json!({ "kind": CONFIGURATION_KIND }), place }
}

/// What is done with each object, or with the error in its place. An error that is given back ends the reading.
pub(crate) type Take<'a> = dyn FnMut(Result<Document, ManifestError>) -> Result<(), ManifestError> + 'a;

/// Reads all objects of `path`; `-` is standard input. Broken objects are told in their place, and reading goes on behind
/// them where that can be done.
///
/// # Errors
/// The file cannot be read, or `take` gave an error.
pub(crate) fn each(path: &Path, take: &mut Take<'_>) -> Result<(), ManifestError> {
    let name = path.display().to_string();
    let io = |source| ManifestError::Io { path: name.clone(), source };
    let mut reader: Box<dyn BufRead> = if name == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(1 << 16, File::open(path).map_err(io)?))
    };
    let is_json = looks_like_json(reader.fill_buf().map_err(io)?);
    let mut n_objects = 0_u64;
    let mut counting = |document: Result<Document, ManifestError>| {
        n_objects += 1;
        take(document)
    };
    if is_json {
        json(&name, reader, &mut counting)?
    } else {
        yaml(&name, reader, &mut counting)?
    }
    if n_objects == 0 { take(Err(ManifestError::Empty { path: name })) } else { Ok(()) }
}

/// Whether a text begins as JSON does; a flow mapping of YAML has no quotes around its first key.
fn looks_like_json(head: &[u8]) -> bool {
    let mut bytes = head.iter().filter(|byte| !byte.is_ascii_whitespace());
    matches!((bytes.next(), bytes.next()), (Some(b'{'), Some(b'"' | b'}')) | (Some(b'['), _))
}

// YAML: cut at separators and at the items of a list, then parsed piece by piece.

#[derive(Default)]
struct Pieces {
    /// The piece that is being read, and its first line.
    text: String,
    first_line: usize,
    /// Indentation of the items, while in a list.
    items: Option<usize>,
    /// `kind` and `apiVersion` of the list, as far as they were seen, and how many items it has had.
    list: Option<(String, String, usize)>,
    /// Whether the document is a simulator's export: one list after the other.
    is_export: bool,
}

fn yaml(name: &str, mut reader: Box<dyn BufRead>, take: &mut Take<'_>) -> Result<(), ManifestError> {
    let mut pieces = Pieces { first_line: 1, ..Pieces::default() };
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = (&mut reader).take(MAX_DOCUMENT as u64 + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|source| ManifestError::Io { path: name.to_owned(), source })? == 0 {
            break;
        }
        let wrong = |problem: String| ManifestError::Document { place: format!("{name}:{number}"), problem };
        let Ok(line) = std::str::from_utf8(&bytes) else {
            return Err(wrong("the line is not UTF-8 text".to_owned()));
        };
        if pieces.text.len() + line.len() > MAX_DOCUMENT {
            return Err(wrong(format!("the object is larger than {} MiB", MAX_DOCUMENT >> 20)));
        }
        pieces.line(name, number, line, take)?;
    }
    pieces.end_document(name, take)
}

impl Pieces {
    fn line(&mut self, name: &str, number: usize, line: &str, take: &mut Take<'_>) -> Result<(), ManifestError> {
        let trimmed = line.trim_end();
        if trimmed.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])) {
            self.end_document(name, take)?;
            self.first_line = number + 1;
            return Ok(());
        }
        if trimmed == "items:" && self.list.is_none() {
            self.list = Some((field(&self.text, "kind"), field(&self.text, "apiVersion"), 0));
            self.items = Some(usize::MAX);
            self.text.clear();
            return Ok(());
        }
        let export = EXPORT_KEYS.iter().find(|(key, _, _)| trimmed.strip_suffix(':') == Some(*key));
        if let Some((_, kind, api_version)) = export
            && (self.is_export || (self.list.is_none() && field(&self.text, "kind").is_empty()))
        {
            if self.items.is_some() {
                self.end_item(name, take)?;
            }
            self.is_export = true;
            self.list = Some((format!("{kind}List"), (*api_version).to_owned(), 0));
            self.items = Some(usize::MAX);
            self.text.clear();
            return Ok(());
        }
        if self.is_export && trimmed.strip_suffix(':') == Some(EXPORT_CONFIGURATION) {
            if self.items.take().is_some() {
                self.end_item(name, take)?;
            }
            take(Ok(configuration(format!("{name}:{number}"))))?;
        }
        if let Some(indent) = self.items {
            let own = trimmed.len() - trimmed.trim_start().len();
            let begins_item = trimmed.trim_start().starts_with("- ") || trimmed.trim_start() == "-";
            if begins_item && (own == indent || indent == usize::MAX) {
                self.end_item(name, take)?;
                self.items = Some(own);
                self.first_line = number;
                let rest = line.trim_start();
                self.text.push_str(&" ".repeat(own + 1));
                self.text.push_str(&rest[1..]);
                return Ok(());
            }
            if own == 0 && !trimmed.is_empty() && !trimmed.starts_with('#') {
                self.end_item(name, take)?;
                self.items = None;
                self.first_line = number;
            }
        }
        if self.text.is_empty() {
            self.first_line = number;
        }
        self.text.push_str(line);
        Ok(())
    }

    fn end_item(&mut self, name: &str, take: &mut Take<'_>) -> Result<(), ManifestError> {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            return Ok(());
        }
        let Some((kind, api_version, n_items)) = &mut self.list else { return Ok(()) };
        *n_items += 1;
        let place = |line: usize| format!("{name}:{line} item {n_items}");
        let object: Value = match crate::yaml::parse(&text) {
            Ok(object) => object,
            Err(error) => {
                let line = error.location().map_or(0, |at| usize::try_from(at.line()).unwrap_or(1).saturating_sub(1));
                let problem = format!("malformed YAML: {}", first_line_of(&error.without_snippet().to_string()));
                return take(Err(ManifestError::Document { place: place(self.first_line + line), problem }));
            }
        };
        let item_kind = kind.strip_suffix("List").unwrap_or_default();
        let object = manifest::inherit(object, item_kind, api_version);
        hand_over(object, &place(self.first_line), take)
    }

    fn end_document(&mut self, name: &str, take: &mut Take<'_>) -> Result<(), ManifestError> {
        if self.items.take().is_some() {
            self.end_item(name, take)?;
        }
        self.is_export = false;
        let text = std::mem::take(&mut self.text);
        let Some((kind, _, n_items)) = self.list.take() else {
            let mut documents = Vec::new();
            if let Err(error) = manifest::parse_body(name, self.first_line, &text, &mut documents) {
                return take(Err(error));
            }
            return documents.into_iter().try_for_each(|document| take(Ok(document)));
        };
        if kind.is_empty() && field(&text, "kind").is_empty() {
            let problem = format!(
                "the list ends after {n_items} items without its kind: the file is cut off, expected \"kind: List\""
            );
            return take(Err(ManifestError::Document { place: format!("{name}:{}", self.first_line), problem }));
        }
        Ok(())
    }
}

/// The value of a key that stands at the beginning of a line.
fn field(text: &str, key: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    value.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
}

fn first_line_of(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line)
}

fn hand_over(object: Value, place: &str, take: &mut Take<'_>) -> Result<(), ManifestError> {
    let mut documents = Vec::new();
    match manifest::take(object, place, &mut documents) {
        Ok(()) => documents.into_iter().try_for_each(|document| take(Ok(document))),
        Err(error) => take(Err(error)),
    }
}

// JSON: objects one after the other, taken apart by the parser.

fn json(name: &str, reader: Box<dyn BufRead>, take: &mut Take<'_>) -> Result<(), ManifestError> {
    let line = Rc::new(Cell::new(1));
    let mut reader = WithoutLogs { reader, line: Rc::clone(&line), at_line_start: true, byte: None };
    let mut ended = None;
    loop {
        match reader.skip_blank() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(source) => return Err(ManifestError::Io { path: name.to_owned(), source }),
        }
        let mut seed = TopLevel { name, line: &line, take, ended: &mut ended };
        let mut parser = serde_json::Deserializer::from_reader(&mut reader);
        let parsed = DeserializeSeed::deserialize(&mut seed, &mut parser);
        if let Some(error) = ended {
            return Err(error);
        }
        if let Err(error) = parsed {
            // The parser counts from where it began.
            let place = format!("{name}:{}", line.get());
            let text = error.to_string();
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
            return take(Err(ManifestError::Document { place, problem: format!("malformed JSON: {text}") }));
        }
    }
}

struct TopLevel<'a, 't> {
    name: &'a str,
    line: &'a Cell<u64>,
    take: &'a mut Take<'t>,
    /// The error with which `take` ended the reading.
    ended: &'a mut Option<ManifestError>,
}

impl TopLevel<'_, '_> {
    fn hand_over<E: serde::de::Error>(&mut self, object: Value, place: &str) -> Result<(), E> {
        let result = hand_over(object, place, self.take);
        self.unless_ended(result)
    }

    fn unless_ended<E: serde::de::Error>(&mut self, result: Result<(), ManifestError>) -> Result<(), E> {
        result.map_err(|error| {
            *self.ended = Some(error);
            E::custom("ended")
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut TopLevel<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut TopLevel<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let start = self.line.get();
        let mut fields = Map::new();
        let mut nameless = Vec::new();
        let mut is_list = false;
        while let Some(key) = map.next_key::<String>()? {
            let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let export = EXPORT_KEYS.iter().find(|(name, _, _)| *name == key).filter(|_| !fields.contains_key("kind"));
            let (kind, api_version) = match export {
                Some((_, kind, api_version)) => ((*kind).to_owned(), (*api_version).to_owned()),
                None => (text("kind").strip_suffix("List").unwrap_or_default().to_owned(), text("apiVersion")),
            };
            if key == "items" || export.is_some() {
                is_list = true;
                let items = Items { top: self, kind, api_version, nameless: &mut nameless, key: &key };
                map.next_value_seed(items)?;
            } else {
                let value = map.next_value()?;
                fields.insert(key, value);
            }
        }
        if !is_list {
            return self.hand_over(Value::Object(fields), &format!("{}:{start}", self.name));
        }
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        for (item, place) in nameless {
            let item =
                manifest::inherit(item, text("kind").strip_suffix("List").unwrap_or_default(), text("apiVersion"));
            self.hand_over(item, &place)?;
        }
        let is_configured =
            fields.get(EXPORT_CONFIGURATION).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        if is_configured && !fields.contains_key("kind") {
            let result = (self.take)(Ok(configuration(format!("{}:{start}", self.name))));
            self.unless_ended(result)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Value>()? {
            let place = format!("{}:{}", self.name, self.line.get());
            self.hand_over(item, &place)?;
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Err(E::custom("expected a Kubernetes object, found a string"))
    }
}

struct Items<'a, 'b, 't> {
    top: &'a mut TopLevel<'b, 't>,
    kind: String,
    api_version: String,
    nameless: &'a mut Vec<(Value, String)>,
    key: &'a str,
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a sequence of objects in {}", self.key)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut n_items = 0;
        while let Some(item) = items.next_element::<Value>()? {
            n_items += 1;
            let place = format!("{}:{} item {n_items}", self.top.name, self.top.line.get());
            let item = manifest::inherit(item, &self.kind, &self.api_version);
            if item["kind"].as_str().is_none_or(str::is_empty) {
                self.nameless.push((item, place));
            } else {
                self.top.hand_over(item, &place)?;
            }
        }
        Ok(())
    }
}

/// A reader that counts lines and leaves out the logs that `kubectl cluster-info dump` puts between its objects.
struct WithoutLogs {
    reader: Box<dyn BufRead>,
    line: Rc<Cell<u64>>,
    at_line_start: bool,
    /// A byte that was looked at already.
    byte: Option<u8>,
}

impl WithoutLogs {
    /// Goes to the next byte that is no white space; whether there is one.
    fn skip_blank(&mut self) -> io::Result<bool> {
        let mut byte = [0];
        loop {
            if self.read(&mut byte)? == 0 {
                return Ok(false);
            }
            if !byte[0].is_ascii_whitespace() {
                self.byte = Some(byte[0]);
                return Ok(true);
            }
        }
    }

    fn skip_logs(&mut self) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            let head = self.reader.fill_buf()?;
            if !head.starts_with(b"====") {
                return Ok(());
            }
            loop {
                line.clear();
                if (&mut self.reader).take(MAX_DOCUMENT as u64).read_until(b'\n', &mut line)? == 0 {
                    return Ok(());
                }
                self.line.set(self.line.get() + 1);
                if line.starts_with(b"==== END logs") {
                    break;
                }
            }
        }
    }
}

impl Read for WithoutLogs {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(byte) = self.byte.take() {
            buffer[0] = byte;
            return Ok(1);
        }
        if self.at_line_start {
            self.skip_logs()?;
        }
        let head = self.reader.fill_buf()?;
        let Some(&byte) = head.first() else { return Ok(0) };
        self.reader.consume(1);
        self.at_line_start = byte == b'\n';
        if self.at_line_start {
            self.line.set(self.line.get() + 1);
        }
        buffer[0] = byte;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects and errors in the order in which they were read.
    fn read(text: &str) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("f");
        std::fs::write(&path, text).expect("the file can be written");
        let mut seen = Vec::new();
        let result = each(&path, &mut |document| {
            seen.push(match document {
                Ok(document) => format!("{} {} @{}", document.kind(), document.name(), document.place),
                Err(error) => format!("! {error}"),
            });
            Ok(())
        });
        result.expect("the file can be read");
        seen.into_iter().map(|line| line.replace(&path.display().to_string(), "f")).collect()
    }

    #[test]
    fn lists_are_taken_apart_in_yaml_and_json() {
        let yaml = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: b\n    annotations:\n      x: |\n        items:\n        - y\nkind: List\nmetadata: {}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: c}\n";
        assert_eq!(read(yaml), ["Node a @f:3 item 1", "Pod b @f:7 item 2", "Pod c @f:18"]);
        let typed = "apiVersion: v1\nkind: NodeList\nitems:\n  - metadata:\n      name: a\n  - metadata: {name: b}\n";
        assert_eq!(read(typed), ["Node a @f:4 item 1", "Node b @f:6 item 2"]);
        let json = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[\n{\"metadata\":{\"name\":\"a\"}},\n{\"metadata\":{\"name\":\"b\"}}]}\n{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"c\"}}";
        assert_eq!(read(json), ["Pod a @f:2 item 1", "Pod b @f:3 item 2", "Node c @f:4"]);
        let late = "{\"apiVersion\":\"v1\",\"items\":[{\"metadata\":{\"name\":\"a\"}}],\"kind\":\"PodList\"}";
        assert_eq!(read(late), ["Pod a @f:1 item 1"]);
    }

    #[test]
    fn a_simulators_export_is_read() {
        let export = "{\"pods\":[{\"metadata\":{\"name\":\"p\"}}],\"nodes\":[{\"metadata\":{\"name\":\"n\"}}],\"pvs\":null,\"schedulerConfig\":{}}";
        assert_eq!(read(export), ["Pod p @f:1 item 1", "Node n @f:1 item 1"]);
        let configured = export.replace("{}}", "{\"profiles\":[]}}");
        assert_eq!(read(&configured)[2], "KubeSchedulerConfiguration  @f:1");
        // As its web page writes it.
        let yaml = "pods:\n  - metadata:\n      name: p\n      labels:\n        pods: few\n    spec:\n      containers:\n        - name: c\n          command:\n            - nodes:\n  - metadata:\n      name: q\nnodes:\n  - metadata:\n      name: n1\npvs: []\npvcs: []\nstorageClasses: []\npriorityClasses:\n  - metadata:\n      name: high\n    value: 10\nschedulerConfig:\n  kind: KubeSchedulerConfiguration\n  profiles:\n    - schedulerName: default-scheduler\nnamespaces:\n  - metadata:\n      name: default\n";
        let want = [
            "Pod p @f:2 item 1",
            "Pod q @f:11 item 2",
            "Node n1 @f:14 item 1",
            "PriorityClass high @f:20 item 1",
            "KubeSchedulerConfiguration  @f:23",
            "Namespace default @f:28 item 1",
        ];
        assert_eq!(read(yaml), want);
        let empty_first = "pvs: []\npods:\n  - metadata:\n      name: p\n";
        assert_eq!(read(empty_first), ["Pod p @f:3 item 1"]);
        // The same words in an object of another kind mean nothing.
        let other = "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: t\npods:\n- a\n";
        assert_eq!(read(other), ["Thing t @f:1"]);
    }

    #[test]
    fn logs_between_objects_are_left_out() {
        let dump = "{\"kind\":\"NodeList\",\"apiVersion\":\"v1\",\"items\":[{\"metadata\":{\"name\":\"a\"}}]}\n==== START logs for container x of pod a/b ====\n{\"not\": \"json\n==== END logs for container x of pod a/b ====\n{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"b\"}}\n";
        assert_eq!(read(dump), ["Node a @f:1 item 1", "Pod b @f:5"]);
    }

    #[test]
    fn what_is_broken_is_told_in_its_place_and_the_rest_is_read() {
        let yaml = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: [\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: b\nkind: List\n";
        let seen = read(yaml);
        assert!(seen[0].starts_with("! f:") && seen[0].contains("item 1: malformed YAML"), "{seen:?}");
        assert_eq!(seen[1], "Pod b @f:6 item 2");
    }

    #[test]
    fn files_that_are_cut_off_are_told() {
        let yaml = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a\n";
        let seen = read(yaml);
        assert!(seen[1].contains("cut off"), "{seen:?}");
        let json = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[\n{\"metadata\":{\"name\":\"a\"}},\n{\"meta";
        let seen = read(json);
        assert_eq!(seen[0], "Pod a @f:2 item 1");
        assert!(seen[1].starts_with("! f:3: malformed JSON"), "{seen:?}");
        assert_eq!(read(""), ["! f: no objects found, expected at least one YAML or JSON document"]);
        assert!(read("hello\n")[0].contains("expected a Kubernetes object"), "a text");
        assert!(read("[1]")[0].contains("found a number"), "a number");
    }
}
