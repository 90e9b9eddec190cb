//! Every object that is neither node nor pod, by kind and name: what plugins look up beside the columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, Labels, Namespace, Object, PersistentVolume,
    PersistentVolumeClaim, PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet, StorageClass,
    VolumeAttachment,
};

type ByName<T> = BTreeMap<Arc<str>, Arc<T>>;
type ByNamespace<T> = BTreeMap<Arc<str>, ByName<T>>;

/// A typed store of the cluster's other objects. Iteration is in name order, so decisions are reproducible.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    namespaces: ByName<Namespace>,
    services: ByNamespace<Service>,
    replication_controllers: ByNamespace<ReplicationController>,
    replica_sets: ByNamespace<ReplicaSet>,
    stateful_sets: ByNamespace<StatefulSet>,
    budgets: ByNamespace<PodDisruptionBudget>,
    volumes: ByName<PersistentVolume>,
    claims: ByNamespace<PersistentVolumeClaim>,
    storage_classes: ByName<StorageClass>,
    csi_nodes: ByName<CsiNode>,
    csi_drivers: ByName<CsiDriver>,
    csi_capacities: ByNamespace<CsiStorageCapacity>,
    attachments: ByName<VolumeAttachment>,
    device_classes: ByName<DeviceClass>,
}

fn insert<T>(map: &mut ByNamespace<T>, namespace: &Arc<str>, name: &Arc<str>, object: &Arc<T>) -> Option<Arc<T>> {
    map.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name), Arc::clone(object))
}

fn remove<T>(map: &mut ByNamespace<T>, namespace: &str, name: &str) -> Option<Arc<T>> {
    let by_name = map.get_mut(namespace)?;
    let removed = by_name.remove(name);
    if by_name.is_empty() {
        map.remove(namespace);
    }
    removed
}

fn get<'a, T>(map: &'a ByNamespace<T>, namespace: &str, name: &str) -> Option<&'a Arc<T>> {
    map.get(namespace)?.get(name)
}

fn all_in<'a, T>(map: &'a ByNamespace<T>, namespace: &str) -> impl Iterator<Item = &'a Arc<T>> {
    map.get(namespace).into_iter().flat_map(BTreeMap::values)
}

impl Objects {
    /// Stores an object; gives the one it replaces. Pods and nodes live elsewhere and are not stored.
    pub fn apply(&mut self, object: &Object) -> Option<Object> {
        match object {
            Object::Pod(_) | Object::Node(_) => None,
            Object::Namespace(o) => self.namespaces.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from),
            Object::Service(o) => insert(&mut self.services, &o.namespace, &o.name, o).map(Object::from),
            Object::ReplicationController(o) => {
                insert(&mut self.replication_controllers, &o.namespace, &o.name, o).map(Object::from)
            }
            Object::ReplicaSet(o) => insert(&mut self.replica_sets, &o.namespace, &o.name, o).map(Object::from),
            Object::StatefulSet(o) => insert(&mut self.stateful_sets, &o.namespace, &o.name, o).map(Object::from),
            Object::PodDisruptionBudget(o) => insert(&mut self.budgets, &o.namespace, &o.name, o).map(Object::from),
            Object::PersistentVolume(o) => self.volumes.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from),
            Object::PersistentVolumeClaim(o) => insert(&mut self.claims, &o.namespace, &o.name, o).map(Object::from),
            Object::StorageClass(o) => {
                self.storage_classes.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from)
            }
            Object::CsiNode(o) => self.csi_nodes.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from),
            Object::CsiDriver(o) => self.csi_drivers.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from),
            Object::CsiStorageCapacity(o) => {
                insert(&mut self.csi_capacities, &o.namespace, &o.name, o).map(Object::from)
            }
            Object::VolumeAttachment(o) => {
                self.attachments.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from)
            }
            Object::DeviceClass(o) => self.device_classes.insert(Arc::clone(&o.name), Arc::clone(o)).map(Object::from),
        }
    }

    /// Removes an object by kind and name; gives what was stored.
    pub fn remove(&mut self, object: &Object) -> Option<Object> {
        match object {
            Object::Pod(_) | Object::Node(_) => None,
            Object::Namespace(o) => self.namespaces.remove(&o.name).map(Object::from),
            Object::Service(o) => remove(&mut self.services, &o.namespace, &o.name).map(Object::from),
            Object::ReplicationController(o) => {
                remove(&mut self.replication_controllers, &o.namespace, &o.name).map(Object::from)
            }
            Object::ReplicaSet(o) => remove(&mut self.replica_sets, &o.namespace, &o.name).map(Object::from),
            Object::StatefulSet(o) => remove(&mut self.stateful_sets, &o.namespace, &o.name).map(Object::from),
            Object::PodDisruptionBudget(o) => remove(&mut self.budgets, &o.namespace, &o.name).map(Object::from),
            Object::PersistentVolume(o) => self.volumes.remove(&o.name).map(Object::from),
            Object::PersistentVolumeClaim(o) => remove(&mut self.claims, &o.namespace, &o.name).map(Object::from),
            Object::StorageClass(o) => self.storage_classes.remove(&o.name).map(Object::from),
            Object::CsiNode(o) => self.csi_nodes.remove(&o.name).map(Object::from),
            Object::CsiDriver(o) => self.csi_drivers.remove(&o.name).map(Object::from),
            Object::CsiStorageCapacity(o) => remove(&mut self.csi_capacities, &o.namespace, &o.name).map(Object::from),
            Object::VolumeAttachment(o) => self.attachments.remove(&o.name).map(Object::from),
            Object::DeviceClass(o) => self.device_classes.remove(&o.name).map(Object::from),
        }
    }

    /// A namespace.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.namespaces.get(name)
    }

    /// The labels of a namespace; none if it is unknown. Upstream: `GetNamespaceLabelsSnapshot`.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces.get(name).map(|namespace| namespace.labels.clone()).unwrap_or_default()
    }

    /// All namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.values()
    }

    /// Services of a namespace.
    pub fn services_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Service>> {
        all_in(&self.services, namespace)
    }

    /// A replication controller.
    #[must_use]
    pub fn replication_controller(&self, namespace: &str, name: &str) -> Option<&Arc<ReplicationController>> {
        get(&self.replication_controllers, namespace, name)
    }

    /// A replica set.
    #[must_use]
    pub fn replica_set(&self, namespace: &str, name: &str) -> Option<&Arc<ReplicaSet>> {
        get(&self.replica_sets, namespace, name)
    }

    /// A stateful set.
    #[must_use]
    pub fn stateful_set(&self, namespace: &str, name: &str) -> Option<&Arc<StatefulSet>> {
        get(&self.stateful_sets, namespace, name)
    }

    /// Disruption budgets of all namespaces.
    pub fn disruption_budgets(&self) -> impl Iterator<Item = &Arc<PodDisruptionBudget>> {
        self.budgets.values().flat_map(BTreeMap::values)
    }

    /// Disruption budgets of a namespace.
    pub fn disruption_budgets_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<PodDisruptionBudget>> {
        all_in(&self.budgets, namespace)
    }

    /// A persistent volume.
    #[must_use]
    pub fn persistent_volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    /// All persistent volumes.
    pub fn persistent_volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.volumes.values()
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        get(&self.claims, namespace, name)
    }

    /// Claims of all namespaces.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<PersistentVolumeClaim>> {
        self.claims.values().flat_map(BTreeMap::values)
    }

    /// A storage class.
    #[must_use]
    pub fn storage_class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.storage_classes.get(name)
    }

    /// All storage classes.
    pub fn storage_classes(&self) -> impl Iterator<Item = &Arc<StorageClass>> {
        self.storage_classes.values()
    }

    /// CSI drivers of a node.
    #[must_use]
    pub fn csi_node(&self, name: &str) -> Option<&Arc<CsiNode>> {
        self.csi_nodes.get(name)
    }

    /// A CSI driver.
    #[must_use]
    pub fn csi_driver(&self, name: &str) -> Option<&Arc<CsiDriver>> {
        self.csi_drivers.get(name)
    }

    /// Storage capacities of all namespaces.
    pub fn csi_storage_capacities(&self) -> impl Iterator<Item = &Arc<CsiStorageCapacity>> {
        self.csi_capacities.values().flat_map(BTreeMap::values)
    }

    /// All volume attachments.
    pub fn volume_attachments(&self) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attachments.values()
    }

    /// A device class.
    #[must_use]
    pub fn device_class(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.device_classes.get(name)
    }

    /// The device class that backs an extended resource, by the class's own statement or by the resource's name.
    /// Upstream: dynamic-resource-allocation `DeviceClassResolver.GetDeviceClass` (v1.36.2).
    #[must_use]
    pub fn device_class_for(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if self.device_classes.is_empty() {
            return None;
        }
        if let Some(name) = resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
            return self.device_classes.get(name);
        }
        self.device_classes.values().find(|class| class.extended_resource_name.as_deref() == Some(resource))
    }

    /// All device classes.
    pub fn device_classes(&self) -> impl Iterator<Item = &Arc<DeviceClass>> {
        self.device_classes.values()
    }
}
