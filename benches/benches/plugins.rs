//! What each Filter and Score plugin adds to a decision: schedulers with that plugin alone, beside one with none.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use rayon::{ThreadPool, ThreadPoolBuilder};

use benches::one_plugin::{Pair, scheduler};
use benches::workload::{Incoming, Shape, add_bound_pods, add_nodes, add_services, default_bound};
use scheduler_core::engine::{Change, Scheduler};
use scheduler_core::model::{HostPort, Pod, Timestamp};

const SIZES: [usize; 4] = [1_000, 5_000, 50_000, 100_000];

/// Plugins with the shape of pods that gives them work.
const FILTERS: [(Option<&str>, Shape); 9] = [
    (None, Shape::Basic),
    (Some("NodeUnschedulable"), Shape::Basic),
    (Some("NodeName"), Shape::Basic),
    (Some("NodePorts"), Shape::Basic),
    (Some("TaintToleration"), Shape::Selector),
    (Some("NodeAffinity"), Shape::Selector),
    (Some("NodeResourcesFit"), Shape::Basic),
    (Some("PodTopologySpread"), Shape::Spread),
    (Some("InterPodAffinity"), Shape::AntiAffinity),
];
const SCORES: [(Option<&str>, Shape); 8] = [
    (None, Shape::Basic),
    (Some("TaintToleration"), Shape::Selector),
    (Some("NodeAffinity"), Shape::Selector),
    (Some("NodeResourcesFit"), Shape::Basic),
    (Some("NodeResourcesBalancedAllocation"), Shape::Basic),
    (Some("ImageLocality"), Shape::Basic),
    (Some("PodTopologySpread"), Shape::Spread),
    (Some("InterPodAffinity"), Shape::Affinity),
];

fn pool(n_threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started")
}

fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all == 1 { vec![1] } else { vec![1, all] }
}

/// A cluster whose scheduler has one plugin.
fn world(pair: Pair, plugin: Option<&str>, shape: Shape, n_nodes: usize) -> Scheduler {
    let mut scheduler = scheduler(pair, plugin);
    add_nodes(&mut scheduler, n_nodes);
    add_bound_pods(&mut scheduler, n_nodes, default_bound(n_nodes));
    add_services(&mut scheduler, shape);
    scheduler
}

fn decide(scheduler: &mut Scheduler, pod: &Pod, pool: &ThreadPool) {
    scheduler.handle(Change::Applied(pod.clone().into()), Timestamp::ZERO);
    black_box(scheduler.schedule_one(Timestamp::ZERO, pool));
    scheduler.drain_effects();
    scheduler.handle(Change::Deleted(pod.clone().into()), Timestamp::ZERO);
}

fn bench(criterion: &mut Criterion, group: &str, pair: Pair, plugins: &[(Option<&str>, Shape)]) {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(600));
    for &(plugin, shape) in plugins {
        for n_nodes in SIZES {
            let mut scheduler = world(pair, plugin, shape, n_nodes);
            let incoming = Incoming { shape, n_nodes, distinct: 1.0, n_replicas: 1 };
            for n_threads in threads() {
                let pool = pool(n_threads);
                let mut k = 0;
                let id = BenchmarkId::new(format!("{}/{n_threads}-threads", plugin.unwrap_or("none")), n_nodes);
                group.bench_function(id, |bencher| {
                    bencher.iter_batched(
                        || {
                            k += 1;
                            let mut pod = incoming.pod(k);
                            if plugin == Some("NodePorts") {
                                pod.host_ports = [port()].into();
                            }
                            pod
                        },
                        |pod| decide(&mut scheduler, &pod, &pool),
                        BatchSize::SmallInput,
                    );
                });
            }
        }
    }
    group.finish();
}

fn port() -> HostPort {
    HostPort { ip: "0.0.0.0".into(), protocol: "TCP".into(), port: 80 }
}

fn filter(criterion: &mut Criterion) {
    bench(criterion, "filter", Pair::Filter, &FILTERS);
}

fn score(criterion: &mut Criterion) {
    bench(criterion, "score", Pair::Score, &SCORES);
}

criterion_group!(benches, filter, score);
criterion_main!(benches);
