//! What happens around decisions: queueing, waking, preemption, changes of nodes and pods, conversion of API objects.

use std::hint::black_box;
use std::time::Duration;

use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::json;

use benches::workload::{Shape, bound_pod, cluster, default_bound, new_pod, node};
use scheduler_core::engine::{Change, Outcome, Scheduler};
use scheduler_core::model::{Pod, Timestamp};

const SIZES: [usize; 4] = [1_000, 5_000, 50_000, 100_000];

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    group
}

fn pool() -> ThreadPool {
    ThreadPoolBuilder::new().build().expect("threads can be started")
}

fn applied(scheduler: &mut Scheduler, pod: Pod) {
    scheduler.handle(Change::Applied(pod.into()), Timestamp::ZERO);
}

/// Pods that ask for more than any node has.
fn too_large(k: usize) -> Pod {
    let mut pod = new_pod(Shape::Basic, k, 1);
    pod.resources.requests.milli_cpu = 1_000_000;
    pod
}

/// A pod enters a queue in which as many wait as there are nodes, and leaves it; an event that may help, and does not,
/// with as many unschedulable pods waiting.
fn queue(criterion: &mut Criterion) {
    let mut group = group(criterion, "queue");
    for n_pods in SIZES {
        let mut scheduler = cluster(Shape::Basic, 1, 0);
        for k in 0..n_pods {
            applied(&mut scheduler, new_pod(Shape::Basic, k, 1));
        }
        let pod = new_pod(Shape::Basic, n_pods, 1);
        group.bench_function(BenchmarkId::new("add-and-remove", n_pods), |bencher| {
            bencher.iter(|| {
                applied(&mut scheduler, pod.clone());
                scheduler.handle(Change::Deleted(pod.clone().into()), Timestamp::ZERO);
            });
        });
    }
    let pool = pool();
    for n_pods in [1_000, 5_000] {
        let mut scheduler = cluster(Shape::Basic, 1, 0);
        for k in 0..n_pods {
            applied(&mut scheduler, too_large(k));
        }
        while scheduler.schedule_one(Timestamp::ZERO, &pool).is_some() {
            scheduler.drain_effects();
        }
        let pod = bound_pod(0, 1);
        group.bench_function(BenchmarkId::new("event-that-helps-nobody", n_pods), |bencher| {
            bencher.iter(|| {
                applied(&mut scheduler, pod.clone());
                scheduler.handle(Change::Deleted(pod.clone().into()), Timestamp::ZERO);
            });
        });
    }
    group.finish();
}

/// A pod of high priority on a cluster full of pods of low priority, four a node.
fn preemption(criterion: &mut Criterion) {
    let mut group = group(criterion, "preemption");
    let pool = pool();
    for n_nodes in SIZES {
        let mut scheduler = cluster(Shape::Basic, n_nodes, 0);
        for j in 0..4 * n_nodes {
            let mut pod = bound_pod(j, n_nodes);
            pod.resources.requests.milli_cpu = 8_000;
            applied(&mut scheduler, pod);
        }
        let mut k = 0;
        group.bench_function(BenchmarkId::new("first-candidate", n_nodes), |bencher| {
            bencher.iter_batched(
                || {
                    k += 1;
                    let mut pod = new_pod(Shape::Basic, k, n_nodes);
                    pod.priority = 10;
                    pod.resources.requests.milli_cpu = 8_000;
                    pod
                },
                |pod| {
                    applied(&mut scheduler, pod.clone());
                    black_box(scheduler.schedule_one(Timestamp::ZERO, &pool));
                    // Nobody goes: the next pod finds the cluster as it was.
                    black_box(scheduler.drain_effects());
                    scheduler.handle(Change::Deleted(pod.into()), Timestamp::ZERO);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// A pod that fits nowhere and like which there is no other, from its coming to its message, on nodes full of pods as
/// important as it is.
fn diagnosis(criterion: &mut Criterion) {
    let mut group = group(criterion, "diagnosis");
    let pool = pool();
    for n_nodes in SIZES {
        let mut scheduler = cluster(Shape::Basic, n_nodes, n_nodes);
        let mut k = 0;
        group.bench_function(BenchmarkId::new("fits-nowhere", n_nodes), |bencher| {
            bencher.iter_batched(
                || {
                    k += 1;
                    let mut pod = too_large(k);
                    pod.resources.requests.memory += i64::try_from(k).expect("there are few pods");
                    pod
                },
                |pod| {
                    applied(&mut scheduler, pod.clone());
                    let attempt = scheduler.schedule_one(Timestamp::ZERO, &pool).expect("a pod waits");
                    assert!(matches!(attempt.outcome, Outcome::Unschedulable { .. }), "it is too large for any node");
                    black_box(scheduler.drain_effects());
                    scheduler.handle(Change::Deleted(pod.into()), Timestamp::ZERO);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// Changes of one node and of one pod in a cluster, with what decisions read kept up to date.
fn snapshot(criterion: &mut Criterion) {
    let mut group = group(criterion, "snapshot");
    for n_nodes in SIZES {
        let mut scheduler = cluster(Shape::Mixed, n_nodes, default_bound(n_nodes));
        let pod = bound_pod(default_bound(n_nodes), n_nodes);
        group.bench_function(BenchmarkId::new("pod-added-and-removed", n_nodes), |bencher| {
            bencher.iter(|| {
                applied(&mut scheduler, pod.clone());
                scheduler.handle(Change::Deleted(pod.clone().into()), Timestamp::ZERO);
            });
        });
        let (mut large, small) = (node(n_nodes / 2), node(n_nodes / 2));
        large.allocatable.milli_cpu += 1_000;
        let mut is_large = false;
        group.bench_function(BenchmarkId::new("node-resized", n_nodes), |bencher| {
            bencher.iter(|| {
                is_large = !is_large;
                let node = if is_large { &large } else { &small };
                scheduler.handle(Change::Applied(node.clone().into()), Timestamp::ZERO);
            });
        });
    }
    group.finish();
}

/// A pod as the API server sends it: its JSON decoded, and converted to what the engine reads.
fn conversion(criterion: &mut Criterion) {
    let mut group = group(criterion, "conversion");
    let text = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-5d4b8c7f6-abcde", "namespace": "default", "uid": "7f1e9d3c-0000-4000-8000-000000000000",
            "resourceVersion": "12345", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "app": "web", "tier": "front" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4b8c7f6", "uid": "u", "controller": true }],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{
                "name": "web", "image": "registry.k8s.io/pause:3.10", "ports": [{ "containerPort": 80 }],
                "resources": { "requests": { "cpu": "100m", "memory": "500Mi" }, "limits": { "cpu": "100m", "memory": "500Mi" } },
            }],
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "web" } },
            }],
        },
        "status": { "phase": "Pending" },
    })
    .to_string();
    group.bench_function("decode-pod", |bencher| {
        bencher.iter(|| serde_json::from_str::<ApiPod>(black_box(&text)));
    });
    let pod: ApiPod = serde_json::from_str(&text).expect("the text above is a pod");
    group.bench_function("convert-pod", |bencher| bencher.iter(|| Pod::try_from(black_box(&pod))));
    group.finish();
}

criterion_group!(benches, queue, preemption, diagnosis, snapshot, conversion);
criterion_main!(benches);
