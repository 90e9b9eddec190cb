//! The objects of one kind as last seen, with indices. Written by the informer only; readers get shared objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::api::Object;
use super::key::ObjectKey;

/// Extra index of a kind: the terms under which an object is found, for example the name of its node.
pub(crate) type IndexFn<K> = fn(&K) -> Vec<String>;

/// All objects of one kind. Objects are immutable and shared; a change replaces the whole object.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    state: RwLock<State<K>>,
    index: Option<IndexFn<K>>,
}

#[derive(Debug)]
struct State<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    /// Uid of an owner (any owner reference) → its dependents of this kind.
    by_owner: HashMap<String, BTreeSet<ObjectKey>>,
    by_term: HashMap<String, BTreeSet<ObjectKey>>,
}

impl<K: Object> Cache<K> {
    /// An empty cache; `index` names the extra terms of an object.
    pub(crate) fn new(index: Option<IndexFn<K>>) -> Self {
        let state = State { objects: BTreeMap::new(), by_owner: HashMap::new(), by_term: HashMap::new() };
        Self { state: RwLock::new(state), index }
    }

    /// The object at `key`.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, in the order of their keys.
    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// The objects of `namespace`, in the order of their names.
    pub(crate) fn list_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = ObjectKey::new(namespace, "");
        self.read()
            .objects
            .range(from..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The objects that name the owner `uid` in their owner references.
    pub(crate) fn list_owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let state = self.read();
        state.resolve(state.by_owner.get(uid))
    }

    /// The objects that the extra index lists under `term`.
    pub(crate) fn list_term(&self, term: &str) -> Vec<Arc<K>> {
        let state = self.read();
        state.resolve(state.by_term.get(term))
    }

    /// Puts `object` in, and returns the one it replaces.
    pub(crate) fn put(&self, object: &Arc<K>) -> Option<Arc<K>> {
        let key = ObjectKey::of(object.as_ref());
        let mut state = self.write();
        let old = state.objects.insert(key.clone(), Arc::clone(object));
        if let Some(old) = &old {
            state.unindex(&key, old, self.index);
        }
        for owner in object.meta().owner_references.iter().flatten() {
            state.by_owner.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        for term in self.index.map(|index| index(object)).unwrap_or_default() {
            state.by_term.entry(term).or_default().insert(key.clone());
        }
        old
    }

    /// Takes the object at `key` out.
    pub(crate) fn remove(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let mut state = self.write();
        let old = state.objects.remove(key)?;
        state.unindex(key, &old, self.index);
        Some(old)
    }

    /// The keys of all objects.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.read().objects.keys().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        // No code that can panic runs while the lock is held, so a poisoned state is still whole.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Object> State<K> {
    fn resolve(&self, keys: Option<&BTreeSet<ObjectKey>>) -> Vec<Arc<K>> {
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    fn unindex(&mut self, key: &ObjectKey, old: &K, index: Option<IndexFn<K>>) {
        for owner in old.meta().owner_references.iter().flatten() {
            drop_entry(&mut self.by_owner, &owner.uid, key);
        }
        for term in index.map(|index| index(old)).unwrap_or_default() {
            drop_entry(&mut self.by_term, &term, key);
        }
    }
}

fn drop_entry(index: &mut HashMap<String, BTreeSet<ObjectKey>>, term: &str, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(term) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(term);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, PodSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::api::ObjectMeta;

    use super::*;

    fn pod(namespace: &str, name: &str, node: &str, owner: Option<&str>) -> Arc<Pod> {
        Arc::new(Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                owner_references: owner
                    .map(|uid| vec![OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() }]),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec { node_name: Some(node.to_owned()), ..PodSpec::default() }),
            ..Pod::default()
        })
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    #[test]
    fn indices_follow_every_change() {
        let cache: Cache<Pod> =
            Cache::new(Some(|pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()));
        cache.put(&pod("a", "x", "n1", Some("u1")));
        cache.put(&pod("a", "y", "n1", None));
        cache.put(&pod("ab", "z", "n2", Some("u1")));
        assert_eq!(names(&cache.list_namespace("a")), ["x", "y"]);
        assert_eq!(names(&cache.list_owned_by("u1")), ["x", "z"]);
        assert_eq!(names(&cache.list_term("n1")), ["x", "y"]);
        cache.put(&pod("a", "x", "n2", Some("u2")));
        assert_eq!(names(&cache.list_owned_by("u1")), ["z"]);
        assert_eq!(names(&cache.list_term("n2")), ["x", "z"]);
        cache.remove(&ObjectKey::new("ab", "z"));
        assert!(cache.list_owned_by("u1").is_empty());
        assert!(names(&cache.list_namespace("ab")).is_empty());
    }
}
