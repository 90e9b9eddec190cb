//! Objects that no API server would hand out, in random order, with deletions, failures and lost results in between:
//! the engine never panics, never loses a pod, and never binds one twice.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1 as core, policy::v1 as policy, storage::v1 as storage};
use proptest::prelude::*;
use scheduler_core::config::KubeSchedulerConfiguration;
use scheduler_core::engine::{Change, Options, Outcome, Scheduler};
use scheduler_core::framework::{EffectError, EffectId, EffectKind};
use scheduler_core::model::{self, Object, Timestamp};
use serde_json::{Value, json};

/// Amounts: negative, too large for 64 bits, fractions, nonsense.
const QUANTITIES: [&str; 16] = [
    "0",
    "1",
    "2",
    "100m",
    "1500m",
    "-1",
    "-5Gi",
    "1Gi",
    "4Gi",
    "9223372036854775807",
    "9223372036854775808",
    "16Ei",
    "1e30",
    "1n",
    "0.5",
    "many",
];
const NAMES: [&str; 4] = ["a", "b", "c", ""];

fn quantity() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => prop::sample::select(&QUANTITIES[1..4]), 1 => prop::sample::select(&QUANTITIES[..])]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn resources() -> impl Strategy<Value = Value> {
    const RESOURCES: [&str; 8] =
        ["cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi", "", "a/b/c"];
    prop::collection::btree_map(prop::sample::select(&RESOURCES[..]), quantity(), 0..4).prop_map(|map| json!(map))
}

fn labels() -> impl Strategy<Value = Value> {
    prop_oneof![
        99 => prop::collection::btree_map(prop::sample::select(&["zone", "app", "kubernetes.io/hostname", ""][..]), name(), 0..3)
            .prop_map(|map| json!(map)),
        1 => Just(()).prop_map(|()| (0..10_000).map(|i| (format!("label-{i}"), Value::from("x"))).collect::<Value>()),
    ]
}

fn selector() -> impl Strategy<Value = Value> {
    const OPERATORS: [&str; 7] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Nonsense", ""];
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        labels().prop_map(|labels| json!({"matchLabels": labels})),
        (prop::sample::select(&["zone", "app"][..]), prop::sample::select(&OPERATORS[..]), prop::collection::vec(name(), 0..3))
            .prop_map(|(key, operator, values)| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})),
    ]
}

fn term() -> impl Strategy<Value = Value> {
    (selector(), prop::sample::select(&["zone", "kubernetes.io/hostname", ""][..]), selector()).prop_map(
        |(selector, key, namespaces)| json!({"labelSelector": selector, "topologyKey": key, "namespaceSelector": namespaces}),
    )
}

fn affinity() -> impl Strategy<Value = Value> {
    let terms = || prop::collection::vec(term(), 0..2);
    (terms(), terms(), prop::collection::vec((any::<i32>(), term()), 0..2), prop::collection::vec(selector(), 0..2)).prop_map(
        |(required, anti, preferred, nodes)| {
            let weighted: Vec<Value> = preferred.iter().map(|(w, t)| json!({"weight": w, "podAffinityTerm": t})).collect();
            json!({
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": anti,
                    "preferredDuringSchedulingIgnoredDuringExecution": weighted,
                },
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": nodes
                    .iter().map(|s| json!({"matchExpressions": s["matchExpressions"].as_array().cloned().unwrap_or_default()}))
                    .collect::<Vec<_>>()}},
            })
        },
    )
}

fn node() -> impl Strategy<Value = Value> {
    (name(), labels(), resources(), any::<bool>(), any::<bool>()).prop_map(
        |(name, labels, allocatable, cordoned, tainted)| {
            let taints = if tainted {
                json!([{"key": "k", "effect": "NoSchedule"}, {"key": "", "effect": "Odd"}])
            } else {
                Value::Null
            };
            json!({"kind": "Node", "metadata": {"name": format!("n-{name}"), "labels": labels},
            "spec": {"unschedulable": cordoned && tainted, "taints": taints}, "status": {"allocatable": allocatable}})
        },
    )
}

fn pod() -> impl Strategy<Value = Value> {
    let spread = (selector(), any::<i32>(), any::<Option<i32>>()).prop_map(|(selector, skew, domains)| {
        json!([{"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, "minDomains": domains}])
    });
    let volume = prop_oneof![
        3 => Just(Value::Null),
        1 => name().prop_map(|claim| json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])),
        1 => Just(json!([{"name": "v", "ephemeral": {}}, {"name": "w", "gcePersistentDisk": {"pdName": "d"}}])),
    ];
    let identity = (0_u8..8, 0_u8..9, labels(), any::<bool>());
    let spec = (resources(), resources(), prop::option::of(affinity()), prop::option::of(spread), volume);
    let status = (
        prop::option::weighted(0.2, name()),
        prop::option::weighted(0.2, name()),
        prop::option::of(any::<i32>()),
        0_u8..20,
    );
    (identity, spec, status).prop_map(|((uid, other_uid, labels, gated), spec, (node, nominated, priority, phase))| {
        let (requests, limits, affinity, spread, volumes) = spec;
        // Now and then two pods share a UID, or a name.
        let uid_text = if other_uid == 0 { "u-0".to_owned() } else { format!("u-{uid}") };
        let mut pod = json!({
            "kind": "Pod",
            "metadata": {"name": format!("p-{}", uid % 5), "namespace": "d", "uid": uid_text, "labels": labels},
            "spec": {
                "containers": [{"name": "c", "image": "", "resources": {"requests": requests, "limits": limits},
                    "ports": [{"containerPort": 1, "hostPort": i32::from(uid) * 40_000 - 40_000}]}],
                "priority": priority, "affinity": affinity, "topologySpreadConstraints": spread, "volumes": volumes,
                "nodeName": node.map(|name| format!("n-{name}")),
            },
            "status": {"nominatedNodeName": nominated.map(|name| format!("n-{name}"))},
        });
        if gated && phase % 3 == 0 {
            pod["spec"]["schedulingGates"] = json!([{"name": "g"}]);
        }
        match phase {
            0 => pod["status"]["phase"] = "Succeeded".into(),
            1 => pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
            _ => {}
        }
        pod
    })
}

fn other() -> impl Strategy<Value = Value> {
    let claim = (name(), quantity(), prop::option::of(name()), name()).prop_map(|(name, size, class, volume)| {
        json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "d"}, "spec": {"storageClassName": class,
            "volumeName": volume, "resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOncePod"]}})
    });
    let volume = (name(), quantity(), name(), labels()).prop_map(|(name, size, class, labels)| {
        json!({"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": {"storageClassName": class,
            "capacity": {"storage": size}}, "status": {"phase": "Available"}})
    });
    let class = (name(), any::<bool>()).prop_map(|(name, late)| {
        let mode = if late { "WaitForFirstConsumer" } else { "Immediate" };
        json!({"kind": "StorageClass", "metadata": {"name": name}, "provisioner": "csi", "volumeBindingMode": mode})
    });
    let csi = (name(), any::<Option<i32>>()).prop_map(|(name, count)| {
        json!({"kind": "CSINode", "metadata": {"name": format!("n-{name}")}, "spec": {"drivers": [
            {"name": "csi", "nodeID": "x", "allocatable": {"count": count}}]}})
    });
    let budget = (selector(), any::<i32>()).prop_map(|(selector, allowed)| {
        json!({"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "d"}, "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}})
    });
    prop_oneof![claim, volume, class, csi, budget]
}

/// `None` when the object cannot be parsed, which is an error and no panic.
fn object(value: &Value) -> Option<Object> {
    fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
        serde_json::from_value(value.clone()).ok()
    }
    Some(match value["kind"].as_str()? {
        "Node" => model::Node::try_from(&read::<core::Node>(value)?).ok()?.into(),
        "Pod" => model::Pod::try_from(&read::<core::Pod>(value)?).ok()?.into(),
        "PersistentVolumeClaim" => {
            model::PersistentVolumeClaim::try_from(&read::<core::PersistentVolumeClaim>(value)?).ok()?.into()
        }
        "PersistentVolume" => model::PersistentVolume::try_from(&read::<core::PersistentVolume>(value)?).ok()?.into(),
        "StorageClass" => model::StorageClass::from(&read::<storage::StorageClass>(value)?).into(),
        "CSINode" => model::CsiNode::from(&read::<storage::CSINode>(value)?).into(),
        _ => model::PodDisruptionBudget::from(&read::<policy::PodDisruptionBudget>(value)?).into(),
    })
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Value),
    /// The n-th applied object goes.
    Delete(usize),
    Schedule,
    /// The n-th outstanding effect succeeds or fails; `None` loses its result.
    Report(usize, Option<bool>),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => node().prop_map(Step::Apply),
        6 => pod().prop_map(Step::Apply),
        2 => other().prop_map(Step::Apply),
        2 => any::<usize>().prop_map(Step::Delete),
        8 => Just(Step::Schedule),
        5 => (any::<usize>(), prop::option::of(prop::bool::weighted(0.7))).prop_map(|(nth, result)| Step::Report(nth, result)),
        2 => (0_i64..400_000).prop_map(Step::Wait),
    ]
}

fn run(steps: &[Step], pool: &rayon::ThreadPool) -> Result<Vec<String>, TestCaseError> {
    let registry = scheduler_core::plugins::registry();
    let config = KubeSchedulerConfiguration::default();
    let mut scheduler = Scheduler::new(&config, &registry, Options { seed: 3, ..Options::default() }).unwrap();
    let mut now = Timestamp::ZERO;
    let mut applied: Vec<Object> = Vec::new();
    let mut outstanding: Vec<(EffectId, Option<String>)> = Vec::new();
    let mut waiting: BTreeSet<String> = BTreeSet::new();
    let mut binding: BTreeSet<String> = BTreeSet::new();
    let mut log = Vec::new();
    for step in steps {
        match step {
            Step::Apply(value) => {
                let Some(object) = object(value) else { continue };
                if let Object::Pod(pod) = &object {
                    binding.remove(&*pod.uid);
                    // A pod that is being deleted is dropped at its turn.
                    let waits = pod.node_name.is_none() && !pod.is_terminal() && !pod.is_terminating();
                    if waits {
                        waiting.insert(pod.uid.to_string())
                    } else {
                        waiting.remove(&*pod.uid)
                    };
                }
                applied.push(object.clone());
                scheduler.handle(Change::Applied(object), now);
            }
            Step::Delete(nth) if !applied.is_empty() => {
                let object = applied.swap_remove(nth % applied.len());
                if let Object::Pod(pod) = &object {
                    binding.remove(&*pod.uid);
                    waiting.remove(&*pod.uid);
                }
                scheduler.handle(Change::Deleted(object), now);
            }
            Step::Schedule => {
                if let Some(attempt) = scheduler.schedule_one(now, pool) {
                    log.push(format!("{} {:?}", attempt.pod.uid, attempt.outcome));
                    if let Outcome::Scheduled { node, n_feasible, n_evaluated } = &attempt.outcome {
                        prop_assert!(n_feasible <= n_evaluated || *n_feasible == 1);
                        prop_assert!(scheduler.cache().snapshot().find(node).is_some(), "a node that is there");
                    }
                }
            }
            Step::Report(nth, result) if !outstanding.is_empty() => {
                let (id, bound) = outstanding.swap_remove(nth % outstanding.len());
                let failure = EffectError { message: "refused".to_owned(), not_found: false };
                match result {
                    Some(true) => scheduler.handle_result(id, Ok(()), now),
                    Some(false) => {
                        if let Some(uid) = bound {
                            binding.remove(&uid);
                        }
                        scheduler.handle_result(id, Err(failure), now);
                    }
                    None => {}
                }
            }
            Step::Wait(millis) => {
                now = Timestamp::from_micros(now.as_micros() + millis * 1_000);
                scheduler.tick(now);
            }
            Step::Delete(_) | Step::Report(..) => {}
        }
        for effect in scheduler.drain_effects() {
            let bound = match &effect.kind {
                EffectKind::Bind { pod, .. } => {
                    log.push(format!("bind {pod}"));
                    prop_assert!(binding.insert(pod.uid.to_string()), "pod {} is bound twice", pod.uid);
                    Some(pod.uid.to_string())
                }
                _ => None,
            };
            outstanding.push((effect.id, bound));
        }
        check(&scheduler, &waiting)?;
    }
    Ok(log)
}

/// Every pod without a node is in the queue or on its way to a node, and in one place only.
fn check(scheduler: &Scheduler, waiting: &BTreeSet<String>) -> Result<(), TestCaseError> {
    for uid in waiting {
        let is_placed = scheduler.cache().pod(uid).is_some();
        prop_assert!(scheduler.queue().place(uid).is_some() || is_placed, "pod {} is lost", uid);
    }
    let snapshot = scheduler.cache().snapshot();
    let mut seen = BTreeMap::new();
    for node in snapshot.iter() {
        for pod in snapshot.pods(node) {
            prop_assert!(seen.insert(pod.uid.clone(), node).is_none(), "pod {} is on two nodes", pod.uid);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_of_odd_objects_breaks_the_engine(steps in prop::collection::vec(step(), 1..60)) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let log = run(&steps, &pool)?;
        prop_assert_eq!(log, run(&steps, &pool)?, "the same history gives the same decisions");
    }
}
