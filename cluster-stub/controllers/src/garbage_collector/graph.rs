//! Who owns whom in the whole cluster, and what each change makes worth looking at. Pure: no requests, no clock.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::runtime::discovery::Collection;
use crate::runtime::key::ObjectKey;

/// Finalizer of an object that waits for its dependents to be deleted.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object that waits for its dependents to be let go.
pub(super) const ORPHAN: &str = "orphan";

/// An object in the graph.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Where it is served.
    pub(super) collection: Arc<Collection>,
    /// Its name.
    pub(super) key: ObjectKey,
    /// Its owners.
    pub(super) owners: Vec<OwnerReference>,
    /// Whether it is being deleted.
    pub(super) being_deleted: bool,
    /// Whether it waits for its dependents to be deleted first.
    pub(super) deleting_dependents: bool,
    /// Whether it waits for its dependents to be let go.
    orphaning: bool,
}

/// What to look at after a change, by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attention {
    /// These may have to be deleted, or freed of their finalizer.
    pub(super) delete: BTreeSet<String>,
    /// The dependents of these have to be let go.
    pub(super) orphan: BTreeSet<String>,
}

/// All objects by uid, and the dependents of every owner, whether or not the owner was ever seen.
/// Upstream: garbagecollector/graph_builder.go v1.36.2; where upstream keeps virtual nodes for unseen owners, here the
/// dependents themselves are looked at, and an unseen owner is asked for when that happens.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Graph {
    /// The object with `uid`.
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Uids of the objects that name `uid` as an owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &String> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Dependents that keep `uid` from going in the foreground.
    pub(super) fn blocking_dependents(&self, uid: &str) -> Vec<String> {
        let blocks = |dependent: &&String| {
            self.nodes
                .get(*dependent)
                .is_some_and(|node| node.owners.iter().any(|owner| owner.uid == uid && is_blocking(owner)))
        };
        self.dependents(uid).filter(blocks).cloned().collect()
    }

    /// An object was seen, for the first time or changed.
    pub(super) fn put(&mut self, collection: &Arc<Collection>, meta: &ObjectMeta) -> Attention {
        let mut attention = Attention::default();
        let uid = meta.uid.clone().unwrap_or_default();
        let owners = meta.owner_references.clone().unwrap_or_default();
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|own| own == finalizer);
        let being_deleted = meta.deletion_timestamp.is_some();
        let node = Node {
            collection: Arc::clone(collection),
            key: ObjectKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default()),
            owners,
            being_deleted,
            deleting_dependents: being_deleted && has(FOREGROUND),
            orphaning: being_deleted && has(ORPHAN),
        };
        let old = self.nodes.insert(uid.clone(), node.clone());
        let old_owners = old.as_ref().map(|old| old.owners.as_slice()).unwrap_or_default();
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            let is_new = !old_owners.iter().any(|old| old.uid == owner.uid);
            let seen_and_staying = self
                .nodes
                .get(&owner.uid)
                .is_some_and(|found| !found.deleting_dependents && found.is(owner, &node.key.namespace));
            if is_new && !seen_and_staying {
                attention.delete.insert(uid.clone());
            }
        }
        for old_owner in old_owners {
            let new_owner = node.owners.iter().find(|owner| owner.uid == old_owner.uid);
            if new_owner.is_none() {
                self.forget_dependent(&old_owner.uid, &uid);
            }
            if is_blocking(old_owner) && !new_owner.is_some_and(is_blocking) && self.nodes.contains_key(&old_owner.uid)
            {
                attention.delete.insert(old_owner.uid.clone());
            }
        }
        if node.orphaning && !old.as_ref().is_some_and(|old| old.orphaning) {
            attention.orphan.insert(uid);
        } else if node.deleting_dependents && !old.as_ref().is_some_and(|old| old.deleting_dependents) {
            attention.delete.extend(self.dependents(&uid).cloned());
            attention.delete.insert(uid);
        }
        attention
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, uid: &str) -> Attention {
        let mut attention = Attention::default();
        let Some(node) = self.nodes.remove(uid) else { return attention };
        for owner in &node.owners {
            self.forget_dependent(&owner.uid, uid);
            if self.nodes.get(&owner.uid).is_some_and(|owner| owner.deleting_dependents) {
                attention.delete.insert(owner.uid.clone());
            }
        }
        attention.delete.extend(self.dependents(uid).cloned());
        attention
    }

    fn forget_dependent(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

impl Node {
    /// Whether this is what a dependent in `namespace` means by `owner`.
    pub(super) fn is(&self, owner: &OwnerReference, namespace: &str) -> bool {
        self.collection.kind == owner.kind
            && self.key.name == owner.name
            && self.collection.group == group_of(&owner.api_version)
            && (!self.collection.namespaced || self.key.namespace == namespace)
    }
}

/// The group in an `apiVersion`.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn is_blocking(owner: &OwnerReference) -> bool {
    owner.block_owner_deletion == Some(true)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn collection() -> Arc<Collection> {
        Arc::new(Collection {
            group: String::new(),
            version: "v1".to_owned(),
            plural: "things".to_owned(),
            kind: "Thing".to_owned(),
            namespaced: true,
            verbs: BTreeSet::new(),
        })
    }

    fn object(uid: &str, owner: Option<(&str, bool)>, finalizer: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.to_owned()),
            name: Some(uid.to_owned()),
            namespace: Some("default".to_owned()),
            deletion_timestamp: finalizer.map(|_| Time(jiff::Timestamp::UNIX_EPOCH)),
            finalizers: finalizer.map(|finalizer| vec![finalizer.to_owned()]),
            owner_references: owner.map(|(owner, blocks)| {
                vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Thing".to_owned(),
                    name: owner.to_owned(),
                    uid: owner.to_owned(),
                    block_owner_deletion: Some(blocks),
                    controller: None,
                }]
            }),
            ..ObjectMeta::default()
        }
    }

    fn delete(uids: &[&str]) -> Attention {
        Attention { delete: uids.iter().map(|uid| (*uid).to_owned()).collect(), orphan: BTreeSet::new() }
    }

    #[test]
    fn a_dependent_is_looked_at_when_its_owner_is_unknown_or_goes() {
        let (mut graph, kind) = (Graph::default(), collection());
        assert_eq!(graph.put(&kind, &object("early", Some(("owner", true)), None)), delete(&["early"]));
        assert_eq!(graph.put(&kind, &object("owner", None, None)), Attention::default());
        assert_eq!(graph.put(&kind, &object("late", Some(("owner", true)), None)), Attention::default());
        assert_eq!(graph.remove("owner"), delete(&["early", "late"]));
        assert_eq!(graph.remove("owner"), Attention::default());
        assert_eq!(graph.remove("late"), Attention::default());
    }

    #[test]
    fn an_owner_in_another_namespace_is_no_owner() {
        let (mut graph, kind) = (Graph::default(), collection());
        graph.put(&kind, &object("owner", None, None));
        let mut stranger = object("stranger", Some(("owner", true)), None);
        stranger.namespace = Some("other".to_owned());
        assert_eq!(graph.put(&kind, &stranger), delete(&["stranger"]));
    }

    #[test]
    fn a_foreground_deletion_waits_for_blocking_dependents_only() {
        let (mut graph, kind) = (Graph::default(), collection());
        graph.put(&kind, &object("owner", None, None));
        graph.put(&kind, &object("blocks", Some(("owner", true)), None));
        graph.put(&kind, &object("follows", Some(("owner", false)), None));
        let going = object("owner", None, Some(FOREGROUND));
        assert_eq!(graph.put(&kind, &going), delete(&["blocks", "follows", "owner"]));
        assert_eq!(graph.put(&kind, &going), Attention::default(), "said once");
        assert_eq!(graph.blocking_dependents("owner"), ["blocks"]);
        assert_eq!(graph.put(&kind, &object("blocks", Some(("owner", false)), None)), delete(&["owner"]));
        assert!(graph.blocking_dependents("owner").is_empty());
        assert_eq!(graph.put(&kind, &object("newcomer", Some(("owner", true)), None)), delete(&["newcomer"]));
        assert_eq!(graph.remove("newcomer"), delete(&["owner"]));
    }

    #[test]
    fn an_orphaning_deletion_is_noticed_once_and_a_released_dependent_forgotten() {
        let (mut graph, kind) = (Graph::default(), collection());
        graph.put(&kind, &object("child", Some(("owner", true)), None));
        let going = object("owner", None, Some(ORPHAN));
        assert_eq!(graph.put(&kind, &going).orphan, BTreeSet::from(["owner".to_owned()]));
        assert_eq!(graph.put(&kind, &going), Attention::default());
        assert_eq!(graph.put(&kind, &object("child", None, None)), delete(&["owner"]));
        assert_eq!(graph.remove("owner"), Attention::default());
    }
}
