//! Objects that no API server would hand out: a sound object of each kind, spoiled as the input says.

use k8s_openapi::api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy, storage::v1 as storage};
use scheduler_core::convert::{ConvertError, read};
use scheduler_core::model::{self, Object, ObjectKind};
use serde_json::{Map, Value, json};

/// The input, byte by byte; zeros when it is used up.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    #[allow(dead_code, reason = "the target `convert` reads on: zeros follow")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }
}

const TEXTS: [&str; 24] = [
    "",
    "a",
    "b",
    "n-a",
    "n-b",
    "p-a",
    "u-1",
    "zone",
    "app",
    "kubernetes.io/hostname",
    "In",
    "NotIn",
    "Exists",
    "Gt",
    "-1",
    "100m",
    "9223372036854775808",
    "1e99",
    "16Ei",
    "many",
    "0",
    "Never",
    "::",
    "a/b/c",
];
const NUMBERS: [i64; 10] = [0, 1, -1, 2, 100, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN, 65_536];

/// A sound object of the n-th kind.
fn template(n: usize) -> Value {
    let selector = json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]});
    let term = json!({"labelSelector": selector, "topologyKey": "zone", "namespaceSelector": {}, "namespaces": ["d"]});
    let node_term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-a"]}]});
    let resources =
        json!({"requests": {"cpu": "100m", "memory": "1Mi", "example.com/gpu": "1"}, "limits": {"cpu": "1"}});
    let meta = |name: &str| {
        json!({"name": name, "namespace": "d", "uid": "u-1", "labels": {"app": "a", "zone": "a"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u-1", "controller": true}]})
    };
    match n % 10 {
        0 | 1 => json!({"kind": "Pod", "metadata": meta("p-a"), "spec": {
            "containers": [{"name": "c", "image": "i", "resources": resources, "ports": [{"containerPort": 1, "hostPort": 1, "hostIP": "a"}]}],
            "initContainers": [{"name": "i", "resources": resources, "restartPolicy": "Always"}],
            "overhead": {"cpu": "1m"}, "resources": resources, "priority": 1, "nodeName": "", "preemptionPolicy": "Never",
            "nodeSelector": {"zone": "a"}, "schedulingGates": [],
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [node_term]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": node_term}]},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector, "minDomains": 1, "matchLabelKeys": ["app"]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "w", "ephemeral": {}}]},
            "status": {"nominatedNodeName": "", "phase": "Pending"}}),
        2 | 3 => {
            json!({"kind": "Node", "metadata": meta("n-a"), "spec": {"unschedulable": false, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "10", "example.com/gpu": "2"},
                "images": [{"names": ["i"], "sizeBytes": 1}], "conditions": [{"type": "Ready", "status": "True"}]}})
        }
        4 => {
            json!({"kind": "PersistentVolumeClaim", "metadata": meta("a"), "spec": {"storageClassName": "a", "volumeName": "a",
            "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}, "selector": selector}})
        }
        5 => {
            json!({"kind": "PersistentVolume", "metadata": meta("a"), "spec": {"storageClassName": "a", "capacity": {"storage": "1Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [node_term]}}, "claimRef": {"name": "a", "namespace": "d"}}})
        }
        6 => {
            json!({"kind": "StorageClass", "metadata": meta("a"), "provisioner": "csi", "volumeBindingMode": "WaitForFirstConsumer"})
        }
        7 => {
            json!({"kind": "CSINode", "metadata": meta("n-a"), "spec": {"drivers": [{"name": "csi", "nodeID": "x", "allocatable": {"count": 1}}]}})
        }
        8 => json!({"kind": "PodDisruptionBudget", "metadata": meta("b"), "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}}),
        _ => json!({"kind": "ReplicaSet", "metadata": meta("p-a"), "spec": {"selector": selector, "replicas": 1}}),
    }
}

/// Changes some leaves and lists; what a value is stays what it was, so that it can still be read.
fn spoil(value: &mut Value, reader: &mut Reader<'_>, depth: usize) {
    match value {
        Value::String(text) if reader.below(4) == 0 => *text = TEXTS[reader.below(TEXTS.len())].to_owned(),
        Value::Number(_) if reader.below(2) == 0 => *value = NUMBERS[reader.below(NUMBERS.len())].into(),
        Value::Bool(flag) => *flag ^= reader.below(2) == 0,
        Value::Array(items) => {
            match reader.below(8) {
                0 => items.clear(),
                1 => items.extend(items.clone()),
                _ => {}
            }
            items.iter_mut().for_each(|item| spoil(item, reader, depth + 1));
        }
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            for key in keys {
                // The kind and the identity stay.
                if depth == 0 && key == "kind" {
                    continue;
                }
                match reader.below(16) {
                    0 => drop(fields.remove(&key)),
                    1 if key == "labels" => drop(fields.insert(key, many_labels())),
                    _ => spoil(&mut fields[&key], reader, depth + 1),
                }
            }
        }
        _ => {}
    }
}

fn many_labels() -> Value {
    (0..10_000).map(|i| (format!("label-{i}"), Value::from("x"))).collect::<Map<_, _>>().into()
}

/// The next odd object; `None` if it cannot be read, which is an error and no panic.
pub(crate) fn object(reader: &mut Reader<'_>) -> Option<Object> {
    let mut value = template(reader.below(10));
    spoil(&mut value, reader, 0);
    parsed(&value)
}

/// A JSON object of a kind that the engine knows, in the model. Read from its text it must come out the same.
pub(crate) fn parsed(value: &Value) -> Option<Object> {
    let (kind, typed) = typed(value)?;
    let read = read(kind, value.to_string().as_bytes()).expect("what has typed members has the members that are read");
    assert_eq!(format!("{:?}", read.object), format!("{typed:?}"), "{value}");
    typed.ok()
}

/// By way of the typed object; `None` if there is no such object.
fn typed(value: &Value) -> Option<(ObjectKind, Result<Object, ConvertError>)> {
    macro_rules! by_kind {
        ($($name:literal $api:path => $model:ident),* $(,)?) => {
            match value.get("kind")?.as_str()? {
                $($name => {
                    let object: $api = serde_json::from_value(value.clone()).ok()?;
                    let model = model::$model::try_from(&object).map(Object::from).map_err(ConvertError::from);
                    (ObjectKind::$model, model)
                })*
                _ => return None,
            }
        };
    }
    Some(by_kind! {
        "Pod" core::Pod => Pod,
        "Node" core::Node => Node,
        "Namespace" core::Namespace => Namespace,
        "Service" core::Service => Service,
        "ReplicationController" core::ReplicationController => ReplicationController,
        "ReplicaSet" apps::ReplicaSet => ReplicaSet,
        "StatefulSet" apps::StatefulSet => StatefulSet,
        "PersistentVolumeClaim" core::PersistentVolumeClaim => PersistentVolumeClaim,
        "PersistentVolume" core::PersistentVolume => PersistentVolume,
        "StorageClass" storage::StorageClass => StorageClass,
        "CSINode" storage::CSINode => CsiNode,
        "CSIDriver" storage::CSIDriver => CsiDriver,
        "CSIStorageCapacity" storage::CSIStorageCapacity => CsiStorageCapacity,
        "VolumeAttachment" storage::VolumeAttachment => VolumeAttachment,
        "PodDisruptionBudget" policy::PodDisruptionBudget => PodDisruptionBudget,
    })
}
