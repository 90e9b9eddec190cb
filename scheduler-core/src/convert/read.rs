//! One API object as JSON into the model.

use std::sync::Arc;

use serde::Deserialize;

use super::wire::{self, ObjectMeta};
use super::{ConvertError, text};
use crate::model::{self, Object, ObjectKind};

/// Namespace, name and UID: an object deleted and made again under its name is another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

/// An API object that was read.
#[derive(Debug)]
pub struct ReadObject {
    /// Which object it is.
    pub identity: Identity,
    /// Its `metadata.resourceVersion`; empty when absent.
    pub resource_version: Arc<str>,
    /// The object, or why it cannot be used.
    pub object: Result<Object, ConvertError>,
}

/// Reads an object of `kind` (`kind` and `apiVersion` in the text are not looked at: items of a list have none).
/// Members that the scheduler does not use are skipped.
///
/// # Errors
/// The text is not JSON, or a member has another type than the API gives it. An object that is well-formed but has a value
/// that cannot be used, such as a malformed quantity, is read, and says so in [`ReadObject::object`].
pub fn read(kind: ObjectKind, json: &[u8]) -> Result<ReadObject, serde_json::Error> {
    macro_rules! by_kind {
        ($($kind:ident),* $(,)?) => {
            match kind {
                $(ObjectKind::$kind => {
                    let shape: wire::$kind<'_> = shape(json)?;
                    let (identity, resource_version) = identify(&shape.metadata);
                    let object = model::$kind::try_from(shape).map(Object::from).map_err(ConvertError::from);
                    Ok(ReadObject { identity, resource_version, object })
                })*
            }
        };
    }
    by_kind! {
        Pod, Node, Namespace, Service, ReplicationController, ReplicaSet, StatefulSet, PodDisruptionBudget,
        PersistentVolume, PersistentVolumeClaim, StorageClass, CsiNode, CsiDriver, CsiStorageCapacity, VolumeAttachment,
        DeviceClass,
    }
}

pub(super) fn identify(meta: &ObjectMeta<'_>) -> (Identity, Arc<str>) {
    let identity = Identity {
        namespace: text(meta.namespace.as_ref()),
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
    };
    (identity, text(meta.resource_version.as_ref()))
}

fn shape<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    // A text is checked once to be UTF-8, not string by string.
    match std::str::from_utf8(json) {
        Ok(text) => serde_json::from_str(text),
        Err(error) => Err(not_utf8(json, error)),
    }
}

/// Says where the fault is, as far as the reader of JSON gets.
fn not_utf8(json: &[u8], error: std::str::Utf8Error) -> serde_json::Error {
    use serde::de::Error as _;

    match serde_json::from_slice::<serde_json::Value>(json) {
        Err(fault) => fault,
        Ok(_) => serde_json::Error::custom(error),
    }
}

impl From<std::convert::Infallible> for ConvertError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_utf8_is_refused_with_the_place() {
        let json = b"{\"metadata\":\n{\"name\":\"a\xff\"}}";
        let error = read(ObjectKind::Pod, json).expect_err("not UTF-8");
        assert_eq!((error.line(), error.is_data()), (2, false), "{error}");
    }
}
