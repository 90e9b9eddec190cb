//! Time of a whole decision, and of its Filter and Score parts, over cluster sizes, shapes and threads.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use rayon::{ThreadPool, ThreadPoolBuilder};

use benches::bare_loop::BareLoop;
use benches::workload::{Shape, cluster, default_bound, new_pod};
use scheduler_core::engine::{Change, Scheduler};
use scheduler_core::model::Timestamp;

const SIZES: [usize; 5] = [100, 1_000, 5_000, 50_000, 100_000];

fn pool(n_threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(n_threads).build().expect("threads can be started")
}

/// Threads to compare: one, and all.
fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all == 1 { vec![1] } else { vec![1, all] }
}

/// One decision with what follows it, without the pod's conversion.
fn decide(scheduler: &mut Scheduler, shape: Shape, k: &mut usize, n_nodes: usize, pool: &ThreadPool) {
    scheduler.handle(Change::Applied(new_pod(shape, *k, n_nodes).into()), Timestamp::ZERO);
    *k += 1;
    std::hint::black_box(scheduler.schedule_one(Timestamp::ZERO, pool));
    std::hint::black_box(scheduler.drain_effects());
}

fn cycle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cycle");
    group.sample_size(20);
    for shape in Shape::ALL {
        for n_nodes in SIZES {
            for n_threads in threads() {
                let pool = pool(n_threads);
                let mut scheduler = cluster(shape, n_nodes, default_bound(n_nodes));
                let mut k = 0;
                let id = BenchmarkId::new(format!("{}/{n_threads}-threads", shape.name()), n_nodes);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| decide(&mut scheduler, shape, &mut k, n_nodes, &pool));
                });
            }
        }
    }
    group.finish();
}

/// Examining a pod that no node can take: filters alone, with the reasons of every node.
fn filter(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter");
    group.sample_size(20);
    for n_nodes in SIZES {
        for n_threads in threads() {
            let pool = pool(n_threads);
            let mut scheduler = cluster(Shape::Basic, n_nodes, default_bound(n_nodes));
            let mut k = 0;
            let id = BenchmarkId::new(format!("one-fits/{n_threads}-threads"), n_nodes);
            group.bench_function(id, |bencher| {
                bencher.iter_batched(
                    || {
                        k += 1;
                        let mut pod = new_pod(Shape::Basic, k, n_nodes);
                        pod.node_selector = [("kubernetes.io/hostname", "node-000000")].into_iter().collect();
                        pod
                    },
                    |pod| {
                        let uid = pod.uid.clone();
                        scheduler.handle(Change::Applied(pod.clone().into()), Timestamp::ZERO);
                        std::hint::black_box(scheduler.schedule_pod(&uid, Timestamp::ZERO, &pool));
                        scheduler.handle(Change::Deleted(pod.into()), Timestamp::ZERO);
                        scheduler.drain_effects();
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

/// The bare loop that limits any scheduler of this shape: does the pod fit, and how much would be left.
fn bare_loop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("score");
    group.sample_size(20);
    for n_nodes in SIZES {
        let columns = BareLoop::new(n_nodes, default_bound(n_nodes));
        let pod = new_pod(Shape::Basic, 0, n_nodes);
        group.bench_function(BenchmarkId::new("bare-loop", n_nodes), |bencher| {
            bencher.iter(|| columns.best(0..n_nodes, std::hint::black_box(&pod)));
        });
    }
    group.finish();
}

criterion_group!(benches, cycle, filter, bare_loop);
criterion_main!(benches);
