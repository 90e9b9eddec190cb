//! Which steps of the cluster's story concern the learner's objects, and how a step reads on a line.

use std::time::Instant;

use cluster_stub::story::{Component, Step};
use serde_json::{Value, json};

use crate::manifest::Document;

/// Widest line that is written.
const WIDTH: usize = 120;

/// The objects whose story is told: those of the manifest and what controllers make of them.
#[derive(Debug)]
pub(crate) struct Cast {
    members: Vec<(String, String)>,
    learner: String,
}

impl Cast {
    /// The objects of `documents`, written by the user `learner`.
    pub(crate) fn new(documents: &[Document], learner: &str) -> Self {
        let members = documents
            .iter()
            .map(|document| {
                let namespace = document.object["metadata"]["namespace"].as_str().unwrap_or("default");
                (namespace.to_owned(), document.name().to_owned())
            })
            .collect();
        Self { members, learner: learner.to_owned() }
    }

    /// Whether an object is one of the learner's, or named after one as controllers do.
    pub(crate) fn contains(&self, namespace: &str, name: &str) -> bool {
        self.members.iter().any(|(members_namespace, member)| {
            let same_place = namespace.is_empty() || namespace == members_namespace;
            let rest = name.strip_prefix(member.as_str());
            same_place && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    }

    /// As [`Cast::contains`], for a whole object.
    pub(crate) fn contains_object(&self, object: &Value) -> bool {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        self.contains(text("namespace"), text("name"))
    }

    /// As [`Cast::contains`], for what an event is about.
    pub(crate) fn contains_reference(&self, reference: &Value) -> bool {
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        self.contains(text("namespace"), text("name"))
    }

    /// The namespaces that the objects live in, each once.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let mut namespaces: Vec<_> = self.members.iter().map(|(namespace, _)| namespace.clone()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }

    /// Whether a step is told. The learner's own requests are told door by door; of those that components send only the
    /// write is, since every one passes the same doors. Whoever comes over the network is the learner.
    pub(crate) fn tells(&self, step: &Step) -> bool {
        if step.component == Component::ApiServer {
            return step.user.as_deref().is_none_or(|user| user == self.learner);
        }
        let noise = ["Event", "Lease", "EndpointSlice", "Endpoints"].contains(&step.kind.as_str());
        !noise && self.contains(&step.namespace, &step.name)
    }
}

/// A step as one line: milliseconds since `start`, component, stage, what, object, resourceVersion.
pub(crate) fn line(step: &Step, start: Instant) -> String {
    let ms = step.at.saturating_duration_since(start).as_secs_f64() * 1000.0;
    let object = format!("{} {}", step.kind, step.name);
    let object = object.trim_end();
    let version = step.resource_version.as_deref().map_or_else(String::new, |version| format!(" rv={version}"));
    let head = format!("{ms:>7.1}  {:<21} {:<14} ", step.component.to_string(), step.stage);
    let room = WIDTH.saturating_sub(head.chars().count() + object.chars().count() + version.chars().count() + 3);
    let what = shorten(&step.what, room);
    format!("{head}{what} · {object}{version}")
}

/// The head over the lines.
pub(crate) fn head() -> String {
    format!("{:>7}  {:<21} {:<14} what · object, resourceVersion", "ms", "component", "stage")
}

/// A step as data.
pub(crate) fn to_json(step: &Step, start: Instant) -> Value {
    json!({
        "milliseconds": step.at.saturating_duration_since(start).as_secs_f64() * 1000.0,
        "component": step.component.to_string(),
        "stage": step.stage,
        "what": step.what,
        "kind": step.kind,
        "namespace": step.namespace,
        "name": step.name,
        "resourceVersion": step.resource_version,
        "user": step.user.as_deref(),
    })
}

fn shorten(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    fn cast() -> Cast {
        let documents =
            manifest::parse("x", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}").expect("one object");
        Cast::new(&documents, "kubernetes-admin")
    }

    fn step(component: Component, kind: &str, namespace: &str, name: &str, user: Option<&str>) -> Step {
        Step {
            at: Instant::now(),
            component,
            stage: "storage",
            what: "created".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            resource_version: Some("7".into()),
            user: user.map(Into::into),
        }
    }

    #[test]
    fn only_the_learners_objects_are_told() {
        let cast = cast();
        let told = |component, kind, namespace, name, user| cast.tells(&step(component, kind, namespace, name, user));
        assert!(
            told(Component::ApiServer, "Deployment", "default", "web", Some("kubernetes-admin")),
            "the learner's own request"
        );
        assert!(
            told(Component::Store, "Pod", "default", "web-5d-abcde", Some("system:serviceaccount:x")),
            "what a controller stored"
        );
        assert!(told(Component::Kubelet, "Pod", "default", "web-5d-abcde", None), "the kubelet's work");
        assert!(told(Component::ApiServer, "deployments", "default", "", None), "before the learner has a name");
        assert!(
            !told(Component::ApiServer, "pods", "default", "web-5d-abcde", Some("system:node:a")),
            "doors of another's request"
        );
        assert!(!told(Component::Store, "Pod", "default", "website", None), "another name");
        assert!(!told(Component::Store, "Pod", "other", "web", None), "another namespace");
        assert!(!told(Component::Store, "Event", "default", "web.123", None), "events come at the end");
        assert!(!told(Component::Store, "Lease", "kube-node-lease", "node-a", None), "background traffic");
    }

    #[test]
    fn a_line_is_never_wider_than_the_page() {
        let start = Instant::now();
        let mut step =
            step(Component::Controller("deployment-controller"), "ReplicaSet", "default", "web-6b9d7c", None);
        let short = line(&step, start);
        assert!(short.ends_with("created · ReplicaSet web-6b9d7c rv=7"), "{short}");
        step.what = "x".repeat(300);
        assert_eq!(line(&step, start).chars().count(), WIDTH);
    }
}
