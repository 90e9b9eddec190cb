//! Which objects were read already, and what it means that one comes again. What an object is does not matter here.

use std::hash::{Hash as _, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use serde_json::Value;

use super::script::Name;
use super::workload::namespace_of;
use super::world::WorldError;
use crate::manifest::Document;

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The user: everything in it is meant, so what cannot be meant is an error.
    Manifest,
    /// A cluster, at some time and perhaps of a newer version.
    Dump,
}

/// What is known of an object that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is new.
    First,
    /// It was there, and is the same.
    Again,
    /// It was there and was another: this one counts.
    Instead {
        /// Where the other stands.
        other: String,
        /// Where this one stands.
        place: String,
        /// Kind and name.
        title: String,
    },
}

impl Told {
    /// What the user should hear.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::First | Self::Again => None,
            Self::Instead { other, place, title } => {
                Some(format!("{place}: {title} stands at {other} with other content: this one counts"))
            }
        }
    }
}

/// An object's API group, kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    group: String,
    name: Name,
}

impl Key {
    pub(super) fn of(document: &Document) -> Self {
        let group = document.api_version().split_once('/').map_or("", |(group, _)| group).to_owned();
        let name = Name {
            kind: document.kind().to_owned(),
            namespace: namespace_of(&document.object),
            name: document.name().to_owned(),
        };
        Self { group, name }
    }
}

/// A list of the world, and a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    pub(super) list: List,
    pub(super) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum List {
    Objects,
    Bound,
    Waiting,
    Arriving,
}

#[derive(Clone, Debug)]
struct Entry {
    place: String,
    digest: u64,
    origin: Origin,
    spot: Option<Spot>,
}

/// The objects that were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    entries: FxHashMap<Key, Entry>,
}

impl Seen {
    /// Takes note of an object. Of two different ones that a cluster wrote the last counts, and a manifest counts before a dump.
    ///
    /// # Errors
    /// Two manifests say different things of one object.
    pub(super) fn tell(&mut self, document: &Document, origin: Origin) -> Result<Told, WorldError> {
        if document.name().is_empty() {
            return Ok(Told::First);
        }
        let key = Key::of(document);
        let digest = digest(&document.object, origin);
        let Some(entry) = self.entries.get_mut(&key) else {
            self.entries.insert(key, Entry { place: document.place.clone(), digest, origin, spot: None });
            return Ok(Told::First);
        };
        if entry.digest == digest && entry.origin == origin {
            return Ok(Told::Again);
        }
        if (entry.origin, origin) == (Origin::Manifest, Origin::Manifest) {
            return Err(WorldError::Object {
                place: document.place.clone(),
                object: document.title(),
                problem: format!("stands at {} already with other content, expected each object once", entry.place),
            });
        }
        let other = std::mem::replace(&mut entry.place, document.place.clone());
        (entry.digest, entry.origin) = (digest, origin);
        Ok(Told::Instead { other, place: document.place.clone(), title: document.title() })
    }

    /// Where the object of this key was put, if it was.
    pub(super) fn spot(&self, key: &Key) -> Option<Spot> {
        self.entries.get(key)?.spot
    }

    /// Where it is now.
    pub(super) fn set_spot(&mut self, key: &Key, spot: Option<Spot>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.spot = spot;
        }
    }
}

/// A number that two objects share if they are the same. A cluster tells each state of an object by its resourceVersion.
fn digest(object: &Value, origin: Origin) -> u64 {
    let mut hasher = FxHasher::default();
    let metadata = &object["metadata"];
    match (metadata["uid"].as_str(), metadata["resourceVersion"].as_str()) {
        (Some(uid), Some(version)) if origin == Origin::Dump => (uid, version).hash(&mut hasher),
        _ => hash(object, &mut hasher),
    }
    hasher.finish()
}

fn hash(value: &Value, hasher: &mut FxHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(hasher),
        Value::Number(value) => value.hash(hasher),
        Value::String(value) => value.hash(hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        Value::Object(fields) => {
            fields.len().hash(hasher);
            for (key, value) in fields {
                key.hash(hasher);
                hash(value, hasher);
            }
        }
    }
}
