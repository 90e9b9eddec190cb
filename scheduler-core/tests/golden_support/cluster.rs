//! Objects of a case into engine changes.

use k8s_openapi::api::{
    apps::v1 as apps, core::v1 as core, policy::v1 as policy, resource::v1 as resource, storage::v1 as storage,
};
use scheduler_core::convert::read;
use scheduler_core::engine::{Change, Scheduler};
use scheduler_core::model::{self, Object, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// When everything in a case happens.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

pub(crate) fn pod(value: &Value) -> model::Pod {
    let pod = (&parse::<core::Pod>(value)).try_into().expect("a valid pod");
    assert_read_alike(value, &Object::from(model::Pod::clone(&pod)));
    pod
}

/// Tells the scheduler of every object.
pub(crate) fn apply(scheduler: &mut Scheduler, objects: &[Value]) {
    for value in objects {
        let Some(object) = convert(value) else { continue };
        assert_read_alike(value, &object);
        scheduler.handle(Change::Applied(object), NOW);
    }
}

/// `None` for kinds that matter only to dynamic resource allocation.
fn convert(value: &Value) -> Option<Object> {
    Some(match value["kind"].as_str().expect("a kind") {
        "Pod" => pod(value).into(),
        "Node" => model::Node::try_from(&parse::<core::Node>(value)).expect("a valid node").into(),
        "Namespace" => model::Namespace::from(&parse::<core::Namespace>(value)).into(),
        "Service" => model::Service::from(&parse::<core::Service>(value)).into(),
        "ReplicationController" => {
            model::ReplicationController::from(&parse::<core::ReplicationController>(value)).into()
        }
        "ReplicaSet" => model::ReplicaSet::from(&parse::<apps::ReplicaSet>(value)).into(),
        "StatefulSet" => model::StatefulSet::from(&parse::<apps::StatefulSet>(value)).into(),
        "PodDisruptionBudget" => model::PodDisruptionBudget::from(&parse::<policy::PodDisruptionBudget>(value)).into(),
        "PersistentVolume" => {
            model::PersistentVolume::try_from(&parse::<core::PersistentVolume>(value)).expect("a valid volume").into()
        }
        "PersistentVolumeClaim" => {
            let claim = parse::<core::PersistentVolumeClaim>(value);
            model::PersistentVolumeClaim::try_from(&claim).expect("a valid claim").into()
        }
        "StorageClass" => model::StorageClass::from(&parse::<storage::StorageClass>(value)).into(),
        "CSINode" => model::CsiNode::from(&parse::<storage::CSINode>(value)).into(),
        "CSIDriver" => model::CsiDriver::from(&parse::<storage::CSIDriver>(value)).into(),
        "CSIStorageCapacity" => {
            let capacity = parse::<storage::CSIStorageCapacity>(value);
            model::CsiStorageCapacity::try_from(&capacity).expect("a valid capacity").into()
        }
        "VolumeAttachment" => model::VolumeAttachment::from(&parse::<storage::VolumeAttachment>(value)).into(),
        "DeviceClass" => model::DeviceClass::from(&parse::<resource::DeviceClass>(value)).into(),
        "ResourceSlice" | "ResourceClaim" => return None,
        other => panic!("no conversion for kind {other}"),
    })
}

/// The text of an object gives what its typed form gives.
fn assert_read_alike(value: &Value, typed: &Object) {
    let read = read(typed.kind(), value.to_string().as_bytes()).unwrap_or_else(|error| panic!("{value}: {error}"));
    let object = read.object.unwrap_or_else(|error| panic!("{value}: {error}"));
    assert_eq!(format!("{object:?}"), format!("{typed:?}"));
}

fn parse<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}
