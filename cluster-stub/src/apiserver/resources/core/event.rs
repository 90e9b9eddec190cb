//! Events: one stored object, served as core/v1 and as events.k8s.io/v1.
//!
//! Upstream: v1.36.2 `pkg/registry/core/event/strategy.go`, `pkg/apis/core/validation/events.go`, `pkg/apis/events/v1/conversion.go`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::columns::{self, Column};
use super::super::kind::Kind;
use super::super::resource::Resource;
use super::super::strategy::{OwnText, Strategy, WriteContext};
use crate::apiserver::codec::scalar::is_canonical_micro_time;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::{dns_label, dns_subdomain, qualified_name};
use crate::apiserver::validation::{FieldError, Path};

const COLUMNS: &[Column] = &[
    Column::text("Last Seen"),
    Column::text("Type"),
    Column::text("Reason"),
    Column::text("Object"),
    Column::wide("Subobject"),
    Column::wide("Source"),
    Column::text("Message"),
    Column::wide("First Seen"),
    Column::wide("Count"),
    Column::wide("Name"),
];

/// Names in events.k8s.io/v1 and in core/v1 of the members that differ.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// What is different in each of the events that one reporter writes for one reason.
const OWN_TEXTS: &[OwnText] = &[
    OwnText { section: "regarding", name: "name", takes: |_| true },
    OwnText { section: "regarding", name: "uid", takes: |_| true },
    OwnText { section: "regarding", name: "resourceVersion", takes: |_| true },
    OwnText { section: "", name: "note", takes: |note| note.len() <= MAX_NOTE },
    OwnText { section: "", name: "eventTime", takes: is_canonical_micro_time },
];
/// Longest text, bytes.
const MAX_NOTE: usize = 1024;

/// Event of the core group: the stored form.
pub(super) fn core() -> Resource {
    let kind = kind("");
    kind.clone().build().with_strategy(Event { kind, converts: false })
}

/// Event of events.k8s.io.
pub(in crate::apiserver::resources) fn events_k8s_io() -> Resource {
    let kind = kind("events.k8s.io");
    kind.clone().build().with_strategy(Event { kind, converts: true })
}

fn kind(group: &'static str) -> Kind {
    Kind::new(group, "v1", "events", "Event").short_names(&["ev"]).create_on_update().columns(COLUMNS, cells)
}

struct Event {
    kind: Kind,
    converts: bool,
}

impl Event {
    /// The member of this core/v1 name, whatever it is called here.
    fn at<'a>(&self, event: &'a Value, name: &str) -> &'a Value {
        let renamed = RENAMED.iter().find(|(_, core)| self.converts && *core == name);
        event.at(renamed.map_or(name, |(new, _)| new))
    }

    /// The text of the member of this core/v1 name.
    fn text<'a>(&self, event: &'a Value, name: &str) -> &'a str {
        self.at(event, name).as_str().unwrap_or("")
    }

    /// What holds for every event: it lies in the namespace of its object.
    fn validate_legacy(&self, event: &Value, out: &mut Vec<FieldError>) {
        let involved = self.at(event, "involvedObject");
        let path = Path::root("involvedObject");
        let field = path.child("namespace");
        let (own, other) = (event.at("metadata").text("namespace"), involved.text("namespace"));
        if other.is_empty() {
            if own != "default" && own != "kube-system" {
                out.push(FieldError::invalid(&field, other, "does not match event.namespace"));
            }
        } else if own != other {
            out.push(FieldError::invalid(&field, other, "does not match event.namespace"));
        }
        if !own.is_empty() && !dns_label(own).is_empty() {
            out.push(FieldError::invalid(&Path::root("namespace"), own, ""));
        }
    }

    /// What events.k8s.io/v1 asks for beyond that.
    fn validate_new(&self, event: &Value, out: &mut Vec<FieldError>) {
        if self.text(event, "eventTime").is_empty() {
            out.push(FieldError::required(&Path::root("eventTime"), ""));
        }
        let controller = self.text(event, "reportingComponent");
        let field = Path::root("reportingController");
        if controller.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else {
            out.extend(
                qualified_name(controller).into_iter().map(|fault| FieldError::invalid(&field, controller, fault)),
            );
        }
        for (key, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
            let text = self.text(event, key);
            if text.is_empty() {
                out.push(FieldError::required(&Path::root(key), ""));
            } else if text.len() > limit {
                out.push(FieldError::invalid(&Path::root(key), "", format!("can have at most {limit} characters")));
            }
        }
        if self.text(event, "message").len() > MAX_NOTE {
            out.push(FieldError::invalid(&Path::root("message"), "", "can have at most 1024 characters"));
        }
        let kind = self.text(event, "type");
        if !matches!(kind, "Normal" | "Warning") {
            out.push(FieldError::invalid(&Path::root("type"), "", format!("has invalid value: {kind}")));
        }
    }
}

impl Strategy for Event {
    fn apply_defaults(&self, object: &mut Value) {
        self.kind.apply_defaults(object);
        // Go writes these times even when they are zero.
        let names = if self.converts {
            ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"]
        } else {
            ["eventTime", "firstTimestamp", "lastTimestamp"]
        };
        if let Some(map) = object.as_object_mut() {
            for name in names {
                map.entry(name).or_insert(Value::Null);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Strategy::validate(&self.kind, object);
        self.validate_legacy(object, &mut errors);
        if self.converts {
            self.validate_new(object, &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Strategy::validate_update(&self.kind, object, old);
        self.validate_legacy(object, &mut errors);
        super::super::kind::dedup(errors)
    }

    fn prepare_for_create(&self, _context: &WriteContext<'_>, _object: &mut Value) {}

    fn has_replicas(&self) -> bool {
        self.converts
    }

    fn own_texts(&self) -> &'static [OwnText] {
        OWN_TEXTS
    }

    fn takes_name(&self, name: &str) -> bool {
        dns_subdomain(name).is_empty()
    }

    fn is_alike_under_any_name(&self, _event: &Value) -> bool {
        true
    }

    fn field_labels(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn field_values(&self, object: &Value) -> Vec<String> {
        let involved = self.at(object, "involvedObject");
        let source = self.at(object, "source").text("component");
        let reporting = self.text(object, "reportingComponent");
        [
            involved.text("kind"),
            involved.text("namespace"),
            involved.text("name"),
            involved.text("uid"),
            involved.text("apiVersion"),
            involved.text("resourceVersion"),
            involved.text("fieldPath"),
            object.text("reason"),
            reporting,
            if source.is_empty() { reporting } else { source },
            object.text("type"),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn convert_to_storage(&self, object: &mut Value) {
        if self.converts {
            rename(object, |(new, core)| (new, core), "v1");
        }
    }

    fn converts_back(&self) -> bool {
        true
    }

    fn convert_from_storage(&self, object: &mut Value) {
        if self.converts {
            rename(object, |(new, core)| (core, new), "events.k8s.io/v1");
        }
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }
}

fn rename(
    object: &mut Value,
    order: fn((&'static str, &'static str)) -> (&'static str, &'static str),
    api_version: &str,
) {
    let Some(map) = object.as_object_mut() else { return };
    for pair in RENAMED {
        let (from, to) = order(pair);
        if let Some(member) = map.remove(from) {
            map.insert(to.to_owned(), member);
        }
    }
    map.insert("apiVersion".to_owned(), json!(api_version));
}

fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let mut event = event.clone();
    if event.has("regarding") || event.has("note") {
        rename(&mut event, |(new, core)| (new, core), "v1");
    }
    let first_time = if event.has("firstTimestamp") { event.text("firstTimestamp") } else { event.text("eventTime") };
    let first = columns::since(first_time, now);
    let mut last =
        if event.has("lastTimestamp") { columns::since(event.text("lastTimestamp"), now) } else { first.clone() };
    let mut count = event.int("count").filter(|count| *count != 0).unwrap_or(1);
    if event.has("series") {
        last = columns::since(event.at("series").text("lastObservedTime"), now);
        count = event.at("series").int("count").unwrap_or(0);
    }
    let involved = event.at("involvedObject");
    let kind = involved.text("kind").to_lowercase();
    let target = if involved.text("name").is_empty() { kind } else { format!("{kind}/{}", involved.text("name")) };
    let component = columns::or_else(event.at("source").text("component"), event.text("reportingComponent"));
    let instance = columns::or_else(event.at("source").text("host"), event.text("reportingInstance"));
    let source = if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    vec![
        json!(last),
        json!(event.text("type")),
        json!(event.text("reason")),
        json!(target),
        json!(involved.text("fieldPath")),
        json!(source),
        json!(event.text("message").trim()),
        json!(first),
        json!(count),
        columns::name(&event),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_groups_see_the_same_event() {
        let mut event =
            json!({"regarding": {"kind": "Pod"}, "note": "hi", "eventTime": null, "reportingController": "c"});
        let strategy = Event { kind: kind("events.k8s.io"), converts: true };
        strategy.convert_to_storage(&mut event);
        assert_eq!(
            event,
            json!({"apiVersion": "v1", "involvedObject": {"kind": "Pod"}, "message": "hi", "eventTime": null, "reportingComponent": "c"})
        );
        strategy.convert_from_storage(&mut event);
        assert_eq!((event.text("note"), event.text("apiVersion")), ("hi", "events.k8s.io/v1"));
    }

    #[test]
    fn the_names_of_a_version_make_no_difference_to_its_rules() {
        let core = json!({
            "metadata": {"namespace": "a"}, "involvedObject": {"kind": "Pod", "namespace": "b"}, "reportingComponent": "c d",
            "reason": "", "message": "m".repeat(1025), "type": "Odd", "source": {"component": "s"}, "action": "a",
        });
        let (old, new) =
            (Event { kind: kind(""), converts: false }, Event { kind: kind("events.k8s.io"), converts: true });
        let mut renamed = core.clone();
        new.convert_from_storage(&mut renamed);
        assert!(renamed.has("regarding") && !renamed.has("involvedObject"));
        assert_eq!(new.field_values(&renamed), old.field_values(&core));
        let (mut of_old, mut of_new) = (Vec::new(), Vec::new());
        old.validate_legacy(&core, &mut of_old);
        old.validate_new(&core, &mut of_old);
        new.validate_legacy(&renamed, &mut of_new);
        new.validate_new(&renamed, &mut of_new);
        assert_eq!(of_new, of_old);
        assert_eq!(of_new.len(), 7, "{of_new:?}");
    }

    #[test]
    fn an_event_lies_in_the_namespace_of_its_object() {
        let faults = |namespace: &str, involved: &str| {
            let mut errors = Vec::new();
            let event = json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}});
            Event { kind: kind(""), converts: false }.validate_legacy(&event, &mut errors);
            errors.len()
        };
        assert_eq!((faults("a", "a"), faults("a", "b"), faults("default", ""), faults("a", "")), (0, 1, 0, 1));
    }
}
