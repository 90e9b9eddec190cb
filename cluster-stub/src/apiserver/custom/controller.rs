//! Follows the CustomResourceDefinitions: accepts their names, serves what they define, and empties what is deleted. This is a part of the
//! API server, as it is upstream; objects are written through the registry.
//!
//! Upstream: apiextensions-apiserver v1.36.2 `pkg/controller/status/naming_controller.go`, `pkg/controller/establish`,
//! `pkg/controller/finalizer/crd_finalizer.go`, `pkg/apiserver/customresource_handler.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::resource::resource;
use crate::apiserver::discovery::Discovery;
use crate::apiserver::openapi::OpenApi;
use crate::apiserver::registry::{Registry, format_time};
use crate::apiserver::resources::{GroupResource, Objects as _, Resource};
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

const DEFINITIONS: GroupResource = GroupResource::of("apiextensions.k8s.io", "customresourcedefinitions");
const API_SERVICES: GroupResource = GroupResource::of("apiregistration.k8s.io", "apiservices");
/// Marks the APIServices that the server keeps by itself.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How often a deletion looks whether the objects are gone.
const CLEANUP_PAUSE: Duration = Duration::from_millis(200);

/// Serves custom resources.
pub struct CustomResources {
    /// Where definitions and objects are.
    pub registry: Registry,
    /// Told of new resources.
    pub discovery: Arc<Discovery>,
    /// Told of new resources.
    pub openapi: Arc<OpenApi>,
}

impl CustomResources {
    /// Serves what is defined until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let Some(cache) = self.registry.cache(&DEFINITIONS) else { return };
        // Versions that are served now, by the name of their definition.
        let mut served: BTreeMap<String, Served> = BTreeMap::new();
        let mut cursor = None;
        loop {
            let known = cursor.get_or_insert_with(|| cache.snapshot_and_cursor("", 0, |_| false).1);
            // What changed does not matter: all definitions are looked at, and only those that changed since are worked on.
            let current = known.take().is_ok();
            if !current {
                cursor = None;
                continue;
            }
            let waiting = self.reconcile(&mut served).await;
            let Some(known) = &mut cursor else { continue };
            let pause = if waiting { CLEANUP_PAUSE } else { Duration::from_secs(3600) };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                more = known.wait() => if more.is_err() { return },
            }
        }
    }

    /// Brings what is served in line with the definitions. Whether a deletion still waits for its objects.
    async fn reconcile(&self, served: &mut BTreeMap<String, Served>) -> bool {
        let definitions = self.registry.list(&DEFINITIONS, None);
        let mut changed = false;
        let mut waiting = false;
        let names: BTreeSet<String> =
            definitions.iter().map(|definition| definition.at("metadata").text("name").to_owned()).collect();
        let gone: Vec<String> = served.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            if let Some(old) = served.remove(&name) {
                self.withdraw(&old);
                changed = true;
            }
        }
        for definition in &definitions {
            let name = definition.at("metadata").text("name");
            let outcome = if definition.at("metadata").has("deletionTimestamp") {
                match self.clean_up(definition).await {
                    Ok(emptied) => {
                        waiting |= !emptied;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            } else {
                self.establish(definition, &definitions).await
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, name, "a CustomResourceDefinition is tried again");
                waiting = true;
            }
            let wanted = Served::of(definition);
            if served.get(name).map(|old| &old.key) == wanted.as_ref().map(|new| &new.key) {
                continue;
            }
            if let Some(old) = served.remove(name) {
                self.withdraw(&old);
            }
            if let Some(new) = wanted {
                self.serve(definition, &new).await;
                served.insert(name.to_owned(), new);
            }
            changed = true;
        }
        let resources = self.registry.resources();
        if changed {
            self.discovery.set(&resources);
            self.openapi.set(&resources);
        }
        if let Err(error) = self.register(&resources).await {
            tracing::debug!(%error, "the APIServices of custom resources are written again");
            waiting = true;
        }
        waiting
    }

    /// Keeps one APIService for each group version that definitions serve.
    ///
    /// Upstream: v1.36.2 `pkg/controlplane/controller/crdregistration/crdregistration_controller.go`.
    async fn register(&self, resources: &[Arc<Resource>]) -> Result<(), ApiError> {
        let mut wanted: BTreeSet<(String, String)> = resources
            .iter()
            .filter(|resource| resource.custom.is_some())
            .map(|resource| (resource.group.to_string(), resource.version.to_string()))
            .collect();
        for service in self.registry.list(&API_SERVICES, None) {
            let (spec, metadata) = (service.at("spec"), service.at("metadata"));
            let known = wanted.remove(&(spec.text("group").to_owned(), spec.text("version").to_owned()));
            if !known && metadata.at("labels").text(AUTOMANAGED) == "true" {
                self.registry.delete(&API_SERVICES, "", metadata.text("name"), json!({})).await?;
            }
        }
        for (group, version) in wanted {
            let available = Condition {
                kind: "Available",
                status: "True",
                reason: "Local",
                message: "Local APIServices are always available".to_owned(),
            };
            let mut status = json!({});
            available.put(&mut status);
            let service = json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": format!("{version}.{group}"), "labels": {AUTOMANAGED: "true"}},
                "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100},
                "status": status,
            });
            self.registry.create(&API_SERVICES, service).await?;
        }
        Ok(())
    }

    async fn serve(&self, definition: &Value, served: &Served) {
        // The stored version first: what others are converted from.
        let mut versions: Vec<&Value> = definition.at("spec").items("versions").iter().collect();
        versions.sort_by_key(|version| !version.flag("storage"));
        for version in versions.into_iter().filter(|version| served.versions.contains(version.text("name"))) {
            if let Err(error) = self.registry.add(Arc::new(resource(definition, version))).await {
                tracing::warn!(%error, group = served.group, plural = served.plural, "a custom resource cannot be served");
            }
        }
    }

    fn withdraw(&self, old: &Served) {
        for version in &old.versions {
            self.registry.remove(&old.group, version, &old.plural);
        }
    }

    /// Accepts the names of a definition unless another one of its group has them, and calls it established.
    async fn establish(&self, definition: &Value, all: &[Arc<Value>]) -> Result<(), ApiError> {
        let status = accepted(definition, all);
        if status == *definition.at("status") {
            return Ok(());
        }
        let name = definition.at("metadata").text("name").to_owned();
        let change = move |object: &mut Value| {
            object.put("status", status.clone());
            Ok(())
        };
        self.registry.update(&DEFINITIONS, "", &name, Box::new(change)).await.map(drop)
    }

    /// Deletes the objects of a deleted definition, and lets it go when there are none. Whether it is gone.
    async fn clean_up(&self, definition: &Value) -> Result<bool, ApiError> {
        let metadata = definition.at("metadata");
        if !metadata.texts("finalizers").contains(&CLEANUP) {
            return Ok(true);
        }
        let name = metadata.text("name");
        let spec = definition.at("spec");
        let plural = GroupResource {
            group: spec.text("group").to_owned().into(),
            resource: definition.at("status").at("acceptedNames").text("plural").to_owned().into(),
        };
        let objects = self.registry.list(&plural, None);
        for object in objects.iter().filter(|object| !object.at("metadata").has("deletionTimestamp")) {
            let (namespace, name) = (object.at("metadata").text("namespace"), object.at("metadata").text("name"));
            self.registry
                .delete(&plural, namespace, name, json!({}))
                .await
                .or_else(|error| if error.reason() == "NotFound" { Ok(()) } else { Err(error) })?;
        }
        let left = self.registry.list(&plural, None).len();
        if left > 0 {
            let progress = Condition {
                kind: "Terminating",
                status: "True",
                reason: "InstanceDeletionInProgress",
                message: "CustomResource deletion is in progress".to_owned(),
            };
            let mut status = definition.at("status").clone();
            progress.put(&mut status);
            if status != *definition.at("status") {
                let change = move |object: &mut Value| {
                    object.put("status", status.clone());
                    Ok(())
                };
                self.registry.update(&DEFINITIONS, "", name, Box::new(change)).await?;
            }
            return Ok(false);
        }
        self.registry.drop_finalizer(&DEFINITIONS, name, CLEANUP).await?;
        Ok(true)
    }
}

/// What is served of a definition.
struct Served {
    group: String,
    plural: String,
    versions: BTreeSet<String>,
    /// What a change of which makes it be served anew.
    key: Value,
}

impl Served {
    /// `None` while the definition is not established.
    fn of(definition: &Value) -> Option<Served> {
        let (spec, status) = (definition.at("spec"), definition.at("status"));
        let established = status
            .items("conditions")
            .iter()
            .any(|condition| condition.text("type") == "Established" && condition.text("status") == "True");
        established.then(|| Served {
            group: spec.text("group").to_owned(),
            plural: status.at("acceptedNames").text("plural").to_owned(),
            versions: spec
                .items("versions")
                .iter()
                .filter(|version| version.flag("served"))
                .map(|version| version.text("name").to_owned())
                .collect(),
            key: json!([definition.at("metadata").text("uid"), spec, status.at("acceptedNames")]),
        })
    }
}

struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    /// Puts the condition into a status; its time changes with its value only.
    fn put(self, status: &mut Value) {
        let mut conditions = status.items("conditions").to_vec();
        let now = format_time(Timestamp::now());
        let mut condition = json!({
            "type": self.kind, "status": self.status, "reason": self.reason, "message": self.message, "lastTransitionTime": now,
        });
        match conditions.iter_mut().find(|condition| condition.text("type") == self.kind) {
            Some(old) => {
                if old.text("status") == self.status {
                    condition["lastTransitionTime"] = old.at("lastTransitionTime").clone();
                }
                *old = condition;
            }
            None => conditions.push(condition),
        }
        status.put("conditions", Value::Array(conditions));
    }
}

/// The status that follows from the names of all definitions.
fn accepted(definition: &Value, all: &[Arc<Value>]) -> Value {
    let (spec, metadata) = (definition.at("spec"), definition.at("metadata"));
    let group = spec.text("group");
    let others = || {
        all.iter()
            .filter(|other| {
                other.at("spec").text("group") == group && other.at("metadata").at("uid") != metadata.at("uid")
            })
            .map(|other| other.at("status").at("acceptedNames"))
    };
    let names_of = |names: &Value| -> Vec<String> {
        let single = [names.text("plural"), names.text("singular")];
        single.into_iter().chain(names.texts("shortNames")).map(str::to_owned).collect()
    };
    let taken: BTreeSet<String> = others().flat_map(names_of).filter(|name| !name.is_empty()).collect();
    let kinds: BTreeSet<&str> = others().flat_map(|names| [names.text("kind"), names.text("listKind")]).collect();
    let wanted = spec.at("names");
    let mut names = definition.at("status").at("acceptedNames").clone();
    if !names.is_object() {
        names = json!({"plural": "", "kind": ""});
    }
    let mut conflict: Option<(&'static str, String)> = None;
    for (key, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        let name = wanted.text(key);
        let clashes = if key.ends_with("ind") { kinds.contains(name) } else { taken.contains(name) };
        if !name.is_empty() && clashes {
            conflict.get_or_insert((reason, format!("{} is already in use", json!(name))));
        } else {
            names.put(key, wanted.at(key).clone());
        }
    }
    let short: Vec<&str> = wanted.texts("shortNames").into_iter().filter(|name| taken.contains(*name)).collect();
    if short.is_empty() {
        names.put("shortNames", wanted.at("shortNames").clone());
    } else {
        conflict.get_or_insert(("ShortNamesConflict", format!("{} is already in use", json!(short[0]))));
    }
    names.put("categories", wanted.at("categories").clone());
    let mut status = definition.at("status").clone();
    status.put("acceptedNames", names);
    let was_established = status
        .items("conditions")
        .iter()
        .any(|condition| condition.text("type") == "Established" && condition.text("status") == "True");
    let (naming, establishing) = match conflict {
        None => (
            Condition {
                kind: "NamesAccepted",
                status: "True",
                reason: "NoConflicts",
                message: "no conflicts found".to_owned(),
            },
            Condition {
                kind: "Established",
                status: "True",
                reason: "InitialNamesAccepted",
                message: "the initial names have been accepted".to_owned(),
            },
        ),
        Some((reason, message)) => (
            Condition { kind: "NamesAccepted", status: "False", reason, message },
            Condition {
                kind: "Established",
                status: "False",
                reason: "NotAccepted",
                message: "not all names are accepted".to_owned(),
            },
        ),
    };
    let approval = approval(metadata, group);
    naming.put(&mut status);
    // Once established, a definition stays so.
    if !was_established {
        establishing.put(&mut status);
    }
    if let Some(approval) = approval {
        approval.put(&mut status);
    }
    status
}

/// Whether a definition in one of Kubernetes' own groups may be there.
///
/// Upstream: `pkg/controller/apiapproval/apiapproval_controller.go`.
fn approval(metadata: &Value, group: &str) -> Option<Condition> {
    let own =
        ["k8s.io", "kubernetes.io"].iter().any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !own {
        return None;
    }
    let given = metadata.at("annotations").text("api-approved.kubernetes.io");
    let condition = |status, reason, message: String| Condition {
        kind: "KubernetesAPIApprovalPolicyConformant",
        status,
        reason,
        message,
    };
    Some(if given.starts_with("unapproved") {
        let why = "not approved: ".to_owned() + given;
        condition("False", "UnapprovedAnnotation", why)
    } else {
        condition("True", "ApprovedAnnotation", format!("approved in {given}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, plural: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"group": "g.example.com", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")}},
        })
    }

    #[test]
    fn names_are_accepted_unless_they_are_taken() {
        let first = definition("a", "things", "Thing");
        let status = accepted(&first, &[Arc::new(first.clone())]);
        let text = |status: &Value, at: usize| {
            let condition = &status["conditions"][at];
            format!("{}={} {}", condition.text("type"), condition.text("status"), condition.text("reason"))
        };
        assert_eq!(text(&status, 0), "NamesAccepted=True NoConflicts");
        assert_eq!(text(&status, 1), "Established=True InitialNamesAccepted");
        let mut established = first;
        established["status"] = status;
        let second = definition("b", "others", "Thing");
        let status = accepted(&second, &[Arc::new(established), Arc::new(second.clone())]);
        assert_eq!(text(&status, 0), "NamesAccepted=False SingularConflict");
        assert_eq!(text(&status, 1), "Established=False NotAccepted");
        assert!(Served::of(&json!({"spec": {}, "status": status})).is_none());
    }
}
